//! The host's side: translation, pages in DRAM, faults, and who leaves.

use deepram_core::cache::Replacement;
use deepram_core::migration::LineRoute;

use super::{FlatMemory, LINES, Lane, PAGE, Way};
use crate::engine::Time;
use crate::error::SimError;
use crate::host::Command;
use crate::paging::Phase;
use crate::processor::LINE_BYTES;

/// The page is at the drive.
pub(super) const AT_DRIVE: u32 = u32::MAX;
/// The page is on its way to the frame.
pub(super) const MOVING: u32 = 1 << 31;

/// Software before the drive has the command.
const WAY_IN: [Phase; 5] = [Phase::Entry, Phase::Lookup, Phase::Allocation, Phase::Block, Phase::Driver];
/// And after the page is in memory.
const WAY_OUT: [Phase; 6] =
    [Phase::Interrupt, Phase::Completion, Phase::Wake, Phase::Wait, Phase::SwitchBack, Phase::Map];

/// A page frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub(super) page: u32,
    /// When its page is in it.
    pub(super) ready: Time,
    pub(super) dirty: bool,
}

impl FlatMemory {
    /// A line past the processor's cache; when it is over.
    pub(super) fn memory(
        &mut self,
        line: u64,
        store: bool,
        whole: bool,
        translate: bool,
        now: Time,
    ) -> Result<Time, SimError> {
        self.settle(now)?;
        self.counts.memory_lines += 1;
        let (page, within) = ((line / LINES) as u32, (line % LINES) as u8);
        let mut t = now;
        if translate {
            t += self.translate(page);
        }
        let entry = self.table.get(page);
        if self.way == Way::Promote && (entry == AT_DRIVE || entry & MOVING != 0) {
            t += self.preset.look_aside_lookup.0;
        }
        if entry != AT_DRIVE && entry & MOVING == 0 {
            self.counts.dram_lines += 1;
            return Ok(self.in_dram(entry, within, store, t));
        }
        if self.way != Way::Promote {
            let frame = self.fault(page, t)?;
            return Ok(self.in_dram(frame, within, store, t));
        }
        if entry == AT_DRIVE {
            return self.at_drive(page, within, store, t);
        }
        self.catch_up(page, t)?;
        if store {
            let fetched = self.look_aside.load(page.into(), within).map_err(wrong)?;
            if !whole && fetched == Some(LineRoute::Ssd) {
                // What the store leaves of the line must come from the drive.
                let value = self.contents.as_ref().map(|contents| contents.value);
                t = self.at_drive(page, within, false, t)?;
                if let (Some(contents), Some(value)) = (&mut self.contents, value) {
                    contents.value = value;
                }
            }
            if let Some(LineRoute::Dram(frame)) = self.look_aside.store(page.into(), within).map_err(wrong)? {
                self.counts.redirected_stores += 1;
                return Ok(self.in_dram(frame as u32, within, true, t));
            }
        } else if let Some(LineRoute::Dram(frame)) =
            self.look_aside.load(page.into(), within).map_err(wrong)?
        {
            self.counts.dram_lines += 1;
            return Ok(self.in_dram(frame as u32, within, false, t));
        }
        self.at_drive(page, within, store, t)
    }

    /// What a store of a whole line in the processor's cache needs at `now`: the page's translation, and where pages
    /// are paged the page in DRAM, but not the line; when it has that.
    pub(super) fn own(&mut self, page: u32, now: Time) -> Result<Time, SimError> {
        self.settle(now)?;
        let t = now + self.translate(page);
        if self.way == Way::Promote {
            return Ok(t);
        }
        let frame = match self.table.get(page) {
            AT_DRIVE => self.fault(page, t)?,
            frame => frame,
        };
        self.recent.touch(frame);
        Ok(t.max(self.frames[frame as usize].ready))
    }

    /// The page's lines leave the processor's cache, before its address changes; dirty ones go to its frame.
    pub(super) fn flush_lines(&mut self, page: u32, frame: u32, at: Time) {
        let first = u64::from(page) * LINES;
        for within in 0..LINES {
            let line = first + within;
            let Some(dirty) = self.cpu.as_mut().and_then(|cpu| cpu.remove(line)) else { continue };
            self.counts.moved_lines += 1;
            // The version on its way is another line's.
            let kept = self.contents.as_mut().map(|contents| {
                let stored = contents.cpu.remove(&line).unwrap_or(0);
                std::mem::replace(&mut contents.value, stored)
            });
            if dirty {
                self.in_dram(frame, within as u8, true, at);
            }
            if let (Some(contents), Some(kept)) = (&mut self.contents, kept) {
                contents.value = kept;
            }
        }
    }

    /// Time to find where the page is.
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

    /// The page's entry has changed: no translation of it is held any more.
    pub(super) fn entry_changed(&mut self, page: u32) {
        self.counts.pte_updates += 1;
        self.shoot_down(page);
    }

    fn shoot_down(&mut self, page: u32) {
        if let Some(entry) = self.tlb.find(page) {
            self.tlb.remove(entry);
        }
    }

    /// The drive may have told of pages that it has moved: the time of one interrupt for all of them.
    pub(super) fn told(&mut self) -> Time {
        if self.flash.told.is_empty() {
            return 0;
        }
        let told = std::mem::take(&mut self.flash.told);
        self.counts.pte_updates += told.len() as u64;
        for page in told {
            self.shoot_down(page);
        }
        self.preset.pte_update.0
    }

    /// Whether an access, sent now, would be a page fault: for
    /// [`crate::processor::execute_with_faults`].
    #[must_use]
    pub fn would_fault(&self, command: &Command) -> bool {
        self.way != Way::Promote && self.table.get((command.offset / PAGE) as u32) == AT_DRIVE
    }

    fn in_dram(&mut self, number: u32, line: u8, store: bool, at: Time) -> Time {
        self.recent.touch(number);
        let frame = &mut self.frames[number as usize];
        frame.dirty |= store;
        let start = at.max(frame.ready);
        if let Some(contents) = &mut self.contents {
            contents.dram(number, line, store);
        }
        let first = u64::from(number) * PAGE + u64::from(line) * LINE_BYTES;
        (first / self.burst..=(first + LINE_BYTES - 1) / self.burst)
            .map(|burst| self.dram.serve(burst, store, start))
            .max()
            .unwrap_or(start)
    }

    /// A page fault at `now`; the page's frame, which will be ready.
    fn fault(&mut self, page: u32, now: Time) -> Result<u32, SimError> {
        self.counts.faults += 1;
        let mut t = now;
        if let Some(software) = &mut self.software {
            t += software.phases(&WAY_IN) + self.preset.walk.0 * self.preset.indirections;
            self.index(page);
        }
        let (_, there) = self.hold(page, t)?;
        let (frame, taken) = self.take_frame(there)?.ok_or_else(|| SimError::Conservation {
            law: "a fault finds a frame",
            found: format!("none of {}", self.frame_count),
        })?;
        if let Some(contents) = &mut self.contents {
            // Who left for it may have driven the page out of the drive's memory.
            match self.buffer.find(page) {
                Some(held) => contents.buffer_to_dram(held, frame),
                None => contents.flash_to_dram(self.flash.place(page), frame),
            }
        }
        let mut ready = self.lane(Lane::ToHost, self.page_span, taken) + self.preset.promote.0;
        ready += self.preset.pte_update.0;
        if let Some(software) = &mut self.software {
            ready += software.phases(&WAY_OUT);
        }
        self.counts.pages_to_host += 1;
        self.counts.link_bytes_to_host += PAGE;
        self.counts.pte_updates += 1;
        self.flash.forget(page);
        self.frames[frame as usize] = Frame { page, ready, dirty: false };
        self.table.set(page, frame);
        self.recent.insert(frame);
        Ok(frame)
    }

    /// The tables of the other layers name the page from now on, and take memory for it.
    fn index(&mut self, page: u32) {
        let (word, bit) = (page as usize / 64, 1 << (page % 64));
        if self.indexed[word] & bit == 0 {
            self.indexed[word] |= bit;
            self.indexed_count += 1;
        }
    }

    /// Frames that pages may have.
    fn room(&self) -> u64 {
        let index = self.preset.indirections * self.preset.indirection_entry.0 * self.indexed_count;
        self.frame_count.saturating_sub(index.div_ceil(PAGE)).max(1)
    }

    fn frames_in_use(&self) -> u64 {
        (self.frames.len() - self.idle.len()) as u64
    }

    /// Whether a page could get a frame.
    pub(super) fn has_room(&self) -> bool {
        self.frames_in_use() < self.room() || !self.recent.is_empty()
    }

    /// A frame for a page at `now`, and when it may be filled; the pages used longest ago leave for it. `None` if
    /// all frames are those of pages in flight.
    pub(super) fn take_frame(&mut self, now: Time) -> Result<Option<(u32, Time)>, SimError> {
        let mut t = now;
        while self.frames_in_use() >= self.room() {
            let Some(frame) = self.recent.victim(&mut |_| true) else { return Ok(None) };
            t = t.max(self.demote(frame, now)?);
            self.idle.push(frame);
        }
        let frame = self.idle.pop().unwrap_or_else(|| {
            self.frames.push(Frame { page: 0, ready: 0, dirty: false });
            (self.frames.len() - 1) as u32
        });
        Ok(Some((frame, t)))
    }

    /// The page in the frame leaves DRAM; when the drive has taken it.
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

pub(super) fn wrong(error: impl std::fmt::Display) -> SimError {
    SimError::Conservation { law: "the look-aside buffer is driven as it must be", found: error.to_string() }
}
