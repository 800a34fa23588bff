//! Write-back of dirty blocks at eviction, before eviction (NVMM, Solid-State Disk Architectures and
//! Operation: pre-emptive write-back of cold dirty pages) or by a sync, and rollback to the state of a
//! sync (NVMM, Software Interface: `sync`, `rollback`).
//!
//! A program takes many times as long as a read, so an early write-back must not delay reads. Only
//! blocks that leave the cache next are written early (the cold end of each set), each to an idle plane,
//! and only a share of all planes is busy with such programs at once.

use deepram_core::units::Picos;
use deepram_core::{Epoch, PageId};

use super::layout::SegmentKey;
use super::{EventKind, NvmmEvent, NvmmMemory, OperationPurpose, SegmentProgram, flag};
use crate::error::SimError;
use crate::flash_array::OperationClass;
use crate::host::{Context, Slot};

/// A sync that is not complete.
#[derive(Debug, Clone, Copy)]
pub(super) struct PendingSync {
    slot: Slot,
    /// The fills numbered below this one may carry stores that precede the sync, so the sync waits for
    /// them.
    fills: u64,
    /// Once the sync has closed its epoch: the number of cuts before its own, and the programs that it
    /// still waits for.
    cut: Option<(u64, u64)>,
}

/// The cause of a write-back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteBackCause {
    Evicted(usize),
    Early,
    Sync,
}

/// Blocks examined in search of a cold one, per event.
const COLD_SEARCH_STEPS: u32 = 4;

impl NvmmMemory {
    /// Writes back a dirty block to evict it. Returns false if the write-back is impossible now.
    pub(super) fn evict_dirty(
        &mut self,
        frame: usize,
        key: SegmentKey,
        context: &mut Context<NvmmEvent>,
    ) -> Result<bool, SimError> {
        if self.buffered >= self.nvmm.write_buffer {
            return Ok(false);
        }
        let (page, _) = self.flash_volume.layout.split(key);
        if !self.write_page(page, WriteBackCause::Evicted(frame), context)? {
            return Ok(false);
        }
        Ok(true)
    }

    /// Writes back the dirty blocks of a page; an early write-back takes only the cold ones. Returns
    /// false if flash has no room now, or no plane is idle for an early write-back.
    fn write_page(
        &mut self,
        page: PageId,
        cause: WriteBackCause,
        context: &mut Context<NvmmEvent>,
    ) -> Result<bool, SimError> {
        let mut frames = [None; 16];
        let mut segments = 0;
        for (segment, place) in (0..self.flash_volume.layout.per_page as u8).zip(&mut frames) {
            let frame = self.cache.find(self.flash_volume.layout.key(page, segment));
            *place = frame.filter(|frame| {
                self.flags[*frame] & (flag::DIRTY | flag::FILLING) == flag::DIRTY
                    && (cause != WriteBackCause::Early || self.is_cold(*frame))
            });
            segments |= u16::from(place.is_some()) << segment;
        }
        if cause == WriteBackCause::Early && !self.select_idle_planes(segments.count_ones()) {
            return Ok(false);
        }
        let Some(placed) = self.flash_volume.write(page, segments)? else {
            self.reclaim(context)?;
            return Ok(false);
        };
        let now = context.now().0;
        self.look_up_mapping(self.flash_volume.layout.key(page, 0));
        self.counts.versions += 1;
        self.reclaims_since_write = 0;
        for (segment, slot) in placed {
            let Some(frame) = frames.get(usize::from(segment)).copied().flatten() else { continue };
            let evicted = cause == WriteBackCause::Evicted(frame);
            match cause {
                _ if evicted => self.counts.written_evicted += 1,
                WriteBackCause::Evicted(_) => self.counts.written_with_evicted += 1,
                WriteBackCause::Early => self.counts.written_idle += 1,
                WriteBackCause::Sync => self.counts.written_sync += 1,
            }
            self.flags[frame] &= !flag::DIRTY;
            self.dirty -= 1;
            if !evicted {
                self.write_tag(frame, now);
            }
            if let Some(shadow) = &mut self.shadow {
                shadow.save(slot, frame);
            }
            self.in_buffer.insert(slot.0);
            self.buffered += u64::from(evicted);
            self.programs_open += 1;
            self.flash.host_programs += 1;
            self.flash.host_pages += 1;
            let kept = (!evicted).then_some(frame);
            let early = cause == WriteBackCause::Early;
            self.early_open += u64::from(early);
            let (slot_number, cuts) = (slot.0, self.cuts);
            let program = SegmentProgram { slot: slot_number, frame: kept, buffered: evicted, early, cuts };
            let op = self.operations.add(OperationPurpose::WriteBack(program));
            let plane = self.flash_volume.layout.plane(slot);
            if evicted {
                let taken = self.access_block_data(frame, 0, self.lines_per_block, false, now);
                context.schedule(Picos(taken), NvmmEvent(EventKind::Taken(op, plane)));
            } else {
                self.channels.submit(op, OperationClass::Program, plane, now);
            }
        }
        self.reclaim_if_short(context)?;
        Ok(true)
    }

    /// A program of a page version is complete.
    pub(super) fn program_ended(
        &mut self,
        program: SegmentProgram,
        context: &mut Context<NvmmEvent>,
    ) -> Result<(), SimError> {
        self.in_buffer.remove(&program.slot);
        self.buffered -= u64::from(program.buffered);
        self.programs_open -= 1;
        self.early_open -= u64::from(program.early);
        for sync in &mut self.syncs {
            if let Some((before, left)) = &mut sync.cut
                && program.cuts <= *before
            {
                *left -= 1;
            }
        }
        self.end_syncs(context);
        self.retry_stalled(context)
    }

    /// Writes cold blocks back early, while planes are idle.
    pub(super) fn write_back_idle(&mut self, context: &mut Context<NvmmEvent>) -> Result<(), SimError> {
        let limit = (self.options.write_back_above * self.cache.capacity() as f64) as u64;
        let mut examined = 0;
        while self.dirty > limit && examined < COLD_SEARCH_STEPS && self.may_write_early() {
            if self.flash_volume.free_for_host() <= self.flash_volume.low_watermark() {
                return Ok(());
            }
            let Some(frame) = self.listed.pop_front() else { return Ok(()) };
            if self.flags[frame] & flag::DIRTY == 0 {
                self.flags[frame] &= !flag::LISTED;
                continue;
            }
            if !self.is_cold(frame) {
                self.listed.push_back(frame);
                examined += 1;
                continue;
            }
            let (page, _) = self.flash_volume.layout.split(self.cache.key(frame).unwrap_or_default());
            if !self.write_page(page, WriteBackCause::Early, context)? {
                self.listed.push_back(frame);
                return Ok(());
            }
            self.flags[frame] &= !flag::LISTED;
        }
        Ok(())
    }

    /// True if a block is cold: among those of its set that are evicted next.
    fn is_cold(&self, frame: usize) -> bool {
        let ways = usize::from(self.cache.ways());
        let cold = ((self.options.write_back_cold * ways as f64) as usize).max(1);
        self.cache.age(frame) + cold >= ways
    }

    /// True if the limit of planes busy with early write-backs admits those of another page.
    fn may_write_early(&self) -> bool {
        let planes = (self.options.write_back_planes * self.nvmm.planes() as f64) as u64;
        self.early_open == 0 || self.early_open + u64::from(self.flash_volume.layout.per_page) <= planes
    }

    /// Makes an open block current whose next `segments` slots lie in idle planes. Returns false if
    /// there is none.
    fn select_idle_planes(&mut self, segments: u32) -> bool {
        for _ in 0..self.flash_volume.open_block_count() {
            let idle = match self.flash_volume.next_planes(segments) {
                Some(mut planes) => planes.all(|plane| self.channels.is_idle(plane)),
                // The planes of a block yet to be opened are unknown.
                None => self.channels.is_quiet(),
            };
            if idle {
                return true;
            }
            self.flash_volume.advance_open_block();
        }
        false
    }

    pub(super) fn begin_sync(
        &mut self,
        slot: Slot,
        context: &mut Context<NvmmEvent>,
    ) -> Result<(), SimError> {
        self.syncs.push(PendingSync { slot, fills: self.fill_numbers, cut: None });
        self.continue_syncs(context)
    }

    /// Closes the epochs of pending syncs, in order: each as soon as the stores that precede it are in
    /// the cache and all dirty blocks have slots on flash.
    pub(super) fn continue_syncs(&mut self, context: &mut Context<NvmmEvent>) -> Result<(), SimError> {
        while let Some(at) = self.syncs.iter().position(|sync| sync.cut.is_none()) {
            if self.fills_with_stores(self.syncs[at].fills) {
                return Ok(());
            }
            while let Some(frame) = self.listed.pop_front() {
                if self.flags[frame] & flag::DIRTY != 0 {
                    let (page, _) = self.flash_volume.layout.split(self.cache.key(frame).unwrap_or_default());
                    if !self.write_page(page, WriteBackCause::Sync, context)? {
                        self.listed.push_front(frame);
                        return Ok(());
                    }
                }
                self.flags[frame] &= !flag::LISTED;
            }
            let token = self.flash_volume.close_epoch(context.now().0 / 1000)?;
            self.counts.syncs += 1;
            self.last_sync = Some(token);
            if let Some(shadow) = &mut self.shadow {
                let oldest = self.flash_volume.tokens().first().map_or(token, |t| t.epoch);
                shadow.note(token, oldest);
            }
            self.syncs[at].cut = Some((self.cuts, self.programs_open));
            self.cuts += 1;
            self.end_syncs(context);
        }
        Ok(())
    }

    fn end_syncs(&mut self, context: &mut Context<NvmmEvent>) {
        let over = |sync: &PendingSync| matches!(sync.cut, Some((_, 0)));
        for sync in self.syncs.iter().filter(|sync| over(sync)) {
            context.complete(sync.slot);
            self.commands -= 1;
        }
        self.syncs.retain(|sync| !over(sync));
    }

    /// The tokens that can be rolled back to, oldest first. Token 0 exists from the start: the state
    /// before the run.
    #[must_use]
    pub fn tokens(&self) -> Vec<Epoch> {
        self.flash_volume.tokens().iter().map(|token| token.epoch).collect()
    }

    /// Rolls back to the state of a token: discards younger versions, the cached blocks of the pages
    /// that they belong to, and all dirty blocks.
    ///
    /// # Errors
    /// A command is under way; the token does not exist or has been dropped.
    pub fn rollback(&mut self, token: Epoch) -> Result<(), SimError> {
        if self.commands > 0
            || !self.channels.is_quiet()
            || !self.reclaims.is_empty()
            || !self.fills.is_empty()
        {
            return Err(SimError::config("token", "a rollback must wait until no command is under way"));
        }
        if self.shadow.as_ref().is_some_and(|shadow| !shadow.knows(token)) {
            return Err(SimError::config(
                "token",
                "no sync made this token, so the run cannot be verified against it",
            ));
        }
        let pages = self.flash_volume.rollback(token)?;
        let per_page = self.flash_volume.layout.per_page;
        let changed: Vec<(usize, SegmentKey)> = self
            .cache
            .iter()
            .filter(|(frame, key)| {
                self.flags[*frame] & flag::DIRTY != 0 || pages.binary_search(&PageId(key / per_page)).is_ok()
            })
            .collect();
        for (frame, _) in changed {
            if self.flags[frame] & flag::DIRTY != 0 {
                self.flags[frame] &= !flag::DIRTY;
                self.dirty -= 1;
                self.counts.rolled_back_dirty += 1;
            }
            self.counts.rolled_back += 1;
            self.drop_block(frame);
        }
        self.counts.rollbacks += 1;
        if self.last_sync.is_some() {
            self.last_sync = Some(token);
        }
        if let Some(shadow) = &mut self.shadow {
            shadow.return_to(token);
        }
        Ok(())
    }
}
