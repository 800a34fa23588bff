//! Flushes of persistent regions (FlatFlash, section 3.5), and blocks written to them.

use std::ops::Range;

use deepram_media::FlushTarget;

use super::memory::{AT_DRIVE, MOVING};
use super::{FlatMemory, LINES, Lane, PAGE, Way};
use crate::engine::Time;
use crate::error::SimError;
use crate::paging::Phase;
use crate::processor::LINE_BYTES;

/// Software of a request that writes pages.
const WRITE: [Phase; 8] = [
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
    /// Makes durable what was stored to the regions before `now`, or to some bytes of them only; when it is.
    pub(super) fn persist(&mut self, bytes: Option<Range<u64>>, now: Time) -> Result<Time, SimError> {
        if self.regions.is_empty() {
            return Ok(now);
        }
        self.settle(now)?;
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
        if self.way == Way::Promote {
            // A read does not overtake stores: when it is back, they are there.
            let behind = self.landed(t);
            self.counts.line_reads += 1;
            self.counts.link_bytes_to_host += LINE_BYTES;
            t = self.lane(Lane::ToHost, self.line_span, behind) + self.preset.line_read.0;
        } else {
            let mut last = None;
            for line in &lines {
                let page = (line / LINES) as u32;
                if last.replace(page) != Some(page) {
                    t = self.persist_page(page, t)?;
                }
            }
        }
        if let Some(contents) = &self.contents {
            for line in &lines {
                let page = (line / LINES) as u32;
                contents.durable(*line, self.buffer.find(page), self.flash.place(page))?;
            }
        }
        Ok(t)
    }

    /// Writes a page to the drive if it is in DRAM and dirty; when it is there. It takes what moving a page the
    /// other way takes: the paper has no figure of its own for it.
    fn persist_page(&mut self, page: u32, now: Time) -> Result<Time, SimError> {
        let frame = self.table.get(page);
        if frame == AT_DRIVE || frame & MOVING != 0 || !self.frames[frame as usize].dirty {
            return Ok(now);
        }
        self.counts.flushed_pages += 1;
        let mut t = now;
        if let Some(software) = &mut self.software {
            t += software.phases(&WRITE);
        }
        let taken = self.write_page(page, frame, t)?;
        self.frames[frame as usize].dirty = false;
        let sent = self.flushed(page, taken.max(t))?;
        Ok(sent + self.preset.promote.0)
    }

    /// The lines of a range that were stored to since they were last flushed; none of them are any more.
    fn take_unflushed(&mut self, of: Range<u64>) -> Vec<u64> {
        let lines: Vec<u64> = self.unflushed.range(of).copied().collect();
        for line in &lines {
            self.unflushed.remove(line);
        }
        lines
    }

    /// The drive has a page that somebody waits for; when it has taken it.
    fn flushed(&mut self, page: u32, now: Time) -> Result<Time, SimError> {
        let through = self.way != Way::Promote && self.preset.flushed == FlushTarget::Flash;
        match self.buffer.find(page) {
            Some(held) if through => Ok(self.program(page, held, now)?.max(now)),
            _ => Ok(now),
        }
    }

    /// Writes whole pages of a region as blocks: past the processor's cache to the drive, which need not read what it
    /// had of them. They are durable at the end, which is told.
    pub(super) fn write_blocks(&mut self, pages: Range<u32>, now: Time) -> Result<Time, SimError> {
        self.settle(now)?;
        let mut t = now;
        if let Some(software) = &mut self.software {
            t += software.phases(&WRITE);
        }
        // The ends of those under way at once.
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
        let (held, taken) = self.receive(page, now)?;
        for line in lines.clone() {
            // Copies on the way there are brought up to date.
            let cached = self.cpu.as_mut().is_some_and(|cpu| {
                cpu.clean(line);
                cpu.touch(line, false)
            });
            let Some(contents) = &mut self.contents else { continue };
            contents.new_version(line);
            let within = (line % LINES) as u8;
            contents.buffer(held, within, true);
            if let Some(frame) = frame {
                contents.dram(frame, within, true);
            }
            if cached {
                contents.cpu.insert(line, contents.value);
            }
        }
        if let Some(frame) = frame {
            self.frames[frame as usize].dirty = false;
        }
        let sent = self.flushed(page, taken.max(now))?;
        if let Some(contents) = &self.contents {
            for line in lines {
                contents.durable(line, self.buffer.find(page), self.flash.place(page))?;
            }
        }
        Ok(sent + self.preset.promote.0)
    }

    /// The pages that a write of these bytes covers wholly, if they are of a region.
    pub(super) fn blocks(&self, offset: u64, len: u64) -> Option<Range<u32>> {
        let whole = len > 0 && offset.is_multiple_of(PAGE) && len.is_multiple_of(PAGE);
        let pages = (offset / PAGE) as u32..((offset + len) / PAGE) as u32;
        let within = |(first, end): &(u32, u32)| *first <= pages.start && pages.end <= *end;
        (whole && self.regions.iter().any(within)).then_some(pages)
    }
}
