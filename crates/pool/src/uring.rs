//! Rings (io_uring) whose ends are looked for rather than waited for.
//!
//! A completion that arrives at another processor than the one that looks for it interrupts that one, which on a virtual
//! machine takes longer than the looking. These rings say by a flag that there is something to take in.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd};
use std::time::Duration;

use io_uring::IoUring;

use crate::descriptors::Low;

/// A ring of so many entries, if the kernel allows any.
pub(crate) fn ring(entries: u32) -> Option<IoUring> {
    // Linux 5.19.
    let quiet = || IoUring::builder().setup_coop_taskrun().setup_taskrun_flag().build(entries);
    raised(quiet).or_else(|_| raised(|| IoUring::new(entries))).ok()
}

/// The same with completions that interrupt.
pub(crate) fn plain(entries: u32) -> io::Result<IoUring> {
    raised(|| IoUring::new(entries))
}

/// A ring whose descriptor has a high number.
fn raised(build: impl FnOnce() -> io::Result<IoUring>) -> io::Result<IoUring> {
    let low = Low::hold();
    let ring = build()?;
    // SAFETY: open as long as the ring, which lives until the end.
    let fd = low.duplicate(unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) })?;
    // SAFETY: a descriptor of the ring that these are the parameters of, and nobody else's.
    unsafe { IoUring::from_fd(fd.into_raw_fd(), ring.params().clone()) }
}

/// How often a ring is asked again that has nothing under way and starts nothing, as the kernel is short of memory.
pub(crate) const TRIES: usize = 100;
/// The pause before that.
pub(crate) const PAUSE: Duration = Duration::from_micros(100);

/// Whether a ring that has refused to start something may start it later.
pub(crate) fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::EINTR))
}

/// Takes in what has ended and not been interrupted for. Returns how many entries it has sent off besides.
pub(crate) fn take_in(ring: &mut IoUring) -> usize {
    if !ring.submission().taskrun() {
        return 0;
    }
    // On its way back from any call the thread does what the flag asks for. What an error leaves is seen the next time.
    ring.submit().unwrap_or(0)
}
