//! Filling blocks: segments go out in batches, several under way at once, and are named in the
//! tables when their write has returned.

use std::collections::VecDeque;
use std::sync::mpsc;

use deepram_core::placement::{SegmentRef, place};
use deepram_core::{BlockId, Epoch, PageId, Slot, Stamp};

use super::{Head, Log, Result, Store};
use crate::buffer::AlignedBuf;
use crate::format::batch::{self, BatchHeader, Meta, NextBlock, SlotKind, SlotRecord};
use crate::format::codec::crc32c;
use crate::format::header::Geometry;
use crate::stats::add;

/// Writes under way at once.
pub(super) const QUEUE_DEPTH: usize = 4;
/// Write buffers: under way, being gathered, and one at hand.
pub(super) const BUFFERS: usize = QUEUE_DEPTH + FILL_AHEAD + 1;
/// Most bytes of one write: large enough for any device's full sequential rate.
const MAX_BATCH_BYTES: usize = 1 << 20;
/// A sync of at most so many segments goes out with its commit as one durable write.
const SMALL_SYNC: usize = 64;
/// Bytes that a commit's own metadata take in its header, at most.
const COMMIT_METAS: usize = 26;
/// Up to so many segments are gathered by the thread that writes them: another would not pay.
const SERIAL: usize = 512;
/// Batches that the gathering thread is ahead.
const FILL_AHEAD: usize = 2;
/// Most segments between two looks at how much room there is.
const ROUND: usize = 8192;
/// How often a batch is tried on another block before its error is given to the caller.
const TRIES: usize = 3;

/// Slots of the longest batch whose header holds as much metadata as [`Store::spill_pending`] leaves.
pub(super) fn batch_slots(geometry: &Geometry) -> usize {
    let segment = geometry.segment_bytes();
    let header = BatchHeader::capacity(segment, pending_limit(segment), false) + 1;
    header.min(buffer_bytes(geometry) / segment)
}

/// Bytes of metadata that wait for the next batch, at most.
fn pending_limit(segment: usize) -> usize {
    BatchHeader::meta_capacity(segment) / 4
}

/// Bytes of a write buffer.
pub(super) fn buffer_bytes(geometry: &Geometry) -> usize {
    MAX_BATCH_BYTES.min(geometry.block_bytes() as usize)
}

/// Who fills a block: segments of like lifetime stay together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    /// What the user wrote.
    User = 0,
    /// What reclamation moved.
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

/// Gives the contents of the items with these numbers.
pub(crate) type Fill<'a> = &'a mut (dyn FnMut(&[usize], &mut [&mut [u8]]) + Send);
/// Is told the numbers of the items that the tables name now.
pub(crate) type Published<'a> = &'a mut dyn FnMut(&[usize]);

/// A batch that has its place in the log, on its way to being written.
struct Plan {
    stream: Stream,
    seq: u64,
    head: Head,
    metas: Vec<Meta>,
    /// Item number of each slot after the header.
    placed: Vec<Option<usize>>,
    buffer: AlignedBuf,
}

/// A batch whose write is under way.
struct Batch {
    tag: u64,
    head: Head,
    /// Item number and record of each slot after the header.
    slots: Vec<(Option<usize>, SlotRecord)>,
    bytes: u64,
    done: Option<std::io::Result<()>>,
}

impl Store {
    /// Writes items and names them in the tables. Nothing is durable yet.
    ///
    /// On an error some items may have been published, and `published` was told which.
    pub(crate) fn append(
        &self,
        log: &mut Log,
        stream: Stream,
        items: &[WriteItem],
        fill: Fill<'_>,
        published: Published<'_>,
    ) -> Result<()> {
        self.ensure_sound()?;
        self.heed_failures(log);
        let mut rest: Vec<usize> = (0..items.len()).collect();
        let mut failures = 0;
        while !rest.is_empty() {
            // Making room may write a checkpoint, which must not pass by batches under way: so it
            // comes before each round, and a round asks for no more than was made.
            let mut left: Vec<usize> = rest.drain(..rest.len().min(ROUND)).collect();
            self.ready(log, stream, left.len())?;
            let mut under_way = VecDeque::new();
            let mut result =
                self.append_round(log, stream, items, &mut left, &mut under_way, fill, published);
            log.queue.drain();
            let mut failed = None;
            while let Some(batch) = under_way.pop_front() {
                let (batch, outcome) = self.outcome(log, &mut under_way, batch);
                match outcome {
                    // A batch that is on flash but not in the tables: see below.
                    Ok(()) if result.is_err() => {}
                    Ok(()) => result = self.publish(log, &batch, items, published),
                    Err(error) => {
                        left.extend(batch.slots.iter().filter_map(|(item, _)| *item));
                        failed = Some(error);
                    }
                }
            }
            if failed.is_some() || result.is_err() {
                // The blocks being filled are suspect, or hold what the tables do not name: go on
                // in others.
                log.broken = true;
                self.abandon_heads(log)?;
            }
            result?;
            rest.splice(0..0, left);
            if let Some(source) = failed {
                failures += 1;
                if failures == TRIES {
                    return Err(self.device_error("writing segments", source));
                }
                rest.sort_unstable();
            }
        }
        Ok(())
    }

    /// One pass over `left`, leaving in `under_way` what has not been published. Large ones have
    /// their contents gathered on another thread while this one places, submits and publishes.
    #[expect(clippy::too_many_arguments, reason = "one pass of `append`, split off for its length")]
    fn append_round(
        &self,
        log: &mut Log,
        stream: Stream,
        items: &[WriteItem],
        left: &mut Vec<usize>,
        under_way: &mut VecDeque<Batch>,
        fill: Fill<'_>,
        published: Published<'_>,
    ) -> Result<()> {
        if left.len() <= SERIAL {
            while !left.is_empty() {
                let mut plan = self.plan_batch(log, stream, items, left, &[])?;
                self.fill_batch(&mut plan, fill);
                under_way.push_back(self.submit_batch(log, plan, items)?);
                if !self.publish_done(log, under_way, items, published)? {
                    break;
                }
            }
            return Ok(());
        }
        std::thread::scope(|scope| {
            let (to_fill, plans) = mpsc::channel::<Plan>();
            let (to_submit, filled) = mpsc::channel::<Plan>();
            scope.spawn(move || {
                for mut plan in plans {
                    self.fill_batch(&mut plan, fill);
                    if to_submit.send(plan).is_err() {
                        return;
                    }
                }
            });
            let mut ahead = 0;
            let mut result = Ok(());
            loop {
                while ahead < FILL_AHEAD && result.is_ok() && !left.is_empty() {
                    match self.plan_batch(log, stream, items, left, &[]) {
                        Ok(plan) => ahead += usize::from(to_fill.send(plan).is_ok()),
                        Err(error) => result = Err(error),
                    }
                }
                if ahead == 0 {
                    return result;
                }
                let Ok(plan) = filled.recv() else { return result };
                ahead -= 1;
                if result.is_err() {
                    // Its number is used and its place is left: the log has a gap.
                    log.broken = true;
                    left.extend(plan.placed.iter().flatten());
                    log.queue.give_back(plan.buffer);
                    continue;
                }
                under_way.push_back(self.submit_batch(log, plan, items)?);
                if !self.publish_done(log, under_way, items, published)? {
                    // Nothing new after a failure; `result` stays good for the caller to try again.
                    while let Some(plan) = (ahead > 0).then(|| filled.recv().ok()).flatten() {
                        ahead -= 1;
                        log.broken = true;
                        left.extend(plan.placed.iter().flatten());
                        log.queue.give_back(plan.buffer);
                    }
                    return result;
                }
            }
        })
    }

    /// Publishes, in order, the batches that are done; `false` after a failed one.
    fn publish_done(
        &self,
        log: &mut Log,
        under_way: &mut VecDeque<Batch>,
        items: &[WriteItem],
        published: Published<'_>,
    ) -> Result<bool> {
        while let Some(completion) = log.queue.completed() {
            if let Some(batch) = under_way.iter_mut().find(|b| b.tag == completion.tag) {
                batch.done = Some(completion.result);
            }
        }
        while under_way.front().is_some_and(|b| matches!(b.done, Some(Ok(())))) {
            let Some(batch) = under_way.pop_front() else { break };
            self.publish(log, &batch, items, published)?;
        }
        Ok(!under_way.iter().any(|b| matches!(b.done, Some(Err(_)))))
    }

    fn outcome(
        &self,
        log: &mut Log,
        others: &mut VecDeque<Batch>,
        mut batch: Batch,
    ) -> (Batch, std::io::Result<()>) {
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

    /// Decides on a batch of as many of `left` as fit, and takes those off `left`. From here on
    /// its place in the log is taken.
    fn plan_batch(
        &self,
        log: &mut Log,
        stream: Stream,
        items: &[WriteItem],
        left: &mut Vec<usize>,
        commit: &[Meta],
    ) -> Result<Plan> {
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
        let placed = self.arrange(head, most, items, left);
        let advanced = Head { index: head.index + 1 + placed.len() as u16, ..head };
        log.heads[stream as usize] = Some(advanced);
        self.note_used(advanced)?;
        let seq = log.seq;
        log.seq += 1;
        Ok(Plan { stream, seq, head, metas, placed, buffer: log.queue.buffer() })
    }

    /// Puts the contents in place.
    fn fill_batch(&self, plan: &mut Plan, fill: Fill<'_>) {
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

    /// Takes the checksums of a filled batch and starts or, for a commit, carries out its write.
    fn submit_batch(&self, log: &mut Log, plan: Plan, items: &[WriteItem]) -> Result<Batch> {
        // If not, it may not have been filled.
        self.ensure_sound()?;
        let segment = self.geometry.segment_bytes();
        let Plan { stream, seq, head, metas, placed, mut buffer } = plan;
        let len = (1 + placed.len()) * segment;
        let records: Vec<SlotRecord> = placed
            .iter()
            .zip(buffer[segment..len].chunks_exact(segment))
            .map(|(slot, bytes)| slot.map_or(SlotRecord::PAD, |item| record(&items[item], bytes)))
            .collect();
        let mut header = BatchHeader {
            pool: self.pool_mark(),
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
        add(&self.counters.bytes_written, len as u64);
        add(&self.counters.bytes_tables, segment as u64);
        let slots = placed.into_iter().zip(records).collect();
        Ok(Batch { tag: seq, head, slots, bytes: len as u64, done })
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
    ) -> Result<Batch> {
        let mut plan = self.plan_batch(log, stream, items, left, commit)?;
        self.fill_batch(&mut plan, fill);
        self.submit_batch(log, plan, items)
    }

    /// Chooses slots after the header for as many of `left` as fit in `most` slots; takes these
    /// off `left`.
    fn arrange(
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

    /// Names a written batch in the tables.
    fn publish(
        &self,
        log: &mut Log,
        batch: &Batch,
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
        add(&self.counters.bytes_user, data * segment);
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

    /// Applies the records of consecutive slots to the tables: the same at run time and in
    /// recovery.
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

    /// The place where a stream writes next, with room for a header and a segment.
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

    /// Leaves the blocks being filled as they are and goes on in others.
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
                    tables.volume.blocks_mut().close(BlockId(block))
                };
                left.map_err(|error| self.inconsistent(error.to_string()))?;
            }
        }
        Ok(())
    }

    // -- Commit ------------------------------------------------------------------------------

    /// Writes `items`, few enough for one batch, and makes everything up to here the state of
    /// `epoch`. The epoch is closed in the tables by the caller afterwards.
    pub(crate) fn commit(
        &self,
        log: &mut Log,
        commit: Commit,
        items: &[WriteItem],
        fill: Fill<'_>,
        published: Published<'_>,
    ) -> Result<()> {
        self.ensure_sound()?;
        self.ready(log, Stream::User, items.len() + 1)?;
        self.heed_failures(log);
        if log.broken {
            self.checkpoint(log)?;
        }
        if log.broken {
            return Err(self.no_space(self.geometry.block_bytes(), 0));
        }
        // What came before must not be later on flash than the commit that counts on it.
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
            // What was pending is in the tables: the checkpoint that comes before the next commit has it.
            log.broken = true;
            self.heed_failures(log);
            self.abandon_heads(log)?;
            return Err(self.device_error("writing a commit", source));
        }
        log.flushed = batch.tag;
        log.newest_commit = batch.tag;
        let result = self.publish(log, &batch, items, published);
        if result.is_err() {
            // The commit is on flash, the epoch stays open: only a checkpoint can go on from here.
            log.broken = true;
        }
        result
    }

    /// Whether so many segments, with the metadata that waits, go into one batch with a commit.
    pub(crate) fn is_small(&self, log: &Log, segments: usize) -> bool {
        let metas: usize = log.pending.iter().map(|m| m.encoded_len()).sum();
        let room = match log.heads[Stream::User as usize] {
            Some(head) => usize::from(self.geometry.slots_per_block - head.index).saturating_sub(2),
            None => usize::from(self.geometry.slots_per_block) - 2,
        };
        // Placement may leave gaps at the start of a block; one page's worth covers them.
        let with_gaps = segments + usize::from(self.geometry.segment.per_page());
        let header = BatchHeader::capacity(self.geometry.segment_bytes(), metas + COMMIT_METAS, true);
        segments <= SMALL_SYNC && !log.broken && with_gaps <= room.min(header)
    }

    /// Makes room in the next header: metadata that fills more than a part of it goes out alone,
    /// in as many batches as that takes. It keeps its order, and all of it is in the log before
    /// or with what is written next, so that no block is filled anew before the log says why it could be.
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

    /// Writes a batch of nothing but the metadata that waits.
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

/// What a commit makes current.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Commit {
    /// The open epoch is closed; it has the line log's groups up to `lines`.
    Epoch { epoch: Epoch, wall_ns: u64, lines: u64 },
    /// State is that of `token` again, whatever the groups up to `lines` say.
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
