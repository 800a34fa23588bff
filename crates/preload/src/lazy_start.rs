//! Starts the pager when the process first has much memory that could be paged, so that a process that never has much
//! costs little. Until then such memory is ordinary memory, and is recorded here. Calls that would change it in other
//! ways than by mapping, growing and unmapping start the pager first.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use libc::{c_int, c_void};

use crate::library_context::{enter_library, in_library};
use crate::mappings::{Mappings, mappings};
use crate::memory::{self, MIN_PAGED, MapKind, SMALL_SHARE, is_range, relocate, round_to_pages};
use crate::stacks::note_paged;
use crate::{direct_io, kernel, setup};

/// Largest amount of pageable memory in bytes of a process without a pager; it is also limited to a part of the DRAM.
const MAX_UNPAGED: usize = 8 << 20;

/// Whether memory is to be paged in this process.
static ENABLED: AtomicBool = AtomicBool::new(false);
static UNPAGED_LIMIT: AtomicUsize = AtomicUsize::new(MAX_UNPAGED);
/// Whether a device may store to memory directly.
static DIRECT_IO: AtomicBool = AtomicBool::new(false);

/// Starts recording pageable memory, for a budget of `dram` bytes.
pub(crate) fn enable(dram: u64) {
    let dram = usize::try_from(dram).unwrap_or(usize::MAX);
    UNPAGED_LIMIT.store(MAX_UNPAGED.min(dram / SMALL_SHARE), Relaxed);
    ENABLED.store(true, Relaxed);
}

/// Records that no pager will be started.
pub(crate) fn disable() {
    ENABLED.store(false, Relaxed);
}

/// Whether a pager exists, or may be started.
pub(crate) fn is_enabled() -> bool {
    ENABLED.load(Relaxed)
}

/// As [`is_enabled`], and the calling thread is not in the library.
pub(crate) fn is_watching() -> bool {
    is_enabled() && !in_library()
}

fn exceeds_limit(mappings: &Mappings, more: usize) -> bool {
    mappings.pageable.bytes() + mappings.small.bytes() + more > UNPAGED_LIMIT.load(Relaxed)
}

pub(crate) fn map(
    start: usize,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    let kind = MapKind::of(len, prot, flags);
    let end = start.saturating_add(len);
    let size = round_to_pages(len);
    let mut mappings = mappings();
    let eligible = kind.private && is_range(0, len);
    let writable = eligible && prot & libc::PROT_WRITE != 0;
    if kind.shared
        || (writable && exceeds_limit(&mappings, size))
        || (kind.fixed && (mappings.has_any_record(start, end)))
        || setup::pager().is_some()
    {
        drop(mappings);
        return match setup::start() {
            Some(pager) => memory::map_with_pager(pager, start, len, prot, flags, fd, offset),
            None => kernel::mmap(start, len, prot, flags, fd, offset),
        };
    }
    let result = kernel::mmap(start, len, prot, flags, fd, offset);
    if result == libc::MAP_FAILED || !eligible {
        return result;
    }
    let (at, end) = (result.addr(), result.addr() + size);
    if writable {
        // When this memory becomes paged, a thread may be in the library on a stack there.
        note_paged(at, size);
        if size < MIN_PAGED { &mut mappings.small } else { &mut mappings.pageable }.insert(at, end);
    } else if prot == libc::PROT_NONE {
        mappings.reserved.insert(at, end);
    }
    result
}

pub(crate) fn unmap(start: usize, len: usize) -> c_int {
    let mut mappings = mappings();
    if let Some(pager) = setup::pager() {
        drop(mappings);
        return memory::unmap_with_pager(pager, start, len);
    }
    let result = kernel::munmap(start, len);
    if result == 0 {
        mappings.forget(start, round_to_pages(len));
    }
    result
}

pub(crate) fn remap(start: usize, len: usize, new_len: usize, flags: c_int, to: usize) -> *mut c_void {
    let mut mappings = mappings();
    let is_known = |mappings: &mut Mappings| mappings.has_any_record(start, start.saturating_add(len.max(1)));
    let ours = is_range(start, len.max(1)) && is_range(0, new_len) && is_known(&mut mappings);
    if setup::pager().is_some()
        || (ours && new_len > len && exceeds_limit(&mappings, round_to_pages(new_len) - round_to_pages(len)))
    {
        drop(mappings);
        return match setup::start() {
            Some(pager) => memory::remap_with_pager(pager, start, len, new_len, flags, to),
            None => kernel::mremap(start, len, new_len, flags, to),
        };
    }
    let target = relocate(&mut mappings, start, (len, new_len), flags, to);
    if ours && target != libc::MAP_FAILED {
        let (at, end) = (target.addr(), target.addr() + round_to_pages(new_len));
        note_paged(at, end - at);
        if end - at >= MIN_PAGED && mappings.small.covers(at, end) {
            mappings.small.remove(at, end);
            mappings.pageable.insert(at, end);
        }
    }
    target
}

/// Called before a change to this range that a pager must see: starts the pager if the range is pageable. Returns
/// `false` if there is none.
pub(crate) fn start_if_pageable(start: usize, len: usize) -> bool {
    let touched = mappings().has_pageable(start, start.saturating_add(len));
    if touched { setup::start().is_some() } else { setup::pager().is_some() }
}

/// Records a kernel call on this range that prevents paging: the small mapping stays unpaged even when it grows.
pub(crate) fn keep_unpaged(start: usize, len: usize) {
    if is_watching() && is_range(start, len) {
        enter_library(move || mappings().small.remove(start, start + round_to_pages(len)));
    }
}

/// Excludes the range, a thread's stack, from paging.
pub(crate) fn exclude(start: usize, len: usize) {
    let mut mappings = mappings();
    mappings.pageable.remove(start, start + len);
    mappings.small.remove(start, start + len);
}

/// Records that a device may store to memory directly from now on.
pub(crate) fn note_direct_io() {
    DIRECT_IO.store(true, Relaxed);
}

/// Hands all recorded memory to the new pager at once, under the lock that every change of memory takes.
pub(crate) fn hand_over(install: impl FnOnce(&[(usize, usize)])) {
    let mut mappings = mappings();
    let all: Vec<(usize, usize)> = std::mem::take(&mut mappings.pageable).iter().collect();
    install(&all);
    drop(mappings);
    if DIRECT_IO.load(Relaxed) {
        direct_io::announce_to_pager();
    }
    direct_io::check_inherited();
}
