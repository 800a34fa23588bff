//! The data that fill a drive before the run ([`SsdOptions::writes_assume_written`]), without an entry for
//! each page.
//!
//! 1. In each plane, as many blocks as the plane's logical pages need are taken from the free ones. They
//!    hold the pages that the run has not written. Which page is where is not known, and does not matter:
//!    a read of such a page reads one of these blocks.
//! 2. When the host has written as many of these pages as a block holds, one of the blocks is erased and
//!    free, as if those pages had been together. A real drive must first move the pages that are still
//!    live in the blocks that it collects, so the write amplification of this model is a lower bound
//!    until the initial data have been rewritten.

use super::options::{Precondition, SsdOptions};
use super::parallel::ParallelSsd;
use crate::error::SimError;
use crate::flash_array::blocks::PageAddress;

/// The blocks of the initial data, and the rewritten pages that no block was erased for, of each plane.
#[derive(Debug, Clone, Default)]
pub(super) struct InitialData {
    blocks: Vec<Vec<u32>>,
    rewritten: Vec<u32>,
}

impl SsdOptions {
    /// True if the drive begins full, with data of which no page is recorded.
    pub(super) fn begins_full(&self) -> bool {
        self.writes_assume_written && self.precondition == Precondition::Empty
    }
}

impl ParallelSsd {
    /// Takes the blocks of the initial data. Leaves each plane the free blocks that reclamation needs.
    pub(super) fn hold_initial_data(&mut self) {
        let planes = self.order.len() as u64;
        let pages = u64::from(self.planes.pages);
        let wanted = self.logical_pages().div_ceil(planes).div_ceil(pages);
        let spare = self.reclaim_below.max(self.write_reserve) + 1;
        self.initial = InitialData {
            blocks: (0..planes as u32)
                .map(|plane| {
                    let most = u64::from(self.planes.free(plane).saturating_sub(spare)).min(wanted);
                    (0..most).filter_map(|_| self.planes.take_block(plane)).collect()
                })
                .collect(),
            rewritten: vec![0; planes as usize],
        };
    }

    /// An address of a page that the run has not written; `None` if the drive did not begin full or all of
    /// the plane's initial data have been rewritten.
    pub(super) fn initial_address(&self, logical: u32) -> Option<PageAddress> {
        let plane = self.plane_of_page(logical);
        let blocks = self.initial.blocks.get(plane as usize)?;
        let block = *blocks.get(logical as usize % blocks.len().max(1))?;
        Some(self.planes.address(block * self.planes.pages + logical % self.planes.pages))
    }

    /// Records the first write of a page that was initial data.
    pub(super) fn rewrote_initial_page(&mut self, plane: u32) -> Result<(), SimError> {
        let Some(rewritten) = self.initial.rewritten.get_mut(plane as usize) else { return Ok(()) };
        *rewritten += 1;
        if *rewritten < self.planes.pages {
            return Ok(());
        }
        *rewritten = 0;
        if let Some(block) = self.initial.blocks[plane as usize].pop() {
            self.planes.free_block(block)?;
            self.counts.erases += 1;
            self.note_urgency(plane);
        }
        Ok(())
    }
}
