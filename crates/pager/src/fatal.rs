//! The calls that the kernel must execute for memory to stay correct, and the end of the process if it refuses one of
//! them.
//!
//! A store to a page that could not be protected would be lost, a page that could not be dropped would be read with old
//! contents, and a thread that could not be woken would wait for ever. So the process then ends by SIGABRT, after a
//! message that names the call, the addresses and the error. The process continues where
//! - the memory is no longer the pager's, because the program has unmapped it or mapped something else there without
//!   the pager seeing it: `ENOENT` of the userfaultfd's calls (page by page: the other pages of the range still count),
//!   and `ENOMEM` of `MADV_DONTNEED` for a range that is not all mapped, of which the kernel has dropped the rest;
//! - the program has locked the memory without the pager seeing it: [`deepram_linux::uffd::discard`] drops it all the same;
//! - the process that the userfaultfd watches is ending: `ESRCH`;
//! - a page is present already when it is installed: `EEXIST`. Threads that wait for it are woken;
//! - the kernel asks for a retry: `EAGAIN`, which [`deepram_linux::uffd`] handles, and `ENOMEM` of an install, for a second;
//! - there is another way: frames that cannot be moved (`UFFDIO_MOVE`) are copied, requests that a ring refuses are
//!   made without it, pages that cannot be read ahead or staged are read when they are used, and pages that cannot be
//!   written stay in DRAM.

use std::fmt;
use std::io;
use std::time::Duration;

use super::{AddressSpace, PAGE};
use deepram_linux::message::{ShownError, abort, write_line};
use deepram_linux::uffd;

/// How often, and after which pause, an install is retried for which the kernel has no memory.
const NO_MEMORY_RETRIES: usize = 100;
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// Reports the reason and ends the process.
pub(super) fn fatal(why: fmt::Arguments<'_>) -> ! {
    write_line(format_args!("deepram: {why}; paged memory would be corrupt, so the process is aborted"));
    abort()
}

/// As [`fatal`], where `call` has failed for this memory.
pub(super) fn call_failed(call: &str, start: usize, len: usize, error: &io::Error) -> ! {
    fatal(format_args!(
        "{call} failed at {start:#x}-{:#x} ({})",
        start.saturating_add(len),
        ShownError(error)
    ))
}

/// Ends the process if the thread that holds this panics: no other thread completes its work.
pub(super) struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            fatal(format_args!("a thread of the pager panicked"));
        }
    }
}

/// Whether the memory is no longer the pager's, or the process is ending.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

/// Applies `f` to the whole range, or page by page if parts of the memory are gone. Returns the pages that are no
/// longer the pager's.
fn whole_or_by_page(
    call: &str,
    start: usize,
    len: usize,
    f: impl Fn(usize, usize) -> io::Result<()>,
) -> Vec<usize> {
    let run = |start, len| match f(start, len) {
        Err(error) if !is_gone(&error) => call_failed(call, start, len, &error),
        result => result.is_ok(),
    };
    if len == 0 || run(start, len) {
        return Vec::new();
    }
    (start..start + len).step_by(PAGE).filter(|page| !run(*page, PAGE)).collect()
}

impl AddressSpace {
    /// Write-protects pages that are in memory: later stores to them wait. Returns the pages that are no longer the
    /// pager's.
    pub(super) fn protect(&self, start: usize, len: usize) -> Vec<usize> {
        whole_or_by_page("UFFDIO_WRITEPROTECT", start, len, |start, len| self.uffd.protect(start, len))
    }

    /// Removes write protection, and wakes threads whose stores wait.
    pub(super) fn unprotect(&self, start: usize, len: usize) {
        let gone =
            whole_or_by_page("UFFDIO_WRITEPROTECT", start, len, |start, len| self.uffd.unprotect(start, len));
        gone.into_iter().for_each(|page| self.wake(page, PAGE));
    }

    /// Lets waiting threads retry their access.
    pub(super) fn wake(&self, start: usize, len: usize) {
        if let Err(error) = self.uffd.wake(start, len) {
            call_failed("UFFDIO_WAKE", start, len, &error);
        }
    }

    /// Makes missing pages present with these bytes, write-protected if `protect`, and wakes waiting threads. Pages
    /// that are present already stay as they are. The range may span several mappings. Returns the number of pages that
    /// are present now: fewer than given where a mapping has gone without the pager seeing it.
    pub(super) fn install(&self, start: usize, bytes: &[u8], protect: bool) -> usize {
        let (mut done, mut most, mut tries) = (0, bytes.len(), 0);
        while done < bytes.len() {
            let end = bytes.len().min(done + most);
            let (n, result) = self.uffd.copy(start + done, &bytes[done..end], protect);
            done += n;
            let Err(error) = result else { continue };
            match error.raw_os_error() {
                Some(libc::EEXIST) => {
                    // A thread that waits for this page can continue.
                    self.wake(start + done, PAGE);
                    done += PAGE;
                }
                // One request covers a single mapping.
                Some(libc::ENOENT) if end - done > PAGE => most = PAGE,
                _ if is_gone(&error) => break,
                Some(libc::ENOMEM) if tries < NO_MEMORY_RETRIES => {
                    tries += 1;
                    std::thread::sleep(RETRY_PAUSE);
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
/// As for [`uffd::discard`].
pub(super) unsafe fn discard(ranges: &[(usize, usize)]) {
    // SAFETY: the caller's promise, here and below.
    if unsafe { uffd::discard(ranges) }.is_ok() {
        return;
    }
    for &(start, len) in ranges {
        // SAFETY: as above.
        let Err(error) = (unsafe { uffd::discard(&[(start, len)]) }) else { continue };
        let was_unmapped = error.raw_os_error() == Some(libc::ENOMEM) && !uffd::is_mapped(start, len);
        if !was_unmapped {
            call_failed("madvise(MADV_DONTNEED)", start, len, &error);
        }
    }
}
