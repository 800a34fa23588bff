//! Reclamation (GC): moves live segments out of a block so that the block can be reused, and coalesces long version
//! chains.

use deepram_core::ftl::{CostBenefit, VictimPolicy};
use deepram_core::{BlockId, PageId, Stamp};

use super::space::max_live_to_reclaim;
use super::{Log, Result, Store, Stream, WriteItem};
use crate::error::PoolError;
use crate::format::batch::{SlotKind, SlotRecord};
use crate::format::codec::crc32c;
use crate::stats::add;
use deepram_linux::buffer::AlignedBuf;

/// Difference in block uses above which a cold, little-worn block is emptied, so that it wears like the others.
const WEAR_SPREAD: u32 = 256;
/// Live segments at most this many slots apart are read in one transfer, with the dead segments between them.
const READ_GAP: u16 = 4;

struct SegmentToMove {
    item: WriteItem,
    slot: u64,
    index: u16,
    crc: u32,
}

impl Store {
    /// Empties one block. Returns `false` if no block is worth it.
    pub(super) fn reclaim_one(&self, log: &mut Log) -> Result<bool> {
        let Some(victim) = self.victim(log) else { return Ok(false) };
        self.reclaim(log, victim)
    }

    fn reclaim(&self, log: &mut Log, victim: BlockId) -> Result<bool> {
        match self.empty(log, victim) {
            Ok(()) => add(&self.counters.blocks_reclaimed, 1),
            // A damaged segment cannot be read, but its block must not be discarded.
            Err(
                PoolError::Damaged { .. } | PoolError::DamagedPool { .. } | PoolError::Inconsistent { .. },
            ) => {
                log.damaged_blocks.insert(victim.0);
            }
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Moves the live segments of a block to other blocks.
    pub(super) fn empty(&self, log: &mut Log, victim: BlockId) -> Result<()> {
        if !self.lock_tables().summaries.knows(victim.0) {
            self.load_summary(victim.0)?;
        }
        let segments_to_move = self.live_in(victim)?;
        let live = usize::from(self.lock_tables().volume.blocks().info(victim).live);
        if segments_to_move.len() != live {
            return Err(self.records_missing(victim.0, segments_to_move.len(), live));
        }
        let mut data = AlignedBuf::zeroed(self.geometry.block_bytes() as usize);
        self.read_segments(victim, &segments_to_move, &mut data)?;
        let segment = self.geometry.segment_bytes();
        let items: Vec<WriteItem> = segments_to_move.iter().map(|m| m.item).collect();
        self.append(
            log,
            Stream::Reclaim,
            &items,
            &mut |wanted, buffers| {
                for (&item, buffer) in wanted.iter().zip(buffers) {
                    let at = usize::from(segments_to_move[item].index) * segment;
                    buffer.copy_from_slice(&data[at..at + segment]);
                }
            },
            &mut |_| {},
        )
    }

    fn victim(&self, log: &Log) -> Option<BlockId> {
        let tables = self.lock_tables();
        let blocks = tables.volume.blocks();
        let most = max_live_to_reclaim(&self.geometry);
        let mut eligible =
            |block: BlockId| blocks.info(block).live <= most && !log.damaged_blocks.contains(&block.0);
        CostBenefit.pick(blocks, log.block_sequence, &mut eligible)
    }

    /// Empties the least used block if other blocks have been used much more often.
    pub(super) fn level_wear(&self, log: &mut Log) -> Result<bool> {
        let worn = self.lock_tables().volume.blocks().wear_victim(WEAR_SPREAD);
        match worn.filter(|block| !log.damaged_blocks.contains(&block.0)) {
            Some(block) if self.can_move(log)? => self.reclaim(log, block),
            _ => Ok(false),
        }
    }

    /// Returns the live share of the emptiest block.
    pub(super) fn min_live_share(&self) -> f64 {
        let tables = self.lock_tables();
        let best = tables.volume.blocks().reclaimable().map(|(live, _)| live).min();
        best.map_or(1.0, |live| f64::from(live) / f64::from(self.geometry.slots_per_block))
    }

    /// Makes the error for a block with a damaged batch header, in which some live segments have no record.
    pub(super) fn records_missing(&self, block: u32, have: usize, live: usize) -> PoolError {
        self.inconsistent(format!(
            "block {block} holds {live} live segments, but its batch headers describe only {have} of them: a header is damaged"
        ))
    }

    /// Returns the live slots of a block whose records are in memory.
    pub(super) fn live_slots_in(&self, block: BlockId) -> Result<Vec<u64>> {
        Ok(self.live_in(block)?.iter().map(|mover| mover.slot).collect())
    }

    /// Returns the live segments of a block, by page and segment.
    fn live_in(&self, block: BlockId) -> Result<Vec<SegmentToMove>> {
        let records = self.lock_tables().summaries.records(block.0);
        let first = u64::from(block.0) * u64::from(self.geometry.slots_per_block);
        let mut segments_to_move = Vec::new();
        for (index, record) in records {
            if record.kind == SlotKind::Pad {
                continue;
            }
            let slot = first + u64::from(index);
            let SlotRecord { page, segment, crc, .. } = record;
            let page = PageId(page);
            let stamp = self.with_tables(|t| t.volume.is_live(page, segment, deepram_core::Slot(slot)))?;
            if let Some(stamp) = stamp {
                let item = WriteItem { page, segment, stamp: stamp.0, moved: true };
                segments_to_move.push(SegmentToMove { item, slot, index, crc });
            }
        }
        segments_to_move.sort_by_key(|m| (m.item.page, m.item.stamp, m.item.segment));
        Ok(segments_to_move)
    }

    /// Reads the segments to be moved into `data`.
    fn read_segments(
        &self,
        block: BlockId,
        segments_to_move: &[SegmentToMove],
        data: &mut [u8],
    ) -> Result<()> {
        let segment = self.geometry.segment_bytes();
        let first = u64::from(block.0) * u64::from(self.geometry.slots_per_block);
        let mut indices: Vec<u16> = segments_to_move.iter().map(|m| m.index).collect();
        indices.sort_unstable();
        for run in indices.chunk_by(|a, b| b - a <= READ_GAP) {
            let (start, end) = (run[0], run[run.len() - 1] + 1);
            let target = &mut data[usize::from(start) * segment..usize::from(end) * segment];
            let read = self.read_slot(first + u64::from(start), target);
            // With redundancy, each segment is read again below.
            if read.is_err() && self.geometry.redundancy.is_some() {
                target.fill(0);
            } else {
                read?;
            }
        }
        for mover in segments_to_move {
            let at = usize::from(mover.index) * segment;
            let bytes = &mut data[at..at + segment];
            let intact = crc32c(bytes) == mover.crc || self.read_or_rebuild(mover.slot, mover.crc, bytes)?;
            if !intact {
                let WriteItem { page, segment, stamp, .. } = mover.item;
                let epoch = self.lock_tables().volume.epoch_of(Stamp(stamp));
                return Err(self.damaged(page, segment, epoch, mover.slot));
            }
        }
        Ok(())
    }

    /// Rewrites the segments of the page with the longest version chain together, so that the chain has one entry for
    /// each state that a token sees (NVMM: longest chains first). Returns `false` if no chain can become shorter.
    pub(super) fn coalesce_longest(&self, log: &mut Log) -> Result<bool> {
        let longest = self.lock_tables().volume.longest_chain();
        let Some((page, length)) = longest.filter(|(_, length)| *length > 1) else { return Ok(false) };
        let plan = self.with_tables(|t| t.volume.coalesce_plan(page))?;
        let segment = self.geometry.segment_bytes();
        let mut buffer = AlignedBuf::zeroed(segment * usize::from(self.geometry.segment.per_page()));
        for (stamp, segments) in &plan {
            let mut items = Vec::with_capacity(segments.len());
            for (n, &(number, slot)) in segments.iter().enumerate() {
                let bytes = &mut buffer[n * segment..(n + 1) * segment];
                self.read_known(page, number, slot.0, bytes)?;
                items.push(WriteItem { page, segment: number, stamp: stamp.0, moved: true });
            }
            self.append(
                log,
                Stream::Reclaim,
                &items,
                &mut |wanted, buffers| {
                    for (&item, out) in wanted.iter().zip(buffers) {
                        out.copy_from_slice(&buffer[item * segment..(item + 1) * segment]);
                    }
                },
                &mut |_| {},
            )?;
        }
        let now = self.lock_tables().volume.longest_chain();
        Ok(now.is_none_or(|(other, shorter)| other != page || shorter < length))
    }
}
