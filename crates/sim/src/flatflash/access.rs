//! The access of one line: processor's cache, translation, then DRAM or the drive.
//!
//! The caches' contents change, and a load takes its value, at the moment when memory serves the line.
//! The line's data arrive later; a use before that waits for them. The times of the lookups in the
//! processor's cache and in the PLB are added at the end: they are the same for all accesses that take a
//! resource after them.

use deepram_core::migration::LineRoute;

use super::memory::{AT_DRIVE, MOVING};
use super::platform::ExceptionStage;
use super::task::{Step, Task, TaskId, Wait};
use super::{AccessMode, EventKind, FlatMemory, LINES, LinkDirection};
use crate::engine::Time;
use crate::error::SimError;
use crate::host::Slot;
use crate::processor::LINE_BYTES;

/// Number of arriving lines above which those that have arrived are removed.
const ARRIVING: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineKind {
    /// A load; into the processor's cache, if there is one, also for a store to part of a line.
    Load { store: bool },
    /// A store of a whole line in the processor's cache: the page's translation and, in the paging
    /// systems, the page in DRAM, but not the line.
    Allocate,
    /// A store past the processor's cache.
    Store { whole: bool },
    /// A dirty line leaves the processor's cache.
    WriteBack,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineStage {
    /// The platform's exception, in front of the access.
    Exception(ExceptionStage),
    Translate,
    Access,
    /// The store of this number needs a place in the write buffer.
    Post(u64),
}

/// The owner of a line's access.
#[derive(Debug, Clone, Copy)]
pub(super) enum LineOwner {
    Request(Slot),
    Flush(TaskId),
}

/// The access of a line.
#[derive(Debug, Clone, Copy)]
pub(super) struct LineTask {
    line: u64,
    kind: LineKind,
    owner: LineOwner,
    /// The core that translates; `None` for a line from a cache.
    core: Option<u32>,
    stage: LineStage,
    waited: bool,
    faulted: bool,
    /// The lookup in the device buffer has been counted.
    looked_up: bool,
}

impl LineTask {
    pub(super) fn new(line: u64, kind: LineKind, owner: LineOwner, core: Option<u32>) -> Self {
        let stage = LineStage::Translate;
        Self { line, kind, owner, core, stage, waited: false, faulted: false, looked_up: false }
    }

    fn page(&self) -> u32 {
        (self.line / LINES) as u32
    }

    fn within(&self) -> u8 {
        (self.line % LINES) as u8
    }

    /// True if the access stores to memory.
    fn stores(&self) -> bool {
        matches!(self.kind, LineKind::Store { .. } | LineKind::WriteBack)
    }

    fn wait(&mut self, wait: Wait) -> Step {
        self.waited = true;
        Step::Wait(wait)
    }
}

impl FlatMemory {
    /// Begins the access of one line of a request.
    #[inline]
    pub(super) fn access_line(
        &mut self,
        slot: Slot,
        line: u64,
        (store, whole): (bool, bool),
        core: Option<u32>,
    ) -> Result<(), SimError> {
        let kind = match (self.cpu.is_some(), store) {
            (false, true) => LineKind::Store { whole },
            (true, true) if whole => LineKind::Allocate,
            _ => LineKind::Load { store },
        };
        let task = LineTask::new(line, kind, LineOwner::Request(slot), core);
        self.counts.cpu_lookups += u64::from(self.cpu.is_some());
        if self.raises_exception(task.page()) {
            let stage = LineStage::Exception(ExceptionStage::Translate);
            return self.start(Task::Line(LineTask { stage, ..task }));
        }
        if self.hit_cpu_cache(&task)? {
            self.counts.cpu_hits += 1;
            return Ok(());
        }
        self.start(Task::Line(task))
    }

    /// Uses the line in the processor's cache. Returns false if it is not there.
    #[inline]
    fn hit_cpu_cache(&mut self, task: &LineTask) -> Result<bool, SimError> {
        let store = matches!(task.kind, LineKind::Allocate | LineKind::Load { store: true });
        if !self.cpu.as_mut().is_some_and(|cpu| cpu.touch(task.line, store)) {
            return Ok(false);
        }
        self.use_cpu_cache(task.line, store)?;
        let mut end = self.now + self.preset.cpu_cache_hit.0;
        if self.now < self.last_arrival
            && let Some((_, arrival)) = self.arriving.iter().rev().find(|(line, _)| *line == task.line)
        {
            end = end.max(*arrival);
        }
        self.line_ends(task.owner, end);
        Ok(true)
    }

    /// Records a use of a line in the processor's cache.
    fn use_cpu_cache(&mut self, line: u64, store: bool) -> Result<(), SimError> {
        if store {
            self.mark_unflushed(line);
        }
        let Some(shadow) = &mut self.shadow else { return Ok(()) };
        if store {
            shadow.new_version(line);
            shadow.cpu.insert(line, shadow.value);
            return Ok(());
        }
        shadow.value = shadow.cpu.get(&line).copied().unwrap_or(0);
        shadow.loaded(line)
    }

    fn mark_unflushed(&mut self, line: u64) {
        if !self.regions.is_empty() && self.is_persistent((line / LINES) as u32) {
            self.unflushed.insert(line);
        }
    }

    fn line_ends(&mut self, owner: LineOwner, end: Time) {
        match owner {
            LineOwner::Request(slot) => self.line_done(slot, end),
            LineOwner::Flush(id) => self.outbox.push((end, EventKind::Wake(super::task::Waiter::Task(id)))),
        }
    }

    pub(super) fn step_line(&mut self, task: &mut LineTask) -> Result<Step, SimError> {
        match task.stage {
            LineStage::Post(number) => return Ok(self.post(task, number)),
            LineStage::Exception(mut stage) => {
                let store = !matches!(task.kind, LineKind::Load { store: false });
                let (page, core) = (task.page(), task.core);
                if let Some(wait) = self.step_exception(page, store, core, &mut stage, &mut task.looked_up)? {
                    task.stage = LineStage::Exception(stage);
                    return Ok(task.wait(wait));
                }
                self.counts.memory_lines += u64::from(task.kind != LineKind::Allocate);
                (task.stage, task.waited) = (LineStage::Access, true);
            }
            LineStage::Translate => {
                self.counts.memory_lines += u64::from(task.kind != LineKind::Allocate);
                task.stage = LineStage::Access;
                let walk = task.core.map_or(0, |core| self.translate(core, task.page()));
                if walk > 0 {
                    return Ok(task.wait(Wait::At(self.now + walk)));
                }
            }
            LineStage::Access => {}
        }
        if !task.stores() {
            // Another access may have brought the line into the processor's cache, or evicted it.
            if task.waited && self.hit_cpu_cache(task)? {
                return Ok(Step::Done);
            }
            if self.evicted.contains(&task.line) {
                return Ok(task.wait(Wait::Frame));
            }
        }
        let page = task.page();
        let entry = self.table.get(page);
        let in_dram = entry != AT_DRIVE && entry & MOVING == 0;
        if self.mode != AccessMode::Promote && !in_dram {
            if task.kind == LineKind::WriteBack {
                return Err(SimError::Conservation {
                    law: "the page of a line in the processor's cache is in DRAM",
                    found: format!("page {page} is at the drive"),
                });
            }
            self.fault(page)?;
            task.faulted = true;
            return Ok(task.wait(Wait::Fault(page)));
        }
        if task.kind == LineKind::Allocate {
            if self.mode != AccessMode::Promote {
                self.touch_frame(entry);
            }
            self.enter_cpu_cache(task, true, self.now)?;
            return Ok(Step::Done);
        }
        if in_dram {
            self.counts.dram_lines += u64::from(!task.faulted);
            self.serve_from_dram(task, entry)?;
            return Ok(Step::Done);
        }
        if entry != AT_DRIVE && self.access_in_flight(task)? {
            return Ok(Step::Done);
        }
        self.access_drive(task)
    }

    fn serve_from_dram(&mut self, task: &LineTask, frame: u32) -> Result<(), SimError> {
        let stores = task.stores();
        if stores {
            self.take_version(task);
        }
        let end = self.access_dram(frame, task.within(), stores);
        if stores {
            self.stored(task, self.now, end);
            return Ok(());
        }
        self.loaded(task, end)
    }

    /// Makes the version that the access stores the one in transfer.
    fn take_version(&mut self, task: &LineTask) {
        if task.kind == LineKind::WriteBack {
            if let Some(shadow) = &mut self.shadow {
                shadow.value = shadow.cpu.get(&task.line).copied().unwrap_or(0);
            }
            // From now on the line is in memory.
            if let Some(at) = self.evicted.iter().position(|line| *line == task.line) {
                self.evicted.swap_remove(at);
                if task.waited {
                    self.tasks.wake_for_frames();
                }
            }
            return;
        }
        self.mark_unflushed(task.line);
        if let Some(shadow) = &mut self.shadow {
            shadow.new_version(task.line);
        }
    }

    /// Memory has served a load, whose data arrive at `end`.
    fn loaded(&mut self, task: &LineTask, end: Time) -> Result<(), SimError> {
        let cached = self.cpu.is_some();
        if let Some(shadow) = &mut self.shadow {
            shadow.loaded(task.line)?;
            if cached {
                shadow.cpu.insert(task.line, shadow.value);
            }
        }
        match task.kind {
            LineKind::Load { store } if cached => self.enter_cpu_cache(task, store, end),
            _ => {
                self.line_ends(task.owner, end);
                Ok(())
            }
        }
    }

    /// A store is accepted, and complete at `end`. A line that has taken the place of a dirty line waits
    /// for the acceptance alone.
    fn stored(&mut self, task: &LineTask, accepted: Time, end: Time) {
        let evicted = task.kind == LineKind::WriteBack && matches!(task.owner, LineOwner::Request(_));
        self.line_ends(task.owner, if evicted { accepted } else { end });
    }

    /// Enters a line into the processor's cache; its data arrive at `arrival`. A dirty line that it
    /// displaces is written back.
    fn enter_cpu_cache(&mut self, task: &LineTask, store: bool, arrival: Time) -> Result<(), SimError> {
        let end = arrival + self.preset.cpu_cache_hit.0;
        if arrival > self.now {
            if self.arriving.len() >= ARRIVING {
                let now = self.now;
                self.arriving.retain(|(_, arrival)| *arrival > now);
            }
            self.arriving.push((task.line, end));
            self.last_arrival = self.last_arrival.max(end);
        }
        let victim = self.cpu.as_mut().and_then(|cpu| cpu.insert(task.line, store));
        self.use_cpu_cache(task.line, store)?;
        if let (Some(victim), LineOwner::Request(slot)) = (victim, task.owner) {
            self.add_line(slot);
            self.evicted.push(victim);
            self.start(Task::Line(LineTask::new(victim, LineKind::WriteBack, task.owner, None)))?;
        }
        self.line_ends(task.owner, end);
        Ok(())
    }

    /// Accesses a line of a page in flight in DRAM, if it is there or the access brings it there.
    fn access_in_flight(&mut self, task: &mut LineTask) -> Result<bool, SimError> {
        let (page, within) = (u64::from(task.page()), task.within());
        self.advance_promotion(task.page())?;
        let route = self.look_aside.load(page, within).map_err(look_aside_error)?;
        if !task.stores() {
            let Some(LineRoute::Dram(frame)) = route else { return Ok(false) };
            self.counts.dram_lines += 1;
            self.serve_from_dram(task, frame as u32)?;
            return Ok(true);
        }
        if task.kind == (LineKind::Store { whole: false }) && route == Some(LineRoute::Ssd) {
            // The rest of the line must come from the drive first.
            return Ok(false);
        }
        let Some(LineRoute::Dram(frame)) = self.look_aside.store(page, within).map_err(look_aside_error)?
        else {
            return Ok(false);
        };
        self.counts.redirected_stores += 1;
        self.serve_from_dram(task, frame as u32)?;
        Ok(true)
    }

    /// Accesses a line of a page at the drive.
    fn access_drive(&mut self, task: &mut LineTask) -> Result<Step, SimError> {
        let page = task.page();
        // On the platform only exceptions see the device buffer.
        task.looked_up |= self.protection.is_some();
        let Some((frame, filling)) = self.look_up(page, &mut task.looked_up)? else {
            return Ok(task.wait(Wait::Frame));
        };
        if self.protection.is_some() && !filling {
            return self.access_open_page(task, frame);
        }
        let in_flight = self.table.get(page) != AT_DRIVE;
        if task.stores() && !in_flight {
            self.take_version(task);
            self.access_buffer(frame, task.within(), true);
            self.use_buffer(page, frame)?;
            let number = self.posted.begin();
            task.stage = LineStage::Post(number);
            let step = self.post(task, number);
            self.counts.posted_waits += u64::from(matches!(step, Step::Wait(_)));
            return Ok(step);
        }
        if filling {
            return Ok(task.wait(Wait::Fill(page)));
        }
        self.access_buffer(frame, task.within(), false);
        self.counts.line_reads += 1;
        self.counts.link_bytes_to_host += LINE_BYTES;
        let start = self.use_link(LinkDirection::ToHost, self.line_span);
        let end = start + self.preset.look_aside_lookup.0 + self.preset.line_read.0;
        self.use_buffer(page, frame)?;
        if let LineKind::Store { .. } = task.kind {
            // The rest of a line of a page in flight, to which the store goes when it has arrived.
            task.kind = LineKind::Store { whole: true };
            return Ok(task.wait(Wait::At(end)));
        }
        self.loaded(task, end)?;
        Ok(Step::Done)
    }

    /// Accesses a line of a page in the device buffer as the platform does: in host memory.
    fn access_open_page(&mut self, task: &mut LineTask, frame: usize) -> Result<Step, SimError> {
        let in_flight = self.table.get(task.page()) != AT_DRIVE;
        let stores = task.stores() && !in_flight;
        if stores {
            self.take_version(task);
        }
        let end = self.access_emulated(frame, task.within(), stores);
        match task.kind {
            _ if stores => self.stored(task, self.now, end),
            LineKind::Store { .. } => {
                // The rest of a line of a page in flight, to which the store goes when it has arrived.
                task.kind = LineKind::Store { whole: true };
                return Ok(task.wait(Wait::At(end)));
            }
            _ => self.loaded(task, end)?,
        }
        Ok(Step::Done)
    }

    /// Posts a store, if the write buffer has room.
    fn post(&mut self, task: &mut LineTask, number: u64) -> Step {
        if !self.posted.take_place() {
            return task.wait(Wait::Room);
        }
        self.counts.line_writes += 1;
        self.counts.link_bytes_to_drive += LINE_BYTES;
        let time = self.preset.look_aside_lookup.0 + self.preset.line_write.0;
        let start = self.use_link(LinkDirection::ToDrive, self.line_span);
        self.outbox.push((start + time, EventKind::Stored(number, task.page())));
        self.stored(task, self.now, self.now + time);
        Step::Done
    }
}

pub(super) fn look_aside_error(error: impl std::fmt::Display) -> SimError {
    SimError::Conservation {
        law: "the look-aside buffer accepts the host's operations",
        found: error.to_string(),
    }
}
