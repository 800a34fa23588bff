//! The drive's side: the SSD-Cache (device buffer, FlatFlash section 3.2), line accesses over the link,
//! promotion (sections 3.3 and 3.4).

use deepram_core::cache::Replacement;
use deepram_core::migration::{InboundLine, PromotionStart};

use super::memory::{AT_DRIVE, HostFrame, MOVING, look_aside_error};
use super::{AccessMode, FlatMemory, LINES, LinkDirection, PAGE};
use crate::engine::Time;
use crate::error::SimError;
use crate::processor::LINE_BYTES;

/// Frames of the device buffer that the search for dirty pages examines per place.
const SEARCH_STEPS: usize = 8;

/// A frame of the device buffer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BufferFrame {
    /// The time at which the frame holds its page.
    ready: Time,
    pub(super) dirty: bool,
    /// The page is being promoted and is not evicted.
    moving: bool,
}

/// A promotion under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Promotion {
    page: u32,
    buffer_frame: usize,
    frame: u32,
    start: Time,
    end: Time,
    /// Lines that have arrived.
    arrived: u64,
}

impl FlatMemory {
    /// Brings a page into the device buffer, from flash if it is not there. Returns its frame, and the
    /// time from which it is there.
    pub(super) fn load_page(&mut self, page: u32, now: Time) -> Result<(usize, Time), SimError> {
        self.counts.buffer_lookups += 1;
        if let Some(buffer_frame) = self.buffer.find(page) {
            self.counts.buffer_hits += 1;
            self.buffer.touch(buffer_frame);
            return Ok((buffer_frame, now.max(self.buffer_frames[buffer_frame].ready)));
        }
        let (buffer_frame, t) = self.make_room(page, now)?;
        let ready = self.flash.read(page, t);
        self.buffer.insert(page, buffer_frame);
        self.buffer_frames[buffer_frame] = BufferFrame { ready, dirty: false, moving: false };
        if let Some(shadow) = &mut self.shadow {
            shadow.flash_to_buffer(self.flash.place(page), buffer_frame);
        }
        Ok((buffer_frame, ready))
    }

    /// A frame of the device buffer for a page, and the time at which it is free.
    fn make_room(&mut self, page: u32, now: Time) -> Result<(usize, Time), SimError> {
        let mut t = now;
        loop {
            let buffer_frame = &self.buffer_frames;
            let Some(target) = self.buffer.fill_target(page, |frame| !buffer_frame[frame].moving) else {
                // All ways of the set are being promoted: the first promotion to end frees one.
                let end = self.promotions.first().map_or(t, |first| first.end);
                t = t.max(end);
                self.finish_promotions(t)?;
                continue;
            };
            if let Some(old) = target.victim {
                self.threshold.adjust_count(self.buffer.count(target.frame));
                let dirty = self.buffer_frames[target.frame].dirty;
                if dirty {
                    t = t.max(self.program(old, target.frame, t)?);
                }
                self.buffer.remove(target.frame);
            }
            return Ok((target.frame, t));
        }
    }

    /// Writes a dirty page to flash; a reclamation on the way also writes other dirty pages. Returns the
    /// time at which flash has accepted the page.
    pub(super) fn program(&mut self, page: u32, buffer_frame: usize, now: Time) -> Result<Time, SimError> {
        let table = &self.table;
        let at_drive = |page: u32| {
            let entry = table.get(page);
            entry == AT_DRIVE || entry & MOVING != 0
        };
        let written = self.flash.write(page, buffer_frame, now, &at_drive, &mut self.shadow)?;
        self.buffer_frames[buffer_frame].dirty = false;
        let (die, spare) = written.spare;
        let (mut left, mut steps) = (spare, spare as usize * SEARCH_STEPS);
        while left > 0 && steps > 0 {
            steps -= 1;
            self.cursor = (self.cursor + 1) % self.buffer_frames.len();
            let BufferFrame { dirty, moving, .. } = self.buffer_frames[self.cursor];
            let other = self.buffer.key(self.cursor).filter(|_| dirty && !moving);
            let Some(other) = other.filter(|other| self.flash.accepts(die, *other)) else { continue };
            self.flash.write_to(die, other, self.cursor, now, &at_drive, &mut self.shadow)?;
            self.buffer_frames[self.cursor].dirty = false;
            self.counts.destaged_by_reclaim += 1;
            left -= 1;
        }
        Ok(written.accepted + self.deliver_remap_batch())
    }

    /// Accesses a line of a page at the drive, at `now`. Returns the time at which the access is
    /// complete.
    pub(super) fn access_drive_line(
        &mut self,
        page: u32,
        line: u8,
        store: bool,
        now: Time,
    ) -> Result<Time, SimError> {
        let (buffer_frame, ready) = self.load_page(page, now)?;
        self.buffer_frames[buffer_frame].dirty |= store;
        if let Some(shadow) = &mut self.shadow {
            shadow.buffer(buffer_frame, line, store);
        }
        let end = if store {
            self.post_store(ready, now)
        } else {
            self.counts.line_reads += 1;
            self.counts.link_bytes_to_host += LINE_BYTES;
            self.use_link(LinkDirection::ToHost, self.line_span, ready) + self.preset.line_read.0
        };
        if !self.is_persistent(page) {
            self.count_use(page, buffer_frame, ready)?;
        }
        Ok(end)
    }

    /// Posts a store at `now` to a page that is in the device buffer from `ready` on. Returns the time
    /// at which the store is in the write buffer.
    fn post_store(&mut self, ready: Time, now: Time) -> Time {
        self.counts.line_writes += 1;
        self.counts.link_bytes_to_drive += LINE_BYTES;
        let mut t = now;
        while self.posted.front().is_some_and(|left| *left <= t) {
            self.posted.pop_front();
        }
        if self.posted.len() as u64 >= self.preset.posted_writes
            && let Some(left) = self.posted.pop_front()
        {
            self.counts.posted_waits += 1;
            t = left;
        }
        let landed =
            (self.use_link(LinkDirection::ToDrive, self.line_span, t) + self.preset.line_write.0).max(ready);
        let place = self.posted.partition_point(|other| *other <= landed);
        self.posted.insert(place, landed);
        t + self.preset.line_write.0
    }

    /// The time at which the last posted store arrives at the drive.
    pub(super) fn last_store_arrival(&self, now: Time) -> Time {
        self.posted.back().copied().unwrap_or(now).max(now)
    }

    /// Counts a use of a page, and promotes it where Algorithm 1 says so. Promotions into idle DRAM
    /// (`fill_idle`) are not part of the algorithm.
    fn count_use(&mut self, page: u32, buffer_frame: usize, ready: Time) -> Result<(), SimError> {
        let moving = self.buffer_frames[buffer_frame].moving;
        let full = self.look_aside.is_full();
        let may = !moving && !full && self.has_room();
        let current = self.threshold.current();
        let Some(count) = self.buffer.count_mut(buffer_frame) else { return Ok(()) };
        let reached = self.threshold.update(count, may);
        let idle = self.preset.fill_idle && (self.frames.len() as u64) < self.frame_count;
        let promote = reached || (may && idle);
        self.counts.promotions_deferred += u64::from(full && !moving && *count >= current);
        if promote { self.promote(page, buffer_frame, ready) } else { Ok(()) }
    }

    fn promote(&mut self, page: u32, buffer_frame: usize, now: Time) -> Result<(), SimError> {
        self.buffer_frames[buffer_frame].moving = true;
        let Some((frame, taken)) = self.take_frame(now)? else {
            self.buffer_frames[buffer_frame].moving = false;
            return Ok(());
        };
        if self.look_aside.begin(page.into(), frame.into()).map_err(look_aside_error)?
            == PromotionStart::Deferred
        {
            return Err(look_aside_error("a promotion was deferred although the buffer had room"));
        }
        let start = self.use_link(LinkDirection::ToHost, self.page_span, taken);
        let end = start + self.preset.promote.0 + self.preset.pte_update.0;
        self.table.set(page, frame | MOVING);
        self.frames[frame as usize] = HostFrame { page, ready: 0, dirty: false };
        let place = self.promotions.partition_point(|other| other.end <= end);
        self.promotions.insert(place, Promotion { page, buffer_frame, frame, start, end, arrived: 0 });
        self.counts.promotions += 1;
        self.counts.pages_to_host += 1;
        self.counts.link_bytes_to_host += PAGE;
        Ok(())
    }

    /// Advances a promotion to `now`: lines that arrived before are in DRAM, or stale. A line that
    /// arrives at `now` comes after the processor's access.
    pub(super) fn advance_promotion(&mut self, page: u32, now: Time) -> Result<(), SimError> {
        let Some(at) = self.promotions.iter().position(|other| other.page == page) else { return Ok(()) };
        let since = now.saturating_sub(self.promotions[at].start).saturating_sub(1);
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

    /// Finishes the promotions that end by `now`.
    #[inline]
    pub(super) fn finish_promotions(&mut self, now: Time) -> Result<(), SimError> {
        while self.promotions.first().is_some_and(|first| first.end <= now) {
            self.receive_lines(0, LINES)?;
            let Promotion { page, buffer_frame, frame, end, .. } = self.promotions.remove(0);
            self.flush_lines(page, frame, end);
            self.look_aside.finish(page.into()).map_err(look_aside_error)?;
            let place = &mut self.frames[frame as usize];
            place.dirty |= self.buffer_frames[buffer_frame].dirty;
            place.ready = end;
            self.threshold.adjust_count(self.buffer.count(buffer_frame));
            self.buffer.remove(buffer_frame);
            self.buffer_frames[buffer_frame] = BufferFrame::default();
            self.table.set(page, frame);
            self.lru.insert(frame);
            self.flash.forget(page);
            self.entry_changed(page);
        }
        Ok(())
    }

    /// Writes a page of DRAM to the device buffer, at `now`. Returns the time at which the buffer has
    /// room for it.
    pub(super) fn write_page(&mut self, page: u32, frame: u32, now: Time) -> Result<Time, SimError> {
        let (buffer_frame, taken) = self.receive(page, now)?;
        if let Some(shadow) = &mut self.shadow {
            shadow.dram_to_buffer(frame, buffer_frame);
        }
        Ok(taken)
    }

    /// Receives a page that the host sends at `now`. Returns its frame in the device buffer, and the
    /// time at which there was room for it.
    pub(super) fn receive(&mut self, page: u32, now: Time) -> Result<(usize, Time), SimError> {
        self.counts.pages_to_drive += 1;
        self.counts.link_bytes_to_drive += PAGE;
        let sent = self.use_link(LinkDirection::ToDrive, self.page_span, now) + self.page_span;
        let (buffer_frame, taken) = match self.buffer.find(page) {
            Some(buffer_frame) => (buffer_frame, now),
            None => {
                let (buffer_frame, taken) = self.make_room(page, now)?;
                self.buffer.insert(page, buffer_frame);
                (buffer_frame, taken)
            }
        };
        debug_assert!(self.mode != AccessMode::Promote || !self.buffer_frames[buffer_frame].moving);
        self.buffer_frames[buffer_frame] = BufferFrame { ready: sent.max(taken), dirty: true, moving: false };
        Ok((buffer_frame, taken))
    }
}
