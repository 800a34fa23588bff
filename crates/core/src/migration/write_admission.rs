//! Enforces the coolness threshold: counts the writes of pages that are not in the buffer, and decides
//! whether a page enters it (hybrid SSD cache, section V-C, Algorithm 4).
//!
//! Four Bloom filters hold the pages that were written at least once, twice, three and four times since
//! the filters were reset. The access count of a page is one more than the number of consecutive filters
//! that have it, at most 5. A page below the threshold enters the filter of its count and goes to the
//! SSD. The search as printed does not end at the fourth filter; here it does.

use super::bloom_filter::{BloomFilter, PageHash};

const FILTERS: usize = 4;

/// The change of the filters at a period's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FilterDecay {
    /// All filters become empty.
    #[default]
    Reset,
    /// Each filter takes over the pages of the next one, and the last becomes empty: every count falls
    /// by one.
    Shift,
}

/// The state of Algorithm 4.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteAdmission {
    filters: [BloomFilter; FILTERS],
    decay: FilterDecay,
}

impl WriteAdmission {
    /// Four empty filters like `filter`.
    #[must_use]
    pub fn new(decay: FilterDecay, filter: &BloomFilter) -> Self {
        let mut empty = filter.clone();
        empty.clear();
        Self { filters: core::array::from_fn(|_| empty.clone()), decay }
    }

    /// The access count of a page that is not in the buffer, this write included: 1 to 5.
    #[must_use]
    #[inline]
    pub fn count(&self, page: PageHash) -> u8 {
        self.filters.iter().take_while(|filter| filter.contains(page)).count() as u8 + 1
    }

    /// Decides about a page with this access count: true if it enters the buffer. A page that does not is
    /// remembered. `threshold` is the coolness threshold; no page enters a `closed` PCM.
    #[inline]
    pub fn admit(&mut self, page: PageHash, count: u8, threshold: u8, closed: bool) -> bool {
        if count >= threshold && !closed {
            return true;
        }
        if let Some(filter) = self.filters.get_mut(usize::from(count) - 1) {
            filter.insert(page);
        }
        false
    }

    /// Ends a period.
    pub fn end_period(&mut self) {
        if self.decay == FilterDecay::Shift {
            self.filters.rotate_left(1);
            self.filters[FILTERS - 1].clear();
        } else {
            self.filters.iter_mut().for_each(BloomFilter::clear);
        }
    }

    /// Memory of the filters' bits, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.filters.iter().map(BloomFilter::memory_bytes).sum()
    }
}
