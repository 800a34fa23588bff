//! The drive's side: its memory, lines over the link, promotion.

use deepram_core::cache::Replacement;
use deepram_core::migration::{InboundLine, PromotionStart};

use super::memory::{AT_DRIVE, Frame, MOVING, wrong};
use super::{FlatMemory, LINES, Lane, PAGE, Way};
use crate::engine::Time;
use crate::error::SimError;
use crate::processor::LINE_BYTES;

/// Frames of the drive's memory that the search for dirty pages looks at for each place that it has.
const LOOKS: usize = 8;

/// A frame of the drive's memory.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Held {
    /// When its page is in it.
    ready: Time,
    pub(super) dirty: bool,
    /// The page is in flight: it stays.
    moving: bool,
}

/// A page in flight.
#[derive(Debug, Clone, Copy)]
pub(super) struct Move {
    page: u32,
    held: usize,
    frame: u32,
    start: Time,
    end: Time,
    /// Lines that have come in.
    arrived: u64,
}

impl FlatMemory {
    /// The page in the drive's memory: frame, and from when on. Read from flash if it was not there.
    pub(super) fn hold(&mut self, page: u32, now: Time) -> Result<(usize, Time), SimError> {
        self.counts.buffer_lookups += 1;
        if let Some(held) = self.buffer.find(page) {
            self.counts.buffer_hits += 1;
            self.buffer.touch(held);
            return Ok((held, now.max(self.held[held].ready)));
        }
        let (held, t) = self.make_room(page, now)?;
        let ready = self.flash.read(page, t);
        self.buffer.insert(page, held);
        self.held[held] = Held { ready, dirty: false, moving: false };
        if let Some(contents) = &mut self.contents {
            contents.flash_to_buffer(self.flash.place(page), held);
        }
        Ok((held, ready))
    }

    /// A frame of the drive's memory for a page, and when it is free.
    fn make_room(&mut self, page: u32, now: Time) -> Result<(usize, Time), SimError> {
        let mut t = now;
        loop {
            let held = &self.held;
            let Some(target) = self.buffer.fill_target(page, |frame| !held[frame].moving) else {
                // All ways of the set are in flight: one of them will be free.
                let end = self.moves.first().map_or(t, |first| first.end);
                t = t.max(end);
                self.settle(t)?;
                continue;
            };
            if let Some(old) = target.victim {
                self.threshold.adjust_count(self.buffer.count(target.frame));
                let dirty = self.held[target.frame].dirty;
                if dirty {
                    t = t.max(self.program(old, target.frame, t)?);
                }
                self.buffer.remove(target.frame);
            }
            return Ok((target.frame, t));
        }
    }

    /// A dirty page goes to flash; when it is taken. Reclamation takes others along.
    pub(super) fn program(&mut self, page: u32, held: usize, now: Time) -> Result<Time, SimError> {
        let table = &self.table;
        let at_drive = |page: u32| {
            let entry = table.get(page);
            entry == AT_DRIVE || entry & MOVING != 0
        };
        let written = self.flash.write(page, held, now, &at_drive, &mut self.contents)?;
        self.held[held].dirty = false;
        let (die, spare) = written.spare;
        let (mut left, mut looks) = (spare, spare as usize * LOOKS);
        while left > 0 && looks > 0 {
            looks -= 1;
            self.cursor = (self.cursor + 1) % self.held.len();
            let Held { dirty, moving, .. } = self.held[self.cursor];
            let other = self.buffer.key(self.cursor).filter(|_| dirty && !moving);
            let Some(other) = other.filter(|other| self.flash.takes(die, *other)) else { continue };
            self.flash.write_to(die, other, self.cursor, now, &at_drive, &mut self.contents)?;
            self.held[self.cursor].dirty = false;
            self.counts.collected_pages += 1;
            left -= 1;
        }
        Ok(written.accepted + self.told())
    }

    /// A line of a page at the drive, at `now`; when it is over.
    pub(super) fn at_drive(&mut self, page: u32, line: u8, store: bool, now: Time) -> Result<Time, SimError> {
        let (held, ready) = self.hold(page, now)?;
        self.held[held].dirty |= store;
        if let Some(contents) = &mut self.contents {
            contents.buffer(held, line, store);
        }
        let end = if store {
            self.post(ready, now)
        } else {
            self.counts.line_reads += 1;
            self.counts.link_bytes_to_host += LINE_BYTES;
            self.lane(Lane::ToHost, self.line_span, ready) + self.preset.line_read.0
        };
        if !self.persists(page) {
            self.used(page, held, ready)?;
        }
        Ok(end)
    }

    /// Posts a store at `now` to a page that will be there when it is `ready`; when the write buffer has it.
    fn post(&mut self, ready: Time, now: Time) -> Time {
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
        let landed = (self.lane(Lane::ToDrive, self.line_span, t) + self.preset.line_write.0).max(ready);
        let place = self.posted.partition_point(|other| *other <= landed);
        self.posted.insert(place, landed);
        t + self.preset.line_write.0
    }

    /// When the last store posted will be at the drive.
    pub(super) fn landed(&self, now: Time) -> Time {
        self.posted.back().copied().unwrap_or(now).max(now)
    }

    /// A use of a page counts (Algorithm 1), and may promote it. What idle DRAM takes beside (`fill_idle`) is none of
    /// the algorithm's promotions.
    fn used(&mut self, page: u32, held: usize, ready: Time) -> Result<(), SimError> {
        let moving = self.held[held].moving;
        let full = self.look_aside.is_full();
        let may = !moving && !full && self.has_room();
        let current = self.threshold.current();
        let Some(count) = self.buffer.count_mut(held) else { return Ok(()) };
        let reached = self.threshold.update(count, may);
        let idle = self.preset.fill_idle && (self.frames.len() as u64) < self.frame_count;
        let promote = reached || (may && idle);
        self.counts.deferred += u64::from(full && !moving && *count >= current);
        if promote { self.promote(page, held, ready) } else { Ok(()) }
    }

    fn promote(&mut self, page: u32, held: usize, now: Time) -> Result<(), SimError> {
        self.held[held].moving = true;
        let Some((frame, taken)) = self.take_frame(now)? else {
            self.held[held].moving = false;
            return Ok(());
        };
        if self.look_aside.begin(page.into(), frame.into()).map_err(wrong)? == PromotionStart::Deferred {
            return Err(wrong("a promotion was deferred after there had been room"));
        }
        let start = self.lane(Lane::ToHost, self.page_span, taken);
        let end = start + self.preset.promote.0 + self.preset.pte_update.0;
        self.table.set(page, frame | MOVING);
        self.frames[frame as usize] = Frame { page, ready: 0, dirty: false };
        let place = self.moves.partition_point(|other| other.end <= end);
        self.moves.insert(place, Move { page, held, frame, start, end, arrived: 0 });
        self.counts.promotions += 1;
        self.counts.pages_to_host += 1;
        self.counts.link_bytes_to_host += PAGE;
        Ok(())
    }

    /// The lines of a page in flight that came before `now` are in DRAM, or stale. What comes at `now` comes after
    /// the processor.
    pub(super) fn catch_up(&mut self, page: u32, now: Time) -> Result<(), SimError> {
        let Some(at) = self.moves.iter().position(|other| other.page == page) else { return Ok(()) };
        let since = now.saturating_sub(self.moves[at].start).saturating_sub(1);
        let lines = (since * LINES / self.preset.promote.0.max(1)).min(LINES);
        self.arrive(at, lines)
    }

    fn arrive(&mut self, at: usize, lines: u64) -> Result<(), SimError> {
        let Move { page, held, frame, arrived, .. } = self.moves[at];
        for line in arrived..lines {
            match self.look_aside.inbound(page.into(), line as u8).map_err(wrong)? {
                InboundLine::Copy(_) => {
                    self.counts.inbound_lines += 1;
                    if let Some(contents) = &mut self.contents {
                        contents.inbound(held, frame, line as u8);
                    }
                }
                InboundLine::Drop => self.counts.dropped_lines += 1,
            }
        }
        self.moves[at].arrived = arrived.max(lines);
        Ok(())
    }

    /// Ends the promotions that are over by `now`.
    #[inline]
    pub(super) fn settle(&mut self, now: Time) -> Result<(), SimError> {
        while self.moves.first().is_some_and(|first| first.end <= now) {
            self.arrive(0, LINES)?;
            let Move { page, held, frame, end, .. } = self.moves.remove(0);
            self.flush_lines(page, frame, end);
            self.look_aside.finish(page.into()).map_err(wrong)?;
            let place = &mut self.frames[frame as usize];
            place.dirty |= self.held[held].dirty;
            place.ready = end;
            self.threshold.adjust_count(self.buffer.count(held));
            self.buffer.remove(held);
            self.held[held] = Held::default();
            self.table.set(page, frame);
            self.recent.insert(frame);
            self.flash.forget(page);
            self.entry_changed(page);
        }
        Ok(())
    }

    /// A page of DRAM is written to the drive's memory, at `now`; when that has room for it.
    pub(super) fn write_page(&mut self, page: u32, frame: u32, now: Time) -> Result<Time, SimError> {
        let (held, taken) = self.receive(page, now)?;
        if let Some(contents) = &mut self.contents {
            contents.dram_to_buffer(frame, held);
        }
        Ok(taken)
    }

    /// The drive's memory takes a page that the host sends at `now`: its place, and when there was room for it.
    pub(super) fn receive(&mut self, page: u32, now: Time) -> Result<(usize, Time), SimError> {
        self.counts.pages_to_drive += 1;
        self.counts.link_bytes_to_drive += PAGE;
        let sent = self.lane(Lane::ToDrive, self.page_span, now) + self.page_span;
        let (held, taken) = match self.buffer.find(page) {
            Some(held) => (held, now),
            None => {
                let (held, taken) = self.make_room(page, now)?;
                self.buffer.insert(page, held);
                (held, taken)
            }
        };
        debug_assert!(self.way != Way::Promote || !self.held[held].moving);
        self.held[held] = Held { ready: sent.max(taken), dirty: true, moving: false };
        Ok((held, taken))
    }
}
