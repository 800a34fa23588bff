//! The state of every block of flash: allocation in the order of wear, live slots, erasure, and
//! retirement (NVMM, Architecture).
//!
//! ```text
//!          open, open_at            close                release_dead
//!   Free ----------------> Open -------------> Closed ----------------> Free
//!     |                                                (live == 0 only)
//!     |    open_meta                 seal                release_dead
//!     +------------------> Meta -------------> Sealed ----------------> Free
//!
//!   any block without live data -- retire --> Retired
//! ```
//!
//! 1. `live <= used <= slots_per_block`; a free block has `used == live == 0`, a retired one
//!    `live == 0`.
//! 2. A closed or sealed block without live data is *dead*: the current state does not need it, but the
//!    last durable state may. A dead block stays in quarantine until [`Blocks::release_dead`] frees it,
//!    which the caller runs when a newer state is durable. A device that keeps no older state erases
//!    dead blocks one by one ([`Blocks::without_quarantine`]).
//! 3. Opening a block counts as one use of it: one program/erase cycle.
//! 4. Meta and sealed blocks belong to the driver, which counts their live slots and moves their data.
//!    They are never victims.

use alloc::collections::{BTreeMap, BTreeSet, BinaryHeap};
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

pub use super::error::BlocksError;
use crate::units::BlockId;

/// The state of a block; the module draws the transitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum BlockState {
    /// Holds no data; may be opened.
    #[default]
    Free,
    /// Being filled with data of this write stream.
    Open(u8),
    /// Holds data and takes no more.
    Closed,
    /// Holds tables or the log and is still being filled.
    Meta,
    /// Holds tables or the log and is full.
    Sealed,
    /// Worn out and out of service for good.
    Retired,
}

/// One block. The default is a free block that was never used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct BlockInfo {
    /// The state.
    pub state: BlockState,
    /// Number of slots allocated, from the block's start.
    pub used: u16,
    /// Number of slots whose data is still referenced.
    pub live: u16,
    /// Wear: the number of times that the block was opened, each after an erase.
    pub uses: u32,
    /// The caller's clock when the block was opened; 0 for a free block.
    pub sequence: u64,
}

/// All blocks of a volume, or of a plane that allocates its own blocks.
///
/// Opening a block takes O(log blocks), and every change of a live count O(1), because an FTL makes one
/// for each page written. Choosing a victim scans two bytes a block.
#[derive(Debug, Clone)]
pub struct Blocks {
    slots_per_block: u16,
    infos: Vec<BlockInfo>,
    /// For each block its live slots if it may be a victim, else [`NOT_RECLAIMABLE`].
    candidates: Vec<u16>,
    /// True without quarantine: dead blocks may be victims too.
    erase_at_once: bool,
    /// Free blocks by (uses, number), the least worn on top. An entry is stale if its block is not free
    /// or has another number of uses.
    free: BinaryHeap<Reverse<(u32, u32)>>,
    free_count: u32,
    /// Blocks that became dead. An entry is stale if its block was erased or used again since.
    dead: Vec<u32>,
    dead_count: u32,
    live: u64,
    /// Histogram of wear: number of uses, and how many blocks in service have it.
    worn: BTreeMap<u32, u32>,
    bad: BTreeSet<(u32, u16)>,
}

/// In place of a live count: the block must not be a victim.
const NOT_RECLAIMABLE: u16 = u16::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Free,
    Dead,
    Reclaimable,
    Other,
}

impl BlockInfo {
    fn class(&self) -> Class {
        match self.state {
            BlockState::Free => Class::Free,
            BlockState::Closed | BlockState::Sealed if self.live == 0 => Class::Dead,
            BlockState::Closed => Class::Reclaimable,
            BlockState::Open(_) | BlockState::Meta | BlockState::Sealed | BlockState::Retired => Class::Other,
        }
    }
}

impl Blocks {
    /// `blocks` unused blocks of `slots_per_block` slots each.
    #[must_use]
    pub fn new(blocks: u32, slots_per_block: u16) -> Self {
        let infos = vec![BlockInfo::default(); blocks as usize];
        Self::index(slots_per_block, infos)
    }

    /// Restores the blocks from a copy of [`Blocks::infos`]. The caller marks bad slots again with
    /// [`Blocks::mark_bad`].
    ///
    /// # Errors
    /// [`BlocksError::TooMany`]; [`BlocksError::WrongCount`] if `live <= used <= slots` does not hold or
    /// a free block has used slots; [`BlocksError::StillLive`] if a retired block has live slots.
    pub fn restore(slots_per_block: u16, infos: Vec<BlockInfo>) -> Result<Self, BlocksError> {
        if u32::try_from(infos.len()).is_err() {
            return Err(BlocksError::TooMany { blocks: infos.len() });
        }
        for (id, info) in (0..).zip(&infos) {
            let limit = if info.state == BlockState::Free { 0 } else { slots_per_block };
            let block = BlockId(id);
            if info.live > info.used || info.used > limit {
                let (live, used) = (info.live.into(), info.used);
                return Err(BlocksError::WrongCount { block, live, used, limit });
            }
            if info.state == BlockState::Retired && info.live != 0 {
                return Err(BlocksError::StillLive { block, live: info.live });
            }
        }
        Ok(Self::index(slots_per_block, infos))
    }

    fn index(slots_per_block: u16, infos: Vec<BlockInfo>) -> Self {
        let mut blocks = Self {
            slots_per_block,
            candidates: vec![NOT_RECLAIMABLE; infos.len()],
            erase_at_once: false,
            free: BinaryHeap::with_capacity(infos.len()),
            infos,
            free_count: 0,
            dead: Vec::new(),
            dead_count: 0,
            live: 0,
            worn: BTreeMap::new(),
            bad: BTreeSet::new(),
        };
        for id in 0..blocks.len() {
            let info = blocks.infos[id as usize];
            blocks.live += u64::from(info.live);
            blocks.count_use(&info);
            blocks.add_to_lists(id, &info);
        }
        blocks
    }

    /// Turns the quarantine of dead blocks off, for a device that keeps no older state than the current
    /// one: a dead block may be a victim without data to move, and [`Blocks::erase`] erases it.
    #[must_use]
    pub fn without_quarantine(mut self) -> Self {
        self.erase_at_once = true;
        for id in 0..self.infos.len() {
            if self.infos[id].class() == Class::Dead && self.is_candidate(&self.infos[id]) {
                self.candidates[id] = 0;
            }
        }
        self
    }

    fn count_use(&mut self, info: &BlockInfo) {
        if info.state != BlockState::Retired {
            *self.worn.entry(info.uses).or_insert(0) += 1;
        }
    }

    /// Adds a block that is on no list to the lists of its state.
    fn add_to_lists(&mut self, id: u32, info: &BlockInfo) {
        match info.class() {
            Class::Free => {
                self.free_count += 1;
                self.free.push(Reverse((info.uses, id)));
            }
            Class::Dead => {
                self.dead_count += 1;
                self.dead.push(id);
            }
            Class::Reclaimable | Class::Other => {}
        }
        if self.is_candidate(info) {
            self.candidates[id as usize] = info.live;
        }
    }

    /// True if the block may be a victim, unless it is pinned.
    fn is_candidate(&self, info: &BlockInfo) -> bool {
        info.state == BlockState::Closed && (info.live > 0 || self.erase_at_once)
    }

    /// Sets a block's `info` and updates all lists and counts.
    fn replace(&mut self, id: u32, info: BlockInfo) {
        let old = self.infos[id as usize];
        self.infos[id as usize] = info;
        self.live = self.live - u64::from(old.live) + u64::from(info.live);
        if old.uses != info.uses || (old.state == BlockState::Retired) != (info.state == BlockState::Retired)
        {
            if old.state != BlockState::Retired
                && let Some(count) = self.worn.get_mut(&old.uses)
            {
                *count -= 1;
                if *count == 0 {
                    self.worn.remove(&old.uses);
                }
            }
            self.count_use(&info);
        }
        let pinned = self.is_candidate(&old) && self.candidates[id as usize] != old.live;
        let class = old.class();
        if class == info.class() && class != Class::Free {
            if self.is_candidate(&info) && !pinned {
                self.candidates[id as usize] = info.live;
            }
            return;
        }
        match class {
            Class::Free => self.free_count -= 1,
            Class::Dead => self.dead_count -= 1,
            Class::Reclaimable | Class::Other => {}
        }
        self.candidates[id as usize] = NOT_RECLAIMABLE;
        self.add_to_lists(id, &info);
        if pinned && self.is_candidate(&info) {
            self.candidates[id as usize] = NOT_RECLAIMABLE;
        }
    }

    /// Takes the least worn free block off the heap.
    fn least_worn(&mut self) -> Option<u32> {
        while let Some(Reverse((uses, id))) = self.free.pop() {
            let info = &self.infos[id as usize];
            if info.state == BlockState::Free && info.uses == uses {
                return Some(id);
            }
        }
        None
    }

    /// Number of blocks, of any state.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.infos.len() as u32
    }

    /// True if there are no blocks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.infos.is_empty()
    }

    /// Number of slots of a block.
    #[must_use]
    pub fn slots_per_block(&self) -> u16 {
        self.slots_per_block
    }

    /// The block; an empty retired one if the block does not exist.
    #[must_use]
    #[inline]
    pub fn info(&self, block: BlockId) -> BlockInfo {
        let absent = BlockInfo { state: BlockState::Retired, ..BlockInfo::default() };
        self.infos.get(block.0 as usize).copied().unwrap_or(absent)
    }

    /// All blocks, by number.
    #[must_use]
    pub fn infos(&self) -> &[BlockInfo] {
        &self.infos
    }

    /// Opens the least worn free block (of equally worn blocks the lowest) for data of `stream`, at time
    /// `sequence` of the caller's clock; `None` if no block is free.
    pub fn open(&mut self, stream: u8, sequence: u64) -> Option<BlockId> {
        let id = self.least_worn()?;
        self.start(id, BlockState::Open(stream), sequence);
        Some(BlockId(id))
    }

    /// Opens the least worn free block for tables or the log; `None` if no block is free.
    pub fn open_meta(&mut self, sequence: u64) -> Option<BlockId> {
        let id = self.least_worn()?;
        self.start(id, BlockState::Meta, sequence);
        Some(BlockId(id))
    }

    /// Opens the given block, as a replayed log says.
    ///
    /// # Errors
    /// [`BlocksError::NoSuchBlock`]; [`BlocksError::WrongState`] if the block is not free.
    pub fn open_at(&mut self, block: BlockId, stream: u8, sequence: u64) -> Result<(), BlocksError> {
        let info = *self.get(block)?;
        if info.state != BlockState::Free {
            return Err(wrong_state(block, info.state, "Free"));
        }
        self.start(block.0, BlockState::Open(stream), sequence);
        Ok(())
    }

    fn start(&mut self, id: u32, state: BlockState, sequence: u64) {
        let uses = self.infos[id as usize].uses.saturating_add(1);
        self.replace(id, BlockInfo { state, used: 0, live: 0, uses, sequence });
    }

    /// Sets the number of allocated slots of a block being filled.
    ///
    /// # Errors
    /// [`BlocksError::NoSuchBlock`]; [`BlocksError::WrongState`] unless the block is open or meta;
    /// [`BlocksError::WrongCount`] if `used` exceeds the block's slots or is below its live slots.
    pub fn set_used(&mut self, block: BlockId, used: u16) -> Result<(), BlocksError> {
        let limit = self.slots_per_block;
        let info = self.get_mut(block)?;
        if !matches!(info.state, BlockState::Open(_) | BlockState::Meta) {
            return Err(wrong_state(block, info.state, "Open or Meta"));
        }
        if used < info.live || used > limit {
            return Err(BlocksError::WrongCount { block, live: info.live.into(), used, limit });
        }
        info.used = used;
        Ok(())
    }

    /// Allocates the next slot of a block being filled and counts it as live: [`Blocks::set_used`] and
    /// [`Blocks::add_live`] in one step. Returns the slot's index; `None` if the block is full or not
    /// being filled.
    #[inline]
    pub fn take(&mut self, block: BlockId) -> Option<u16> {
        let limit = self.slots_per_block;
        let info = self.infos.get_mut(block.0 as usize)?;
        if !matches!(info.state, BlockState::Open(_) | BlockState::Meta) || info.used == limit {
            return None;
        }
        info.used += 1;
        info.live += 1;
        self.live += 1;
        Some(info.used - 1)
    }

    /// Closes an open block. A closed, meta or sealed block stays unchanged.
    ///
    /// # Errors
    /// [`BlocksError::NoSuchBlock`]; [`BlocksError::WrongState`] if the block is free or retired.
    #[inline]
    pub fn close(&mut self, block: BlockId) -> Result<(), BlocksError> {
        let info = *self.get(block)?;
        match info.state {
            BlockState::Open(_) => self.replace(block.0, BlockInfo { state: BlockState::Closed, ..info }),
            BlockState::Closed | BlockState::Meta | BlockState::Sealed => {}
            state => return Err(wrong_state(block, state, "Open")),
        }
        Ok(())
    }

    /// Erases a dead block, which is free at once. For a device that keeps no older state than the
    /// current one; other devices call [`Blocks::release_dead`].
    ///
    /// # Errors
    /// [`BlocksError::NoSuchBlock`]; [`BlocksError::StillLive`] if the block holds live data;
    /// [`BlocksError::WrongState`] if the block is neither closed nor sealed.
    pub fn erase(&mut self, block: BlockId) -> Result<(), BlocksError> {
        let info = *self.get(block)?;
        match info.class() {
            Class::Dead => self.replace(block.0, BlockInfo { uses: info.uses, ..BlockInfo::default() }),
            _ if info.live != 0 => return Err(BlocksError::StillLive { block, live: info.live }),
            _ => return Err(wrong_state(block, info.state, "Closed or Sealed")),
        }
        if self.dead.len() > 2 * self.dead_count as usize + 64 {
            self.dead = self.dead_sorted();
        }
        Ok(())
    }

    /// Pins a block that is being reclaimed: it is not chosen as victim again until it is erased or
    /// unpinned.
    pub fn pin(&mut self, block: BlockId) {
        if let Some(candidate) = self.candidates.get_mut(block.0 as usize) {
            *candidate = NOT_RECLAIMABLE;
        }
    }

    /// Makes a pinned block eligible as victim again.
    pub fn unpin(&mut self, block: BlockId) {
        let info = self.info(block);
        if self.is_candidate(&info) {
            self.candidates[block.0 as usize] = info.live;
        }
    }

    /// Frees an opened block at once, without [`Blocks::release_dead`]: for a block that the caller has
    /// opened but that contains no data referenced by any state.
    ///
    /// # Errors
    /// [`BlocksError::NoSuchBlock`]; [`BlocksError::StillLive`] if the block holds live data;
    /// [`BlocksError::WrongState`] if the block is not being filled.
    pub fn free_unwritten(&mut self, block: BlockId) -> Result<(), BlocksError> {
        let info = *self.get(block)?;
        if info.live != 0 {
            return Err(BlocksError::StillLive { block, live: info.live });
        }
        if !matches!(info.state, BlockState::Open(_) | BlockState::Meta) {
            return Err(wrong_state(block, info.state, "Open or Meta"));
        }
        self.replace(block.0, BlockInfo { uses: info.uses, ..BlockInfo::default() });
        Ok(())
    }

    /// Seals a meta block. A sealed block stays unchanged.
    ///
    /// # Errors
    /// [`BlocksError::NoSuchBlock`]; [`BlocksError::WrongState`] if the block is neither meta nor
    /// sealed.
    pub fn seal(&mut self, block: BlockId) -> Result<(), BlocksError> {
        let info = *self.get(block)?;
        match info.state {
            BlockState::Meta => self.replace(block.0, BlockInfo { state: BlockState::Sealed, ..info }),
            BlockState::Sealed => {}
            state => return Err(wrong_state(block, state, "Meta")),
        }
        Ok(())
    }

    /// True for a block of tables or the log, whose live slots are not in the page table.
    #[must_use]
    pub fn is_driver_owned(&self, block: BlockId) -> bool {
        matches!(self.info(block).state, BlockState::Meta | BlockState::Sealed)
    }

    /// Retires a block: takes it out of service for good. A retired block stays unchanged.
    ///
    /// # Errors
    /// [`BlocksError::NoSuchBlock`]; [`BlocksError::StillLive`] if the block holds live data.
    pub fn retire(&mut self, block: BlockId) -> Result<(), BlocksError> {
        let info = *self.get(block)?;
        if info.live != 0 {
            return Err(BlocksError::StillLive { block, live: info.live });
        }
        self.replace(block.0, BlockInfo { state: BlockState::Retired, ..info });
        Ok(())
    }

    /// Adds `slots` to the block's live count.
    ///
    /// # Errors
    /// [`BlocksError::NoSuchBlock`]; [`BlocksError::WrongState`] if the block is free or retired;
    /// [`BlocksError::WrongCount`] if the live count would exceed the used slots.
    #[inline]
    pub fn add_live(&mut self, block: BlockId, slots: u16) -> Result<(), BlocksError> {
        let info = *self.get(block)?;
        if matches!(info.state, BlockState::Free | BlockState::Retired) {
            return Err(wrong_state(block, info.state, "in use"));
        }
        self.set_live(block, info, i32::from(info.live) + i32::from(slots))
    }

    /// Subtracts `slots` from the block's live count.
    ///
    /// # Errors
    /// [`BlocksError::NoSuchBlock`]; [`BlocksError::WrongCount`] if the live count is below `slots`.
    #[inline]
    pub fn sub_live(&mut self, block: BlockId, slots: u16) -> Result<(), BlocksError> {
        let info = *self.get(block)?;
        self.set_live(block, info, i32::from(info.live) - i32::from(slots))
    }

    /// Checks that [`Blocks::add_live`] of `add` slots and then [`Blocks::sub_live`] of `sub` would
    /// succeed.
    pub(crate) fn check_live(&self, block: BlockId, add: u16, sub: u16) -> Result<(), BlocksError> {
        let info = *self.get(block)?;
        if add > 0 && matches!(info.state, BlockState::Free | BlockState::Retired) {
            return Err(wrong_state(block, info.state, "in use"));
        }
        let most = i32::from(info.live) + i32::from(add);
        let left = most - i32::from(sub);
        for live in [most, left] {
            if live < 0 || live > i32::from(info.used) {
                let (used, limit) = (info.used, self.slots_per_block);
                return Err(BlocksError::WrongCount { block, live, used, limit });
            }
        }
        Ok(())
    }

    #[inline]
    fn set_live(&mut self, block: BlockId, info: BlockInfo, wanted: i32) -> Result<(), BlocksError> {
        let (used, limit) = (info.used, self.slots_per_block);
        let live = match u16::try_from(wanted) {
            Ok(live) if live <= used => live,
            _ => {
                return Err(BlocksError::WrongCount { block, live: wanted, used, limit });
            }
        };
        let index = block.0 as usize;
        if live != 0 && info.live != 0 {
            // The block stays on its list.
            self.infos[index].live = live;
            self.live = self.live - u64::from(info.live) + u64::from(live);
            if info.state == BlockState::Closed && self.candidates[index] == info.live {
                self.candidates[index] = live;
            }
        } else {
            self.replace(block.0, BlockInfo { live, ..info });
        }
        Ok(())
    }

    /// Number of free blocks.
    #[must_use]
    #[inline]
    pub fn free(&self) -> u32 {
        self.free_count
    }

    /// Number of dead blocks: closed or sealed, without live data, not yet released.
    #[must_use]
    pub fn dead(&self) -> u32 {
        self.dead_count
    }

    /// Number of live slots in all blocks.
    #[must_use]
    pub fn live_slots(&self) -> u64 {
        self.live
    }

    /// Frees all dead blocks and returns them, lowest first. To be called when no recoverable state
    /// refers to them any more.
    pub fn release_dead(&mut self) -> Vec<BlockId> {
        let dead = self.dead_sorted();
        self.dead.clear();
        for &id in &dead {
            let uses = self.infos[id as usize].uses;
            self.replace(id, BlockInfo { uses, ..BlockInfo::default() });
        }
        dead.into_iter().map(BlockId).collect()
    }

    /// The dead blocks, lowest first.
    fn dead_sorted(&self) -> Vec<u32> {
        let mut dead: Vec<u32> =
            self.dead.iter().copied().filter(|id| self.infos[*id as usize].class() == Class::Dead).collect();
        dead.sort_unstable();
        dead.dedup();
        dead
    }

    /// The candidates for reclamation as (live slots, block), by number: closed blocks that are not
    /// pinned and hold live data; without quarantine dead blocks too.
    pub fn reclaimable(&self) -> impl Iterator<Item = (u16, BlockId)> + '_ {
        (0..)
            .zip(&self.candidates)
            .filter(|(_, live)| **live != NOT_RECLAIMABLE)
            .map(|(id, live)| (*live, BlockId(id)))
    }

    /// For each block its live slots if it is a candidate for reclamation, else the largest `u16`.
    pub(super) fn candidates(&self) -> &[u16] {
        &self.candidates
    }

    /// True if the slot may be programmed: it exists, is not marked bad, and its block is in service.
    #[must_use]
    pub fn usable(&self, block: BlockId, index: u16) -> bool {
        self.info(block).state != BlockState::Retired
            && index < self.slots_per_block
            && !self.bad.contains(&(block.0, index))
    }

    /// Marks a slot as worn out for good (NVMM, Architecture: a worn page is marked bad, and the rest of
    /// its block stays usable through the bit vector).
    ///
    /// # Errors
    /// [`BlocksError::NoSuchBlock`] and [`BlocksError::NoSuchSlot`].
    pub fn mark_bad(&mut self, block: BlockId, index: u16) -> Result<(), BlocksError> {
        self.get(block)?;
        if index >= self.slots_per_block {
            return Err(BlocksError::NoSuchSlot { block, index, slots: self.slots_per_block });
        }
        self.bad.insert((block.0, index));
        Ok(())
    }

    /// The slots marked bad, by block and index.
    pub fn bad_slots(&self) -> impl Iterator<Item = (BlockId, u16)> + '_ {
        self.bad.iter().map(|&(id, index)| (BlockId(id), index))
    }

    /// Number of slots of the block that are not marked bad.
    #[must_use]
    pub fn capacity(&self, block: BlockId) -> u16 {
        if self.bad.is_empty() {
            return self.slots_per_block;
        }
        let bad = self.bad.range((block.0, 0)..=(block.0, u16::MAX)).count();
        self.slots_per_block - bad as u16
    }

    /// Wear spread: uses of the most worn block in service minus those of the least worn.
    #[must_use]
    pub fn spread(&self) -> u32 {
        match (self.worn.first_key_value(), self.worn.last_key_value()) {
            (Some((least, _)), Some((most, _))) => most - least,
            _ => 0,
        }
    }

    /// The victim of static wear levelling: the least worn closed block with live data, of equally worn
    /// blocks the one opened first. `None` unless some block has more than `delta` uses more.
    ///
    /// The cold data of such a block keeps it from taking its share of the wear. Moving the data frees
    /// the block for data that changes.
    #[must_use]
    pub fn wear_victim(&self, delta: u32) -> Option<BlockId> {
        if self.spread() <= delta {
            return None;
        }
        let (&most, _) = self.worn.last_key_value()?;
        let coldest = self.reclaimable().map(|(_, block)| {
            let info = &self.infos[block.0 as usize];
            (info.uses, info.sequence, block)
        });
        let (uses, _, block) = coldest.min()?;
        (most - uses > delta).then_some(block)
    }

    /// Memory of the tables, in bytes; trees are estimated at 3/2 of their content.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let trees = self.worn.len() * size_of::<(u32, u32)>() + self.bad.len() * size_of::<(u32, u16)>();
        size_of::<Self>()
            + self.infos.capacity() * size_of::<BlockInfo>()
            + self.candidates.capacity() * size_of::<u16>()
            + self.free.capacity() * size_of::<(u32, u32)>()
            + self.dead.capacity() * size_of::<u32>()
            + trees
            + trees / 2
    }

    fn get(&self, block: BlockId) -> Result<&BlockInfo, BlocksError> {
        let blocks = self.len();
        self.infos.get(block.0 as usize).ok_or(BlocksError::NoSuchBlock { block, blocks })
    }

    fn get_mut(&mut self, block: BlockId) -> Result<&mut BlockInfo, BlocksError> {
        let blocks = self.len();
        self.infos.get_mut(block.0 as usize).ok_or(BlocksError::NoSuchBlock { block, blocks })
    }
}

fn wrong_state(block: BlockId, state: BlockState, expected: &'static str) -> BlocksError {
    BlocksError::WrongState { block, state, expected }
}
