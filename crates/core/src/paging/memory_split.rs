//! Divides the memory of a program between its paged memory and the page cache of its files (ADR 49).
//!
//! Both read pages again that they had to drop. The side that reads more of them for each page that it has gets a step of
//! memory from the other, as one more page spares it more reads.

/// Part of the memory that the page cache has at first.
const FIRST_SHARE: usize = 8;
/// Smallest part of the memory that the page cache has.
const LEAST_SHARE: usize = 64;
/// Largest part of the memory that the page cache has.
const MOST_SHARE: usize = 2;
/// Part of the memory that moves in one step.
const STEP_SHARE: usize = 64;
/// A side gets memory if it reads this many times as many pages again, for each page that it has, as the other.
const FACTOR: u128 = 2;
/// Pages that both sides have read again before a step is taken.
const LEAST_READS: u64 = 32;

/// The division of a memory of a fixed number of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MemorySplit {
    pages: usize,
    /// The page cache's part, in pages.
    cache: usize,
    /// Pages read again since the last step.
    cache_reads: u64,
    paged_reads: u64,
}

impl MemorySplit {
    /// The first division of a memory of `pages` pages.
    #[must_use]
    pub fn new(pages: usize) -> Self {
        Self { pages, cache: pages / FIRST_SHARE, cache_reads: 0, paged_reads: 0 }
    }

    /// Pages that paged memory must not use while the page cache has `used` pages: these and a step more, so that it can grow, but
    /// at most the page cache's part. It may have more pages as long as paged memory does not need them.
    #[must_use]
    pub fn kept_for_cache(self, used: usize) -> usize {
        self.cache.min(used + self.pages / STEP_SHARE)
    }

    /// Records how many pages were read again since the last call: into the page cache, and into paged memory. Takes at most one
    /// step.
    pub fn record_reads(&mut self, cache: u64, paged: u64) {
        self.cache_reads += cache;
        self.paged_reads += paged;
        if self.cache_reads + self.paged_reads < LEAST_READS {
            return;
        }
        // Reads for each page, both multiplied by the sizes of both sides.
        let cache_rate = u128::from(self.cache_reads) * (self.pages - self.cache) as u128;
        let paged_rate = u128::from(self.paged_reads) * self.cache as u128;
        let step = self.pages / STEP_SHARE;
        if cache_rate > FACTOR * paged_rate {
            self.cache = (self.cache + step).min(self.pages / MOST_SHARE);
        } else if paged_rate > FACTOR * cache_rate {
            self.cache = self.cache.saturating_sub(step).max(self.pages / LEAST_SHARE);
        }
        (self.cache_reads, self.paged_reads) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn memory_moves_to_the_side_that_reads_pages_again() {
        let mut split = MemorySplit::new(6400);
        assert_eq!(split.cache, 800);
        (0..100).for_each(|_| split.record_reads(0, 5000));
        assert_eq!(split.cache, 100, "the least");
        (0..3).for_each(|_| split.record_reads(500, 500));
        assert_eq!(split.cache, 400, "a page of the small side spares more reads");
        (0..100).for_each(|_| split.record_reads(5000, 0));
        assert_eq!(split.cache, 3200, "the most");
    }

    #[test]
    fn the_page_cache_keeps_its_part_only_as_it_fills_it() {
        let split = MemorySplit::new(6400);
        assert_eq!([0, 300, 700, 5000].map(|used| split.kept_for_cache(used)), [100, 400, 800, 800]);
    }

    #[test]
    fn nothing_moves_without_reads() {
        let mut split = MemorySplit::new(6400);
        (0..1000).for_each(|_| split.record_reads(0, 0));
        assert_eq!(split, MemorySplit::new(6400));
        (0..31).for_each(|_| split.record_reads(1, 0));
        assert_eq!(split.cache, 800);
        split.record_reads(1, 0);
        assert_eq!(split.cache, 900);
    }

    proptest! {
        /// Two sides whose reads fall in inverse proportion to their size, as if their accesses had a Zipf distribution: two steps
        /// from where the division settles, no side would get more (the slack is the factor, and rounding).
        #[test]
        fn the_division_settles_where_both_sides_gain_alike(
            pages in 1000usize..1_000_000, cache in 1u64..1000, paged in 1u64..1000,
        ) {
            let mut split = MemorySplit::new(pages);
            let reads = |weight: u64, size: usize| (weight as f64 * 1e4 * pages as f64 / size as f64) as u64;
            for _ in 0..200 {
                split.record_reads(reads(cache, split.cache), reads(paged, pages - split.cache));
            }
            let (least, most, step) = (pages / LEAST_SHARE, pages / MOST_SHARE, pages / STEP_SHARE);
            prop_assert!((least..=most).contains(&split.cache));
            let rate = |weight: u64, size: usize| weight as f64 / (size as f64 * size as f64);
            let (low, high) = (split.cache.saturating_sub(2 * step).max(1), split.cache + 2 * step);
            let slack = 2.1;
            prop_assert!(
                split.cache == most || rate(cache, high) <= slack * rate(paged, pages - high),
                "{} of {pages} pages: the cache gains more", split.cache
            );
            prop_assert!(
                split.cache == least || rate(paged, pages - low) <= slack * rate(cache, low),
                "{} of {pages} pages: paged memory gains more", split.cache
            );
        }
    }
}
