//! Huge pages: memory that a stream uses arrives and leaves in chunks of 2 MiB, each moved by one call
//! (docs/adr/0045-huge-pages-of-pools.md). Core decides: `deepram_core::paging::huge_pages` and `stages`. `huge_page_move.rs`
//! moves the chunks.
//!
//! # Invariants
//! 1. All segments of a huge chunk are resident, clean and not pinned. Before a segment of it is stored to, or a part of
//!    it is dropped or pinned, the chunk is split into ordinary segments.
//! 2. All segments of a staged chunk are absent. Before one of them is filled by itself, the staging is cancelled.
//! 3. The bytes in a stage are those on flash at the generation that is kept with it. With another generation they are
//!    not used.
//! 4. The page of a stage counts as frames, from before it is obtained until it is moved into the mapped memory, where
//!    it counts as resident segments, or is dropped.
//! 5. A chunk moves, and its segments change their states, under one hold of the cache's lock.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use deepram_core::paging::huge_pages::{
    CHUNK_BYTES, CHUNK_PAGES, ChunkState, POOL_STAGED_AHEAD, chunk_behind, segments_may_be_staged,
};
use deepram_core::paging::stages::{IDLE_AFTER, STAGERS, STALE_AFTER, StageTable, share_suffices, stages_of};
use deepram_core::paging::{PAGE, Window};
use deepram_linux::stage_memory::StageMemory;

use super::{Cache, CacheState, Index};
use crate::options::OpenOptions;
use crate::region::Region;

/// Which chunks are staged or huge; all are small where there are no huge pages.
pub(super) struct Chunks {
    pub(super) states: Vec<ChunkState>,
    /// Segments of a chunk.
    pub(super) segments: Index,
    pub(super) stages: StageTable,
    /// What the stages hold.
    pub(super) contents: Vec<Contents>,
    /// Moves in a row that the kernel has refused.
    pub(super) refused: u32,
}

/// After as many refused moves in a row no chunk is staged any more: each would be read twice.
const MAX_REFUSED: u32 = 8;

/// The segments in a stage: their CRCs, in order, and the cache's generation when they were looked up.
#[derive(Debug, Clone, Default)]
pub(super) struct Contents {
    pub(super) generation: u64,
    pub(super) crcs: Vec<u32>,
}

impl Chunks {
    pub(super) fn new(region: &Region, staging: Option<&StageMemory>, segment_bytes: usize) -> Self {
        let stages = staging.map_or(0, StageMemory::count);
        let chunks = if stages > 0 { region.len() / CHUNK_BYTES } else { 0 };
        Self {
            states: vec![ChunkState::Small; chunks],
            segments: (CHUNK_BYTES / segment_bytes) as Index,
            stages: StageTable::new(stages),
            contents: vec![Contents::default(); stages],
            refused: 0,
        }
    }

    pub(super) fn chunk(&self, index: Index) -> usize {
        (index / self.segments) as usize
    }

    pub(super) fn state(&self, chunk: usize) -> ChunkState {
        self.states.get(chunk).copied().unwrap_or_default()
    }

    /// The segments of a chunk.
    pub(super) fn range(&self, chunk: usize) -> Range<Index> {
        let first = chunk as Index * self.segments;
        first..first + self.segments
    }

    /// The segments that leave together with this one, of which the first is their key in the policy.
    pub(super) fn unit(&self, index: Index) -> Range<Index> {
        if self.is_huge(index) { self.range(self.chunk(index)) } else { index..index + 1 }
    }

    pub(super) fn is_huge(&self, index: Index) -> bool {
        self.state(self.chunk(index)) == ChunkState::Huge
    }

    pub(super) fn is_staged(&self, index: Index) -> bool {
        matches!(self.state(self.chunk(index)), ChunkState::Staged { .. })
    }

    /// The chunks of these segments that are not small.
    fn within(&self, segments: Range<Index>) -> Vec<usize> {
        let end = self.states.len().min(segments.end.div_ceil(self.segments) as usize);
        (self.chunk(segments.start)..end).filter(|&chunk| self.states[chunk] != ChunkState::Small).collect()
    }

    /// Frames that the stages hold.
    pub(super) fn frames(&self) -> usize {
        self.stages.frames() / CHUNK_PAGES * self.segments as usize
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let contents = size_of::<Contents>() + self.segments as usize * size_of::<u32>();
        self.states.capacity() * size_of::<ChunkState>() + self.contents.len() * contents
    }
}

/// Maps the memory of the stages; `None` where there are no huge pages: in a small budget, where the kernel cannot move
/// them or the system forbids them, and in a pool whose base is not a multiple of 2 MiB.
pub(super) fn staging(region: &Region, options: &OpenOptions) -> Option<StageMemory> {
    let wanted = options.faults.readahead && options.faults.huge_pages && options.record_faults_to.is_none();
    let count = stages_of(options.dram as usize / PAGE).filter(|_| wanted)?;
    if !region.base().addr().is_multiple_of(CHUNK_BYTES) {
        return None;
    }
    StageMemory::new(region.watcher()?, count)
}

impl Cache {
    pub(super) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    pub(super) fn chunk_offset(&self, chunk: usize) -> usize {
        chunk * CHUNK_BYTES
    }

    /// The budget in pages of 4 KiB.
    fn share(&self) -> usize {
        (self.budget.load(Relaxed) + self.handlers) / PAGE
    }

    /// Stages the chunks behind a long readahead window.
    pub(super) fn stage_behind(&self, window: Window) {
        if self.staging.is_some()
            && let Some(first) = chunk_behind(window, self.segment_bytes)
        {
            self.stage_from(&mut self.lock(), first / CHUNK_BYTES);
        }
    }

    pub(super) fn stage_from(&self, state: &mut CacheState, chunk: usize) {
        (chunk..chunk + POOL_STAGED_AHEAD).for_each(|chunk| self.stage(state, chunk));
    }

    /// Stages a chunk if that is possible and a stage is free, or has been ready and unused for a while.
    fn stage(&self, state: &mut CacheState, chunk: usize) {
        let share = self.share();
        let refused = state.chunks.refused >= MAX_REFUSED;
        if state.stopping || refused || chunk >= state.chunks.states.len() || !share_suffices(share) {
            return;
        }
        let range = state.chunks.range(chunk);
        let (first, end) = (range.start as usize, range.end as usize);
        if state.chunks.states[chunk] != ChunkState::Small
            || !state.pinned.within(first, end).is_empty()
            || !segments_may_be_staged(&state.segments[first..end])
        {
            return;
        }
        let now = self.now();
        let stage = state.chunks.stages.claim(now);
        let Some(stage) = stage.or_else(|| self.unstage_stale(state, STALE_AFTER)) else { return };
        if !state.chunks.stages.may_use(stage, share) {
            return state.chunks.stages.release(stage, now);
        }
        let resident: Vec<Index> =
            range.filter(|&index| state.segments[index as usize].is_resident()).collect();
        resident.iter().for_each(|&index| state.policy.remove(index));
        self.drop_clean(state, resident);
        state.chunks.states[chunk] = ChunkState::Staged { stage, waits: false };
        state.chunks.stages.queue_order(stage, chunk, now);
        self.stage_work.notify_one();
    }

    /// Takes the stage of a chunk that has been ready for `age` and was not used.
    fn unstage_stale(&self, state: &mut CacheState, age: Duration) -> Option<usize> {
        let now = self.now();
        let (stage, chunk) = state.chunks.stages.stale(age, now)?;
        state.chunks.stages.take_ready(stage, now)?;
        if state.chunks.state(chunk).is_in(stage) {
            state.chunks.states[chunk] = ChunkState::Small;
        }
        Some(stage)
    }

    /// Cancels the staging of a segment's chunk. A stage that is being filled is released by its stager.
    pub(super) fn unstage(&self, state: &mut CacheState, index: Index) {
        let chunk = state.chunks.chunk(index);
        let ChunkState::Staged { stage, waits } = state.chunks.state(chunk) else { return };
        state.chunks.states[chunk] = ChunkState::Small;
        let now = self.now();
        if state.chunks.stages.take_ready(stage, now).is_some() {
            state.chunks.stages.release(stage, now);
        }
        if waits {
            self.wake_chunk(state, chunk);
        }
    }

    /// Lets the threads that wait for a chunk retry their access.
    pub(super) fn wake_chunk(&self, state: &mut CacheState, chunk: usize) {
        let woken = self.region.wake(self.chunk_offset(chunk), CHUNK_BYTES);
        let first = state.chunks.range(chunk).start;
        self.halt_on_error(state, "UFFDIO_WAKE", first, woken);
    }

    /// Serves a fault on a staged chunk: moves the chunk into memory if it has arrived. Returns whether the thread runs
    /// again; `None` if the segment has to be filled by itself.
    pub(super) fn fault_on_staged(&self, state: &mut CacheState, index: Index) -> Option<bool> {
        let chunk = state.chunks.chunk(index);
        let ChunkState::Staged { stage, .. } = state.chunks.state(chunk) else { return None };
        let Some(checksum) = state.chunks.stages.take_ready(stage, self.now()) else {
            state.chunks.states[chunk] = ChunkState::Staged { stage, waits: true };
            return Some(false);
        };
        self.install_staged(state, chunk, stage, checksum);
        state.segments[index as usize].is_resident().then_some(true)
    }

    /// Number of stager threads.
    pub(crate) fn stagers(&self) -> usize {
        self.staging.as_ref().map_or(0, |staging| staging.count().min(STAGERS))
    }

    /// Returns the memory of a stage to the kernel.
    pub(super) fn drop_stage_page(&self, state: &mut CacheState, stage: usize) {
        let dropped = self.staging.as_ref().map_or(Ok(()), |staging| staging.discard(stage));
        self.halt_on_error(state, "madvise(MADV_DONTNEED) of a stage", 0, dropped);
        state.chunks.stages.set_has_page(stage, false);
    }

    /// Returns the memory of a stage that has not been used for `age`. Returns false if there is none.
    pub(super) fn shed_stage(&self, state: &mut CacheState, age: Duration) -> bool {
        let now = self.now();
        let idle = state.chunks.stages.claim_idle(age, now);
        let Some(stage) = idle.or_else(|| self.unstage_stale(state, age)) else { return false };
        self.drop_stage_page(state, stage);
        state.chunks.stages.release(stage, now);
        true
    }

    /// Returns the memory of stages that have not been used for a while.
    pub(super) fn shed_idle_stages(&self, state: &mut CacheState) {
        while self.shed_stage(state, IDLE_AFTER) {}
    }

    /// If the segment is in a huge page, ends its being one, for a caller that drops or splits it, and returns its
    /// segments.
    pub(super) fn take_huge(&self, state: &mut CacheState, index: Index) -> Option<Range<Index>> {
        let chunk = state.chunks.is_huge(index).then(|| state.chunks.chunk(index))?;
        state.chunks.states[chunk] = ChunkState::Small;
        Some(state.chunks.range(chunk))
    }

    /// Splits the huge page of a segment, if it is in one, into segments that leave one by one.
    pub(super) fn split(&self, state: &mut CacheState, index: Index) {
        let Some(range) = self.take_huge(state, index) else { return };
        self.region.split_huge_page(self.offset(range.start));
        state.policy.remove(range.start);
        range.for_each(|index| state.policy.insert(index));
    }

    /// Splits the huge pages that hold one of these segments, and cancels the staging of their chunks.
    pub(super) fn make_small(&self, state: &mut CacheState, segments: Range<Index>) {
        for chunk in state.chunks.within(segments) {
            let first = state.chunks.range(chunk).start;
            self.unstage(state, first);
            self.split(state, first);
        }
    }

    /// As [`Cache::make_small`], for a caller that drops all of these segments: huge pages that consist of such segments
    /// are not split. Returns the segments of those.
    pub(super) fn take_huge_pages(
        &self,
        state: &mut CacheState,
        segments: Range<Index>,
    ) -> Vec<Range<Index>> {
        let mut taken = Vec::new();
        for chunk in state.chunks.within(segments.clone()) {
            let range = state.chunks.range(chunk);
            if segments.start <= range.start
                && range.end <= segments.end
                && let Some(whole) = self.take_huge(state, range.start)
            {
                state.policy.remove(range.start);
                taken.push(whole);
            }
        }
        self.make_small(state, segments);
        taken
    }

    /// Evicts the huge pages that consist of these segments, and splits those that hold one of them.
    pub(super) fn evict_huge_pages(&self, segments: Range<Index>) {
        let mut first = segments.start;
        while first < segments.end && self.staging.is_some() {
            let mut state = self.lock();
            let end = segments.end.min(state.chunks.range(state.chunks.chunk(first)).end);
            for whole in self.take_huge_pages(&mut state, first..end) {
                self.drop_clean(&mut state, whole.collect());
            }
            first = end;
        }
    }
}

#[cfg(test)]
impl Cache {
    /// The chunks that are staged.
    pub(crate) fn staged_chunks(&self) -> Vec<usize> {
        let state = self.lock();
        let staged = |chunk: &usize| matches!(state.chunks.state(*chunk), ChunkState::Staged { .. });
        (0..state.chunks.states.len()).filter(staged).collect()
    }

    /// Checks the invariants of huge pages, of the budget and of the policy, and that exactly the resident segments are
    /// in memory.
    pub(crate) fn check_chunks(&self) {
        let state = self.lock();
        let resident = |index: &Index| state.segments[*index as usize].is_resident();
        let all = 0..state.segments.len() as Index;
        let filled = all.clone().filter(resident).count();
        assert_eq!(state.resident, filled + state.filling);
        let keys = all.filter(|index| resident(index) && state.chunks.unit(*index).start == *index);
        assert_eq!(keys.filter(|&key| state.policy.contains(key)).count(), state.policy.len());
        for (chunk, kind) in state.chunks.states.iter().enumerate() {
            let range = state.chunks.range(chunk);
            let segments = &state.segments[range.start as usize..range.end as usize];
            match kind {
                ChunkState::Small => {}
                ChunkState::Staged { stage, .. } => {
                    assert!(segments.iter().all(|segment| segment.is_absent()), "chunk {chunk}");
                    let same = state.chunks.states.iter().filter(|other| other.is_in(*stage)).count();
                    assert_eq!(same, 1, "stage {stage} has two chunks");
                }
                ChunkState::Huge => {
                    assert!(segments.iter().all(|segment| segment.may_drop()), "chunk {chunk}");
                    assert!(state.pinned.within(range.start as usize, range.end as usize).is_empty());
                }
            }
        }
        let pages = self.segment_bytes / PAGE;
        let base = self.region.base().addr();
        let present = deepram_linux::uffd::resident_pages(base, self.region.len()).unwrap();
        assert_eq!(present.iter().filter(|present| **present).count(), filled * pages);
    }
}
