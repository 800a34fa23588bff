//! Descriptors that the pager needs: programs that close everything they do not know must not close these.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use deepram_pool::pager::first_descriptor;
use libc::{c_int, c_uint};

use crate::kernel::{self, limit};
use crate::malloc::set_errno;

/// With fewer there are none left for the program.
const LEAST: u64 = 48;
/// Descriptors below this can be kept open: 64 for each word.
const WORDS: usize = 1024;
/// A bit for each: it is ours.
static OURS: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

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

/// Calls what opens descriptors for the pager: they get high numbers. There is one thread alone.
pub(crate) fn aloft<T>(open: impl FnOnce() -> T) -> T {
    let high = first_descriptor();
    // All low numbers that are free are taken meanwhile.
    let first = kernel::eventfd();
    let mut low = Vec::new();
    let mut next = first;
    while (0..high).contains(&next) {
        low.push(next);
        // SAFETY: a further descriptor of the same, which is closed below.
        next = unsafe { libc::fcntl(first, libc::F_DUPFD_CLOEXEC, next + 1) };
    }
    low.extend((next >= 0).then_some(next));
    let result = open();
    for run in low.chunk_by(|a, b| a + 1 == *b) {
        kernel::close_range(run[0].cast_unsigned(), run[run.len() - 1].cast_unsigned(), 0);
    }
    result
}

/// From now on these, and no others, are kept open.
pub(crate) fn protect(all: &[i32]) {
    OURS.iter().for_each(|word| word.store(0, Relaxed));
    all.iter().for_each(|fd| note(*fd, true));
}

/// A descriptor is ours from now on, or no longer.
pub(crate) fn note(fd: i32, is_ours: bool) {
    let Some(word) = usize::try_from(fd).ok().and_then(|fd| OURS.get(fd / 64)) else { return };
    let bit = 1 << (fd % 64);
    if is_ours {
        word.fetch_or(bit, Relaxed)
    } else {
        word.fetch_and(!bit, Relaxed)
    };
}

pub(crate) fn is_ours(fd: c_int) -> bool {
    let word = usize::try_from(fd).ok().and_then(|fd| OURS.get(fd / 64));
    word.is_some_and(|word| word.load(Relaxed) >> (fd % 64) & 1 == 1)
}

/// The system's.
#[unsafe(no_mangle)]
pub extern "C" fn close(fd: c_int) -> c_int {
    if !crate::inside::is_inside() && is_ours(fd) {
        // As if it had never been there.
        set_errno(libc::EBADF);
        return -1;
    }
    kernel::close(fd)
}

/// The system's.
#[unsafe(no_mangle)]
pub extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if first > last {
        return kernel::close_range(first, last, flags);
    }
    let mut from = first;
    for (n, word) in OURS.iter().enumerate() {
        let mut bits = word.load(Relaxed);
        while bits != 0 {
            let fd = n as c_uint * 64 + bits.trailing_zeros();
            bits &= bits - 1;
            if !(from..=last).contains(&fd) {
                continue;
            }
            if fd > from {
                let result = kernel::close_range(from, fd - 1, flags);
                if result != 0 {
                    return result;
                }
            }
            from = fd + 1;
        }
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
    if is_ours(to) {
        set_errno(libc::EBUSY);
        return -1;
    }
    kernel::dup3(from, to, flags)
}
