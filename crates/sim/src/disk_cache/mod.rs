//! A server with a disk cache of DRAM and flash in front of a hard disk (flash disk cache): core's
//! [`DiskCache`] decides, this module adds time, energy, errors and the devices.
//!
//! ```text
//!   clients <--network--> software --> DRAM <--> flash array --> disk
//!                                       hit       hit            miss
//! ```
//!
//! 1. The state of the cache changes when a request is served. Flash and disk follow in time: programs,
//!    moves, erases and disk writes are jobs in the background (`flash_jobs`).
//! 2. A request is complete when all of its pages are in DRAM and its payload has crossed the network,
//!    which carries one payload at a time. It waits in addition if it causes write-backs while more than
//!    `write_back_queue` are under way.
//! 3. A read of flash ends when the controller has decoded it. Errors come from `wearing_flash`. A read
//!    that cannot be corrected is followed by one of the disk.
//! 4. Dirty pages of DRAM go to flash each `write_back_period`, those of flash to the disk each
//!    `flush_period`, as long as there are any. A pass that is not over when the next is due goes on.
//! 5. A flush of the host writes all dirty pages of DRAM to flash, which is not volatile.
//! 6. A run is counted until the last completion of a request. What the devices do later, such as the last
//!    pass, belongs to no request and no measured time.
//! 7. Flash is the shared flash array, with one target for each die.

mod configure;
mod counts;
mod flash_jobs;
mod requests;
mod steps;
mod wearing_flash;

use deepram_core::disk_cache::{DiskCache, Step};
use deepram_core::ftl::BlockState;
use deepram_core::reliability::{Density, Level};
use deepram_core::units::{Bytes, Picos};
use deepram_media::{DiskCacheServer, NandOp, power_energy};

use crate::dram::{DramCounts, DramMemory};
use crate::engine::Time;
use crate::error::SimError;
use crate::flash::{FlashCounts, law};
use crate::flash_array::{ChannelEvent, Notice};
use crate::hard_disk::{DiskTotals, HardDisk};
use crate::host::{Command, Context, Device, Slot};
use crate::slab::Slab;
use crate::ssd::serial::checked_u32;

pub use counts::{CacheCounts, CacheReport};
pub use wearing_flash::WearingFlash;

use flash_jobs::FlashJobs;
use requests::{Fetch, HostRequest, WriteBacks};

/// The commands that a server accepts at once.
const QUEUE: u64 = 1 << 16;

/// An event of the device.
#[derive(Debug, Clone, Copy)]
pub enum CacheEvent {
    /// An event of the flash array.
    #[doc(hidden)]
    Flash(FlashEvent),
    /// The data of the read of this number have been decoded.
    Decoded(u32),
    /// The disk's request has ended.
    Disk,
    /// The software of the request has run.
    Start(Slot),
    /// Dirty pages of DRAM are due.
    WriteBack,
    /// Dirty pages of flash are due.
    Flush,
}

/// An event of the flash array.
#[derive(Debug, Clone, Copy)]
pub struct FlashEvent(ChannelEvent);

/// A simulated server; see the module.
pub struct DiskCacheDevice {
    server: DiskCacheServer,
    page: u64,
    cache: DiskCache,
    errors: WearingFlash,
    dram: DramMemory,
    frames: u64,
    bursts_a_page: u64,
    burst_bytes: u64,
    jobs: FlashJobs,
    disk: HardDisk,
    requests: Vec<HostRequest>,
    fetches: Slab<Fetch>,
    write_backs: WriteBacks,
    /// Reads of flash whose data go to the disk.
    flush_reads: u64,
    /// Write-backs until the last pass over dirty pages of flash.
    flushed_to: u64,
    /// Whether an event is scheduled for each periodic pass.
    due: [bool; 2],
    steps: Vec<Step>,
    notices: Vec<Notice>,
    /// Jobs belong to a reclamation.
    reclaiming: bool,
    network_free: Time,
    payload: u64,
    now: Time,
    counts: CacheCounts,
    flash: FlashCounts,
    /// The totals when a request last completed, and when measuring began.
    last: Totals,
    base: Totals,
}

/// Everything that a run counts.
#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    counts: CacheCounts,
    flash: FlashCounts,
    disk: DiskTotals,
    payload: u64,
}

/// Builds core's cache of a server, without time: for studies of lifetime and miss rates.
///
/// # Errors
/// The figures do not fit together.
pub fn untimed_cache(server: &DiskCacheServer) -> Result<DiskCache, SimError> {
    DiskCache::new(&configure::options(server)?).map_err(|error| SimError::config("flash", error.to_string()))
}

impl DiskCacheDevice {
    /// Builds the server of a preset.
    ///
    /// # Errors
    /// The figures do not fit together.
    pub fn new(server: &DiskCacheServer, seed: u64) -> Result<Self, SimError> {
        let page = server.mlc.page.0;
        checked_u32("disk.capacity", server.disk.capacity.0 / page + 2)?;
        let cache = untimed_cache(server)?;
        let dram = DramMemory::new(&server.dram)?;
        let burst_bytes = server.dram.burst_bytes().0.max(1);
        let decode = configure::options(server)?.policy.times.decode;
        let standby = server.standby.then_some((server.standby_after, server.spin_up));
        Ok(Self {
            jobs: FlashJobs::new(server, cache.flash().shape(), decode),
            disk: HardDisk::new(&server.disk, page, standby),
            errors: WearingFlash::new(server, seed),
            frames: (server.dram_cache.0 / page).max(1),
            bursts_a_page: page.div_ceil(burst_bytes),
            server: server.clone(),
            page,
            cache,
            dram,
            burst_bytes,
            requests: Vec::new(),
            fetches: Slab::new(),
            write_backs: WriteBacks::default(),
            flush_reads: 0,
            flushed_to: 0,
            due: [false; 2],
            steps: Vec::new(),
            notices: Vec::new(),
            reclaiming: false,
            network_free: 0,
            payload: 0,
            now: 0,
            counts: CacheCounts::default(),
            flash: FlashCounts::default(),
            last: Totals::default(),
            base: Totals::default(),
        })
    }

    /// The cache.
    #[must_use]
    pub fn cache(&self) -> &DiskCache {
        &self.cache
    }

    /// The counters from when measuring began until the last completion of a request.
    #[must_use]
    pub fn cache_counts(&self) -> CacheCounts {
        self.last.counts.since(&self.base.counts)
    }

    /// Records the totals: a request is complete.
    fn record(&mut self) {
        let (counts, payload) = (self.counts, self.payload);
        let flash = FlashCounts { host_pages: counts.page_writes, ..self.flash };
        self.last = Totals { counts, flash, disk: self.disk.totals(), payload };
    }

    /// The requests and times of the disk, as [`Self::cache_counts`].
    fn disk_totals(&self) -> DiskTotals {
        self.last.disk.since(&self.base.disk)
    }

    /// The operations of the DRAM since measuring began.
    #[must_use]
    pub fn dram_counts(&self) -> DramCounts {
        self.dram.dram_counts()
    }

    /// Program/erase cycles of each block.
    pub fn erased(&self) -> impl Iterator<Item = u32> + '_ {
        self.cache.flash().blocks().all_cycles()
    }

    /// Energy over `time` by component: operations, then idle time, in picojoules.
    pub(crate) fn energy_pj(&self, time: Picos) -> Vec<(&'static str, f64, f64)> {
        let mut parts: Vec<_> = self.dram.energy_pj(time).into();
        let (slc, mlc) = (&self.server.slc, &self.server.mlc);
        let (did, flash) = (self.cache_counts(), self.last.flash.since(&self.base.flash));
        let of = |op: NandOp, all: u64, single: u64| {
            slc.energy(op).times(single).0 + mlc.energy(op).times(all - single).0
        };
        if self.server.blocks() > 0 {
            let dies = (self.server.channels * self.server.dies) as f64;
            parts.push(("flash read", of(NandOp::Read, flash.reads(), did.slc_reads), 0.0));
            parts.push(("flash program", of(NandOp::Program, flash.programs(), did.slc_programs), 0.0));
            parts.push(("flash erase", of(NandOp::Erase, flash.erases, did.slc_erases), 0.0));
            parts.push(("flash standby", 0.0, power_energy(mlc.standby_power(), time).0 * dies));
        }
        let (access, rest) = self.disk.energy_pj(&self.disk_totals(), time);
        parts.push(("disk", access, rest));
        parts
    }

    /// The report over `time`, the measured time.
    #[must_use]
    pub fn report(&self, time: Picos) -> CacheReport {
        let did = self.cache_counts();
        let share = |part: u64, all: u64| if all == 0 { 0.0 } else { part as f64 / all as f64 };
        let watts = |energy: f64| if time.0 == 0 { 0.0 } else { energy / time.0 as f64 };
        let energy = self.energy_pj(time);
        let sum = |disk: bool| {
            let parts = energy.iter().filter(|part| (part.0 == "disk") == disk);
            parts.map(|part| part.1 + part.2).sum::<f64>()
        };
        let access = energy.iter().filter(|part| part.0 == "disk").map(|part| part.1).sum::<f64>();
        let disk = self.disk_totals();
        let flash = self.cache.flash();
        let status = flash.status();
        let mean = |level: Level| {
            let reads = status.reads[level as usize].max(1);
            status.times[level as usize] as f64 / reads as f64 / 1e3
        };
        let (strength, single, pages) = self.configuration();
        CacheReport {
            flash_miss_rate: share(did.misses, did.misses + did.flash_hits),
            reclaim_share: share(did.reclaim_busy_ps, did.flash_busy_ps),
            network_bytes_per_s: if time.0 == 0 {
                0.0
            } else {
                (self.last.payload - self.base.payload) as f64 / time.seconds()
            },
            memory_power_w: watts(sum(false)),
            disk_power_w: watts(sum(true)),
            disk_access_power_w: watts(access),
            disk_reads: disk.reads,
            disk_writes: disk.writes,
            disk_pages_written: disk.pages_written,
            disk_sequential: disk.sequential,
            disk_spin_ups: disk.spin_ups,
            disk_busy: share(disk.seeking + disk.moving, time.0),
            flash_pages: flash.len().into(),
            flash_capacity_pages: flash.capacity_pages(),
            table_bytes: flash.table_bytes() as u64,
            flash_dead: self.server.blocks() > 0 && flash.is_dead(),
            mean_strength: share(strength, pages),
            slc_share: share(single, pages),
            flash_read_ns: mean(Level::Flash),
            disk_read_ns: mean(Level::Disk),
        }
    }

    /// Sum of the strengths of all pages in service, pages in single-level cells, and all pages.
    fn configuration(&self) -> (u64, u64, u64) {
        let flash = self.cache.flash();
        let shape = flash.shape();
        let in_service = |block: &u32| flash.blocks().state(*block) != BlockState::Retired;
        let pages = (0..shape.blocks).filter(in_service).flat_map(|block| shape.pages_of(block));
        pages.fold((0, 0, 0), |(strength, single, all), page| {
            let status = flash.page(page);
            let is_single = u64::from(status.density() == Density::Slc);
            (strength + u64::from(status.strength()), single + is_single, all + 1)
        })
    }

    /// Starts what can start, and schedules the events of flash and disk.
    fn settle(&mut self, context: &mut Context<CacheEvent>) {
        loop {
            for (time, event) in self.jobs.array.events.drain(..) {
                context.schedule(Picos(time), CacheEvent::Flash(FlashEvent(event)));
            }
            if self.jobs.array.notices.is_empty() {
                break;
            }
            let mut notices = std::mem::take(&mut self.notices);
            std::mem::swap(&mut notices, &mut self.jobs.array.notices);
            for notice in notices.drain(..) {
                if let Notice::Done(number) = notice {
                    self.flash_done(number, context);
                }
            }
            self.notices = notices;
        }
        if let Some(end) = self.disk.start(self.now) {
            context.schedule(Picos(end), CacheEvent::Disk);
        }
        self.schedule_passes(context);
    }

    /// An operation of the flash array has ended; a read is decoded next.
    fn flash_done(&mut self, number: u32, context: &mut Context<CacheEvent>) {
        let Some(job) = self.jobs.job(number) else { return };
        let (op, page) = (job.op, job.page);
        let decode = if op == NandOp::Read { self.jobs.decode_time(page) } else { 0 };
        if decode > 0 {
            context.schedule(Picos(self.now + decode), CacheEvent::Decoded(number));
        } else {
            self.end_job(number, context);
        }
    }

    /// Schedules the periodic passes that have something to do.
    fn schedule_passes(&mut self, context: &mut Context<CacheEvent>) {
        let has_flash = !self.cache.flash().is_dead();
        let dirty = [self.cache.dirty_in_dram() > 0, has_flash && self.counts.write_backs > self.flushed_to];
        let periods = [self.server.write_back_period.0, self.server.flush_period.0];
        for (pass, event) in [CacheEvent::WriteBack, CacheEvent::Flush].into_iter().enumerate() {
            if !self.due[pass] && dirty[pass] && periods[pass] > 0 {
                self.due[pass] = true;
                let next = (self.now / periods[pass] + 1) * periods[pass];
                context.schedule(Picos(next), event);
            }
        }
    }

    /// Writes dirty pages of flash to the disk, unless those of the last pass are still on their way.
    fn flush_pass(&mut self) {
        if self.flush_reads > 0 || !self.disk.is_idle() {
            return;
        }
        self.flushed_to = self.counts.write_backs;
        self.errors.set_time(self.now);
        self.cache.flush(u32::MAX, &mut self.errors, &mut self.steps);
        self.carry_out_counted(None);
    }
}

impl Device for DiskCacheDevice {
    type Event = CacheEvent;

    fn capacity(&self) -> Bytes {
        Bytes(self.server.disk.capacity.0 / self.page * self.page)
    }

    fn queue_limit(&self) -> u64 {
        QUEUE
    }

    fn submit(
        &mut self,
        slot: Slot,
        command: Command,
        context: &mut Context<CacheEvent>,
    ) -> Result<(), SimError> {
        self.now = context.now().0;
        self.accept(slot, command);
        if self.server.software.0 > 0 {
            context.schedule(context.now() + self.server.software, CacheEvent::Start(slot));
        } else {
            self.serve(slot, context);
        }
        self.settle(context);
        Ok(())
    }

    fn handle(&mut self, event: CacheEvent, context: &mut Context<CacheEvent>) -> Result<(), SimError> {
        self.now = context.now().0;
        match event {
            CacheEvent::Flash(FlashEvent(event)) => self.jobs.array.handle(event, self.now),
            CacheEvent::Decoded(number) => self.end_job(number, context),
            CacheEvent::Disk => self.end_disk(context),
            CacheEvent::Start(slot) => self.serve(slot, context),
            CacheEvent::WriteBack => {
                self.due[0] = false;
                self.write_backs.pass = self.cache.dirty_in_dram();
                self.continue_pass();
            }
            CacheEvent::Flush => {
                self.due[1] = false;
                self.flush_pass();
            }
        }
        self.settle(context);
        Ok(())
    }

    fn begin_measuring(&mut self) {
        self.base = self.last;
        self.dram.begin_measuring();
    }

    fn counts(&self) -> FlashCounts {
        self.last.flash
    }

    fn check(&self) -> Result<(), SimError> {
        let did = &self.counts;
        law(
            "every page read was in DRAM, in flash or on the disk",
            did.dram_hits + did.flash_hits + did.misses,
            did.page_reads,
        )?;
        law(
            "flash is programmed for fills and write-backs",
            self.flash.host_programs,
            did.fills + did.write_backs,
        )?;
        let moves = did.reclaim_moves + did.hot_moves + did.fault_moves + did.wear_moves;
        law("flash is programmed again for pages that move", self.flash.move_programs, moves)?;
        law(
            "flash is read for moves, flushes and second reads",
            self.flash.move_reads,
            moves + did.flushes + did.second_reads,
        )?;
        let flash = self.cache.flash();
        let shape = flash.shape();
        let live: u64 = (0..shape.blocks).map(|block| u64::from(flash.blocks().live(block))).sum();
        law("each page in flash is in one block", live, flash.len().into())?;
        if self.jobs.is_idle() {
            law("no write-back is under way without a job", self.write_backs.under_way, 0)?;
            law("no flush of flash is under way without a job", self.flush_reads, 0)?;
        }
        if self.jobs.is_idle() && self.disk.is_idle() {
            law(
                "no request waits for nothing",
                u64::from(!self.fetches.is_empty() || !self.write_backs.is_idle()),
                0,
            )?;
            law(
                "the disk wrote the pages that left flash or DRAM",
                self.disk.totals().pages_written,
                did.flushes + did.direct_writes,
            )?;
        }
        Ok(())
    }
}
