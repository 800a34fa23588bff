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
//! 3. Opening counts as one use (erase) of the block.
//! 4. Meta and sealed blocks are the driver's: it counts their live slots and moves their data.
//!    They are never victims.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

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

/// All blocks of a volume.
///
/// Opening, closing and every change of a live count take O(log blocks); the counts are kept.
#[derive(Debug, Clone)]
pub struct Blocks {
    slots_per_block: u16,
    infos: Vec<BlockInfo>,
    /// Free blocks by (uses, number): the first is the least worn.
    free: BTreeSet<(u32, u32)>,
    /// Closed blocks with live data by (live, number): the first has the fewest.
    reclaimable: BTreeSet<(u16, u32)>,
    dead: BTreeSet<u32>,
    live: u64,
    /// How many blocks in service have been used how often.
    worn: BTreeMap<u32, u32>,
    bad: BTreeSet<(u32, u16)>,
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
            infos,
            free: BTreeSet::new(),
            reclaimable: BTreeSet::new(),
            dead: BTreeSet::new(),
            live: 0,
            worn: BTreeMap::new(),
            bad: BTreeSet::new(),
        };
        for id in 0..blocks.len() {
            blocks.enter(id, blocks.infos[id as usize]);
        }
        blocks
    }

    /// Puts a block, absent from the lists and counts, there and makes it `info`.
    fn enter(&mut self, id: u32, info: BlockInfo) {
        self.infos[id as usize] = info;
        self.live += u64::from(info.live);
        if info.state != State::Retired {
            *self.worn.entry(info.uses).or_insert(0) += 1;
        }
        match info.state {
            State::Free => {
                self.free.insert((info.uses, id));
            }
            State::Closed | State::Sealed if info.live == 0 => {
                self.dead.insert(id);
            }
            State::Closed => {
                self.reclaimable.insert((info.live, id));
            }
            State::Open(_) | State::Meta | State::Sealed | State::Retired => {}
        }
    }

    /// Makes a block `info`, in all lists and counts.
    fn replace(&mut self, id: u32, info: BlockInfo) {
        let old = self.infos[id as usize];
        self.live -= u64::from(old.live);
        if old.state != State::Retired
            && let Some(count) = self.worn.get_mut(&old.uses)
        {
            *count -= 1;
            if *count == 0 {
                self.worn.remove(&old.uses);
            }
        }
        match old.state {
            State::Free => {
                self.free.remove(&(old.uses, id));
            }
            State::Closed | State::Sealed if old.live == 0 => {
                self.dead.remove(&id);
            }
            State::Closed => {
                self.reclaimable.remove(&(old.live, id));
            }
            State::Open(_) | State::Meta | State::Sealed | State::Retired => {}
        }
        self.enter(id, info);
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
        let &(_, id) = self.free.first()?;
        self.start(id, State::Open(stream), sequence);
        Some(BlockId(id))
    }

    /// Opens the least-worn free block for tables or the log; `None` if no block is free.
    pub fn open_meta(&mut self, sequence: u64) -> Option<BlockId> {
        let &(_, id) = self.free.first()?;
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

    /// Ends the filling of an open block. A block already closed, or meta, stays as it is.
    ///
    /// # Errors
    /// [`BlocksError::NoSuchBlock`]; [`BlocksError::WrongState`] if the block is free or retired.
    pub fn close(&mut self, block: BlockId) -> Result<(), BlocksError> {
        let info = *self.get(block)?;
        match info.state {
            State::Open(_) => self.replace(block.0, BlockInfo { state: State::Closed, ..info }),
            State::Closed | State::Meta | State::Sealed => {}
            state => return Err(wrong_state(block, state, "Open")),
        }
        Ok(())
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

    fn set_live(&mut self, block: BlockId, info: BlockInfo, wanted: i32) -> Result<(), BlocksError> {
        let (used, limit) = (info.used, self.slots_per_block);
        let live = match u16::try_from(wanted) {
            Ok(live) if live <= used => live,
            _ => {
                return Err(BlocksError::WrongCount { block, live: wanted, used, limit });
            }
        };
        self.replace(block.0, BlockInfo { live, ..info });
        Ok(())
    }

    /// Free blocks.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.free.len() as u32
    }

    /// Dead blocks: closed or sealed, without live data, not yet released.
    #[must_use]
    pub fn dead(&self) -> u32 {
        self.dead.len() as u32
    }

    /// Live slots of all blocks together.
    #[must_use]
    pub fn live_slots(&self) -> u64 {
        self.live
    }

    /// Makes all dead blocks free and names them, lowest first. To be called when no state that
    /// could still be recovered refers to them.
    pub fn release_dead(&mut self) -> Vec<BlockId> {
        let dead: Vec<BlockId> = self.dead.iter().copied().map(BlockId).collect();
        for &BlockId(id) in &dead {
            let uses = self.infos[id as usize].uses;
            self.replace(id, BlockInfo { uses, ..BlockInfo::default() });
        }
        dead
    }

    /// Closed blocks that hold live data, as (live slots, block), fewest live first.
    pub fn reclaimable(&self) -> impl Iterator<Item = (u16, BlockId)> + '_ {
        self.reclaimable.iter().map(|&(live, id)| (live, BlockId(id)))
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
        let trees = self.free.len() * size_of::<(u32, u32)>()
            + (self.reclaimable.len() + self.dead.len()) * size_of::<(u16, u32)>()
            + self.worn.len() * size_of::<(u32, u32)>()
            + self.bad.len() * size_of::<(u32, u16)>();
        size_of::<Self>() + self.infos.capacity() * size_of::<BlockInfo>() + trees + trees / 2
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
