//! Keeps track of the library's own file descriptors. They have high numbers, and a program that the pager was loaded
//! into cannot close them.
//!
//! The kernel gives a new descriptor the lowest free number. So a descriptor of the library has a low number until it
//! is duplicated to a high one. Meanwhile a thread of the program must not duplicate a file onto a free number or close
//! numbers that are not open: it would replace or close the library's descriptor, and the library would then close the
//! program's. The library therefore holds [`OpenGuard`] while it opens a descriptor, and the program's calls that name
//! a possibly free number hold [`lock_free_numbers`].

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Lowest number for the library's descriptors: programs rely on the low numbers, and shells use most numbers up to
/// 255.
const HIGH: RawFd = 768;
/// Distance below the limit of open files, where the limit is lower than that.
const BELOW_LIMIT: u64 = 128;
/// Words of the table of own descriptors, 64 descriptors each. Descriptors with higher numbers are not tracked.
const WORDS: usize = 1024;

/// One bit for each descriptor: set if the library owns it.
static OWN: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
static NUMBERS: RwLock<()> = RwLock::new(());

/// The lowest number that a descriptor of the library should have in this process.
#[must_use]
pub fn first_number() -> RawFd {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    RawFd::try_from(limit.saturating_sub(BELOW_LIMIT)).unwrap_or(HIGH).min(HIGH)
}

/// Held while a descriptor of the library may have a low number. A fork holds it too: the child would inherit such a
/// descriptor.
#[derive(Debug)]
pub struct OpenGuard(#[expect(dead_code, reason = "held until it is dropped")] RwLockWriteGuard<'static, ()>);

impl OpenGuard {
    /// Waits for calls that hold [`lock_free_numbers`]. A thread must not acquire a second guard.
    #[must_use]
    pub fn acquire() -> Self {
        Self(NUMBERS.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Moves a descriptor to a high number, if one is free, and marks it as the library's own.
    pub fn move_high(&self, fd: impl Into<OwnedFd>) -> OwnedFd {
        let low = fd.into();
        let high = rustix::io::fcntl_dupfd_cloexec(&low, first_number()).unwrap_or(low);
        set_own(high.as_raw_fd(), true);
        high
    }

    /// Duplicates a descriptor to a high number, if one is free, and marks the duplicate as the library's own.
    ///
    /// # Errors
    /// No number is free.
    pub fn duplicate(&self, fd: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
        let copy = |from| rustix::io::fcntl_dupfd_cloexec(fd, from);
        let copied = copy(first_number()).or_else(|_| copy(0))?;
        set_own(copied.as_raw_fd(), true);
        Ok(copied)
    }
}

/// Opens a descriptor and moves it to a high number.
///
/// # Errors
/// The error of `open`.
pub fn open_high<F: Into<OwnedFd>, E>(open: impl FnOnce() -> Result<F, E>) -> Result<OwnedFd, E> {
    let opening = OpenGuard::acquire();
    Ok(opening.move_high(open()?))
}

/// Until the guard is dropped, the library takes no free descriptor number. The holder must not wait for a page fault.
pub fn lock_free_numbers() -> RwLockReadGuard<'static, ()> {
    NUMBERS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Marks a descriptor as the library's own, or as no longer its own.
pub fn set_own(fd: RawFd, is_own: bool) {
    let Some(word) = usize::try_from(fd).ok().and_then(|fd| OWN.get(fd / 64)) else { return };
    let bit = 1 << (fd % 64);
    if is_own {
        word.fetch_or(bit, Relaxed)
    } else {
        word.fetch_and(!bit, Relaxed)
    };
}

/// Marks exactly these descriptors as the library's own.
pub fn replace_own(all: &[RawFd]) {
    for (n, word) in OWN.iter().enumerate() {
        let within = all.iter().filter_map(|fd| usize::try_from(*fd).ok()).filter(|fd| fd / 64 == n);
        let bits = within.fold(0_u64, |bits, fd| bits | 1 << (fd % 64));
        if word.load(Relaxed) != bits {
            word.store(bits, Relaxed);
        }
    }
}

/// Whether the library owns the descriptor.
#[must_use]
pub fn is_own(fd: RawFd) -> bool {
    let word = usize::try_from(fd).ok().and_then(|fd| OWN.get(fd / 64));
    word.is_some_and(|word| word.load(Relaxed) >> (fd % 64) & 1 == 1)
}

/// The library's own descriptors, in ascending order.
pub fn all_own() -> impl Iterator<Item = u32> {
    OWN.iter().enumerate().flat_map(|(n, word)| {
        let mut bits = word.load(Relaxed);
        std::iter::from_fn(move || {
            let bit = bits.trailing_zeros();
            bits &= bits.wrapping_sub(1);
            (bit < 64).then_some(n as u32 * 64 + bit)
        })
    })
}

/// A descriptor that is marked as the library's own until it is dropped.
#[derive(Debug)]
pub struct OwnDescriptor(OwnedFd);

impl From<OwnedFd> for OwnDescriptor {
    fn from(fd: OwnedFd) -> Self {
        set_own(fd.as_raw_fd(), true);
        Self(fd)
    }
}

impl AsFd for OwnDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for OwnDescriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Drop for OwnDescriptor {
    fn drop(&mut self) {
        set_own(self.0.as_raw_fd(), false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_opened_descriptor_gets_a_high_number_and_is_own() {
        let file = open_high(|| std::fs::File::open("/dev/null")).unwrap();
        let other = OpenGuard::acquire().duplicate(file.as_fd()).unwrap();
        for fd in [file.as_raw_fd(), other.as_raw_fd()] {
            assert!(
                fd >= first_number() && is_own(fd) && all_own().any(|own| own == fd.cast_unsigned()),
                "{fd}"
            );
        }
        let number = other.as_raw_fd();
        drop(OwnDescriptor::from(other));
        assert!(!is_own(number));
        assert!(open_high(|| std::fs::File::open("/nowhere")).is_err());
    }

    #[test]
    fn numbers_beyond_the_table_are_not_own() {
        set_own(-1, true);
        set_own(i32::MAX, true);
        assert!(!is_own(-1) && !is_own(i32::MAX));
    }
}
