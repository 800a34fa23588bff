//! `madvise`, `mlock` and their families, for memory that is paged; other memory is the kernel's matter.
//!
//! `mincore` passes through: as with a swap, it tells what is in memory.

use deepram_pool::pager::{PAGE, Pager};
use libc::{c_int, c_uint, c_void, size_t};

use crate::inside::enter;
use crate::malloc::set_errno;
use crate::marks::marks;
use crate::memory::{is_range, pager, pager_of, whole};
use crate::{early, kernel};

const MADV_DONTNEED_LOCKED: c_int = 24;
/// What may be done to memory before there is a pager that it will have: it says nothing of later.
const EARLY: [c_int; 11] = [
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

/// Has the kernel see to what of the range is not managed; its refusal, if any, is the result.
fn others(pager: &Pager, start: usize, len: usize, mut call: impl FnMut(usize, usize) -> c_int) -> c_int {
    pager.unmanaged(start, len).into_iter().fold(0, |result, (from, to)| call(from, to - from).min(result))
}

/// The system's.
#[unsafe(no_mangle)]
pub extern "C" fn madvise(at: *mut c_void, len: size_t, advice: c_int) -> c_int {
    let start = at.addr();
    let pager =
        if EARLY.contains(&advice) { pager().filter(|_| is_range(start, len)) } else { pager_of(start, len) };
    match pager {
        Some(pager) => enter(move || advise_inside(pager, start, len, advice)),
        None if early::is_on() && is_range(start, len) && is_for_forks(advice) => {
            enter(move || advise_for_forks(start, len, advice))
        }
        None => {
            if let libc::MADV_MERGEABLE | MADV_GUARD_INSTALL = advice {
                early::keep(start, len);
            }
            kernel::madvise(start, len, advice)
        }
    }
}

/// Whether it is about what a forked child gets.
fn is_for_forks(advice: c_int) -> bool {
    let for_forks = [libc::MADV_DONTFORK, libc::MADV_DOFORK, libc::MADV_WIPEONFORK, libc::MADV_KEEPONFORK];
    for_forks.contains(&advice)
}

fn advise_for_forks(start: usize, len: usize, advice: c_int) -> c_int {
    let result = kernel::madvise(start, len, advice);
    if result == 0 {
        let (mut marks, end) = (marks(), start + whole(len));
        match advice {
            libc::MADV_DONTFORK => marks.left_out.insert(start, end),
            libc::MADV_DOFORK => marks.left_out.remove(start, end),
            libc::MADV_WIPEONFORK => marks.wiped.insert(start, end),
            _ => marks.wiped.remove(start, end),
        }
    }
    result
}

fn advise_inside(pager: &Pager, start: usize, len: usize, advice: c_int) -> c_int {
    let plain = || kernel::madvise(start, len, advice);
    let (len_whole, end) = (whole(len), start + whole(len));
    if is_for_forks(advice) {
        return advise_for_forks(start, len, advice);
    }
    if !pager.manages_any(start, len_whole) {
        if let libc::MADV_MERGEABLE | MADV_GUARD_INSTALL = advice {
            marks().small.remove(start, end);
        }
        return plain();
    }
    let others = || others(pager, start, len_whole, |from, len| kernel::madvise(from, len, advice));
    match advice {
        libc::MADV_DONTNEED | MADV_DONTNEED_LOCKED | libc::MADV_FREE => {
            let result = others();
            pager.drop_contents(start, len_whole);
            result
        }
        libc::MADV_WILLNEED => {
            pager.will_need(start, len_whole);
            others()
        }
        libc::MADV_COLD | libc::MADV_PAGEOUT => {
            pager.cold(start, len_whole);
            others()
        }
        libc::MADV_HUGEPAGE | libc::MADV_NOHUGEPAGE => {
            pager.prefer_huge(start, len_whole, advice == libc::MADV_HUGEPAGE);
            others()
        }
        // The pager divides and joins pages itself, and each process's are its own.
        libc::MADV_COLLAPSE | libc::MADV_MERGEABLE | libc::MADV_UNMERGEABLE => others(),
        // As kernels before Linux 6.13.
        MADV_GUARD_INSTALL | MADV_GUARD_REMOVE => {
            set_errno(libc::EINVAL);
            -1
        }
        // Populating is touching: the faults are served as the program's are.
        _ => plain(),
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
    lock(at.addr(), len, true, kernel::mlock)
}

/// The system's. With `MLOCK_ONFAULT` managed memory is brought in all the same.
#[unsafe(no_mangle)]
pub extern "C" fn mlock2(at: *const c_void, len: size_t, flags: c_uint) -> c_int {
    lock(at.addr(), len, true, move |start, len| kernel::mlock2(start, len, flags))
}

/// The system's.
#[unsafe(no_mangle)]
pub extern "C" fn munlock(at: *const c_void, len: size_t) -> c_int {
    lock(at.addr(), len, false, kernel::munlock)
}

/// The system's. Locking everything would leave nothing to page: only later calls of `mlock` count.
#[unsafe(no_mangle)]
pub extern "C" fn mlockall(flags: c_int) -> c_int {
    if !early::is_on() {
        return kernel::mlockall(flags);
    }
    let all = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
    if flags & !all != 0 || flags & (libc::MCL_CURRENT | libc::MCL_FUTURE) == 0 {
        set_errno(libc::EINVAL);
        return -1;
    }
    0
}

/// The system's.
#[unsafe(no_mangle)]
pub extern "C" fn munlockall() -> c_int {
    if let Some(pager) = pager() {
        enter(|| pager.pin(0, usize::MAX / PAGE * PAGE, false));
    }
    kernel::munlockall()
}

fn lock(start: usize, len: usize, locked: bool, kernel: impl Fn(usize, usize) -> c_int + 'static) -> c_int {
    let first = start / PAGE * PAGE;
    let whole = (start - first).checked_add(len).map(whole);
    match whole.and_then(|whole| pager_of(first, whole)) {
        Some(pager) => enter(move || lock_inside(pager, start, len, locked, kernel)),
        None => {
            if let (true, Some(whole)) = (locked, whole) {
                early::keep(first, whole);
            }
            kernel(start, len)
        }
    }
}

fn lock_inside(
    pager: &Pager,
    start: usize,
    len: usize,
    locked: bool,
    kernel: impl Fn(usize, usize) -> c_int,
) -> c_int {
    let first = start / PAGE * PAGE;
    let Some(len_whole) = (start - first).checked_add(len).map(whole) else { return kernel(start, len) };
    if !is_range(first, len_whole) {
        return kernel(start, len);
    }
    if locked {
        // What the kernel keeps in memory cannot leave.
        marks().small.remove(first, first + len_whole);
    }
    if !pager.manages_any(first, len_whole) {
        return kernel(start, len);
    }
    let result = others(pager, first, len_whole, kernel);
    pager.pin(first, len_whole, locked);
    result
}
