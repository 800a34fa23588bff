//! io_uring instances whose completions are polled, without interrupts.
//!
//! A completion that arrives on a processor other than the polling one interrupts the polling processor, which on a
//! virtual machine takes longer than the poll itself. These rings set a flag instead when completion work is pending
//! (`IORING_SETUP_COOP_TASKRUN`).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd};
use std::time::Duration;

use io_uring::IoUring;

use crate::descriptors::OpenGuard;

/// Creates a ring of `entries` entries that does not interrupt, if the kernel allows io_uring at all.
pub fn coop_taskrun(entries: u32) -> Option<IoUring> {
    // Needs Linux 5.19; older kernels get a standard ring.
    let coop = || IoUring::builder().setup_coop_taskrun().setup_taskrun_flag().build(entries);
    with_high_descriptor(coop).or_else(|_| with_high_descriptor(|| IoUring::new(entries))).ok()
}

/// Creates a ring of `entries` entries with interrupts on completion.
///
/// # Errors
/// The kernel refuses the ring.
pub fn standard(entries: u32) -> io::Result<IoUring> {
    with_high_descriptor(|| IoUring::new(entries))
}

/// Creates a ring and moves its descriptor to a high number.
fn with_high_descriptor(build: impl FnOnce() -> io::Result<IoUring>) -> io::Result<IoUring> {
    let opening = OpenGuard::acquire();
    let ring = build()?;
    // SAFETY: the descriptor is open as long as the ring, which lives to the end of this function.
    let fd = opening.duplicate(unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) })?;
    // SAFETY: the new descriptor refers to the ring with these parameters and has no other owner.
    unsafe { IoUring::from_fd(fd.into_raw_fd(), ring.params().clone()) }
}

/// How often a submission is retried when the ring has nothing in flight and starts nothing because the kernel lacks
/// memory.
pub const SUBMIT_RETRIES: usize = 100;
/// Pause before each retry.
pub const RETRY_PAUSE: Duration = Duration::from_micros(100);

/// Whether the ring may accept the same submission later.
pub fn is_transient(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::EINTR))
}

/// Runs completion work that did not interrupt the thread. Returns the number of entries that it submitted at the same
/// time.
pub fn run_deferred_completions(ring: &mut IoUring) -> usize {
    if !ring.submission().taskrun() {
        return 0;
    }
    // Any system call of this thread runs the pending work on return. An error shows again at the next submission.
    ring.submit().unwrap_or(0)
}
