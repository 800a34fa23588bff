//! Miss ratios of the replacement policies, by simulation of a cache for each policy and capacity.

use deepram_core::cache::{AccessOutcome, Policy, Replacement};

/// The capacity, in pages, that stands for `capacity_pages` on a sample of the pages.
pub(super) fn sampled_capacity(capacity_pages: u64, rate: f64) -> usize {
    (capacity_pages as f64 * rate).round().max(1.0) as usize
}

/// A cache that follows the accesses.
pub(super) struct SimulatedCache {
    pub(super) policy: Policy,
    pub(super) capacity_pages: u64,
    cache: Box<dyn Replacement + Send>,
    /// Reads and writes that missed.
    misses: [u64; 2],
    /// Reads and writes.
    accesses: [u64; 2],
}

impl SimulatedCache {
    /// An empty cache of `capacity_pages`. On a sample of the pages, its capacity is `rate` times as large.
    pub(super) fn new(policy: Policy, capacity_pages: u64, rate: f64) -> Self {
        Self {
            policy,
            capacity_pages,
            cache: policy.build(sampled_capacity(capacity_pages, rate)),
            misses: [0; 2],
            accesses: [0; 2],
        }
    }

    /// Accesses pages, each with whether it is written.
    pub(super) fn access_all(&mut self, accesses: impl Iterator<Item = (u32, bool)>) {
        for (page, write) in accesses {
            let missed = self.cache.access(page) != AccessOutcome::Hit;
            self.accesses[usize::from(write)] += 1;
            self.misses[usize::from(write)] += u64::from(missed);
        }
    }

    /// Reads and writes that missed.
    pub(super) fn misses(&self) -> [u64; 2] {
        self.misses
    }

    /// Reads and writes.
    pub(super) fn accesses(&self) -> [u64; 2] {
        self.accesses
    }
}
