//! `madvise`, `mlock` and their families for managed memory; calls for other memory go to the kernel.
//!
//! `mincore` is not interposed: as with a swap device, it reports which pages are in memory.

use deepram_pager::{PAGE, Pager};
use libc::{c_int, c_uint, c_void, size_t};

use crate::library_context::enter_library;
use crate::malloc::set_errno;
use crate::mappings::mappings;
use crate::memory::{is_range, pager, pager_for, round_to_pages};
use crate::{kernel, lazy_start};

const MADV_DONTNEED_LOCKED: c_int = 24;
/// Advice that needs no pager to be started: it has no effect on later accesses.
const NO_PAGER_NEEDED: [c_int; 11] = [
    libc::MADV_DONTFORK,
    libc::MADV_DOFORK,
    libc::MADV_WIPEONFORK,
    libc::MADV_KEEPONFORK,
    libc::MADV_DONTNEED,
    libc::MADV_FREE,
    libc::MADV_WILLNEED,
    libc::MADV_COLD,
    libc::MADV_PAGEOUT,
    libc::MADV_NORMAL,
    libc::MADV_RANDOM,
];
const MADV_GUARD_INSTALL: c_int = 102;
const MADV_GUARD_REMOVE: c_int = 103;

/// Makes the call for the parts of the range that are not managed. Returns the kernel's error, if any.
fn on_unmanaged(
    pager: &Pager,
    start: usize,
    len: usize,
    mut call: impl FnMut(usize, usize) -> c_int,
) -> c_int {
    pager.unmanaged(start, len).into_iter().fold(0, |result, (from, to)| call(from, to - from).min(result))
}

/// Interposes the C library's `madvise`.
#[unsafe(no_mangle)]
pub extern "C" fn madvise(at: *mut c_void, len: size_t, advice: c_int) -> c_int {
    let start = at.addr();
    let pager = if NO_PAGER_NEEDED.contains(&advice) {
        pager().filter(|_| is_range(start, len))
    } else {
        pager_for(start, len)
    };
    match pager {
        Some(pager) => enter_library(move || advise_managed(pager, start, len, advice)),
        None if lazy_start::is_watching() && is_range(start, len) && concerns_forks(advice) => {
            enter_library(move || apply_fork_advice(start, len, advice))
        }
        None => {
            if let libc::MADV_MERGEABLE | MADV_GUARD_INSTALL = advice {
                lazy_start::keep_unpaged(start, len);
            }
            kernel::madvise(start, len, advice)
        }
    }
}

/// Whether the advice changes the memory of forked children.
fn concerns_forks(advice: c_int) -> bool {
    let for_forks = [libc::MADV_DONTFORK, libc::MADV_DOFORK, libc::MADV_WIPEONFORK, libc::MADV_KEEPONFORK];
    for_forks.contains(&advice)
}

fn apply_fork_advice(start: usize, len: usize, advice: c_int) -> c_int {
    let result = kernel::madvise(start, len, advice);
    if result == 0 {
        let (mut mappings, end) = (mappings(), start + round_to_pages(len));
        match advice {
            libc::MADV_DONTFORK => mappings.not_in_child.insert(start, end),
            libc::MADV_DOFORK => mappings.not_in_child.remove(start, end),
            libc::MADV_WIPEONFORK => mappings.zero_in_child.insert(start, end),
            _ => mappings.zero_in_child.remove(start, end),
        }
    }
    result
}

fn advise_managed(pager: &Pager, start: usize, len: usize, advice: c_int) -> c_int {
    let call_kernel = || kernel::madvise(start, len, advice);
    let (page_len, end) = (round_to_pages(len), start + round_to_pages(len));
    if concerns_forks(advice) {
        return apply_fork_advice(start, len, advice);
    }
    if !pager.manages_any(start, page_len) {
        if let libc::MADV_MERGEABLE | MADV_GUARD_INSTALL = advice {
            mappings().small.remove(start, end);
        }
        return call_kernel();
    }
    let on_unmanaged_parts =
        || on_unmanaged(pager, start, page_len, |from, len| kernel::madvise(from, len, advice));
    match advice {
        libc::MADV_DONTNEED | MADV_DONTNEED_LOCKED | libc::MADV_FREE => {
            let result = on_unmanaged_parts();
            pager.drop_contents(start, page_len);
            result
        }
        libc::MADV_WILLNEED => {
            pager.will_need(start, page_len);
            on_unmanaged_parts()
        }
        libc::MADV_COLD | libc::MADV_PAGEOUT => {
            pager.evict_range(start, page_len);
            on_unmanaged_parts()
        }
        libc::MADV_HUGEPAGE | libc::MADV_NOHUGEPAGE => {
            pager.prefer_huge(start, page_len, advice == libc::MADV_HUGEPAGE);
            on_unmanaged_parts()
        }
        // The pager splits and joins pages itself, and each process's pages are its own.
        libc::MADV_COLLAPSE | libc::MADV_MERGEABLE | libc::MADV_UNMERGEABLE => on_unmanaged_parts(),
        // As kernels before Linux 6.13.
        MADV_GUARD_INSTALL | MADV_GUARD_REMOVE => {
            set_errno(libc::EINVAL);
            -1
        }
        // Populating touches the pages: these faults are served like the program's own.
        _ => call_kernel(),
    }
}

/// Interposes the C library's `posix_madvise`.
#[unsafe(no_mangle)]
pub extern "C" fn posix_madvise(at: *mut c_void, len: size_t, advice: c_int) -> c_int {
    // `POSIX_MADV_DONTNEED` keeps the contents; the other values are those of `madvise`.
    if advice == libc::POSIX_MADV_DONTNEED || madvise(at, len, advice) == 0 { 0 } else { libc::EINVAL }
}

/// Interposes the C library's `mlock`. Managed memory is pinned in DRAM, within the budget.
#[unsafe(no_mangle)]
pub extern "C" fn mlock(at: *const c_void, len: size_t) -> c_int {
    lock(at.addr(), len, true, kernel::mlock)
}

/// Interposes the C library's `mlock2`. With `MLOCK_ONFAULT`, managed memory is brought into DRAM at once nevertheless.
#[unsafe(no_mangle)]
pub extern "C" fn mlock2(at: *const c_void, len: size_t, flags: c_uint) -> c_int {
    lock(at.addr(), len, true, move |start, len| kernel::mlock2(start, len, flags))
}

/// Interposes the C library's `munlock`.
#[unsafe(no_mangle)]
pub extern "C" fn munlock(at: *const c_void, len: size_t) -> c_int {
    lock(at.addr(), len, false, kernel::munlock)
}

/// Interposes the C library's `mlockall`. Locking everything would leave nothing to page: only later calls of `mlock`
/// have an effect.
#[unsafe(no_mangle)]
pub extern "C" fn mlockall(flags: c_int) -> c_int {
    if !lazy_start::is_watching() {
        return kernel::mlockall(flags);
    }
    let all = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
    if flags & !all != 0 || flags & (libc::MCL_CURRENT | libc::MCL_FUTURE) == 0 {
        set_errno(libc::EINVAL);
        return -1;
    }
    0
}

/// Interposes the C library's `munlockall`.
#[unsafe(no_mangle)]
pub extern "C" fn munlockall() -> c_int {
    if let Some(pager) = pager() {
        enter_library(|| pager.pin(0, usize::MAX / PAGE * PAGE, false));
    }
    kernel::munlockall()
}

fn lock(start: usize, len: usize, locked: bool, kernel: impl Fn(usize, usize) -> c_int + 'static) -> c_int {
    let first = start / PAGE * PAGE;
    let page_len = (start - first).checked_add(len).map(round_to_pages);
    match page_len.and_then(|page_len| pager_for(first, page_len)) {
        Some(pager) => enter_library(move || lock_managed(pager, start, len, locked, kernel)),
        None => {
            if let (true, Some(page_len)) = (locked, page_len) {
                lazy_start::keep_unpaged(first, page_len);
            }
            kernel(start, len)
        }
    }
}

fn lock_managed(
    pager: &Pager,
    start: usize,
    len: usize,
    locked: bool,
    kernel: impl Fn(usize, usize) -> c_int,
) -> c_int {
    let first = start / PAGE * PAGE;
    let Some(page_len) = (start - first).checked_add(len).map(round_to_pages) else {
        return kernel(start, len);
    };
    if !is_range(first, page_len) {
        return kernel(start, len);
    }
    if locked {
        // Memory that the kernel has locked cannot be evicted.
        mappings().small.remove(first, first + page_len);
    }
    if !pager.manages_any(first, page_len) {
        return kernel(start, len);
    }
    let result = on_unmanaged(pager, first, page_len, kernel);
    pager.pin(first, page_len, locked);
    result
}
