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

/// Processor time of all threads of this process, nanoseconds.
#[must_use]
pub fn process_cpu_ns() -> u64 {
    read_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn read_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills the structure; every Linux has these clocks.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
