//! Flushes of persistent regions (FlatFlash, section 3.5).

use super::memory::{AT_DRIVE, MOVING};
use super::{FlatMemory, LINES, Lane, Way};
use crate::engine::Time;
use crate::error::SimError;
use crate::paging::Phase;
use crate::processor::LINE_BYTES;

/// Software of a page written for a flush.
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
    /// Makes durable what was stored to the regions before `now`; when it is.
    pub(super) fn persist(&mut self, now: Time) -> Result<Time, SimError> {
        if self.regions.is_empty() {
            return Ok(now);
        }
        self.settle(now)?;
        self.counts.flushes += 1;
        let lines: Vec<u64> = std::mem::take(&mut self.unflushed).into_iter().collect();
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
        Ok(taken.max(t) + self.preset.promote.0)
    }
}
