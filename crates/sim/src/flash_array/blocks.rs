//! The blocks of all planes: core's [`Blocks`] for each plane, and the drive's own state: write
//! frontiers, operations under way in each block, the content of each physical page.
//!
//! ```text
//!          open                all programs over           moved and erased
//!   Free ---------> Open ------------------------> Closed --------------------> Free
//!                                                                 \-- worn out --> Retired
//! ```
//!
//! 1. A plane has up to three frontiers: for host data, for data moved by reclamation, for the mapping.
//! 2. A block is closed, and so may be reclaimed, when its last program is complete. It is erased only
//!    when no page in it is live and no read of it is under way.
//! 3. Block `b` of plane `p` is block `p x blocks + b` of the drive; pages are numbered likewise.

use deepram_core::BlockId;
use deepram_core::ftl::{
    BlockInfo, BlockState, Blocks, BlocksError, CostBenefit, Greedy, GreedyOfRandom, VictimPolicy, any_block,
};
use deepram_media::VictimChoice;

use crate::error::SimError;
use deepram_trace::workload::Rng;

/// No physical page, no logical page, no block.
pub(crate) const NONE: u32 = u32::MAX;

/// The purpose of a write frontier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrontierUse {
    Host = 0,
    Move = 1,
    Mapping = 2,
}

/// A physical page with its block and plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageAddress {
    pub(crate) physical: u32,
    /// The page's block, by the drive's numbering.
    pub(crate) block: u32,
    pub(crate) plane: u32,
}

/// Division by a run-time constant that is mostly a power of two.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Divisor {
    pub(crate) number: u64,
    /// 64 if the number is not a power of two.
    shift: u32,
}

impl Divisor {
    pub(crate) fn new(number: u64) -> Self {
        Self { number, shift: if number.is_power_of_two() { number.trailing_zeros() } else { 64 } }
    }

    #[inline]
    pub(crate) fn of(self, value: u64) -> u64 {
        if self.shift < 64 { value >> self.shift } else { value / self.number }
    }
}

#[derive(Debug, Clone)]
struct Plane {
    blocks: Blocks,
    /// The open block of each frontier; [`NONE`] if no block was free.
    frontiers: [u32; 3],
    /// Blocks being reclaimed.
    reclaiming: u32,
    /// Programs under way.
    programs: u32,
}

/// Operations under way in a block.
#[derive(Debug, Clone, Copy, Default)]
struct BlockActivity {
    programs: u16,
    reads: u16,
}

/// All planes.
#[derive(Debug, Clone)]
pub(crate) struct Planes {
    /// Blocks of a plane.
    pub(crate) blocks: u32,
    /// Pages of a block.
    pub(crate) pages: u32,
    by_blocks: Divisor,
    by_pages: Divisor,
    planes: Vec<Plane>,
    under_way: Vec<BlockActivity>,
    /// The spare area of each physical page: the key that it was last written with, plus one.
    spare_areas: Vec<u32>,
    sequence: u64,
    endurance: u32,
    /// The minimum number of free blocks of any plane since the start.
    lowest: u32,
}

impl Planes {
    pub(crate) fn new(planes: u32, blocks: u32, pages: u32, endurance: u32) -> Self {
        let count = planes as usize * blocks as usize;
        let of_plane = Blocks::new(blocks, pages as u16).without_quarantine();
        let plane = Plane { blocks: of_plane, frontiers: [NONE; 3], reclaiming: 0, programs: 0 };
        Self {
            blocks,
            pages,
            by_blocks: Divisor::new(blocks.into()),
            by_pages: Divisor::new(pages.into()),
            planes: vec![plane; planes as usize],
            under_way: vec![BlockActivity::default(); count],
            spare_areas: vec![0; count * pages as usize],
            sequence: 0,
            endurance,
            lowest: blocks,
        }
    }

    /// Retires a block before its first use: bad from the factory.
    pub(crate) fn retire_fresh(&mut self, block: u32) -> Result<(), SimError> {
        let address = self.address(block * self.pages);
        let plane = &mut self.planes[address.plane as usize];
        plane.blocks.retire(BlockId(block - address.plane * self.blocks)).map_err(block_error)?;
        self.lowest = self.lowest.min(plane.blocks.free());
        Ok(())
    }

    #[inline]
    pub(crate) fn address(&self, physical: u32) -> PageAddress {
        let block = self.by_pages.of(physical.into()) as u32;
        PageAddress { physical, block, plane: self.by_blocks.of(block.into()) as u32 }
    }

    /// Free blocks of a plane.
    #[inline]
    pub(crate) fn free(&self, plane: u32) -> u32 {
        self.planes[plane as usize].blocks.free()
    }

    /// The minimum number of free blocks of any plane since the start.
    #[inline]
    pub(crate) fn lowest(&self) -> u32 {
        self.lowest
    }

    pub(crate) fn reclaiming(&self, plane: u32) -> u32 {
        self.planes[plane as usize].reclaiming
    }

    /// Whether programs of the plane are under way: their blocks can be reclaimed when they have ended.
    pub(crate) fn is_programming(&self, plane: u32) -> bool {
        self.planes[plane as usize].programs > 0
    }

    /// Erases of each block.
    pub(crate) fn erased(&self) -> impl Iterator<Item = u32> + '_ {
        self.planes.iter().flat_map(|plane| plane.blocks.infos().iter().map(erases))
    }

    /// The key that a physical page was last written with; [`NONE`] if the page is erased.
    #[inline]
    pub(crate) fn stored_key(&self, physical: u32) -> u32 {
        self.spare_areas[physical as usize].wrapping_sub(1)
    }

    /// Opens a block of the plane for a frontier, if one is free.
    fn open(&mut self, plane: u32, purpose: FrontierUse) {
        self.sequence += 1;
        let state = &mut self.planes[plane as usize];
        let opened = state.blocks.open(purpose as u8, self.sequence);
        state.frontiers[purpose as usize] = opened.map_or(NONE, |block| block.0);
        self.lowest = self.lowest.min(state.blocks.free());
    }

    /// Takes a free block out of use, for data that are not recorded page by page. Returns its number; `None`
    /// if no block is free.
    pub(crate) fn take_block(&mut self, plane: u32) -> Option<u32> {
        self.sequence += 1;
        let state = &mut self.planes[plane as usize];
        let block = state.blocks.open(FrontierUse::Host as u8, self.sequence)?;
        self.lowest = self.lowest.min(state.blocks.free());
        Some(plane * self.blocks + block.0)
    }

    /// Erases a block of [`Planes::take_block`], which is then free.
    pub(crate) fn free_block(&mut self, block: u32) -> Result<(), SimError> {
        let (blocks, id) = self.blocks_of(self.address(block * self.pages));
        blocks.free_unwritten(id).map_err(block_error)
    }

    /// Opens the first block of each frontier.
    pub(crate) fn open_frontiers(&mut self) {
        for plane in 0..self.planes.len() as u32 {
            for purpose in [FrontierUse::Host, FrontierUse::Move, FrontierUse::Mapping] {
                self.open(plane, purpose);
            }
        }
    }

    /// Allocates the next physical page of a plane's frontier for `key`. Returns the page, and whether
    /// its block is now full (the next block is opened at once); `None` if no block is free. The page's
    /// program counts as under way.
    #[inline]
    pub(crate) fn allocate(
        &mut self,
        plane: u32,
        purpose: FrontierUse,
        key: u32,
    ) -> Option<(PageAddress, bool)> {
        if self.planes[plane as usize].frontiers[purpose as usize] == NONE {
            self.open(plane, purpose);
        }
        let state = &mut self.planes[plane as usize];
        let frontier = state.frontiers[purpose as usize];
        if frontier == NONE {
            return None;
        }
        let page = u32::from(state.blocks.take(BlockId(frontier))?);
        let full = page + 1 == self.pages;
        if full {
            self.open(plane, purpose);
        }
        let block = plane * self.blocks + frontier;
        let physical = block * self.pages + page;
        self.under_way[block as usize].programs += 1;
        self.planes[plane as usize].programs += 1;
        self.spare_areas[physical as usize] = key.wrapping_add(1);
        Some((PageAddress { physical, block, plane }, full))
    }

    /// True if the frontier can allocate a page.
    pub(crate) fn has_room(&self, plane: u32, purpose: FrontierUse) -> bool {
        let state = &self.planes[plane as usize];
        state.blocks.free() > 0 || state.frontiers[purpose as usize] != NONE
    }

    fn blocks_of(&mut self, address: PageAddress) -> (&mut Blocks, BlockId) {
        (
            &mut self.planes[address.plane as usize].blocks,
            BlockId(address.block - address.plane * self.blocks),
        )
    }

    /// Marks a physical page dead.
    #[inline]
    pub(crate) fn invalidate(&mut self, physical: u32) -> Result<(), SimError> {
        let (blocks, block) = self.blocks_of(self.address(physical));
        blocks.sub_live(block, 1).map_err(block_error)
    }

    /// Ends a program of a page, and closes its block after the last one.
    #[inline]
    pub(crate) fn programmed(&mut self, address: PageAddress) -> Result<(), SimError> {
        self.planes[address.plane as usize].programs -= 1;
        let left = &mut self.under_way[address.block as usize].programs;
        *left -= 1;
        if *left > 0 {
            return Ok(());
        }
        let full = self.pages as u16;
        let (blocks, block) = self.blocks_of(address);
        if blocks.info(block).used == full {
            blocks.close(block).map_err(block_error)?;
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn read_started(&mut self, block: u32) {
        self.under_way[block as usize].reads += 1;
    }

    /// Ends a read of a block. Returns true if no other read of the block is under way.
    #[inline]
    pub(crate) fn read_done(&mut self, block: u32) -> bool {
        let reads = &mut self.under_way[block as usize].reads;
        *reads -= 1;
        *reads == 0
    }

    pub(crate) fn is_read(&self, block: u32) -> bool {
        self.under_way[block as usize].reads > 0
    }

    /// Chooses the block of a plane to reclaim, and holds it; `None` if no block would gain free pages.
    pub(crate) fn victim(&mut self, plane: u32, policy: VictimChoice, random: &mut Rng) -> Option<u32> {
        let now = self.sequence;
        let state = &mut self.planes[plane as usize];
        let blocks = &state.blocks;
        let block = match policy {
            // The longest-chain policy needs the versions of a journal; the constructor refuses it.
            VictimChoice::Greedy | VictimChoice::LongestChain => {
                Greedy::default().pick(blocks, now, &mut any_block)
            }
            VictimChoice::GreedyOfRandom => {
                let draw = |below: u32| random.below(u64::from(below)) as u32;
                GreedyOfRandom { draw }.pick(blocks, now, &mut any_block)
            }
            VictimChoice::CostBenefit => CostBenefit.pick(blocks, now, &mut any_block),
        }?;
        self.hold(plane, block);
        Some(plane * self.blocks + block.0)
    }

    /// Chooses the block of a plane to empty for wear levelling, if the wear differs by more than
    /// `delta`, and holds it.
    pub(crate) fn wear_victim(&mut self, plane: u32, delta: u32) -> Option<u32> {
        let block = self.planes[plane as usize].blocks.wear_victim(delta)?;
        self.hold(plane, block);
        Some(plane * self.blocks + block.0)
    }

    fn hold(&mut self, plane: u32, block: BlockId) {
        let state = &mut self.planes[plane as usize];
        state.blocks.pin(block);
        state.reclaiming += 1;
    }

    fn info(&self, block: u32) -> BlockInfo {
        let plane = self.by_blocks.of(block.into()) as u32;
        self.planes[plane as usize].blocks.info(BlockId(block - plane * self.blocks))
    }

    /// Live pages of a block.
    pub(crate) fn live(&self, block: u32) -> u32 {
        self.info(block).live.into()
    }

    /// Erases a block, which is then free, or retired if it is worn out.
    pub(crate) fn erase(&mut self, block: u32) -> Result<(), SimError> {
        let first = block as usize * self.pages as usize;
        self.spare_areas[first..first + self.pages as usize].fill(0);
        let endurance = self.endurance;
        let address = self.address(block * self.pages);
        let (blocks, id) = self.blocks_of(address);
        blocks.erase(id).map_err(block_error)?;
        if erases(&blocks.info(id)) >= endurance {
            blocks.retire(id).map_err(block_error)?;
        }
        self.planes[address.plane as usize].reclaiming -= 1;
        Ok(())
    }

    /// Retired blocks.
    pub(crate) fn retired(&self) -> u64 {
        let infos = self.planes.iter().flat_map(|plane| plane.blocks.infos());
        infos.filter(|info| info.state == BlockState::Retired).count() as u64
    }

    /// Live pages of all blocks.
    pub(crate) fn live_pages(&self) -> u64 {
        self.planes.iter().map(|plane| plane.blocks.live_slots()).sum()
    }

    /// Fills the rest of a frontier's block with dead pages and opens the next block. For
    /// preconditioning, when no program is under way.
    pub(crate) fn fill_with_dead_pages(&mut self, plane: u32, purpose: FrontierUse) -> Result<(), SimError> {
        let full = self.pages as u16;
        let state = &mut self.planes[plane as usize];
        let block = BlockId(state.frontiers[purpose as usize]);
        if block.0 != NONE {
            state.blocks.set_used(block, full).map_err(block_error)?;
            state.blocks.close(block).map_err(block_error)?;
            self.open(plane, purpose);
        }
        Ok(())
    }

    /// True if a block is free: not opened since its last erase.
    pub(crate) fn is_free(&self, block: u32) -> bool {
        self.info(block).state == BlockState::Free
    }

    /// Host memory of the tables, bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.planes.iter().map(|plane| plane.blocks.memory_bytes()).sum::<usize>()
            + self.under_way.capacity() * size_of::<BlockActivity>()
            + self.spare_areas.capacity() * size_of::<u32>()
    }
}

/// Erases of a block: one before each use except the first, and one when it became free again or was
/// retired.
pub(crate) fn erases(info: &BlockInfo) -> u32 {
    if matches!(info.state, BlockState::Free | BlockState::Retired) {
        info.uses
    } else {
        info.uses.saturating_sub(1)
    }
}

/// The error of a block operation that core refuses: the drive violates the block's state machine.
pub(crate) fn block_error(error: BlocksError) -> SimError {
    SimError::Conservation { law: "a block is changed as its state allows", found: error.to_string() }
}
