//! Finding the end of the log, and telling a write that a power cut interrupted from damage.
//!
//! A batch that is not found ends the log, unless a later batch says that it was flushed: then it was durable,
//! and it is damaged. Later batches are looked for behind the end in the same block, in the block that the
//! stream goes on in, and in the blocks that the log would have opened next. The newest commit has no later batch,
//! for a while (`Store::confirm_commit`): until then its header's two copies and its parity sector stand in, from which
//! one damaged sector of it is rebuilt (ADR 26).

use std::collections::BTreeSet;

use deepram_core::ftl::BlockState;

use super::mark;
use super::recover::{LogDamage, MendedSlot, Recovery, state};
use super::{Log, Result, Store};
use crate::buffer::AlignedBuf;
use crate::error::PoolError;
use crate::format::batch::{self, BatchHeader, NextBlock, SlotKind};
use crate::format::codec::{FormatError, crc32c};
use crate::format::header::COUNTERS_END;
use crate::stats::add;

/// Blocks looked into for batches behind the end of the log, beside those that its batches name.
const LIKELY_BLOCKS: usize = 64;

/// The batches of a log.
#[derive(Default)]
struct Batches {
    /// Those that follow each other in their stream.
    found: Vec<BatchHeader>,
    /// Those that stand behind the end of a stream.
    beyond: Vec<BatchHeader>,
}

impl Recovery {
    /// Reads the log since the checkpoint up to the last commit that is whole.
    pub(super) fn read_log(&mut self, other_damaged: bool) -> Result<()> {
        let mut batches = Batches::default();
        let mut ends = Vec::new();
        for stream in 0..self.root.heads.len() {
            ends.extend(self.read_stream(stream as u8, other_damaged, &mut batches)?);
        }
        self.read_likely_blocks(&ends, &mut batches)?;
        let Batches { mut found, mut beyond } = batches;
        self.follow(&mut beyond)?;
        found.sort_by_key(|batch| batch.seq);
        let before = self.root.seq.saturating_sub(1);
        let run = (self.root.seq..).zip(&found).take_while(|(seq, batch)| batch.seq == *seq).count();
        let missing = self.root.seq + run as u64;
        if flushed(found[run..].iter().chain(&beyond)) >= missing {
            let later = found[run..].iter().chain(&beyond);
            let lost = later.filter_map(state).map(|state| state.token).max();
            self.damage = Some(LogDamage { batch: missing, lost });
        }
        self.last_seq = found.iter().chain(&beyond).map(|b| b.seq).fold(before, u64::max);
        // Earlier commits are whole, for each batch is flushed before the commit after it is written. Should
        // one of their segments be damaged, reading it will say so.
        let mut good = 0;
        for n in (0..run).rev().filter(|&n| found[n].is_commit()) {
            let durable = flushed(found[n + 1..].iter().chain(&beyond)) >= found[n].seq;
            if self.is_whole(&found[n])? || durable {
                good = n + 1;
                break;
            }
        }
        found.truncate(good);
        let newest = found.last().map_or(before, |batch| batch.seq);
        self.mended.retain(|mended| mended.batch <= newest);
        self.batches = found;
        Ok(())
    }

    /// Follows a stream from where the checkpoint left it until a batch is not there. Returns the blocks in
    /// which the batches behind its end may be.
    fn read_stream(
        &mut self,
        stream: u8,
        other_damaged: bool,
        batches: &mut Batches,
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
            self.read_slot(slot, &mut buffer)?;
            let batch = BatchHeader::decode(&buffer).ok().filter(|batch| self.is_ours(batch));
            let expected = batch.as_ref().is_some_and(|batch| {
                batch.stream == stream
                    && batch.block == block
                    && batch.index == index
                    && batch.block_sequence == sequence
                    && batch.seq > last_seq
                    && batch.seq < COUNTERS_END
                    && usize::from(index) + 1 + batch.slots.len() <= usize::from(slots)
            });
            let Some(batch) = batch.filter(|_| expected) else {
                let newer =
                    |batch: &BatchHeader| self.is_ours(batch) && batch.generation > self.header.generation;
                if other_damaged && BatchHeader::decode(&buffer).is_ok_and(|batch| newer(&batch)) {
                    // The damaged header copy was the newer one, and the log has gone on from it.
                    let (stored, computed) = (0, 0);
                    return Err(PoolError::DamagedPool {
                        device: self.device.name(),
                        what: "the newer header copy, and what the older one names has been written over",
                        source: FormatError::Checksum { what: "pool header", stored, computed },
                    });
                }
                self.read_ahead(block, index + 1, &mut batches.beyond)?;
                self.read_ahead(next.block, 0, &mut batches.beyond)?;
                return Ok(vec![NextBlock { block, sequence }, next]);
            };
            if !BatchHeader::has_both_copies(&buffer) {
                batch.encode(&mut buffer);
                let bytes = std::mem::replace(&mut buffer, AlignedBuf::zeroed(geometry.segment_bytes()));
                self.mended.push(MendedSlot { batch: batch.seq, slot, bytes });
            }
            last_seq = batch.seq;
            index += 1 + batch.slots.len() as u16;
            next = batch.next;
            batches.found.push(batch);
        }
    }

    /// Looks for batches behind the end of the log in the slots of a block from `from` on.
    fn read_ahead(&self, block: u32, from: u16, beyond: &mut Vec<BatchHeader>) -> Result<()> {
        let geometry = &self.header.geometry;
        if block >= geometry.blocks || from >= geometry.slots_per_block {
            return Ok(());
        }
        let segment = geometry.segment_bytes();
        let mut buffer = AlignedBuf::zeroed(usize::from(geometry.slots_per_block - from) * segment);
        let first = u64::from(block) * u64::from(geometry.slots_per_block) + u64::from(from);
        self.read_slot(first, &mut buffer)?;
        let headers = (from..).zip(buffer.chunks_exact(segment));
        beyond.extend(headers.filter_map(|(index, bytes)| self.decode_later(block, index, bytes)));
        Ok(())
    }

    /// Looks for batches behind the end of the log in the blocks that the log would have opened next: those that
    /// were free at the checkpoint, the least worn first, as [`deepram_core::ftl::Blocks`] chooses them.
    fn read_likely_blocks(&self, ends: &[NextBlock], batches: &mut Batches) -> Result<()> {
        let used = batches.found.iter().map(|batch| batch.block).chain(ends.iter().map(|end| end.block));
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
            batches.beyond.extend(self.decode_later(block, 0, &buffer));
        }
        Ok(())
    }

    /// Adds to the batches behind the end of the log all others in their blocks and in the blocks that their streams go on in.
    fn follow(&self, beyond: &mut Vec<BatchHeader>) -> Result<()> {
        let mut read = BTreeSet::new();
        let mut blocks: Vec<u32> = beyond.drain(..).map(|batch| batch.block).collect();
        while let Some(block) = blocks.pop() {
            if read.insert(block) {
                let known = beyond.len();
                self.read_ahead(block, 0, beyond)?;
                blocks.extend(beyond[known..].iter().map(|batch| batch.next.block));
            }
        }
        Ok(())
    }

    /// The header in this slot, if it is one that was written since the checkpoint.
    fn decode_later(&self, block: u32, index: u16, bytes: &[u8]) -> Option<BatchHeader> {
        let batch = BatchHeader::decode(bytes).ok()?;
        let later = self.is_ours(&batch)
            && (batch.block, batch.index) == (block, index)
            && batch.generation == self.header.generation
            && (self.root.seq..COUNTERS_END).contains(&batch.seq);
        later.then_some(batch)
    }

    fn is_ours(&self, batch: &BatchHeader) -> bool {
        batch.pool == mark(self.header.uuid) && batch.controller == self.header.controller
    }

    /// Whether every segment of a commit's batch is as its record says, or can be rebuilt.
    fn is_whole(&mut self, batch: &BatchHeader) -> Result<bool> {
        if batch.slots.is_empty() {
            return Ok(true);
        }
        let segment = self.header.geometry.segment_bytes();
        let first = u64::from(batch.block) * u64::from(self.header.geometry.slots_per_block)
            + u64::from(batch.index)
            + 1;
        let mut body = AlignedBuf::zeroed(batch.slots.len() * segment);
        self.read_slot(first, &mut body)?;
        let mut damaged = Vec::new();
        for (n, (record, bytes)) in batch.slots.iter().zip(body.chunks_exact_mut(segment)).enumerate() {
            match record.kind {
                // As it was written, whatever a torn write has left there.
                SlotKind::Pad => bytes.fill(0),
                _ if crc32c(bytes) != record.crc => damaged.push(n),
                _ => {}
            }
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
        self.mended.push(MendedSlot { batch: batch.seq, slot: first + n as u64, bytes });
        Ok(true)
    }
}

/// All batches up to this number were durable when these were written.
fn flushed<'a>(later: impl Iterator<Item = &'a BatchHeader>) -> u64 {
    later.map(|batch| batch.flushed.min(batch.seq.saturating_sub(1))).max().unwrap_or(0)
}

impl Store {
    /// Writes the slots anew that recovery mended.
    pub(super) fn write_mended(&self, log: &mut Log) -> Result<()> {
        let mended = std::mem::take(&mut log.mended);
        mended.iter().try_for_each(|mended| self.write_mended_slot(mended.slot, &mended.bytes))
    }

    /// Writes a slot anew in its place. All of its sectors but the damaged ones hold these bytes already, so that a
    /// power cut leaves it no worse.
    pub(super) fn write_mended_slot(&self, slot: u64, bytes: &[u8]) -> Result<()> {
        let written = self.write_durable(self.geometry.offset(slot), bytes);
        written.map_err(|source| self.device_error("writing a mended segment", source))?;
        add(&self.counters.bytes_written, bytes.len() as u64);
        Ok(())
    }

    /// Writes an empty batch behind a commit that has been the newest batch since the last call: it says that
    /// the commit is durable, so that a later opening knows damage to the commit from a write that was
    /// interrupted. Called in the background when the log has been idle.
    pub(super) fn confirm_commit(&self, log: &mut Log) -> Result<()> {
        let newest = log.seq - 1;
        if log.broken || log.newest_commit != newest {
            return Ok(());
        }
        if log.idle_since != newest {
            log.idle_since = newest;
            return Ok(());
        }
        self.ready(log, super::Stream::User, 0)?;
        self.write_pending(log, super::Stream::User)?;
        self.flush_log(log)
    }
}
