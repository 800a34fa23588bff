//! Descriptors that the pager needs: programs that close everything they do not know must not close these.

use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Relaxed};

use deepram_pool::descriptors::{all_own, free_numbers, is_own};
use libc::{c_char, c_int, c_uint};

use crate::inside::{apart, is_inside};
use crate::kernel::{self, limit};
use crate::malloc::set_errno;
use crate::{early, next, setup};

/// With fewer there are none left for the program.
const LEAST: u64 = 48;
/// Whether the process may have enough for the pager and itself.
///
/// # Errors
/// What is missing.
pub(crate) fn suffice() -> Result<(), String> {
    match limit(libc::RLIMIT_NOFILE) {
        most if most < LEAST => Err(format!("of descriptors there may be {most}, and {LEAST} are wanted")),
        _ => Ok(()),
    }
}

/// The program has made threads that the C library does not know.
static UNKNOWN_THREADS: AtomicBool = AtomicBool::new(false);

/// Threads that share descriptors are made without the C library's knowledge.
pub(crate) fn expect_threads() {
    UNKNOWN_THREADS.store(true, Relaxed);
}

/// Whether the program has several threads, as far as is known.
fn has_threads() -> bool {
    static KNOWN: AtomicPtr<libc::c_void> = AtomicPtr::new(std::ptr::null_mut());
    // SAFETY: a variable of the C library (glibc 2.32), which any thread may read. Without it there may be some.
    let alone = next::find(&KNOWN, c"__libc_single_threaded")
        .is_some_and(|known| unsafe { known.cast::<c_char>().read_volatile() } != 0);
    !alone || UNKNOWN_THREADS.load(Relaxed)
}

/// Whether a number that is free may become the pager's at any time. A thread that is alone opens for the pager itself; a child that
/// uses the memory (`vfork`) has descriptors of its own, and might end with the lock.
fn may_change() -> bool {
    !is_inside() && early::is_wanted() && has_threads() && setup::is_here()
}

/// Calls `body` while none does.
fn at_rest<T>(body: impl FnOnce() -> T + 'static) -> T {
    // The thread must not wait for a page of its stack, nor a handler of a signal leave it by a jump.
    apart(|| {
        let _numbers = free_numbers();
        body()
    })
}

fn is_open(fd: c_int) -> bool {
    kernel::raw(libc::SYS_fcntl, [fd as usize, libc::F_GETFD as usize, 0, 0, 0, 0]) >= 0
}

/// The system's.
#[unsafe(no_mangle)]
pub extern "C" fn close(fd: c_int) -> c_int {
    // What is open is the program's and stays so: closing it may take any time, so that is not done at rest.
    let may_close =
        is_inside() || if may_change() { at_rest(move || !is_own(fd) && is_open(fd)) } else { !is_own(fd) };
    if may_close {
        return kernel::close(fd);
    }
    // As if it had never been there.
    set_errno(libc::EBADF);
    -1
}

/// The system's.
#[unsafe(no_mangle)]
pub extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if first > last {
        return kernel::close_range(first, last, flags);
    }
    if may_change() { at_rest(move || close_all(first, last, flags)) } else { close_all(first, last, flags) }
}

/// All but the pager's own.
fn close_all(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let mut from = first;
    for fd in all_own().filter(|fd| (first..=last).contains(fd)) {
        if fd > from {
            let result = kernel::close_range(from, fd - 1, flags);
            if result != 0 {
                return result;
            }
        }
        from = fd + 1;
    }
    if from <= last { kernel::close_range(from, last, flags) } else { 0 }
}

/// The system's.
#[unsafe(no_mangle)]
pub extern "C" fn closefrom(first: c_int) {
    let _ = close_range(first.max(0).cast_unsigned(), c_uint::MAX, 0);
}

/// The system's.
#[unsafe(no_mangle)]
pub extern "C" fn dup2(from: c_int, to: c_int) -> c_int {
    if from == to {
        // SAFETY: asks whether the descriptor is open.
        return if unsafe { libc::fcntl(from, libc::F_GETFD) } < 0 { -1 } else { to };
    }
    dup3(from, to, 0)
}

/// The system's.
#[unsafe(no_mangle)]
pub extern "C" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    // Onto a free number at rest; what is open is closed, which may take any time.
    let done = may_change()
        .then(|| at_rest(move || (!is_own(to) && !is_open(to)).then(|| kernel::dup3(from, to, flags))));
    if let Some(Some(done)) = done {
        return done;
    }
    if is_own(to) {
        set_errno(libc::EBUSY);
        return -1;
    }
    kernel::dup3(from, to, flags)
}
