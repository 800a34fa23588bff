//! The drive's side: the SSD-Cache (device buffer, FlatFlash, section 3.2).
//!
//! A page has its frame, and flash its evicted page, from the moment at which the frame is taken. The
//! page is in the frame when its fill is complete: flash has been read, or the page has crossed the link.
//! Until then it is not evicted, accesses to it wait, and stores to it keep their places in the write
//! buffer.

use super::flash::QueueTicket;
use super::memory::{AT_DRIVE, MOVING};
use super::task::{TaskId, Waiter};
use super::{EventKind, FlatMemory, LinkDirection, PAGE};
use crate::error::SimError;

/// Frames of the device buffer that the search for dirty pages examines per place.
const SEARCH_STEPS: usize = 8;

/// A frame of the device buffer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BufferFrame {
    pub(super) dirty: bool,
    /// The page is not there yet.
    pub(super) filling: bool,
    /// The page is being promoted.
    pub(super) moving: bool,
}

impl BufferFrame {
    /// True if the page is not evicted.
    fn is_pinned(self) -> bool {
        self.filling || self.moving
    }
}

/// The fill of a frame of the device buffer.
#[derive(Debug, Default)]
pub(super) struct Fill {
    /// Conditions that are not met.
    needs: u32,
    /// Stores to the page, which count as its uses when it is there.
    uses: u32,
    /// Numbers of the stores that have arrived, and keep their places in the write buffer.
    pub(super) stores: Vec<u64>,
    pub(super) waiters: Vec<TaskId>,
}

/// A page sent to the drive.
#[derive(Debug, Clone, Copy)]
pub(super) struct SentPage {
    pub(super) buffer_frame: usize,
    /// The claim of the page that it displaced.
    pub(super) ticket: Option<QueueTicket>,
}

impl FlatMemory {
    /// Looks a page up in the device buffer, and begins to read it from flash if it is not there. Returns
    /// its frame, and whether it is still being filled; `None` if no frame can be taken. `counted` says
    /// whether the lookup has been counted.
    pub(super) fn look_up(
        &mut self,
        page: u32,
        counted: &mut bool,
    ) -> Result<Option<(usize, bool)>, SimError> {
        if let Some(buffer_frame) = self.buffer.find(page) {
            if !std::mem::replace(counted, true) {
                self.counts.buffer_lookups += 1;
                self.counts.buffer_hits += 1;
                self.buffer.touch(buffer_frame);
            }
            return Ok(Some((buffer_frame, self.buffer_frames[buffer_frame].filling)));
        }
        let Some((buffer_frame, ticket)) = self.take_buffer_frame(page)? else { return Ok(None) };
        self.counts.buffer_lookups += 1;
        *counted = true;
        if let Some(shadow) = &mut self.shadow {
            shadow.flash_to_buffer(self.flash.place(page), buffer_frame);
        }
        self.await_fill(page, buffer_frame);
        match ticket {
            Some(ticket) => self.wait_in_queue(ticket, Waiter::FillRead(page)),
            None => self.flash.read(page, self.now),
        }
        Ok(Some((buffer_frame, true)))
    }

    /// Has the fill of a frame wait for one more condition.
    fn await_fill(&mut self, page: u32, buffer_frame: usize) {
        self.fills.entry(page).or_default().needs += 1;
        self.pin(buffer_frame, true, self.buffer_frames[buffer_frame].moving);
    }

    /// A condition of the page's fill is met.
    pub(super) fn advance_fill(&mut self, page: u32) -> Result<(), SimError> {
        let (Some(fill), Some(buffer_frame)) = (self.fills.get_mut(&page), self.buffer.find(page)) else {
            return Err(SimError::Conservation {
                law: "a page in transfer to the device buffer has a frame there",
                found: format!("page {page} has none"),
            });
        };
        fill.needs -= 1;
        if fill.needs > 0 {
            return Ok(());
        }
        let fill = self.fills.remove(&page).unwrap_or_default();
        self.pin(buffer_frame, false, self.buffer_frames[buffer_frame].moving);
        for _ in 0..fill.uses {
            self.count_use(page, buffer_frame)?;
        }
        for number in fill.stores {
            self.store_leaves(number);
        }
        self.tasks.wake_first(fill.waiters);
        self.tasks.wake_for_frames();
        Ok(())
    }

    /// Sets what keeps a frame's page from eviction.
    pub(super) fn pin(&mut self, buffer_frame: usize, filling: bool, moving: bool) {
        let frame = &mut self.buffer_frames[buffer_frame];
        let before = frame.is_pinned();
        (frame.filling, frame.moving) = (filling, moving);
        let set = buffer_frame / self.preset.buffer_ways as usize;
        self.pinned[set] = self.pinned[set] + u16::from(frame.is_pinned()) - u16::from(before);
    }

    /// Takes a frame of the device buffer for a page. Returns it, and the claim to wait for if its dirty
    /// page is not in the write queue yet; `None` if no page of the set can be evicted.
    fn take_buffer_frame(&mut self, page: u32) -> Result<Option<(usize, Option<QueueTicket>)>, SimError> {
        let frames = &self.buffer_frames;
        let Some(target) = self.buffer.fill_target(page, |frame| !frames[frame].is_pinned()) else {
            return Ok(None);
        };
        let mut ticket = None;
        if let Some(old) = target.victim {
            self.close(old, target.frame);
            self.threshold.adjust_count(self.buffer.count(target.frame));
            if self.buffer_frames[target.frame].dirty {
                ticket = self.program(old, target.frame)?;
            }
            self.buffer.remove(target.frame);
        }
        self.buffer.insert(page, target.frame);
        Ok(Some((target.frame, ticket)))
    }

    /// Writes a dirty page to flash; a reclamation on the way also writes other dirty pages. Returns the
    /// claim to wait for if the page is not in the write queue yet.
    pub(super) fn program(
        &mut self,
        page: u32,
        buffer_frame: usize,
    ) -> Result<Option<QueueTicket>, SimError> {
        let table = &self.table;
        let at_drive = |page: u32| {
            let entry = table.get(page);
            entry == AT_DRIVE || entry & MOVING != 0
        };
        let now = self.now;
        let written = self.flash.write(page, buffer_frame, now, &at_drive, &mut self.shadow)?;
        self.buffer_frames[buffer_frame].dirty = false;
        self.counts.region_programs += u64::from(self.is_persistent(page));
        let (die, spare) = written.spare;
        let (mut left, mut steps) = (spare, spare as usize * SEARCH_STEPS);
        while left > 0 && steps > 0 {
            steps -= 1;
            self.cursor = (self.cursor + 1) % self.buffer_frames.len();
            let frame = self.buffer_frames[self.cursor];
            let other = self.buffer.key(self.cursor).filter(|_| frame.dirty && !frame.is_pinned());
            let Some(other) = other.filter(|other| self.flash.accepts(die, *other)) else { continue };
            self.flash.write_to(die, other, self.cursor, now, &at_drive, &mut self.shadow)?;
            self.buffer_frames[self.cursor].dirty = false;
            self.counts.region_programs += u64::from(self.is_persistent(other));
            self.counts.destaged_by_reclaim += 1;
            left -= 1;
        }
        let mut ticket = written.ticket;
        ticket.remap = self.deliver_remap_batch();
        Ok((ticket.remap > 0 || !self.flash.has_accepted(ticket)).then_some(ticket))
    }

    /// Loads a line of a frame, or stores to it.
    pub(super) fn access_buffer(&mut self, buffer_frame: usize, line: u8, store: bool) {
        self.buffer_frames[buffer_frame].dirty |= store;
        if let Some(shadow) = &mut self.shadow {
            shadow.buffer(buffer_frame, line, store);
        }
    }

    /// A use of a page: counted when the page is in the device buffer.
    pub(super) fn use_buffer(&mut self, page: u32, buffer_frame: usize) -> Result<(), SimError> {
        if self.is_persistent(page) {
            return Ok(());
        }
        match self.fills.get_mut(&page) {
            Some(fill) => {
                fill.uses += 1;
                Ok(())
            }
            None => self.count_use(page, buffer_frame),
        }
    }

    /// Sends a page of the host to the device buffer. `None` if the buffer has no frame for it.
    pub(super) fn send_page(&mut self, page: u32) -> Result<Option<SentPage>, SimError> {
        let (buffer_frame, ticket) = match self.buffer.find(page) {
            Some(buffer_frame) => {
                self.counts.buffer_hits += 1;
                (buffer_frame, None)
            }
            None => {
                let Some(taken) = self.take_buffer_frame(page)? else { return Ok(None) };
                self.counts.unread_pages += 1;
                taken
            }
        };
        self.counts.buffer_lookups += 1;
        self.counts.pages_to_drive += 1;
        self.counts.link_bytes_to_drive += PAGE;
        let start = self.use_link(LinkDirection::ToDrive, self.page_span);
        self.await_fill(page, buffer_frame);
        self.outbox.push((start + self.page_span, EventKind::Wake(Waiter::FillStep(page))));
        if let Some(ticket) = ticket {
            self.await_fill(page, buffer_frame);
            self.wait_in_queue(ticket, Waiter::FillStep(page));
        }
        self.buffer_frames[buffer_frame].dirty = true;
        Ok(Some(SentPage { buffer_frame, ticket }))
    }
}
