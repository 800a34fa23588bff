//! Promotion of pages from the device buffer to DRAM, off the critical path (FlatFlash, sections 3.3 and
//! 3.4).

use deepram_core::cache::Replacement;
use deepram_core::migration::{InboundLine, PromotionStart};

use super::access::look_aside_error;
use super::drive::BufferFrame;
use super::flash::QueueTicket;
use super::memory::{HostFrame, MOVING};
use super::task::{Step, Task, Wait};
use super::{FlatMemory, LINES, LinkDirection};
use crate::engine::Time;
use crate::error::SimError;

/// A page in flight.
#[derive(Debug, Clone, Copy)]
pub(super) struct Promotion {
    page: u32,
    buffer_frame: usize,
    frame: u32,
    /// The start of the transfer, once it is known.
    start: Option<Time>,
    /// Lines that have arrived.
    arrived: u64,
    /// The page's count had reached the threshold.
    counted: bool,
}

/// The steps of a promotion.
pub(super) struct PromotionTask {
    page: u32,
    /// The claims of the pages that made room.
    tickets: Vec<QueueTicket>,
    started: bool,
}

impl FlatMemory {
    /// Counts a use of a page, and promotes it where Algorithm 1 says so and a frame of DRAM can be taken.
    /// Promotions into idle DRAM (`fill_idle`) are not part of the algorithm.
    pub(super) fn count_use(&mut self, page: u32, buffer_frame: usize) -> Result<(), SimError> {
        let counted = self.promotions.iter().find(|other| other.page == page).map(|other| other.counted);
        let full = self.look_aside.is_full();
        let reached = self.threshold.next_use_reaches(self.buffer.count(buffer_frame));
        let current = self.threshold.current();
        let idle = self.preset.fill_idle && (self.frames.len() as u64) < self.frame_count;
        let mut room = None;
        if counted.is_none() && !full && (reached || idle) {
            let moving = |memory: &mut Self, moving| {
                let filling = memory.buffer_frames[buffer_frame].filling;
                memory.pin(buffer_frame, filling, moving);
            };
            moving(self, true);
            room = self.take_frame()?;
            moving(self, room.is_some());
        }
        let Some(count) = self.buffer.count_mut(buffer_frame) else { return Ok(()) };
        if counted == Some(true) {
            self.threshold.use_in_flight(count);
        } else {
            self.threshold.update(count, room.is_some());
        }
        self.counts.promotions_deferred += u64::from(full && counted.is_none() && *count >= current);
        let Some((frame, tickets)) = room else { return Ok(()) };
        let promotion = Promotion { page, buffer_frame, frame, start: None, arrived: 0, counted: reached };
        self.begin_promotion(promotion, tickets)
    }

    fn begin_promotion(&mut self, promotion: Promotion, tickets: Vec<QueueTicket>) -> Result<(), SimError> {
        let Promotion { page, frame, .. } = promotion;
        if self.look_aside.begin(page.into(), frame.into()).map_err(look_aside_error)?
            == PromotionStart::Deferred
        {
            return Err(look_aside_error("a promotion was deferred although the buffer had room"));
        }
        self.table.set(page, frame | MOVING);
        self.frames[frame as usize] = HostFrame { page, dirty: false };
        self.promotions.push(promotion);
        self.counts.promotions += 1;
        self.count_page_to_host();
        self.start(Task::Promotion(PromotionTask { page, tickets, started: false }))
    }

    pub(super) fn step_promotion(&mut self, task: &mut PromotionTask) -> Result<Step, SimError> {
        if let Some(ticket) = task.tickets.pop() {
            return Ok(Step::Wait(Wait::Queue(ticket)));
        }
        let at = self.promotions.iter().position(|other| other.page == task.page);
        let Some(at) = at else {
            return Err(look_aside_error(format!("page {} is not in flight", task.page)));
        };
        if task.started {
            self.finish_promotion(at)?;
            return Ok(Step::Done);
        }
        task.started = true;
        let start = self.use_link(LinkDirection::ToHost, self.page_span);
        self.promotions[at].start = Some(start);
        Ok(Step::Wait(Wait::At(start + self.preset.promote.0 + self.preset.pte_update.0)))
    }

    /// Advances a promotion to the present: lines that arrived before are in DRAM, or stale. A line that
    /// arrives at the present comes after the processor's access.
    pub(super) fn advance_promotion(&mut self, page: u32) -> Result<(), SimError> {
        let Some(at) = self.promotions.iter().position(|other| other.page == page) else { return Ok(()) };
        let Some(start) = self.promotions[at].start else { return Ok(()) };
        let since = self.now.saturating_sub(start).saturating_sub(1);
        let lines = (since * LINES / self.preset.promote.0.max(1)).min(LINES);
        self.receive_lines(at, lines)
    }

    fn receive_lines(&mut self, at: usize, lines: u64) -> Result<(), SimError> {
        let Promotion { page, buffer_frame, frame, arrived, .. } = self.promotions[at];
        for line in arrived..lines {
            match self.look_aside.inbound(page.into(), line as u8).map_err(look_aside_error)? {
                InboundLine::Copy(_) => {
                    self.counts.inbound_lines += 1;
                    if let Some(shadow) = &mut self.shadow {
                        shadow.inbound(buffer_frame, frame, line as u8);
                    }
                }
                InboundLine::Drop => self.counts.dropped_lines += 1,
            }
        }
        self.promotions[at].arrived = arrived.max(lines);
        Ok(())
    }

    fn finish_promotion(&mut self, at: usize) -> Result<(), SimError> {
        self.receive_lines(at, LINES)?;
        let Promotion { page, buffer_frame, frame, .. } = self.promotions.remove(at);
        self.flush_lines(page, frame);
        self.close(page, buffer_frame);
        self.look_aside.finish(page.into()).map_err(look_aside_error)?;
        self.frames[frame as usize].dirty |= self.buffer_frames[buffer_frame].dirty;
        self.threshold.adjust_count(self.buffer.count(buffer_frame));
        self.buffer.remove(buffer_frame);
        self.pin(buffer_frame, false, false);
        self.buffer_frames[buffer_frame] = BufferFrame::default();
        self.table.set(page, frame);
        self.lru.insert(frame);
        self.flash.forget(page);
        self.entry_changed(page);
        self.tasks.wake_for_frames();
        Ok(())
    }
}
