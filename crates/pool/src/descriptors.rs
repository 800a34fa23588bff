//! Descriptors of the pager's own. They have high numbers, and a program that the pager was loaded into does not close them.
//!
//! The kernel gives a new descriptor the lowest number that is free. So one of the pager's has a low number until it is duplicated to a
//! high one. In that moment a thread of the program that duplicates a file onto a number which is free, or closes numbers
//! which are not open, must wait: it would replace or close the pager's descriptor, and the pager would then close the program's.
//! Whoever opens therefore has [`Low`], and the program's calls that name a number which may be free have [`free_numbers`].

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Where descriptors go: programs count on the low numbers, shells on most up to 255.
const HIGH: RawFd = 768;
/// And so far below the limit, where that is less.
const BELOW_LIMIT: u64 = 128;
/// Descriptors below this can be kept open: 64 for each word.
const WORDS: usize = 1024;

/// A bit for each: it is the pager's own.
static OWN: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
static NUMBERS: RwLock<()> = RwLock::new(());

/// The lowest number that a descriptor of the pager's should have here.
#[must_use]
pub fn first() -> RawFd {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    RawFd::try_from(limit.saturating_sub(BELOW_LIMIT)).unwrap_or(HIGH).min(HIGH)
}

/// While it lives, descriptors of the pager's may have low numbers. A fork has it as well: the child would keep such a descriptor.
#[derive(Debug)]
pub struct Low(#[expect(dead_code, reason = "held until it is dropped")] RwLockWriteGuard<'static, ()>);

impl Low {
    /// Waits for calls with [`free_numbers`]. Whoever has one must not want another.
    #[must_use]
    pub fn hold() -> Self {
        Self(NUMBERS.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// The same file by a high number, if there is one left. It is the pager's own from now on.
    pub(crate) fn raise(&self, low: impl Into<OwnedFd>) -> OwnedFd {
        let low = low.into();
        let high = rustix::io::fcntl_dupfd_cloexec(&low, first()).unwrap_or(low);
        note(high.as_raw_fd(), true);
        high
    }

    /// Another descriptor of the same file, by a high number if there is one left. It is the pager's own.
    pub(crate) fn duplicate(&self, fd: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
        let copy = |from| rustix::io::fcntl_dupfd_cloexec(fd, from);
        let copied = copy(first()).or_else(|_| copy(0))?;
        note(copied.as_raw_fd(), true);
        Ok(copied)
    }
}

/// Opens a descriptor, which gets a high number.
pub(crate) fn raised<F: Into<OwnedFd>, E>(open: impl FnOnce() -> Result<F, E>) -> Result<OwnedFd, E> {
    let low = Low::hold();
    Ok(low.raise(open()?))
}

/// While it lives, no number that is free becomes the pager's. Whoever has it must not wait for a page.
pub fn free_numbers() -> RwLockReadGuard<'static, ()> {
    NUMBERS.read().unwrap_or_else(PoisonError::into_inner)
}

/// A descriptor is the pager's own from now on, or no longer.
pub fn note(fd: RawFd, is_own: bool) {
    let Some(word) = usize::try_from(fd).ok().and_then(|fd| OWN.get(fd / 64)) else { return };
    let bit = 1 << (fd % 64);
    if is_own {
        word.fetch_or(bit, Relaxed)
    } else {
        word.fetch_and(!bit, Relaxed)
    };
}

/// From now on these, and no others, are the pager's own.
pub fn keep_only(all: &[RawFd]) {
    for (n, word) in OWN.iter().enumerate() {
        let within = all.iter().filter_map(|fd| usize::try_from(*fd).ok()).filter(|fd| fd / 64 == n);
        let bits = within.fold(0_u64, |bits, fd| bits | 1 << (fd % 64));
        if word.load(Relaxed) != bits {
            word.store(bits, Relaxed);
        }
    }
}

/// Whether a descriptor is the pager's own.
#[must_use]
pub fn is_own(fd: RawFd) -> bool {
    let word = usize::try_from(fd).ok().and_then(|fd| OWN.get(fd / 64));
    word.is_some_and(|word| word.load(Relaxed) >> (fd % 64) & 1 == 1)
}

/// The pager's own, in order.
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

/// One that is the pager's own until it is dropped.
#[derive(Debug)]
pub(crate) struct Own(OwnedFd);

impl From<OwnedFd> for Own {
    fn from(fd: OwnedFd) -> Self {
        note(fd.as_raw_fd(), true);
        Self(fd)
    }
}

impl AsFd for Own {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Own {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        note(self.0.as_raw_fd(), false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_opened_gets_a_high_number_and_is_own() {
        let file = raised(|| std::fs::File::open("/dev/null")).unwrap();
        let other = Low::hold().duplicate(file.as_fd()).unwrap();
        for fd in [file.as_raw_fd(), other.as_raw_fd()] {
            assert!(fd >= first() && is_own(fd) && all_own().any(|own| own == fd.cast_unsigned()), "{fd}");
        }
        let number = other.as_raw_fd();
        drop(Own::from(other));
        assert!(!is_own(number));
        assert!(raised(|| std::fs::File::open("/nowhere")).is_err());
    }

    #[test]
    fn numbers_beyond_the_table_are_nobodys() {
        note(-1, true);
        note(i32::MAX, true);
        assert!(!is_own(-1) && !is_own(i32::MAX));
    }
}
