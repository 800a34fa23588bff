//! A range of addresses from which the library allocates: an address in it tells that the memory is the library's.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::kernel;

/// The range, which is reserved once.
pub(crate) struct AddressRange {
    /// Largest and smallest length in bytes.
    most: usize,
    least: usize,
    /// The range takes at most one in this many of the addresses that the process may use, where they are limited.
    share: usize,
    /// Access to its memory.
    access: libc::c_int,
    /// The start is aligned to this.
    align: usize,
    /// 0 before the range is reserved.
    start: AtomicUsize,
    /// 0 if no range could be reserved.
    len: AtomicUsize,
}

impl AddressRange {
    pub(crate) const fn new(
        most: usize,
        least: usize,
        share: usize,
        access: libc::c_int,
        align: usize,
    ) -> Self {
        Self { most, least, share, access, align, start: AtomicUsize::new(0), len: AtomicUsize::new(0) }
    }

    /// Reserves the addresses at the first call, which no other thread makes at the same time: the largest length, or half
    /// of it, a quarter and so on, as the kernel and the limit of addresses allow. Only touched pages take DRAM. Returns the
    /// start and the length; `None` if there are no addresses.
    pub(crate) fn reserve(&self) -> Option<(usize, usize)> {
        if self.start.load(Relaxed) == 0 {
            let (start, len) = self.reserve_largest().unwrap_or((1, 0));
            let skipped = start.next_multiple_of(self.align) - start;
            self.len.store(len.saturating_sub(skipped), Relaxed);
            self.start.store(start + skipped, Relaxed);
        }
        let len = self.len.load(Relaxed);
        (len > 0).then(|| (self.start.load(Relaxed), len))
    }

    fn reserve_largest(&self) -> Option<(usize, usize)> {
        let allowed = match kernel::limit(libc::RLIMIT_AS) {
            libc::RLIM_INFINITY => self.most,
            bytes => usize::try_from(bytes).unwrap_or(self.most) / self.share,
        };
        let halves = std::iter::successors(Some(self.most), |len| Some(len / 2));
        let mut lengths =
            halves.take_while(|len| *len >= self.least).filter(|len| *len <= allowed.max(self.least));
        lengths.find_map(|len| Some((kernel::reserve(len, self.access)?, len)))
    }

    /// Start of the range, once it is reserved.
    pub(crate) fn start(&self) -> usize {
        self.start.load(Relaxed)
    }

    /// Length of the range, once it is reserved.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    /// Whether the address is in the range.
    pub(crate) fn owns(&self, at: usize) -> bool {
        at.wrapping_sub(self.start()) < self.len()
    }
}
