//! Flushes of persistent regions, and block writes to them (FlatFlash, section 3.5: the P bit, which
//! marks the pages of a region, and the write-verify read, which ends a flush).

use std::ops::Range;

use deepram_media::FlushTarget;

use super::access::{LineKind, LineOwner, LineTask};
use super::flash::QueueTicket;
use super::memory::{AT_DRIVE, MOVING};
use super::task::{Step, Task, TaskId, Wait};
use super::{AccessMode, EventKind, FlatMemory, LINES, LinkDirection, PAGE};
use crate::error::SimError;
use crate::host::Slot;
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

/// A flush: makes the stores before it to its lines durable.
pub(super) struct FlushTask {
    id: TaskId,
    slot: Slot,
    /// The lines, and the version of each that must be durable in a verified run.
    lines: Vec<(u64, u64)>,
    /// Lines written back from the processor's cache.
    written: usize,
    /// Lines whose pages have been made durable; paging systems only.
    durable: usize,
    page: PageWrite,
    /// The stores before this one belong to the flush.
    fence: Option<u64>,
}

/// The steps of making one page durable.
#[derive(Debug, Clone, Copy)]
enum PageWrite {
    Software,
    Send,
    /// The page is on its way to the device buffer.
    Sent,
    /// The page is in the device buffer, and in the write queue if the drive programs it.
    Accepted,
    Durable,
}

/// A request that writes whole pages of a persistent region as blocks.
pub(super) struct BlocksTask {
    id: TaskId,
    slot: Slot,
    started: bool,
    /// Pages that are not under way.
    left: Range<u32>,
    under_way: u64,
}

/// The write of one of its pages.
pub(super) struct BlockTask {
    owner: TaskId,
    page: u32,
    step: PageWrite,
}

impl FlatMemory {
    /// Begins to make stores to the persistent regions before now durable: all of them, or those to
    /// `bytes`.
    pub(super) fn persist(&mut self, slot: Slot, bytes: Option<Range<u64>>) -> Result<(), SimError> {
        if self.regions.is_empty() {
            self.line_done(slot, self.now);
            return Ok(());
        }
        self.counts.flushes += 1;
        let lines: Vec<u64> = match bytes {
            None => std::mem::take(&mut self.unflushed).into_iter().collect(),
            Some(bytes) => self.take_unflushed(bytes.start / LINE_BYTES..bytes.end.div_ceil(LINE_BYTES)),
        };
        let version = |line| self.shadow.as_ref().map_or(0, |shadow| shadow.expected(line));
        let lines = lines.into_iter().map(|line| (line, version(line))).collect();
        let page = PageWrite::Software;
        self.start_numbered(|id| {
            Task::Flush(FlushTask { id, slot, lines, written: 0, durable: 0, page, fence: None })
        })
    }

    pub(super) fn step_flush(&mut self, task: &mut FlushTask) -> Result<Step, SimError> {
        while let Some((line, _)) = task.lines.get(task.written).copied() {
            if self.evicted.contains(&line) {
                return Ok(Step::Wait(Wait::Frame));
            }
            task.written += 1;
            if self.cpu.as_mut().is_some_and(|cpu| cpu.clean(line)) {
                self.counts.flushed_lines += 1;
                self.evicted.push(line);
                let owner = LineOwner::Flush(task.id);
                self.start(Task::Line(LineTask::new(line, LineKind::WriteBack, owner, None)))?;
                return Ok(Step::Wait(Wait::Child));
            }
        }
        let mut end = self.now;
        if self.mode == AccessMode::Promote {
            // A read does not overtake stores: when it returns, the stores have arrived.
            let fence = *task.fence.get_or_insert(self.posted.next());
            if !self.posted.have_arrived(fence) {
                return Ok(Step::Wait(Wait::Stores(fence)));
            }
            self.counts.line_reads += 1;
            self.counts.link_bytes_to_host += LINE_BYTES;
            end = self.use_link(LinkDirection::ToHost, self.line_span) + self.preset.line_read.0;
        } else {
            while let Some((line, _)) = task.lines.get(task.durable).copied() {
                let page = (line / LINES) as u32;
                if let Some(wait) = self.write_flushed_page(page, &mut task.page)? {
                    return Ok(Step::Wait(wait));
                }
                task.page = PageWrite::Software;
                let rest = task.lines[task.durable..].iter();
                task.durable += rest.take_while(|(line, _)| (line / LINES) as u32 == page).count();
            }
        }
        if let Some(shadow) = &self.shadow {
            for (line, version) in &task.lines {
                let page = (line / LINES) as u32;
                shadow.durable(*line, *version, self.buffer.find(page), self.flash.place(page))?;
            }
        }
        self.line_done(task.slot, end);
        Ok(Step::Done)
    }

    /// Writes a page to the drive if it is in DRAM and dirty. `None` when it is durable.
    fn write_flushed_page(&mut self, page: u32, step: &mut PageWrite) -> Result<Option<Wait>, SimError> {
        let frame = self.table.get(page);
        let dirty = frame != AT_DRIVE && frame & MOVING == 0 && self.frames[frame as usize].dirty;
        if matches!(step, PageWrite::Software | PageWrite::Send) && !dirty {
            return Ok(None);
        }
        if matches!(step, PageWrite::Software) {
            *step = PageWrite::Send;
            if let Some(software) = &mut self.software {
                return Ok(Some(Wait::At(self.now + software.phases(&WRITE_SOFTWARE))));
            }
        }
        if matches!(step, PageWrite::Send) {
            let Some(sent) = self.send_page(page)? else { return Ok(Some(Wait::Frame)) };
            if let Some(shadow) = &mut self.shadow {
                shadow.dram_to_buffer(frame, sent.buffer_frame);
            }
            self.counts.flushed_pages += 1;
            self.frames[frame as usize].dirty = false;
            *step = PageWrite::Sent;
            return Ok(Some(Wait::Fill(page)));
        }
        self.complete_page_write(page, step)
    }

    /// Continues the write of a page that has been sent. `None` when it is durable. An idle drive takes
    /// `page_write` for it, from the start of its transfer on.
    fn complete_page_write(&mut self, page: u32, step: &mut PageWrite) -> Result<Option<Wait>, SimError> {
        if matches!(step, PageWrite::Sent) {
            *step = PageWrite::Accepted;
            if let Some(ticket) = self.make_durable(page)? {
                return Ok(Some(Wait::Queue(ticket)));
            }
        }
        if matches!(step, PageWrite::Accepted) {
            *step = PageWrite::Durable;
            let rest = self.preset.page_write.0.saturating_sub(self.page_span);
            return Ok(Some(Wait::At(self.now + rest)));
        }
        Ok(None)
    }

    /// Removes and returns the unflushed lines of a range.
    fn take_unflushed(&mut self, of: Range<u64>) -> Vec<u64> {
        let lines: Vec<u64> = self.unflushed.range(of).copied().collect();
        for line in &lines {
            self.unflushed.remove(line);
        }
        lines
    }

    /// Programs a page that the drive has received, if the preset's `flushed` requires it. Returns the
    /// claim to wait for if it is not in the write queue yet.
    fn make_durable(&mut self, page: u32) -> Result<Option<QueueTicket>, SimError> {
        let through = self.mode != AccessMode::Promote && self.preset.flushed == FlushTarget::Flash;
        match self.buffer.find(page) {
            Some(buffer_frame) if through && self.buffer_frames[buffer_frame].dirty => {
                self.program(page, buffer_frame)
            }
            _ => Ok(None),
        }
    }

    /// Begins to write whole pages of a persistent region as blocks, past the processor's cache; the
    /// drive need not read the old pages.
    pub(super) fn write_blocks(&mut self, slot: Slot, left: Range<u32>) -> Result<(), SimError> {
        self.start_numbered(|id| Task::Blocks(BlocksTask { id, slot, started: false, left, under_way: 0 }))
    }

    pub(super) fn step_blocks(&mut self, task: &mut BlocksTask) -> Result<Step, SimError> {
        if std::mem::replace(&mut task.started, true) {
            task.under_way = task.under_way.saturating_sub(1);
        } else if let Some(software) = &mut self.software {
            task.under_way = 1;
            return Ok(Step::Wait(Wait::At(self.now + software.phases(&WRITE_SOFTWARE))));
        }
        while task.under_way < self.preset.page_writes
            && let Some(page) = task.left.next()
        {
            task.under_way += 1;
            self.start(Task::Block(BlockTask { owner: task.id, page, step: PageWrite::Send }))?;
        }
        if task.under_way > 0 {
            return Ok(Step::Wait(Wait::Child));
        }
        self.line_done(task.slot, self.now);
        Ok(Step::Done)
    }

    pub(super) fn step_block(&mut self, task: &mut BlockTask) -> Result<Step, SimError> {
        let page = task.page;
        if matches!(task.step, PageWrite::Send) {
            let Some(sent) = self.send_page(page)? else { return Ok(Step::Wait(Wait::Frame)) };
            self.replace_page(page, sent.buffer_frame);
            task.step = PageWrite::Sent;
            return Ok(Step::Wait(Wait::Fill(page)));
        }
        if let Some(wait) = self.complete_page_write(page, &mut task.step)? {
            return Ok(Step::Wait(wait));
        }
        self.outbox.push((self.now, EventKind::Wake(super::task::Waiter::Task(task.owner))));
        Ok(Step::Done)
    }

    /// Gives all copies of a page the content that a block write has sent to the device buffer.
    fn replace_page(&mut self, page: u32, buffer_frame: usize) {
        self.counts.written_blocks += 1;
        let first = u64::from(page) * LINES;
        let lines = first..first + LINES;
        self.take_unflushed(lines.clone());
        let entry = self.table.get(page);
        let frame = (entry != AT_DRIVE).then_some(entry & !MOVING);
        for line in lines {
            // Copies in the processor's cache, or on their way from it, are updated.
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
            if cached || self.evicted.contains(&line) {
                shadow.cpu.insert(line, shadow.value);
            }
        }
        if let Some(frame) = frame {
            self.frames[frame as usize].dirty = false;
        }
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
