//! Huge pages of the simulated pool and of the simulated pager: chunks of 2 MiB that enter memory through stages, and leave it
//! whole.
//!
//! Core decides which chunks become huge pages and which stages they pass through ([`deepram_core::paging::huge_pages`],
//! [`deepram_core::paging::stages`]). This module keeps the chunks' states, and the stagers: threads that fill stages in virtual
//! time. The models move the pages.

use std::time::Duration;

use deepram_core::paging::huge_pages::{CHUNK_PAGES, ChunkState, SwapSlot};
use deepram_core::paging::stages::{STAGERS, StageTable, share_suffices, stages_of};
use deepram_core::units::Picos;

use crate::engine::Time;
use crate::host::Slot;

/// A place in the log or in the swap file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place(pub(crate) u64);

impl SwapSlot for Place {
    fn follows(&self, other: &Self) -> bool {
        self.0 == other.0 + 1
    }
}

/// A fault that waits for its chunk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChunkWait {
    pub(crate) slot: Slot,
    pub(crate) write: bool,
    /// Time of the fault.
    pub(crate) since: Time,
    /// Software time of the fault.
    pub(crate) software: Time,
}

/// What a fault on a staged chunk finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StagedFault {
    /// The chunk has arrived in this stage, which belongs to the caller.
    Arrived(usize),
    /// The chunk is on its way.
    Waits,
}

/// How an order has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OrderEnd {
    /// The chunk waits in its stage for its first use.
    Ready,
    /// Accesses wait for this chunk: it is to be moved into memory. Its stage belongs to the caller.
    Used(usize),
    /// This chunk could not be staged.
    Failed(usize),
}

/// The chunks, the stages and the stagers of a model.
pub(crate) struct Staging {
    table: StageTable,
    /// State of each chunk; none where there are no huge pages.
    states: Vec<ChunkState>,
    /// The chunk of the order that a stager is executing, by stage.
    chunks: Vec<usize>,
    idle_stagers: usize,
    /// Faults that wait, with their chunks.
    waits: Vec<(usize, ChunkWait)>,
    /// The budget in pages of 4 KiB.
    share: usize,
    /// The times from which on each processor works for stagers.
    processors: Vec<Time>,
}

fn clock(now: Picos) -> Duration {
    Duration::from_nanos(now.0 / 1000)
}

impl Staging {
    /// The stages that suit a budget of `share` pages of 4 KiB, for `chunks` chunks; none if they are not `wanted`.
    pub(crate) fn new(share: usize, chunks: usize, processors: u32, wanted: bool) -> Self {
        let stages = stages_of(share).filter(|_| wanted).unwrap_or(0);
        Self {
            table: StageTable::new(stages),
            states: vec![ChunkState::Small; if stages > 0 { chunks } else { 0 }],
            chunks: vec![0; stages],
            idle_stagers: stages.min(STAGERS),
            waits: Vec::new(),
            share,
            processors: vec![0; processors.max(1) as usize],
        }
    }

    pub(crate) fn state(&self, chunk: usize) -> ChunkState {
        self.states.get(chunk).copied().unwrap_or_default()
    }

    pub(crate) fn is_huge(&self, chunk: usize) -> bool {
        self.state(chunk) == ChunkState::Huge
    }

    pub(crate) fn is_staged(&self, chunk: usize) -> bool {
        matches!(self.state(chunk), ChunkState::Staged { .. })
    }

    /// Whether a chunk may be staged as far as its model does not object.
    pub(crate) fn may_stage(&self, chunk: usize) -> bool {
        share_suffices(self.share) && self.states.get(chunk) == Some(&ChunkState::Small)
    }

    /// Claims a stage that is free, or whose chunk has been ready and unused for `age`.
    pub(crate) fn claim(&mut self, age: Duration, now: Picos) -> Option<usize> {
        let stage = self.table.claim(clock(now)).or_else(|| self.unstage_stale(age, now))?;
        if !self.table.may_use(stage, self.share) {
            self.table.release(stage, clock(now));
            return None;
        }
        Some(stage)
    }

    fn unstage_stale(&mut self, age: Duration, now: Picos) -> Option<usize> {
        let (stage, chunk) = self.table.stale(age, clock(now))?;
        self.table.take_ready(stage, clock(now))?;
        self.states[chunk] = ChunkState::Small;
        Some(stage)
    }

    /// Orders a chunk through a stage that was claimed.
    pub(crate) fn order(&mut self, stage: usize, chunk: usize, now: Picos) {
        self.states[chunk] = ChunkState::Staged { stage, waits: false };
        self.table.queue_order(stage, chunk, clock(now));
    }

    /// Begins the next order, if a stager is free for one. Returns its stage and its chunk.
    pub(crate) fn begin(&mut self, now: Picos) -> Option<(usize, usize)> {
        while self.idle_stagers > 0 {
            let order = self.table.next_order()?;
            if self.table.begin_order(order, clock(now)) {
                self.idle_stagers -= 1;
                self.chunks[order.stage] = order.chunk;
                return Some((order.stage, order.chunk));
            }
        }
        None
    }

    /// The time at which a stager has done `software` work on what arrives at `arrived`.
    pub(crate) fn processed(&mut self, arrived: Time, software: Time) -> Time {
        let Some(free) = self.processors.iter_mut().min() else { return arrived };
        *free = arrived.max(*free) + software;
        *free
    }

    /// Ends the order of a stage, which was `filled` or not.
    pub(crate) fn end(&mut self, stage: usize, filled: bool, now: Picos) -> OrderEnd {
        self.idle_stagers += 1;
        let chunk = self.chunks[stage];
        if !filled {
            self.states[chunk] = ChunkState::Small;
            self.table.release(stage, clock(now));
            return OrderEnd::Failed(chunk);
        }
        if let ChunkState::Staged { waits: true, .. } = self.states[chunk] {
            return OrderEnd::Used(chunk);
        }
        self.table.mark_ready(stage, 0, clock(now));
        OrderEnd::Ready
    }

    /// Records a fault on a chunk, which waits until [`Staging::woken`]; `None` if the chunk is not staged.
    pub(crate) fn fault(&mut self, chunk: usize, wait: ChunkWait) -> Option<StagedFault> {
        let ChunkState::Staged { stage, .. } = self.state(chunk) else { return None };
        self.waits.push((chunk, wait));
        if self.table.take_ready(stage, clock(Picos(wait.since))).is_some() {
            return Some(StagedFault::Arrived(stage));
        }
        self.states[chunk] = ChunkState::Staged { stage, waits: true };
        Some(StagedFault::Waits)
    }

    /// Whether a store waits for a chunk.
    pub(crate) fn store_waits(&self, chunk: usize) -> bool {
        self.waits.iter().any(|(of, wait)| *of == chunk && wait.write)
    }

    /// The accesses that waited for a chunk, and the times at which they go on. Half of a fault's software time has passed before
    /// its wait.
    pub(crate) fn woken(&mut self, chunk: usize, now: Picos) -> impl Iterator<Item = (Picos, Slot)> + '_ {
        self.waits.extract_if(.., move |(of, _)| *of == chunk).map(move |(_, wait)| {
            let time = (now.0 + wait.software.div_ceil(2)).max(wait.since + wait.software);
            (Picos(time), wait.slot)
        })
    }

    /// Number of faults that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waits.len()
    }

    /// Records that the page of a stage has become a chunk's huge page.
    pub(crate) fn installed(&mut self, stage: usize, chunk: usize, now: Picos) {
        self.table.set_has_page(stage, false);
        self.table.release(stage, clock(now));
        self.states[chunk] = ChunkState::Huge;
    }

    /// Ends that a chunk is one huge page. Returns whether it was one.
    pub(crate) fn take_huge(&mut self, chunk: usize) -> bool {
        let huge = self.is_huge(chunk);
        if huge {
            self.states[chunk] = ChunkState::Small;
        }
        huge
    }

    /// Returns the memory of a stage that has not been used for `age`. Returns false if there is none.
    pub(crate) fn shed(&mut self, age: Duration, now: Picos) -> bool {
        let idle = self.table.claim_idle(age, clock(now));
        let Some(stage) = idle.or_else(|| self.unstage_stale(age, now)) else { return false };
        self.table.set_has_page(stage, false);
        self.table.release(stage, clock(now));
        true
    }

    pub(crate) fn has_page(&self, stage: usize) -> bool {
        self.table.has_page(stage)
    }

    /// Records that a stage has a page.
    pub(crate) fn obtained_page(&mut self, stage: usize) {
        self.table.set_has_page(stage, true);
    }

    /// Number of stages that have a page.
    pub(crate) fn pages(&self) -> usize {
        self.table.frames() / CHUNK_PAGES
    }

    /// Number of chunks that are huge pages.
    pub(crate) fn huge_pages(&self) -> usize {
        self.states.iter().filter(|state| **state == ChunkState::Huge).count()
    }
}
