//! DRAM and a drive that the processor addresses line by line (FlatFlash), and the two systems that page from the
//! same drive.
//!
//! ```text
//!   access --> processor's cache --miss--> TLB, page table --> page in DRAM? --> DRAM
//!                                                \--> flatflash: look-aside buffer --> link --> drive's memory
//!                                                 \--> the others: fault, page moved to DRAM        |
//!                                                                                       flash (flash.rs)
//! ```
//!
//! 1. `flatflash` loads and stores lines over the link. Uses of a page in the drive's memory count, and a page
//!    used often enough is promoted to DRAM beside what goes on ([`deepram_core::migration`]). `unified-mmap` moves
//!    each page when it is first used, in the way of the access. `traditional-stack` does the same behind an
//!    operating system's storage stack, and walks and keeps a table for each layer. Nothing else differs.
//! 2. A time is the sum of the costs of the preset on its way, and of waits for what is in use: the link, each
//!    way; dies and channels; the write buffer; a page on its way. What will be is known when an access comes, so it
//!    is reckoned then, and the only event is its end.
//! 3. A translation that is not held takes a walk. The processor's cache is asked by address of the program, so
//!    what leaves it needs no walk and finds its page wherever that is.
//! 4. Stores to the drive are posted: over when they are in the write buffer. In the processor's cache a store to
//!    part of a line fetches the line first; one of a whole line needs its page's translation only, and where pages
//!    are paged the page.
//! 5. A page is in DRAM, at the drive, or in flight. Promotion takes it out of the drive's memory, and what was
//!    dirty there is dirty in DRAM. Paging leaves the drive's copy where it is. The address of a page that moves
//!    changes: its lines leave the processor's cache, dirty ones for DRAM, beside what goes on.
//! 6. Pages leave DRAM in the order of their last use past the processor's cache. Those that were not stored to are
//!    dropped, the others written to the drive's memory, beside what goes on.
//! 7. Pages of persistent regions are never promoted and do not count. A flush writes the region's dirty lines out
//!    of the processor's cache and reads once over the link, behind the stores (write-verify read): the drive's
//!    memory has a battery. In the paging systems it writes the region's dirty pages.
//! 8. A request that writes whole pages of a persistent region writes blocks: software of one request where there is a
//!    storage stack, each page over the link, durable when the drive has it. Where pages go from there in the paging
//!    systems is the preset's `flushed`.

mod contents;
mod counts;
mod drive;
mod flash;
mod memory;
mod options;
mod persist;

use std::collections::{BTreeSet, VecDeque};

use deepram_core::cache::{HitPriority, Lru, Rrip, SetAssociative};
use deepram_core::ftl::page_map::PageMap;
use deepram_core::migration::{EpochReset, Plb, PromotionThreshold, PromotionTrigger, ThresholdOptions};
use deepram_media::{Bytes, Hierarchy, HitPolicy, PromotionAlgorithm};
use deepram_trace::Op;

pub use counts::FlatCounts;
pub use options::{FlatOptions, Way};

use contents::Contents;
use drive::{Held, Move};
use flash::Flash;
use memory::{AT_DRIVE, Frame, MOVING};

use crate::dram::DramMemory;
use crate::engine::Time;
use crate::error::SimError;
use crate::flash::{FlashCounts, law};
use crate::host::{Command, Context, Device, Slot};
use crate::paging::Clock;
use crate::processor::{LINE_BYTES, Llc};

/// Bytes of a page.
const PAGE: u64 = 4096;
/// Lines of a page.
const LINES: u64 = PAGE / LINE_BYTES;

/// A direction of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    ToHost = 0,
    ToDrive = 1,
}

/// What had been counted when measuring began.
#[derive(Debug, Default)]
struct Base {
    counts: FlatCounts,
    flash: FlashCounts,
    epochs: u64,
}

/// The machine.
pub struct FlatMemory {
    preset: Hierarchy,
    way: Way,
    cpu: Option<Llc>,
    tlb: SetAssociative,
    /// Where each page is: [`AT_DRIVE`], a frame, or a frame and [`MOVING`].
    table: PageMap<u32>,
    frames: Vec<Frame>,
    idle: Vec<u32>,
    frame_count: u64,
    /// Pages that have been moved to DRAM, a bit each, and how many: what the tables of `traditional-stack` name.
    indexed: Vec<u64>,
    indexed_count: u64,
    recent: Lru<u32>,
    dram: DramMemory,
    burst: u64,
    buffer: Rrip,
    held: Vec<Held>,
    /// Where the search for dirty pages of the drive's memory goes on.
    cursor: usize,
    threshold: PromotionThreshold,
    look_aside: Plb,
    /// Pages in flight, by the end of their promotion.
    moves: Vec<Move>,
    flash: Flash,
    lanes: [Time; 2],
    line_span: Time,
    page_span: Time,
    /// When the stores in the write buffer will have left it, in order.
    posted: VecDeque<Time>,
    software: Option<Clock>,
    /// First and last page of each persistent region, the last not included.
    regions: Vec<(u32, u32)>,
    /// Lines of regions stored to since the last flush.
    unflushed: BTreeSet<u64>,
    contents: Option<Contents>,
    counts: FlatCounts,
    base: Base,
}

impl FlatMemory {
    /// The system that a preset's parts make.
    ///
    /// # Errors
    /// The options ask for more DRAM than there is, or for regions outside the memory.
    pub fn new(preset: &Hierarchy, way: Way, options: &FlatOptions, seed: u64) -> Result<Self, SimError> {
        let has = preset.dram.total_capacity().0;
        let memory = if options.memory_bytes == 0 { has } else { options.memory_bytes };
        if memory > has || memory < PAGE {
            return Err(SimError::config(
                "memory_bytes",
                format!("{memory} bytes; 4096 to the {has} that the DRAM has are possible"),
            ));
        }
        let frame_count = memory / PAGE;
        if frame_count >= u64::from(MOVING) {
            return Err(SimError::config(
                "memory_bytes",
                format!("{memory} bytes; less than 8 TiB are possible"),
            ));
        }
        let flash = Flash::new(preset, way != Way::Stack)?;
        let pages = flash.pages();
        let sets = preset.buffer_sets() as u32;
        let priority = match preset.hit_policy {
            HitPolicy::Hit => HitPriority::Hit,
            HitPolicy::Frequency => HitPriority::Frequency,
        };
        let buffer = Rrip::new(sets, preset.buffer_ways as u16, preset.rrip_bits as u8, priority);
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
        let tlb_sets = (preset.tlb_entries / preset.tlb_ways) as u32;
        let cpu_bytes = if options.cpu_cache { preset.cpu_cache.0 } else { 0 };
        Ok(Self {
            way,
            cpu: Llc::new(cpu_bytes, preset.cpu_cache_ways)?,
            tlb: SetAssociative::new(tlb_sets, preset.tlb_ways as u16),
            table: PageMap::sparse(pages, AT_DRIVE),
            frames: Vec::new(),
            idle: Vec::new(),
            frame_count,
            indexed: if way == Way::Stack { vec![0; pages as usize / 64 + 1] } else { Vec::new() },
            indexed_count: 0,
            recent: Lru::new(frame_count as usize),
            dram: DramMemory::new(&preset.dram)?,
            burst: preset.dram.burst_bytes().0.max(1),
            held: vec![Held::default(); buffer.capacity()],
            buffer,
            cursor: 0,
            threshold: PromotionThreshold::new(threshold),
            look_aside: Plb::new(preset.look_aside as usize, LINES as u8),
            moves: Vec::new(),
            flash,
            lanes: [0; 2],
            line_span: preset.link.occupancy(Bytes(LINE_BYTES)).0,
            page_span: preset.link.occupancy(Bytes(PAGE)).0,
            posted: VecDeque::new(),
            software: (way == Way::Stack).then(|| Clock::new(&preset.software, seed)),
            regions: regions(options, u64::from(pages) * PAGE)?,
            unflushed: BTreeSet::new(),
            contents: options.verify.then(Contents::default),
            counts: FlatCounts::default(),
            base: Base::default(),
            preset: preset.clone(),
        })
    }

    /// What it did since measuring began.
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

    /// The promotion threshold, and its epochs since measuring began.
    #[must_use]
    pub fn threshold(&self) -> (u8, u64) {
        (self.threshold.current(), self.threshold.epochs() - self.base.epochs)
    }

    /// The host's memory.
    #[must_use]
    pub fn dram(&self) -> &DramMemory {
        &self.dram
    }

    /// Erases of each block of flash.
    pub fn erased(&self) -> impl Iterator<Item = u32> + '_ {
        self.flash.erased()
    }

    /// Energy since measuring began, over `time`, by component, in picojoules, dynamic and static: DRAM's
    /// components, flash, link. The drive's memory and the processor's cache are not in it.
    #[must_use]
    pub fn energy_pj(&self, time: Time) -> Vec<(&'static str, f64, f64)> {
        let mut parts = self.dram.energy_pj(time).to_vec();
        let flash = self.flash.counts().since(&self.base.flash);
        let packages = self.preset.channels * self.preset.packages_per_channel;
        parts.extend(flash.energy_pj(&self.preset.nand, packages, time));
        let did = self.flat_counts();
        let bits = (did.link_bytes_to_host + did.link_bytes_to_drive) as f64 * 8.0;
        parts.push(("link", bits * self.preset.link_energy.0, 0.0));
        parts
    }

    /// Takes the link for `span` from `at` or as soon as it is free; when that begins.
    #[inline]
    fn lane(&mut self, lane: Lane, span: Time, at: Time) -> Time {
        let free = &mut self.lanes[lane as usize];
        let start = at.max(*free);
        *free = start + span;
        start
    }

    fn persists(&self, page: u32) -> bool {
        self.regions.iter().any(|(first, end)| (*first..*end).contains(&page))
    }

    /// One line of a request, from the processor on; when it is over.
    fn line(&mut self, line: u64, store: bool, whole: bool, now: Time) -> Result<Time, SimError> {
        if store && !self.regions.is_empty() && self.persists((line / LINES) as u32) {
            self.unflushed.insert(line);
        }
        let Some(cpu) = &mut self.cpu else {
            if store && let Some(contents) = &mut self.contents {
                contents.new_version(line);
            }
            let end = self.memory(line, store, whole, true, now)?;
            if !store && let Some(contents) = &self.contents {
                contents.loaded(line)?;
            }
            return Ok(end);
        };
        self.counts.cpu_lookups += 1;
        let hit = self.preset.cpu_cache_hit.0;
        if cpu.touch(line, store) {
            self.counts.cpu_hits += 1;
            self.in_cpu(line, store)?;
            return Ok(now + hit);
        }
        let mut end = now + hit;
        if store && whole {
            end += self.own((line / LINES) as u32, now)? - now;
        } else {
            end += self.memory(line, false, true, true, now)? - now;
            if let Some(contents) = &mut self.contents {
                contents.loaded(line)?;
                contents.cpu.insert(line, contents.value);
            }
        }
        let victim = self.cpu.as_mut().and_then(|cpu| cpu.insert(line, store));
        self.in_cpu(line, store)?;
        if let Some(victim) = victim {
            // The line takes its place when it is in the write buffer; that it gets there is not waited for.
            let taken = self.write_back_line(victim, now)?;
            end = end.max(taken.saturating_sub(self.preset.line_write.0));
        }
        Ok(end)
    }

    /// The processor's cache has the line.
    fn in_cpu(&mut self, line: u64, store: bool) -> Result<(), SimError> {
        let Some(contents) = &mut self.contents else { return Ok(()) };
        if store {
            contents.new_version(line);
            contents.cpu.insert(line, contents.value);
            return Ok(());
        }
        contents.value = contents.cpu.get(&line).copied().unwrap_or(0);
        contents.loaded(line)
    }

    /// A dirty line leaves the processor's cache.
    fn write_back_line(&mut self, line: u64, now: Time) -> Result<Time, SimError> {
        if let Some(contents) = &mut self.contents {
            contents.value = contents.cpu.get(&line).copied().unwrap_or(0);
        }
        self.memory(line, true, true, false, now)
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
                        "bytes {} to {} are no part of the {capacity} bytes of memory",
                        region.start, region.end
                    ),
                ));
            }
            Ok(((region.start / PAGE) as u32, region.end.div_ceil(PAGE) as u32))
        })
        .collect()
}

impl Device for FlatMemory {
    type Event = Slot;

    fn capacity(&self) -> u64 {
        u64::from(self.flash.pages()) * PAGE
    }

    fn queue_limit(&self) -> u64 {
        u64::MAX
    }

    #[inline]
    fn foresee(&self, command: &Command) {
        let page = (command.offset / PAGE) as u32;
        self.table.prefetch(page);
        self.flash.foresee(page);
    }

    fn submit(&mut self, slot: Slot, command: Command, context: &mut Context<Slot>) -> Result<(), SimError> {
        let now = context.now();
        let Command { op, offset, len } = command;
        let mut end = now;
        if op == Op::Write
            && let Some(pages) = self.blocks(offset, len)
        {
            context.schedule(self.write_blocks(pages, now)?, slot);
            return Ok(());
        }
        match op {
            Op::Read | Op::Write if len > 0 => {
                let last = offset + len - 1;
                for line in offset / LINE_BYTES..=last / LINE_BYTES {
                    let first = line * LINE_BYTES;
                    let whole = offset <= first && first + LINE_BYTES - 1 <= last;
                    end = end.max(self.line(line, op == Op::Write, whole, now)?);
                }
            }
            Op::Flush => end = self.persist((len > 0).then(|| offset..offset + len), now)?,
            // Memory forgets nothing because it is told to.
            Op::Read | Op::Write | Op::Trim => {}
        }
        context.schedule(end, slot);
        Ok(())
    }

    fn handle(&mut self, slot: Slot, context: &mut Context<Slot>) -> Result<(), SimError> {
        self.counts.accesses += 1;
        context.complete(slot);
        Ok(())
    }

    fn begin_measuring(&mut self) {
        self.base =
            Base { counts: self.all_counts(), flash: self.flash.counts(), epochs: self.threshold.epochs() };
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
        law("pages in flight have an entry each", moving as u64, self.look_aside.len() as u64)?;
        let resident = (self.table.iter().count() - moving) as u64;
        let in_use = (self.frames.len() - self.idle.len()) as u64;
        law("frames in use are those of pages in DRAM and in flight", in_use, resident + moving as u64)?;
        for (page, entry) in self.table.iter() {
            let frame = entry & !MOVING;
            law("a page's frame holds the page", self.frames[frame as usize].page.into(), page.into())?;
            if self.way == Way::Promote {
                let held = self.buffer.find(page).is_some();
                law("a page is in DRAM or in the drive's memory", held.into(), (entry & MOVING != 0).into())?;
            }
        }
        let counts = self.all_counts();
        let stayed = counts.pages_to_host - counts.demotions - moving as u64;
        law("pages in DRAM are those moved there that have not left", stayed, resident)
    }
}
