//! Huge pages of the simulated pager: chunks of 2 MiB that streams fill or read arrive through stages, and leave whole.

use std::convert::Infallible;
use std::ops::Range;
use std::time::Duration;

use deepram_core::paging::huge_pages::{
    CHUNK_BYTES, CHUNK_PAGES, PolicyKey, STAGED_AHEAD, StageSource, chunk_behind, first_store_dirties_all,
    is_filled, may_be_staged, runs_of_slots, source,
};
use deepram_core::paging::stages::{IDLE_AFTER, STALE_AFTER};
use deepram_core::paging::{PAGE, Window};
use deepram_core::units::Picos;

use super::eviction::Batch;
use super::{PAGE_BYTES, Page, PageState, SwapModel, SwapModelEvent};
use crate::engine::Time;
use crate::host::{Context, Slot};
use crate::staging::{ChunkWait, OrderEnd, Place, StagedFault};

/// A chunk that is leaving memory.
pub(super) struct LeavingChunk {
    chunk: usize,
    /// The slots of its pages.
    slots: Vec<u32>,
    /// Pages of each write; none if the chunk is clean.
    pub(super) writes: Vec<u32>,
}

impl SwapModel {
    /// The number of a page's chunk.
    pub(super) fn chunk(&self, page: u32) -> usize {
        self.address(page) / CHUNK_BYTES - self.options.address.0 as usize / CHUNK_BYTES
    }

    fn chunk_address(&self, chunk: usize) -> usize {
        (self.options.address.0 as usize / CHUNK_BYTES + chunk) * CHUNK_BYTES
    }

    /// The policy's key of a chunk.
    fn chunk_key(&self, chunk: usize) -> u64 {
        PolicyKey::Chunk(self.chunk_address(chunk)).number()
    }

    /// The pages of a chunk, if it is one of the data as a whole.
    fn pages_of(&self, chunk: usize) -> Option<Range<usize>> {
        let first = self.page_at(self.chunk_address(chunk))? as usize;
        (first + CHUNK_PAGES <= self.pages.len()).then_some(first..first + CHUNK_PAGES)
    }

    pub(super) fn states(&self, range: Range<usize>) -> impl Iterator<Item = PageState> + Clone + '_ {
        self.pages[range].iter().map(|page| page.state)
    }

    /// Stages the memory behind a long readahead window.
    pub(super) fn stage_behind(&mut self, window: Window, now: Picos) {
        if let Some(address) = chunk_behind(window, PAGE)
            && let Some(page) = self.page_at(address)
        {
            self.stage_from(self.chunk(page), now);
        }
    }

    /// If the whole chunk has been touched, a stream is filling memory: stages from `next` on.
    pub(super) fn stage_fresh(&mut self, chunk: usize, next: usize, now: Picos) {
        if self.pages_of(chunk).is_some_and(|range| is_filled(self.states(range))) {
            self.stage_from(next, now);
        }
    }

    fn stage_from(&mut self, chunk: usize, now: Picos) {
        (chunk..chunk + STAGED_AHEAD).for_each(|chunk| self.stage(chunk, STALE_AFTER, now));
    }

    /// Stages a chunk if that is possible and a stage is free, or has been ready and unused for `age`.
    fn stage(&mut self, chunk: usize, age: Duration, now: Picos) {
        let Some(range) = self.pages_of(chunk).filter(|_| self.staging.may_stage(chunk)) else { return };
        if !may_be_staged(self.states(range.clone()).map(|state| (state, false))) {
            return;
        }
        let fresh = self.pages[range.start].state == PageState::Fresh;
        let place = |page: &Page| match page.state {
            PageState::Clean(_) if page.changed == Some(true) => None,
            PageState::Stored(slot) | PageState::Clean(slot) => Some(Place(slot.into())),
            PageState::InVictimBuffer(frame) => self.buffer.stored_at(frame).map(|slot| Place(slot.into())),
            _ => None,
        };
        let places: Option<Vec<Place>> = self.pages[range.clone()].iter().map(place).collect();
        if !fresh && places.as_ref().is_none_or(|places| runs_of_slots(places).is_none()) {
            return;
        }
        let Some(stage) = self.staging.claim(age, now) else { return };
        self.note_chunk(range.start as u32);
        // The pages that are in DRAM come back with the rest.
        for (page, Place(slot)) in range.zip(places.into_iter().flatten()) {
            let key = self.key(page as u32);
            let info = &mut self.pages[page];
            match info.state {
                PageState::Clean(_) => self.policy.remove(key),
                PageState::InVictimBuffer(frame) => drop(self.buffer.take(frame)),
                _ => continue,
            }
            (info.state, info.trigger) = (PageState::Stored(slot as u32), None);
            self.charged -= 1;
        }
        self.staging.order(stage, chunk, now);
    }

    /// Serves a fault on a staged chunk. Returns false if the page's chunk is not staged.
    pub(super) fn fault_on_staged(
        &mut self,
        page: u32,
        write: bool,
        slot: Slot,
        context: &mut Context<SwapModelEvent>,
    ) -> bool {
        let chunk = self.chunk(page);
        let (counter, software) = match self.pages[page as usize].state {
            PageState::Fresh => (&mut self.counts.faults_fresh, self.options.fresh.0),
            _ => (&mut self.counts.faults_major, self.options.fault.0),
        };
        let wait = ChunkWait { slot, write, since: context.now().0, software };
        let Some(fault) = self.staging.fault(chunk, wait) else { return false };
        *counter += 1;
        if let StagedFault::Arrived(stage) = fault {
            self.install_chunk(chunk, stage, context);
        }
        true
    }

    /// Handles a first store to a clean page of a huge page. Returns false if the page may be stored to only by itself.
    pub(super) fn first_store_to_huge_page(&mut self, page: u32) -> bool {
        let chunk = self.chunk(page);
        if !self.staging.is_huge(chunk) {
            return false;
        }
        if !first_store_dirties_all(self.address(page) % CHUNK_BYTES / PAGE) {
            self.split(chunk);
            return false;
        }
        for page in self.pages_of(chunk).into_iter().flatten() {
            let info = &mut self.pages[page];
            if let PageState::Clean(slot) = info.state {
                self.slots.free(slot);
            }
            info.state = PageState::Dirty;
        }
        true
    }

    /// Splits a huge page into pages that leave one by one.
    pub(super) fn split(&mut self, chunk: usize) {
        if self.staging.take_huge(chunk) {
            let key = self.chunk_key(chunk);
            self.policy.remove(key);
            for page in self.pages_of(chunk).into_iter().flatten() {
                let key = self.key(page as u32);
                self.policy.insert(key);
            }
        }
    }

    /// Lets the stagers begin the orders for which they are free.
    pub(super) fn run_stagers(&mut self, context: &mut Context<SwapModelEvent>) {
        while let Some((stage, chunk)) = self.staging.begin(context.now()) {
            let contents = self.pages_of(chunk).and_then(|range| source(self.places(range)));
            let filled = contents.and_then(|contents| {
                let mut at = self.obtain_page(stage, context.now().0)?;
                // The runs are read one after the other.
                if let StageSource::Stored(runs) = contents {
                    for (_, count) in &runs {
                        at = self.device.request(at, false, *count as u64 * PAGE_BYTES);
                    }
                    self.counts.reads += runs.len() as u64;
                    self.counts.bytes_read += CHUNK_BYTES as u64;
                    self.counts.readahead_pages += CHUNK_PAGES as u64;
                }
                Some(self.staging.processed(at, CHUNK_PAGES as u64 * self.options.stage.0))
            });
            match filled {
                Some(at) => context.schedule(Picos(at), SwapModelEvent::Staged(stage as u32)),
                None => self.end_order(stage, false, context),
            }
        }
    }

    /// The states of pages, whose slots are places.
    fn places(
        &self,
        range: Range<usize>,
    ) -> impl Iterator<Item = deepram_core::paging::PageState<Place>> + Clone + '_ {
        self.states(range).map(|state| match state {
            PageState::Fresh => deepram_core::paging::PageState::Fresh,
            PageState::Stored(slot) => deepram_core::paging::PageState::Stored(Place(slot.into())),
            _ => deepram_core::paging::PageState::Dirty,
        })
    }

    /// Obtains a page for a stage: a new one while frames last, or that of a chunk that is evicted. Returns the time at which the
    /// stage has it.
    fn obtain_page(&mut self, stage: usize, mut at: Time) -> Option<Time> {
        while !self.staging.has_page(stage) {
            self.charged += CHUNK_PAGES;
            if self.excess(self.watermarks.headroom()) == 0 {
                self.staging.obtained_page(stage);
                break;
            }
            self.charged -= CHUNK_PAGES;
            let mut batch = self.evict(self.watermarks.batch(), None, Some(stage));
            self.start_writes(&mut batch, at);
            at = at.max(batch.end);
            if !self.finish(batch) {
                return None;
            }
        }
        Some(at)
    }

    /// Ends an order: the stage waits for the chunk's first use, unless an access waits already.
    pub(super) fn end_order(&mut self, stage: usize, filled: bool, context: &mut Context<SwapModelEvent>) {
        match self.staging.end(stage, filled, context.now()) {
            OrderEnd::Ready => {}
            OrderEnd::Used(chunk) => self.install_chunk(chunk, stage, context),
            OrderEnd::Failed(chunk) => self.wake_chunk(chunk, context),
        }
    }

    /// Moves a chunk from its stage into memory, and stages the next ones.
    fn install_chunk(&mut self, chunk: usize, stage: usize, context: &mut Context<SwapModelEvent>) {
        let Some(range) = self.pages_of(chunk) else { return };
        let now = context.now();
        let fresh = self.pages[range.start].state == PageState::Fresh;
        let write = self.staging.store_waits(chunk);
        let writable = fresh || write;
        for page in range {
            let info = &mut self.pages[page];
            info.state = match info.state {
                PageState::Stored(slot) if !writable => PageState::Clean(slot),
                PageState::Stored(slot) => {
                    self.slots.free(slot);
                    PageState::Dirty
                }
                _ => PageState::Dirty,
            };
            (info.changed, info.unused) = (None, !fresh);
        }
        self.staging.installed(stage, chunk, now);
        if let Some(evicted_at) = self.evicted_at[chunk].filter(|_| !fresh) {
            let evictions = self.counts.evicted_pages - evicted_at;
            let address = self.chunk_address(chunk);
            self.drop_behind.chunk_arrived(address, evictions, self.watermarks.frames);
        }
        let key = self.chunk_key(chunk);
        self.policy.insert(key);
        self.counts.huge_pages += 1;
        match chunk.checked_sub(1) {
            Some(before) if fresh => self.stage_fresh(before, chunk + 1, now),
            None if fresh => {}
            _ => self.stage_from(chunk + 1, now),
        }
        self.wake_chunk(chunk, context);
    }

    /// Lets the accesses that wait for a chunk go on.
    fn wake_chunk(&mut self, chunk: usize, context: &mut Context<SwapModelEvent>) {
        for (time, slot) in self.staging.woken(chunk, context.now()) {
            context.schedule(time, SwapModelEvent::Retry(slot));
        }
    }

    /// The chunk that is to leave next, if a stream has left one behind, whose key the policy no longer holds then.
    pub(super) fn left_behind(&mut self) -> Option<usize> {
        let policy = &self.policy;
        let drop_behind = &mut self.drop_behind;
        let in_memory = |address: &usize| policy.contains(PolicyKey::Chunk(*address).number());
        let address = std::iter::from_fn(|| drop_behind.victim()).find(in_memory)?;
        self.policy.remove(PolicyKey::Chunk(address).number());
        Some(address)
    }

    /// Begins to evict the huge page at an address, which the policy no longer holds. A stage waits for its page, or none does,
    /// and then reads may run between its writes.
    pub(super) fn begin_chunk(&mut self, address: usize, for_stage: bool) -> Option<LeavingChunk> {
        let chunk = self.chunk(self.page_at(address)?);
        let range = self.pages_of(chunk)?;
        let clean: Option<Vec<u32>> = self
            .states(range.clone())
            .map(|state| if let PageState::Clean(slot) = state { Some(slot) } else { None })
            .collect();
        self.pages[range].iter_mut().for_each(|page| page.state.evict());
        let mut leaving = LeavingChunk { chunk, slots: Vec::new(), writes: Vec::new() };
        if let Some(slots) = clean {
            leaving.slots = slots;
            return Some(leaving);
        }
        let most = if for_stage { CHUNK_PAGES } else { deepram_core::paging::SwapWatermarks::BATCH };
        while leaving.slots.len() < CHUNK_PAGES {
            let rest = (CHUNK_PAGES - leaving.slots.len()).min(most) as u32;
            let Ok((first, len)) = self.slots.allocate(rest, |_| Ok::<_, Infallible>(()));
            leaving.slots.extend(first..first + len);
            leaving.writes.push(len);
        }
        self.counts.evicted_dirty_pages += CHUNK_PAGES as u64;
        Some(leaving)
    }

    /// Ends the eviction of a chunk. Its page goes to the stage `spare` if given.
    pub(super) fn end_chunk(&mut self, leaving: LeavingChunk, spare: Option<usize>) {
        let LeavingChunk { chunk, slots, writes } = leaving;
        self.staging.take_huge(chunk);
        match spare {
            Some(stage) => self.staging.obtained_page(stage),
            None => self.charged -= CHUNK_PAGES,
        }
        self.counts.evicted_pages += CHUNK_PAGES as u64;
        self.counts.writes += writes.len() as u64;
        self.counts.written_back_pages += writes.iter().map(|count| u64::from(*count)).sum::<u64>();
        self.evicted_at[chunk] = Some(self.counts.evicted_pages);
        for (page, slot) in self.pages_of(chunk).into_iter().flatten().zip(slots) {
            self.pages[page].state = PageState::Stored(slot);
        }
        self.chunks_gone.push(chunk);
    }

    /// Lets the accesses go on that have waited for chunks to leave.
    pub(super) fn wake_for_chunks_gone(&mut self, context: &mut Context<SwapModelEvent>) {
        while let Some(chunk) = self.chunks_gone.pop() {
            if let Some(range) = self.pages_of(chunk) {
                self.wake(range.start as u32..range.end as u32, context);
            }
        }
    }

    /// Returns the memory of stages that have not been used for a while.
    pub(super) fn shed_idle_stages(&mut self, now: Picos) {
        while self.staging.shed(IDLE_AFTER, now) {
            self.charged -= CHUNK_PAGES;
        }
    }
}

impl Batch {
    /// Time at which the writes of a chunk end that begin at the time `from`, one after the other.
    pub(super) fn write_chunk(&self, from: Time, mut request: impl FnMut(Time, u64) -> Time) -> Time {
        let writes = self.chunk.iter().flat_map(|leaving| &leaving.writes);
        writes.fold(from, |at, count| request(at, u64::from(*count) * PAGE_BYTES))
    }
}
