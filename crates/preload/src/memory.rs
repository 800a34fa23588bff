//! `mmap` and its family: large private anonymous memory that may be stored to is paged, everything else
//! passes through.
//!
//! Memory that a program reserves without access and opens later, by `mprotect` or by mapping over it, is
//! paged from when it is opened.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use deepram_pool::pager::{PAGE, Pager};
use libc::{c_int, c_void, size_t};

use crate::inside::{Inside, is_inside};
use crate::malloc::set_errno;
use crate::{kernel, setup};

/// Smaller mappings are not worth it.
const LEAST: usize = 256 << 10;

/// Reserved memory that nobody can use yet: start to end.
static RESERVED: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

fn reserved() -> std::sync::MutexGuard<'static, BTreeMap<usize, usize>> {
    RESERVED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reserved memory within the range.
fn reserved_within(start: usize, end: usize) -> Vec<(usize, usize)> {
    let spans = reserved();
    let before = spans.range(..start).next_back().map(|(s, e)| (*s, *e));
    let after = spans.range(start..end).map(|(s, e)| (*s, *e));
    let all = before.into_iter().chain(after);
    all.map(|(s, e)| (s.max(start), e.min(end))).filter(|(s, e)| s < e).collect()
}

fn unreserve(start: usize, end: usize) {
    for (from, to) in reserved_within(start, end) {
        let mut spans = reserved();
        let Some((&first, &last)) = spans.range(..=from).next_back() else { continue };
        spans.remove(&first);
        if first < from {
            spans.insert(first, from);
        }
        if to < last {
            spans.insert(to, last);
        }
    }
}

/// The pager, unless the call is the library's own.
fn pager() -> Option<&'static Pager> {
    if is_inside() { None } else { setup::pager() }
}

fn whole(len: usize) -> usize {
    len.next_multiple_of(PAGE)
}

fn manage(pager: &Pager, start: usize, len: usize) {
    // SAFETY: the mapping is new, private and anonymous, and its owner unmaps it through this library.
    if let Err(error) = unsafe { pager.manage(start, len, true) } {
        setup::complain(&format!("{len} bytes at {start:#x} are not paged: {error}"));
    }
}

fn map(at: *mut c_void, len: size_t, prot: c_int, flags: c_int, fd: c_int, offset: i64) -> *mut c_void {
    let plain = || kernel::mmap(at.addr(), len, prot, flags, fd, offset);
    let Some(pager) = pager() else { return plain() };
    let _inside = Inside::enter();
    let len_whole = whole(len);
    let fixed = flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) == libc::MAP_FIXED;
    let special =
        libc::MAP_SHARED | libc::MAP_HUGETLB | libc::MAP_GROWSDOWN | libc::MAP_STACK | libc::MAP_LOCKED;
    let anonymous =
        flags & libc::MAP_ANONYMOUS != 0 && flags & libc::MAP_PRIVATE != 0 && flags & special == 0;
    if len == 0 || (!anonymous && !fixed) {
        return plain();
    }
    let start = at.addr();
    let (mut was_ours, mut result) = (false, std::ptr::null_mut());
    // Populating would bring everything in at once.
    let flags = if anonymous { flags & !libc::MAP_POPULATE } else { flags };
    if fixed && len_whole >= len {
        was_ours =
            !reserved_within(start, start + len_whole).is_empty() || pager.manages_any(start, len_whole);
        pager.release(start, len_whole, || result = kernel::mmap(start, len, prot, flags, fd, offset));
        unreserve(start, start + len_whole);
    } else {
        result = kernel::mmap(start, len, prot, flags, fd, offset);
    }
    if result == libc::MAP_FAILED || !anonymous || (len_whole < LEAST && !was_ours) {
        return result;
    }
    if prot & libc::PROT_WRITE != 0 {
        manage(pager, result.addr(), len_whole);
    } else if prot == libc::PROT_NONE {
        reserved().insert(result.addr(), result.addr() + len_whole);
    }
    result
}

/// The system's.
#[unsafe(no_mangle)]
pub extern "C" fn mmap(
    at: *mut c_void,
    len: size_t,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: libc::off_t,
) -> *mut c_void {
    map(at, len, prot, flags, fd, offset)
}

/// The system's.
#[unsafe(no_mangle)]
pub extern "C" fn mmap64(
    at: *mut c_void,
    len: size_t,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: libc::off64_t,
) -> *mut c_void {
    map(at, len, prot, flags, fd, offset)
}

/// The system's.
#[unsafe(no_mangle)]
pub extern "C" fn munmap(at: *mut c_void, len: size_t) -> c_int {
    let start = at.addr();
    let Some(pager) = pager() else { return kernel::munmap(start, len) };
    let _inside = Inside::enter();
    if !start.is_multiple_of(PAGE) || len == 0 {
        return kernel::munmap(start, len);
    }
    unreserve(start, start.saturating_add(whole(len)));
    if !pager.manages_any(start, whole(len)) {
        return kernel::munmap(start, len);
    }
    pager.release(start, whole(len), || kernel::munmap(start, len))
}

/// The system's.
#[unsafe(no_mangle)]
pub extern "C" fn mremap(
    at: *mut c_void,
    len: size_t,
    new_len: size_t,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    let start = at.addr();
    let plain = || kernel::mremap(start, len, new_len, flags, to.addr());
    let Some(pager) = pager() else { return plain() };
    let _inside = Inside::enter();
    let (old, new) = (whole(len), whole(new_len));
    let fixed = flags & libc::MREMAP_FIXED != 0;
    if fixed {
        unreserve(to.addr(), to.addr().saturating_add(new));
    }
    if !pager.manages_any(start, old) {
        if fixed && pager.manages_any(to.addr(), new) {
            return pager.release(to.addr(), new, plain);
        }
        return plain();
    }
    if flags & libc::MREMAP_DONTUNMAP != 0 || old == 0 || new == 0 || !start.is_multiple_of(PAGE) {
        set_errno(libc::EINVAL);
        return libc::MAP_FAILED;
    }
    if !fixed {
        if new <= old {
            return pager.release(start + new, old - new, plain);
        }
        // In place, if there is room behind.
        let grown = kernel::mremap(start, old, new, 0, 0);
        if grown != libc::MAP_FAILED {
            manage(pager, start + old, new - old);
            return grown;
        }
        if flags & libc::MREMAP_MAYMOVE == 0 {
            return grown;
        }
    }
    if fixed {
        pager.release(to.addr(), new, || kernel::munmap(to.addr(), new));
    }
    // The kernel moves the pages and makes the mapping longer or shorter in one.
    let mut target = libc::MAP_FAILED;
    if new < old {
        pager.release(start + new, old - new, || ());
    }
    let moved = pager.remap(start, old.min(new), || {
        target = kernel::mremap(start, old, new, flags, to.addr());
        (target != libc::MAP_FAILED).then(|| target.addr())
    });
    if let Some(at) = moved
        && new > old
    {
        manage(pager, at + old, new - old);
        // What `remap` has set for the time being.
        kernel::madvise(at + old, new - old, libc::MADV_DODUMP);
    }
    target
}

/// The system's.
#[unsafe(no_mangle)]
pub extern "C" fn mprotect(at: *mut c_void, len: size_t, prot: c_int) -> c_int {
    let start = at.addr();
    let Some(pager) = pager() else { return kernel::mprotect(start, len, prot) };
    let _inside = Inside::enter();
    if len == 0 || !start.is_multiple_of(PAGE) {
        return kernel::mprotect(start, len, prot);
    }
    let end = start.saturating_add(whole(len));
    let opened = if prot & libc::PROT_WRITE != 0 { reserved_within(start, end) } else { Vec::new() };
    let result = if pager.manages_any(start, end - start) {
        pager.hide(start, end - start, prot & libc::PROT_READ == 0, || kernel::mprotect(start, len, prot))
    } else if opened.is_empty() {
        return kernel::mprotect(start, len, prot);
    } else {
        // Before anybody can touch it: what is watched from the start is known from the start.
        for &(from, to) in &opened {
            manage(pager, from, to - from);
        }
        kernel::mprotect(start, len, prot)
    };
    if result == 0 {
        unreserve(start, end);
    }
    result
}

/// The system's.
#[unsafe(no_mangle)]
pub extern "C" fn madvise(at: *mut c_void, len: size_t, advice: c_int) -> c_int {
    let start = at.addr();
    let Some(pager) = pager() else { return kernel::madvise(start, len, advice) };
    let _inside = Inside::enter();
    if len == 0 || !start.is_multiple_of(PAGE) || !pager.manages_any(start, whole(len)) {
        return kernel::madvise(start, len, advice);
    }
    match advice {
        libc::MADV_DONTNEED | libc::MADV_FREE => {
            // What is not managed in the range is the kernel's.
            let others = pager.unmanaged(start, whole(len));
            let refused = others.iter().any(|(from, to)| kernel::madvise(*from, to - from, advice) != 0);
            pager.drop_contents(start, whole(len));
            if refused { -1 } else { 0 }
        }
        libc::MADV_WILLNEED => {
            pager.will_need(start, whole(len));
            0
        }
        libc::MADV_COLD | libc::MADV_PAGEOUT => {
            pager.cold(start, whole(len));
            0
        }
        // Paged in pages of 4 KiB.
        libc::MADV_HUGEPAGE | libc::MADV_COLLAPSE => 0,
        _ => kernel::madvise(start, len, advice),
    }
}

/// The system's.
#[unsafe(no_mangle)]
pub extern "C" fn posix_madvise(at: *mut c_void, len: size_t, advice: c_int) -> c_int {
    // Its DONTNEED keeps contents; the numbers of the others are those of `madvise`.
    if advice == libc::POSIX_MADV_DONTNEED || madvise(at, len, advice) == 0 { 0 } else { libc::EINVAL }
}

/// The system's. Managed memory is kept in DRAM, within the budget.
#[unsafe(no_mangle)]
pub extern "C" fn mlock(at: *const c_void, len: size_t) -> c_int {
    lock(at.addr(), len, true)
}

/// The system's.
#[unsafe(no_mangle)]
pub extern "C" fn munlock(at: *const c_void, len: size_t) -> c_int {
    lock(at.addr(), len, false)
}

/// The system's. Locking everything would leave nothing to page: only later calls of `mlock` count.
#[unsafe(no_mangle)]
pub extern "C" fn mlockall(_flags: c_int) -> c_int {
    0
}

fn lock(start: usize, len: usize, locked: bool) -> c_int {
    let kernel = if locked { kernel::mlock } else { kernel::munlock };
    let Some(pager) = pager() else { return kernel(start, len) };
    let _inside = Inside::enter();
    let first = start / PAGE * PAGE;
    let len_whole = whole(start - first + len);
    if !pager.manages_any(first, len_whole) {
        return kernel(start, len);
    }
    let others = pager.unmanaged(first, len_whole);
    let refused = others.iter().any(|(from, to)| kernel(*from, to - from) != 0);
    pager.pin(first, len_whole, locked);
    if refused { -1 } else { 0 }
}
