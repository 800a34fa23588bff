//! The path of a page fault.
//!
//! ```text
//!   entry lookup --> in memory ---------------------------------------------> map --> access continues
//!        \--> being read: joins the waiters ----------------\
//!         \--> untouched swap: allocation, zeros ------------+-------------> map
//!          \--> allocation block driver --> drive, DMA ------+--> interrupt completion wake wait
//!                              \--> switch away, asleep -----/        \--> switch back, map --> done
//! ```
//!
//! 1. The page's frame is reserved from the lookup on, so later faults on the page find it being read.
//! 2. A frame with waiters is never evicted; the last waiter puts it into the lists.
//! 3. An access takes its line in DRAM while its page is mapped, at the moment of waking; the software
//!    that brings the thread back is charged after that.
//! 4. A sleeping thread does not hold its core before it is resumed. Software in between (of a second
//!    fault of one long access, or before a frame was found) takes time but no core.

use super::page_locations::NONE;
use super::readahead::Window;
use super::software::Phase;
use super::{PAGE, PagedAccess, PagedMemory, PagingEvent, frame_line};
use crate::engine::Time;
use crate::error::SimError;
use crate::host::{Context, Slot};
use deepram_core::units::Picos;

#[derive(Debug, Clone, Copy)]
pub(super) struct Fault {
    slot: Slot,
    page: u32,
    began: Time,
    /// The time at which the thread has been switched away, or the present if it holds its core.
    sleep_at: Time,
    /// The next fault that waits for the frame.
    next: u32,
    /// The fault is a major one, and the time that the drive took.
    major: bool,
    hardware: Time,
    /// The fault zero-fills the frame.
    fills: bool,
}

impl PagedMemory {
    /// Continues an access with its next byte until it completes or faults.
    pub(super) fn continue_access(&mut self, slot: Slot, context: &mut Context<PagingEvent>) {
        loop {
            let access = self.accesses[slot as usize];
            if access.at >= access.end {
                self.finish(slot, context);
                return;
            }
            let page = (access.at / PAGE) as u32;
            let Some(frame) = self.usable_frame(page, access.write) else {
                self.begin_fault(slot, page, context);
                return;
            };
            self.touch(slot, frame, context.now().0);
        }
    }

    /// The page's frame, if an access needs no fault: the page is mapped, and writable for a store.
    pub(super) fn usable_frame(&self, page: u32, write: bool) -> Option<u32> {
        self.locations.frame(page).filter(|frame| {
            let frame = &self.frames[*frame as usize];
            frame.mapped && (frame.dirty || !write)
        })
    }

    fn finish(&mut self, slot: Slot, context: &mut Context<PagingEvent>) {
        let access = self.accesses[slot as usize];
        let end = access.ready.max(context.now().0);
        let event = if access.asleep { PagingEvent::Resume(slot, 0) } else { PagingEvent::Done(slot) };
        context.schedule(Picos(end), event);
    }

    /// Performs the part of an access that lies in the frame's page.
    fn touch(&mut self, slot: Slot, number: u32, now: Time) {
        let PagedAccess { write, at, end, mut ready, .. } = self.accesses[slot as usize];
        let from = at % PAGE;
        let to = (end - (at - from)).min(PAGE);
        for line in frame_line(number, from, self.burst)..=frame_line(number, to - 1, self.burst) {
            ready = ready.max(self.dram.serve(line, write, now));
        }
        let frame = &mut self.frames[number as usize];
        if frame.ahead {
            frame.ahead = false;
            self.unused_ahead -= 1;
            self.counts.readahead_used += 1;
            self.cluster.used();
        }
        if write {
            frame.version = self.locations.write(frame.page);
        } else if frame.version != self.locations.version(frame.page) {
            self.stale_reads += 1;
        }
        frame.hot = true;
        self.lists.touch(number);
        self.bytes_touched += to - from;
        let access = &mut self.accesses[slot as usize];
        access.at = at - from + to;
        access.ready = ready;
    }

    fn begin_fault(&mut self, slot: Slot, page: u32, context: &mut Context<PagingEvent>) {
        let now = context.now().0;
        let fault = Fault {
            slot,
            page,
            began: now,
            sleep_at: now,
            next: NONE,
            major: false,
            hardware: 0,
            fills: false,
        };
        let number = match self.idle_faults.pop() {
            Some(number) => {
                self.faults[number as usize] = fault;
                number
            }
            None => {
                self.faults.push(fault);
                (self.faults.len() - 1) as u32
            }
        };
        let time = now + self.software.phases(&[Phase::Entry, Phase::Lookup]);
        context.schedule(Picos(time), PagingEvent::Entered(number));
    }

    /// Handles the outcome of a fault's page lookup.
    pub(super) fn entered(
        &mut self,
        number: u32,
        context: &mut Context<PagingEvent>,
    ) -> Result<(), SimError> {
        let Fault { slot, page, .. } = self.faults[number as usize];
        let now = context.now().0;
        let Some(frame) = self.locations.frame(page) else {
            return match self.take_frame(context)? {
                Some(frame) => self.fetch(number, frame, now, context),
                None => {
                    self.counts.direct_reclaims += 1;
                    self.fall_asleep(number, now, context);
                    self.starved.push_back(number);
                    Ok(())
                }
            };
        };
        let state = self.frames[frame as usize];
        let mut time = now;
        if !state.mapped && self.maps_around(slot) == 1 {
            self.readahead.hit(1);
        }
        if state.trigger {
            self.frames[frame as usize].trigger = false;
            time = self.read_ahead(page, now, context);
            self.reclaim_below_watermark(context)?;
        }
        if state.reading {
            self.counts.waiting_faults += 1;
            self.wait_for(number, frame, time, context);
            return Ok(());
        }
        if self.accesses[slot as usize].write && !state.dirty && self.over_limit() {
            self.counts.throttled += 1;
            self.fall_asleep(number, time, context);
            self.throttled.push_back(number);
            return self.write_back_background(context);
        }
        if state.mapped {
            self.counts.protection_faults += 1;
        } else {
            self.counts.minor_faults += 1;
        }
        context.schedule(Picos(time + self.software.phase(Phase::Map)), PagingEvent::Mapped(number));
        Ok(())
    }

    /// Switches the fault's thread away at `from`; it then sleeps.
    fn fall_asleep(&mut self, number: u32, from: Time, context: &mut Context<PagingEvent>) {
        let slot = self.faults[number as usize].slot;
        let mut time = from;
        if !self.accesses[slot as usize].asleep {
            time += self.software.phase(Phase::SwitchAway);
            self.accesses[slot as usize].asleep = true;
            context.schedule(Picos(time), PagingEvent::Sleep(slot));
        }
        self.faults[number as usize].sleep_at = time;
    }

    /// Lets a fault, whose software ends at `from`, wait until the frame is filled.
    fn wait_for(&mut self, number: u32, frame: u32, from: Time, context: &mut Context<PagingEvent>) {
        if self.polls {
            self.faults[number as usize].sleep_at = from;
        } else {
            self.fall_asleep(number, from, context);
        }
        let frame = &mut self.frames[frame as usize];
        self.faults[number as usize].next = std::mem::replace(&mut frame.waiter, number);
        frame.pins += 1;
    }

    /// Assigns a frame to a page whose data are to be filled in.
    fn install(&mut self, frame: u32, page: u32, ahead: bool) {
        self.frames[frame as usize] = super::PageFrame { page, reading: true, ahead, ..super::EMPTY };
        self.locations.set_frame(page, frame);
        self.counts.brought_in += 1;
        self.counts.readahead_pages += u64::from(ahead);
        self.unused_ahead += u64::from(ahead);
    }

    /// Fills the frame for a fault whose lookup ends at `from`: from the drive, or with zeros.
    fn fetch(
        &mut self,
        number: u32,
        frame: u32,
        from: Time,
        context: &mut Context<PagingEvent>,
    ) -> Result<(), SimError> {
        let page = self.faults[number as usize].page;
        self.install(frame, page, false);
        let time = from + self.software.phase(Phase::Allocation);
        let Some(drive_page) = self.locations.drive_page_of(page) else {
            self.counts.zero_faults += 1;
            self.faults[number as usize].fills = true;
            self.frames[frame as usize].pins = 1;
            context.schedule(Picos(time), PagingEvent::Zeroed(number));
            return Ok(());
        };
        self.counts.major_faults += 1;
        let fault = &mut self.faults[number as usize];
        fault.major = true;
        let mut drive_pages = std::mem::take(&mut self.read_buffer);
        let trigger = if self.swap {
            let (first, len) = self.cluster.miss(drive_page);
            self.reserve(first, len, Some((drive_page, frame)), &mut drive_pages);
            None
        } else {
            let Window { first, len, trigger } = self.readahead.miss(page);
            self.reserve(first, len, Some((drive_page, frame)), &mut drive_pages);
            trigger
        };
        self.mark(trigger, page);
        let time = time + self.software.extra_pages(drive_pages.len() as u64 - 1);
        let (end, _) = self.read(&drive_pages, drive_page, time, context);
        drive_pages.clear();
        self.read_buffer = drive_pages;
        self.wait_for(number, frame, end, context);
        self.reclaim_below_watermark(context)
    }

    /// Reserves free frames for the drive pages whose pages are not in memory.
    fn reserve(&mut self, first: u32, len: u32, have: Option<(u32, u32)>, drive_pages: &mut Vec<(u32, u32)>) {
        for drive_page in first..first.saturating_add(len).min(self.locations.pages()) {
            if let Some(have) = have.filter(|(drive_page_had, _)| *drive_page_had == drive_page) {
                drive_pages.push(have);
                continue;
            }
            let Some(page) = self.locations.page_at(drive_page) else { continue };
            if self.locations.frame(page).is_some() {
                continue;
            }
            // The needed page already has its frame; the others are read ahead only if frames are free.
            let Some(frame) = self.unused_frame() else { continue };
            self.install(frame, page, true);
            drive_pages.push((drive_page, frame));
        }
    }

    /// Sets the readahead trigger on a page that is being read, unless it is the page needed now.
    fn mark(&mut self, trigger: Option<u32>, needed: u32) {
        if let Some(trigger) = trigger.filter(|trigger| *trigger != needed)
            && let Some(frame) = self.locations.frame(trigger)
        {
            let frame = &mut self.frames[frame as usize];
            frame.trigger = frame.reading;
        }
    }

    /// Reads the next window after the use of a trigger page. Returns the time at which the software for
    /// it ends.
    fn read_ahead(&mut self, page: u32, from: Time, context: &mut Context<PagingEvent>) -> Time {
        let known = page.saturating_add(1)..page.saturating_add(1 + self.options.readahead_most);
        let end = known.end;
        let known_end = known.into_iter().find(|page| self.locations.frame(*page).is_none()).unwrap_or(end);
        let Window { first, len, trigger } = self.readahead.triggered(page, known_end);
        let mut drive_pages = std::mem::take(&mut self.read_buffer);
        self.reserve(first, len, None, &mut drive_pages);
        self.mark(trigger, page);
        let mut end = from;
        if !drive_pages.is_empty() {
            let time = from + self.software.extra_pages(drive_pages.len() as u64);
            (end, _) = self.read(&drive_pages, NONE, time, context);
        }
        drive_pages.clear();
        self.read_buffer = drive_pages;
        end
    }

    /// The pages of a command are in memory.
    pub(super) fn filled(&mut self, io: u32, context: &mut Context<PagingEvent>) -> Result<(), SimError> {
        let now = context.now().0;
        let rung = self.ios[io as usize].rung;
        let frames = std::mem::take(&mut self.ios[io as usize].frames);
        for (drive_page, number) in (self.ios[io as usize].first..).zip(&frames) {
            let version = self.locations.version_at(drive_page);
            let frame = &mut self.frames[*number as usize];
            (frame.version, frame.reading) = (version, false);
            if version != self.locations.version(frame.page) {
                return Err(SimError::Conservation {
                    law: "data read back are those written last",
                    found: format!("page {} from place {drive_page} at version {version}", frame.page),
                });
            }
            if frame.pins == 0 {
                self.lists.insert(*number, true);
            }
            self.wake(*number, now - rung, context);
        }
        self.ios[io as usize].frames = frames;
        self.free_io(io);
        Ok(())
    }

    /// Wakes all faults that wait for the frame.
    fn wake(&mut self, number: u32, hardware: Time, context: &mut Context<PagingEvent>) {
        let mut waiter = std::mem::replace(&mut self.frames[number as usize].waiter, NONE);
        while waiter != NONE {
            let fault = &mut self.faults[waiter as usize];
            let next = fault.next;
            if fault.major {
                fault.hardware = hardware;
                self.counts.hardware_ps += hardware;
            }
            let mut time = fault.sleep_at.max(context.now().0);
            if self.accesses[fault.slot as usize].asleep {
                time += self.software.phases(&[Phase::Interrupt, Phase::Completion, Phase::Wake]);
                if !self.software.wait_on_core() {
                    time += self.software.phase(Phase::Wait);
                }
            } else {
                time += self.software.phase(Phase::Completion);
            }
            context.schedule(Picos(time), PagingEvent::Woken(waiter));
            waiter = next;
        }
    }

    /// The fault's thread is awake (it runs once it has a core) and its page is in memory: maps the page
    /// and continues the access.
    pub(super) fn woken(&mut self, number: u32, context: &mut Context<PagingEvent>) -> Result<(), SimError> {
        let Fault { slot, page, began, major, hardware, .. } = self.faults[number as usize];
        let now = context.now().0;
        let Some(frame) = self.locations.frame(page).filter(|frame| self.frames[*frame as usize].pins > 0)
        else {
            return Err(SimError::Conservation {
                law: "a page stays in memory while a fault waits for it",
                found: format!("page {page} was evicted"),
            });
        };
        self.idle_faults.push(number);
        let asleep = self.accesses[slot as usize].asleep;
        let mut software = self.software.phase(Phase::Map);
        if asleep {
            software += self.software.phase(Phase::SwitchBack);
            if self.software.wait_on_core() {
                software += self.software.phase(Phase::Wait);
            }
        }
        if major {
            let total = now - began + software;
            self.times[0].add(total);
            self.times[1].add(hardware);
            self.times[2].add(total - hardware);
            if self.options.repeated_fault_hits && !self.swap {
                self.readahead.hit(1);
            }
        }
        self.map(slot, frame);
        self.touch(slot, frame, now);
        self.unpin(frame);
        let PagedAccess { at, end, ready, .. } = self.accesses[slot as usize];
        let ready = ready.max(now);
        let (time, event) = match (at >= end, asleep) {
            (false, _) => (ready + software, PagingEvent::Continue(slot)),
            (true, true) => (ready, PagingEvent::Resume(slot, software)),
            (true, false) => (ready + software, PagingEvent::Done(slot)),
        };
        context.schedule(Picos(time), event);
        self.write_back_background(context)
    }

    fn unpin(&mut self, number: u32) {
        let frame = &mut self.frames[number as usize];
        frame.pins -= 1;
        if frame.pins == 0 {
            self.lists.insert(number, true);
            self.lists.touch(number);
        }
    }

    /// Zero-fills the frame after its allocation.
    pub(super) fn zeroed(&mut self, number: u32, context: &mut Context<PagingEvent>) {
        if let Some(frame) = self.locations.frame(self.faults[number as usize].page) {
            let end = self.dma(frame, true, context.now().0);
            context.schedule(Picos(end + self.software.phase(Phase::Map)), PagingEvent::Mapped(number));
        }
    }

    /// Sets the page-table entry if the page is still in memory; otherwise repeats the lookup.
    pub(super) fn mapped(&mut self, number: u32, context: &mut Context<PagingEvent>) -> Result<(), SimError> {
        let Fault { slot, page, fills, .. } = self.faults[number as usize];
        let frame = self.locations.frame(page).filter(|frame| fills || !self.frames[*frame as usize].reading);
        let Some(frame) = frame else {
            self.counts.repeated_faults += 1;
            let time = context.now().0 + self.software.phase(Phase::Lookup);
            context.schedule(Picos(time), PagingEvent::Entered(number));
            return Ok(());
        };
        self.idle_faults.push(number);
        if fills {
            self.frames[frame as usize].reading = false;
            self.wake(frame, 0, context);
        }
        self.map(slot, frame);
        self.touch(slot, frame, context.now().0);
        if fills {
            self.unpin(frame);
        }
        self.continue_access(slot, context);
        self.write_back_background(context)
    }

    /// The fault-around block size, in pages, for an access.
    fn maps_around(&self, slot: Slot) -> u32 {
        let alone = self.swap || self.accesses[slot as usize].write;
        if alone { 1 } else { self.options.map_around.max(1) }
    }

    /// Maps the page for an access. A read also maps the pages of its fault-around block that are in
    /// memory; a write makes the page dirty.
    fn map(&mut self, slot: Slot, number: u32) {
        let page = self.frames[number as usize].page;
        let write = self.accesses[slot as usize].write;
        let around = self.maps_around(slot);
        let mut mapped = u32::from(!std::mem::replace(&mut self.frames[number as usize].mapped, true));
        let first = page - page % around;
        for other in first..first.saturating_add(around).min(self.locations.pages()) {
            if let Some(frame) = self.locations.frame(other) {
                let frame = &mut self.frames[frame as usize];
                if !frame.mapped && !frame.reading && !frame.trigger {
                    frame.mapped = true;
                    mapped += 1;
                }
            }
        }
        if around > 1 {
            self.readahead.hit(mapped);
        }
        let frame = &mut self.frames[number as usize];
        if write && !frame.dirty {
            frame.dirty = true;
            self.counts.dirtied += 1;
            if !frame.writing && self.swap {
                self.locations.release(page);
            } else if !frame.writing {
                self.dirty.insert(page);
            }
        }
    }

    /// Restarts a fault that slept for want of a frame or because of the dirty limit.
    pub(super) fn restart_fault(&mut self, number: u32, context: &mut Context<PagingEvent>) {
        let time = self.wake_time(number, context.now().0);
        context.schedule(Picos(time), PagingEvent::Entered(number));
    }

    /// The time at which a fault that slept runs again.
    fn wake_time(&mut self, number: u32, now: Time) -> Time {
        let phases = [Phase::Wake, Phase::Wait, Phase::SwitchBack];
        self.faults[number as usize].sleep_at.max(now) + self.software.phases(&phases)
    }

    /// Gives frames to the faults that wait for one, in order.
    pub(super) fn serve_starved_faults(
        &mut self,
        context: &mut Context<PagingEvent>,
    ) -> Result<(), SimError> {
        while let Some(&number) = self.starved.front() {
            if self.locations.frame(self.faults[number as usize].page).is_some() {
                self.starved.pop_front();
                self.restart_fault(number, context);
                continue;
            }
            let Some(frame) = self.take_frame(context)? else { break };
            self.starved.pop_front();
            let time = self.wake_time(number, context.now().0);
            self.fetch(number, frame, time, context)?;
        }
        Ok(())
    }
}
