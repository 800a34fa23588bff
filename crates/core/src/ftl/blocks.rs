//! The state of every block of flash.
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
//! 2. A closed or sealed block without live data is *dead*: nothing current needs it, but the
//!    state last made durable may. It is not free until [`Blocks::release_dead`], which the caller
//!    runs once a newer state is durable.
//!    A device that keeps no older state erases dead blocks one by one ([`Blocks::without_quarantine`]).
//! 3. Opening counts as one use (erase) of the block.
//! 4. Meta and sealed blocks are the driver's: it counts their live slots and moves their data.
//!    They are never victims.

use alloc::collections::{BTreeMap, BTreeSet, BinaryHeap};
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

pub use super::error::BlocksError;
use crate::units::BlockId;

/// What a block is being used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum State {
    /// Holds nothing that anyone needs; may be opened.
    #[default]
    Free,
    /// Being filled by this write stream.
    Open(u8),
    /// Full, or given up being filled.
    Closed,
    /// Holds tables or the log and is still being filled.
    Meta,
    /// Holds tables or the log and is full.
    Sealed,
    /// Worn out; never used again.
    Retired,
}

/// One block. The default is a free block never used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct BlockInfo {
    /// What the block is being used for.
    pub state: State,
    /// Slots handed out, counted from the block's start.
    pub used: u16,
    /// Slots that hold data something still refers to.
    pub live: u16,
    /// Times the block was opened, each after an erase.
    pub uses: u32,
    /// The caller's clock when the block was opened; 0 while it is free.
    pub sequence: u64,
}

/// All blocks of a volume, or of a plane that is written by itself.
///
/// Opening takes O(log blocks), every change of a live count O(1): what a flash translation layer
/// does for each page must not walk trees. Choosing a victim scans two bytes a block.
#[derive(Debug, Clone)]
pub struct Blocks {
    slots_per_block: u16,
    infos: Vec<BlockInfo>,
    /// Live slots of each block that may be reclaimed; [`KEPT`] for all others.
    candidates: Vec<u16>,
    /// Dead blocks may be reclaimed like others.
    at_once: bool,
    /// Free blocks by (uses, number), the least worn on top. An entry is void unless its block is
    /// free and has been used that often.
    free: BinaryHeap<Reverse<(u32, u32)>>,
    free_count: u32,
    /// Blocks that became dead; some may have been erased or used again since.
    dead: Vec<u32>,
    dead_count: u32,
    live: u64,
    /// How many blocks in service have been used how often.
    worn: BTreeMap<u32, u32>,
    bad: BTreeSet<(u32, u16)>,
}

/// Instead of a live count: the block is not to be reclaimed.
const KEPT: u16 = u16::MAX;

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
            State::Free => Class::Free,
            State::Closed | State::Sealed if self.live == 0 => Class::Dead,
            State::Closed => Class::Reclaimable,
            State::Open(_) | State::Meta | State::Sealed | State::Retired => Class::Other,
        }
    }
}

impl Blocks {
    /// `blocks` blocks never used, of `slots_per_block` slots each.
    #[must_use]
    pub fn new(blocks: u32, slots_per_block: u16) -> Self {
        let infos = vec![BlockInfo::default(); blocks as usize];
        Self::index(slots_per_block, infos)
    }

    /// The blocks as [`Blocks::infos`] gave them. Marks of bad slots are set anew with
    /// [`Blocks::mark_bad`].
    ///
    /// # Errors
    /// [`BlocksError::TooMany`], or [`BlocksError::WrongCount`] where `live <= used <= slots` does
    /// not hold, a free block has used slots, or a retired one live slots.
    pub fn restore(slots_per_block: u16, infos: Vec<BlockInfo>) -> Result<Self, BlocksError> {
        if u32::try_from(infos.len()).is_err() {
            return Err(BlocksError::TooMany { blocks: infos.len() });
        }
        for (id, info) in (0..).zip(&infos) {
            let limit = if info.state == State::Free { 0 } else { slots_per_block };
            let block = BlockId(id);
            if info.live > info.used || info.used > limit {
                let (live, used) = (info.live.into(), info.used);
                return Err(BlocksError::WrongCount { block, live, used, limit });
            }
            if info.state == State::Retired && info.live != 0 {
                return Err(BlocksError::StillLive { block, live: info.live });
            }
        }
        Ok(Self::index(slots_per_block, infos))
    }

    fn index(slots_per_block: u16, infos: Vec<BlockInfo>) -> Self {
        let mut blocks = Self {
            slots_per_block,
            candidates: vec![KEPT; infos.len()],
            at_once: false,
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
            blocks.enlist(id, &info);
        }
        blocks
    }

    /// The same blocks, of a device that keeps no older state than the present one: a dead block may be
    /// chosen as victim, with nothing to move, and is erased by [`Blocks::erase`].
    #[must_use]
    pub fn without_quarantine(mut self) -> Self {
        self.at_once = true;
        for id in 0..self.infos.len() {
            if self.infos[id].class() == Class::Dead && self.is_candidate(&self.infos[id]) {
                self.candidates[id] = 0;
            }
        }
        self
    }

    fn count_use(&mut self, info: &BlockInfo) {
        if info.state != State::Retired {
            *self.worn.entry(info.uses).or_insert(0) += 1;
        }
    }

    /// Puts a block that is on no list where it belongs.
    fn enlist(&mut self, id: u32, info: &BlockInfo) {
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

    /// True unless somebody holds the block.
    fn is_candidate(&self, info: &BlockInfo) -> bool {
        info.state == State::Closed && (info.live > 0 || self.at_once)
    }

    /// Makes a block `info`, in all lists and counts.
    fn replace(&mut self, id: u32, info: BlockInfo) {
        let old = self.infos[id as usize];
        self.infos[id as usize] = info;
        self.live = self.live - u64::from(old.live) + u64::from(info.live);
        if old.uses != info.uses || (old.state == State::Retired) != (info.state == State::Retired) {
            if old.state != State::Retired
                && let Some(count) = self.worn.get_mut(&old.uses)
            {
                *count -= 1;
                if *count == 0 {
                    self.worn.remove(&old.uses);
                }
            }
            self.count_use(&info);
        }
        let held = self.is_candidate(&old) && self.candidates[id as usize] != old.live;
        let class = old.class();
        if class == info.class() && class != Class::Free {
            if self.is_candidate(&info) && !held {
                self.candidates[id as usize] = info.live;
            }
            return;
        }
        match class {
            Class::Free => self.free_count -= 1,
            Class::Dead => self.dead_count -= 1,
            Class::Reclaimable | Class::Other => {}
        }
        self.candidates[id as usize] = KEPT;
        self.enlist(id, &info);
        if held && self.is_candidate(&info) {
            self.candidates[id as usize] = KEPT;
        }
    }

    /// The least worn free block, off the heap.
    fn least_worn(&mut self) -> Option<u32> {
        while let Some(Reverse((uses, id))) = self.free.pop() {
            let info = &self.infos[id as usize];
            if info.state == State::Free && info.uses == uses {
                return Some(id);
            }
        }
        None
    }

    /// Blocks there are, whatever their state.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.infos.len() as u32
    }

    /// True if there is no block at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.infos.is_empty()
    }

    /// Slots of a block.
    #[must_use]
    pub fn slots_per_block(&self) -> u16 {
        self.slots_per_block
    }

    /// The block, or an empty retired one if there is no such block.
    #[must_use]
    #[inline]
    pub fn info(&self, block: BlockId) -> BlockInfo {
        let absent = BlockInfo { state: State::Retired, ..BlockInfo::default() };
        self.infos.get(block.0 as usize).copied().unwrap_or(absent)
    }

    /// All blocks, by number.
    #[must_use]
    pub fn infos(&self) -> &[BlockInfo] {
        &self.infos
    }

    /// Opens the least-worn free block (of equally worn ones the lowest) for data of `stream`, at
    /// `sequence` of the caller's clock; `None` if no block is free.
    pub fn open(&mut self, stream: u8, sequence: u64) -> Option<BlockId> {
        let id = self.least_worn()?;
        self.start(id, State::Open(stream), sequence);
        Some(BlockId(id))
    }

    /// Opens the least-worn free block for tables or the log; `None` if no block is free.
    pub fn open_meta(&mut self, sequence: u64) -> Option<BlockId> {
        let id = self.least_worn()?;
        self.start(id, State::Meta, sequence);
        Some(BlockId(id))
    }

    /// Opens this very block, as a replayed log says.
    ///
    /// # Errors
    /// [`BlocksError::NoSuchBlock`]; [`BlocksError::WrongState`] if the block is not free.
    pub fn open_at(&mut self, block: BlockId, stream: u8, sequence: u64) -> Result<(), BlocksError> {
        let info = *self.get(block)?;
        if info.state != State::Free {
            return Err(wrong_state(block, info.state, "Free"));
        }
        self.start(block.0, State::Open(stream), sequence);
        Ok(())
    }

    fn start(&mut self, id: u32, state: State, sequence: u64) {
        let uses = self.infos[id as usize].uses.saturating_add(1);
        self.replace(id, BlockInfo { state, used: 0, live: 0, uses, sequence });
    }

    /// Says how many slots of a block being filled are handed out.
    ///
    /// # Errors
    /// [`BlocksError::NoSuchBlock`]; [`BlocksError::WrongState`] unless the block is open or meta;
    /// [`BlocksError::WrongCount`] if that is more than it has or fewer than are live.
    pub fn set_used(&mut self, block: BlockId, used: u16) -> Result<(), BlocksError> {
        let limit = self.slots_per_block;
        let info = self.get_mut(block)?;
        if !matches!(info.state, State::Open(_) | State::Meta) {
            return Err(wrong_state(block, info.state, "Open or Meta"));
        }
        if used < info.live || used > limit {
            return Err(BlocksError::WrongCount { block, live: info.live.into(), used, limit });
        }
        info.used = used;
        Ok(())
    }

    /// Hands out the next slot of a block being filled and counts it as live: what
    /// [`Blocks::set_used`] and [`Blocks::add_live`] do, in one step. `None` if the block is full or
    /// not being filled.
    #[inline]
    pub fn take(&mut self, block: BlockId) -> Option<u16> {
        let limit = self.slots_per_block;
        let info = self.infos.get_mut(block.0 as usize)?;
        if !matches!(info.state, State::Open(_) | State::Meta) || info.used == limit {
            return None;
        }
        info.used += 1;
        info.live += 1;
        self.live += 1;
        Some(info.used - 1)
    }

    /// Ends the filling of an open block. A block already closed, or meta, stays as it is.
    ///
    /// # Errors
    /// [`BlocksError::NoSuchBlock`]; [`BlocksError::WrongState`] if the block is free or retired.
    #[inline]
    pub fn close(&mut self, block: BlockId) -> Result<(), BlocksError> {
        let info = *self.get(block)?;
        match info.state {
            State::Open(_) => self.replace(block.0, BlockInfo { state: State::Closed, ..info }),
            State::Closed | State::Meta | State::Sealed => {}
            state => return Err(wrong_state(block, state, "Open")),
        }
        Ok(())
    }

    /// Erases a dead block: it is free at once. For a device that keeps no older state than the
    /// present one; others call [`Blocks::release_dead`].
    ///
    /// # Errors
    /// [`BlocksError::NoSuchBlock`]; [`BlocksError::StillLive`] if it holds live data;
    /// [`BlocksError::WrongState`] if it is neither closed nor sealed.
    pub fn erase(&mut self, block: BlockId) -> Result<(), BlocksError> {
        let info = *self.get(block)?;
        match info.class() {
            Class::Dead => self.replace(block.0, BlockInfo { uses: info.uses, ..BlockInfo::default() }),
            _ if info.live != 0 => return Err(BlocksError::StillLive { block, live: info.live }),
            _ => return Err(wrong_state(block, info.state, "Closed or Sealed")),
        }
        if self.dead.len() > 2 * self.dead_count as usize + 64 {
            self.dead = self.listed_dead();
        }
        Ok(())
    }

    /// Keeps a reclaimable block from being chosen as victim until it is erased, or let go: somebody
    /// is reclaiming it already.
    pub fn hold(&mut self, block: BlockId) {
        if let Some(candidate) = self.candidates.get_mut(block.0 as usize) {
            *candidate = KEPT;
        }
    }

    /// Lets a block be chosen again.
    pub fn let_go(&mut self, block: BlockId) {
        let info = self.info(block);
        if self.is_candidate(&info) {
            self.candidates[block.0 as usize] = info.live;
        }
    }

    /// Makes a block free at once, without waiting for [`Blocks::release_dead`]: for one that the
    /// caller has opened and in which nothing was written that any state refers to.
    ///
    /// # Errors
    /// [`BlocksError::NoSuchBlock`]; [`BlocksError::StillLive`] if it holds live data;
    /// [`BlocksError::WrongState`] if it is not being filled.
    pub fn give_back(&mut self, block: BlockId) -> Result<(), BlocksError> {
        let info = *self.get(block)?;
        if info.live != 0 {
            return Err(BlocksError::StillLive { block, live: info.live });
        }
        if !matches!(info.state, State::Open(_) | State::Meta) {
            return Err(wrong_state(block, info.state, "Open or Meta"));
        }
        self.replace(block.0, BlockInfo { uses: info.uses, ..BlockInfo::default() });
        Ok(())
    }

    /// Ends the filling of a meta block. A sealed block stays so.
    ///
    /// # Errors
    /// [`BlocksError::NoSuchBlock`]; [`BlocksError::WrongState`] if the block is neither.
    pub fn seal(&mut self, block: BlockId) -> Result<(), BlocksError> {
        let info = *self.get(block)?;
        match info.state {
            State::Meta => self.replace(block.0, BlockInfo { state: State::Sealed, ..info }),
            State::Sealed => {}
            state => return Err(wrong_state(block, state, "Meta")),
        }
        Ok(())
    }

    /// True for blocks of tables or the log, whose live slots the page table does not know.
    #[must_use]
    pub fn is_driver_owned(&self, block: BlockId) -> bool {
        matches!(self.info(block).state, State::Meta | State::Sealed)
    }

    /// Takes a block out of service for good. Nothing happens if it is already.
    ///
    /// # Errors
    /// [`BlocksError::NoSuchBlock`]; [`BlocksError::StillLive`] if it holds live data.
    pub fn retire(&mut self, block: BlockId) -> Result<(), BlocksError> {
        let info = *self.get(block)?;
        if info.live != 0 {
            return Err(BlocksError::StillLive { block, live: info.live });
        }
        self.replace(block.0, BlockInfo { state: State::Retired, ..info });
        Ok(())
    }

    /// Counts `slots` more slots of the block as live.
    ///
    /// # Errors
    /// [`BlocksError::NoSuchBlock`]; [`BlocksError::WrongState`] if the block is free or retired;
    /// [`BlocksError::WrongCount`] if more would be live than used.
    #[inline]
    pub fn add_live(&mut self, block: BlockId, slots: u16) -> Result<(), BlocksError> {
        let info = *self.get(block)?;
        if matches!(info.state, State::Free | State::Retired) {
            return Err(wrong_state(block, info.state, "in use"));
        }
        self.set_live(block, info, i32::from(info.live) + i32::from(slots))
    }

    /// Counts `slots` slots fewer of the block as live.
    ///
    /// # Errors
    /// [`BlocksError::NoSuchBlock`]; [`BlocksError::WrongCount`] if fewer are live.
    #[inline]
    pub fn sub_live(&mut self, block: BlockId, slots: u16) -> Result<(), BlocksError> {
        let info = *self.get(block)?;
        self.set_live(block, info, i32::from(info.live) - i32::from(slots))
    }

    /// Whether [`Blocks::add_live`] and then [`Blocks::sub_live`] of so many slots would succeed.
    pub(crate) fn check_live(&self, block: BlockId, add: u16, sub: u16) -> Result<(), BlocksError> {
        let info = *self.get(block)?;
        if add > 0 && matches!(info.state, State::Free | State::Retired) {
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
            // The block stays on the list that it is on.
            self.infos[index].live = live;
            self.live = self.live - u64::from(info.live) + u64::from(live);
            if info.state == State::Closed && self.candidates[index] == info.live {
                self.candidates[index] = live;
            }
        } else {
            self.replace(block.0, BlockInfo { live, ..info });
        }
        Ok(())
    }

    /// Free blocks.
    #[must_use]
    #[inline]
    pub fn free(&self) -> u32 {
        self.free_count
    }

    /// Dead blocks: closed or sealed, without live data, not yet released.
    #[must_use]
    pub fn dead(&self) -> u32 {
        self.dead_count
    }

    /// Live slots of all blocks together.
    #[must_use]
    pub fn live_slots(&self) -> u64 {
        self.live
    }

    /// Makes all dead blocks free and names them, lowest first. To be called when no state that
    /// could still be recovered refers to them.
    pub fn release_dead(&mut self) -> Vec<BlockId> {
        let dead = self.listed_dead();
        self.dead.clear();
        for &id in &dead {
            let uses = self.infos[id as usize].uses;
            self.replace(id, BlockInfo { uses, ..BlockInfo::default() });
        }
        dead.into_iter().map(BlockId).collect()
    }

    /// The dead blocks, lowest first.
    fn listed_dead(&self) -> Vec<u32> {
        let mut dead: Vec<u32> =
            self.dead.iter().copied().filter(|id| self.infos[*id as usize].class() == Class::Dead).collect();
        dead.sort_unstable();
        dead.dedup();
        dead
    }

    /// Closed blocks that hold live data (or need not) and are not held, as (live slots, block), by number.
    pub fn reclaimable(&self) -> impl Iterator<Item = (u16, BlockId)> + '_ {
        (0..).zip(&self.candidates).filter(|(_, live)| **live != KEPT).map(|(id, live)| (*live, BlockId(id)))
    }

    /// For each block its live slots if it is reclaimable, else the largest number there is.
    pub(super) fn candidates(&self) -> &[u16] {
        &self.candidates
    }

    /// True if the slot may be programmed: it exists, is not marked bad, and its block is in
    /// service.
    #[must_use]
    pub fn usable(&self, block: BlockId, index: u16) -> bool {
        self.info(block).state != State::Retired
            && index < self.slots_per_block
            && !self.bad.contains(&(block.0, index))
    }

    /// Marks one slot as worn out, for good.
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

    /// How many slots of the block can be programmed at all.
    #[must_use]
    pub fn capacity(&self, block: BlockId) -> u16 {
        if self.bad.is_empty() {
            return self.slots_per_block;
        }
        let bad = self.bad.range((block.0, 0)..=(block.0, u16::MAX)).count();
        self.slots_per_block - bad as u16
    }

    /// Uses of the most worn block in service minus those of the least worn.
    #[must_use]
    pub fn spread(&self) -> u32 {
        match (self.worn.first_key_value(), self.worn.last_key_value()) {
            (Some((least, _)), Some((most, _))) => most - least,
            _ => 0,
        }
    }

    /// Static wear levelling: where some block has been used over `delta` times more than a
    /// closed one with live data, the least worn such block (the one longest closed to writing,
    /// of equally worn ones). Its data sits still and keeps the block from taking its share of
    /// the wear; moving it away frees the block for data that changes.
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

    /// Bytes of memory held, the trees estimated at 3/2 of their content.
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

fn wrong_state(block: BlockId, state: State, expected: &'static str) -> BlocksError {
    BlocksError::WrongState { block, state, expected }
}
