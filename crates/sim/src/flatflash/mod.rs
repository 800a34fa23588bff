//! DRAM and a drive that the processor addresses line by line (FlatFlash, sections 3 and 4), and two
//! systems that page from the same drive (section 5: UnifiedMMap and TraditionalStack).
//!
//! ```text
//!   access --> processor's cache --miss--> TLB, page table --> page in DRAM? --> DRAM
//!                                                \--> flatflash: PLB --> link --> SSD-Cache
//!                                                 \--> the others: fault, page     |
//!                                                      moved to DRAM        flash (flash/)
//! ```
//!
//! 1. `flatflash` loads and stores lines over the link. Uses of a page in the SSD-Cache (device buffer)
//!    are counted, and a page that is used often enough is promoted to DRAM in the background; meanwhile
//!    the promotion look-aside buffer (PLB) tells which copy of a line is valid
//!    ([`deepram_core::migration`]). `unified-mmap` moves each page to DRAM at its first use, on the
//!    access's critical path. `traditional-stack` does the same behind an operating system's storage
//!    stack, and walks and keeps one table per layer. Nothing else differs.
//! 2. The time of an access is the sum of the preset's costs along its path, and of waits for busy
//!    resources: each direction of the link; channels of DRAM; dies and channels of flash; the write
//!    buffer; a page in flight. Every step is an event at its time, and a resource is taken by the step
//!    that uses it, so no access waits for what another one will do later (`task.rs`). An access that
//!    hits in DRAM has one event, its end.
//! 3. Each core has a TLB; a change of a page-table entry removes it from all. A miss takes a walk. The
//!    measured time (`walk`) is that of finding a page at the drive: in FlatFlash's emulator, the
//!    exception of a page of the drive's regions adds the measured times, and a page of DRAM raises none
//!    (section 4). A page of DRAM takes the processor's own walk (`walk_dram`). The processor's cache is
//!    indexed by the program's addresses, so a line evicted from it needs no walk and finds its page
//!    wherever the page is.
//! 4. Stores to the drive are posted: complete when they are in the write buffer. In the processor's
//!    cache, a store to part of a line fetches the line first. A store of a whole line needs only its
//!    page's translation and, in the paging systems, the page in DRAM.
//! 5. A page is in DRAM, at the drive, or in flight. A promotion takes it out of the device buffer, and
//!    a page dirty there is dirty in DRAM. Paging leaves the drive's copy in place. The address of a
//!    page that moves changes, so its lines leave the processor's cache, dirty ones to DRAM, in the
//!    background.
//! 6. Pages leave DRAM in LRU order of uses that pass the processor's cache. Clean pages are dropped,
//!    dirty ones are written to the device buffer, in the background.
//! 7. Pages of persistent regions are never promoted or counted (section 3.5). A flush writes the
//!    region's dirty lines back from the processor's cache and reads once over the link, behind the
//!    stores (write-verify read): the device buffer is battery-backed. In the paging systems, a flush
//!    writes the region's dirty pages.
//! 8. A request that writes whole pages of a persistent region writes blocks: the software of one
//!    request where there is a storage stack, then each page over the link. A page is durable after the
//!    drive's latency of a page write (`page_write`), and not before the drive has accepted it. In the
//!    paging systems the preset's `flushed` says where it goes from there.
//! 9. With a `platform_epoch`, `flatflash` is the platform that the paper measured instead of the hardware
//!    that it describes (`platform.rs`).

mod access;
mod counts;
mod drive;
mod flash;
mod memory;
mod options;
mod persist;
mod platform;
mod posted;
mod promotion;
mod shadow;
mod task;
#[cfg(test)]
mod tests;

use deepram_core::units::Picos;
use std::collections::{BTreeSet, HashMap};

use deepram_core::cache::{HitPriority, Lru, Rrip, SetAssociative};
use deepram_core::ftl::page_map::PageMap;
use deepram_core::migration::{EpochReset, Plb, PromotionThreshold, PromotionTrigger, ThresholdOptions};
use deepram_media::{Bytes, Hierarchy, HitPolicy, PromotionAlgorithm};
use deepram_trace::Op;

pub use counts::FlatCounts;
pub use options::{AccessMode, FlatOptions};

use drive::{BufferFrame, Fill};
use flash::DriveFlash;
use memory::{AT_DRIVE, HostFrame, MOVING};
use platform::Protection;
use posted::WriteBuffer;
use promotion::Promotion;
use shadow::Shadow;
use task::{TaskId, Tasks, Waiter};

use crate::dram::DramMemory;
use crate::engine::Time;
use crate::error::SimError;
use crate::flash::{FlashCounts, law};
use crate::flash_array::ChannelEvent;
use crate::host::{Command, Context, Device, Slot};
use crate::paging::SoftwareTimer;
use crate::processor::{LINE_BYTES, Llc};

/// Size of a page, bytes.
const PAGE: u64 = 4096;
/// Lines of a page.
const LINES: u64 = PAGE / LINE_BYTES;

/// A direction of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinkDirection {
    ToHost = 0,
    ToDrive = 1,
}

/// Busy times of the buses of a system: a transfer counts whole once its time on the bus is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusTimes {
    /// The link's direction to the host.
    pub link_to_host: Picos,
    /// The link's direction to the drive.
    pub link_to_drive: Picos,
    /// The data bus of each channel of DRAM.
    pub dram: Vec<Picos>,
    /// Each channel of flash.
    pub flash: Vec<Picos>,
}

/// An event of the system.
#[derive(Debug, Clone, Copy)]
pub struct FlatEvent(EventKind);

#[derive(Debug, Clone, Copy)]
enum EventKind {
    /// The request is complete.
    Complete(Slot),
    Wake(Waiter),
    /// The store of this number, to this page, has crossed the link.
    Stored(u64, u32),
    Flash(ChannelEvent),
}

/// The counts when measuring began.
#[derive(Debug, Default)]
struct Baseline {
    counts: FlatCounts,
    flash: FlashCounts,
    epochs: u64,
}

/// A simulated system of DRAM and a byte-addressable or paged drive.
pub struct FlatMemory {
    preset: Hierarchy,
    mode: AccessMode,
    /// The present.
    now: Time,
    /// Events to schedule.
    outbox: Vec<(Time, EventKind)>,
    tasks: Tasks,
    cpu: Option<Llc>,
    /// Lines of the processor's cache whose data arrive at a time, and the last such time.
    arriving: Vec<(u64, Time)>,
    last_arrival: Time,
    /// Dirty lines that have left the processor's cache and are not in memory yet.
    evicted: Vec<u64>,
    /// The TLB of each core.
    tlbs: Vec<SetAssociative>,
    /// The location of each page: [`AT_DRIVE`], a frame, or a frame and [`MOVING`].
    table: PageMap<u32>,
    frames: Vec<HostFrame>,
    idle: Vec<u32>,
    frame_count: u64,
    /// Pages that have ever been moved to DRAM, one bit each, and their number: the entries of the
    /// tables of `traditional-stack`.
    indexed: Vec<u64>,
    indexed_count: u64,
    lru: Lru<u32>,
    /// Tasks that wait for the faults of pages under way, and the frames that those faults have.
    faults: HashMap<u32, Vec<TaskId>>,
    faulting_frames: u64,
    dram: DramMemory,
    burst: u64,
    buffer: Rrip,
    buffer_frames: Vec<BufferFrame>,
    /// Pages of each set of the device buffer that cannot be evicted.
    pinned: Vec<u16>,
    /// Fills of the device buffer under way, by page.
    fills: HashMap<u32, Fill>,
    /// The position of the search for dirty pages in the device buffer.
    cursor: usize,
    threshold: PromotionThreshold,
    look_aside: Plb,
    /// Promotions under way.
    promotions: Vec<Promotion>,
    flash: DriveFlash,
    link_free_at: [Time; 2],
    link_busy: [Time; 2],
    line_span: Time,
    page_span: Time,
    posted: WriteBuffer,
    software: Option<SoftwareTimer>,
    /// The platform's page protection, if the preset has an epoch.
    protection: Option<Protection>,
    /// First page and end page (exclusive) of each persistent region.
    regions: Vec<(u32, u32)>,
    /// Lines of persistent regions stored to since the last flush.
    unflushed: BTreeSet<u64>,
    shadow: Option<Shadow>,
    counts: FlatCounts,
    base: Baseline,
}

impl FlatMemory {
    /// Builds the system from a preset's parts.
    ///
    /// # Errors
    /// The options ask for more DRAM than the preset has, or for regions outside the memory.
    pub fn new(
        preset: &Hierarchy,
        mode: AccessMode,
        options: &FlatOptions,
        seed: u64,
    ) -> Result<Self, SimError> {
        let has = preset.dram.total_capacity().0;
        let memory = if options.memory.0 == 0 { has } else { options.memory.0 };
        if memory > has || memory < PAGE {
            return Err(SimError::config(
                "memory_bytes",
                format!("{memory} bytes are out of range: use 4096 to the DRAM's {has}"),
            ));
        }
        let frame_count = memory / PAGE;
        if frame_count >= u64::from(MOVING) {
            return Err(SimError::config(
                "memory_bytes",
                format!("{memory} bytes are too many: use less than 8 TiB"),
            ));
        }
        let flash = DriveFlash::new(preset, mode != AccessMode::Stack)?;
        let pages = flash.pages();
        let sets = preset.buffer_sets() as u32;
        let priority = match preset.hit_policy {
            HitPolicy::Hit => HitPriority::Hit,
            HitPolicy::Frequency => HitPriority::Frequency,
        };
        let buffer = Rrip::new(sets, preset.buffer_ways as u16, preset.rrip_bits as u8, priority);
        let buffer_capacity = buffer.capacity();
        let (trigger, reset) = match preset.algorithm {
            PromotionAlgorithm::Decided => (PromotionTrigger::AtLeast, EpochReset::Uses),
            PromotionAlgorithm::Literal => (PromotionTrigger::Exactly, EpochReset::AccessCount),
        };
        let threshold = ThresholdOptions {
            low_ratio: preset.low_ratio.0,
            high_ratio: preset.high_ratio.0,
            max_threshold: preset.max_threshold as u8,
            reset_epoch: preset.reset_epoch,
            trigger,
            reset,
        };
        let cpu_bytes = if options.cpu_cache { preset.cpu_cache.0 } else { 0 };
        Ok(Self {
            mode,
            cpu: Llc::new(cpu_bytes, preset.cpu_cache_ways)?,
            now: 0,
            outbox: Vec::new(),
            tasks: Tasks::default(),
            arriving: Vec::new(),
            last_arrival: 0,
            evicted: Vec::new(),
            tlbs: Vec::new(),
            table: PageMap::sparse(pages, AT_DRIVE),
            frames: Vec::new(),
            idle: Vec::new(),
            frame_count,
            indexed: if mode == AccessMode::Stack { vec![0; pages as usize / 64 + 1] } else { Vec::new() },
            indexed_count: 0,
            lru: Lru::new(frame_count as usize),
            faults: HashMap::new(),
            faulting_frames: 0,
            dram: DramMemory::new(&preset.dram)?,
            burst: preset.dram.burst_bytes().0.max(1),
            buffer_frames: vec![BufferFrame::default(); buffer_capacity],
            pinned: vec![0; sets as usize],
            fills: HashMap::new(),
            buffer,
            cursor: 0,
            threshold: PromotionThreshold::new(threshold),
            look_aside: Plb::new(preset.look_aside as usize, LINES as u8),
            promotions: Vec::new(),
            flash,
            link_free_at: [0; 2],
            link_busy: [0; 2],
            line_span: preset.link.occupancy(Bytes(LINE_BYTES)).0,
            page_span: preset.link.occupancy(Bytes(PAGE)).0,
            posted: WriteBuffer::new(preset.posted_writes),
            protection: Protection::new(preset.platform_epoch, buffer_capacity)
                .filter(|_| mode == AccessMode::Promote),
            software: (mode == AccessMode::Stack).then(|| SoftwareTimer::new(&preset.software, seed)),
            regions: regions(options, u64::from(pages) * PAGE)?,
            unflushed: BTreeSet::new(),
            shadow: options.verify.then(Shadow::default),
            counts: FlatCounts::default(),
            base: Baseline::default(),
            preset: preset.clone(),
        })
    }

    /// The counts since measuring began.
    #[must_use]
    pub fn flat_counts(&self) -> FlatCounts {
        self.all_counts().since(&self.base.counts)
    }

    fn all_counts(&self) -> FlatCounts {
        let flash = &self.flash;
        FlatCounts {
            remap_batches: flash.batches,
            forced_batches: flash.forced,
            remapped_pages: flash.remapped,
            reclaims: flash.reclaims,
            ..self.counts
        }
    }

    /// The current promotion threshold, and its epochs since measuring began.
    #[must_use]
    pub fn threshold(&self) -> (u8, u64) {
        (self.threshold.current(), self.threshold.epochs() - self.base.epochs)
    }

    /// Busy times of all buses since the start of the run.
    #[must_use]
    pub fn busy_times(&self) -> BusTimes {
        let [to_host, to_drive] = self.link_busy.map(Picos);
        BusTimes {
            link_to_host: to_host,
            link_to_drive: to_drive,
            dram: self.dram.bus_times().collect(),
            flash: self.flash.array.bus_times().map(Picos).collect(),
        }
    }

    /// The host's DRAM.
    #[must_use]
    pub fn dram(&self) -> &DramMemory {
        &self.dram
    }

    /// Erases of each block of flash.
    pub fn erased(&self) -> impl Iterator<Item = u32> + '_ {
        self.flash.erased()
    }

    /// Energy since measuring began, over `time`, by component, in picojoules, dynamic and static: the
    /// DRAM's components, flash, link. The device buffer and the processor's cache are not included.
    #[must_use]
    pub fn energy_pj(&self, time: Picos) -> Vec<(&'static str, f64, f64)> {
        let mut parts = self.dram.energy_pj(time).to_vec();
        let flash = self.flash.counts().since(&self.base.flash);
        let packages = self.preset.channels * self.preset.packages_per_channel;
        parts.extend(flash.energy_pj(&self.preset.nand, packages, time));
        let did = self.flat_counts();
        let bits = (did.link_bytes_to_host + did.link_bytes_to_drive) as f64 * 8.0;
        parts.push(("link", bits * self.preset.link_energy.0, 0.0));
        parts
    }

    /// Occupies a direction of the link for `span`, from now or from when those before are over. Returns
    /// the start.
    #[inline]
    fn use_link(&mut self, lane: LinkDirection, span: Time) -> Time {
        let free = &mut self.link_free_at[lane as usize];
        let start = self.now.max(*free);
        *free = start + span;
        self.link_busy[lane as usize] += span;
        start
    }

    fn is_persistent(&self, page: u32) -> bool {
        self.regions.iter().any(|(first, end)| (*first..*end).contains(&page))
    }

    /// Runs what continues at the present, and schedules the events that it leads to.
    fn finish_step(&mut self, context: &mut Context<FlatEvent>) -> Result<(), SimError> {
        self.settle()?;
        for (time, event) in self.outbox.drain(..) {
            context.schedule(Picos(time), FlatEvent(event));
        }
        for (time, event) in self.flash.array.events.drain(..) {
            context.schedule(Picos(time), FlatEvent(EventKind::Flash(event)));
        }
        Ok(())
    }
}

fn regions(options: &FlatOptions, capacity: u64) -> Result<Vec<(u32, u32)>, SimError> {
    options
        .regions
        .iter()
        .map(|region| {
            if region.start >= region.end || region.end > capacity {
                return Err(SimError::config(
                    "regions",
                    format!(
                        "bytes {} to {} are outside the memory of {capacity} bytes",
                        region.start, region.end
                    ),
                ));
            }
            Ok(((region.start / PAGE) as u32, region.end.div_ceil(PAGE) as u32))
        })
        .collect()
}

impl Device for FlatMemory {
    type Event = FlatEvent;

    fn capacity(&self) -> Bytes {
        Bytes(u64::from(self.flash.pages()) * PAGE)
    }

    fn queue_limit(&self) -> u64 {
        u64::MAX
    }

    #[inline]
    fn prefetch(&self, command: &Command) {
        let page = (command.offset / PAGE) as u32;
        self.table.prefetch(page);
        self.flash.prefetch(page);
    }

    fn submit(
        &mut self,
        slot: Slot,
        command: Command,
        context: &mut Context<FlatEvent>,
    ) -> Result<(), SimError> {
        self.now = context.now().0;
        let core = context.core();
        let Command { op, offset, len } = command;
        match op {
            Op::Read | Op::Write if len > 0 => {
                if op == Op::Write
                    && let Some(pages) = self.blocks(offset, len)
                {
                    self.begin_request(slot, 1);
                    self.write_blocks(slot, pages)?;
                    return self.finish_step(context);
                }
                let last = offset + len - 1;
                let lines = offset / LINE_BYTES..=last / LINE_BYTES;
                self.begin_request(slot, (lines.end() - lines.start() + 1) as u32);
                for line in lines {
                    let first = line * LINE_BYTES;
                    let whole = offset <= first && first + LINE_BYTES - 1 <= last;
                    self.access_line(slot, line, (op == Op::Write, whole), core)?;
                }
            }
            Op::Flush => {
                self.begin_request(slot, 1);
                self.persist(slot, (len > 0).then(|| offset..offset + len))?;
            }
            // A trim has no effect on memory.
            Op::Read | Op::Write | Op::Trim => self.outbox.push((self.now, EventKind::Complete(slot))),
        }
        self.finish_step(context)
    }

    fn handle(&mut self, event: FlatEvent, context: &mut Context<FlatEvent>) -> Result<(), SimError> {
        self.now = context.now().0;
        match event.0 {
            EventKind::Complete(slot) => {
                self.counts.accesses += 1;
                context.complete(slot);
                return Ok(());
            }
            EventKind::Wake(waiter) => self.wake(waiter)?,
            EventKind::Stored(number, page) => self.store_arrived(number, page),
            EventKind::Flash(event) => self.flash.handle(event, self.now),
        }
        self.finish_step(context)
    }

    fn begin_measuring(&mut self) {
        self.base = Baseline {
            counts: self.all_counts(),
            flash: self.flash.counts(),
            epochs: self.threshold.epochs(),
        };
        self.dram.begin_measuring();
    }

    fn counts(&self) -> FlashCounts {
        self.flash.counts()
    }

    fn check(&self) -> Result<(), SimError> {
        self.flash.check()?;
        if let Some(cpu) = &self.cpu {
            cpu.check()?;
        }
        let counted = self.buffer.iter().map(|(frame, _)| u64::from(self.buffer.count(frame))).sum();
        law(
            "the threshold's net count is the sum of the pages' counts",
            self.threshold.resident_count(),
            counted,
        )?;
        let moving = self.table.iter().filter(|(_, entry)| entry & MOVING != 0).count();
        law("each page in flight has a look-aside entry", moving as u64, self.look_aside.len() as u64)?;
        let resident = (self.table.iter().count() - moving) as u64;
        let on_their_way = moving as u64 + self.faulting_frames;
        law(
            "frames in use are those of pages in DRAM and in flight",
            self.frames_in_use(),
            resident + on_their_way,
        )?;
        for (page, entry) in self.table.iter() {
            let frame = entry & !MOVING;
            law("a page's frame holds the page", self.frames[frame as usize].page.into(), page.into())?;
            if self.mode == AccessMode::Promote {
                let buffer_frame = self.buffer.find(page).is_some();
                law(
                    "a page is in DRAM or in the device buffer, unless it is in flight",
                    buffer_frame.into(),
                    (entry & MOVING != 0).into(),
                )?;
            }
        }
        let counts = self.all_counts();
        let stayed = counts.pages_to_host - counts.demotions - on_their_way;
        law("pages in DRAM are those moved there and not demoted", stayed, resident)?;
        let pinned = self.pinned.iter().map(|pinned| u64::from(*pinned)).sum();
        let kept = (self.buffer_frames.iter().filter(|frame| frame.filling || frame.moving).count()) as u64;
        law("pages that are not evicted are those being filled or promoted", pinned, kept)?;
        let filling = (self.buffer_frames.iter().filter(|frame| frame.filling).count()) as u64;
        law("frames being filled have a fill under way", self.fills.len() as u64, filling)
    }
}
