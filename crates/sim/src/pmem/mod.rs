//! A server whose programs keep their data in persistent memory, in DRAM, or in files on a drive (NVMM application
//! study). Core's [`RangeFlush`](deepram_core::persist::RangeFlush) decides which lines a flush writes back; this module
//! adds caches, memories, file systems, drive and time.
//!
//! ```text
//!   thread --> core --loads, stores--> caches <--lines--> persistent memory or DRAM      (mapped data)
//!               |----- system calls --> file system <--> persistent memory, DRAM, or page cache <--> drive
//! ```
//!
//! 1. A request is a sequence of steps (`plan`). The caches change when it is planned; times follow step by step.
//! 2. A step on a core needs one of `cores`, first come, first served. A thread that waits for the drive has no core.
//! 3. Loads that miss stall the core for the load latency, up to `overlap` of them at once. Stores fetch their lines and
//!    are written back later; a core does not wait for them. Everything that a memory transfers takes its turn in that
//!    memory's bandwidth (`memory`).
//! 4. pmfs: mapped data are loaded and stored through the caches; calls write by non-temporal stores and change metadata
//!    with flushes and barriers. A flush writes back lines of its range, then fences and waits for the barrier.
//! 5. tmpfs: the same in DRAM; a flush does nothing.
//! 6. ext4: data are in the page cache (`page_cache`). A flush writes the dirty pages of all mapped files, or those that its
//!    thread wrote by calls, and joins a journal commit: journal blocks, then the commit block. One commit is under way at a
//!    time; all that wait share the next one. Above a share of dirty pages they are written in the background, above
//!    another one writers wait. Pages that are being written count as clean, for flushes as well.
//! 7. An address below `mapped` is mapped data, any other is accessed by system calls.

mod caches;
mod counts;
mod drive;
mod memory;
mod page_cache;
mod page_set;
mod plan;

use std::collections::VecDeque;

use deepram_core::cache::Lru;
use deepram_core::persist::{Geometry, SyncMode};
use deepram_core::units::{Bytes, Picos};
use deepram_media::{DataStore, FlushedLines, Platform, Ssd};
use serde::Serialize;

use crate::engine::Time;
use crate::error::SimError;
use crate::flash::{FlashCounts, law};
use crate::host::{Command, Context, Device, Slot};
use crate::metrics::Latencies;
use crate::processor::LINE_BYTES;

pub use counts::{PmemCounts, PmemReport};

use caches::Caches;
use drive::{Drive, DriveUser};
use memory::{Medium, Memories, MemoryTotals};
use page_cache::{PageCache, runs};
use page_set::PageSet;
use plan::Step;

/// The commands that a server accepts at once.
const QUEUE: u64 = 1 << 16;
/// Pages that background write-back writes at once.
const WRITE_BACK: usize = 256;

/// Options of `pmem`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PmemOptions {
    /// Whether the server's caches are simulated; a simulated processor has caches of its own.
    pub cpu_cache: bool,
    /// Start of the log of a database, whose writes bypass its buffer pool; bytes.
    pub log_start: Option<u64>,
}

impl Default for PmemOptions {
    fn default() -> Self {
        Self { cpu_cache: true, log_start: None }
    }
}

/// An event of the device.
#[derive(Debug, Clone, Copy)]
pub enum PmemEvent {
    /// The request continues.
    Step(Slot),
    /// The drive's next event is due.
    Drive,
    /// The commit block can be written.
    CommitBlock,
}

/// A request of the host.
#[derive(Debug, Clone, Default)]
struct HostRequest {
    steps: VecDeque<Step>,
    has_core: bool,
    /// Since when it has had it.
    core_since: Time,
    /// Requests to the drive that it waits for.
    waits_for: u64,
    flushes: bool,
    begun: Time,
}

/// The journal of ext4.
#[derive(Debug, Default)]
struct Journal {
    waiting: Vec<Slot>,
    committing: Vec<Slot>,
    /// The journal blocks are durable; the commit block follows.
    last: bool,
}

/// The totals when measuring began.
#[derive(Default)]
struct Baseline {
    counts: PmemCounts,
    memory: [MemoryTotals; 2],
    core_time: Time,
}

/// A simulated server; see the module.
pub struct PmemDevice {
    platform: Platform,
    geometry: Geometry,
    sync_mode: SyncMode,
    caches: Caches,
    memories: Memories,
    dirty_bits: PageSet,
    page_cache: Option<PageCache>,
    drive: Option<Drive>,
    drive_due: Option<Time>,
    pool: Option<Lru<u64>>,
    pool_dirty: PageSet,
    log_start: u64,
    journal: Journal,
    /// The next byte of the program's journal file.
    journal_at: u64,
    requests: Vec<HostRequest>,
    free_cores: u64,
    runnable: VecDeque<Slot>,
    ready: VecDeque<Slot>,
    throttled: Vec<Slot>,
    /// Requests of background write-back under way.
    writing_back: u64,
    core_time: Time,
    syncs: Latencies,
    counts: PmemCounts,
    base: Baseline,
}

impl PmemDevice {
    /// Builds the server of a preset; `ssd` is the drive of `ext4-ssd`.
    ///
    /// # Errors
    /// The figures do not fit together.
    pub fn new(platform: &Platform, ssd: &Ssd, options: &PmemOptions, seed: u64) -> Result<Self, SimError> {
        let geometry = Geometry::new(platform.page.0, LINE_BYTES)
            .map_err(|error| SimError::config("page", error.to_string()))?;
        let sync_mode = match platform.flushed {
            FlushedLines::Every => SyncMode::EveryLine,
            FlushedLines::Selective => SyncMode::Selective,
        };
        let memories = [
            (platform.dram_bandwidth, platform.dram_latency),
            (platform.available_bandwidth(), platform.load_latency()),
        ];
        let cache = if options.cpu_cache { platform.cache } else { Bytes(0) };
        Ok(Self {
            geometry,
            sync_mode,
            caches: Caches::new(cache, platform.cache_ways)?,
            memories: Memories::new(memories, platform.overlap),
            dirty_bits: PageSet::default(),
            page_cache: platform.on_drive().then(|| PageCache::new(platform)),
            drive: Drive::new(platform, ssd, seed)?,
            drive_due: None,
            pool: (platform.pool.0 > 0).then(|| Lru::new((platform.pool.0 / platform.pool_page.0) as usize)),
            pool_dirty: PageSet::default(),
            log_start: options.log_start.unwrap_or(u64::MAX),
            journal: Journal::default(),
            journal_at: 0,
            requests: Vec::new(),
            free_cores: platform.cores,
            runnable: VecDeque::new(),
            ready: VecDeque::new(),
            throttled: Vec::new(),
            writing_back: 0,
            core_time: 0,
            syncs: Latencies::new()?,
            counts: PmemCounts::default(),
            base: Baseline::default(),
            platform: platform.clone(),
        })
    }

    /// The counters since the start.
    fn totals(&self) -> PmemCounts {
        let mut counts = PmemCounts {
            dram_lines: self.memories.totals(Medium::Dram).lines,
            pmem_lines: self.memories.totals(Medium::Persistent).lines,
            ..self.counts
        };
        if let Some(drive) = &self.drive {
            counts.blocks_read = drive.blocks_read;
            counts.blocks_written = drive.blocks_written;
            counts.drive_requests = drive.reads + drive.writes;
        }
        counts
    }

    /// The counters since measuring began.
    #[must_use]
    pub fn pmem_counts(&self) -> PmemCounts {
        self.totals().since(&self.base.counts)
    }

    /// The report over `time`, the measured time.
    #[must_use]
    pub fn report(&self, time: Picos) -> PmemReport {
        let over = |part: Time| if time.0 == 0 { 0.0 } else { part as f64 / time.0 as f64 };
        let since = |medium: Medium| {
            let (now, base) = (self.memories.totals(medium), self.base.memory[medium as usize]);
            (now.busy - base.busy, now.lines - base.lines)
        };
        let (dram, (pmem, lines)) = (since(Medium::Dram), since(Medium::Persistent));
        PmemReport {
            dram_busy: over(dram.0),
            pmem_busy: over(pmem),
            pmem_bytes_per_s: if time.0 == 0 { 0.0 } else { (lines * LINE_BYTES) as f64 / time.seconds() },
            cores_in_use: over(self.core_time - self.base.core_time),
            sync: self.syncs.summary(),
        }
    }

    /// Continues a request until it sleeps, computes or ends.
    fn proceed(&mut self, slot: Slot, context: &mut Context<PmemEvent>) -> Result<(), SimError> {
        let now = context.now().0;
        loop {
            let request = &mut self.requests[slot as usize];
            let Some(step) = request.steps.pop_front() else {
                if request.flushes {
                    self.syncs.add(Picos(now - request.begun));
                }
                self.leave_core(slot, now);
                context.complete(slot);
                return Ok(());
            };
            if let Step::Core(batch) = step {
                if !request.has_core {
                    if self.free_cores == 0 {
                        request.steps.push_front(step);
                        self.runnable.push_back(slot);
                        return Ok(());
                    }
                    self.free_cores -= 1;
                    (request.has_core, request.core_since) = (true, now);
                }
                let end = self.memories.begin(now, &batch);
                if end > now {
                    context.schedule(Picos(end), PmemEvent::Step(slot));
                    return Ok(());
                }
                continue;
            }
            if self.sleep_for(slot, step, context)? {
                return Ok(());
            }
        }
    }

    /// Carries out a step that needs no core. Returns whether the thread sleeps.
    fn sleep_for(
        &mut self,
        slot: Slot,
        step: Step,
        context: &mut Context<PmemEvent>,
    ) -> Result<bool, SimError> {
        let now = context.now().0;
        match step {
            Step::Core(_) => return Ok(false),
            Step::Throttle => {
                if !self.page_cache.as_ref().is_some_and(PageCache::is_over_limit) {
                    return Ok(false);
                }
                self.counts.throttled += 1;
                self.throttled.push(slot);
            }
            Step::Victims(pages) => {
                for run in runs(&pages) {
                    self.request_drive(run, true, DriveUser::Victim, context)?;
                }
                return Ok(false);
            }
            Step::Drive(requests, write) => {
                self.requests[slot as usize].waits_for = requests.len() as u64;
                for run in requests {
                    self.request_drive(run, write, DriveUser::Host(slot), context)?;
                }
            }
            Step::Commit => {
                self.journal.waiting.push(slot);
                self.begin_commit(context)?;
            }
            Step::GroupCommit => {
                let period = self.platform.group_commit.0;
                context.schedule(Picos((now / period + 1) * period), PmemEvent::Step(slot));
            }
        }
        self.leave_core(slot, now);
        Ok(true)
    }

    fn leave_core(&mut self, slot: Slot, now: Time) {
        let request = &mut self.requests[slot as usize];
        if std::mem::take(&mut request.has_core) {
            self.core_time += now - request.core_since;
            self.free_cores += 1;
            self.ready.extend(self.runnable.pop_front());
        }
    }

    fn request_drive(
        &mut self,
        run: (u64, u64),
        write: bool,
        user: DriveUser,
        context: &mut Context<PmemEvent>,
    ) -> Result<(), SimError> {
        let Some(drive) = &mut self.drive else { return Ok(()) };
        let users = drive.request(run, write, user, context.now().0)?;
        self.drive_done(users, context)
    }

    /// Begins the next commit if requests wait for one and none is under way.
    fn begin_commit(&mut self, context: &mut Context<PmemEvent>) -> Result<(), SimError> {
        if self.journal.waiting.is_empty() || !self.journal.committing.is_empty() {
            return Ok(());
        }
        self.journal.committing = std::mem::take(&mut self.journal.waiting);
        self.journal.last = false;
        self.counts.commits += 1;
        self.append_journal(self.platform.commit_blocks, context)
    }

    fn append_journal(&mut self, blocks: u64, context: &mut Context<PmemEvent>) -> Result<(), SimError> {
        let Some(drive) = &mut self.drive else { return Ok(()) };
        let users = drive.append_journal(blocks, context.now().0)?;
        self.drive_done(users, context)
    }

    /// Requests to the drive have completed.
    fn drive_done(
        &mut self,
        users: Vec<DriveUser>,
        context: &mut Context<PmemEvent>,
    ) -> Result<(), SimError> {
        for user in users {
            match user {
                DriveUser::Victim => {}
                DriveUser::WriteBack => self.writing_back -= 1,
                DriveUser::Host(slot) => {
                    let request = &mut self.requests[slot as usize];
                    request.waits_for -= 1;
                    if request.waits_for == 0 {
                        self.ready.push_back(slot);
                    }
                }
                DriveUser::Commit if self.journal.last => {
                    self.ready.extend(std::mem::take(&mut self.journal.committing));
                    self.begin_commit(context)?;
                }
                DriveUser::Commit => {
                    self.journal.last = true;
                    let turn = self.drive.as_ref().map_or(0, |drive| drive.turn(&self.platform));
                    context.schedule(context.now() + Picos(turn), PmemEvent::CommitBlock);
                }
            }
        }
        Ok(())
    }

    /// Continues what can continue, and schedules the drive's next event.
    fn settle(&mut self, context: &mut Context<PmemEvent>) -> Result<(), SimError> {
        loop {
            while let Some(slot) = self.ready.pop_front() {
                self.proceed(slot, context)?;
            }
            if let Some(cache) = &mut self.page_cache {
                if !self.throttled.is_empty() && !cache.is_over_limit() {
                    self.ready.extend(std::mem::take(&mut self.throttled));
                    continue;
                }
                if self.writing_back == 0 {
                    let pages = cache.take_background(WRITE_BACK);
                    let requests = runs(&pages);
                    self.writing_back = requests.len() as u64;
                    for run in requests {
                        self.request_drive(run, true, DriveUser::WriteBack, context)?;
                    }
                    if !pages.is_empty() {
                        continue;
                    }
                }
            }
            break;
        }
        let now = context.now().0;
        if let Some(next) = self.drive.as_mut().and_then(|drive| drive.next(now))
            && self.drive_due.is_none_or(|due| next < due || due <= now)
        {
            self.drive_due = Some(next);
            context.schedule(Picos(next), PmemEvent::Drive);
        }
        Ok(())
    }
}

impl Device for PmemDevice {
    type Event = PmemEvent;

    fn capacity(&self) -> Bytes {
        self.drive.as_ref().map_or(self.platform.capacity, |drive| drive.capacity(&self.platform))
    }

    fn queue_limit(&self) -> u64 {
        QUEUE
    }

    fn flushes_ranges(&self) -> bool {
        true
    }

    fn submit(
        &mut self,
        slot: Slot,
        command: Command,
        context: &mut Context<PmemEvent>,
    ) -> Result<(), SimError> {
        if self.requests.len() <= slot as usize {
            self.requests.resize_with(slot as usize + 1, HostRequest::default);
        }
        let thread = context.core().unwrap_or(slot);
        let (steps, flushes) = self.plan(command, thread);
        let begun = context.now().0;
        self.requests[slot as usize] = HostRequest { steps, flushes, begun, ..HostRequest::default() };
        self.ready.push_back(slot);
        self.settle(context)
    }

    fn handle(&mut self, event: PmemEvent, context: &mut Context<PmemEvent>) -> Result<(), SimError> {
        match event {
            PmemEvent::Step(slot) => self.ready.push_back(slot),
            PmemEvent::CommitBlock => self.append_journal(1, context)?,
            PmemEvent::Drive => {
                let now = context.now().0;
                // Events that were replaced by earlier ones of the drive find it with nothing due.
                if self.drive_due.is_some_and(|due| due <= now)
                    && let Some(drive) = &mut self.drive
                {
                    self.drive_due = None;
                    let users = drive.advance(now)?;
                    self.drive_done(users, context)?;
                }
            }
        }
        self.settle(context)
    }

    fn begin_measuring(&mut self) {
        self.base = Baseline {
            counts: self.totals(),
            memory: [Medium::Dram, Medium::Persistent].map(|medium| self.memories.totals(medium)),
            core_time: self.core_time,
        };
        self.syncs.clear();
    }

    fn counts(&self) -> FlashCounts {
        self.drive.as_ref().map_or_else(FlashCounts::default, Drive::flash)
    }

    fn check(&self) -> Result<(), SimError> {
        self.caches.check()?;
        let on_cores = self.requests.iter().filter(|request| request.has_core).count() as u64;
        law("a core is free or has a request", self.free_cores + on_cores, self.platform.cores)?;
        law(
            "a free core leaves no request waiting",
            u64::from(self.free_cores > 0 && !self.runnable.is_empty()),
            0,
        )?;
        let counts = self.totals();
        law("a page is found or not", u64::from(counts.page_hits > counts.page_lookups), 0)?;
        law(
            "a dirty line that is flushed is a flushed line",
            u64::from(counts.dirty_lines > counts.flushed_lines),
            0,
        )?;
        if let Some(cache) = &self.page_cache {
            law("the lists of dirty pages agree", u64::from(cache.is_consistent()), 1)?;
        }
        if let Some(drive) = &self.drive {
            drive.check()?;
            if drive.is_idle() {
                law("no page is written back by an idle drive", self.writing_back, 0)?;
            }
        }
        let store = self.platform.store;
        let moved = if store == DataStore::Pmfs { 0 } else { counts.pmem_lines };
        law("only pmfs uses persistent memory", moved, 0)
    }
}
