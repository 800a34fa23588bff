//! Clocks of the system. They are read through the C library: `rustix` maps the kernel's vDSO by itself, and fails in a program that
//! Valgrind runs, which hides the vDSO.

/// Nanoseconds of the system's monotonic clock, which all processes share.
#[must_use]
pub fn monotonic_ns() -> u64 {
    read_ns(libc::CLOCK_MONOTONIC)
}

/// Processor time of this thread, nanoseconds: other programs on the machine do not count.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    read_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Processor time of a thread of this process, nanoseconds; `None` if there is no such thread.
#[must_use]
pub fn thread_cpu_ns_of(thread: i32) -> Option<u64> {
    // The kernel's number of a thread's clock: the inverted thread, and the bits for one thread and for its run time.
    const ONE_THREAD: libc::clockid_t = 4;
    const RUN_TIME: libc::clockid_t = 2;
    try_read_ns((!thread << 3) | ONE_THREAD | RUN_TIME)
}

/// Processor time of all threads of this process, nanoseconds.
#[must_use]
pub fn process_cpu_ns() -> u64 {
    read_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Reads a clock that every Linux has.
fn read_ns(clock: libc::clockid_t) -> u64 {
    try_read_ns(clock).unwrap_or_default()
}

fn try_read_ns(clock: libc::clockid_t) -> Option<u64> {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills the structure, or returns an error.
    let result = unsafe { libc::clock_gettime(clock, &raw mut now) };
    (result == 0).then_some(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_thread_grows_with_its_work_and_ends_with_it() {
        let (ids, id) = std::sync::mpsc::channel();
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            while thread_cpu_ns() < 2_000_000 {}
            ids.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            // Until the sender is dropped.
            let _ = wait.recv();
        });
        let id = id.recv().unwrap();
        assert!(thread_cpu_ns_of(id).unwrap() >= 2_000_000);
        drop(done);
        thread.join().unwrap();
        // The C library joins a thread a moment before the kernel forgets it.
        while thread_cpu_ns_of(id).is_some() {
            std::thread::yield_now();
        }
    }
}
