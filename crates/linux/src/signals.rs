//! Starts threads with all signals blocked. A signal that the program has blocked in all of its threads to wait for it
//! (`sigwait`, `signalfd`) would otherwise be delivered to a thread of this library; a signal handler there could touch
//! memory whose faults that same thread must serve.

use std::io;
use std::mem::MaybeUninit;
use std::thread::JoinHandle;

/// Blocks all signals of the calling thread, except those of the C library itself, until dropped.
pub struct BlockedSignals {
    before: libc::sigset_t,
}

impl BlockedSignals {
    /// Blocks the signals from now on.
    #[must_use]
    pub fn all() -> Self {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: the calls fill both sets; they fail only for an unknown `how`.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            Self { before: before.assume_init() }
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the kernel filled the set in `all`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }
}

/// Starts a thread that has all signals blocked.
///
/// # Errors
/// The system refuses the thread.
pub fn spawn<T: Send + 'static>(
    name: impl Into<String>,
    stack: Option<usize>,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let builder = std::thread::Builder::new().name(name.into());
    let builder = stack.into_iter().fold(builder, std::thread::Builder::stack_size);
    // A new thread inherits the signal mask of its creator.
    let _blocked = BlockedSignals::all();
    builder.spawn(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocked() -> String {
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("the status is readable");
        status.lines().find(|line| line.starts_with("SigBlk")).expect("a line of it").to_owned()
    }

    #[test]
    fn a_thread_of_ours_blocks_signals_and_its_maker_does_not() {
        let before = blocked();
        let there =
            spawn("deepram-test", Some(256 << 10), blocked).expect("it starts").join().expect("it ends");
        assert_eq!(blocked(), before);
        // All except signals 32 and 33, which belong to the C library, and SIGKILL and SIGSTOP, which cannot be
        // blocked.
        assert_eq!(there, "SigBlk:\tfffffffe7ffbfeff");
    }
}
