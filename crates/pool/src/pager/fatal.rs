//! What the kernel must do for memory to stay right, and the end of the process where it refuses that.
//!
//! A store to a page that could not be protected would be lost, a page that could not be dropped would be read old, and a
//! thread that could not be woken would wait for ever. So the process ends then, by SIGABRT, after a message that names the
//! call, the addresses and the error. It goes on where
//! - the memory is not the pager's any more, because the program has unmapped it or mapped something else there, unseen:
//!   `ENOENT` of the userfaultfd's calls (page by page: others of the range still count), and `ENOMEM` of `MADV_DONTNEED`
//!   for a range that is not all mapped, of which the kernel has dropped the rest;
//! - the program has locked the memory, unseen: `EINVAL` of `MADV_DONTNEED` where `MADV_DONTNEED_LOCKED` does it;
//! - the process that the userfaultfd watches is ending: `ESRCH`;
//! - a page is there already when it is installed: `EEXIST`. Whoever waits for it is woken;
//! - the kernel asks to be called again: `EAGAIN`, which [`crate::uffd`] does, and `ENOMEM` of an install, for a second;
//! - there is another way: frames that do not move (`UFFDIO_MOVE`) are copied, what a ring refuses is read and written
//!   without, what cannot be read ahead or staged is read when it is used, and what cannot be written stays in DRAM.

use std::fmt;
use std::io;
use std::time::Duration;

use super::{Ground, PAGE};
use crate::message::{Cause, abort, write_line};
use crate::uffd;

/// How often, and after what pause, pages are installed again for which the kernel has no memory.
const TRIES: usize = 100;
const PAUSE: Duration = Duration::from_millis(10);

/// The process cannot go on.
pub(super) fn fatal(why: fmt::Arguments<'_>) -> ! {
    write_line(format_args!("deepram: {why}; paged memory would be wrong, and so the program ends here"));
    abort()
}

/// The same where this call has failed for this memory.
pub(super) fn call_failed(call: &str, start: usize, len: usize, error: &io::Error) -> ! {
    fatal(format_args!("{call} failed at {start:#x}-{:#x} ({})", start.saturating_add(len), Cause(error)))
}

/// The process ends if the thread that holds this panics: what the thread had under way nobody else ends.
pub(super) struct Alarm;

impl Drop for Alarm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            fatal(format_args!("a thread of the pager panicked"));
        }
    }
}

/// Whether the memory is not the pager's any more, or the process is ending.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

/// Does it for all of a range. Returns the pages that are not the pager's any more.
fn each(call: &str, start: usize, len: usize, f: impl Fn(usize, usize) -> io::Result<()>) -> Vec<usize> {
    let tell = |start, len| match f(start, len) {
        Err(error) if !is_gone(&error) => call_failed(call, start, len, &error),
        result => result.is_ok(),
    };
    if len == 0 || tell(start, len) {
        return Vec::new();
    }
    (start..start + len).step_by(PAGE).filter(|page| !tell(*page, PAGE)).collect()
}

impl Ground {
    /// Makes later stores to pages that are there wait. Returns the pages that are not the pager's any more.
    pub(super) fn protect(&self, start: usize, len: usize) -> Vec<usize> {
        each("UFFDIO_WRITEPROTECT", start, len, |start, len| self.watch.protect(start, len))
    }

    /// Lets stores go through, those that wait as well.
    pub(super) fn unprotect(&self, start: usize, len: usize) {
        let gone = each("UFFDIO_WRITEPROTECT", start, len, |start, len| self.watch.unprotect(start, len));
        gone.into_iter().for_each(|page| self.wake(page, PAGE));
    }

    /// Lets who waits try again.
    pub(super) fn wake(&self, start: usize, len: usize) {
        if let Err(error) = self.watch.wake(start, len) {
            call_failed("UFFDIO_WAKE", start, len, &error);
        }
    }

    /// Makes missing pages resident with these bytes, write-protected if `protect`, and wakes who waits.
    /// Pages that are there already stay as they are. The range may be made up of several mappings. Returns
    /// how many pages are there now: fewer than asked for where a mapping has gone behind our back.
    pub(super) fn install(&self, start: usize, bytes: &[u8], protect: bool) -> usize {
        let (mut done, mut most, mut tries) = (0, bytes.len(), 0);
        while done < bytes.len() {
            let end = bytes.len().min(done + most);
            let (n, result) = self.watch.copy(start + done, &bytes[done..end], protect);
            done += n;
            let Err(error) = result else { continue };
            match error.raw_os_error() {
                Some(libc::EEXIST) => {
                    // Whoever waits for it need not.
                    self.wake(start + done, PAGE);
                    done += PAGE;
                }
                // One request is one mapping's.
                Some(libc::ENOENT) if end - done > PAGE => most = PAGE,
                _ if is_gone(&error) => break,
                Some(libc::ENOMEM) if tries < TRIES => {
                    tries += 1;
                    std::thread::sleep(PAUSE);
                }
                _ => call_failed("UFFDIO_COPY", start + done, end - done, &error),
            }
        }
        done / PAGE
    }
}

/// Drops the frames of these ranges (start, length).
///
/// # Safety
/// As of [`uffd::discard`].
pub(super) unsafe fn discard(ranges: &[(usize, usize)]) {
    // SAFETY: the caller's promise, here and below.
    if unsafe { uffd::discard(ranges) }.is_ok() {
        return;
    }
    for &(start, len) in ranges {
        // SAFETY: as above.
        let Err(error) = (unsafe { uffd::discard(&[(start, len)]) }) else { continue };
        let is_right = match error.raw_os_error() {
            Some(libc::ENOMEM) => !uffd::is_mapped(start, len),
            // SAFETY: as above.
            Some(libc::EINVAL) => unsafe {
                libc::syscall(libc::SYS_madvise, start, len, libc::MADV_DONTNEED_LOCKED) == 0
            },
            _ => false,
        };
        if !is_right {
            call_failed("madvise(MADV_DONTNEED)", start, len, &error);
        }
    }
}
