//! Protects the pager's descriptors from programs that close every descriptor they do not know, and hides them from those that
//! look which are open.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use deepram_linux::descriptors::{all_own, is_own, lock_free_numbers};
use libc::{c_char, c_int, c_uint};

use crate::kernel::{self, limit};
use crate::library_context::{in_library, on_library_stack};
use crate::malloc::set_errno;
use crate::{lazy_start, libc_symbols::symbol, setup};

/// Smallest limit of open files at which descriptors are left for the program.
const MIN_DESCRIPTORS: u64 = 48;
/// Checks that the limit of open files is large enough for the pager and the program.
///
/// # Errors
/// The message says which limit is too low.
pub(crate) fn check_limit() -> Result<(), String> {
    match limit(libc::RLIMIT_NOFILE) {
        most if most < MIN_DESCRIPTORS => {
            Err(format!("the limit of open files is {most}; at least {MIN_DESCRIPTORS} are needed"))
        }
        _ => Ok(()),
    }
}

/// Set when the program has created threads that the C library does not know.
static UNKNOWN_THREADS: AtomicBool = AtomicBool::new(false);

/// Records that a thread that shares descriptors is created without the C library's knowledge.
pub(crate) fn note_unknown_threads() {
    UNKNOWN_THREADS.store(true, Relaxed);
}

/// Whether the program may have several threads.
fn may_have_threads() -> bool {
    symbol!(KNOWN = c"__libc_single_threaded");
    // SAFETY: a variable of the C library (glibc 2.32), which any thread may read. Without it there may be several
    // threads.
    let alone = KNOWN.find().is_some_and(|known| unsafe { known.cast::<c_char>().read_volatile() } != 0);
    !alone || UNKNOWN_THREADS.load(Relaxed)
}

/// Whether a free descriptor number may become the pager's at any time. A single-threaded program opens descriptors for
/// the pager itself; a child that uses the parent's memory (`vfork`) has descriptors of its own, and might end while it
/// holds the lock.
fn must_lock_numbers() -> bool {
    !in_library() && lazy_start::is_enabled() && may_have_threads() && setup::is_pager_process()
}

/// Calls `body` while the pager takes no free descriptor number.
fn with_numbers_locked<T>(body: impl FnOnce() -> T + 'static) -> T {
    // The thread must not wait for a page of its stack, nor may a signal handler leave `body` by a jump.
    on_library_stack(|| {
        let _numbers = lock_free_numbers();
        body()
    })
}

fn is_open(fd: c_int) -> bool {
    kernel::raw(libc::SYS_fcntl, [fd as usize, libc::F_GETFD as usize, 0, 0, 0, 0]) >= 0
}

/// Interposes the C library's `close`.
#[unsafe(no_mangle)]
pub extern "C" fn close(fd: c_int) -> c_int {
    // An open descriptor belongs to the program and stays so: closing it may take any time, so it is closed without the
    // lock.
    let may_close = in_library()
        || if must_lock_numbers() {
            with_numbers_locked(move || !is_own(fd) && is_open(fd))
        } else {
            !is_own(fd)
        };
    if may_close { kernel::close(fd) } else { not_open() }
}

/// The result of a call with one of the pager's descriptors, as if the descriptor had never been open.
fn not_open() -> c_int {
    set_errno(libc::EBADF);
    -1
}

/// Interposes the C library's `fstat`, by which programs find out which descriptors are open.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fstat(fd: c_int, about: *mut libc::stat) -> c_int {
    if !in_library() && is_own(fd) { not_open() } else { kernel::fstat(fd, about) }
}

/// Interposes the C library's `fstat64`, which is the same function on 64-bit systems.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fstat64(fd: c_int, about: *mut libc::stat) -> c_int {
    // SAFETY: as promised by the caller.
    unsafe { fstat(fd, about) }
}

/// Interposes the C library's `close_range`.
#[unsafe(no_mangle)]
pub extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if first > last {
        return kernel::close_range(first, last, flags);
    }
    if must_lock_numbers() {
        with_numbers_locked(move || close_all(first, last, flags))
    } else {
        close_all(first, last, flags)
    }
}

/// Closes all descriptors of the range except the pager's own.
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

/// Interposes the C library's `closefrom`.
#[unsafe(no_mangle)]
pub extern "C" fn closefrom(first: c_int) {
    let _ = close_range(first.max(0).cast_unsigned(), c_uint::MAX, 0);
}

/// Interposes the C library's `dup2`.
#[unsafe(no_mangle)]
pub extern "C" fn dup2(from: c_int, to: c_int) -> c_int {
    if from == to {
        // SAFETY: only checks whether the descriptor is open.
        return if unsafe { libc::fcntl(from, libc::F_GETFD) } < 0 { -1 } else { to };
    }
    dup3(from, to, 0)
}

/// Interposes the C library's `dup3`.
#[unsafe(no_mangle)]
pub extern "C" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    // A free target number is taken under the lock; an open target is closed by the call, which may take any time.
    let done = must_lock_numbers().then(|| {
        with_numbers_locked(move || (!is_own(to) && !is_open(to)).then(|| kernel::dup3(from, to, flags)))
    });
    if let Some(Some(done)) = done {
        return done;
    }
    if is_own(to) {
        set_errno(libc::EBUSY);
        return -1;
    }
    kernel::dup3(from, to, flags)
}
