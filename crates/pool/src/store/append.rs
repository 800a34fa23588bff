//! Appending to the log: segments are written to blocks in batches, with several writes in flight, and enter the
//! tables after their write has returned.

use std::collections::VecDeque;

use deepram_core::paging::PoolWatermarks;
use deepram_core::placement::{SegmentRef, place};
use deepram_core::{BlockId, Epoch, PageId, Slot, Stamp};

use super::{Head, Log, Result, Store};
use crate::format::batch::{self, BatchHeader, Meta, NextBlock, SlotKind, SlotRecord};
use crate::format::codec::crc32c;
use crate::format::header::Geometry;
use crate::stats::add;
use deepram_linux::buffer::AlignedBuf;

/// Write buffers: those in flight, and one that is filled meanwhile.
pub(super) const BUFFERS: usize = PoolWatermarks::WRITES_IN_FLIGHT + 1;
/// A sync of at most this many segments is written together with its commit, in one durable write.
const SMALL_SYNC: usize = 64;
/// Largest size of a commit's own metadata in its header, in bytes.
const COMMIT_METAS: usize = 26;
/// Largest number of segments between two checks of the free space.
const ROUND_SEGMENTS: usize = 8192;
/// Number of attempts to write a batch, each in another block, before the caller gets the error.
const WRITE_ATTEMPTS: usize = 3;

/// Returns the slots of the longest batch whose header holds as much metadata as [`Store::spill_pending`] leaves.
pub(super) fn batch_slots(geometry: &Geometry) -> usize {
    let segment = geometry.segment_bytes();
    let header = BatchHeader::capacity(segment, pending_limit(segment), false) + 1;
    header.min(buffer_bytes(geometry) / segment)
}

/// Returns the largest size of the metadata that waits for the next batch, in bytes.
fn pending_limit(segment: usize) -> usize {
    BatchHeader::meta_capacity(segment) / 4
}

/// Returns the size of a write buffer, in bytes.
pub(super) fn buffer_bytes(geometry: &Geometry) -> usize {
    PoolWatermarks::WRITE_BYTES.min(geometry.block_bytes() as usize)
}

/// A stream of batches fills its own blocks, so that segments with similar lifetimes stay together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Segments that the user wrote.
    User = 0,
    /// Segments that reclamation moved.
    Reclaim = 1,
}

impl Stream {
    pub(crate) const COUNT: usize = 2;
}

/// A segment to be written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WriteItem {
    pub(crate) page: PageId,
    pub(crate) segment: u8,
    pub(crate) stamp: u32,
    pub(crate) moved: bool,
}

/// Fills buffers with the contents of the items with the given numbers.
pub(crate) type Fill<'a> = &'a mut dyn FnMut(&[usize], &mut [&mut [u8]]);
/// Receives the numbers of the items that the tables now name.
pub(crate) type Published<'a> = &'a mut dyn FnMut(&[usize]);

/// A batch with a position in the log, before its write.
struct BatchPlan {
    stream: Stream,
    seq: u64,
    head: Head,
    metas: Vec<Meta>,
    /// Item number of each slot after the header.
    placed: Vec<Option<usize>>,
    buffer: AlignedBuf,
}

/// A batch whose write is in flight.
struct BatchInFlight {
    tag: u64,
    head: Head,
    /// Item number and record of each slot after the header.
    slots: Vec<(Option<usize>, SlotRecord)>,
    bytes: u64,
    done: Option<std::io::Result<()>>,
}

impl Store {
    /// Writes items to flash and names them in the tables. The items are not yet durable.
    ///
    /// On an error some items may have been published, and `published` has received their numbers.
    pub(crate) fn append(
        &self,
        log: &mut Log,
        stream: Stream,
        items: &[WriteItem],
        fill: Fill<'_>,
        published: Published<'_>,
    ) -> Result<()> {
        self.ensure_sound()?;
        self.note_failed_flushes(log);
        let mut rest: Vec<usize> = (0..items.len()).collect();
        let mut failures = 0;
        while !rest.is_empty() {
            // Making room may write a checkpoint, which must not overtake batches in flight. So room is made before
            // each round, and a round uses no more than that.
            let mut left: Vec<usize> = rest.drain(..rest.len().min(ROUND_SEGMENTS)).collect();
            self.prepare_append(log, stream, left.len())?;
            let mut in_flight = VecDeque::new();
            let mut may_go_on = Ok(true);
            while matches!(may_go_on, Ok(true)) && !left.is_empty() {
                may_go_on = self.start_batch(log, stream, items, &mut left, fill, &[]).and_then(|batch| {
                    in_flight.push_back(batch);
                    self.publish_done(log, &mut in_flight, items, published)
                });
            }
            let mut result = may_go_on.map(drop);
            log.queue.drain();
            let mut failed = None;
            while let Some(batch) = in_flight.pop_front() {
                let (batch, outcome) = self.outcome(log, &mut in_flight, batch);
                match outcome {
                    // This batch stays on flash without entering the tables; see below.
                    Ok(()) if result.is_err() => {}
                    Ok(()) => result = self.publish(log, &batch, items, published),
                    Err(error) => {
                        left.extend(batch.slots.iter().filter_map(|(item, _)| *item));
                        failed = Some(error);
                    }
                }
            }
            if failed.is_some() || result.is_err() {
                // The blocks being filled are suspect, or hold batches that the tables do not name: go on in other
                // blocks.
                log.broken = true;
                self.abandon_heads(log)?;
            }
            result?;
            rest.splice(0..0, left);
            if let Some(source) = failed {
                failures += 1;
                if failures == WRITE_ATTEMPTS {
                    return Err(self.device_error("writing segments", source));
                }
                rest.sort_unstable();
            }
        }
        Ok(())
    }

    /// Publishes the completed batches in order; returns `false` after a failed one.
    fn publish_done(
        &self,
        log: &mut Log,
        in_flight: &mut VecDeque<BatchInFlight>,
        items: &[WriteItem],
        published: Published<'_>,
    ) -> Result<bool> {
        while let Some(completion) = log.queue.completed() {
            if let Some(batch) = in_flight.iter_mut().find(|b| b.tag == completion.tag) {
                batch.done = Some(completion.result);
            }
        }
        while in_flight.front().is_some_and(|b| matches!(b.done, Some(Ok(())))) {
            let Some(batch) = in_flight.pop_front() else { break };
            self.publish(log, &batch, items, published)?;
        }
        Ok(!in_flight.iter().any(|b| matches!(b.done, Some(Err(_)))))
    }

    fn outcome(
        &self,
        log: &mut Log,
        others: &mut VecDeque<BatchInFlight>,
        mut batch: BatchInFlight,
    ) -> (BatchInFlight, std::io::Result<()>) {
        while let Some(completion) = log.queue.completed() {
            if completion.tag == batch.tag {
                batch.done = Some(completion.result);
            } else if let Some(other) = others.iter_mut().find(|b| b.tag == completion.tag) {
                other.done = Some(completion.result);
            }
        }
        let outcome = batch.done.take().unwrap_or_else(|| Err(std::io::Error::other("the write was lost")));
        match outcome {
            Ok(()) => drop(log.fresh.remove(&batch.head.block)),
            Err(_) => log.broken = true,
        }
        (batch, outcome)
    }

    /// Plans a batch of as many items of `left` as fit, and removes these items from `left`. From here on the batch's
    /// position in the log is taken.
    fn plan_batch(
        &self,
        log: &mut Log,
        stream: Stream,
        items: &[WriteItem],
        left: &mut Vec<usize>,
        commit: &[Meta],
    ) -> Result<BatchPlan> {
        let segment = self.geometry.segment_bytes();
        let head = self.head(log, stream)?;
        let mut metas = std::mem::take(&mut log.pending);
        metas.extend(commit);
        let meta_len = metas.iter().map(|m| m.encoded_len()).sum();
        let room = usize::from(self.geometry.slots_per_block - head.index) - 1;
        let most = room.min(buffer_bytes(&self.geometry) / segment - 1).min(BatchHeader::capacity(
            segment,
            meta_len,
            !commit.is_empty(),
        ));
        let placed = self.choose_slots(head, most, items, left);
        let advanced = Head { index: head.index + 1 + placed.len() as u16, ..head };
        log.heads[stream as usize] = Some(advanced);
        self.note_used(advanced)?;
        let seq = log.seq;
        log.seq += 1;
        Ok(BatchPlan { stream, seq, head, metas, placed, buffer: log.queue.buffer() })
    }

    /// Fills the buffer of a batch with the contents of its items.
    fn fill_batch(&self, plan: &mut BatchPlan, fill: Fill<'_>) {
        let segment = self.geometry.segment_bytes();
        let body = &mut plan.buffer[segment..(1 + plan.placed.len()) * segment];
        let mut wanted = Vec::with_capacity(plan.placed.len());
        let mut targets = Vec::with_capacity(plan.placed.len());
        for (slot, bytes) in plan.placed.iter().zip(body.chunks_exact_mut(segment)) {
            match slot {
                Some(item) => {
                    wanted.push(*item);
                    targets.push(bytes);
                }
                None => bytes.fill(0),
            }
        }
        fill(&wanted, &mut targets);
    }

    /// Computes the checksums of a filled batch and starts its write; a commit is written synchronously.
    fn submit_batch(&self, log: &mut Log, plan: BatchPlan, items: &[WriteItem]) -> Result<BatchInFlight> {
        // If the store has stopped, the buffer may not have been filled.
        self.ensure_sound()?;
        let segment = self.geometry.segment_bytes();
        let BatchPlan { stream, seq, head, metas, placed, mut buffer } = plan;
        let len = (1 + placed.len()) * segment;
        let records: Vec<SlotRecord> = placed
            .iter()
            .zip(buffer[segment..len].chunks_exact(segment))
            .map(|(slot, bytes)| slot.map_or(SlotRecord::PAD, |item| record(&items[item], bytes)))
            .collect();
        let mut header = BatchHeader {
            pool: self.uuid_prefix(),
            controller: self.identity.controller,
            stream: stream as u8,
            seq,
            block: head.block,
            index: head.index,
            block_sequence: head.sequence,
            next: head.next,
            flushed: log.flushed,
            generation: log.generation,
            metas,
            slots: records.clone(),
            parity: None,
        };
        if header.is_commit() && !placed.is_empty() {
            header.parity = Some(batch::parity(&buffer[segment..len]));
        }
        header.encode(&mut buffer[..segment]);
        let slot = u64::from(head.block) * u64::from(self.geometry.slots_per_block) + u64::from(head.index);
        let offset = self.geometry.offset(slot);
        let done = if header.is_commit() {
            let result = self.write_durable(offset, &buffer[..len]);
            log.queue.give_back(buffer);
            Some(result)
        } else {
            log.unflushed.insert(head.block);
            log.queue.write(seq, offset, buffer, len);
            None
        };
        log.since_checkpoint += len as u64;
        self.count_written(len as u64);
        add(&self.counters.bytes_tables, segment as u64);
        let slots = placed.into_iter().zip(records).collect();
        Ok(BatchInFlight { tag: seq, head, slots, bytes: len as u64, done })
    }

    /// Plans, fills and submits one batch.
    fn start_batch(
        &self,
        log: &mut Log,
        stream: Stream,
        items: &[WriteItem],
        left: &mut Vec<usize>,
        fill: Fill<'_>,
        commit: &[Meta],
    ) -> Result<BatchInFlight> {
        let mut plan = self.plan_batch(log, stream, items, left, commit)?;
        self.fill_batch(&mut plan, fill);
        self.submit_batch(log, plan, items)
    }

    /// Chooses slots after the header for as many items of `left` as fit into `most` slots, and removes these items
    /// from `left`.
    fn choose_slots(
        &self,
        head: Head,
        most: usize,
        items: &[WriteItem],
        left: &mut Vec<usize>,
    ) -> Vec<Option<usize>> {
        let first = head.index + 1;
        let candidates = &left[..left.len().min(most)];
        let refs: Vec<SegmentRef> = candidates
            .iter()
            .map(|&item| SegmentRef { page: items[item].page, segment: items[item].segment })
            .collect();
        let tables = self.lock_tables();
        let blocks = tables.volume.blocks();
        let usable = |index: u16| blocks.usable(BlockId(head.block), index);
        let placement = place(first, first + most as u16, &usable, &refs, self.geometry.segment);
        drop(tables);
        let mut slots = vec![None; usize::from(placement.end(first) - first)];
        let mut taken = vec![false; candidates.len()];
        for (n, slot) in placement.slots.iter().enumerate() {
            if let Some(slot) = slot {
                slots[*slot as usize - usize::from(first)] = Some(candidates[n]);
                taken[n] = true;
            }
        }
        let mut n = 0;
        left.retain(|_| {
            let keep = !taken.get(n).copied().unwrap_or(false);
            n += 1;
            keep
        });
        slots
    }

    fn note_used(&self, head: Head) -> Result<()> {
        let mut tables = self.lock_tables();
        tables
            .volume
            .blocks_mut()
            .set_used(BlockId(head.block), head.index)
            .map_err(|error| self.inconsistent(error.to_string()))
    }

    /// Names the segments of a written batch in the tables.
    fn publish(
        &self,
        log: &mut Log,
        batch: &BatchInFlight,
        items: &[WriteItem],
        published: Published<'_>,
    ) -> Result<()> {
        log.fresh.remove(&batch.head.block);
        let first = u64::from(batch.head.block) * u64::from(self.geometry.slots_per_block)
            + u64::from(batch.head.index)
            + 1;
        let records: Vec<SlotRecord> = batch.slots.iter().map(|(_, record)| *record).collect();
        self.note_records(batch.head.block, batch.head.index + 1, &records);
        self.apply_records(first, &records)?;
        let segment = self.geometry.segment_bytes() as u64;
        let moved = records.iter().filter(|r| r.kind == SlotKind::Moved).count() as u64;
        let data = records.iter().filter(|r| r.kind == SlotKind::Data).count() as u64;
        add(&self.counters.bytes_moved, moved * segment);
        self.count_user(data * segment);
        self.update_room();
        debug_assert!(
            batch.bytes > 0 && items.len() >= records.iter().filter(|r| r.kind != SlotKind::Pad).count()
        );
        let numbers: Vec<usize> = batch.slots.iter().filter_map(|(item, _)| *item).collect();
        published(&numbers);
        debug_assert!(log.seq > batch.tag);
        Ok(())
    }

    pub(super) fn note_records(&self, block: u32, first: u16, records: &[SlotRecord]) {
        let mut tables = self.lock_tables();
        for (index, record) in (first..).zip(records) {
            tables.summaries.set(block, index, *record);
        }
    }

    /// Applies the records of consecutive slots to the tables. Normal operation and recovery both use this function.
    pub(super) fn apply_records(&self, first: u64, records: &[SlotRecord]) -> Result<()> {
        let mut order: Vec<usize> =
            (0..records.len()).filter(|&n| records[n].kind != SlotKind::Pad).collect();
        let key = |n: &usize| (records[*n].page, records[*n].stamp, records[*n].kind as u8);
        order.sort_by_key(|n| (key(n), *n));
        for version in order.chunk_by(|a, b| key(a) == key(b)) {
            let record = records[version[0]];
            let placed: Vec<(u8, Slot)> =
                version.iter().map(|&n| (records[n].segment, Slot(first + n as u64))).collect();
            let page = PageId(record.page);
            match record.kind {
                SlotKind::Moved => {
                    self.with_tables(|t| t.volume.relocate(page, Stamp(record.stamp), &placed))?
                }
                _ => self.with_tables(|t| t.volume.apply(page, &placed))?,
            }
        }
        Ok(())
    }

    /// Returns the position at which a stream writes next, with room for a header and a segment.
    pub(super) fn head(&self, log: &mut Log, stream: Stream) -> Result<Head> {
        let head = log.heads[stream as usize];
        let full = |head: &Head| head.index + 2 > self.geometry.slots_per_block;
        if let Some(head) = head.filter(|h| !full(h)) {
            return Ok(head);
        }
        let mut tables = self.lock_tables();
        let (block, sequence) = match head {
            Some(full) => {
                let closed = tables.volume.blocks_mut().close(BlockId(full.block));
                closed.map_err(|error| self.inconsistent(error.to_string()))?;
                tables.summaries.close(full.block);
                log.parity.note_closed(full.block, full.sequence);
                (full.next.block, full.next.sequence)
            }
            None => self.open_block(log, &mut tables, stream)?,
        };
        let (next, next_sequence) = self.open_block(log, &mut tables, stream)?;
        tables.summaries.open(block);
        drop(tables);
        let next = NextBlock { block: next, sequence: next_sequence };
        let head = Head { block, index: 0, sequence, next };
        log.heads[stream as usize] = Some(head);
        Ok(head)
    }

    fn open_block(&self, log: &mut Log, tables: &mut super::Tables, stream: Stream) -> Result<(u32, u64)> {
        let sequence = log.block_sequence;
        let Some(block) = tables.volume.blocks_mut().open(stream as u8, sequence) else {
            return Err(self.no_space(self.geometry.block_bytes(), 0));
        };
        log.block_sequence += 1;
        log.fresh.insert(block.0);
        tables.summaries.forget(block.0);
        Ok((block.0, sequence))
    }

    /// Leaves the blocks being filled as they are and goes on in other blocks.
    pub(super) fn abandon_heads(&self, log: &mut Log) -> Result<()> {
        let mut tables = self.lock_tables();
        let heads: Vec<Head> = log.heads.iter_mut().filter_map(Option::take).collect();
        for head in heads {
            for block in [head.block, head.next.block] {
                // A device that fails for a while must not use up all blocks.
                let left = if log.fresh.remove(&block) {
                    tables.summaries.forget(block);
                    tables.volume.blocks_mut().free_unwritten(BlockId(block))
                } else {
                    tables.summaries.close(block);
                    if block == head.block {
                        log.parity.note_closed(block, head.sequence);
                    }
                    tables.volume.blocks_mut().close(BlockId(block))
                };
                left.map_err(|error| self.inconsistent(error.to_string()))?;
            }
        }
        Ok(())
    }

    // -- Commit ------------------------------------------------------------------------------

    /// Writes `items`, few enough for one batch, and commits everything up to here as the state of `epoch`. The
    /// caller closes the epoch in the tables afterwards.
    pub(crate) fn commit(
        &self,
        log: &mut Log,
        commit: Commit,
        items: &[WriteItem],
        fill: Fill<'_>,
        published: Published<'_>,
    ) -> Result<()> {
        self.ensure_sound()?;
        self.prepare_append(log, Stream::User, items.len() + 1)?;
        self.note_failed_flushes(log);
        if log.broken {
            self.checkpoint(log)?;
        }
        if log.broken {
            return Err(self.no_space(self.geometry.block_bytes(), 0));
        }
        // Earlier batches must reach flash before the commit that relies on them.
        self.flush_log(log)?;
        let meta = match commit {
            Commit::Epoch { epoch, wall_ns, .. } => Meta::Commit { epoch: epoch.0, wall_ns },
            Commit::Rollback { token, open, .. } => Meta::Rollback { token: token.0, open: open.0 },
        };
        let (Commit::Epoch { lines, .. } | Commit::Rollback { lines, .. }) = commit;
        let lines = log.ring.as_ref().map(|_| Meta::Lines { group: lines });
        let metas: Vec<Meta> = lines.into_iter().chain([meta]).collect();
        let mut left: Vec<usize> = (0..items.len()).collect();
        let batch = self.start_batch(log, Stream::User, items, &mut left, fill, &metas)?;
        debug_assert!(left.is_empty(), "the caller keeps to SMALL_SYNC and one header");
        if let Some(Err(source)) = batch.done {
            // The pending changes are in the tables: the checkpoint before the next
            // commit includes them.
            log.broken = true;
            self.note_failed_flushes(log);
            self.abandon_heads(log)?;
            return Err(self.device_error("writing a commit", source));
        }
        log.flushed = batch.tag;
        log.newest_commit = batch.tag;
        let result = self.publish(log, &batch, items, published);
        if result.is_err() {
            // The commit is on flash, but the epoch stays open: only a checkpoint can go on from here.
            log.broken = true;
        }
        result
    }

    /// Returns whether this many segments, with the pending metadata, fit into one batch with a commit.
    pub(crate) fn fits_one_batch(&self, log: &Log, segments: usize) -> bool {
        let metas: usize = log.pending.iter().map(|m| m.encoded_len()).sum();
        let room = match log.heads[Stream::User as usize] {
            Some(head) => usize::from(self.geometry.slots_per_block - head.index).saturating_sub(2),
            None => usize::from(self.geometry.slots_per_block) - 2,
        };
        // Placement may leave gaps at the start of a block; one page's worth of slots covers them.
        let with_gaps = segments + usize::from(self.geometry.segment.per_page());
        let header = BatchHeader::capacity(self.geometry.segment_bytes(), metas + COMMIT_METAS, true);
        segments <= SMALL_SYNC && !log.broken && with_gaps <= room.min(header)
    }

    /// Makes room in the next header: if the pending metadata exceeds its part of a header, it is written in batches
    /// of its own. The metadata keeps its order, and all of it is in the log before or with the next write, so that
    /// no block is reused before the log says why it could be.
    pub(super) fn spill_pending(&self, log: &mut Log, stream: Stream) -> Result<()> {
        let limit = pending_limit(self.geometry.segment_bytes());
        while log.pending.iter().map(|m| m.encoded_len()).sum::<usize>() > limit {
            let mut size = 0;
            let fits = log
                .pending
                .iter()
                .take_while(|m| {
                    size += m.encoded_len();
                    size <= limit
                })
                .count();
            let all = log.pending.clone();
            let rest = log.pending.split_off(fits);
            if let Err(error) = self.write_pending(log, stream) {
                log.pending = all;
                return Err(error);
            }
            log.pending = rest;
        }
        Ok(())
    }

    /// Writes a batch that holds only pending metadata.
    pub(super) fn write_pending(&self, log: &mut Log, stream: Stream) -> Result<()> {
        let batch = self.start_batch(log, stream, &[], &mut Vec::new(), &mut |_, _| {}, &[])?;
        log.queue.drain();
        let (batch, outcome) = self.outcome(log, &mut VecDeque::new(), batch);
        debug_assert!(batch.slots.is_empty());
        outcome.or_else(|source| {
            self.abandon_heads(log)?;
            Err(self.device_error("writing metadata", source))
        })
    }
}

/// The state that a commit makes current.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Commit {
    /// The open epoch is closed; it includes the groups of the line log up to `lines`.
    Epoch { epoch: Epoch, wall_ns: u64, lines: u64 },
    /// The state is that of `token` again; the groups of the line log up to `lines` no longer count.
    Rollback { token: Epoch, open: Epoch, lines: u64 },
}

fn record(item: &WriteItem, bytes: &[u8]) -> SlotRecord {
    SlotRecord {
        kind: if item.moved { SlotKind::Moved } else { SlotKind::Data },
        page: item.page.0,
        segment: item.segment,
        stamp: item.stamp,
        crc: crc32c(bytes),
    }
}
