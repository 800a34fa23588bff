//! `mmap` and its family: large private anonymous memory that may be stored to is paged, and so is large
//! anonymous memory that is shared; everything else passes through.
//!
//! Memory that a program reserves without access and opens later, by `mprotect` or by mapping over it, is
//! paged from when it is opened.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use deepram_pool::pager::{PAGE, Pager};
use libc::{c_int, c_void, size_t};

use crate::inside::{enter, is_inside};
use crate::malloc::set_errno;
use crate::marks::{Marks, marks};
use crate::stacks::note_paged;
use crate::{early, kernel, setup};

/// Smaller mappings are not worth it, unless they add up to more than this part of the DRAM.
pub(crate) const LEAST: usize = 256 << 10;
pub(crate) const SMALL_SHARE: usize = 16;
/// Shared ones are a file each.
const LEAST_SHARED: usize = 1 << 20;

/// The pager, unless the call is the library's own.
pub(crate) fn pager() -> Option<&'static Pager> {
    if is_inside() { None } else { setup::pager() }
}

/// The pager, for a call that changes this range; it is started if the range is to be paged.
pub(crate) fn pager_of(start: usize, len: usize) -> Option<&'static Pager> {
    if !is_range(start, len) || is_inside() {
        return None;
    }
    if setup::pager().is_none() && early::is_wanted() {
        enter(move || {
            early::touch(start, len);
        });
    }
    setup::pager()
}

pub(crate) fn whole(len: usize) -> usize {
    len.next_multiple_of(PAGE)
}

/// Whether the addresses make a range of whole pages, as most calls want it.
pub(crate) fn is_range(start: usize, len: usize) -> bool {
    len > 0 && start.is_multiple_of(PAGE) && start.checked_add(len).is_some_and(|end| end < 1 << 56)
}

fn manage(pager: &Pager, start: usize, len: usize) {
    manage_what(pager, start, len, true);
}

pub(crate) fn manage_what(pager: &Pager, start: usize, len: usize, fresh: bool) {
    note_paged(start, len);
    // SAFETY: the mapping is private and anonymous, and new where it is fresh; its owner unmaps it through this library.
    if let Err(error) = unsafe { pager.manage(start, len, fresh) } {
        setup::complain(&format!("{len} bytes at {start:#x} are not paged: {error}"));
    }
}

/// Maps shared memory so that it is paged; none if that cannot be.
fn share(pager: &Pager, at: usize, len: usize, prot: c_int, flags: c_int) -> Option<*mut c_void> {
    static SAID: AtomicBool = AtomicBool::new(false);
    let mut result = libc::MAP_FAILED;
    let shared = pager.share(whole(len), |file, offset| {
        result = kernel::mmap(at, len, prot, flags & !libc::MAP_ANONYMOUS, file, offset as i64);
        (result != libc::MAP_FAILED).then(|| result.addr())
    });
    match shared {
        Ok(_) => Some(result),
        Err(error) => {
            if !SAID.swap(true, Relaxed) {
                setup::complain(&format!("{len} bytes of shared memory are not paged: {error}"));
            }
            None
        }
    }
}

/// None for what the kernel has refused.
fn mapped(at: *mut c_void) -> Option<*mut c_void> {
    (at != libc::MAP_FAILED).then_some(at)
}

fn map(at: *mut c_void, len: size_t, prot: c_int, flags: c_int, fd: c_int, offset: i64) -> *mut c_void {
    match pager() {
        Some(pager) => enter(move || map_inside(pager, at.addr(), len, prot, flags, fd, offset)),
        None if early::is_on() => enter(move || early::map(at.addr(), len, prot, flags, fd, offset)),
        None => kernel::mmap(at.addr(), len, prot, flags, fd, offset),
    }
}

/// What a call of `mmap` asks for.
pub(crate) struct Kind {
    /// It takes the place of what is there.
    pub(crate) fixed: bool,
    /// Private memory that may be paged.
    pub(crate) private: bool,
    /// Shared memory that may be paged.
    pub(crate) shared: bool,
}

impl Kind {
    pub(crate) fn of(len: usize, prot: c_int, flags: c_int) -> Self {
        let special = libc::MAP_HUGETLB | libc::MAP_GROWSDOWN | libc::MAP_STACK | libc::MAP_LOCKED;
        let anonymous = flags & libc::MAP_ANONYMOUS != 0 && flags & special == 0;
        let kind = flags & libc::MAP_TYPE;
        Self {
            fixed: flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) == libc::MAP_FIXED,
            private: anonymous && kind == libc::MAP_PRIVATE,
            shared: anonymous
                && kind == libc::MAP_SHARED
                && len >= LEAST_SHARED
                && prot & libc::PROT_EXEC == 0,
        }
    }
}

pub(crate) fn map_inside(
    pager: &Pager,
    start: usize,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    let plain = || kernel::mmap(start, len, prot, flags, fd, offset);
    let Kind { fixed, private, shared } = Kind::of(len, prot, flags);
    if !(private || shared || fixed) || !is_range(0, len) || (fixed && !is_range(start, len)) {
        return plain();
    }
    // Populating would bring everything in at once.
    let flags = if private || shared { flags & !libc::MAP_POPULATE } else { flags };
    let len_whole = whole(len);
    let plain = || mapped(kernel::mmap(start, len, prot, flags, fd, offset));
    let place = || {
        let paged = if shared { share(pager, start, len, prot, flags) } else { None };
        let placed = paged.or_else(|| if fixed { pager.unshare(start, len_whole, plain) } else { plain() });
        placed.and_then(mapped)
    };
    let (was_ours, result);
    if fixed {
        let reserved = marks().reserved.within(start, start + len_whole);
        was_ours = !reserved.is_empty() || pager.manages_any(start, len_whole);
        result = pager.release(start, len_whole, place);
        if result.is_some() {
            marks().forget(start, len_whole);
        }
    } else {
        was_ours = false;
        result = place();
    }
    let Some(result) = result else { return libc::MAP_FAILED };
    if !private || (len_whole < LEAST && !was_ours && passes(pager, result.addr(), len_whole, prot)) {
        return result;
    }
    if prot & libc::PROT_WRITE != 0 {
        manage(pager, result.addr(), len_whole);
    } else if prot == libc::PROT_NONE {
        marks().reserved.insert(result.addr(), result.addr() + len_whole);
    }
    result
}

/// Whether a new small mapping stays as it is.
fn passes(pager: &Pager, start: usize, len: usize, prot: c_int) -> bool {
    if prot & libc::PROT_WRITE == 0 {
        return true;
    }
    let mut marks = marks();
    let few = marks.small.bytes() + len <= pager.dram() / SMALL_SHARE;
    if few {
        marks.small.insert(start, start + len);
    }
    few
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
    match pager().filter(|_| is_range(start, len)) {
        Some(pager) => enter(move || unmap_inside(pager, start, len)),
        None if early::is_on() && is_range(start, len) => enter(move || early::unmap(start, len)),
        None => kernel::munmap(start, len),
    }
}

pub(crate) fn unmap_inside(pager: &Pager, start: usize, len: usize) -> c_int {
    match release(pager, start, whole(len)) {
        Some(()) => 0,
        None => -1,
    }
}

/// Unmaps the range, if the kernel does.
fn release(pager: &Pager, start: usize, len: usize) -> Option<()> {
    let unmap = || {
        // Held until it is known: another thread may have the place the moment that it is free.
        let mut marks = marks();
        (kernel::munmap(start, len) == 0).then(|| marks.forget(start, len))
    };
    let unmap = || pager.unshare(start, len, unmap);
    if pager.manages_any(start, len) { pager.release(start, len, unmap) } else { unmap() }
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
    let (start, to) = (at.addr(), to.addr());
    match pager() {
        Some(pager) => enter(move || remap_inside(pager, start, len, new_len, flags, to)),
        None if early::is_on() => enter(move || early::remap(start, len, new_len, flags, to)),
        None => kernel::mremap(start, len, new_len, flags, to),
    }
}

pub(crate) fn remap_inside(
    pager: &Pager,
    start: usize,
    len: usize,
    new_len: usize,
    flags: c_int,
    to: usize,
) -> *mut c_void {
    let keep = flags & libc::MREMAP_DONTUNMAP != 0;
    let plain = || relocate(&mut marks(), start, (len, new_len), flags, to);
    // A target is given with these alone; otherwise the argument is anything.
    let placed = flags & libc::MREMAP_FIXED != 0;
    if !is_range(start, len.max(1)) || !is_range(0, new_len) || (placed && !is_range(to, new_len)) {
        return plain();
    }
    let (old, new) = (whole(len), whole(new_len));
    if pager.manages_any(start, old) {
        // What the kernel refuses: it wants the same length, and to be free where it goes.
        if old == 0 || (keep && (old != new || flags & libc::MREMAP_MAYMOVE == 0)) {
            set_errno(libc::EINVAL);
            return libc::MAP_FAILED;
        }
        return remap_private(pager, start, (old, new), flags, to);
    }
    let mut target = libc::MAP_FAILED;
    let mut remap = || {
        pager.remap_shared(start, (old, new), keep, || {
            target = plain();
            mapped(target).map(|target| target.addr())
        })
    };
    let moved = if placed { pager.release(to, new, remap) } else { remap() };
    if let Some(at) = moved
        && new >= LEAST
    {
        // It was small, and is not any more.
        let was_small = {
            let small = &mut marks().small;
            let covered = small.covers(at, at + new);
            small.remove(at, at + new);
            covered
        };
        if was_small {
            manage_what(pager, at, new, false);
        }
    }
    target
}

/// The kernel's `mremap`, and marks go along before another thread can have the place that becomes free.
pub(crate) fn relocate(
    marks: &mut Marks,
    start: usize,
    (len, new_len): (usize, usize),
    flags: c_int,
    to: usize,
) -> *mut c_void {
    let target = kernel::mremap(start, len, new_len, flags, to);
    if target != libc::MAP_FAILED {
        let keep = flags & libc::MREMAP_DONTUNMAP != 0;
        marks.moved(start, whole(len), target.addr(), whole(new_len), keep);
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
    let keep = flags & libc::MREMAP_DONTUNMAP != 0;
    let placed = flags & libc::MREMAP_FIXED != 0;
    let plain = |flags| relocate(&mut marks(), start, (old, new), flags, to);
    if !placed && !keep {
        if new == old {
            return plain(flags);
        }
        if new < old {
            let shorter = pager.release(start + new, old - new, || mapped(plain(flags)));
            return shorter.unwrap_or(libc::MAP_FAILED);
        }
        // In place, if there is room behind.
        let grown = plain(0);
        if grown != libc::MAP_FAILED {
            manage(pager, start + old, new - old);
            return grown;
        }
        if flags & libc::MREMAP_MAYMOVE == 0 {
            return grown;
        }
    }
    // The kernel moves the pages, makes the mapping longer or shorter, and takes what is in the way, all in one.
    let mut target = libc::MAP_FAILED;
    let stays = if keep { pager.managed(start, old) } else { Vec::new() };
    let mut remap = || {
        target = plain(flags);
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
        // What `remap` has set for the time being.
        kernel::madvise(at + old, new - old, libc::MADV_DODUMP);
    }
    // The old place is empty, and still the program's.
    for (from, end) in stays {
        manage(pager, from, end - from);
        kernel::madvise(from, end - from, libc::MADV_DODUMP);
    }
    target
}

/// The system's.
#[unsafe(no_mangle)]
pub extern "C" fn mprotect(at: *mut c_void, len: size_t, prot: c_int) -> c_int {
    protect(at.addr(), len, prot, -1)
}

/// The system's.
#[unsafe(no_mangle)]
pub extern "C" fn pkey_mprotect(at: *mut c_void, len: size_t, prot: c_int, key: c_int) -> c_int {
    protect(at.addr(), len, prot, key)
}

/// With -1 for a key, protection keys stay as they are.
fn protect(start: usize, len: usize, prot: c_int, key: c_int) -> c_int {
    match pager_of(start, len) {
        Some(pager) => enter(move || protect_inside(pager, start, len, prot, key)),
        None => {
            if key != -1 || prot != libc::PROT_READ | libc::PROT_WRITE {
                early::keep(start, len);
            }
            protect_plain(start, len, prot, key)
        }
    }
}

fn protect_plain(start: usize, len: usize, prot: c_int, key: c_int) -> c_int {
    match key {
        -1 => kernel::mprotect(start, len, prot),
        key => kernel::pkey_mprotect(start, len, prot, key),
    }
}

fn protect_inside(pager: &Pager, start: usize, len: usize, prot: c_int, key: c_int) -> c_int {
    let plain = || protect_plain(start, len, prot, key);
    let end = start + whole(len);
    let opened = match prot & libc::PROT_WRITE {
        0 => Vec::new(),
        _ => marks().reserved.within(start, end),
    };
    if opened.is_empty() && !pager.manages_any(start, end - start) {
        if key != -1 || prot != libc::PROT_READ | libc::PROT_WRITE {
            marks().small.remove(start, end);
        }
        return plain();
    }
    // Before anybody can touch it: what is watched from the start is known from the start.
    for (from, to) in opened.into_iter().flat_map(|(from, to)| pager.unmanaged(from, to - from)) {
        manage(pager, from, to - from);
    }
    // Until it is known what of it the pager may read: nothing.
    let result = pager.hide(start, end - start, true, plain);
    if result != 0 {
        return result;
    }
    let mut marks = marks();
    marks.reserved.remove(start, end);
    match key {
        -1 => {}
        0 => marks.keyed.remove(start, end),
        _ => marks.keyed.insert(start, end),
    }
    let open = marks.keyed.outside(start, end);
    drop(marks);
    if prot & libc::PROT_READ != 0 {
        for (from, to) in open {
            pager.hide(from, to - from, false, || ());
        }
    }
    result
}
