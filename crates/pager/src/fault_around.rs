//! Fault-around with an adaptive block size: a missed page is read together with its neighbours, where those have been
//! used recently.
//!
//! Some programs keep data that they use together at neighbouring addresses but visit the groups in no order; they miss
//! pages one by one, and [`crate::readahead`] detects no stream. So each region of memory has a block size: all pages
//! of the aligned block around a missed page are read with it. One page of the block, the probe, is kept in the victim
//! buffer, where a fault shows whether it is used before it leaves the buffer. The block size doubles where most probes
//! are used and halves where few are. Where it is one page, one miss in many tries a block of two.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::PAGE;
use deepram_linux::lock::lock;

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

#[derive(Debug, Clone, Copy)]
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
#[derive(Debug)]
pub(super) struct FaultAround {
    regions: Mutex<[Region; REGIONS]>,
    next: AtomicUsize,
}

impl Default for FaultAround {
    fn default() -> Self {
        let region = Region { block: 1, used: 0, wasted: 0, misses: 0 };
        Self { regions: Mutex::new([region; REGIONS]), next: AtomicUsize::new(0) }
    }
}

fn region_index(page: usize) -> usize {
    page / REGION % REGIONS
}

impl FaultAround {
    /// Returns the fault-around block size, in pages, for a fault on `page`.
    pub(super) fn block_pages(&self, page: usize) -> usize {
        let region = &mut lock(&self.regions)[region_index(page)];
        if region.block > 1 {
            return region.block.into();
        }
        region.misses = (region.misses + 1) % TRIAL_EVERY;
        if region.misses == 0 { 2 } else { 1 }
    }

    /// Returns the index of the probe among `pages` neighbours; successive calls go through all of them.
    pub(super) fn probe_index(&self, pages: usize) -> usize {
        self.next.fetch_add(1, Relaxed) % pages
    }

    /// Records that a probe was used, or that it left the victim buffer unused.
    pub(super) fn probe_ended(&self, page: usize, used: bool) {
        let region = &mut lock(&self.regions)[region_index(page)];
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

/// Start address of the aligned block of `block` pages that contains `page`.
pub(super) fn block_start(page: usize, block: usize) -> usize {
    page / (block * PAGE) * (block * PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Block sizes at `misses` misses of one region, where `used` says whether the probe of each block is used.
    fn sizes(fault_around: &FaultAround, misses: usize, mut used: impl FnMut(usize) -> bool) -> Vec<usize> {
        let at = 7 * REGION;
        (0..misses)
            .map(|n| {
                let block = fault_around.block_pages(at);
                if block > 1 {
                    fault_around.probe_ended(at, used(n));
                }
                block
            })
            .collect()
    }

    #[test]
    fn blocks_grow_where_neighbours_are_used_and_shrink_where_they_are_not() {
        let fault_around = FaultAround::default();
        let tries = sizes(&fault_around, usize::from(TRIAL_EVERY) * usize::from(PROBES_PER_ROUND), |_| true);
        assert_eq!(tries.iter().filter(|block| **block == 2).count(), usize::from(PROBES_PER_ROUND));
        assert_eq!(tries.iter().max(), Some(&2));
        assert_eq!(sizes(&fault_around, 100, |_| true).last(), Some(&8));
        assert_eq!(fault_around.block_pages(8 * REGION), 1, "regions learn by themselves");
        // Half of the probes being used keeps the size.
        assert!(sizes(&fault_around, 500, |n| n % 2 == 0).iter().all(|block| *block == 8));
        assert_eq!(sizes(&fault_around, 100, |_| false).last(), Some(&1));
    }

    #[test]
    fn random_misses_read_little_more_than_themselves() {
        let fault_around = FaultAround::default();
        let all: usize = sizes(&fault_around, 32_000, |n| n % 100 == 0).iter().sum();
        assert!(all <= 33_000, "{all} pages");
    }

    #[test]
    fn every_page_of_a_block_is_a_probe_in_turn() {
        let fault_around = FaultAround::default();
        let mut probes: Vec<usize> = (0..7).map(|_| fault_around.probe_index(7)).collect();
        probes.sort_unstable();
        assert_eq!(probes, [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(
            (block_start(13 * PAGE, 8), block_start(13 * PAGE, 2), block_start(16 * PAGE, 8)),
            (8 * PAGE, 12 * PAGE, 16 * PAGE)
        );
    }
}
