//! Fault-around with an adaptive block size: the neighbours of a page that a fault brings in come with it, where such
//! neighbours have been used recently (ADR 25, ADR 52).
//!
//! Some programs keep data that they use together at neighbouring addresses but visit the groups in no order; they miss
//! pages one by one, and [`super::readahead`] detects no stream. So each region of memory has a block size. All pages of
//! the aligned block around a missed page are read with it, and all pages of the block around a page that comes back from
//! the victim buffer come back with it. One page of the block, the probe, is kept in the victim buffer, where a fault
//! shows whether it is used before it leaves the buffer. The block size doubles where most probes are used and halves
//! where few are. Where it is one page, one fault in many tries a block of two. Probes can stay in the buffer for long, so
//! a size that none has confirmed is that of a few blocks only.
//!
//! Misses and second chances have block sizes of their own: pages in the victim buffer left memory together a short time
//! ago, and one that comes back without being used costs no read.

use alloc::vec::Vec;

use super::PAGE;

/// Bytes of a region, whose pages share one block size.
const REGION: usize = 16 << 20;
/// Number of regions that are distinguished; other addresses share them.
const REGIONS: usize = 64;
/// Pages of the smallest block above one page.
const MIN_BLOCK: u8 = 2;
/// Probes after which the block size is chosen anew.
const PROBES_PER_ROUND: u8 = 16;
/// Of these, the number of used probes from which on the block size doubles, or stays the same.
const DOUBLE_FROM: u8 = 10;
const SAME_FROM: u8 = 7;
/// Where blocks have one page, one fault in this many tries two.
const TRIAL_EVERY: u8 = 32;

/// The aligned block of pages that come with the page of a fault, which is one of them.
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
    /// Probes chosen since then. Their results come later.
    chosen: u8,
    /// Whether probes have shown that neighbours are used. Until then the blocks of one round of probes are larger than a page.
    confirmed: bool,
    /// Faults since the last trial.
    faults: u8,
}

/// The block sizes of all regions, for one kind of faults.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FaultAround {
    regions: [Region; REGIONS],
    /// Number of probes chosen so far.
    probes: usize,
    /// Pages of the largest block.
    max_block: u8,
    /// While its size is not confirmed, a region with more probes than this since the last round brings in single pages.
    unconfirmed: u8,
}

fn region_index(page: usize) -> usize {
    page / REGION % REGIONS
}

impl FaultAround {
    /// The block sizes of a swap file's pages. Probes stay in the victim buffer for long, so few wait at first.
    #[must_use]
    pub fn of_swap() -> Self {
        Self::new(8, 32, PROBES_PER_ROUND - 1)
    }

    /// The block sizes of a pool's segments, which keeps few probes ([`super::Triggers`]).
    #[must_use]
    pub fn of_pool() -> Self {
        Self::new(1, 8, u8::MAX)
    }

    fn new(block: u8, max_block: u8, unconfirmed: u8) -> Self {
        let region = Region { block, used: 0, wasted: 0, chosen: 0, confirmed: false, faults: 0 };
        Self { regions: [region; REGIONS], probes: 0, max_block, unconfirmed }
    }

    /// Records a fault on the page at address `page`. Returns the block to bring in. It has one page unless a block of so
    /// many pages `may_come`: a larger block must not make any thread wait for frames, and the pages of a stream are left
    /// to readahead ([`super::Streams::is_expected`]).
    pub fn record_fault(&mut self, page: usize, may_come: impl FnOnce(usize) -> bool) -> Block {
        let region = &mut self.regions[region_index(page)];
        let known = region.confirmed || region.chosen <= self.unconfirmed;
        let pages = if region.block > 1 && known {
            region.block.into()
        } else {
            region.faults = (region.faults + 1) % TRIAL_EVERY;
            if region.faults == 0 { MIN_BLOCK.into() } else { 1 }
        };
        Block::around(page, if pages > 1 && may_come(pages) { pages } else { 1 })
    }

    /// The index of the probe among the `neighbours` of the page at address `page`, if there are any; successive calls go
    /// through all of them.
    pub fn choose_probe(&mut self, page: usize, neighbours: usize) -> Option<usize> {
        let number = self.probes;
        let index = number.checked_rem(neighbours)?;
        self.probes = number.wrapping_add(1);
        let region = &mut self.regions[region_index(page)];
        region.chosen = region.chosen.saturating_add(1);
        Some(index)
    }

    /// Records that the page at address `page` comes back from the victim buffer. Returns the pages that come back with it, and
    /// the probe, which stays there, both among those of its block that `is_buffered`.
    pub fn record_return(
        &mut self,
        page: usize,
        is_room: impl FnOnce(usize) -> bool,
        is_buffered: impl FnMut(&usize) -> bool,
    ) -> (Vec<usize>, Option<usize>) {
        let block = self.record_fault(page, is_room);
        if block.pages == 1 {
            return (Vec::new(), None);
        }
        let mut pages: Vec<usize> = block.neighbours(page).filter(is_buffered).collect();
        let probe = self.choose_probe(page, pages.len()).map(|index| pages.remove(index));
        (pages, probe)
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
                DOUBLE_FROM.. => (region.block * 2).min(self.max_block),
                SAME_FROM.. => region.block.max(MIN_BLOCK),
                _ => (region.block / 2).max(1),
            };
            region.confirmed = region.used >= SAME_FROM;
            (region.used, region.wasted, region.chosen) = (0, 0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
                let block = fault_around.record_fault(at, |_| true).pages;
                if fault_around.choose_probe(at, block - 1).is_some() {
                    fault_around.probe_ended(at, used(n));
                }
                block
            })
            .collect()
    }

    #[test]
    fn blocks_grow_where_neighbours_are_used_and_shrink_where_they_are_not() {
        let mut fault_around = FaultAround::of_swap();
        let (round, trial) = (usize::from(PROBES_PER_ROUND), usize::from(TRIAL_EVERY));
        let shrinking = sizes(&mut fault_around, 3 * round, |_| false);
        assert_eq!(shrinking, [[8; 16], [4; 16], [2; 16]].concat());
        let tries = sizes(&mut fault_around, trial * round, |_| true);
        assert_eq!(tries.iter().filter(|block| **block == 2).count(), round);
        assert_eq!(tries.iter().max(), Some(&2));
        let growing = sizes(&mut fault_around, 5 * round, |_| true);
        assert_eq!(growing, [[2; 16], [4; 16], [8; 16], [16; 16], [32; 16]].concat());
        let elsewhere = fault_around.record_fault(8 * REGION, |_| true);
        assert_eq!(elsewhere.pages, 8, "regions learn by themselves");
        // Half of the probes being used keeps the size.
        assert!(sizes(&mut fault_around, 500, |n| n % 2 == 0).iter().all(|block| *block == 32));
        assert_eq!(sizes(&mut fault_around, 5 * round + 1, |_| false).last(), Some(&1));
    }

    #[test]
    fn few_blocks_wait_for_their_probes_until_the_size_is_confirmed() {
        let mut fault_around = FaultAround::of_swap();
        let round = usize::from(PROBES_PER_ROUND);
        let few = round + 64 / usize::from(TRIAL_EVERY);
        let mut blocks_after = |probes_used: Option<bool>| {
            let ended = probes_used.into_iter().flat_map(|used| core::iter::repeat_n(used, round));
            ended.for_each(|used| fault_around.probe_ended(0, used));
            let mut larger = |_: &usize| {
                let block = fault_around.record_fault(0, |_| true);
                fault_around.choose_probe(0, block.pages - 1).is_some()
            };
            (0..round + 64).filter(|fault| larger(fault)).count()
        };
        assert_eq!(blocks_after(None), few);
        assert_eq!(blocks_after(Some(true)), round + 64, "confirmed");
        assert_eq!(blocks_after(Some(false)), few);
    }

    #[test]
    fn pages_of_the_block_return_but_for_the_probe_and_those_elsewhere() {
        let mut around = FaultAround::of_swap();
        let page = |n: usize| 16 * PAGE + n * PAGE;
        let buffered = |at: &usize| *at != page(5);
        for probe in [0, 1, 3, 4, 6, 7, 0] {
            let (pages, left) = around.record_return(page(2), |_| true, buffered);
            let expected: Vec<usize> =
                [0, 1, 3, 4, 6, 7].into_iter().filter(|n| *n != probe).map(page).collect();
            assert_eq!((pages, left), (expected, Some(page(probe))));
        }
        assert_eq!(around.record_return(page(2), |pages| pages < 8, buffered), (Vec::new(), None), "no room");
        assert_eq!(around.record_return(page(2), |_| true, |_| false), (Vec::new(), None));
    }

    #[test]
    fn random_misses_read_little_more_than_themselves() {
        let all: usize = sizes(&mut FaultAround::of_swap(), 32_000, |n| n % 100 == 0).iter().sum();
        assert!(all <= 33_300, "{all} pages");
    }

    #[test]
    fn every_page_of_a_block_is_a_probe_in_turn() {
        let mut fault_around = FaultAround::of_swap();
        assert_eq!(fault_around.choose_probe(0, 0), None);
        let mut probes: Vec<_> = (0..7).map(|_| fault_around.choose_probe(0, 7).unwrap()).collect();
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
            steps in proptest::collection::vec((0usize..4, any::<bool>(), any::<bool>(), 0usize..4), 0..2000),
            share in 0usize..4,
        ) {
            let mut fault_around = FaultAround::of_swap();
            // Outcomes, faults without a larger block, probes chosen since the last round.
            let mut model: [(Vec<bool>, usize, usize); 4] = Default::default();
            for (region, used, room, ended) in steps {
                let used = used || region < share;
                let (outcomes, small, chosen) = &mut model[region];
                let (mut block, mut confirmed) = (8, false);
                for round in outcomes.chunks_exact(16) {
                    let used = round.iter().filter(|used| **used).count();
                    confirmed = used >= 7;
                    block = match used {
                        10.. => (block * 2).min(32),
                        7.. => block.max(2),
                        _ => (block / 2).max(1),
                    };
                }
                if block == 1 || !(confirmed || *chosen < 16) {
                    *small += 1;
                    block = if small.is_multiple_of(32) { 2 } else { 1 };
                }
                // Address ranges that lie 64 regions apart share one.
                let page = (region + 64 * usize::from(used)) * REGION + 5 * PAGE;
                let found = fault_around.record_fault(page, |pages| {
                    assert_eq!(pages, block);
                    room
                });
                prop_assert_eq!(found, Block::around(page, if room { block } else { 1 }));
                *chosen += usize::from(fault_around.choose_probe(page, found.pages - 1).is_some());
                // Results come late, and several at once.
                for _ in 0..ended {
                    fault_around.probe_ended(page, used);
                    outcomes.push(used);
                    if outcomes.len().is_multiple_of(16) {
                        *chosen = 0;
                    }
                }
            }
        }
    }
}
