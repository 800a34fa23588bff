//! A Bloom filter: a set of pages that may report a page that was never added, and never forgets one
//! (hybrid SSD cache, section V-C).
//!
//! A filter of m bits with k positions for each of n pages reports a page that was not added with a
//! probability near (1 - e^(-kn/m))^k: 0.24 % for the paper's 1 KB, 512 pages and k = 4. The paper states
//! no k.

use alloc::vec;
use alloc::vec::Vec;

/// The hash of a page, from which every filter derives its positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageHash {
    first: u32,
    step: u32,
}

impl PageHash {
    /// The hash of a page number.
    #[must_use]
    #[inline]
    pub fn of(page: u64) -> Self {
        // The finalizer of SplitMix64.
        let mut mixed = page.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        // An odd step is never 0, so the positions of a page differ.
        Self { first: mixed as u32, step: (mixed >> 32) as u32 | 1 }
    }

    /// The positions of the page in a filter of `bits` bits.
    #[inline]
    fn positions(self, hashes: u32, bits: u32) -> impl Iterator<Item = u32> {
        (0..hashes).map(move |number| {
            let hash = self.first.wrapping_add(self.step.wrapping_mul(number));
            ((u64::from(hash) * u64::from(bits)) >> 32) as u32
        })
    }
}

/// A Bloom filter of a fixed number of bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BloomFilter {
    words: Vec<u64>,
    bits: u32,
    hashes: u32,
}

impl BloomFilter {
    /// An empty filter of `bytes` bytes (at least 8, at most 2^28, in whole words) that sets `hashes`
    /// bits (at least 1) for each page.
    #[must_use]
    pub fn new(bytes: u32, hashes: u32) -> Self {
        let words = bytes.clamp(8, 1 << 28) / 8;
        Self { words: vec![0; words as usize], bits: words * 64, hashes: hashes.max(1) }
    }

    /// True if the page was added, or seems so.
    #[must_use]
    #[inline]
    pub fn contains(&self, page: PageHash) -> bool {
        let set = |bit: u32| self.words[bit as usize / 64] >> (bit % 64) & 1 != 0;
        page.positions(self.hashes, self.bits).all(set)
    }

    /// Adds a page.
    #[inline]
    pub fn insert(&mut self, page: PageHash) {
        for bit in page.positions(self.hashes, self.bits) {
            self.words[bit as usize / 64] |= 1 << (bit % 64);
        }
    }

    /// Removes all pages.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Memory of the filter's bits, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }
}
