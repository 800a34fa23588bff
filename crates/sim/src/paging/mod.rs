//! DRAM main memory, and a drive that an operating system pages from (NVMM, section Software Overhead
//! and its comparison system).
//!
//! ```text
//!   access --> page mapped? --> DRAM
//!                 \--> fault (fault.rs) --> page in memory? --> map
//!                                             \--> readahead --> block layer, driver --> drive's queue
//!                                                    drive (ParallelSsd) --> link, DMA into DRAM --> wake
//! ```
//!
//! 1. Each phase of the software has a time (preset kind `software`). A faulting thread holds its core
//!    up to the doorbell and while it is switched away, sleeps while the drive works, and holds its core
//!    again from the switch back. Interrupt, completion and wake-up pass while it sleeps.
//! 2. Pages are 4 KiB. A write to a page that is not in memory reads the page first.
//! 3. Replacement uses active and inactive lists with reference bits (`active_inactive`). Write-back and
//!    watermarks: `reclaim`. Readahead: `readahead`.
//! 4. The drive's link and queue come from its preset: PCI Express and NVMe, or SATA and 32 commands.
//!    DRAM receives a page when the link has transferred the whole command.
//! 5. A thread never completes an access without having touched its page in DRAM while the page was
//!    mapped.

mod active_inactive;
mod counts;
mod fault;
mod io;
mod options;
mod page_locations;
mod readahead;
mod reclaim;
mod software;
#[cfg(test)]
mod tests;

use deepram_core::units::{Bytes, Picos};
use std::collections::{BTreeSet, VecDeque};

use deepram_media::{Dram, Software, Ssd};
use deepram_trace::Op;

pub use active_inactive::ActiveInactiveLists;
use counts::RunningMoments;
pub use counts::{FaultTimes, Moments, PagingCounts};
use fault::Fault;
use io::DriveCommand;
pub use options::{Backing, Completion, PagingOptions};
use page_locations::{NONE, PageLocations};
pub use readahead::{Readahead, SwapCluster, Window};
use reclaim::PendingFlush;
pub use software::Phase;
pub(crate) use software::SoftwareTimer;

use crate::dram::DramMemory;
use crate::engine::Time;
use crate::error::SimError;
use crate::flash::{FlashCounts, law};
use crate::host::{Command, Context, Device, Slot};
use crate::nested::NestedDevice;
use crate::ssd::{ParallelSsd, SsdOptions};

/// Size of a page, bytes.
pub const PAGE: u64 = 4096;

/// An event of the paging system. Numbers are those of faults and drive commands.
#[derive(Debug, Clone, Copy)]
pub enum PagingEvent {
    /// An access is complete.
    Done(Slot),
    /// An access completes after this much software on the thread's core.
    Resume(Slot, Time),
    /// An access continues after a fault.
    Continue(Slot),
    /// The page lookup of a fault is complete.
    Entered(u32),
    /// A fault's frame is allocated and is to be zero-filled.
    Zeroed(u32),
    /// A fault's page is mapped.
    Mapped(u32),
    /// A thread has been switched away.
    Sleep(Slot),
    /// A fault's thread is awake.
    Woken(u32),
    /// A command is submitted to the drive's queue.
    Doorbell(u32),
    /// The pages of a command are in DRAM.
    Filled(u32),
    /// A flush request enters the block layer.
    Flush(Slot),
    /// The drive's next event is due.
    Drive,
}

/// The progress of an access.
#[derive(Debug, Clone, Copy)]
struct PagedAccess {
    write: bool,
    /// The next byte to access.
    at: u64,
    end: u64,
    /// The time at which the data accessed so far are available.
    ready: Time,
    /// The thread sleeps or is being switched away.
    asleep: bool,
    sleep_at: Time,
}

/// A page frame.
#[derive(Debug, Clone, Copy)]
struct PageFrame {
    page: u32,
    version: u32,
    /// The first fault that waits for it.
    waiter: u32,
    /// Faults that wait for the frame or have not touched it since; a pinned frame is not evicted.
    pins: u32,
    reading: bool,
    mapped: bool,
    dirty: bool,
    writing: bool,
    /// The page is evicted when its write-back is complete, unless it is touched.
    leaving: bool,
    /// The page was touched since its eviction began.
    hot: bool,
    /// The page was read ahead and has not been used.
    ahead: bool,
    /// A use of the page triggers the read of the next readahead window.
    trigger: bool,
}

const EMPTY: PageFrame = PageFrame {
    page: NONE,
    version: 0,
    waiter: NONE,
    pins: 0,
    reading: false,
    mapped: false,
    dirty: false,
    writing: false,
    leaving: false,
    hot: false,
    ahead: false,
    trigger: false,
};

/// The DRAM burst that holds a byte of the frame.
fn frame_line(frame: u32, byte: u64, burst: u64) -> u64 {
    (u64::from(frame) * PAGE + byte) / burst
}

/// A simulated paging system.
pub struct PagedMemory {
    options: PagingOptions,
    /// Pages in memory before the run.
    prefilled: u64,
    swap: bool,
    polls: bool,
    ssd: Ssd,
    dram: DramMemory,
    burst: u64,
    software: SoftwareTimer,
    locations: PageLocations,
    frames: Vec<PageFrame>,
    frame_count: u32,
    free_frames: Vec<u32>,
    lists: ActiveInactiveLists,
    readahead: Readahead,
    cluster: SwapCluster,
    accesses: Vec<PagedAccess>,
    faults: Vec<Fault>,
    idle_faults: Vec<u32>,
    /// Faults that wait for a free frame, and faults that wait for the dirty pages to fall below the
    /// limit.
    starved: VecDeque<u32>,
    throttled: VecDeque<u32>,
    drive: NestedDevice<ParallelSsd>,
    /// The time for which the drive's next event is scheduled.
    due: Option<Picos>,
    depth: u64,
    inside: u64,
    queue: VecDeque<u32>,
    finished: VecDeque<u32>,
    ios: Vec<DriveCommand>,
    idle_ios: Vec<u32>,
    /// Reused buffers.
    read_buffer: Vec<(u32, u32)>,
    leaving: Vec<u32>,
    /// Dirty pages of a file that are not under write-back.
    dirty: BTreeSet<u32>,
    flush_from: u32,
    /// Pages under write-back, and frames whose eviction waits for a write-back.
    writing: u64,
    reclaiming: u64,
    /// Background write-back commands under way.
    commands: u32,
    flushes: Vec<PendingFlush>,
    flush_number: u64,
    low: u64,
    high: u64,
    background_pages: u64,
    limit_pages: u64,
    unused_ahead: u64,
    stale_reads: u64,
    bytes_touched: u64,
    bytes_asked: u64,
    link_bytes: u64,
    counts: PagingCounts,
    /// Total, hardware and software times of the major faults since measuring began.
    times: [RunningMoments; 3],
    /// The counts when measuring began.
    base: Baseline,
}

/// All counters at one moment.
#[derive(Debug, Default)]
struct Baseline {
    counts: PagingCounts,
    flash: FlashCounts,
    software: [Time; Phase::ALL.len()],
    link_bytes: u64,
}

impl PagedMemory {
    /// Builds the system from its DRAM, drive and operating system.
    ///
    /// # Errors
    /// The presets or the options are invalid.
    pub fn new(
        dram: &Dram,
        ssd: &Ssd,
        software: &Software,
        options: &PagingOptions,
        ssd_options: &SsdOptions,
        seed: u64,
    ) -> Result<Self, SimError> {
        let has = dram.total_capacity().0;
        let memory = if options.memory.0 == 0 { has } else { options.memory.0 };
        if memory > has {
            return Err(SimError::config(
                "memory_bytes",
                format!("{memory} bytes exceed the DRAM's {has}; use a DRAM with more channels or ranks"),
            ));
        }
        let frames = u32::try_from(memory / PAGE).ok().filter(|frames| (8..NONE).contains(frames));
        let Some(frame_count) = frames else {
            return Err(SimError::config(
                "memory_bytes",
                format!("{memory} bytes are out of range: use 32 KiB to 8 TiB"),
            ));
        };
        for (key, share) in [
            ("dirty_background", options.dirty_background),
            ("dirty_limit", options.dirty_limit),
            ("free_low", options.free_low),
            ("free_high", options.free_high),
        ] {
            if !(0.0..=1.0).contains(&share) {
                return Err(SimError::config(key, format!("{share} is not a share: use 0 to 1")));
            }
        }
        let device = ParallelSsd::new(ssd, ssd_options, seed)?;
        let pages = u32::try_from(device.capacity().0 / PAGE).unwrap_or(NONE - 1).min(NONE - 1);
        let depth = if options.queue == 0 { u64::MAX } else { options.queue };
        let share = |share: f64| (f64::from(frame_count) * share).ceil() as u64;
        let frames = u64::from(frame_count);
        // Linux keeps at least 128 KiB free, and 5/4 and 3/2 of that as watermarks; a tiny memory keeps
        // less.
        let low = share(options.free_low).max((frames / 8).min(40));
        let swap = options.backing == Backing::Swap;
        let mut machine = Self {
            swap,
            polls: options.completion == Completion::Polling,
            dram: DramMemory::new(dram)?,
            burst: dram.burst_bytes().0.max(1),
            software: SoftwareTimer::new(software, seed),
            locations: PageLocations::new(swap, pages),
            frames: Vec::new(),
            frame_count,
            free_frames: Vec::new(),
            lists: ActiveInactiveLists::new(ActiveInactiveLists::ratio_of(memory)),
            readahead: Readahead::new(
                options.readahead_least,
                options.readahead_most,
                options.readahead_runs,
                options.read_around,
            ),
            cluster: SwapCluster::new(options.swap_cluster, options.swap_cluster_adapts),
            accesses: Vec::new(),
            faults: Vec::new(),
            idle_faults: Vec::new(),
            starved: VecDeque::new(),
            throttled: VecDeque::new(),
            due: None,
            depth: depth.min(device.queue_limit()).max(1),
            drive: NestedDevice::new(device),
            inside: 0,
            queue: VecDeque::new(),
            finished: VecDeque::new(),
            ios: Vec::new(),
            idle_ios: Vec::new(),
            read_buffer: Vec::new(),
            leaving: Vec::new(),
            dirty: BTreeSet::new(),
            flush_from: 0,
            writing: 0,
            reclaiming: 0,
            commands: 0,
            flushes: Vec::new(),
            flush_number: 0,
            low,
            high: share(options.free_high).max((frames / 6).min(48)).max(low),
            background_pages: share(options.dirty_background),
            limit_pages: share(options.dirty_limit).max(1),
            unused_ahead: 0,
            stale_reads: 0,
            bytes_touched: 0,
            bytes_asked: 0,
            link_bytes: 0,
            counts: PagingCounts::default(),
            times: [RunningMoments::default(); 3],
            base: Baseline::default(),
            ssd: ssd.clone(),
            prefilled: 0,
            options: options.clone(),
        };
        machine.prefill()?;
        Ok(machine)
    }

    /// Places the data that exist before the run.
    fn prefill(&mut self) -> Result<(), SimError> {
        let pages = self.options.existing.0.div_ceil(PAGE);
        if pages > u64::from(self.locations.pages()) {
            return Err(SimError::config(
                "existing_bytes",
                format!("{} exceed the drive's {} pages", self.options.existing.0, self.locations.pages()),
            ));
        }
        if self.swap {
            for page in 0..pages as u32 {
                let slot = self.locations.allocate_drive_page(page)?;
                self.locations.written(slot, page, 0);
            }
        }
        if !self.options.resident {
            return Ok(());
        }
        self.prefilled = pages.min(u64::from(self.frame_count).saturating_sub(self.high));
        for page in 0..self.prefilled as u32 {
            let Some(frame) = self.unused_frame() else { break };
            self.frames[frame as usize] = PageFrame { page, mapped: self.swap, ..EMPTY };
            self.locations.set_frame(page, frame);
            self.lists.insert(frame, true);
        }
        Ok(())
    }

    /// The counts since measuring began.
    #[must_use]
    pub fn paging_counts(&self) -> PagingCounts {
        self.counts.since(&self.base.counts)
    }

    /// Software time since measuring began, by phase.
    #[must_use]
    pub fn software_times(&self) -> [(Phase, Picos); Phase::ALL.len()] {
        self.software.spent().map(|(phase, time)| (phase, Picos(time - self.base.software[phase as usize])))
    }

    /// Times of the major faults that have ended since measuring began.
    #[must_use]
    pub fn fault_times(&self) -> FaultTimes {
        let [total, hardware, software] = self.times.map(|tally| tally.moments());
        FaultTimes { total, hardware, software }
    }

    /// The main memory.
    #[must_use]
    pub fn dram(&self) -> &DramMemory {
        &self.dram
    }

    /// True if an access sent now would fault at its first byte; for
    /// [`crate::processor::execute_with_faults`].
    #[must_use]
    pub fn would_fault(&self, command: &Command) -> bool {
        let page = u32::try_from(command.offset / PAGE).unwrap_or(NONE);
        self.usable_frame(page, command.op == Op::Write).is_none()
    }

    /// The drive.
    #[must_use]
    pub fn drive(&self) -> &ParallelSsd {
        self.drive.device()
    }

    /// Bytes transferred over the link since measuring began, in both directions.
    #[must_use]
    pub fn link_bytes(&self) -> u64 {
        self.link_bytes - self.base.link_bytes
    }

    /// Energy since measuring began, over `time`, by component, in picojoules, dynamic and static: the
    /// DRAM's components, flash, link.
    #[must_use]
    pub fn energy_pj(&self, time: Picos) -> Vec<(&'static str, f64, f64)> {
        let mut parts = self.dram.energy_pj(time).to_vec();
        let flash = self.counts().since(&self.base.flash);
        parts.extend(flash.energy_pj(&self.ssd.nand, self.ssd.packages(), time));
        parts.push(("link", self.link_bytes() as f64 * 8.0 * self.options.link_pj_per_bit, 0.0));
        parts
    }

    fn command_software(&mut self) -> Time {
        self.software.phases(&[Phase::Block, Phase::Driver])
    }

    /// Runs after every event: gives free frames to the faults that wait for one.
    fn after_event(&mut self, context: &mut Context<PagingEvent>) -> Result<(), SimError> {
        if self.starved.is_empty() { Ok(()) } else { self.serve_starved_faults(context) }
    }

    /// The drive has completed a flush.
    fn flushed(&mut self, slot: Slot, context: &mut Context<PagingEvent>) {
        let phases = [Phase::Interrupt, Phase::Completion, Phase::Wake, Phase::Wait];
        let from = self.accesses[slot as usize].sleep_at.max(context.now().0);
        let time = from + self.software.phases(&phases);
        let software = self.software.phase(Phase::SwitchBack);
        context.schedule(Picos(time), PagingEvent::Resume(slot, software));
    }
}

impl Device for PagedMemory {
    type Event = PagingEvent;

    fn capacity(&self) -> Bytes {
        Bytes(u64::from(self.locations.pages()) * PAGE)
    }

    fn queue_limit(&self) -> u64 {
        u64::MAX
    }

    #[inline]
    fn prefetch(&self, command: &Command) {
        self.locations.prefetch((command.offset / PAGE) as u32);
    }

    fn submit(
        &mut self,
        slot: Slot,
        command: Command,
        context: &mut Context<PagingEvent>,
    ) -> Result<(), SimError> {
        let now = context.now().0;
        let Command { op, offset, len } = command;
        let access = PagedAccess {
            write: op == Op::Write,
            at: offset,
            end: offset + len,
            ready: now,
            asleep: false,
            sleep_at: now,
        };
        if self.accesses.len() <= slot as usize {
            self.accesses.resize(slot as usize + 1, access);
        }
        self.accesses[slot as usize] = access;
        match op {
            Op::Read | Op::Write => {
                self.bytes_asked += len;
                self.continue_access(slot, context);
            }
            Op::Flush if !self.swap => {
                let time = now + self.software.phase(Phase::Entry);
                context.schedule(Picos(time), PagingEvent::Flush(slot));
            }
            // A trim has no effect on memory, and anonymous memory is not made durable.
            Op::Flush | Op::Trim => context.schedule(Picos(now), PagingEvent::Done(slot)),
        }
        self.after_event(context)
    }

    fn handle(&mut self, event: PagingEvent, context: &mut Context<PagingEvent>) -> Result<(), SimError> {
        match event {
            PagingEvent::Done(slot) => {
                self.counts.accesses += 1;
                context.complete(slot);
            }
            PagingEvent::Resume(slot, software) => {
                self.counts.accesses += 1;
                context.resume(slot, Picos(software));
            }
            PagingEvent::Continue(slot) => self.continue_access(slot, context),
            PagingEvent::Entered(fault) => self.entered(fault, context)?,
            PagingEvent::Zeroed(fault) => self.zeroed(fault, context),
            PagingEvent::Mapped(fault) => self.mapped(fault, context)?,
            PagingEvent::Sleep(slot) => context.sleep(slot),
            PagingEvent::Woken(fault) => self.woken(fault, context)?,
            PagingEvent::Doorbell(io) => self.ring_doorbell(io, context)?,
            PagingEvent::Filled(io) => self.filled(io, context)?,
            PagingEvent::Flush(slot) => {
                let time = context.now().0 + self.command_software() + self.software.phase(Phase::SwitchAway);
                self.accesses[slot as usize].sleep_at = time;
                context.schedule(Picos(time), PagingEvent::Sleep(slot));
                self.flush(slot, context)?;
            }
            PagingEvent::Drive => self.advance(context)?,
        }
        self.after_event(context)
    }

    fn begin_measuring(&mut self) {
        self.base = Baseline {
            counts: self.counts,
            flash: self.counts(),
            software: self.software.spent().map(|(_, time)| time),
            link_bytes: self.link_bytes,
        };
        self.times = [RunningMoments::default(); 3];
        self.dram.begin_measuring();
    }

    fn counts(&self) -> FlashCounts {
        self.drive.device().counts()
    }

    fn check(&self) -> Result<(), SimError> {
        let counts = &self.counts;
        law("no read returns old data", self.stale_reads, 0)?;
        law(
            "each page read was needed by one major fault or was read ahead",
            counts.pages_read,
            counts.major_faults + counts.readahead_pages,
        )?;
        law(
            "pages read ahead are used, wasted or still unused",
            counts.readahead_pages,
            counts.readahead_used + counts.readahead_wasted + self.unused_ahead,
        )?;
        law(
            "pages brought in are read from the drive or zero-filled",
            counts.brought_in,
            counts.pages_read + counts.zero_faults,
        )?;
        let (mut resident, mut dirty, mut to_write, mut writing) = (0u64, 0, 0, 0);
        let (mut listed, mut held_back) = (0u64, 0);
        for (page, number) in self.locations.resident() {
            let frame = &self.frames[number as usize];
            resident += 1;
            dirty += u64::from(frame.dirty);
            to_write += u64::from(frame.dirty && !frame.writing);
            writing += u64::from(frame.writing);
            listed += u64::from(self.lists.contains(number));
            held_back += u64::from(frame.reading || frame.pins > 0 || frame.leaving);
            let current = frame.reading || frame.version == self.locations.version(page);
            if frame.page != page || !current {
                return Err(SimError::Conservation {
                    law: "a page in memory is its newest version",
                    found: format!("page {page} in the frame of {} at {}", frame.page, frame.version),
                });
            }
        }
        law(
            "pages in memory were there before or brought in, and not evicted",
            resident,
            self.prefilled + counts.brought_in - counts.evicted,
        )?;
        law(
            "frames are free or hold a page",
            resident + self.free_frame_count(),
            u64::from(self.frame_count),
        )?;
        law("pages in memory are in a list or held back", listed, resident - held_back)?;
        law("dirty pages are written once or still dirty", counts.dirtied, counts.pages_written + dirty)?;
        law("the write-back count is that of the pages under write-back", self.writing, writing)?;
        if !self.swap {
            law(
                "dirty pages of a file that are not under write-back are known",
                self.dirty.len() as u64,
                to_write,
            )?;
        }
        if self.inside == 0 && self.queue.is_empty() && self.idle_faults.len() == self.faults.len() {
            law("every byte asked for was touched in DRAM", self.bytes_touched, self.bytes_asked)?;
        }
        self.locations.check()?;
        self.drive.check()
    }
}
