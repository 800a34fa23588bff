//! Before a process has a pager: it gets one when it first has much memory that could be paged, and so costs little if it
//! never has. Until then such memory is as the kernel gives it, and known here. Calls that would change it in other ways than
//! by mapping, growing and unmapping have the pager started first.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use libc::{c_int, c_void};

use crate::inside::{enter, is_inside};
use crate::marks::{Marks, marks};
use crate::memory::{self, Kind, LEAST, SMALL_SHARE, is_range, relocate, whole};
use crate::stacks::note_paged;
use crate::{direct, kernel, setup};

/// Most memory that could be paged, and is not, of a process without a pager; and the part of the DRAM that it may be.
const MOST: usize = 8 << 20;

/// Memory is to be paged here.
static WANTED: AtomicBool = AtomicBool::new(false);
static ALLOWED: AtomicUsize = AtomicUsize::new(MOST);
/// A device may store to memory by itself.
static DIRECT: AtomicBool = AtomicBool::new(false);

/// From now on memory is watched here, within so much DRAM.
pub(crate) fn begin(dram: u64) {
    let dram = usize::try_from(dram).unwrap_or(usize::MAX);
    ALLOWED.store(MOST.min(dram / SMALL_SHARE), Relaxed);
    WANTED.store(true, Relaxed);
}

/// There will be no pager.
pub(crate) fn give_up() {
    WANTED.store(false, Relaxed);
}

/// Whether there is a pager, or may be one.
pub(crate) fn is_wanted() -> bool {
    WANTED.load(Relaxed)
}

/// The same, unless the call is the library's own.
pub(crate) fn is_on() -> bool {
    is_wanted() && !is_inside()
}

fn much(marks: &Marks, more: usize) -> bool {
    marks.early.bytes() + marks.small.bytes() + more > ALLOWED.load(Relaxed)
}

pub(crate) fn map(
    start: usize,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    let kind = Kind::of(len, prot, flags);
    let end = start.saturating_add(len);
    let size = whole(len);
    let mut marks = marks();
    let eligible = kind.private && is_range(0, len);
    let opened = eligible && prot & libc::PROT_WRITE != 0;
    if kind.shared
        || (opened && much(&marks, size))
        || (kind.fixed && (marks.touches_any(start, end)))
        || setup::pager().is_some()
    {
        drop(marks);
        return match setup::start() {
            Some(pager) => memory::map_inside(pager, start, len, prot, flags, fd, offset),
            None => kernel::mmap(start, len, prot, flags, fd, offset),
        };
    }
    let result = kernel::mmap(start, len, prot, flags, fd, offset);
    if result == libc::MAP_FAILED || !eligible {
        return result;
    }
    let (at, end) = (result.addr(), result.addr() + size);
    if opened {
        // Somebody may be inside, on a stack there, when it comes to be paged.
        note_paged(at, size);
        if size < LEAST { &mut marks.small } else { &mut marks.early }.insert(at, end);
    } else if prot == libc::PROT_NONE {
        marks.reserved.insert(at, end);
    }
    result
}

pub(crate) fn unmap(start: usize, len: usize) -> c_int {
    let mut marks = marks();
    if let Some(pager) = setup::pager() {
        drop(marks);
        return memory::unmap_inside(pager, start, len);
    }
    let result = kernel::munmap(start, len);
    if result == 0 {
        marks.forget(start, whole(len));
    }
    result
}

pub(crate) fn remap(start: usize, len: usize, new_len: usize, flags: c_int, to: usize) -> *mut c_void {
    let mut marks = marks();
    let known = |marks: &mut Marks| marks.touches_any(start, start.saturating_add(len.max(1)));
    let ours = is_range(start, len.max(1)) && is_range(0, new_len) && known(&mut marks);
    if setup::pager().is_some() || (ours && new_len > len && much(&marks, whole(new_len) - whole(len))) {
        drop(marks);
        return match setup::start() {
            Some(pager) => memory::remap_inside(pager, start, len, new_len, flags, to),
            None => kernel::mremap(start, len, new_len, flags, to),
        };
    }
    let target = relocate(&mut marks, start, (len, new_len), flags, to);
    if ours && target != libc::MAP_FAILED {
        let (at, end) = (target.addr(), target.addr() + whole(new_len));
        note_paged(at, end - at);
        if end - at >= LEAST && marks.small.covers(at, end) {
            marks.small.remove(at, end);
            marks.early.insert(at, end);
        }
    }
    target
}

/// Something is to be done to this range that a pager must know of: it is started if the range could be paged. `false` if
/// there is none.
pub(crate) fn touch(start: usize, len: usize) -> bool {
    let touched = marks().touches(start, start.saturating_add(len));
    if touched { setup::start().is_some() } else { setup::pager().is_some() }
}

/// The kernel is asked for something about this range that rules out that it is paged: what is small stays as it is when it grows.
pub(crate) fn keep(start: usize, len: usize) {
    if is_on() && is_range(start, len) {
        enter(move || marks().small.remove(start, start + whole(len)));
    }
}

/// The range is not to be paged: a thread's stack.
pub(crate) fn leave_out(start: usize, len: usize) {
    let mut marks = marks();
    marks.early.remove(start, start + len);
    marks.small.remove(start, start + len);
}

/// A device may store to memory by itself, from now on.
pub(crate) fn expect_direct() {
    DIRECT.store(true, Relaxed);
}

/// The pager takes over, all at once: whoever changes memory has the marks.
pub(crate) fn hand_over(install: impl FnOnce(&[(usize, usize)])) {
    let mut marks = marks();
    let all: Vec<(usize, usize)> = std::mem::take(&mut marks.early).iter().collect();
    install(&all);
    drop(marks);
    if DIRECT.load(Relaxed) {
        direct::expect_inside();
    }
    direct::note_inherited();
}
