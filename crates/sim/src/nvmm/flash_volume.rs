//! The placement of segments on flash: core's volume, the open blocks, and the owner of each slot.
//!
//! 1. The page table names a slot as soon as its program is queued. Until the program completes, the
//!    controller holds the data (`in_buffer` of the memory) and serves reads of them.
//! 2. The host fills several open blocks in turn, so the programs of many planes overlap. Reclamation
//!    fills an open block of its own.
//! 3. Some blocks are reserved for reclamation, which can therefore always empty a block.

use deepram_core::ftl::{BlockInfo, BlockState, Greedy, TieBreak, VictimPolicy, any_block};
use deepram_core::placement::{SegmentRef, place};
use deepram_core::{
    BlockId, Epoch, PageId, Retention, Slot, Stamp, TokenInfo, Volume, VolumeConfig, VolumeError,
    VolumeSnapshot,
};

use super::layout::{Layout, SegmentKey, status};
use super::options::NvmmOptions;
use crate::engine::Time;
use crate::error::SimError;

/// An open block: one that is being filled.
#[derive(Debug, Clone, Copy)]
struct OpenBlock {
    block: BlockId,
    used: u16,
}

/// Segments of a page with the slots assigned to them.
pub(super) type PlacedSegments = Vec<(u8, Slot)>;

pub(super) struct FlashVolume {
    pub(super) layout: Layout,
    volume: Volume,
    open_blocks: Vec<Option<OpenBlock>>,
    next: usize,
    open_block_for_moves: Option<OpenBlock>,
    /// The owner (segment) of each slot, for blocks opened in the run.
    owners: Vec<Option<Box<[SegmentKey]>>>,
    sequence: u64,
    seed: u64,
    bad_share: f64,
    /// Endurance of a block and its logarithmic standard deviation; a deviation of 0 disables wear.
    endurance: (f64, f64),
    /// Erases of each block.
    erases: Vec<u32>,
    kept_back: u32,
    /// The present time, for error messages.
    pub(super) now: Time,
    /// Blocks that are being emptied.
    emptying: Vec<BlockId>,
    written: bool,
}

const NOBODY: SegmentKey = SegmentKey::MAX;
/// Page-table entries for older versions that must be free before the host may write.
const ENTRIES: u32 = 64;

fn broken(error: VolumeError) -> SimError {
    SimError::Conservation { law: "the volume accepts the controller's operations", found: error.to_string() }
}

impl FlashVolume {
    pub(super) fn new(
        layout: Layout,
        options: &NvmmOptions,
        endurance: u64,
        seed: u64,
    ) -> Result<Self, SimError> {
        let wrong = |key, why: String| Err(SimError::config(key, why));
        let spare = layout.blocks - layout.prefilled_blocks;
        // Blocks being emptied may fill this many blocks, one of them in part; twice as many where
        // segments are bad.
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
        if layout.prefilled_blocks > 0 {
            volume = populated(&layout, config, &volume)?;
        }
        let blocks = volume.blocks_mut();
        *blocks = blocks.clone().without_quarantine();
        let open_blocks = layout.groups.min(spare / 4).clamp(1, 64);
        Ok(Self {
            owners: (0..layout.blocks).map(|_| None).collect(),
            erases: vec![0; layout.blocks as usize],
            layout,
            volume,
            open_blocks: vec![None; open_blocks as usize],
            next: 0,
            open_block_for_moves: None,
            sequence: 0,
            seed,
            bad_share: options.bad_share,
            endurance: (endurance as f64, options.wear_deviation),
            kept_back,
            now: 0,
            emptying: Vec::new(),
            written: false,
        })
    }

    pub(super) fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Runs an operation on the volume, and loads the table chunks that it reports as missing.
    fn with<T>(
        &mut self,
        mut operation: impl FnMut(&mut Volume) -> Result<T, VolumeError>,
    ) -> Result<T, VolumeError> {
        loop {
            match operation(&mut self.volume) {
                Err(VolumeError::NotLoaded(chunk)) => {
                    let bytes = self.layout.prefilled_chunk(chunk);
                    if self.volume.load_chunk(chunk, &bytes).is_err() {
                        return Err(VolumeError::NotLoaded(chunk));
                    }
                }
                result => return result,
            }
        }
    }

    /// The slot of a segment's newest version; `None` if the segment was never written.
    pub(super) fn find(&mut self, key: SegmentKey) -> Result<Option<Slot>, SimError> {
        let (page, segment) = self.layout.split(key);
        Ok(self.with(|v| v.lookup(page, segment)).map_err(broken)?.map(|version| version.slot))
    }

    /// The planes of the next `slots` slots of the host's current open block; `None` if the block has
    /// fewer free slots.
    pub(super) fn next_planes(&self, slots: u32) -> Option<impl Iterator<Item = u32> + use<'_>> {
        let head = self.open_blocks[self.next]?;
        let used = u32::from(head.used);
        let slot = move |index| self.layout.plane(self.layout.slot(head.block, index));
        (used + slots <= self.layout.slots_per_block).then(|| (used..used + slots).map(slot))
    }

    /// Makes the host's next open block the current one.
    pub(super) fn advance_open_block(&mut self) {
        self.next = (self.next + 1) % self.open_blocks.len();
    }

    pub(super) fn open_block_count(&self) -> usize {
        self.open_blocks.len()
    }

    /// Free blocks that the host may open.
    pub(super) fn free_for_host(&self) -> u32 {
        self.volume.blocks().free().saturating_sub(self.kept_back)
    }

    /// True if the page table has enough free entries for older versions.
    pub(super) fn has_entries(&self) -> bool {
        let table = self.volume.table();
        table.upper_limit() - table.upper_used() > ENTRIES
    }

    /// True if the host can write even if it must open a block.
    pub(super) fn can_write(&self) -> bool {
        self.free_for_host() >= 2 && self.has_entries()
    }

    /// True if free page-table entries are so few that chains should be collapsed.
    pub(super) fn is_low_on_entries(&self) -> bool {
        let table = self.volume.table();
        table.upper_limit() - table.upper_used() < table.upper_limit() / 8
    }

    /// The page with the longest version chain, if the chain can be collapsed.
    pub(super) fn longest_chain(&mut self) -> Result<Option<PageId>, SimError> {
        let Some((page, _)) = self.volume.longest_chain().filter(|(_, length)| *length > 1) else {
            return Ok(None);
        };
        Ok((!self.coalesce_plan(page)?.is_empty()).then_some(page))
    }

    /// True if a chain can be collapsed without using the blocks reserved for reclamation.
    pub(super) fn can_collapse_chains(&self) -> bool {
        self.free_for_host() > 0
    }

    /// True if free blocks are below the low watermark.
    pub(super) fn is_short_of_blocks(&self) -> bool {
        self.free_for_host() < self.low_watermark()
    }

    /// True if emptying a block moves more segments than it frees.
    pub(super) fn is_costly(&self, block: BlockId) -> bool {
        u32::from(self.volume.blocks().info(block).live) > self.layout.slots_per_block / 2
    }

    /// True if emptying a block frees at least an eighth of it.
    pub(super) fn is_worth_reclaiming(&self, block: BlockId) -> bool {
        self.volume.blocks().info(block).live <= self.max_live_of_victim()
    }

    fn max_live_of_victim(&self) -> u16 {
        (self.layout.slots_per_block / 8 * 7) as u16
    }

    /// True if the open epoch contains a write.
    pub(super) fn has_written(&self) -> bool {
        self.written
    }

    /// Erases of each block.
    pub(super) fn erases(&self) -> &[u32] {
        &self.erases
    }

    /// The low watermark: reclamation runs below this number of free blocks.
    pub(super) fn low_watermark(&self) -> u32 {
        self.open_blocks.len() as u32 / 2 + 2
    }

    /// Writes segments of a page in the open epoch. `None` if there is no room; the volume is then
    /// unchanged.
    pub(super) fn write(&mut self, page: PageId, segments: u16) -> Result<Option<PlacedSegments>, SimError> {
        let room = self.open_blocks[self.next].is_some_and(|head| {
            u32::from(head.used) + 2 * self.layout.per_page <= self.layout.slots_per_block
        });
        // An opened block may be full of bad segments, so two free blocks are required.
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
        self.advance_open_block();
        Ok(Some(placed))
    }

    /// Moves segments of a page's version with this stamp.
    pub(super) fn relocate(
        &mut self,
        page: PageId,
        stamp: Stamp,
        segments: u16,
    ) -> Result<PlacedSegments, SimError> {
        let placed = self.place(page, segments, true)?;
        for part in self.by_block(&placed) {
            self.with(|v| v.relocate(page, stamp, &part)).map_err(broken)?;
        }
        Ok(placed)
    }

    fn by_block(&self, placed: &PlacedSegments) -> Vec<PlacedSegments> {
        let mut parts: Vec<(BlockId, PlacedSegments)> = Vec::with_capacity(1);
        for &(segment, slot) in placed {
            let block = self.layout.block(slot);
            match parts.iter_mut().find(|(b, _)| *b == block) {
                Some((_, part)) => part.push((segment, slot)),
                None => parts.push((block, vec![(segment, slot)])),
            }
        }
        parts.into_iter().map(|(_, part)| part).collect()
    }

    /// Assigns slots to segments of a page, and opens blocks as needed.
    fn place(&mut self, page: PageId, segments: u16, moving: bool) -> Result<PlacedSegments, SimError> {
        let mut left: Vec<SegmentRef> = (0..self.layout.per_page as u8)
            .filter(|segment| segments >> segment & 1 != 0)
            .map(|segment| SegmentRef { page, segment })
            .collect();
        let mut placed = PlacedSegments::with_capacity(left.len());
        while !left.is_empty() {
            let mut head = match if moving { self.open_block_for_moves } else { self.open_blocks[self.next] }
            {
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
                self.open_block_for_moves = kept;
            } else {
                self.open_blocks[self.next] = kept;
            }
            left = rest;
        }
        Ok(placed)
    }

    fn open(&mut self, moving: bool) -> Result<OpenBlock, SimError> {
        self.sequence += 1;
        let Some(block) = self.volume.blocks_mut().open(u8::from(moving), self.sequence) else {
            return Err(SimError::Full {
                time_ps: self.now,
                what: "no block is free, including those reserved for reclamation".into(),
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
        Ok(OpenBlock { block, used: 0 })
    }

    /// A pseudo-random number in [0, 1) that depends on the seed, the slot and `what` only.
    fn chance(&self, what: u64, block: BlockId, index: u32) -> f64 {
        let mut x =
            self.seed ^ (what << 60) ^ self.layout.slot(block, index).0.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        // SplitMix64's finaliser.
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((x ^ (x >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// The segment that a slot was written for.
    fn owner(&self, block: BlockId, index: u32) -> Option<SegmentKey> {
        match &self.owners[block.0 as usize] {
            Some(owners) => owners.get(index as usize).copied().filter(|key| *key != NOBODY),
            None => self.layout.prefilled_key(block, index),
        }
    }

    /// The live segments of a block, each with its slot and stamp.
    pub(super) fn live_in(&mut self, block: BlockId) -> Result<Vec<(SegmentKey, Slot, Stamp)>, SimError> {
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

    /// Chooses the block to empty, and the page whose chain is collapsed with it. A block that holds a
    /// part of the longest chain (NVMM: longest chains first) is chosen if it gains at least half of
    /// what the block with the fewest live segments gains: versions that no token needs are dead
    /// already, so a long chain alone does not promise much gain. Otherwise the block with the fewest
    /// live segments is chosen. `None` if emptying a block gains nothing.
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
        // Segments of the chain in other blocks are moved as well; the room that they take is returned
        // later.
        let net = |block: BlockId| gain(block) - 2 * chain.iter().filter(|b| **b != block).count() as i32;
        let best = chain
            .iter()
            .copied()
            .filter(|block| blocks.info(*block).state == BlockState::Closed && !self.emptying.contains(block))
            .max_by_key(|b| (net(*b), *b));
        Ok(Some(match best {
            Some(block) if net(block) > 0 && 2 * net(block) >= gain(fewest) => (block, Some(page)),
            _ => (fewest, None),
        }))
    }

    /// The moves that make a page's version chain as short as its tokens allow.
    pub(super) fn coalesce_plan(&mut self, page: PageId) -> Result<Vec<(Stamp, PlacedSegments)>, SimError> {
        self.with(|v| v.coalesce_plan(page)).map_err(broken)
    }

    /// Excludes a block from victim selection while it is emptied.
    pub(super) fn hold(&mut self, block: BlockId) {
        self.emptying.push(block);
        self.volume.blocks_mut().pin(block);
    }

    /// The least worn block, if the most worn one has more than `spread` uses more.
    pub(super) fn wear_victim(&self, spread: u32) -> Option<BlockId> {
        if spread == 0 { None } else { self.volume.blocks().wear_victim(spread) }
    }

    /// Erases an emptied block, and marks its worn-out segments bad.
    pub(super) fn erased(&mut self, block: BlockId) -> Result<(), SimError> {
        self.emptying.retain(|held| *held != block);
        self.owners[block.0 as usize] = None;
        self.erases[block.0 as usize] += 1;
        let (endurance, deviation) = self.endurance;
        if deviation > 0.0 {
            let uses = f64::from(self.volume.blocks().info(block).uses);
            for index in 0..self.layout.slots_per_block {
                // A lognormal endurance, from two uniform pseudo-random numbers of the slot.
                let (a, b) = (self.chance(1, block, index), self.chance(2, block, index));
                let normal = (-2.0 * (1.0 - a).ln()).sqrt() * (std::f64::consts::TAU * b).cos();
                if uses >= endurance * (deviation * normal).exp() {
                    self.volume.blocks_mut().mark_bad(block, index as u16).map_err(|e| broken(e.into()))?;
                }
            }
        }
        let blocks = self.volume.blocks_mut();
        if blocks.capacity(block) < self.layout.slots_per_block as u16 / 2 {
            // More than half of the block is bad, so it is retired: no page would fit in one piece.
            return blocks.retire(block).map_err(|e| broken(e.into()));
        }
        blocks.erase(block).map_err(|e| broken(e.into()))
    }

    /// Closes the open epoch and returns its number, the token.
    pub(super) fn close_epoch(&mut self, time_ns: u64) -> Result<Epoch, SimError> {
        if self.volume.needs_renumber() {
            self.with(Volume::renumber).map_err(broken)?;
        }
        let token = self.with(|v| v.close_epoch(time_ns)).map_err(broken)?;
        self.written = false;
        while let Some(oldest) = self.volume.expired() {
            self.drop_token(oldest)?;
        }
        Ok(token)
    }

    /// Drops a token and the versions that only it needs.
    pub(super) fn drop_token(&mut self, token: Epoch) -> Result<(), SimError> {
        self.with(|v| v.drop_token(token)).map_err(broken)?;
        while self.with(|v| v.prune_step(1024)).map_err(broken)? > 0 {}
        Ok(())
    }

    pub(super) fn tokens(&self) -> &[TokenInfo] {
        self.volume.tokens()
    }

    /// Rolls back to a token's state. Returns the pages that changed since the token.
    pub(super) fn rollback(&mut self, token: Epoch) -> Result<Vec<PageId>, SimError> {
        let wrong = |error: VolumeError| SimError::config("token", error.to_string());
        let pages = self.volume.changed_since(token).map_err(wrong)?;
        self.with(|v| v.rollback(token)).map_err(wrong)?;
        Ok(pages)
    }

    /// Checks the laws that take little time.
    pub(super) fn check_counts(&self) -> Result<(), SimError> {
        let blocks = self.volume.blocks();
        let live: u64 = blocks.infos().iter().map(|info| u64::from(info.live)).sum();
        crate::flash::law("the live slots of all blocks are those counted", live, blocks.live_slots())
    }

    /// Checks the consistency of the whole volume; loads its whole table.
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

    /// Host memory of the tables, bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let owners = self.owners.iter().flatten().map(|owners| owners.len() * 4).sum::<usize>();
        self.volume.memory_bytes() + owners + self.owners.len() * size_of::<Option<Box<[SegmentKey]>>>()
    }
}

/// The volume with every page written; its table chunks are computed on first use.
fn populated(layout: &Layout, config: VolumeConfig, empty: &Volume) -> Result<Volume, SimError> {
    let chunks: Vec<_> = (0..layout.pages.div_ceil(256)).map(deepram_core::ChunkId).collect();
    let blocks = (0..layout.blocks)
        .map(|block| {
            let live = if block < layout.prefilled_blocks {
                layout.prefilled_live(BlockId(block)) as u16
            } else {
                0
            };
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
