//! Flash main memory (NVMM, sections SSD Architectures and Architecture): a DRAM cache managed by
//! hardware, a mapping cache, and journaled flash on many channels.
//!
//! ```text
//!   command -> tags (DRAM) -> hit: line (DRAM)
//!                          -> miss: LRU block leaves (dirty: to flash) -> mapping -> flash
//!                                   -> line forwarded as it crosses the channel, block fills behind
//! ```
//!
//! 1. A cache block, a journal segment and a flash page have the same size. A set's tags lie together in
//!    the cache's DRAM, after the blocks; every access reads them.
//! 2. All dirty cached blocks of a 64 KiB page are written back together, as one version. The version is
//!    in the page table from the moment its programs are queued; until they complete, the controller
//!    holds its data and serves reads of it.
//! 3. A store to a block that is not in the cache waits for the block, unless it covers the whole block.
//! 4. A sync writes all dirty blocks back, closes the epoch, and is complete when all programs queued by
//!    then are. Later stores belong to the next epoch.
//! 5. When free blocks run short, flash is reclaimed, longest version chains first; the longest chain's
//!    block is taken only if it gains at least half as much as the emptiest block (`flash_volume`). If
//!    reclamation can gain nothing, the oldest state kept for rollback is dropped, but never the last
//!    one that a sync made. Until the first sync, the controller closes epochs of its own.
//!
//! The cache is [`deepram_core::cache::SetAssociative`]; page table, versions and placement are
//! [`deepram_core::Volume`]; the channels and planes are `flash_array`.

mod accounting;
mod fill;
mod flash_volume;
mod layout;
mod options;
mod reclaim;
mod shadow;
mod write_back;

use deepram_core::units::{Bytes, Picos};
use std::collections::{HashMap, HashSet, VecDeque};

use deepram_core::cache::SetAssociative;
use deepram_core::{Epoch, PageId};
use deepram_media::Nvmm;
use deepram_trace::Op;

use crate::dram::DramMemory;
use crate::engine::Time;
use crate::error::SimError;
use crate::flash::FlashCounts;
use crate::flash_array::{ChannelEvent, Channels, Notice, OpId, OperationClass};
use crate::host::{Command, Context, Device, Slot};
use crate::slab::Slab;

pub use accounting::NvmmCounts;
pub use options::{NvmmOptions, Prefetch};

use accounting::Baseline;
use fill::{Fill, PrefetchStreams};
use flash_volume::FlashVolume;
use layout::{Layout, SegmentKey};
use reclaim::Reclaim;
use shadow::Shadow;
use write_back::PendingSync;

/// Size of a line, bytes.
pub const LINE: u64 = 64;

/// An event of the memory; opaque to the driver.
#[derive(Debug, Clone, Copy)]
pub struct NvmmEvent(EventKind);

#[derive(Debug, Clone, Copy)]
enum EventKind {
    /// The tag comparison of a command part is complete.
    Tagged(u32),
    /// A command part is complete.
    Over(u32),
    /// The mapping lookup of a fill is complete.
    Mapped(u32),
    /// The data of a fill that needs no flash read are available.
    Filled(u32),
    /// An evicted block has been read from the cache's DRAM: its program operation, and the plane.
    Taken(u32, u32),
    Channel(ChannelEvent),
}

/// The part of a command that lies in one block.
#[derive(Debug, Clone, Copy)]
struct CommandPart {
    slot: Slot,
    key: SegmentKey,
    line: u32,
    lines: u32,
    write: bool,
}

/// The purpose of a channel operation.
#[derive(Debug, Clone, Copy)]
enum OperationPurpose {
    Fill(u32),
    WriteBack(SegmentProgram),
    MoveRead(u32),
    MoveProgram { reclaim: u32, slot: u64 },
    Erase(u32),
}

/// A segment of a version being programmed.
#[derive(Debug, Clone, Copy)]
struct SegmentProgram {
    slot: u64,
    /// The cache frame that still holds the data; `None` once the data are in the write buffer.
    frame: Option<usize>,
    /// The segment occupies an entry of the write buffer.
    buffered: bool,
    /// The segment is written back early: neither an eviction nor a sync needs it.
    early: bool,
    /// Sync cuts made before the program was queued.
    cuts: u64,
}

/// State bits of a cache block.
mod flag {
    pub(super) const DIRTY: u8 = 1;
    /// A fill of the block is under way.
    pub(super) const FILLING: u8 = 2;
    /// The block was prefetched and has not been used.
    pub(super) const AHEAD: u8 = 4;
    /// The block is in the dirty list.
    pub(super) const LISTED: u8 = 8;
}

/// A simulated flash main memory.
pub struct NvmmMemory {
    nvmm: Nvmm,
    options: NvmmOptions,
    dram: DramMemory,
    cache: SetAssociative,
    flags: Vec<u8>,
    mapping: SetAssociative,
    channels: Channels,
    /// A spare buffer for notices of the channels.
    notices: Vec<Notice>,
    flash_volume: FlashVolume,
    operations: Slab<OperationPurpose>,
    parts: Slab<CommandPart>,
    fills: Slab<Fill>,
    /// The fill under way of each frame that is being filled.
    filling: HashMap<usize, u32>,
    /// Outstanding parts of each command.
    open: Vec<u32>,
    commands: u64,
    /// Command parts whose tag comparison is under way.
    tagging: u64,
    /// Fills started so far.
    fill_numbers: u64,
    /// Command parts that wait for a cache frame, a write-buffer entry or free flash.
    stalled: VecDeque<u32>,
    streams: PrefetchStreams,
    /// The dirty list: frames in the order in which they became dirty. Some have been written back
    /// since.
    listed: VecDeque<usize>,
    dirty: u64,
    /// Flash slots whose programs are not complete; the controller still holds their data.
    in_buffer: HashSet<u64>,
    /// Occupied entries of the write buffer.
    buffered: u64,
    programs_open: u64,
    /// Early write-backs among the open programs.
    early_open: u64,
    syncs: Vec<PendingSync>,
    /// Sync cuts made so far.
    cuts: u64,
    last_sync: Option<Epoch>,
    reclaims: Slab<Reclaim>,
    reclaims_open: u32,
    /// True while wear levelling empties a block.
    levelling: bool,
    /// Pages whose version chains are being collapsed.
    collapsing: Vec<PageId>,
    /// Blocks reclaimed since the host last wrote.
    reclaims_since_write: u32,
    counts: NvmmCounts,
    flash: FlashCounts,
    /// The counts when measuring began.
    base: Baseline,
    /// Blocks cached before the run.
    prefilled: u64,
    shadow: Option<Shadow>,
    tag_base: u64,
    lines_per_block: u32,
    bursts_per_block: u64,
}

impl NvmmMemory {
    /// Builds the memory of a preset. `seed` is the run's seed; it determines only which segments are
    /// bad or wear out.
    ///
    /// # Errors
    /// An option has an invalid value.
    pub fn new(nvmm: &Nvmm, options: &NvmmOptions, seed: u64) -> Result<Self, SimError> {
        let layout = Layout::new(nvmm, options.capacity.0, options.populated)?;
        let (ways, segment) = (nvmm.ways, nvmm.segment.0);
        let fits = nvmm.dram.total_capacity().0 / (segment + nvmm.tag.0);
        let frames = if options.cache.0 == 0 { fits } else { options.cache.0 / segment };
        if frames > fits || frames < ways || frames / ways > u64::from(u32::MAX) {
            return Err(SimError::config(
                "cache",
                format!(
                    "must have one set of {ways} blocks at least, and at most the {fits} blocks that the DRAM holds with their tags"
                ),
            ));
        }
        for (key, share) in [
            ("write_back_above", options.write_back_above),
            ("write_back_cold", options.write_back_cold),
            ("write_back_planes", options.write_back_planes),
            ("bad_share", options.bad_share),
        ] {
            if !(0.0..=1.0).contains(&share) {
                return Err(SimError::config(key, "must be 0 to 1"));
            }
        }
        if options.queue == 0
            || options.reclaim_at_once == 0
            || !(0.0..10.0).contains(&options.wear_deviation)
        {
            return Err(SimError::config(
                "queue",
                "queue and reclaim_at_once must be at least 1, wear_deviation 0 to 10",
            ));
        }
        let cache = SetAssociative::new((frames / ways) as u32, ways as u16);
        let mapping_sets = nvmm.mapping_entries / nvmm.mapping_ways;
        let package = nvmm.package();
        let burst = nvmm.dram.burst_bytes().0.max(1);
        let bursts_per_block = segment.div_ceil(burst);
        let mut memory = Self {
            dram: DramMemory::new(&nvmm.dram)?,
            flags: vec![0; cache.capacity()],
            tag_base: cache.capacity() as u64 * bursts_per_block,
            cache,
            mapping: SetAssociative::new(mapping_sets as u32, nvmm.mapping_ways as u16),
            channels: Channels::new(&package, nvmm.channels as u32, nvmm.planes() as u32),
            notices: Vec::new(),
            flash_volume: FlashVolume::new(layout, options, package.endurance, seed)?,
            operations: Slab::new(),
            parts: Slab::new(),
            fills: Slab::new(),
            filling: HashMap::new(),
            open: Vec::new(),
            commands: 0,
            tagging: 0,
            fill_numbers: 0,
            stalled: VecDeque::new(),
            streams: PrefetchStreams::new(options.prefetch),
            listed: VecDeque::new(),
            dirty: 0,
            in_buffer: HashSet::new(),
            buffered: 0,
            programs_open: 0,
            early_open: 0,
            syncs: Vec::new(),
            cuts: 0,
            last_sync: None,
            reclaims: Slab::new(),
            reclaims_open: 0,
            levelling: false,
            collapsing: Vec::new(),
            reclaims_since_write: 0,
            counts: NvmmCounts::default(),
            flash: FlashCounts::default(),
            base: Baseline::default(),
            prefilled: 0,
            shadow: options.verify.then(Shadow::default),
            lines_per_block: (segment / LINE) as u32,
            bursts_per_block,
            nvmm: nvmm.clone(),
            options: options.clone(),
        };
        if options.prefilled {
            memory.prefill();
        }
        Ok(memory)
    }

    /// Fills the cache with the first blocks of the address space.
    fn prefill(&mut self) {
        let blocks = u64::from(self.flash_volume.layout.pages) * u64::from(self.flash_volume.layout.per_page);
        for key in 0..blocks.min(self.cache.capacity() as u64) as SegmentKey {
            let target = self.cache.fill_target(key, |_| true);
            let Some(frame) = target.filter(|target| target.victim.is_none()).map(|target| target.frame)
            else {
                continue;
            };
            self.cache.insert(key, frame);
            self.prefilled += 1;
            if let Some(shadow) = &mut self.shadow {
                shadow.fill(frame, None, self.lines_per_block);
            }
        }
    }

    /// Reads or writes lines of a cache block in DRAM. Returns the time at which the transfer ends.
    fn access_block_data(&mut self, frame: usize, line: u32, lines: u32, write: bool, now: Time) -> Time {
        let burst = self.nvmm.dram.burst_bytes().0.max(1);
        let first = frame as u64 * self.bursts_per_block + u64::from(line) * LINE / burst;
        let last = frame as u64 * self.bursts_per_block + (u64::from(line + lines) * LINE - 1) / burst;
        self.counts.data_bursts += last - first + 1;
        (first..=last).map(|number| self.dram.serve(number, write, now)).max().unwrap_or(now)
    }

    /// Reads the tags of a segment's set. Returns the time at which the comparison is complete.
    fn read_tags(&mut self, key: SegmentKey, now: Time) -> Time {
        self.counts.tag_reads += 1;
        let bursts = self.nvmm.tag_bursts();
        let first = self.tag_base + u64::from(self.cache.set_of(key)) * bursts;
        let opened = self.dram.all_counts().activations;
        let end = (first..first + bursts).map(|number| self.dram.serve(number, false, now)).max();
        self.counts.tag_activations += self.dram.all_counts().activations - opened;
        self.counts.tag_read_bursts += bursts;
        end.unwrap_or(now) + self.nvmm.tag_delay.0
    }

    /// Writes the changed burst of the tags; no access waits for the write.
    fn write_tag(&mut self, frame: usize, now: Time) {
        let bursts = self.nvmm.tag_bursts();
        if bursts == 0 {
            return;
        }
        let ways = usize::from(self.cache.ways());
        let burst = (frame % ways) as u64 * self.nvmm.tag.0 / self.nvmm.dram.burst_bytes().0.max(1);
        let opened = self.dram.all_counts().activations;
        self.dram.serve(self.tag_base + (frame / ways) as u64 * bursts + burst, true, now);
        self.counts.tag_activations += self.dram.all_counts().activations - opened;
        self.counts.tag_writes += 1;
    }

    /// Handles the outcome of the tag comparison: a hit, a fill under way, or a miss. Returns false if
    /// the part must wait.
    fn resolve_part(&mut self, number: u32, context: &mut Context<NvmmEvent>) -> Result<bool, SimError> {
        let Some(part) = self.parts.get(number).copied() else { return Ok(true) };
        let now = context.now().0;
        let Some(frame) = self.cache.find(part.key) else { return self.miss(number, part, context) };
        let ahead = self.flags[frame] & flag::AHEAD != 0;
        self.flags[frame] &= !flag::AHEAD;
        self.cache.touch(frame);
        self.counts.prefetches_used += u64::from(ahead);
        if self.flags[frame] & flag::FILLING != 0 {
            self.counts.merged += 1;
            self.join_fill(frame, number, part, context);
        } else {
            self.counts.hits += 1;
            self.check_line(frame, part)?;
            let end = self.access_block_data(frame, part.line, part.lines, part.write, now);
            if self.options.order_in_tags {
                self.write_tag(frame, now);
            }
            if part.write {
                self.mark_dirty(frame, now);
            }
            context.schedule(Picos(end), NvmmEvent(EventKind::Over(number)));
        }
        if ahead {
            self.follow_streams(part.key, true, context)?;
        }
        Ok(true)
    }

    /// Reports a read or write of lines to the shadow, if the run is verified.
    fn check_line(&mut self, frame: usize, part: CommandPart) -> Result<(), SimError> {
        let Some(shadow) = &mut self.shadow else { return Ok(()) };
        let first = u64::from(part.key) * u64::from(self.lines_per_block);
        let lines = part.line..part.line + part.lines;
        if part.write {
            shadow.store(frame, first, lines, self.lines_per_block);
            return Ok(());
        }
        shadow.load(frame, first, lines)
    }

    /// Marks a block dirty and appends it to the dirty list.
    fn mark_dirty(&mut self, frame: usize, now: Time) {
        if self.flags[frame] & flag::DIRTY == 0 {
            self.flags[frame] |= flag::DIRTY;
            self.dirty += 1;
            self.counts.dirtied += 1;
            if !self.options.order_in_tags {
                self.write_tag(frame, now);
            }
        }
        if self.flags[frame] & flag::LISTED == 0 {
            self.flags[frame] |= flag::LISTED;
            self.listed.push_back(frame);
        }
    }

    /// Ends a command part, and the command with its last part.
    fn end_part(&mut self, number: u32, context: &mut Context<NvmmEvent>) {
        let Some(part) = self.parts.take(number) else { return };
        let left = &mut self.open[part.slot as usize];
        *left -= 1;
        if *left == 0 {
            self.commands -= 1;
            context.complete(part.slot);
        }
    }

    /// Retries the command parts that wait for a frame, a write-buffer entry or free flash, then the
    /// syncs.
    fn retry_stalled(&mut self, context: &mut Context<NvmmEvent>) -> Result<(), SimError> {
        for _ in 0..self.stalled.len() {
            let Some(number) = self.stalled.pop_front() else { break };
            if !self.resolve_part(number, context)? {
                self.stalled.push_back(number);
            }
        }
        self.continue_syncs(context)
    }

    /// Schedules the channels' events and handles their notices.
    fn drain_channels(&mut self, context: &mut Context<NvmmEvent>) -> Result<(), SimError> {
        loop {
            for (time, event) in self.channels.events.drain(..) {
                context.schedule(Picos(time), NvmmEvent(EventKind::Channel(event)));
            }
            if self.channels.notices.is_empty() {
                return Ok(());
            }
            let mut notices = std::mem::take(&mut self.notices);
            std::mem::swap(&mut notices, &mut self.channels.notices);
            for notice in notices.drain(..) {
                match notice {
                    Notice::ReadTransferStarted(op) => self.read_transfer_started(op, context),
                    Notice::ProgramTransferStarted(op) => self.program_transfer_started(op, context.now().0),
                    Notice::Done(op) => self.operation_done(op, context)?,
                }
            }
            self.notices = notices;
        }
    }

    fn read_transfer_started(&mut self, op: OpId, context: &mut Context<NvmmEvent>) {
        if let Some(OperationPurpose::Fill(fill)) = self.operations.get(op).copied() {
            self.transfer_started(fill, context);
        }
    }

    fn program_transfer_started(&mut self, op: OpId, now: Time) {
        // A block that was not read out at its eviction is read from DRAM when the channel takes its
        // data.
        if let Some(OperationPurpose::WriteBack(SegmentProgram { frame: Some(frame), .. })) =
            self.operations.get(op).copied()
        {
            self.access_block_data(frame, 0, self.lines_per_block, false, now);
        }
    }

    fn operation_done(&mut self, op: OpId, context: &mut Context<NvmmEvent>) -> Result<(), SimError> {
        match self.operations.take(op) {
            None => Ok(()),
            Some(OperationPurpose::Fill(fill)) => self.end_fill(fill, context),
            Some(OperationPurpose::WriteBack(program)) => self.program_ended(program, context),
            Some(OperationPurpose::MoveRead(reclaim)) => self.move_read(reclaim, context),
            Some(OperationPurpose::MoveProgram { reclaim, slot }) => {
                self.in_buffer.remove(&slot);
                self.move_programmed(reclaim, context)
            }
            Some(OperationPurpose::Erase(reclaim)) => self.erase_ended(reclaim, context),
        }
    }
}

impl Device for NvmmMemory {
    type Event = NvmmEvent;

    fn capacity(&self) -> Bytes {
        Bytes(u64::from(self.flash_volume.layout.pages) << 16)
    }

    fn queue_limit(&self) -> u64 {
        self.options.queue
    }

    fn submit(
        &mut self,
        slot: Slot,
        command: Command,
        context: &mut Context<NvmmEvent>,
    ) -> Result<(), SimError> {
        match command.op {
            Op::Read | Op::Write if command.len > 0 => {}
            Op::Flush => {
                self.flash_volume.now = context.now().0;
                self.commands += 1;
                self.begin_sync(slot, context)?;
                return self.drain_channels(context);
            }
            Op::Read | Op::Write | Op::Trim => {
                context.complete(slot);
                return Ok(());
            }
        }
        self.flash_volume.now = context.now().0;
        if self.open.len() <= slot as usize {
            self.open.resize(slot as usize + 1, 0);
        }
        self.commands += 1;
        let write = command.op == Op::Write;
        let per_block = u64::from(self.lines_per_block);
        let (mut line, last) = (command.offset / LINE, (command.offset + command.len - 1) / LINE);
        let mut parts = 0;
        while line <= last {
            let end = last.min(line / per_block * per_block + per_block - 1);
            let part = CommandPart {
                slot,
                key: (line / per_block) as SegmentKey,
                line: (line % per_block) as u32,
                lines: (end - line + 1) as u32,
                write,
            };
            let number = self.parts.add(part);
            self.counts.accesses += 1;
            let compared = self.read_tags(part.key, context.now().0);
            context.schedule(Picos(compared), NvmmEvent(EventKind::Tagged(number)));
            self.tagging += 1;
            parts += 1;
            line = end + 1;
        }
        self.open[slot as usize] = parts;
        Ok(())
    }

    fn handle(&mut self, event: NvmmEvent, context: &mut Context<NvmmEvent>) -> Result<(), SimError> {
        self.flash_volume.now = context.now().0;
        match event.0 {
            EventKind::Tagged(part) => {
                self.tagging -= 1;
                // Stalled parts are retried before new ones, so no part waits for ever.
                if !self.resolve_part(part, context)? {
                    self.counts.stalls += 1;
                    self.stalled.push_back(part);
                }
                self.write_back_idle(context)?;
            }
            EventKind::Over(part) => self.end_part(part, context),
            EventKind::Mapped(fill) => self.fetch(fill, context)?,
            EventKind::Filled(fill) => self.end_fill(fill, context)?,
            EventKind::Taken(op, plane) => {
                self.channels.submit(op, OperationClass::Program, plane, context.now().0)
            }
            EventKind::Channel(event) => {
                self.channels.handle(event, context.now().0);
                self.drain_channels(context)?;
                self.write_back_idle(context)?;
            }
        }
        self.drain_channels(context)
    }

    fn begin_measuring(&mut self) {
        self.base = self.totals();
        self.dram.begin_measuring();
    }

    fn counts(&self) -> FlashCounts {
        FlashCounts { suspensions: self.channels.suspensions(), ..self.flash }
    }

    fn check(&self) -> Result<(), SimError> {
        self.check_accounting()
    }
}
