//! Finds the end of the log, and distinguishes a write that a power cut interrupted from damage.
//!
//! The log ends at a missing batch, unless a later batch says that the missing one was flushed: then it was durable
//! and is damaged. Recovery looks for later batches after the end in the same block, in the block in which the stream
//! goes on, and in the blocks that the log would have opened next. For a while the newest commit has no later batch
//! (`Store::confirm_commit`); until then, the two copies of its header and its parity sector allow recovery to
//! rebuild one damaged sector of it (ADR 26).

use std::collections::BTreeSet;

use deepram_core::ftl::BlockState;

use super::recover::{LogDamage, Recovery, RepairedSlot, state};
use super::uuid_prefix;
use super::{Log, Result, Store};
use crate::error::PoolError;
use crate::format::batch::{self, BatchHeader, NextBlock, SlotKind};
use crate::format::codec::{FormatError, crc32c};
use crate::format::header::COUNTERS_END;
use crate::stats::add;
use deepram_linux::buffer::AlignedBuf;

/// Blocks searched for batches after the end of the log, in addition to the blocks that its batches name.
const LIKELY_BLOCKS: usize = 64;

/// The batches of a log.
#[derive(Default)]
struct LogBatches {
    /// Batches that follow each other in their stream.
    in_order: Vec<BatchHeader>,
    /// Batches after the end of a stream.
    after_end: Vec<BatchHeader>,
}

impl Recovery {
    /// Reads the log since the checkpoint, up to the last intact commit.
    pub(super) fn read_log(&mut self, other_damaged: bool) -> Result<()> {
        let mut batches = LogBatches::default();
        let mut ends = Vec::new();
        for stream in 0..self.root.heads.len() {
            ends.extend(self.read_stream(stream as u8, other_damaged, &mut batches)?);
        }
        self.search_likely_blocks(&ends, &mut batches)?;
        let LogBatches { in_order: mut found, mut after_end } = batches;
        self.add_related(&mut after_end)?;
        found.sort_by_key(|batch| batch.seq);
        let before = self.root.seq.saturating_sub(1);
        let run = (self.root.seq..).zip(&found).take_while(|(seq, batch)| batch.seq == *seq).count();
        let missing = self.root.seq + run as u64;
        if flushed(found[run..].iter().chain(&after_end)) >= missing {
            let later = found[run..].iter().chain(&after_end);
            let lost = later.filter_map(state).map(|state| state.token).max();
            self.damage = Some(LogDamage { batch: missing, lost });
        }
        self.last_seq = found.iter().chain(&after_end).map(|b| b.seq).fold(before, u64::max);
        // Earlier commits are complete, because each batch is flushed before the commit that follows it. If one of
        // their segments is damaged, reading that segment returns the error.
        let mut good = 0;
        for n in (0..run).rev().filter(|&n| found[n].is_commit()) {
            let durable = flushed(found[n + 1..].iter().chain(&after_end)) >= found[n].seq;
            if self.is_intact(&found[n])? || durable {
                good = n + 1;
                break;
            }
        }
        found.truncate(good);
        let newest = found.last().map_or(before, |batch| batch.seq);
        self.repaired.retain(|repaired| repaired.batch <= newest);
        self.batches = found;
        Ok(())
    }

    /// Follows a stream from its position in the checkpoint to the first missing batch. Returns the blocks that may
    /// hold batches after that.
    fn read_stream(
        &mut self,
        stream: u8,
        other_damaged: bool,
        batches: &mut LogBatches,
    ) -> Result<Vec<NextBlock>> {
        let geometry = self.header.geometry;
        let slots = geometry.slots_per_block;
        let Some(head) = self.root.heads[usize::from(stream)] else { return Ok(Vec::new()) };
        let (mut block, mut index, mut sequence, mut next) =
            (head.block, head.index, head.sequence, head.next);
        let mut buffer = AlignedBuf::zeroed(geometry.segment_bytes());
        let mut last_seq = self.root.seq.saturating_sub(1);
        loop {
            if index + 2 > slots {
                NextBlock { block, sequence } = next;
                index = 0;
            }
            if block >= geometry.blocks {
                return Ok(Vec::new());
            }
            let slot = u64::from(block) * u64::from(slots) + u64::from(index);
            let read = self.read_slot(slot, &mut buffer);
            let expected = |batch: &BatchHeader| {
                self.is_ours(batch)
                    && batch.stream == stream
                    && batch.block == block
                    && batch.index == index
                    && batch.block_sequence == sequence
                    && batch.seq > last_seq
                    && batch.seq < COUNTERS_END
                    && usize::from(index) + 1 + batch.slots.len() <= usize::from(slots)
            };
            let decode = |bytes: &[u8]| BatchHeader::decode(bytes).ok().filter(expected);
            let mut batch = if read.is_ok() { decode(&buffer) } else { None };
            let mut is_rebuilt = false;
            if let (None, Some(stripes)) = (&batch, &self.stripes) {
                let mut bytes = AlignedBuf::zeroed(buffer.len());
                if stripes.rebuild_slot(slot, sequence, &mut bytes, &|bytes| decode(bytes).is_some()) {
                    (batch, buffer, is_rebuilt) = (decode(&bytes), bytes, true);
                }
            }
            let Some(batch) = batch else {
                read?;
                let newer =
                    |batch: &BatchHeader| self.is_ours(batch) && batch.generation > self.header.generation;
                if other_damaged && BatchHeader::decode(&buffer).is_ok_and(|batch| newer(&batch)) {
                    // The damaged header copy was the newer one, and the log has gone on from it.
                    let (stored, computed) = (0, 0);
                    return Err(PoolError::DamagedPool {
                        device: self.device.name(),
                        what: "the newer header copy, and the data of the older copy has been overwritten",
                        source: FormatError::Checksum { what: "pool header", stored, computed },
                    });
                }
                self.search_block(block, index + 1, &mut batches.after_end)?;
                self.search_block(next.block, 0, &mut batches.after_end)?;
                return Ok(vec![NextBlock { block, sequence }, next]);
            };
            if is_rebuilt || !BatchHeader::has_both_copies(&buffer) {
                batch.encode(&mut buffer);
                let bytes = std::mem::replace(&mut buffer, AlignedBuf::zeroed(geometry.segment_bytes()));
                self.repaired.push(RepairedSlot { batch: batch.seq, slot, bytes });
            }
            last_seq = batch.seq;
            index += 1 + batch.slots.len() as u16;
            next = batch.next;
            batches.in_order.push(batch);
        }
    }

    /// Searches the slots of a block, from `from` on, for batches after the end of the log.
    fn search_block(&self, block: u32, from: u16, after_end: &mut Vec<BatchHeader>) -> Result<()> {
        let geometry = &self.header.geometry;
        if block >= geometry.blocks || from >= geometry.slots_per_block {
            return Ok(());
        }
        let segment = geometry.segment_bytes();
        let mut buffer = AlignedBuf::zeroed(usize::from(geometry.slots_per_block - from) * segment);
        let first = u64::from(block) * u64::from(geometry.slots_per_block) + u64::from(from);
        self.read_slot(first, &mut buffer)?;
        let headers = (from..).zip(buffer.chunks_exact(segment));
        after_end.extend(headers.filter_map(|(index, bytes)| self.decode_later(block, index, bytes)));
        Ok(())
    }

    /// Searches for batches after the end of the log in the blocks that the log would have opened next: those that
    /// were free at the checkpoint, the least worn first, as [`deepram_core::ftl::Blocks`] chooses them.
    fn search_likely_blocks(&self, ends: &[NextBlock], batches: &mut LogBatches) -> Result<()> {
        let used = batches.in_order.iter().map(|batch| batch.block).chain(ends.iter().map(|end| end.block));
        let used: BTreeSet<u32> = used.collect();
        let blocks = (0..).zip(&self.root.snapshot.blocks);
        let mut likely: Vec<(u32, u32)> = blocks
            .filter(|(block, info)| {
                let dead = matches!(info.state, BlockState::Closed | BlockState::Sealed) && info.live == 0;
                (dead || info.state == BlockState::Free) && !used.contains(block)
            })
            .map(|(block, info)| (info.uses, block))
            .collect();
        likely.sort_unstable();
        let mut buffer = AlignedBuf::zeroed(self.header.geometry.segment_bytes());
        for &(_, block) in likely.iter().take(LIKELY_BLOCKS) {
            self.read_slot(u64::from(block) * u64::from(self.header.geometry.slots_per_block), &mut buffer)?;
            batches.after_end.extend(self.decode_later(block, 0, &buffer));
        }
        Ok(())
    }

    /// Adds the other batches in the blocks of these batches, and in the blocks in which their streams go on.
    fn add_related(&self, after_end: &mut Vec<BatchHeader>) -> Result<()> {
        let mut read = BTreeSet::new();
        let mut blocks: Vec<u32> = after_end.drain(..).map(|batch| batch.block).collect();
        while let Some(block) = blocks.pop() {
            if read.insert(block) {
                let known = after_end.len();
                self.search_block(block, 0, after_end)?;
                blocks.extend(after_end[known..].iter().map(|batch| batch.next.block));
            }
        }
        Ok(())
    }

    /// Decodes the header in this slot if it was written since the checkpoint.
    fn decode_later(&self, block: u32, index: u16, bytes: &[u8]) -> Option<BatchHeader> {
        let batch = BatchHeader::decode(bytes).ok()?;
        let later = self.is_ours(&batch)
            && (batch.block, batch.index) == (block, index)
            && batch.generation == self.header.generation
            && (self.root.seq..COUNTERS_END).contains(&batch.seq);
        later.then_some(batch)
    }

    fn is_ours(&self, batch: &BatchHeader) -> bool {
        batch.pool == uuid_prefix(self.header.uuid) && batch.controller == self.header.controller
    }

    /// Returns whether every segment of a commit's batch matches its record, or can be rebuilt.
    fn is_intact(&mut self, batch: &BatchHeader) -> Result<bool> {
        if batch.slots.is_empty() {
            return Ok(true);
        }
        let segment = self.header.geometry.segment_bytes();
        let first = u64::from(batch.block) * u64::from(self.header.geometry.slots_per_block)
            + u64::from(batch.index)
            + 1;
        let mut body = AlignedBuf::zeroed(batch.slots.len() * segment);
        let read = self.read_slot(first, &mut body);
        // With redundancy, segments that cannot be read are rebuilt below.
        if self.stripes.is_none() {
            read?;
        }
        let mut damaged = Vec::new();
        for (n, (record, bytes)) in batch.slots.iter().zip(body.chunks_exact_mut(segment)).enumerate() {
            match record.kind {
                // The segment as it was written, whatever a torn write has left in the slot.
                SlotKind::Pad => bytes.fill(0),
                _ if crc32c(bytes) != record.crc => damaged.push(n),
                _ => {}
            }
        }
        if let Some(stripes) = &self.stripes {
            damaged.retain(|&n| {
                let mut bytes = AlignedBuf::zeroed(segment);
                let (slot, crc) = (first + n as u64, batch.slots[n].crc);
                let accept = |bytes: &[u8]| crc32c(bytes) == crc;
                let rebuilt = stripes.rebuild_slot(slot, batch.block_sequence, &mut bytes, &accept);
                if rebuilt {
                    body[n * segment..(n + 1) * segment].copy_from_slice(&bytes);
                    self.repaired.push(RepairedSlot { batch: batch.seq, slot, bytes });
                }
                !rebuilt
            });
        }
        let (n, parity) = match (&damaged[..], &batch.parity) {
            ([], _) => return Ok(true),
            ([n], Some(parity)) => (*n, parity),
            _ => return Ok(false),
        };
        if !batch::rebuild(&mut body, n * segment, segment, batch.slots[n].crc, parity) {
            return Ok(false);
        }
        let mut bytes = AlignedBuf::zeroed(segment);
        bytes.copy_from_slice(&body[n * segment..(n + 1) * segment]);
        self.repaired.push(RepairedSlot { batch: batch.seq, slot: first + n as u64, bytes });
        Ok(true)
    }
}

/// Returns the highest batch number that was durable when these batches were written.
fn flushed<'a>(later: impl Iterator<Item = &'a BatchHeader>) -> u64 {
    later.map(|batch| batch.flushed.min(batch.seq.saturating_sub(1))).max().unwrap_or(0)
}

impl Store {
    /// Rewrites the slots that recovery repaired.
    pub(super) fn rewrite_repaired(&self, log: &mut Log) -> Result<()> {
        let repaired = std::mem::take(&mut log.repaired);
        add(&self.counters.segments_repaired, repaired.len() as u64);
        repaired.iter().try_for_each(|repaired| self.rewrite_slot(repaired.slot, &repaired.bytes))
    }

    /// Rewrites a slot in place. Its intact sectors already hold these bytes, so a power cut during the write cannot
    /// make the slot worse.
    pub(super) fn rewrite_slot(&self, slot: u64, bytes: &[u8]) -> Result<()> {
        let written = self.write_durable(self.geometry.offset(slot), bytes);
        written.map_err(|source| self.device_error("rewriting a repaired segment", source))?;
        self.count_written(bytes.len() as u64);
        Ok(())
    }

    /// Writes an empty batch after a commit that has been the newest batch since the last call. The empty batch
    /// proves that the commit is durable, so that a later opening can distinguish damage to the commit from an
    /// interrupted write. Called in the background when the log is idle.
    pub(super) fn confirm_commit(&self, log: &mut Log) -> Result<()> {
        let newest = log.seq - 1;
        if log.broken || log.newest_commit != newest {
            return Ok(());
        }
        if log.idle_since != newest {
            log.idle_since = newest;
            return Ok(());
        }
        self.prepare_append(log, super::Stream::User, 0)?;
        self.write_pending(log, super::Stream::User)?;
        self.flush_log(log)
    }
}
