//! `msync`, `fsync` and `fdatasync` of memory that is emulated as persistent: after the kernel's own work, the lines of the
//! mapped range are flushed, and a barrier follows.
//!
//! `fsync` flushes all parts of the file that the process has mapped. A file of a disk's file system is written to the disk as
//! before; the flushes come on top. A file in memory (tmpfs) that is not mapped takes the barrier only, as PMFS has written it
//! past the caches already.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use deepram_linux::flush::{Flusher, Method};
use libc::{c_int, c_void, size_t};

use super::files::{self, Mapped};
use super::{Settings, dirty, settings};
use crate::libc_symbols::symbol;
use crate::malloc::set_errno;
use crate::setup;

const PAGE: usize = 4096;
/// Pages whose presence is asked for at once.
const PAGES: usize = 4096;

/// Whether the process has more than one thread, or had.
static THREADS: AtomicBool = AtomicBool::new(false);

/// Notes that the program starts a thread.
pub(crate) fn note_thread() {
    THREADS.store(true, Relaxed);
}

/// Interposes the C library's `msync`.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msync(at: *mut c_void, len: size_t, flags: c_int) -> c_int {
    symbol!(NEXT = c"msync");
    type Msync = unsafe extern "C" fn(*mut c_void, size_t, c_int) -> c_int;
    let Some(next) = NEXT.find() else {
        set_errno(libc::ENOSYS);
        return -1;
    };
    // SAFETY: the C library's function of this name, with the caller's arguments.
    let result = unsafe { std::mem::transmute::<*mut c_void, Msync>(next)(at, len, flags) };
    if result == 0 {
        after_msync(at.addr(), len, flags);
    }
    result
}

/// Interposes the C library's `fsync`.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fsync(fd: c_int) -> c_int {
    symbol!(NEXT = c"fsync");
    // SAFETY: the C library's function of this name takes a descriptor.
    unsafe { sync_file(NEXT.find(), fd) }
}

/// Interposes the C library's `fdatasync`.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdatasync(fd: c_int) -> c_int {
    symbol!(NEXT = c"fdatasync");
    // SAFETY: the C library's function of this name takes a descriptor.
    unsafe { sync_file(NEXT.find(), fd) }
}

/// # Safety
/// `next` is a function of the C library that takes a descriptor.
unsafe fn sync_file(next: Option<*mut c_void>, fd: c_int) -> c_int {
    let Some(next) = next else {
        set_errno(libc::ENOSYS);
        return -1;
    };
    // SAFETY: the caller's promise.
    let result = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(c_int) -> c_int>(next)(fd) };
    if result == 0 {
        after_fsync(fd);
    }
    result
}

/// Flushes the range of a successful `msync`.
pub(crate) fn after_msync(start: usize, len: usize, flags: c_int) {
    let Some(settings) = settings() else { return };
    if flags & libc::MS_SYNC == 0 {
        return;
    }
    let writable = files::at(start, len).is_some_and(|one| one.writable);
    if !flush(settings, start, start.saturating_add(len), writable) {
        settings.flusher.barrier();
    }
}

/// Flushes what is mapped of a file after its `fsync`.
pub(crate) fn after_fsync(fd: c_int) {
    let Some(settings) = settings() else { return };
    let Some((file, in_memory)) = files::identify(fd) else { return };
    let mapped = files::of_file(file);
    if mapped.is_empty() && !in_memory {
        return;
    }
    let mut done = false;
    for Mapped { start, end, writable, .. } in mapped {
        done = flush(settings, start, end, writable);
    }
    if !done {
        settings.flusher.barrier();
    }
}

/// Flushes every line of a mapping that has moved, whose dirty pages are not known any more.
pub(super) fn flush_moved(start: usize, end: usize) {
    if let Some(settings) = settings().filter(|settings| settings.selective) {
        flush_lines(flusher(settings, true), start, end);
    }
}

/// The flusher for a range. Write once flush stores to the lines: another thread's store could be lost, and memory without
/// write access cannot be stored to.
fn flusher(settings: &Settings, writable: bool) -> Flusher {
    static REPORTED: AtomicBool = AtomicBool::new(false);
    let is_safe = writable && !THREADS.load(Relaxed);
    if settings.flusher.method() != Method::NonTemporal || is_safe {
        return settings.flusher;
    }
    if !REPORTED.swap(true, Relaxed) {
        setup::report(
            "flush=wof stores to the lines that it flushes: in this process, which has threads or has mapped the file without \
             write access, clflushopt is used instead where the processor has it",
        );
    }
    let other = if Method::Clflushopt.is_available() { Method::Clflushopt } else { Method::Clflush };
    Flusher::new(other).unwrap_or(settings.flusher)
}

/// Flushes the range. Selective flushing looks at dirty pages only; memory without write access has none. Returns whether the
/// barrier has followed.
fn flush(settings: &Settings, start: usize, end: usize, writable: bool) -> bool {
    let flusher = flusher(settings, writable);
    if settings.selective && writable && dirty::flush(flusher, start, end) {
        return true;
    }
    if !settings.selective || writable {
        flush_lines(flusher, start, end);
    }
    false
}

/// Flushes the lines of a range that are in memory: of a page that is not, no line is in a cache, and a page behind the end of
/// the file must not be touched.
fn flush_lines(flusher: Flusher, start: usize, end: usize) {
    let mut present = [0_u8; PAGES];
    let mut at = start / PAGE * PAGE;
    while at < end {
        let len = (end - at).min(PAGES * PAGE);
        // SAFETY: the kernel stores one byte for each page.
        let failed = unsafe {
            libc::mincore(std::ptr::with_exposed_provenance_mut(at), len, present.as_mut_ptr().cast()) != 0
        };
        let pages = len.div_ceil(PAGE);
        for run in present[..pages].chunk_by(|a, b| a & 1 == b & 1).filter(|_| !failed) {
            let first = at + (run.as_ptr().addr() - present.as_ptr().addr()) * PAGE;
            let (from, to) = (first.max(start), (first + run.len() * PAGE).min(end));
            if run[0] & 1 == 1 && from < to {
                // SAFETY: the pages are mapped and in memory; the method stores only if `flusher` found that safe.
                unsafe { flusher.flush(std::ptr::with_exposed_provenance(from), to - from) };
            }
        }
        at += len;
    }
}
