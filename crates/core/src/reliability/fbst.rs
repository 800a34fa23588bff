//! The flash block status table (FBST): for each erase block its wear, its pages in use, its region and
//! its place in the order of use (flash disk cache, section 3.1).
//!
//! States, wear and free blocks are those of [`Blocks`]. A block's *dead* pages are those that were
//! programmed since its erase and hold no data.

use alloc::vec;
use alloc::vec::Vec;

use super::WearWeights;
use crate::cache::KeyLists;
use crate::ftl::{BlockState, Blocks};
use crate::units::BlockId;

/// The region of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Region {
    /// The read cache; all of the flash if it is not split.
    Read = 0,
    /// The write cache.
    Write = 1,
}

#[derive(Debug, Clone, Copy, Default)]
struct BlockStatus {
    /// Pages programmed since the last erase.
    programmed: u16,
    dirty: u16,
    /// Single-level slots.
    single: u16,
    /// Sum of the strengths of all pages above the first strength.
    added_strength: u32,
}

/// The table.
#[derive(Debug, Clone)]
pub struct BlockStatusTable {
    blocks: Blocks,
    status: Vec<BlockStatus>,
    /// Blocks in use, a list for each region in the order of use.
    recency: KeyLists<u32>,
    retired: u32,
    clock: u64,
}

impl BlockStatusTable {
    /// `blocks` fresh blocks of `pages` pages each.
    #[must_use]
    pub fn new(blocks: u32, pages: u16) -> Self {
        Self {
            blocks: Blocks::new(blocks, pages).without_quarantine(),
            status: vec![BlockStatus::default(); blocks as usize],
            recency: KeyLists::new(blocks as usize),
            retired: 0,
            clock: 0,
        }
    }

    /// Free blocks.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.blocks.free()
    }

    /// Blocks that were retired.
    #[must_use]
    pub fn retired(&self) -> u32 {
        self.retired
    }

    /// Blocks in service.
    #[must_use]
    pub fn in_service(&self) -> u32 {
        self.blocks.len() - self.retired
    }

    /// Blocks of a region that hold pages.
    #[must_use]
    pub fn in_region(&self, region: Region) -> u32 {
        self.recency.len(region as u32) as u32
    }

    /// The region of a block that is in use.
    #[must_use]
    pub fn region(&self, block: u32) -> Option<Region> {
        let slot = self.recency.find(block)?;
        Some(if self.recency.list(slot) == Region::Read as u32 { Region::Read } else { Region::Write })
    }

    /// Program/erase cycles of a block.
    #[must_use]
    #[inline]
    pub fn cycles(&self, block: u32) -> u32 {
        self.blocks.info(BlockId(block)).uses
    }

    /// The state of a block.
    #[must_use]
    pub fn state(&self, block: u32) -> BlockState {
        self.blocks.info(BlockId(block)).state
    }

    /// Pages of a block that hold data.
    #[must_use]
    pub fn live(&self, block: u32) -> u16 {
        self.blocks.info(BlockId(block)).live
    }

    /// Pages of a block that were programmed since its erase.
    #[must_use]
    pub fn programmed(&self, block: u32) -> u16 {
        self.status[block as usize].programmed
    }

    /// Programmed pages of a block that hold no data.
    #[must_use]
    pub fn dead(&self, block: u32) -> u16 {
        self.status[block as usize].programmed - self.live(block)
    }

    /// Dirty pages of a block.
    #[must_use]
    pub fn dirty(&self, block: u32) -> u16 {
        self.status[block as usize].dirty
    }

    /// The wear of a block: erases, strength above the first, and single-level slots, weighted.
    #[must_use]
    pub fn wear(&self, block: u32, weights: WearWeights) -> f64 {
        let status = &self.status[block as usize];
        f64::from(self.cycles(block))
            + weights.strength * f64::from(status.added_strength)
            + weights.single * f64::from(status.single)
    }

    /// Opens the least worn free block for a region, as its newest one.
    pub fn open(&mut self, region: Region) -> Option<u32> {
        self.clock += 1;
        let block = self.blocks.open(region as u8, self.clock)?.0;
        self.recency.push(region as u32, block);
        Some(block)
    }

    /// Opens a given free block for a region. Returns false if it is not free.
    pub fn open_at(&mut self, block: u32, region: Region) -> bool {
        self.clock += 1;
        let opened = self.blocks.open_at(BlockId(block), region as u8, self.clock).is_ok();
        if opened {
            self.recency.push(region as u32, block);
        }
        opened
    }

    /// The next page of an open block that was not handed out, for data or to be left out. `None` if the
    /// block is full.
    pub fn take(&mut self, block: u32) -> Option<u16> {
        let index = self.blocks.take(BlockId(block))?;
        self.change_live(block, false);
        Some(index)
    }

    fn change_live(&mut self, block: u32, more: bool) {
        let block = BlockId(block);
        // The caller changes the status of a page and of its block together, so that counts never leave
        // their range.
        let _in_range = if more { self.blocks.add_live(block, 1) } else { self.blocks.sub_live(block, 1) };
    }

    /// Data were programmed into a page of a block.
    pub fn programmed_page(&mut self, block: u32, dirty: bool) {
        self.change_live(block, true);
        let status = &mut self.status[block as usize];
        status.programmed += 1;
        status.dirty += u16::from(dirty);
    }

    /// A page of a block no longer holds data.
    pub fn emptied_page(&mut self, block: u32, dirty: bool) {
        self.change_live(block, false);
        self.status[block as usize].dirty -= u16::from(dirty);
    }

    /// A dirty page of a block became clean.
    pub fn cleaned_page(&mut self, block: u32) {
        self.status[block as usize].dirty -= 1;
    }

    /// The strength of a page of a block grew by `added`.
    pub fn add_strength(&mut self, block: u32, added: u8) {
        self.status[block as usize].added_strength += u32::from(added);
    }

    /// The number of single-level slots of a block changed.
    pub fn change_single(&mut self, block: u32, by: i16) {
        let single = &mut self.status[block as usize].single;
        *single = single.saturating_add_signed(by);
    }

    /// Closes an open block.
    pub fn close(&mut self, block: u32) {
        if matches!(self.state(block), BlockState::Open(_)) {
            let _is_open = self.blocks.close(BlockId(block));
        }
    }

    /// Erases a block without data: it is free. Returns false if it holds data.
    pub fn erase(&mut self, block: u32) -> bool {
        self.close(block);
        let erased = self.blocks.erase(BlockId(block)).is_ok();
        if erased {
            self.status[block as usize].programmed = 0;
            self.forget(block);
        }
        erased
    }

    /// Takes a block without data out of service. Returns false if it holds data.
    pub fn retire(&mut self, block: u32) -> bool {
        let before = self.state(block);
        let retired = self.blocks.retire(BlockId(block)).is_ok();
        if retired && before != BlockState::Retired {
            self.retired += 1;
            self.status[block as usize].programmed = 0;
            self.forget(block);
        }
        retired
    }

    fn forget(&mut self, block: u32) {
        if let Some(slot) = self.recency.find(block) {
            self.recency.remove(slot);
        }
    }

    /// A page of a block was used: the block becomes the newest of its region.
    #[inline]
    pub fn touch(&mut self, block: u32) {
        if let Some(slot) = self.recency.find(block) {
            self.recency.move_to_newest(slot, self.recency.list(slot));
        }
    }

    /// The blocks of a region from the least to the most recently used.
    pub fn by_age(&self, region: Region) -> impl Iterator<Item = u32> + '_ {
        let list = region as u32;
        let mut slot = self.recency.oldest(list);
        core::iter::from_fn(move || {
            let at = slot?;
            slot = self.recency.newer(at, list);
            Some(self.recency.key(at))
        })
    }

    /// The candidates of reclamation in a region: closed blocks with at least `least` dead pages, by
    /// number, with their dead pages.
    pub fn candidates(&self, region: Region, least: u16) -> impl Iterator<Item = (u16, u32)> + '_ {
        let list = region as u32;
        (0..self.blocks.len()).filter_map(move |block| {
            let dead = self.dead(block);
            let wanted = dead >= least.max(1)
                && self.state(block) == BlockState::Closed
                && self.recency.find(block).is_some_and(|slot| self.recency.list(slot) == list);
            wanted.then_some((dead, block))
        })
    }

    /// The closed block with the least wear, other than `but`; of equally worn blocks the lowest.
    #[must_use]
    pub fn least_worn(&self, but: u32, weights: WearWeights) -> Option<(f64, u32)> {
        let closed = (0..self.blocks.len())
            .filter(|block| *block != but && self.state(*block) == BlockState::Closed)
            .map(|block| (self.wear(block, weights), block));
        closed.min_by(|one, other| one.0.total_cmp(&other.0))
    }

    /// Program/erase cycles of each block.
    pub fn all_cycles(&self) -> impl Iterator<Item = u32> + '_ {
        self.blocks.infos().iter().map(|info| info.uses)
    }

    /// Memory of the table, bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.blocks.memory_bytes()
            + self.recency.memory_bytes()
            + self.status.capacity() * size_of::<BlockStatus>()
    }
}
