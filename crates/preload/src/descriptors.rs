//! Descriptors that the pager needs: programs that close everything they do not know must not close these.

use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use libc::{c_int, c_uint};

use crate::kernel;
use crate::malloc::set_errno;

const MOST: usize = 128;
static OURS: [AtomicI32; MOST] = [const { AtomicI32::new(-1) }; MOST];

/// From now on these, and no others, are kept open.
pub(crate) fn protect(all: &[i32]) {
    for (n, place) in OURS.iter().enumerate() {
        place.store(all.get(n).copied().unwrap_or(-1), Relaxed);
    }
}

fn ours(fd: c_int) -> bool {
    fd >= 0 && OURS.iter().any(|place| place.load(Relaxed) == fd)
}

/// The system's.
#[unsafe(no_mangle)]
pub extern "C" fn close(fd: c_int) -> c_int {
    if !crate::inside::is_inside() && ours(fd) {
        // As if it had never been there.
        set_errno(libc::EBADF);
        return -1;
    }
    kernel::close(fd)
}

/// The system's.
#[unsafe(no_mangle)]
pub extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let mut kept: Vec<c_uint> = OURS
        .iter()
        .map(|place| place.load(Relaxed))
        .filter(|fd| *fd >= 0)
        .map(|fd| fd.cast_unsigned())
        .collect();
    kept.retain(|fd| (first..=last).contains(fd));
    kept.sort_unstable();
    let mut from = first;
    for fd in kept {
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
    if ours(to) {
        set_errno(libc::EBUSY);
        return -1;
    }
    kernel::dup3(from, to, flags)
}
