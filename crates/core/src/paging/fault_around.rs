//! Fault-around with an adaptive block size: a missed page is read together with its neighbours, where those have been
//! used recently (ADR 25).
//!
//! Some programs keep data that they use together at neighbouring addresses but visit the groups in no order; they miss
//! pages one by one, and [`super::readahead`] detects no stream. So each region of memory has a block size: all pages of
//! the aligned block around a missed page are read with it. One page of the block, the probe, is kept in the victim
//! buffer, where a fault shows whether it is used before it leaves the buffer. The block size doubles where most probes
//! are used and halves where few are. Where it is one page, one miss in many tries a block of two.

use super::PAGE;

/// Bytes of a region, whose pages share one block size.
const REGION: usize = 16 << 20;
/// Number of regions that are distinguished; other addresses share them.
const REGIONS: usize = 64;
/// Pages of the largest block.
const MAX_BLOCK: u8 = 8;
/// Pages of the smallest block above one page.
const MIN_BLOCK: u8 = 2;
/// Probes after which the block size is chosen anew.
const PROBES_PER_ROUND: u8 = 16;
/// Of these, the number of used probes from which on the block size doubles, or stays the same.
const DOUBLE_FROM: u8 = 10;
const SAME_FROM: u8 = 7;
/// Where blocks have one page, one miss in this many reads two.
const TRIAL_EVERY: u8 = 32;

/// The aligned block of pages that are read with a missed page; the missed page is one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Block {
    /// Address of the first page.
    pub first: usize,
    /// Number of pages, a power of two.
    pub pages: usize,
}

impl Block {
    /// The block of `pages` pages that contains the page at address `page`.
    #[must_use]
    pub fn around(page: usize, pages: usize) -> Self {
        Self { first: page / (pages * PAGE) * (pages * PAGE), pages }
    }

    /// Address of the last page.
    #[must_use]
    pub fn last(self) -> usize {
        self.first + (self.pages - 1) * PAGE
    }

    /// The addresses of the pages other than `page`.
    pub fn neighbours(self, page: usize) -> impl Iterator<Item = usize> {
        (0..self.pages).map(move |n| self.first + n * PAGE).filter(move |other| *other != page)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Region {
    /// Block size in pages, a power of two.
    block: u8,
    /// Probes that were used, and that were not, since the block size was chosen.
    used: u8,
    wasted: u8,
    /// Misses since the last trial of two pages.
    misses: u8,
}

/// The block sizes of all regions.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FaultAround {
    regions: [Region; REGIONS],
    /// Number of probes chosen so far.
    probes: usize,
}

impl Default for FaultAround {
    fn default() -> Self {
        let region = Region { block: 1, used: 0, wasted: 0, misses: 0 };
        Self { regions: [region; REGIONS], probes: 0 }
    }
}

fn region_index(page: usize) -> usize {
    page / REGION % REGIONS
}

impl FaultAround {
    /// Records a miss of the page at address `page`. Returns the block to read; it has one page if no `is_room` for the
    /// pages of a larger one, which must not make any thread wait for frames.
    pub fn record_miss(&mut self, page: usize, is_room: impl FnOnce(usize) -> bool) -> Block {
        let region = &mut self.regions[region_index(page)];
        let pages = if region.block > 1 {
            region.block.into()
        } else {
            region.misses = (region.misses + 1) % TRIAL_EVERY;
            if region.misses == 0 { MIN_BLOCK.into() } else { 1 }
        };
        Block::around(page, if pages > 1 && is_room(pages) { pages } else { 1 })
    }

    /// The index of the probe among `pages` neighbours of a missed page, if there are any; successive calls go through
    /// all of them.
    pub fn choose_probe(&mut self, pages: usize) -> Option<usize> {
        let number = self.probes;
        let index = number.checked_rem(pages)?;
        self.probes = number.wrapping_add(1);
        Some(index)
    }

    /// Records that a probe was used, or that it left the victim buffer unused.
    pub fn probe_ended(&mut self, page: usize, used: bool) {
        let region = &mut self.regions[region_index(page)];
        if used {
            region.used += 1;
        } else {
            region.wasted += 1;
        }
        if region.used + region.wasted == PROBES_PER_ROUND {
            region.block = match region.used {
                DOUBLE_FROM.. => (region.block * 2).min(MAX_BLOCK),
                SAME_FROM.. => region.block.max(MIN_BLOCK),
                _ => (region.block / 2).max(1),
            };
            (region.used, region.wasted) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    /// Block sizes at `misses` misses of one region, where `used` says whether the probe of each block is used.
    fn sizes(
        fault_around: &mut FaultAround,
        misses: usize,
        mut used: impl FnMut(usize) -> bool,
    ) -> Vec<usize> {
        let at = 7 * REGION;
        (0..misses)
            .map(|n| {
                let block = fault_around.record_miss(at, |_| true).pages;
                if block > 1 {
                    fault_around.probe_ended(at, used(n));
                }
                block
            })
            .collect()
    }

    #[test]
    fn blocks_grow_where_neighbours_are_used_and_shrink_where_they_are_not() {
        let mut fault_around = FaultAround::default();
        let misses = usize::from(TRIAL_EVERY) * usize::from(PROBES_PER_ROUND);
        let tries = sizes(&mut fault_around, misses, |_| true);
        assert_eq!(tries.iter().filter(|block| **block == 2).count(), usize::from(PROBES_PER_ROUND));
        assert_eq!(tries.iter().max(), Some(&2));
        assert_eq!(sizes(&mut fault_around, 100, |_| true).last(), Some(&8));
        let elsewhere = fault_around.record_miss(8 * REGION, |_| true);
        assert_eq!(elsewhere.pages, 1, "regions learn by themselves");
        // Half of the probes being used keeps the size.
        assert!(sizes(&mut fault_around, 500, |n| n % 2 == 0).iter().all(|block| *block == 8));
        assert_eq!(sizes(&mut fault_around, 100, |_| false).last(), Some(&1));
    }

    #[test]
    fn random_misses_read_little_more_than_themselves() {
        let all: usize = sizes(&mut FaultAround::default(), 32_000, |n| n % 100 == 0).iter().sum();
        assert!(all <= 33_000, "{all} pages");
    }

    #[test]
    fn every_page_of_a_block_is_a_probe_in_turn() {
        let mut fault_around = FaultAround::default();
        assert_eq!(fault_around.choose_probe(0), None);
        let mut probes: Vec<_> = (0..7).map(|_| fault_around.choose_probe(7).unwrap()).collect();
        probes.sort_unstable();
        assert_eq!(probes, [0, 1, 2, 3, 4, 5, 6]);
    }

    proptest! {
        #[test]
        fn a_block_is_aligned_and_contains_the_page(page in 0usize..1 << 36, power in 0u32..4) {
            let page = page * PAGE;
            let block = Block::around(page, 1 << power);
            prop_assert!(block.first.is_multiple_of(block.pages * PAGE));
            prop_assert!(block.first <= page && page <= block.last());
            let mut pages: Vec<usize> = block.neighbours(page).chain([page]).collect();
            pages.sort_unstable();
            prop_assert!(pages.iter().copied().eq((block.first..=block.last()).step_by(PAGE)));
        }

        /// Compares the regions with a list of all outcomes of each.
        #[test]
        fn each_region_follows_the_rounds_of_its_own_probes(
            steps in proptest::collection::vec((0usize..4, any::<bool>(), any::<bool>()), 0..2000),
            share in 0usize..4,
        ) {
            let mut fault_around = FaultAround::default();
            let mut model: [(Vec<bool>, usize); 4] = Default::default();
            for (region, used, room) in steps {
                let used = used || region < share;
                let (outcomes, misses) = &mut model[region];
                let mut block = 1;
                for round in outcomes.chunks_exact(16) {
                    block = match round.iter().filter(|used| **used).count() {
                        10.. => (block * 2).min(8),
                        7.. => block.max(2),
                        _ => (block / 2).max(1),
                    };
                }
                if block == 1 {
                    *misses += 1;
                    block = if misses.is_multiple_of(32) { 2 } else { 1 };
                }
                // Address ranges that lie 64 regions apart share one.
                let page = (region + 64 * usize::from(used)) * REGION + 5 * PAGE;
                let found = fault_around.record_miss(page, |pages| {
                    assert_eq!(pages, block);
                    room
                });
                prop_assert_eq!(found, Block::around(page, if room { block } else { 1 }));
                fault_around.probe_ended(page, used);
                outcomes.push(used);
            }
        }
    }
}
