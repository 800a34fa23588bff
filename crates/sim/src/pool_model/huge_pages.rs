//! Huge pages of the simulated pool: chunks that a stream reads arrive through stages, are clean, and leave whole.

use std::ops::Range;
use std::time::Duration;

use deepram_core::paging::huge_pages::{
    CHUNK_BYTES, POOL_STAGED_AHEAD, chunk_behind, runs_of_slots, segments_may_be_staged,
};
use deepram_core::paging::stages::{IDLE_AFTER, STALE_AFTER};
use deepram_core::paging::{PoolWatermarks, Window};
use deepram_core::units::Picos;

use super::{PoolModel, PoolModelEvent};
use crate::host::{Context, Slot};
use crate::staging::{ChunkWait, OrderEnd, Place, StagedFault};

impl PoolModel {
    /// Segments of a chunk.
    pub(super) fn chunk_segments(&self) -> usize {
        CHUNK_BYTES / self.options.segment.0 as usize
    }

    pub(super) fn chunk(&self, segment: u32) -> usize {
        segment as usize / self.chunk_segments()
    }

    fn segments_of(&self, chunk: usize) -> Range<usize> {
        chunk * self.chunk_segments()..(chunk + 1) * self.chunk_segments()
    }

    /// Stages the chunks behind a long readahead window.
    pub(super) fn stage_behind(&mut self, window: Window, now: Picos) {
        if let Some(first) = chunk_behind(window, self.options.segment.0 as usize) {
            self.stage_from(first / CHUNK_BYTES, now);
        }
    }

    fn stage_from(&mut self, chunk: usize, now: Picos) {
        (chunk..chunk + POOL_STAGED_AHEAD).for_each(|chunk| self.stage(chunk, now));
    }

    /// Stages a chunk if that is possible and a stage is free, or has been ready and unused for a while.
    fn stage(&mut self, chunk: usize, now: Picos) {
        let range = self.segments_of(chunk);
        if !self.staging.may_stage(chunk) || !segments_may_be_staged(&self.segments[range.clone()]) {
            return;
        }
        let Some(stage) = self.staging.claim(STALE_AFTER, now) else { return };
        for segment in range.filter(|segment| self.segments[*segment].is_resident()).collect::<Vec<_>>() {
            self.policy.remove(segment as u32);
            self.drop_clean(segment);
        }
        self.staging.order(stage, chunk, now);
    }

    /// Serves a fault on a staged chunk. Returns false if the segment's chunk is not staged.
    pub(super) fn fault_on_staged(
        &mut self,
        segment: u32,
        write: bool,
        slot: Slot,
        context: &mut Context<PoolModelEvent>,
    ) -> bool {
        let chunk = self.chunk(segment);
        let wait = ChunkWait { slot, write, since: context.now().0, software: self.options.fault.0 };
        let Some(fault) = self.staging.fault(chunk, wait) else { return false };
        self.counts.missing += 1;
        self.staged_faults += 1;
        if let StagedFault::Arrived(stage) = fault {
            self.install_chunk(chunk, stage, context);
        }
        true
    }

    /// Lets the stagers begin the orders for which they are free.
    pub(super) fn run_stagers(&mut self, context: &mut Context<PoolModelEvent>) {
        while let Some((stage, chunk)) = self.staging.begin(context.now()) {
            let places: Vec<Place> = self
                .segments_of(chunk)
                .map(|segment| Place(self.readahead.place_of(segment as u32)))
                .collect();
            let runs = runs_of_slots(&places).filter(|_| self.obtain_page(stage));
            let Some(runs) = runs else {
                self.end_order(stage, false, context);
                continue;
            };
            // The reads of all runs are in flight together.
            let (now, segment) = (context.now().0, self.options.segment.0);
            let read = |(_, count): &(Place, usize)| self.device.request(now, false, *count as u64 * segment);
            let arrived = runs.iter().map(read).max().unwrap_or(now);
            let segments = places.len() as u64;
            let ready = self.staging.processed(arrived, segments * self.options.stage.0);
            self.counts.reads += runs.len() as u64;
            self.counts.readahead_segments += segments;
            self.not_installed += segments;
            context.schedule(Picos(ready), PoolModelEvent::Staged(stage as u32));
        }
    }

    /// Obtains a page for a stage: a new one while frames are free, or that of a chunk that is evicted.
    fn obtain_page(&mut self, stage: usize) -> bool {
        while !self.staging.has_page(stage) {
            let more = self.chunk_segments() + self.watermarks.headroom();
            if self.watermarks.missing(self.used(), more) == 0 {
                self.staging.obtained_page(stage);
            } else if self.evict(PoolWatermarks::DROPPED_TOGETHER, Some(stage)) == 0 {
                return false;
            }
        }
        self.check_budget();
        true
    }

    /// Ends an order: the stage waits for the chunk's first use, unless an access waits already.
    pub(super) fn end_order(&mut self, stage: usize, filled: bool, context: &mut Context<PoolModelEvent>) {
        match self.staging.end(stage, filled, context.now()) {
            OrderEnd::Ready => {}
            OrderEnd::Used(chunk) => self.install_chunk(chunk, stage, context),
            OrderEnd::Failed(chunk) => self.wake_chunk(chunk, context),
        }
    }

    /// Moves a chunk from its stage into memory, and stages the next ones.
    fn install_chunk(&mut self, chunk: usize, stage: usize, context: &mut Context<PoolModelEvent>) {
        let range = self.segments_of(chunk);
        self.readahead.drop_triggers(range.clone());
        self.resident += range.len();
        self.not_installed -= range.len() as u64;
        self.segments[range.clone()].iter_mut().for_each(|segment| segment.end_fill());
        self.staging.installed(stage, chunk, context.now());
        self.policy.insert(range.start as u32);
        self.counts.huge_pages += 1;
        self.stage_from(chunk + 1, context.now());
        self.wake_chunk(chunk, context);
        if self.watermarks.wakes_evictor(self.used()) {
            self.run_evictor(context);
        }
    }

    /// Lets the accesses that wait for a chunk go on.
    fn wake_chunk(&mut self, chunk: usize, context: &mut Context<PoolModelEvent>) {
        for (time, slot) in self.staging.woken(chunk, context.now()) {
            context.schedule(time, PoolModelEvent::Retry(slot));
        }
    }

    /// Splits the huge page of a segment, if it is in one, into segments that leave one by one.
    pub(super) fn split(&mut self, segment: u32) {
        let chunk = self.chunk(segment);
        if self.staging.take_huge(chunk) {
            let range = self.segments_of(chunk);
            self.policy.remove(range.start as u32);
            range.for_each(|segment| self.policy.insert(segment as u32));
        }
    }

    /// Drops a clean segment, or the huge page that it is the key of, which the policy no longer holds; its page goes to the
    /// stage `spare` if given. Returns the number of segments, and whether they were a huge page.
    pub(super) fn drop_victim(&mut self, segment: u32, spare: Option<usize>) -> (usize, bool) {
        let chunk = self.chunk(segment);
        if !self.staging.take_huge(chunk) {
            self.drop_clean(segment as usize);
            return (1, false);
        }
        self.segments_of(chunk).for_each(|segment| self.drop_clean(segment));
        spare.into_iter().for_each(|stage| self.staging.obtained_page(stage));
        (self.chunk_segments(), true)
    }

    fn drop_clean(&mut self, segment: usize) {
        self.segments[segment].clear();
        self.resident -= 1;
        self.counts.evictions += 1;
    }

    /// Takes the page of an unused stage back, before an access waits for a frame. Returns false if there is none.
    pub(super) fn shed(&mut self, now: Picos) -> bool {
        self.staging.shed(Duration::ZERO, now)
    }

    /// Returns the memory of stages that have not been used for a while.
    pub(super) fn shed_idle_stages(&mut self, now: Picos) {
        while self.staging.shed(IDLE_AFTER, now) {}
    }
}
