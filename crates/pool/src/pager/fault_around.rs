//! How many pages are read with one that is missed: its neighbours, where those have been used lately.
//!
//! Programs that keep what they use together in the same place, but go to no place in order, miss pages one by one that
//! [`crate::ahead`] sees no line in. So every region of memory has a size of block: the pages of the aligned block that a missed
//! one lies in come with it. One of them, the probe, is kept in the waiting room, where it is seen whether it is used before its time
//! is over. Blocks double where most probes are, are halved where few are, and where they are down to a page, one miss in many is a
//! try with two.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::PAGE;
use crate::lock::lock;

/// Bytes of memory that learn together.
const REGION: usize = 16 << 20;
/// Regions that are told apart; others share.
const REGIONS: usize = 64;
/// Pages of the largest block.
const MOST: u8 = 8;
/// Pages of the smallest one.
const LEAST: u8 = 2;
/// Probes after whose end the size is chosen anew.
const ROUND: u8 = 16;
/// Of these, used ones from which on blocks double, or else stay as they are.
const DOUBLE: u8 = 10;
const STAY: u8 = 7;
/// One miss in so many is tried with two pages, where blocks are of one.
const TRY: u8 = 32;

#[derive(Debug, Clone, Copy)]
struct Region {
    /// Pages of a block, a power of two.
    block: u8,
    /// Probes that were used, and that were not, since it was chosen.
    used: u8,
    wasted: u8,
    /// Since the last try.
    misses: u8,
}

/// What is known of all regions.
#[derive(Debug)]
pub(super) struct Around {
    regions: Mutex<[Region; REGIONS]>,
    next: AtomicUsize,
}

impl Default for Around {
    fn default() -> Self {
        let region = Region { block: 1, used: 0, wasted: 0, misses: 0 };
        Self { regions: Mutex::new([region; REGIONS]), next: AtomicUsize::new(0) }
    }
}

fn number(page: usize) -> usize {
    page / REGION % REGIONS
}

impl Around {
    /// A page is missed: how many pages the aligned block is of that is to be there.
    pub(super) fn block(&self, page: usize) -> usize {
        let region = &mut lock(&self.regions)[number(page)];
        if region.block > 1 {
            return region.block.into();
        }
        region.misses = (region.misses + 1) % TRY;
        if region.misses == 0 { 2 } else { 1 }
    }

    /// Which of so many pages of a block is the probe.
    pub(super) fn probe(&self, pages: usize) -> usize {
        self.next.fetch_add(1, Relaxed) % pages
    }

    /// The time of this probe is over: it was used, or not.
    pub(super) fn ended(&self, page: usize, used: bool) {
        let region = &mut lock(&self.regions)[number(page)];
        if used {
            region.used += 1;
        } else {
            region.wasted += 1;
        }
        if region.used + region.wasted == ROUND {
            region.block = match region.used {
                DOUBLE.. => (region.block * 2).min(MOST),
                STAY.. => region.block.max(LEAST),
                _ => (region.block / 2).max(1),
            };
            (region.used, region.wasted) = (0, 0);
        }
    }
}

/// The aligned block of so many pages that the page lies in: its start.
pub(super) fn start(page: usize, block: usize) -> usize {
    page / (block * PAGE) * (block * PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes of blocks at so many misses of a region, where the probe of every block is used or not.
    fn sizes(around: &Around, misses: usize, mut used: impl FnMut(usize) -> bool) -> Vec<usize> {
        let at = 7 * REGION;
        (0..misses)
            .map(|n| {
                let block = around.block(at);
                if block > 1 {
                    around.ended(at, used(n));
                }
                block
            })
            .collect()
    }

    #[test]
    fn blocks_grow_where_neighbours_are_used_and_shrink_where_they_are_not() {
        let around = Around::default();
        let tries = sizes(&around, usize::from(TRY) * usize::from(ROUND), |_| true);
        assert_eq!(tries.iter().filter(|block| **block == 2).count(), usize::from(ROUND));
        assert_eq!(tries.iter().max(), Some(&2));
        assert_eq!(sizes(&around, 100, |_| true).last(), Some(&8));
        assert_eq!(around.block(8 * REGION), 1, "regions learn by themselves");
        // Half of them is as it should be.
        assert!(sizes(&around, 500, |n| n % 2 == 0).iter().all(|block| *block == 8));
        assert_eq!(sizes(&around, 100, |_| false).last(), Some(&1));
    }

    #[test]
    fn random_misses_read_little_more_than_themselves() {
        let around = Around::default();
        let all: usize = sizes(&around, 32_000, |n| n % 100 == 0).iter().sum();
        assert!(all <= 33_000, "{all} pages");
    }

    #[test]
    fn every_page_of_a_block_is_a_probe_in_turn() {
        let around = Around::default();
        let mut probes: Vec<usize> = (0..7).map(|_| around.probe(7)).collect();
        probes.sort_unstable();
        assert_eq!(probes, [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(
            (start(13 * PAGE, 8), start(13 * PAGE, 2), start(16 * PAGE, 8)),
            (8 * PAGE, 12 * PAGE, 16 * PAGE)
        );
    }
}
