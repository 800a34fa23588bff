//! The host's side: translation, pages in DRAM, page faults, demotion (FlatFlash, sections 3.2 and 3.3).

use deepram_core::cache::{Replacement, SetAssociative};

use super::flash::QueueTicket;
use super::task::{Step, Task, Wait};
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
    pub(super) dirty: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FaultStage {
    Software,
    Load,
    Frame,
    Transfer,
    Map,
}

/// A page fault of a paging system.
pub(super) struct FaultTask {
    page: u32,
    stage: FaultStage,
    /// The lookup in the device buffer has been counted.
    looked_up: bool,
    frame: u32,
    /// The claims of the pages that made room.
    tickets: Vec<QueueTicket>,
}

impl FlatMemory {
    /// Removes the page's lines from the processor's cache before its address changes; dirty lines go to
    /// its frame.
    pub(super) fn flush_lines(&mut self, page: u32, frame: u32) {
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
                self.access_dram(frame, within as u8, true);
            }
            if let (Some(shadow), Some(kept)) = (&mut self.shadow, kept) {
                shadow.value = kept;
            }
        }
    }

    /// Translates the page for a core. Returns the time that the translation takes.
    pub(super) fn translate(&mut self, core: u32, page: u32) -> Time {
        self.counts.tlb_lookups += 1;
        let (entries, ways) = (self.preset.tlb_entries, self.preset.tlb_ways);
        let core = core as usize;
        if core >= self.tlbs.len() {
            self.tlbs.resize_with(core + 1, || SetAssociative::new((entries / ways) as u32, ways as u16));
        }
        let tlb = &mut self.tlbs[core];
        if let Some(entry) = tlb.find(page) {
            self.counts.tlb_hits += 1;
            tlb.touch(entry);
            return 0;
        }
        if let Some(target) = tlb.fill_target(page, |_| true) {
            tlb.insert(page, target.frame);
        }
        let entry = self.table.get(page);
        let in_dram = entry != AT_DRIVE && entry & MOVING == 0;
        if in_dram { self.preset.walk_dram.0 } else { self.preset.walk.0 }
    }

    /// Records a change of the page's entry, and removes its translation from the TLBs.
    pub(super) fn entry_changed(&mut self, page: u32) {
        self.counts.pte_updates += 1;
        self.shoot_down(page);
    }

    pub(super) fn shoot_down(&mut self, page: u32) {
        for tlb in &mut self.tlbs {
            if let Some(entry) = tlb.find(page) {
                tlb.remove(entry);
            }
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

    /// Records a use of the page in a frame.
    pub(super) fn touch_frame(&mut self, number: u32) {
        self.lru.touch(number);
    }

    /// Accesses a line of a frame. Returns the time at which its data have been transferred.
    pub(super) fn access_dram(&mut self, number: u32, line: u8, store: bool) -> Time {
        self.lru.touch(number);
        self.frames[number as usize].dirty |= store;
        if let Some(shadow) = &mut self.shadow {
            shadow.dram(number, line, store);
        }
        self.serve_dram(u64::from(number) * PAGE + u64::from(line) * LINE_BYTES, store)
    }

    /// Accesses a line of the host's memory. Returns the time at which its data have been transferred.
    pub(super) fn serve_dram(&mut self, first: u64, store: bool) -> Time {
        let now = self.now;
        (first / self.burst..=(first + LINE_BYTES - 1) / self.burst)
            .map(|burst| self.dram.serve(burst, store, now))
            .max()
            .unwrap_or(now)
    }

    /// Begins the page's fault, unless it is under way.
    pub(super) fn fault(&mut self, page: u32) -> Result<(), SimError> {
        if self.faults.contains_key(&page) {
            return Ok(());
        }
        self.faults.insert(page, Vec::new());
        self.counts.faults += 1;
        let stage = FaultStage::Software;
        self.start(Task::Fault(FaultTask { page, stage, looked_up: false, frame: 0, tickets: Vec::new() }))
    }

    pub(super) fn step_fault(&mut self, task: &mut FaultTask) -> Result<Step, SimError> {
        let page = task.page;
        if task.stage == FaultStage::Software {
            task.stage = FaultStage::Load;
            if let Some(software) = &mut self.software {
                let walks = self.preset.walk.0 * self.preset.indirections;
                let time = software.phases(&SOFTWARE_BEFORE_IO) + walks;
                self.index_page(page);
                return Ok(Step::Wait(Wait::At(self.now + time)));
            }
        }
        if task.stage == FaultStage::Load {
            match self.look_up(page, &mut task.looked_up)? {
                None => return Ok(Step::Wait(Wait::Frame)),
                Some((_, true)) => return Ok(Step::Wait(Wait::Fill(page))),
                Some((_, false)) => task.stage = FaultStage::Frame,
            }
        }
        if task.stage == FaultStage::Frame {
            let Some((frame, tickets)) = self.take_frame()? else { return Ok(Step::Wait(Wait::Frame)) };
            (task.frame, task.tickets) = (frame, tickets);
            self.frames[frame as usize] = HostFrame { page, dirty: false };
            self.faulting_frames += 1;
            self.count_page_to_host();
            task.stage = FaultStage::Transfer;
        }
        if task.stage == FaultStage::Transfer {
            if let Some(ticket) = task.tickets.pop() {
                return Ok(Step::Wait(Wait::Queue(ticket)));
            }
            let start = self.use_link(LinkDirection::ToHost, self.page_span);
            let mut time = self.preset.promote.0 + self.preset.pte_update.0;
            if let Some(software) = &mut self.software {
                time += software.phases(&SOFTWARE_AFTER_IO);
            }
            task.stage = FaultStage::Map;
            return Ok(Step::Wait(Wait::At(start + time)));
        }
        self.map_page(page, task.frame);
        Ok(Step::Done)
    }

    /// Ends a fault: the page is in DRAM. The drive keeps its copy, in the device buffer or on flash.
    fn map_page(&mut self, page: u32, frame: u32) {
        if let Some(shadow) = &mut self.shadow {
            match self.buffer.find(page) {
                Some(buffer_frame) => shadow.buffer_to_dram(buffer_frame, frame),
                None => shadow.flash_to_dram(self.flash.place(page), frame),
            }
        }
        self.faulting_frames -= 1;
        self.counts.pte_updates += 1;
        self.flash.forget(page);
        self.table.set(page, frame);
        self.lru.insert(frame);
        self.tasks.wake_first(self.faults.remove(&page).unwrap_or_default());
        self.tasks.wake_for_frames();
    }

    /// Counts a page on its way to DRAM.
    pub(super) fn count_page_to_host(&mut self) {
        self.counts.pages_to_host += 1;
        self.counts.link_bytes_to_host += PAGE;
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

    pub(super) fn frames_in_use(&self) -> u64 {
        (self.frames.len() - self.idle.len()) as u64
    }

    /// Takes a frame for a page, and the claims of the pages that are demoted for it, least recently used
    /// ones first. `None` if no frame can be taken: all belong to pages in flight, or the device buffer
    /// has no room for the pages in them.
    pub(super) fn take_frame(&mut self) -> Result<Option<(u32, Vec<QueueTicket>)>, SimError> {
        let mut tickets = Vec::new();
        while self.frames_in_use() >= self.page_frames() {
            let (frames, buffer, pinned) = (&self.frames, &self.buffer, &self.pinned);
            let victim = self.lru.victim(&mut |frame| {
                let page = frames[frame as usize].page;
                let set = page as usize % pinned.len();
                u64::from(pinned[set]) < self.preset.buffer_ways || buffer.find(page).is_some()
            });
            let Some(frame) = victim else { return Ok(None) };
            tickets.extend(self.demote(frame)?);
            self.idle.push(frame);
        }
        let frame = self.idle.pop().unwrap_or_else(|| {
            self.frames.push(HostFrame { page: 0, dirty: false });
            (self.frames.len() - 1) as u32
        });
        Ok(Some((frame, tickets)))
    }

    /// Demotes the page in a frame. Returns the claim to wait for if the drive has not accepted it.
    fn demote(&mut self, number: u32) -> Result<Option<QueueTicket>, SimError> {
        let page = self.frames[number as usize].page;
        self.flush_lines(page, number);
        self.counts.demotions += 1;
        self.table.set(page, AT_DRIVE);
        self.entry_changed(page);
        if !self.frames[number as usize].dirty {
            return Ok(None);
        }
        let Some(sent) = self.send_page(page)? else {
            return Err(SimError::Conservation {
                law: "the device buffer has room for a page demoted",
                found: format!("none for page {page}"),
            });
        };
        if let Some(shadow) = &mut self.shadow {
            shadow.dram_to_buffer(number, sent.buffer_frame);
        }
        Ok(sent.ticket)
    }
}
