//! Where segments are: core's volume, the blocks being filled, and who stands in which slot.
//!
//! 1. A slot is named in the table as soon as its program is queued; until that is over its data are in
//!    the controller (`in_buffer` of the machine), which answers reads of it.
//! 2. The host fills several blocks at once, one after the other in turn, so that the programs of many
//!    planes overlap; reclamation fills one of its own.
//! 3. Blocks are kept back for reclamation, which can always empty a block.

use deepram_core::ftl::{BlockInfo, BlockState, Greedy, TieBreak, VictimPolicy, any_block};
use deepram_core::placement::{SegmentRef, place};
use deepram_core::{
    BlockId, Epoch, PageId, Retention, Slot, Stamp, TokenInfo, Volume, VolumeConfig, VolumeError,
    VolumeSnapshot,
};

use super::layout::{Key, Layout, status};
use super::options::NvmmOptions;
use crate::engine::Time;
use crate::error::SimError;

/// A block being filled.
#[derive(Debug, Clone, Copy)]
struct Head {
    block: BlockId,
    used: u16,
}

/// Segments of a page with the slots given to them.
pub(super) type Placed = Vec<(u8, Slot)>;

pub(super) struct Store {
    pub(super) layout: Layout,
    volume: Volume,
    heads: Vec<Option<Head>>,
    next: usize,
    move_head: Option<Head>,
    /// Keys of the slots of blocks opened in the run.
    owners: Vec<Option<Box<[Key]>>>,
    sequence: u64,
    seed: u64,
    bad_share: f64,
    /// Endurance of a block and its logarithmic deviation; no deviation, no wear.
    endurance: (f64, f64),
    /// Erases of each block.
    erases: Vec<u32>,
    kept_back: u32,
    /// The present, for errors.
    pub(super) now: Time,
    /// Blocks being emptied.
    held: Vec<BlockId>,
    written: bool,
}

const NOBODY: Key = Key::MAX;
/// Entries for older versions that must be free before anything is written.
const ENTRIES: u32 = 64;

fn broken(error: VolumeError) -> SimError {
    SimError::Conservation { law: "the volume takes what the controller does", found: error.to_string() }
}

impl Store {
    pub(super) fn new(
        layout: Layout,
        options: &NvmmOptions,
        endurance: u64,
        seed: u64,
    ) -> Result<Self, SimError> {
        let wrong = |key, why: String| Err(SimError::config(key, why));
        let spare = layout.blocks - layout.base_blocks;
        // What is being emptied may fill so many blocks, one of them in part.
        // Where segments are bad, twice as many.
        let bad = options.bad_share > 0.0 || options.wear_deviation > 0.0;
        let kept_back = (options.reclaim_at_once + 2) * if bad { 2 } else { 1 };
        let need = kept_back + 2;
        let segments = u64::from(layout.pages) * u64::from(layout.per_page);
        let room = u64::from(layout.blocks.saturating_sub(need)) * u64::from(layout.slots_per_block);
        if spare < need || segments > room {
            return wrong(
                "spare",
                format!(
                    "leaves {spare} blocks of {} segments for new data; at least {need} are needed",
                    layout.slots_per_block
                ),
            );
        }
        let config = VolumeConfig {
            segment: layout.size,
            pages: layout.pages,
            upper: layout.pages.saturating_mul(3).clamp(4096, (1 << 30) - layout.pages.next_multiple_of(256)),
            blocks: layout.blocks,
            slots_per_block: layout.slots_per_block as u16,
            stamp_limit: deepram_core::page_table::MAX_STAMP,
            retention: Retention::KeepLast(options.tokens.max(1)),
        };
        let mut volume =
            Volume::new(config).map_err(|error| SimError::config(error.field, error.to_string()))?;
        if layout.base_blocks > 0 {
            volume = populated(&layout, config, &volume)?;
        }
        let blocks = volume.blocks_mut();
        *blocks = blocks.clone().without_quarantine();
        let heads = layout.groups.min(spare / 4).clamp(1, 64);
        Ok(Self {
            owners: (0..layout.blocks).map(|_| None).collect(),
            erases: vec![0; layout.blocks as usize],
            layout,
            volume,
            heads: vec![None; heads as usize],
            next: 0,
            move_head: None,
            sequence: 0,
            seed,
            bad_share: options.bad_share,
            endurance: (endurance as f64, options.wear_deviation),
            kept_back,
            now: 0,
            held: Vec::new(),
            written: false,
        })
    }

    pub(super) fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Runs an operation on the volume, giving it the chunks of the table that it turns out to need.
    fn with<T>(
        &mut self,
        mut operation: impl FnMut(&mut Volume) -> Result<T, VolumeError>,
    ) -> Result<T, VolumeError> {
        loop {
            match operation(&mut self.volume) {
                Err(VolumeError::NotLoaded(chunk)) => {
                    let bytes = self.layout.base_chunk(chunk);
                    if self.volume.load_chunk(chunk, &bytes).is_err() {
                        return Err(VolumeError::NotLoaded(chunk));
                    }
                }
                result => return result,
            }
        }
    }

    /// The slot of a segment's newest version; `None` if it was never written.
    pub(super) fn find(&mut self, key: Key) -> Result<Option<Slot>, SimError> {
        let (page, segment) = self.layout.split(key);
        Ok(self.with(|v| v.lookup(page, segment)).map_err(broken)?.map(|version| version.slot))
    }

    /// The planes of the next so many slots of the block that the host fills now; nothing if it has not so
    /// many left.
    pub(super) fn next_planes(&self, slots: u32) -> Option<impl Iterator<Item = u32> + use<'_>> {
        let head = self.heads[self.next]?;
        let used = u32::from(head.used);
        let slot = move |index| self.layout.plane(self.layout.slot(head.block, index));
        (used + slots <= self.layout.slots_per_block).then(|| (used..used + slots).map(slot))
    }

    /// Goes on to the next of the blocks that the host fills.
    pub(super) fn turn(&mut self) {
        self.next = (self.next + 1) % self.heads.len();
    }

    pub(super) fn heads(&self) -> usize {
        self.heads.len()
    }

    /// Free blocks that the host may still open.
    pub(super) fn free_for_host(&self) -> u32 {
        self.volume.blocks().free().saturating_sub(self.kept_back)
    }

    /// Whether entries for older versions are left.
    pub(super) fn has_entries(&self) -> bool {
        let table = self.volume.table();
        table.upper_limit() - table.upper_used() > ENTRIES
    }

    /// Whether the host could write if it had to open a block.
    pub(super) fn can_write(&self) -> bool {
        self.free_for_host() >= 2 && self.has_entries()
    }

    /// Whether so few entries are left that chains should be collapsed.
    pub(super) fn is_low_on_entries(&self) -> bool {
        let table = self.volume.table();
        table.upper_limit() - table.upper_used() < table.upper_limit() / 8
    }

    /// The page with the longest chain, if that can be collapsed.
    pub(super) fn longest_chain(&mut self) -> Result<Option<PageId>, SimError> {
        let Some((page, _)) = self.volume.longest_chain().filter(|(_, length)| *length > 1) else {
            return Ok(None);
        };
        Ok((!self.coalesce_plan(page)?.is_empty()).then_some(page))
    }

    /// Whether a chain can be collapsed without what is kept back to empty blocks.
    pub(super) fn free_to_move(&self) -> bool {
        self.free_for_host() > 0
    }

    /// Whether blocks should be emptied.
    pub(super) fn is_short(&self) -> bool {
        self.free_for_host() < self.low()
    }

    /// Whether emptying a block costs more than it gains.
    pub(super) fn is_costly(&self, block: BlockId) -> bool {
        u32::from(self.volume.blocks().info(block).live) > self.layout.slots_per_block / 2
    }

    /// Whether emptying a block gains an eighth of it, at least.
    pub(super) fn is_worth(&self, block: BlockId) -> bool {
        self.volume.blocks().info(block).live <= self.worth()
    }

    fn worth(&self) -> u16 {
        (self.layout.slots_per_block / 8 * 7) as u16
    }

    /// Whether anything has been written in the open epoch.
    pub(super) fn has_written(&self) -> bool {
        self.written
    }

    /// Erases of each block.
    pub(super) fn erases(&self) -> &[u32] {
        &self.erases
    }

    /// Free blocks below which reclamation runs.
    pub(super) fn low(&self) -> u32 {
        self.heads.len() as u32 / 2 + 2
    }

    /// Writes segments of a page, in the open epoch. `None`: there is no room; nothing has changed.
    pub(super) fn write(&mut self, page: PageId, segments: u16) -> Result<Option<Placed>, SimError> {
        let room = self.heads[self.next].is_some_and(|head| {
            u32::from(head.used) + 2 * self.layout.per_page <= self.layout.slots_per_block
        });
        // A block opened may be full of bad segments: two are asked for.
        if !room && self.free_for_host() < 2 || !self.has_entries() {
            return Ok(None);
        }
        self.written = true;
        if !self.volume.is_allocated(page) {
            self.with(|v| v.set_status(page, status())).map_err(broken)?;
        }
        let placed = self.place(page, segments, false)?;
        for part in self.by_block(&placed) {
            self.with(|v| v.apply(page, &part)).map_err(broken)?;
        }
        self.turn();
        Ok(Some(placed))
    }

    /// Moves segments of a page, which keep the stamp or get it.
    pub(super) fn relocate(&mut self, page: PageId, stamp: Stamp, segments: u16) -> Result<Placed, SimError> {
        let placed = self.place(page, segments, true)?;
        for part in self.by_block(&placed) {
            self.with(|v| v.relocate(page, stamp, &part)).map_err(broken)?;
        }
        Ok(placed)
    }

    fn by_block(&self, placed: &Placed) -> Vec<Placed> {
        let mut parts: Vec<(BlockId, Placed)> = Vec::with_capacity(1);
        for &(segment, slot) in placed {
            let block = self.layout.block(slot);
            match parts.iter_mut().find(|(b, _)| *b == block) {
                Some((_, part)) => part.push((segment, slot)),
                None => parts.push((block, vec![(segment, slot)])),
            }
        }
        parts.into_iter().map(|(_, part)| part).collect()
    }

    /// Gives slots to segments of a page, opening blocks as needed.
    fn place(&mut self, page: PageId, segments: u16, moving: bool) -> Result<Placed, SimError> {
        let mut left: Vec<SegmentRef> = (0..self.layout.per_page as u8)
            .filter(|segment| segments >> segment & 1 != 0)
            .map(|segment| SegmentRef { page, segment })
            .collect();
        let mut placed = Placed::with_capacity(left.len());
        while !left.is_empty() {
            let mut head = match if moving { self.move_head } else { self.heads[self.next] } {
                Some(head) => head,
                None => self.open(moving)?,
            };
            let blocks = self.volume.blocks();
            let usable = |index: u16| blocks.usable(head.block, index);
            let limit = self.layout.slots_per_block as u16;
            let placement = place(head.used, limit, &usable, &left, self.layout.size);
            let (mut rest, mut owned) = (Vec::new(), Vec::new());
            for (item, slot) in left.iter().zip(&placement.slots) {
                match slot {
                    Some(index) => owned.push((item.segment, *index)),
                    None => rest.push(*item),
                }
            }
            head.used = placement.end(head.used);
            let full = !rest.is_empty() || u32::from(head.used) == self.layout.slots_per_block;
            self.volume.blocks_mut().set_used(head.block, head.used).map_err(|e| broken(e.into()))?;
            let owners = self.owners[head.block.0 as usize].get_or_insert_default();
            for (segment, index) in owned {
                if let Some(owner) = owners.get_mut(index as usize) {
                    *owner = self.layout.key(page, segment);
                }
                placed.push((segment, self.layout.slot(head.block, index)));
            }
            if full {
                self.volume.blocks_mut().close(head.block).map_err(|e| broken(e.into()))?;
            }
            let kept = (!full).then_some(head);
            if moving {
                self.move_head = kept;
            } else {
                self.heads[self.next] = kept;
            }
            left = rest;
        }
        Ok(placed)
    }

    fn open(&mut self, moving: bool) -> Result<Head, SimError> {
        self.sequence += 1;
        let Some(block) = self.volume.blocks_mut().open(u8::from(moving), self.sequence) else {
            return Err(SimError::Full {
                time_ps: self.now,
                what: "no block is free, not even one kept back".into(),
            });
        };
        if self.bad_share > 0.0 && self.volume.blocks().info(block).uses == 1 {
            for index in 0..self.layout.slots_per_block {
                if self.chance(0, block, index) < self.bad_share {
                    self.volume.blocks_mut().mark_bad(block, index as u16).map_err(|e| broken(e.into()))?;
                }
            }
        }
        self.owners[block.0 as usize] =
            Some(vec![NOBODY; self.layout.slots_per_block as usize].into_boxed_slice());
        Ok(Head { block, used: 0 })
    }

    /// A number in [0, 1) that belongs to a slot: the same whenever it is asked for.
    fn chance(&self, what: u64, block: BlockId, index: u32) -> f64 {
        let mut x =
            self.seed ^ (what << 60) ^ self.layout.slot(block, index).0.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        // SplitMix64's finaliser.
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((x ^ (x >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// The key that a slot was written for.
    fn owner(&self, block: BlockId, index: u32) -> Option<Key> {
        match &self.owners[block.0 as usize] {
            Some(owners) => owners.get(index as usize).copied().filter(|key| *key != NOBODY),
            None => self.layout.base_key(block, index),
        }
    }

    /// The segments in a block that somebody needs, each with its stamp.
    pub(super) fn live_in(&mut self, block: BlockId) -> Result<Vec<(Key, Slot, Stamp)>, SimError> {
        let mut live = Vec::new();
        for index in 0..self.layout.slots_per_block {
            let Some(key) = self.owner(block, index) else { continue };
            let (page, segment) = self.layout.split(key);
            let slot = self.layout.slot(block, index);
            if let Some(stamp) = self.with(|v| v.is_live(page, segment, slot)).map_err(broken)? {
                live.push((key, slot, stamp));
            }
        }
        let counted = self.volume.blocks().info(block).live;
        crate::flash::law(
            "a block's live segments are those that the table names",
            live.len() as u64,
            counted.into(),
        )?;
        Ok(live)
    }

    /// The block to empty. One that holds a part of the longest chain (NVMM: longest chains first), which
    /// is then collapsed with it, if that gains at least half of what the block with the fewest live
    /// segments gains: versions that no token needs are dead already, so a long chain alone does not
    /// mean that there is much to gain. Else that block. `None` if emptying gains nothing.
    pub(super) fn victim(&mut self) -> Result<Option<(BlockId, Option<PageId>)>, SimError> {
        let mut policy = Greedy { ties: TieBreak::Lowest };
        let Some(fewest) = policy.pick(self.volume.blocks(), self.sequence, &mut any_block) else {
            return Ok(None);
        };
        let Some(page) = self.longest_chain()? else { return Ok(Some((fewest, None))) };
        let plan = self.coalesce_plan(page)?;
        let chain: Vec<BlockId> =
            plan.iter().flat_map(|(_, placed)| placed).map(|(_, slot)| self.layout.block(*slot)).collect();
        let blocks = self.volume.blocks();
        let gain = |block: BlockId| i32::from(blocks.capacity(block)) - i32::from(blocks.info(block).live);
        // What of the chain lies elsewhere is moved, too, and takes room that it gives back later.
        let net = |block: BlockId| gain(block) - 2 * chain.iter().filter(|b| **b != block).count() as i32;
        let best = chain
            .iter()
            .copied()
            .filter(|block| blocks.info(*block).state == BlockState::Closed && !self.held.contains(block))
            .max_by_key(|b| (net(*b), *b));
        Ok(Some(match best {
            Some(block) if net(block) > 0 && 2 * net(block) >= gain(fewest) => (block, Some(page)),
            _ => (fewest, None),
        }))
    }

    /// What to write together so that a page's chain becomes as short as its tokens allow.
    pub(super) fn coalesce_plan(&mut self, page: PageId) -> Result<Vec<(Stamp, Placed)>, SimError> {
        self.with(|v| v.coalesce_plan(page)).map_err(broken)
    }

    /// Keeps a block from being chosen again while it is emptied.
    pub(super) fn hold(&mut self, block: BlockId) {
        self.held.push(block);
        self.volume.blocks_mut().pin(block);
    }

    /// The least worn block, if others have been used much more often.
    pub(super) fn wear_victim(&self, spread: u32) -> Option<BlockId> {
        if spread == 0 { None } else { self.volume.blocks().wear_victim(spread) }
    }

    /// Makes an emptied block free, and marks what has worn out in it.
    pub(super) fn erased(&mut self, block: BlockId) -> Result<(), SimError> {
        self.held.retain(|held| *held != block);
        self.owners[block.0 as usize] = None;
        self.erases[block.0 as usize] += 1;
        let (endurance, deviation) = self.endurance;
        if deviation > 0.0 {
            let uses = f64::from(self.volume.blocks().info(block).uses);
            for index in 0..self.layout.slots_per_block {
                // A lognormal endurance, from two uniform numbers of the slot.
                let (a, b) = (self.chance(1, block, index), self.chance(2, block, index));
                let normal = (-2.0 * (1.0 - a).ln()).sqrt() * (std::f64::consts::TAU * b).cos();
                if uses >= endurance * (deviation * normal).exp() {
                    self.volume.blocks_mut().mark_bad(block, index as u16).map_err(|e| broken(e.into()))?;
                }
            }
        }
        let blocks = self.volume.blocks_mut();
        if blocks.capacity(block) < self.layout.slots_per_block as u16 / 2 {
            // Half of it is bad, or more: no page would fit in one piece.
            return blocks.retire(block).map_err(|e| broken(e.into()));
        }
        blocks.erase(block).map_err(|e| broken(e.into()))
    }

    /// Closes the open epoch: its number is the token.
    pub(super) fn close_epoch(&mut self, time_ns: u64) -> Result<Epoch, SimError> {
        if self.volume.needs_renumber() {
            self.with(Volume::renumber).map_err(broken)?;
        }
        let token = self.with(|v| v.close_epoch(time_ns)).map_err(broken)?;
        self.written = false;
        while let Some(oldest) = self.volume.expired() {
            self.give_up(oldest)?;
        }
        Ok(token)
    }

    /// Gives up a token and what only it needs.
    pub(super) fn give_up(&mut self, token: Epoch) -> Result<(), SimError> {
        self.with(|v| v.drop_token(token)).map_err(broken)?;
        while self.with(|v| v.prune_step(1024)).map_err(broken)? > 0 {}
        Ok(())
    }

    pub(super) fn tokens(&self) -> &[TokenInfo] {
        self.volume.tokens()
    }

    /// Returns to a token's state; the pages that have changed since.
    pub(super) fn rollback(&mut self, token: Epoch) -> Result<Vec<PageId>, SimError> {
        let wrong = |error: VolumeError| SimError::config("token", error.to_string());
        let pages = self.volume.changed_since(token).map_err(wrong)?;
        self.with(|v| v.rollback(token)).map_err(wrong)?;
        Ok(pages)
    }

    /// Laws that are quick to check.
    pub(super) fn check_counts(&self) -> Result<(), SimError> {
        let blocks = self.volume.blocks();
        let live: u64 = blocks.infos().iter().map(|info| u64::from(info.live)).sum();
        crate::flash::law("the live slots of all blocks are those counted", live, blocks.live_slots())
    }

    /// Checks the whole volume against itself; loads all of its table.
    pub(super) fn check(&mut self) -> Result<(), SimError> {
        let problems = self.with(|v| v.check()).map_err(broken)?;
        match problems.first() {
            None => Ok(()),
            Some(problem) => Err(SimError::Conservation {
                law: "chains, slots and counts of the volume agree",
                found: problem.to_string(),
            }),
        }
    }

    /// Bytes of memory that the tables take.
    pub(super) fn memory_bytes(&self) -> usize {
        let owners = self.owners.iter().flatten().map(|owners| owners.len() * 4).sum::<usize>();
        self.volume.memory_bytes() + owners + self.owners.len() * size_of::<Option<Box<[Key]>>>()
    }
}

/// The volume with every page written, its table still to be computed.
fn populated(layout: &Layout, config: VolumeConfig, empty: &Volume) -> Result<Volume, SimError> {
    let chunks: Vec<_> = (0..layout.pages.div_ceil(256)).map(deepram_core::ChunkId).collect();
    let blocks = (0..layout.blocks)
        .map(|block| {
            let live = if block < layout.base_blocks { layout.base_live(BlockId(block)) as u16 } else { 0 };
            if live == 0 {
                return BlockInfo::default();
            }
            BlockInfo {
                state: BlockState::Closed,
                used: layout.slots_per_block as u16,
                live,
                uses: 1,
                sequence: 0,
            }
        })
        .collect();
    let mut allocated = vec![u64::MAX; (layout.pages as usize).div_ceil(64)];
    if !layout.pages.is_multiple_of(64)
        && let Some(last) = allocated.last_mut()
    {
        *last = (1 << (layout.pages % 64)) - 1;
    }
    let snapshot = VolumeSnapshot { blocks, allocated, ..empty.snapshot() };
    Volume::restore(config, snapshot, &chunks)
        .map_err(|error| SimError::config("capacity", error.to_string()))
}
