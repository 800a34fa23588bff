//! The host's side: translation, pages in DRAM, page faults, demotion (FlatFlash, sections 3.2 and 3.3).

use deepram_core::cache::Replacement;
use deepram_core::migration::LineRoute;

use super::{AccessMode, FlatMemory, LINES, LinkDirection, PAGE};
use crate::engine::Time;
use crate::error::SimError;
use crate::host::Command;
use crate::paging::Phase;
use crate::processor::LINE_BYTES;

/// The page is at the drive.
pub(super) const AT_DRIVE: u32 = u32::MAX;
/// The page is in flight to the frame.
pub(super) const MOVING: u32 = 1 << 31;

/// Software phases before the drive has the command.
const SOFTWARE_BEFORE_IO: [Phase; 5] =
    [Phase::Entry, Phase::Lookup, Phase::Allocation, Phase::Block, Phase::Driver];
/// Software phases after the page is in memory.
const SOFTWARE_AFTER_IO: [Phase; 6] =
    [Phase::Interrupt, Phase::Completion, Phase::Wake, Phase::Wait, Phase::SwitchBack, Phase::Map];

/// A page frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct HostFrame {
    pub(super) page: u32,
    /// The time at which the frame holds its page.
    pub(super) ready: Time,
    pub(super) dirty: bool,
}

impl FlatMemory {
    /// Accesses a line that missed, or leaves, the processor's cache. Returns the time at which the
    /// access is complete.
    pub(super) fn access_memory(
        &mut self,
        line: u64,
        store: bool,
        whole: bool,
        translate: bool,
        now: Time,
    ) -> Result<Time, SimError> {
        self.finish_promotions(now)?;
        self.counts.memory_lines += 1;
        let (page, within) = ((line / LINES) as u32, (line % LINES) as u8);
        let mut t = now;
        if translate {
            t += self.translate(page);
        }
        let entry = self.table.get(page);
        if self.mode == AccessMode::Promote && (entry == AT_DRIVE || entry & MOVING != 0) {
            t += self.preset.look_aside_lookup.0;
        }
        if entry != AT_DRIVE && entry & MOVING == 0 {
            self.counts.dram_lines += 1;
            return Ok(self.access_dram(entry, within, store, t));
        }
        if self.mode != AccessMode::Promote {
            let frame = self.fault(page, t)?;
            return Ok(self.access_dram(frame, within, store, t));
        }
        if entry == AT_DRIVE {
            return self.access_drive_line(page, within, store, t);
        }
        self.advance_promotion(page, t)?;
        if store {
            let fetched = self.look_aside.load(page.into(), within).map_err(look_aside_error)?;
            if !whole && fetched == Some(LineRoute::Ssd) {
                // The rest of the line must come from the drive.
                let value = self.shadow.as_ref().map(|shadow| shadow.value);
                t = self.access_drive_line(page, within, false, t)?;
                if let (Some(shadow), Some(value)) = (&mut self.shadow, value) {
                    shadow.value = value;
                }
            }
            if let Some(LineRoute::Dram(frame)) =
                self.look_aside.store(page.into(), within).map_err(look_aside_error)?
            {
                self.counts.redirected_stores += 1;
                return Ok(self.access_dram(frame as u32, within, true, t));
            }
        } else if let Some(LineRoute::Dram(frame)) =
            self.look_aside.load(page.into(), within).map_err(look_aside_error)?
        {
            self.counts.dram_lines += 1;
            return Ok(self.access_dram(frame as u32, within, false, t));
        }
        self.access_drive_line(page, within, store, t)
    }

    /// Performs the memory's part of a whole-line store in the processor's cache at `now`: the page's
    /// translation and, in the paging systems, the page in DRAM, but not the line. Returns the time at
    /// which both are available.
    pub(super) fn translate_for_store(&mut self, page: u32, now: Time) -> Result<Time, SimError> {
        self.finish_promotions(now)?;
        let t = now + self.translate(page);
        if self.mode == AccessMode::Promote {
            return Ok(t);
        }
        let frame = match self.table.get(page) {
            AT_DRIVE => self.fault(page, t)?,
            frame => frame,
        };
        self.lru.touch(frame);
        Ok(t.max(self.frames[frame as usize].ready))
    }

    /// Removes the page's lines from the processor's cache before its address changes; dirty lines go to
    /// its frame.
    pub(super) fn flush_lines(&mut self, page: u32, frame: u32, at: Time) {
        let first = u64::from(page) * LINES;
        for within in 0..LINES {
            let line = first + within;
            let Some(dirty) = self.cpu.as_mut().and_then(|cpu| cpu.remove(line)) else { continue };
            self.counts.moved_lines += 1;
            // The version in transfer belongs to another line.
            let kept = self.shadow.as_mut().map(|shadow| {
                let stored = shadow.cpu.remove(&line).unwrap_or(0);
                std::mem::replace(&mut shadow.value, stored)
            });
            if dirty {
                self.access_dram(frame, within as u8, true, at);
            }
            if let (Some(shadow), Some(kept)) = (&mut self.shadow, kept) {
                shadow.value = kept;
            }
        }
    }

    /// Translates the page. Returns the time that the translation takes.
    fn translate(&mut self, page: u32) -> Time {
        self.counts.tlb_lookups += 1;
        if let Some(entry) = self.tlb.find(page) {
            self.counts.tlb_hits += 1;
            self.tlb.touch(entry);
            return 0;
        }
        if let Some(target) = self.tlb.fill_target(page, |_| true) {
            self.tlb.insert(page, target.frame);
        }
        self.preset.walk.0
    }

    /// Records a change of the page's entry, and removes its translation from the TLB.
    pub(super) fn entry_changed(&mut self, page: u32) {
        self.counts.pte_updates += 1;
        self.shoot_down(page);
    }

    fn shoot_down(&mut self, page: u32) {
        if let Some(entry) = self.tlb.find(page) {
            self.tlb.remove(entry);
        }
    }

    /// Applies a pending remap batch of the drive. Returns the time of one interrupt for all its pages;
    /// 0 if no batch is pending.
    pub(super) fn deliver_remap_batch(&mut self) -> Time {
        if self.flash.remap_batch.is_empty() {
            return 0;
        }
        let remap_batch = std::mem::take(&mut self.flash.remap_batch);
        self.counts.pte_updates += remap_batch.len() as u64;
        for page in remap_batch {
            self.shoot_down(page);
        }
        self.preset.pte_update.0
    }

    /// True if an access sent now would be a page fault; for [`crate::processor::execute_with_faults`].
    #[must_use]
    pub fn would_fault(&self, command: &Command) -> bool {
        self.mode != AccessMode::Promote && self.table.get((command.offset / PAGE) as u32) == AT_DRIVE
    }

    fn access_dram(&mut self, number: u32, line: u8, store: bool, at: Time) -> Time {
        self.lru.touch(number);
        let frame = &mut self.frames[number as usize];
        frame.dirty |= store;
        let start = at.max(frame.ready);
        if let Some(shadow) = &mut self.shadow {
            shadow.dram(number, line, store);
        }
        let first = u64::from(number) * PAGE + u64::from(line) * LINE_BYTES;
        (first / self.burst..=(first + LINE_BYTES - 1) / self.burst)
            .map(|burst| self.dram.serve(burst, store, start))
            .max()
            .unwrap_or(start)
    }

    /// Handles a page fault at `now`. Returns the page's frame, which is filled at its `ready` time.
    fn fault(&mut self, page: u32, now: Time) -> Result<u32, SimError> {
        self.counts.faults += 1;
        let mut t = now;
        if let Some(software) = &mut self.software {
            t += software.phases(&SOFTWARE_BEFORE_IO) + self.preset.walk.0 * self.preset.indirections;
            self.index_page(page);
        }
        let (_, there) = self.load_page(page, t)?;
        let (frame, taken) = self.take_frame(there)?.ok_or_else(|| SimError::Conservation {
            law: "a fault finds a frame",
            found: format!("none of {} is free or can be freed", self.frame_count),
        })?;
        if let Some(shadow) = &mut self.shadow {
            // The demotion of another page may have evicted the page from the device buffer.
            match self.buffer.find(page) {
                Some(buffer_frame) => shadow.buffer_to_dram(buffer_frame, frame),
                None => shadow.flash_to_dram(self.flash.place(page), frame),
            }
        }
        let mut ready = self.use_link(LinkDirection::ToHost, self.page_span, taken) + self.preset.promote.0;
        ready += self.preset.pte_update.0;
        if let Some(software) = &mut self.software {
            ready += software.phases(&SOFTWARE_AFTER_IO);
        }
        self.counts.pages_to_host += 1;
        self.counts.link_bytes_to_host += PAGE;
        self.counts.pte_updates += 1;
        self.flash.forget(page);
        self.frames[frame as usize] = HostFrame { page, ready, dirty: false };
        self.table.set(page, frame);
        self.lru.insert(frame);
        Ok(frame)
    }

    /// Adds the page to the tables of the other layers, which take memory for it.
    fn index_page(&mut self, page: u32) {
        let (word, bit) = (page as usize / 64, 1 << (page % 64));
        if self.indexed[word] & bit == 0 {
            self.indexed[word] |= bit;
            self.indexed_count += 1;
        }
    }

    /// The number of frames available to pages.
    fn page_frames(&self) -> u64 {
        let index = self.preset.indirections * self.preset.indirection_entry.0 * self.indexed_count;
        self.frame_count.saturating_sub(index.div_ceil(PAGE)).max(1)
    }

    fn frames_in_use(&self) -> u64 {
        (self.frames.len() - self.idle.len()) as u64
    }

    /// True if a page can get a frame.
    pub(super) fn has_room(&self) -> bool {
        self.frames_in_use() < self.page_frames() || !self.lru.is_empty()
    }

    /// A frame for a page at `now`, and the time from which it may be filled; least recently used pages
    /// are demoted for it. `None` if all frames belong to pages in flight.
    pub(super) fn take_frame(&mut self, now: Time) -> Result<Option<(u32, Time)>, SimError> {
        let mut t = now;
        while self.frames_in_use() >= self.page_frames() {
            let Some(frame) = self.lru.victim(&mut |_| true) else { return Ok(None) };
            t = t.max(self.demote(frame, now)?);
            self.idle.push(frame);
        }
        let frame = self.idle.pop().unwrap_or_else(|| {
            self.frames.push(HostFrame { page: 0, ready: 0, dirty: false });
            (self.frames.len() - 1) as u32
        });
        Ok(Some((frame, t)))
    }

    /// Demotes the page in a frame. Returns the time at which the drive has accepted it.
    fn demote(&mut self, number: u32, now: Time) -> Result<Time, SimError> {
        let page = self.frames[number as usize].page;
        self.flush_lines(page, number, now);
        let dirty = self.frames[number as usize].dirty;
        self.counts.demotions += 1;
        self.table.set(page, AT_DRIVE);
        self.entry_changed(page);
        if dirty { self.write_page(page, number, now) } else { Ok(now) }
    }
}

pub(super) fn look_aside_error(error: impl std::fmt::Display) -> SimError {
    SimError::Conservation {
        law: "the look-aside buffer accepts the host's operations",
        found: error.to_string(),
    }
}
