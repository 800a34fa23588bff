//! Moves chunks as huge pages: from flash through a stage into memory, and out again into a stage.
//!
//! A chunk that has been moved into memory can be stored to until it is protected. So its checksum is computed before and
//! after: if the two differ, the segments that were stored to are dirty.

use std::ops::Range;

use deepram_core::PageId;
use deepram_core::paging::PoolWatermarks;
use deepram_core::paging::huge_pages::{CHUNK_BYTES, ChunkState, MAX_RUNS, SwapSlot, runs_of_slots};
use deepram_core::paging::stages::StageOrder;
use deepram_pager::contents_checksum;

use super::huge_pages::Contents;
use super::{Cache, CacheState, Index};
use crate::device::ReadQueue;
use crate::format::codec::crc32c;
use crate::stats::add;
use crate::store::{Fetched, SlotLocation};

/// Location of a segment on a device.
#[derive(Debug, Clone, Copy)]
struct Located {
    index: Index,
    /// Number of the controller.
    store: u32,
    slot: u64,
    crc: u32,
}

impl SwapSlot for Located {
    fn follows(&self, other: &Self) -> bool {
        self.store == other.store && self.slot == other.slot + 1
    }
}

impl Cache {
    /// Body of a stager thread: fills stages until the cache stops.
    pub(crate) fn run_stager(&self) {
        // Most pools never stage a chunk: the ring of the queue waits for the first order.
        let mut queue = None;
        while let Some(order) = self.next_order() {
            let reads = queue.get_or_insert_with(|| {
                ReadQueue::new(self.stores[0].device(), MAX_RUNS as u16, self.faults.io_uring)
            });
            let filled = self.fill_stage(order, reads);
            self.finish_order(order, filled);
        }
    }

    /// Waits for the next order; `None` when the cache stops.
    fn next_order(&self) -> Option<StageOrder> {
        let mut state = self.lock();
        while !state.stopping {
            if let Some(order) = state.chunks.stages.next_order() {
                if state.chunks.stages.begin_order(order, self.now()) {
                    return Some(order);
                }
                continue;
            }
            state = self.lock_or_halt(self.stage_work.wait(state));
        }
        None
    }

    /// Fills a stage with a chunk's bytes, checked. Returns their checksum and what they are; `None` if the chunk is not
    /// staged: its segments are filled one by one, and an error shows then.
    fn fill_stage(
        &self,
        order: StageOrder,
        reads: &mut ReadQueue<&'static mut [u8]>,
    ) -> Option<(u64, Contents)> {
        let StageOrder { stage, chunk, .. } = order;
        let (range, generation) = {
            let state = self.lock();
            if !state.chunks.state(chunk).is_in(stage) {
                return None;
            }
            (state.chunks.range(chunk), state.generation)
        };
        let located = self.locate_chunk(range)?;
        let runs = runs_of_slots(&located)?;
        if !self.obtain_page(stage) {
            return None;
        }
        let memory = self.staging.as_ref()?.bytes(stage);
        // SAFETY: the stage has a page, and belongs to this thread, which does not use the bytes otherwise before all
        // reads have completed; the queue waits for them also when it is dropped.
        let mut rest = unsafe { &mut *memory };
        self.counters.histograms.read_begins();
        let (mut first_of_request, mut segments) = ([0; MAX_RUNS], 0);
        for (first, count) in runs {
            let here;
            (here, rest) = rest.split_at_mut(count * self.segment_bytes);
            let (store, request) = (&self.stores[first.store as usize], reads.request()?);
            first_of_request[request] = segments;
            segments += count;
            reads.start(request, store.device(), store.geometry().offset(first.slot), here);
        }
        // Each run is verified while others are read.
        let mut verified = true;
        while let Some(ended) = reads.next() {
            let run = &located[first_of_request[ended.request]..];
            verified = verified && ended.result.is_ok() && self.verify_run(run, ended.slot);
        }
        self.counters.histograms.read_ends();
        if !verified {
            return None;
        }
        add(&self.counters.readahead_segments, located.len() as u64);
        let crcs = located.iter().map(|located| located.crc).collect();
        // SAFETY: as above, and all reads have completed.
        Some((contents_checksum(unsafe { &*memory }), Contents { generation, crcs }))
    }

    /// Verifies the bytes of a run of segments, the first of `located`. Returns whether all are data that passed.
    fn verify_run(&self, located: &[Located], bytes: &mut [u8]) -> bool {
        located.iter().zip(bytes.chunks_exact_mut(self.segment_bytes)).all(|(located, bytes)| {
            let (store, page, segment) = self.store_of(located.index);
            let verified = store.verify_read(page, segment, located.crc, Ok(()), bytes);
            matches!(verified, Ok(Fetched::Data))
        })
    }

    /// Looks up where the segments of a chunk are. `None` if one was never written, or its page may not be read and
    /// written: a frame moves only to memory that may be written.
    fn locate_chunk(&self, range: Range<Index>) -> Option<Vec<Located>> {
        let mut checked: Option<(u32, PageId)> = None;
        range
            .map(|index| {
                let (store, page, segment) = self.store_of(index);
                let key = (index / self.stride, page);
                if checked != Some(key) {
                    let status = store.status(page).ok()?;
                    if !(status.allocated() && status.readable() && status.writable()) {
                        return None;
                    }
                    checked = Some(key);
                }
                match store.locate_slot(page, segment) {
                    Ok(SlotLocation::Slot { slot, crc }) => Some(Located { index, store: key.0, slot, crc }),
                    Ok(SlotLocation::Unwritten) | Err(_) => None,
                }
            })
            .collect()
    }

    /// Obtains a huge page for a stage: a new one while frames are free, or the page of a chunk that is evicted.
    fn obtain_page(&self, stage: usize) -> bool {
        let Some((staging, uffd)) = self.staging.as_ref().zip(self.region.watcher()) else { return false };
        loop {
            let mut state = self.lock();
            if state.stopping || state.chunks.stages.has_page(stage) {
                return !state.stopping;
            }
            let marks = self.watermarks();
            let more = state.chunks.segments as usize + marks.headroom();
            if marks.missing(state.frames(), more) == 0 {
                // Charged first: other threads check the budget at the same time.
                state.chunks.stages.set_has_page(stage, true);
                drop(state);
                let populated = staging.populate(uffd, stage);
                if populated.is_err() {
                    self.lock().chunks.stages.set_has_page(stage, false);
                }
                return populated.is_ok();
            }
            if self.evict(&mut state, PoolWatermarks::DROPPED_TOGETHER, Some(stage)) == 0 {
                return false;
            }
            self.notify_waiters(&state);
        }
    }

    /// Ends an order: the stage waits for the chunk's first use, unless a thread waits already.
    fn finish_order(&self, StageOrder { stage, chunk, .. }: StageOrder, filled: Option<(u64, Contents)>) {
        let mut state = self.lock();
        let now = self.now();
        let staged = state.chunks.state(chunk);
        match (staged, filled) {
            (ChunkState::Staged { waits, .. }, Some((before, contents))) if staged.is_in(stage) => {
                state.chunks.contents[stage] = contents;
                if waits {
                    self.install_staged(&mut state, chunk, stage, before);
                } else {
                    state.chunks.stages.mark_ready(stage, before, now);
                }
            }
            _ => {
                state.chunks.stages.release(stage, now);
                if staged.is_in(stage) {
                    state.chunks.states[chunk] = ChunkState::Small;
                    self.wake_chunk(&mut state, chunk);
                }
            }
        }
    }

    /// Moves a chunk from its stage, which belongs to the caller, into memory, wakes the threads that wait for it, and
    /// stages the next chunks. If that is not possible, the chunk is small and absent.
    pub(super) fn install_staged(&self, state: &mut CacheState, chunk: usize, stage: usize, before: u64) {
        let contents = std::mem::take(&mut state.chunks.contents[stage]);
        state.chunks.states[chunk] = ChunkState::Small;
        let range = state.chunks.range(chunk);
        let (first, all) = (range.start, range.len());
        // A store before the protection counts as one that was admitted.
        let usable = !state.stopping
            && contents.generation == state.generation
            && [first, range.end - 1].iter().all(|&index| self.admit(state, index, all).is_ok());
        let arrived = if usable { self.move_in(state, chunk, stage) } else { 0 };
        state.chunks.stages.release(stage, self.now());
        self.stage_from(state, chunk + 1);
        if arrived == all {
            state.chunks.states[chunk] = ChunkState::Huge;
            state.policy.insert(first);
            add(&self.counters.huge_pages, 1);
        }
        self.wake_chunk(state, chunk);
        self.find_early_stores(state, chunk, arrived, before, &contents.crcs);
        self.notify_waiters(state);
        self.notify_evictor(state);
    }

    /// Moves a stage's page to its chunk, write-protected. Returns the number of segments that are resident then, from
    /// the first one on; if not all, they are in the policy one by one.
    fn move_in(&self, state: &mut CacheState, chunk: usize, stage: usize) -> usize {
        let Some(staging) = &self.staging else { return 0 };
        let (offset, range) = (self.chunk_offset(chunk), state.chunks.range(chunk));
        // The bytes in the device buffer are the same.
        state.buffer.remove_range(range.clone());
        let moved = self.region.move_in(offset, staging.address(stage));
        state.chunks.refused = if moved == 0 { state.chunks.refused + 1 } else { 0 };
        if moved == 0 {
            return 0;
        }
        #[cfg(test)]
        self.moved.get().into_iter().for_each(|hook| hook(offset));
        let mut end = moved;
        if moved < CHUNK_BYTES {
            // A thread may have stored to the part of a segment that was moved: the other part is copied.
            end = moved.next_multiple_of(self.segment_bytes);
            // SAFETY: pages that were not moved are in the stage, which belongs to the caller.
            let bytes = unsafe { &*staging.bytes(stage) };
            let copied = self.region.install(offset + moved, &bytes[moved..end], true);
            self.halt_on_error(state, "UFFDIO_COPY", range.start, copied);
            self.drop_stage_page(state, stage);
        } else {
            state.chunks.stages.set_has_page(stage, false);
        }
        let protected = self.region.protect(offset, end);
        self.halt_on_error(state, "UFFDIO_WRITEPROTECT", range.start, protected);
        let count = end / self.segment_bytes;
        state.resident += count;
        add(&self.counters.fills, count as u64);
        for index in range.clone().take(count) {
            state.segments[index as usize].end_fill();
            if count < range.len() {
                state.policy.insert(index);
            }
        }
        count
    }

    /// Finds the segments among the first `count` of a chunk that threads stored to after the chunk was moved and before
    /// it was protected, by their checksums, and makes them dirty.
    fn find_early_stores(
        &self,
        state: &mut CacheState,
        chunk: usize,
        count: usize,
        before: u64,
        crcs: &[u32],
    ) {
        if count == 0 || state.halted.is_some() {
            return;
        }
        let range = state.chunks.range(chunk);
        // SAFETY: the segments are resident and protected, and the lock is held: no thread stores to them.
        let bytes = unsafe { self.region.stable_bytes(self.chunk_offset(chunk), count * self.segment_bytes) };
        if count == range.len() && contents_checksum(bytes) == before {
            return;
        }
        let each = bytes.chunks_exact(self.segment_bytes);
        let changed = |(bytes, crc): &(&[u8], &u32)| crc32c(bytes) != **crc;
        let mut stored: Vec<Index> = range
            .clone()
            .zip(each.zip(crcs))
            .filter(|(_, segment)| changed(segment))
            .map(|(index, _)| index)
            .collect();
        if stored.is_empty() && count == range.len() {
            // The longer checksum differs, so one of the shorter ones is equal by chance.
            stored.extend(range);
        }
        for index in stored {
            if let Err(error) = self.open_for_stores(state, index) {
                return self.halt(state, &error.to_string());
            }
        }
    }

    /// Drops the segments of a huge page that [`Cache::take_huge`] returned, and moves the page into a stage that has
    /// none, if the kernel agrees. Returns their number.
    pub(super) fn move_out(&self, state: &mut CacheState, segments: Range<Index>, stage: usize) -> usize {
        let Some(staging) = &self.staging else { return 0 };
        if self.region.move_out(self.offset(segments.start), staging.address(stage)) == CHUNK_BYTES {
            state.chunks.stages.set_has_page(stage, true);
        } else {
            // The contents are on flash.
            self.drop_stage_page(state, stage);
        }
        self.drop_clean(state, segments.collect())
    }
}
