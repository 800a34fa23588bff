//! Requests of the host: each page of a request is read or written in the cache, then the answer crosses
//! the network.

use deepram_core::disk_cache::ReadOutcome;
use deepram_core::reliability::Level;
use deepram_media::Picos;
use deepram_trace::Op;

use super::flash_jobs::JobPurpose;
use super::{CacheEvent, DiskCacheDevice};
use crate::engine::Time;
use crate::hard_disk::DiskUser;
use crate::host::{Command, Context, Event, Slot};

/// A request of the host.
#[derive(Debug, Clone, Copy)]
pub(super) struct HostRequest {
    pub(super) command: Command,
    /// Parts that must end: reads of flash and disk, waits, and the request itself until all pages were
    /// started.
    parts: u32,
    /// The end of the DRAM accesses so far.
    ready: Time,
    started: Time,
}

impl Default for HostRequest {
    fn default() -> Self {
        Self { command: Command { op: Op::Flush, offset: 0, len: 0 }, parts: 0, ready: 0, started: 0 }
    }
}

/// A read of the disk for a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fetch {
    slot: Slot,
    page: u32,
    /// The program that brings the page into flash.
    pub(super) fill: Option<u32>,
}

/// A flush that waits for write-backs.
#[derive(Debug, Clone, Copy)]
struct WaitingFlush {
    slot: Slot,
    last: u64,
    left: u64,
}

/// Pages of DRAM on their way to flash.
#[derive(Debug, Default)]
pub(super) struct WriteBacks {
    /// Number of the last one.
    pub(super) started: u64,
    pub(super) under_way: u64,
    /// Pages that the periodic pass has still to write.
    pub(super) pass: u32,
    /// Requests that wait until fewer are under way.
    waiting: std::collections::VecDeque<Slot>,
    flushes: Vec<WaitingFlush>,
}

impl WriteBacks {
    pub(super) fn is_idle(&self) -> bool {
        self.under_way == 0 && self.waiting.is_empty() && self.flushes.is_empty()
    }
}

impl DiskCacheDevice {
    /// Accepts a request; it starts after its software.
    pub(super) fn accept(&mut self, slot: Slot, command: Command) {
        if self.requests.len() <= slot as usize {
            self.requests.resize(slot as usize + 1, HostRequest::default());
        }
        self.requests[slot as usize] = HostRequest { command, parts: 1, ready: self.now, started: self.now };
    }

    /// Serves a request.
    pub(super) fn serve(&mut self, slot: Slot, context: &mut Context<CacheEvent>) {
        let Command { op, offset, len } = self.requests[slot as usize].command;
        let page = self.page;
        let mut written_back = false;
        match op {
            Op::Read | Op::Write if len > 0 => {
                for number in offset / page..=(offset + len - 1) / page {
                    let (first, last) = (offset.max(number * page), (offset + len).min((number + 1) * page));
                    let number = number as u32;
                    written_back |= match op {
                        Op::Read => self.read_page(slot, number, last - first),
                        _ => self.write_page(slot, number, last - first),
                    };
                }
            }
            Op::Read | Op::Write => {}
            Op::Trim => {
                for number in offset.div_ceil(page)..(offset + len) / page {
                    self.cache.discard(number as u32);
                }
            }
            Op::Flush => self.flush_request(slot),
        }
        if written_back && self.write_backs.under_way > self.server.write_back_queue {
            self.counts.waits += 1;
            self.requests[slot as usize].parts += 1;
            self.write_backs.waiting.push_back(slot);
        }
        self.cache.reclaim(&mut self.errors, &mut self.steps);
        self.carry_out_counted(None);
        self.end_part(slot, context);
    }

    /// Carries out steps and counts the write-backs that they start. Returns true if there are any.
    pub(super) fn carry_out_counted(&mut self, fetching: super::steps::Fetching) -> bool {
        let before = self.write_backs.started;
        let any = self.carry_out(fetching);
        self.write_backs.under_way += self.write_backs.started - before;
        any
    }

    /// Accesses a page in DRAM from now on. Returns the end.
    pub(super) fn access_dram(&mut self, page: u32, bytes: u64, write: bool) -> Time {
        let first = u64::from(page) % self.frames * self.bursts_a_page;
        let bursts = bytes.div_ceil(self.burst_bytes).max(1);
        let now = self.now;
        (first..first + bursts).map(|burst| self.dram.serve(burst, write, now)).max().unwrap_or(now)
    }

    fn ready_at(&mut self, slot: Slot, time: Time) {
        let ready = &mut self.requests[slot as usize].ready;
        *ready = time.max(*ready);
    }

    /// Reads a page for a request. Returns true if pages are written back.
    fn read_page(&mut self, slot: Slot, page: u32, bytes: u64) -> bool {
        self.counts.page_reads += 1;
        self.errors.set_time(self.now);
        let outcome = self.cache.read(page, &mut self.errors, &mut self.steps);
        let mut fetching = None;
        match outcome {
            ReadOutcome::Dram => {
                self.counts.dram_hits += 1;
                let end = self.access_dram(page, bytes, false);
                self.ready_at(slot, end);
            }
            ReadOutcome::Flash(at) => {
                self.counts.flash_hits += 1;
                if self.jobs.is_pending(at) {
                    self.counts.buffered_reads += 1;
                    let end = self.access_dram(page, self.page, true);
                    self.ready_at(slot, end);
                } else {
                    self.requests[slot as usize].parts += 1;
                    self.add_host_read(at, JobPurpose::Request(slot, page));
                }
            }
            ReadOutcome::Disk { failed } => {
                self.counts.misses += 1;
                self.requests[slot as usize].parts += 1;
                let number = self.fetches.add(Fetch { slot, page, fill: None });
                fetching = Some((page, number));
                match failed {
                    Some(at) => self.add_host_read(at, JobPurpose::Failed(number)),
                    None => self.disk.fetch(page, number),
                }
            }
        }
        self.carry_out_counted(fetching)
    }

    /// Writes a page for a request. Returns true if pages are written back.
    fn write_page(&mut self, slot: Slot, page: u32, bytes: u64) -> bool {
        let mut written_back = false;
        if bytes < self.page && !self.cache.is_in_dram(page) {
            self.counts.fetches += 1;
            written_back = self.read_page(slot, page, bytes);
        }
        self.counts.page_writes += 1;
        self.errors.set_time(self.now);
        let hit = self.cache.write(page, &mut self.errors, &mut self.steps);
        self.counts.write_hits += u64::from(hit);
        let end = self.access_dram(page, bytes, true);
        self.ready_at(slot, end);
        self.carry_out_counted(None) | written_back
    }

    /// Writes all dirty pages of DRAM to flash, and lets the request wait for these programs.
    fn flush_request(&mut self, slot: Slot) {
        self.errors.set_time(self.now);
        self.cache.write_back(u32::MAX, &mut self.errors, &mut self.steps);
        self.carry_out_counted(None);
        let left = self.write_backs.under_way;
        if left > 0 {
            self.requests[slot as usize].parts += 1;
            self.write_backs.flushes.push(WaitingFlush { slot, last: self.write_backs.started, left });
        }
    }

    /// Ends a part of a request. After the last one the answer crosses the network.
    fn end_part(&mut self, slot: Slot, context: &mut Context<CacheEvent>) {
        let request = &mut self.requests[slot as usize];
        request.parts -= 1;
        if request.parts > 0 {
            return;
        }
        let len = request.command.len as f64;
        let transfer = (len / self.server.network.0 * 1e12).round() as Time;
        let start = request.ready.max(self.now).max(self.network_free);
        let payload = matches!(request.command.op, Op::Read | Op::Write);
        let end = if payload { start + transfer } else { request.ready.max(self.now) };
        if payload {
            self.network_free = end;
            self.payload += request.command.len;
        }
        self.record();
        if end > self.now {
            context.queue.push(Picos(end), Event::Complete(slot));
        } else {
            context.complete(slot);
        }
    }

    /// Handles the end of an operation of the flash, decoding included.
    pub(super) fn end_job(&mut self, number: u32, context: &mut Context<CacheEvent>) {
        let Some(job) = self.jobs.end(number, self.now) else { return };
        match job.purpose {
            JobPurpose::Request(slot, page) => {
                let end = self.access_dram(page, self.page, true);
                self.ready_at(slot, end);
                self.add_time(Level::Flash, slot);
                self.end_part(slot, context);
            }
            JobPurpose::Failed(fetch) => {
                if let Some(page) = self.fetches.get(fetch).map(|fetch| fetch.page) {
                    self.disk.fetch(page, fetch);
                }
            }
            JobPurpose::Flush(page) => {
                self.flush_reads -= 1;
                self.disk.write(page);
            }
            JobPurpose::WriteBack(written) => self.written_back(written, context),
            JobPurpose::Other => {}
        }
    }

    fn add_time(&mut self, level: Level, slot: Slot) {
        let time = self.now - self.requests[slot as usize].started;
        self.cache.flash_mut().status_mut().add_time(level, Picos(time));
    }

    /// Handles the end of a write-back: flushes and requests that waited for it, and the periodic pass.
    fn written_back(&mut self, number: u64, context: &mut Context<CacheEvent>) {
        self.write_backs.under_way -= 1;
        let mut done = Vec::new();
        for flush in &mut self.write_backs.flushes {
            flush.left -= u64::from(number <= flush.last);
            if flush.left == 0 {
                done.push(flush.slot);
            }
        }
        self.write_backs.flushes.retain(|flush| flush.left > 0);
        while self.write_backs.under_way <= self.server.write_back_queue
            && let Some(slot) = self.write_backs.waiting.pop_front()
        {
            done.push(slot);
        }
        for slot in done {
            self.end_part(slot, context);
        }
        self.continue_pass();
    }

    /// Continues the periodic pass over dirty pages of DRAM while the queue has room.
    pub(super) fn continue_pass(&mut self) {
        self.errors.set_time(self.now);
        while self.write_backs.pass > 0 && self.write_backs.under_way < self.server.write_back_queue {
            let room = self.server.write_back_queue - self.write_backs.under_way;
            let most = u32::try_from(room).unwrap_or(u32::MAX).min(self.write_backs.pass);
            let written = self.cache.write_back(most, &mut self.errors, &mut self.steps);
            self.write_backs.pass = if written == 0 { 0 } else { self.write_backs.pass - written };
            self.carry_out_counted(None);
        }
    }

    /// Handles the end of a disk request.
    pub(super) fn end_disk(&mut self, context: &mut Context<CacheEvent>) {
        if let Some(DiskUser::WaitedFor(number)) = self.disk.end(self.now)
            && let Some(Fetch { slot, page, fill }) = self.fetches.take(number)
        {
            let end = self.access_dram(page, self.page, true);
            self.ready_at(slot, end);
            self.add_time(Level::Disk, slot);
            if let Some(fill) = fill {
                self.jobs.release(fill, self.now);
            }
            self.end_part(slot, context);
        }
    }
}
