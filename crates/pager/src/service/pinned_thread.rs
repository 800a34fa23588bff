//! A thread that is pinned to a processor for a while.

use rustix::thread::{CpuSet, Pid};

/// A thread that is pinned to the processor of a handler until this is dropped.
#[derive(Debug)]
pub(super) struct PinnedThread {
    pub(super) handler: usize,
    pub(super) thread: i32,
    cpu_set: CpuSet,
    /// The affinity mask that the program gave the thread.
    allowed: CpuSet,
}

impl PinnedThread {
    /// Pins a thread of this process; `None` if its affinity mask does not allow the processor.
    pub(super) fn pin(handler: usize, thread: i32, cpu: usize) -> Option<Self> {
        let pid = Pid::from_raw(thread)?;
        let mut cpu_set = CpuSet::new();
        cpu_set.set(cpu);
        let allowed =
            rustix::thread::sched_getaffinity(Some(pid)).ok().filter(|allowed| allowed.is_set(cpu))?;
        let pinned = allowed == cpu_set || rustix::thread::sched_setaffinity(Some(pid), &cpu_set).is_ok();
        pinned.then_some(Self { handler, thread, cpu_set, allowed })
    }
}

impl Drop for PinnedThread {
    fn drop(&mut self) {
        let thread = Pid::from_raw(self.thread);
        // The thread may have ended, or the program may have changed its affinity.
        if self.allowed != self.cpu_set && rustix::thread::sched_getaffinity(thread) == Ok(self.cpu_set) {
            let _ = rustix::thread::sched_setaffinity(thread, &self.allowed);
        }
    }
}

/// Whether the thread belongs to this process.
pub(super) fn is_own_thread(thread: i32) -> bool {
    // SAFETY: signal 0 checks the target without sending anything.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, 0) == 0 }
}
