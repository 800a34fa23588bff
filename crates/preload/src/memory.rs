//! `mmap` and its family: large private anonymous memory that is writable is paged, and so is large shared anonymous
//! memory; all other calls go to the kernel.
//!
//! Memory that a program reserves without access and makes writable later, by `mprotect` or by mapping over it, is
//! paged from then on.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use deepram_pager::{PAGE, Pager};
use libc::{c_int, c_void, size_t};

use crate::library_context::{enter_library, in_library};
use crate::malloc::set_errno;
use crate::mappings::{Mappings, mappings};
use crate::stacks::note_paged;
use crate::{kernel, lazy_start, media, setup};

/// Smallest mapping that is paged. Smaller ones are not worth it, unless together they exceed one part in `SMALL_SHARE`
/// of the DRAM.
pub(crate) const MIN_PAGED: usize = 256 << 10;
pub(crate) const SMALL_SHARE: usize = 16;
/// Smallest shared mapping that is paged: each takes a file.
const MIN_SHARED: usize = 1 << 20;

/// The pager; `None` if the calling thread is in the library.
pub(crate) fn pager() -> Option<&'static Pager> {
    if in_library() { None } else { setup::pager() }
}

/// The pager, for a call that changes this range; it is started if the range is pageable.
pub(crate) fn pager_for(start: usize, len: usize) -> Option<&'static Pager> {
    if !is_range(start, len) || in_library() {
        return None;
    }
    if setup::pager().is_none() && lazy_start::is_enabled() {
        enter_library(move || {
            lazy_start::start_if_pageable(start, len);
        });
    }
    setup::pager()
}

pub(crate) fn round_to_pages(len: usize) -> usize {
    len.next_multiple_of(PAGE)
}

/// Whether the addresses form a non-empty range that begins on a page boundary, as most calls require.
pub(crate) fn is_range(start: usize, len: usize) -> bool {
    len > 0 && start.is_multiple_of(PAGE) && start.checked_add(len).is_some_and(|end| end < 1 << 56)
}

fn manage(pager: &Pager, start: usize, len: usize) {
    manage_range(pager, start, len, true);
}

pub(crate) fn manage_range(pager: &Pager, start: usize, len: usize, fresh: bool) {
    note_paged(start, len);
    // SAFETY: the mapping is private and anonymous, and new if `fresh`; its owner unmaps it through this library.
    if let Err(error) = unsafe { pager.manage(start, len, fresh) } {
        setup::report(&format!("{len} bytes at {start:#x} are not paged: {error}"));
    }
}

/// Maps shared memory so that it is paged; `None` if that is not possible.
fn share(pager: &Pager, at: usize, len: usize, prot: c_int, flags: c_int) -> Option<*mut c_void> {
    static REPORTED: AtomicBool = AtomicBool::new(false);
    let mut result = libc::MAP_FAILED;
    let shared = pager.share(round_to_pages(len), |file, offset| {
        result = kernel::mmap(at, len, prot, flags & !libc::MAP_ANONYMOUS, file, offset as i64);
        (result != libc::MAP_FAILED).then(|| result.addr())
    });
    match shared {
        Ok(_) => Some(result),
        Err(error) => {
            if !REPORTED.swap(true, Relaxed) {
                setup::report(&format!("{len} bytes of shared memory are not paged: {error}"));
            }
            None
        }
    }
}

/// `None` if the kernel refused the mapping.
fn mapped(at: *mut c_void) -> Option<*mut c_void> {
    (at != libc::MAP_FAILED).then_some(at)
}

fn map(at: *mut c_void, len: size_t, prot: c_int, flags: c_int, fd: c_int, offset: i64) -> *mut c_void {
    match pager() {
        Some(pager) => enter_library(move || map_with_pager(pager, at.addr(), len, prot, flags, fd, offset)),
        None if lazy_start::is_watching() => {
            enter_library(move || lazy_start::map(at.addr(), len, prot, flags, fd, offset))
        }
        None => {
            media::note_mapped(kernel::mmap(at.addr(), len, prot, flags, fd, offset), len, prot, flags, fd)
        }
    }
}

/// Kind of a mapping that a call of `mmap` asks for.
pub(crate) struct MapKind {
    /// Replaces existing mappings.
    pub(crate) fixed: bool,
    /// Private memory that can be paged.
    pub(crate) private: bool,
    /// Shared memory that can be paged.
    pub(crate) shared: bool,
}

impl MapKind {
    pub(crate) fn of(len: usize, prot: c_int, flags: c_int) -> Self {
        let special = libc::MAP_HUGETLB | libc::MAP_GROWSDOWN | libc::MAP_STACK | libc::MAP_LOCKED;
        let anonymous = flags & libc::MAP_ANONYMOUS != 0 && flags & special == 0;
        let kind = flags & libc::MAP_TYPE;
        Self {
            fixed: flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) == libc::MAP_FIXED,
            private: anonymous && kind == libc::MAP_PRIVATE,
            shared: anonymous && kind == libc::MAP_SHARED && len >= MIN_SHARED && prot & libc::PROT_EXEC == 0,
        }
    }
}

pub(crate) fn map_with_pager(
    pager: &Pager,
    start: usize,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    let call_kernel = || kernel::mmap(start, len, prot, flags, fd, offset);
    let MapKind { fixed, private, shared } = MapKind::of(len, prot, flags);
    if !(private || shared || fixed) || !is_range(0, len) || (fixed && !is_range(start, len)) {
        return call_kernel();
    }
    // Populating would bring in all pages at once.
    let flags = if private || shared { flags & !libc::MAP_POPULATE } else { flags };
    let page_len = round_to_pages(len);
    let call_kernel = || mapped(kernel::mmap(start, len, prot, flags, fd, offset));
    let map_it = || {
        let paged = if shared { share(pager, start, len, prot, flags) } else { None };
        let placed =
            paged.or_else(|| if fixed { pager.unshare(start, page_len, call_kernel) } else { call_kernel() });
        placed.and_then(mapped)
    };
    let (was_tracked, result);
    if fixed {
        let reserved = mappings().reserved.within(start, start + page_len);
        was_tracked = !reserved.is_empty() || pager.manages_any(start, page_len);
        result = pager.release(start, page_len, map_it);
        if result.is_some() {
            mappings().forget(start, page_len);
        }
    } else {
        was_tracked = false;
        result = map_it();
    }
    let Some(result) = result else { return libc::MAP_FAILED };
    if !private
        || (page_len < MIN_PAGED && !was_tracked && stays_unpaged(pager, result.addr(), page_len, prot))
    {
        return result;
    }
    if prot & libc::PROT_WRITE != 0 {
        manage(pager, result.addr(), page_len);
    } else if prot == libc::PROT_NONE {
        mappings().reserved.insert(result.addr(), result.addr() + page_len);
    }
    result
}

/// Whether a new small mapping stays unpaged.
fn stays_unpaged(pager: &Pager, start: usize, len: usize, prot: c_int) -> bool {
    if prot & libc::PROT_WRITE == 0 {
        return true;
    }
    let mut mappings = mappings();
    let few = mappings.small.bytes() + len <= pager.dram() / SMALL_SHARE;
    if few {
        mappings.small.insert(start, start + len);
    }
    few
}

/// Interposes the C library's `mmap`.
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

/// Interposes the C library's `mmap64`.
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

/// Interposes the C library's `munmap`.
#[unsafe(no_mangle)]
pub extern "C" fn munmap(at: *mut c_void, len: size_t) -> c_int {
    let start = at.addr();
    match pager().filter(|_| is_range(start, len)) {
        Some(pager) => enter_library(move || unmap_with_pager(pager, start, len)),
        None if lazy_start::is_watching() && is_range(start, len) => {
            enter_library(move || lazy_start::unmap(start, len))
        }
        None => {
            media::note_unmapped(start, len);
            kernel::munmap(start, len)
        }
    }
}

pub(crate) fn unmap_with_pager(pager: &Pager, start: usize, len: usize) -> c_int {
    match release(pager, start, round_to_pages(len)) {
        Some(()) => 0,
        None => -1,
    }
}

/// Unmaps the range and forgets it; `None` if the kernel refuses.
fn release(pager: &Pager, start: usize, len: usize) -> Option<()> {
    let unmap = || {
        // Locked until the mapping is forgotten: another thread may get the addresses the moment they are free.
        let mut mappings = mappings();
        (kernel::munmap(start, len) == 0).then(|| mappings.forget(start, len))
    };
    let unmap = || pager.unshare(start, len, unmap);
    if pager.manages_any(start, len) { pager.release(start, len, unmap) } else { unmap() }
}

/// Interposes the C library's `mremap`.
#[unsafe(no_mangle)]
pub extern "C" fn mremap(
    at: *mut c_void,
    len: size_t,
    new_len: size_t,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    let (start, to) = (at.addr(), to.addr());
    match pager() {
        Some(pager) => enter_library(move || remap_with_pager(pager, start, len, new_len, flags, to)),
        None if lazy_start::is_watching() => {
            enter_library(move || lazy_start::remap(start, len, new_len, flags, to))
        }
        None => media::note_moved(start, len, kernel::mremap(start, len, new_len, flags, to), new_len),
    }
}

pub(crate) fn remap_with_pager(
    pager: &Pager,
    start: usize,
    len: usize,
    new_len: usize,
    flags: c_int,
    to: usize,
) -> *mut c_void {
    let keep_old = flags & libc::MREMAP_DONTUNMAP != 0;
    let call_kernel = || relocate(&mut mappings(), start, (len, new_len), flags, to);
    // The target argument is valid only with this flag.
    let placed = flags & libc::MREMAP_FIXED != 0;
    if !is_range(start, len.max(1)) || !is_range(0, new_len) || (placed && !is_range(to, new_len)) {
        return call_kernel();
    }
    let (old, new) = (round_to_pages(len), round_to_pages(new_len));
    if pager.manages_any(start, old) {
        // The kernel refuses this: with `MREMAP_DONTUNMAP` the length must stay the same and the mapping may move.
        if old == 0 || (keep_old && (old != new || flags & libc::MREMAP_MAYMOVE == 0)) {
            set_errno(libc::EINVAL);
            return libc::MAP_FAILED;
        }
        return remap_private(pager, start, (old, new), flags, to);
    }
    let mut target = libc::MAP_FAILED;
    let mut remap = || {
        pager.remap_shared(start, (old, new), keep_old, || {
            target = call_kernel();
            mapped(target).map(|target| target.addr())
        })
    };
    let moved = if placed { pager.release(to, new, remap) } else { remap() };
    if let Some(at) = moved
        && new >= MIN_PAGED
    {
        // The mapping was small and has grown.
        let was_small = {
            let small = &mut mappings().small;
            let covered = small.covers(at, at + new);
            small.remove(at, at + new);
            covered
        };
        if was_small {
            manage_range(pager, at, new, false);
        }
    }
    target
}

/// Calls the kernel's `mremap`, and updates the records before another thread can get the addresses that become free.
pub(crate) fn relocate(
    mappings: &mut Mappings,
    start: usize,
    (len, new_len): (usize, usize),
    flags: c_int,
    to: usize,
) -> *mut c_void {
    let target = kernel::mremap(start, len, new_len, flags, to);
    if target != libc::MAP_FAILED {
        let keep_old = flags & libc::MREMAP_DONTUNMAP != 0;
        mappings.record_move(start, round_to_pages(len), target.addr(), round_to_pages(new_len), keep_old);
    }
    target
}

fn remap_private(
    pager: &Pager,
    start: usize,
    (old, new): (usize, usize),
    flags: c_int,
    to: usize,
) -> *mut c_void {
    let keep_old = flags & libc::MREMAP_DONTUNMAP != 0;
    let placed = flags & libc::MREMAP_FIXED != 0;
    let call_kernel = |flags| relocate(&mut mappings(), start, (old, new), flags, to);
    if !placed && !keep_old {
        if new == old {
            return call_kernel(flags);
        }
        if new < old {
            let shorter = pager.release(start + new, old - new, || mapped(call_kernel(flags)));
            return shorter.unwrap_or(libc::MAP_FAILED);
        }
        // Grows in place, if the addresses behind are free.
        let grown = call_kernel(0);
        if grown != libc::MAP_FAILED {
            manage(pager, start + old, new - old);
            return grown;
        }
        if flags & libc::MREMAP_MAYMOVE == 0 {
            return grown;
        }
    }
    // The kernel moves the pages, changes the length, and replaces the mappings at the target in one call.
    let mut target = libc::MAP_FAILED;
    let emptied = if keep_old { pager.managed(start, old) } else { Vec::new() };
    let mut remap = || {
        target = call_kernel(flags);
        mapped(target).map(|target| {
            note_paged(target.addr(), new);
            target.addr()
        })
    };
    let moved = match placed {
        true => pager.remap(start, (old, new), Some(to), || pager.unshare(to, new, remap)),
        false => pager.remap(start, (old, new), None, &mut remap),
    };
    let Some(at) = moved else { return target };
    if new > old {
        manage(pager, at + old, new - old);
        // Undoes the mark that the pager's `remap` has set for the time of the move.
        kernel::madvise(at + old, new - old, libc::MADV_DODUMP);
    }
    // The old addresses are empty, and still mapped for the program.
    for (from, end) in emptied {
        manage(pager, from, end - from);
        kernel::madvise(from, end - from, libc::MADV_DODUMP);
    }
    target
}

/// Interposes the C library's `mprotect`.
#[unsafe(no_mangle)]
pub extern "C" fn mprotect(at: *mut c_void, len: size_t, prot: c_int) -> c_int {
    protect(at.addr(), len, prot, -1)
}

/// Interposes the C library's `pkey_mprotect`.
#[unsafe(no_mangle)]
pub extern "C" fn pkey_mprotect(at: *mut c_void, len: size_t, prot: c_int, key: c_int) -> c_int {
    protect(at.addr(), len, prot, key)
}

/// Changes the protection of a range; a key of -1 leaves protection keys as they are.
fn protect(start: usize, len: usize, prot: c_int, key: c_int) -> c_int {
    match pager_for(start, len) {
        Some(pager) => enter_library(move || protect_with_pager(pager, start, len, prot, key)),
        None => {
            if key != -1 || prot != libc::PROT_READ | libc::PROT_WRITE {
                lazy_start::keep_unpaged(start, len);
            }
            kernel_protect(start, len, prot, key)
        }
    }
}

fn kernel_protect(start: usize, len: usize, prot: c_int, key: c_int) -> c_int {
    match key {
        -1 => kernel::mprotect(start, len, prot),
        key => kernel::pkey_mprotect(start, len, prot, key),
    }
}

fn protect_with_pager(pager: &Pager, start: usize, len: usize, prot: c_int, key: c_int) -> c_int {
    let call_kernel = || kernel_protect(start, len, prot, key);
    let end = start + round_to_pages(len);
    let opened = match prot & libc::PROT_WRITE {
        0 => Vec::new(),
        _ => mappings().reserved.within(start, end),
    };
    if opened.is_empty() && !pager.manages_any(start, end - start) {
        if key != -1 || prot != libc::PROT_READ | libc::PROT_WRITE {
            mappings().small.remove(start, end);
        }
        return call_kernel();
    }
    // Done before any thread can touch the memory: all of its pages are then known to be fresh.
    for (from, to) in opened.into_iter().flat_map(|(from, to)| pager.unmanaged(from, to - from)) {
        manage(pager, from, to - from);
    }
    // All of the range counts as unreadable until its new protection is recorded.
    let result = pager.set_unreadable(start, end - start, true, call_kernel);
    if result != 0 {
        return result;
    }
    let mut mappings = mappings();
    mappings.reserved.remove(start, end);
    match key {
        -1 => {}
        0 => mappings.protection_keys.remove(start, end),
        _ => mappings.protection_keys.insert(start, end),
    }
    let open = mappings.protection_keys.outside(start, end);
    drop(mappings);
    if prot & libc::PROT_READ != 0 {
        for (from, to) in open {
            pager.set_unreadable(from, to - from, false, || ());
        }
    }
    result
}
