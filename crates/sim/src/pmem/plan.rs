//! What a request does: its steps, in order.

use std::collections::VecDeque;
use std::ops::Range;

use deepram_core::cache::{AccessOutcome, Replacement};
use deepram_core::persist::{FlushStep, RangeFlush};
use deepram_media::{DataStore, Durability, FsyncFlush, LineFlush};
use deepram_trace::Op;

use super::PmemDevice;
use super::caches::{FlushedLines, POOL_LINES, Touched, lines_of};
use super::memory::{Batch, Medium};
use super::page_cache::{MAPPED, pages_of, runs};
use crate::engine::Time;
use crate::host::Command;
use crate::processor::LINE_BYTES;

/// A step of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Work on a core, with its lines.
    Core(Batch),
    /// Requests to the drive, all at once: first block and number of each. The thread sleeps until all have completed.
    Drive(Vec<(u64, u64)>, bool),
    /// Writes that the thread does not wait for.
    Victims(Vec<u64>),
    /// A commit of the journal, which begins after this step.
    Commit,
    /// The thread sleeps while too many pages are dirty.
    Throttle,
    /// The thread sleeps until the next group commit.
    GroupCommit,
}

impl PmemDevice {
    /// Plans a command of a thread: its steps, and whether it flushes. The caches change now.
    pub(super) fn plan(&mut self, command: Command, thread: u32) -> (VecDeque<Step>, bool) {
        let mut steps = Steps(VecDeque::new());
        if self.platform.program.0 > 0 {
            steps.core(self.time(self.platform.program.0));
        }
        let range = command.offset..command.offset + command.len;
        let mapped = self.platform.mapped.0;
        let mut flushes = false;
        match command.op {
            Op::Read | Op::Write => {
                let write = command.op == Op::Write;
                if self.pool.is_some() && command.offset < self.log_start {
                    self.pool_access(&range, write, thread, &mut steps);
                } else {
                    if range.start < mapped {
                        let part = range.start..range.end.min(mapped);
                        flushes = self.mapped_access(&part, write, thread, &mut steps);
                    }
                    if range.end > mapped {
                        let part = range.start.max(mapped)..range.end;
                        self.call_access(&part, write, thread, &mut steps);
                    }
                }
            }
            Op::Flush => {
                let all = if command.len == 0 { 0..self.platform.sync.0 } else { range };
                self.sync(all, thread, &mut steps);
                flushes = true;
            }
            Op::Trim => {
                steps.core(self.call(0));
                match &mut self.page_cache {
                    Some(cache) => cache.drop_pages(
                        range.start.div_ceil(4096)..(range.end / 4096).max(range.start.div_ceil(4096)),
                    ),
                    None => self.change_metadata(&mut steps),
                }
            }
        }
        (steps.0, flushes)
    }

    fn medium(&self) -> Medium {
        if self.platform.store == DataStore::Pmfs { Medium::Persistent } else { Medium::Dram }
    }

    /// Processor time without lines.
    fn time(&self, core: Time) -> Batch {
        Batch::core(core, self.medium())
    }

    /// The processor time of a system call that handles `pages` pages.
    fn call(&mut self, pages: u64) -> Batch {
        self.counts.calls += 1;
        self.time(self.platform.call.0 + pages * self.platform.page_lookup.0)
    }

    /// Processor time to move bytes that are in the caches.
    fn copy_time(&self, bytes: u64) -> Time {
        (bytes as f64 / self.platform.copy.0 * 1e12).round() as Time
    }

    /// Loads or stores the lines of a range. The core waits for the data of loads only.
    fn access(&mut self, lines: Range<u64>, store: bool, core: Time) -> Batch {
        self.counts.lines += lines.end - lines.start;
        let pool = lines.start >= POOL_LINES;
        let Touched { missing, displaced, displaced_pool } = self.caches.touch(lines, store);
        self.counts.missing_lines += missing;
        let medium = if pool { Medium::Dram } else { self.medium() };
        let mut batch = Batch { core, medium, ..self.time(0) };
        batch.others[self.medium() as usize] += displaced;
        batch.others[Medium::Dram as usize] += displaced_pool;
        if store {
            batch.others[medium as usize] += missing;
        } else {
            batch.loads = missing;
        }
        batch
    }

    /// Loads or stores of mapped data. Returns whether they end with a flush.
    fn mapped_access(&mut self, range: &Range<u64>, write: bool, thread: u32, steps: &mut Steps) -> bool {
        let journaled = write && self.platform.durability == Durability::Journaled;
        if journaled {
            self.write_journal(range.end - range.start, thread, steps);
        }
        if self.page_cache.is_some() {
            let lookups = pages_of(range);
            let faults = self.use_pages(range, false, steps);
            let mut fault = faults;
            if write && let Some(cache) = &mut self.page_cache {
                fault += lookups.filter(|page| cache.make_dirty(*page, MAPPED)).count() as u64;
            }
            self.counts.faults += fault;
            if fault > 0 {
                steps.core(self.time(fault * self.platform.fault.0));
            }
        }
        let bytes = range.end - range.start;
        let core = self.platform.cache_hit.0 + self.copy_time(bytes);
        let batch = self.access(lines_of(range), write, core);
        steps.core(batch);
        if write && self.platform.store == DataStore::Pmfs {
            for page in self.geometry.pages_of(range) {
                self.dirty_bits.insert(page);
            }
        }
        let safe = write && self.platform.durability == Durability::FsyncSafe;
        if safe {
            self.sync(0..self.platform.sync.0, thread, steps);
        }
        safe
    }

    /// Looks all pages of a range up in the page cache and reads those that are missing. Returns the number of misses.
    fn use_pages(&mut self, range: &Range<u64>, write: bool, steps: &mut Steps) -> u64 {
        let Some(cache) = &mut self.page_cache else { return 0 };
        let (mut fetch, mut victims, mut misses) = (Vec::new(), Vec::new(), 0);
        for page in pages_of(range) {
            let whole = write && range.start <= page * 4096 && range.end >= (page + 1) * 4096;
            let used = cache.touch(page, whole);
            self.counts.page_lookups += 1;
            self.counts.page_hits += u64::from(used.hit);
            misses += u64::from(!used.hit);
            fetch.extend(used.fetch.then_some(page));
            victims.extend(used.victim);
        }
        if !victims.is_empty() {
            steps.0.push_back(Step::Victims(victims));
        }
        self.drive_step(&fetch, false, steps);
        misses
    }

    fn drive_step(&mut self, pages: &[u64], write: bool, steps: &mut Steps) {
        let requests = runs(pages);
        if !requests.is_empty() {
            steps.core(self.time(requests.len() as u64 * self.platform.block_call.0));
            steps.0.push_back(Step::Drive(requests, write));
        }
    }

    /// A system call that reads or writes data of a file.
    fn call_access(&mut self, range: &Range<u64>, write: bool, thread: u32, steps: &mut Steps) {
        let bytes = range.end - range.start;
        let pages = pages_of(range);
        let count = pages.end - pages.start;
        match self.platform.store {
            DataStore::Pmfs => {
                steps.core(self.call(0));
                if write {
                    self.write_around_caches(range, steps);
                    self.change_metadata(steps);
                } else {
                    let batch = self.access(lines_of(range), false, self.copy_time(bytes));
                    steps.core(batch);
                }
            }
            DataStore::Tmpfs => {
                steps.core(self.call(count));
                let core = self.platform.tmpfs_copies * self.copy_time(bytes);
                let batch = self.access(lines_of(range), write, core);
                steps.core(batch);
            }
            DataStore::Ext4Ssd | DataStore::Ext4Disk => {
                if write {
                    steps.0.push_back(Step::Throttle);
                }
                steps.core(self.call(count));
                self.use_pages(range, write, steps);
                let batch = self.access(lines_of(range), write, self.copy_time(bytes));
                steps.core(batch);
                if write && let Some(cache) = &mut self.page_cache {
                    for page in pages {
                        cache.make_dirty(page, thread);
                    }
                }
            }
        }
    }

    /// Writes lines by non-temporal stores: cached ones leave the caches.
    fn write_around_caches(&mut self, range: &Range<u64>, steps: &mut Steps) {
        let lines = lines_of(range);
        let count = lines.end - lines.start;
        self.counts.lines += count;
        self.counts.nt_lines += count;
        self.caches.flush(lines, false);
        let core = self.copy_time(range.end - range.start).max(count * self.platform.nt_line.0);
        let mut batch = Batch { wait: true, ..self.time(core) };
        batch.others[self.medium() as usize] = count;
        steps.core(batch);
    }

    /// The journal of PMFS: lines of metadata, written, flushed and ordered by barriers.
    fn change_metadata(&mut self, steps: &mut Steps) {
        if self.platform.store != DataStore::Pmfs {
            return;
        }
        let lines = self.platform.metadata_lines;
        let batch = self.line_flushes(FlushedLines { lines, cached: lines, dirty: lines });
        steps.core(batch);
        for _ in 0..self.platform.metadata_barriers {
            self.barrier(steps);
        }
    }

    fn barrier(&mut self, steps: &mut Steps) {
        self.counts.barriers += 1;
        steps.core(self.time(self.platform.fence.0 + self.platform.barrier.0));
    }

    /// The time and the lines of the flush of a range.
    fn line_flushes(&mut self, flushed: FlushedLines) -> Batch {
        let FlushedLines { lines, cached, dirty } = flushed;
        let each = self.platform.clflush.0;
        let overlapped = (lines * each).div_ceil(self.platform.overlap);
        let (core, loads, written) = match self.platform.flush {
            LineFlush::Clflush => (lines * each, 0, dirty),
            LineFlush::Clflushopt if self.platform.serial_clflushopt => (lines * each, 0, dirty),
            LineFlush::Clflushopt | LineFlush::Clwb => (overlapped, 0, dirty),
            // All lines are written, whether dirty or not.
            LineFlush::Wof => (lines * self.platform.nt_line.0, lines - cached, lines),
        };
        self.counts.flushed_lines += lines;
        self.counts.dirty_lines += dirty;
        self.counts.flush_loads += loads;
        let mut batch = Batch { loads, wait: true, ..self.time(core) };
        batch.others[self.medium() as usize] = written;
        batch
    }

    /// Makes a range durable: msync or fsync.
    fn sync(&mut self, range: Range<u64>, thread: u32, steps: &mut Steps) {
        self.counts.syncs += 1;
        steps.core(self.call(0));
        match self.platform.store {
            DataStore::Tmpfs => {}
            DataStore::Pmfs => {
                let range = match self.platform.fsync_flush {
                    FsyncFlush::Always => range,
                    FsyncFlush::Mapped => range.start..range.end.min(self.platform.mapped.0),
                };
                self.flush_range(range, steps);
            }
            DataStore::Ext4Ssd | DataStore::Ext4Disk => {
                let owner = if range.start < self.platform.mapped.0 { MAPPED } else { thread };
                let pages = self.page_cache.as_mut().map(|cache| cache.take_dirty(owner)).unwrap_or_default();
                self.drive_step(&pages, true, steps);
                steps.0.push_back(Step::Commit);
            }
        }
    }

    /// Carries out core's flush of a range of persistent memory.
    fn flush_range(&mut self, range: Range<u64>, steps: &mut Steps) {
        let mut flush = RangeFlush::new(self.geometry, self.sync_mode, range);
        let mut shot_down = false;
        while let Some(step) = flush.next_step() {
            match step {
                FlushStep::Examine { pages, clear } => {
                    steps.core(self.time((pages.end - pages.start) * self.platform.walk.0));
                    let dirty = self.dirty_bits.within(pages);
                    for (first, count) in runs(&dirty) {
                        flush.found_dirty(first..first + count);
                    }
                    if clear && !dirty.is_empty() {
                        for page in dirty {
                            self.dirty_bits.remove(page);
                        }
                        if !shot_down {
                            steps.core(self.time(self.platform.shootdown.0));
                        }
                        shot_down = true;
                    }
                }
                FlushStep::WriteBack(bytes) => {
                    let keep = self.platform.flush == LineFlush::Clwb;
                    let flushed = self.caches.flush(lines_of(&bytes), keep);
                    let batch = self.line_flushes(flushed);
                    steps.core(batch);
                }
                FlushStep::Barrier => self.barrier(steps),
            }
        }
        let done = flush.counts();
        self.counts.pages_examined += done.pages_examined;
        self.counts.pages_dirty += done.pages_dirty;
    }

    /// Appends a record to the journal file of the program.
    fn write_journal(&mut self, bytes: u64, thread: u32, steps: &mut Steps) {
        // The file holds a record at least of a page; a longer one is written in part over itself.
        let len = (bytes + self.platform.record_header.0).min(self.platform.journal.0);
        if self.journal_at + len > self.platform.journal.0 {
            self.journal_at = 0;
        }
        let first = self.platform.mapped.0 + self.journal_at;
        self.journal_at += len;
        self.call_access(&(first..first + len), true, thread, steps);
        if self.platform.group_commit.0 > 0 {
            steps.0.push_back(Step::GroupCommit);
            self.sync(first..first + len, thread, steps);
        }
    }

    /// An access through the buffer pool of a database, whose pages are in DRAM.
    fn pool_access(&mut self, range: &Range<u64>, write: bool, thread: u32, steps: &mut Steps) {
        let size = self.platform.pool_page.0;
        for page in range.start / size..range.end.div_ceil(size) {
            let Some(pool) = &mut self.pool else { return };
            self.counts.page_lookups += 1;
            match pool.access(page) {
                AccessOutcome::Hit => self.counts.page_hits += 1,
                AccessOutcome::Miss { evicted } => {
                    if let Some(victim) = evicted
                        && self.pool_dirty.remove(victim)
                    {
                        self.call_access(&(victim * size..(victim + 1) * size), true, thread, steps);
                    }
                    self.call_access(&(page * size..(page + 1) * size), false, thread, steps);
                }
            }
            if write {
                self.pool_dirty.insert(page);
            }
            let part = range.start.max(page * size)..range.end.min((page + 1) * size);
            let core = self.platform.cache_hit.0 + self.copy_time(part.end - part.start);
            let lines = lines_of(&part);
            let batch = self.access(lines.start + POOL_LINES..lines.end + POOL_LINES, write, core);
            steps.core(batch);
        }
    }
}

/// Steps under construction.
pub(super) struct Steps(pub(super) VecDeque<Step>);

impl Steps {
    /// Adds work on a core; processor time without lines joins that before it.
    fn core(&mut self, batch: Batch) {
        let plain = batch.loads + batch.others[0] + batch.others[1] == 0;
        match self.0.back_mut() {
            Some(Step::Core(last)) if plain && last.loads + last.others[0] + last.others[1] == 0 => {
                last.core += batch.core;
            }
            _ => self.0.push_back(Step::Core(batch)),
        }
    }
}

const _: () = assert!(LINE_BYTES == 64, "the geometry of core's flushes has lines of 64 B");
