//! Flushes of persistent regions, and block writes to them (FlatFlash, section 3.5: the P bit, which
//! marks the pages of a region, and the write-verify read, which ends a flush).

use std::ops::Range;

use deepram_media::FlushTarget;

use super::memory::{AT_DRIVE, MOVING};
use super::{AccessMode, FlatMemory, LINES, LinkDirection, PAGE};
use crate::engine::Time;
use crate::error::SimError;
use crate::paging::Phase;
use crate::processor::LINE_BYTES;

/// Software phases of a request that writes pages.
const WRITE_SOFTWARE: [Phase; 8] = [
    Phase::Entry,
    Phase::Lookup,
    Phase::Block,
    Phase::Driver,
    Phase::Interrupt,
    Phase::Completion,
    Phase::Wake,
    Phase::SwitchBack,
];

impl FlatMemory {
    /// Makes stores to the persistent regions before `now` durable: all of them, or those to `bytes`.
    /// Returns the time at which they are durable.
    pub(super) fn persist(&mut self, bytes: Option<Range<u64>>, now: Time) -> Result<Time, SimError> {
        if self.regions.is_empty() {
            return Ok(now);
        }
        self.finish_promotions(now)?;
        self.counts.flushes += 1;
        let lines: Vec<u64> = match bytes {
            None => std::mem::take(&mut self.unflushed).into_iter().collect(),
            Some(bytes) => self.take_unflushed(bytes.start / LINE_BYTES..bytes.end.div_ceil(LINE_BYTES)),
        };
        let mut t = now;
        for line in &lines {
            let dirty = self.cpu.as_mut().is_some_and(|cpu| cpu.clean(*line));
            if dirty {
                self.counts.flushed_lines += 1;
                t = self.write_back_line(*line, t)?;
            }
        }
        if self.mode == AccessMode::Promote {
            // A read does not overtake stores: when it returns, the stores have arrived.
            let behind = self.last_store_arrival(t);
            self.counts.line_reads += 1;
            self.counts.link_bytes_to_host += LINE_BYTES;
            t = self.use_link(LinkDirection::ToHost, self.line_span, behind) + self.preset.line_read.0;
        } else {
            let mut last = None;
            for line in &lines {
                let page = (line / LINES) as u32;
                if last.replace(page) != Some(page) {
                    t = self.persist_page(page, t)?;
                }
            }
        }
        if let Some(shadow) = &self.shadow {
            for line in &lines {
                let page = (line / LINES) as u32;
                shadow.durable(*line, self.buffer.find(page), self.flash.place(page))?;
            }
        }
        Ok(t)
    }

    /// Writes a page to the drive if it is in DRAM and dirty. Returns the time at which it has arrived.
    /// The transfer takes as long as moving a page to DRAM: the paper has no figure of its own for it.
    fn persist_page(&mut self, page: u32, now: Time) -> Result<Time, SimError> {
        let frame = self.table.get(page);
        if frame == AT_DRIVE || frame & MOVING != 0 || !self.frames[frame as usize].dirty {
            return Ok(now);
        }
        self.counts.flushed_pages += 1;
        let mut t = now;
        if let Some(software) = &mut self.software {
            t += software.phases(&WRITE_SOFTWARE);
        }
        let taken = self.write_page(page, frame, t)?;
        self.frames[frame as usize].dirty = false;
        let sent = self.make_durable(page, taken.max(t))?;
        Ok(sent + self.preset.promote.0)
    }

    /// Removes and returns the unflushed lines of a range.
    fn take_unflushed(&mut self, of: Range<u64>) -> Vec<u64> {
        let lines: Vec<u64> = self.unflushed.range(of).copied().collect();
        for line in &lines {
            self.unflushed.remove(line);
        }
        lines
    }

    /// Makes a page that the drive has received durable. Returns the time at which it is. It is
    /// programmed if the preset's `flushed` requires it.
    fn make_durable(&mut self, page: u32, now: Time) -> Result<Time, SimError> {
        let through = self.mode != AccessMode::Promote && self.preset.flushed == FlushTarget::Flash;
        match self.buffer.find(page) {
            Some(buffer_frame) if through => Ok(self.program(page, buffer_frame, now)?.max(now)),
            _ => Ok(now),
        }
    }

    /// Writes whole pages of a persistent region as blocks, past the processor's cache; the drive need
    /// not read the old pages. Returns the time at which all are durable.
    pub(super) fn write_blocks(&mut self, pages: Range<u32>, now: Time) -> Result<Time, SimError> {
        self.finish_promotions(now)?;
        let mut t = now;
        if let Some(software) = &mut self.software {
            t += software.phases(&WRITE_SOFTWARE);
        }
        // The end times of the page writes under way at once.
        let mut under_way = vec![t; self.preset.page_writes as usize];
        let mut end = t;
        for (turn, page) in pages.enumerate() {
            let place = turn % under_way.len();
            under_way[place] = self.write_block(page, under_way[place])?;
            end = end.max(under_way[place]);
        }
        Ok(end)
    }

    fn write_block(&mut self, page: u32, now: Time) -> Result<Time, SimError> {
        self.counts.written_blocks += 1;
        let first = u64::from(page) * LINES;
        let lines = first..first + LINES;
        self.take_unflushed(lines.clone());
        let entry = self.table.get(page);
        let frame = (entry != AT_DRIVE).then_some(entry);
        let (buffer_frame, taken) = self.receive(page, now)?;
        for line in lines.clone() {
            // Copies in the processor's cache are updated.
            let cached = self.cpu.as_mut().is_some_and(|cpu| {
                cpu.clean(line);
                cpu.touch(line, false)
            });
            let Some(shadow) = &mut self.shadow else { continue };
            shadow.new_version(line);
            let within = (line % LINES) as u8;
            shadow.buffer(buffer_frame, within, true);
            if let Some(frame) = frame {
                shadow.dram(frame, within, true);
            }
            if cached {
                shadow.cpu.insert(line, shadow.value);
            }
        }
        if let Some(frame) = frame {
            self.frames[frame as usize].dirty = false;
        }
        let sent = self.make_durable(page, taken.max(now))?;
        if let Some(shadow) = &self.shadow {
            for line in lines {
                shadow.durable(line, self.buffer.find(page), self.flash.place(page))?;
            }
        }
        Ok(sent + self.preset.promote.0)
    }

    /// The pages of a write that covers whole pages of one persistent region; `None` for any other
    /// write.
    pub(super) fn blocks(&self, offset: u64, len: u64) -> Option<Range<u32>> {
        let whole = len > 0 && offset.is_multiple_of(PAGE) && len.is_multiple_of(PAGE);
        let pages = (offset / PAGE) as u32..((offset + len) / PAGE) as u32;
        let within = |(first, end): &(u32, u32)| *first <= pages.start && pages.end <= *end;
        (whole && self.regions.iter().any(within)).then_some(pages)
    }
}
