//! An SSD of channels, packages, dies and planes that work in parallel, comparable with MQSim.
//!
//! ```text
//!  host link -> [write buffer] -> mapping -> page placement -> queues of the package -> bus -> array
//!  host link <- ------------------------------------------- <- data out over the bus <- register
//! ```
//!
//! 1. A logical page belongs to one plane, given by the spread; within the plane it goes to the host
//!    frontier (`planes`). A partial write reads the rest of the page first.
//! 2. Channels, dies and planes are a [`Channels`], in which data that wait in registers go before
//!    commands (after them if the options say so), and the targets of a bus take turns. A target is a
//!    die, or a package if not all of its dies work at once.
//! 3. Reclamation of a plane starts when a frontier's block is full and too few blocks are free. Host
//!    writes to a plane wait while fewer blocks than the reserve are free.

use deepram_core::units::{Bytes, Picos};
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;

use deepram_core::ftl::{MappingCache, PageMap};
use deepram_media::{ReclaimTiming, Ssd, VictimChoice};
use deepram_trace::Op;

use super::command_pages::CommandPages;
use super::initial_data::InitialData;
use super::operation::{OperationSource, Operations};
use super::options::SsdOptions;
use super::serial::checked_u32;
use crate::engine::Time;
use crate::error::SimError;
use crate::flash::{FlashCounts, law};
use crate::flash_array::blocks::{Divisor, FrontierUse, NONE, Planes};
use crate::flash_array::{ChannelEvent, Channels, DataOut, Rules, Shape};
use crate::host::{Command, Context, Device, Slot};
use deepram_trace::workload::Rng;

/// An event of the drive.
#[derive(Debug, Clone, Copy)]
pub struct ParallelEvent(pub(super) EventKind);

#[derive(Debug, Clone, Copy)]
pub(super) enum EventKind {
    /// The data of a host's write, or a command without data, have been received.
    Received(Slot),
    /// A command's data have been sent, or its write-buffer access is complete.
    Answered(Slot),
    Array(ChannelEvent),
}

pub(super) const MAPPING: u32 = 1 << 31;

/// The mapping of a logical page: its physical page, and its written sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MappingEntry {
    pub(super) physical: u32,
    pub(super) sectors: u32,
    /// The hot window in which the host last wrote the page; 0 if never, or if windows are off.
    pub(super) window: u32,
}

const UNMAPPED: MappingEntry = MappingEntry { physical: NONE, sectors: 0, window: 0 };

/// A fast hash of page numbers. They come from the simulation, not from an attacker, and the iteration
/// order is never used.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct PageHasher(u64);

impl std::hash::Hasher for PageHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, value: u32) {
        let mixed = (self.0 ^ u64::from(value)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

type Build = BuildHasherDefault<PageHasher>;

/// A request to read or write one page, from a command or the write buffer.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageRequest {
    pub(super) slot: u32,
    pub(super) logical: u32,
    pub(super) sectors: u32,
    pub(super) write: bool,
    pub(super) source: OperationSource,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct CommandProgress {
    pub(super) command: Command,
    pub(super) pages_left: u32,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct BufferedPage {
    pub(super) sectors: u32,
    /// Sectors written again while the page was being destaged.
    pub(super) again: u32,
    /// The page is being destaged to flash; otherwise it stays in the buffer, dirty.
    pub(super) leaving: bool,
    /// The buffer's sequence number of the last write to the page.
    pub(super) stamp: u64,
}

/// A simulated drive of parallel planes.
pub struct ParallelSsd {
    pub(super) ssd: Ssd,
    pub(super) options: SsdOptions,
    /// The planes of consecutive logical pages, over one round of all planes.
    pub(super) order: Vec<u32>,
    /// Free blocks of a plane below which reclamation has priority over the host.
    pub(super) urgent_below: u32,
    sectors_per_page: u32,
    pub(super) sector: u64,
    by_page: Divisor,
    by_sector: Divisor,
    logical_pages: u64,
    pub(super) map: PageMap<MappingEntry>,
    pub(super) planes: Planes,
    pub(super) initial: InitialData,
    pub(super) mapping: Option<MappingCache>,
    pub(super) directory: Vec<u32>,
    /// Requests that wait for a mapping page, as linked lists: the first request of each mapping page
    /// plus one (0 for none), then each request's successor.
    pub(super) parked: Vec<u32>,
    pub(super) waiting_jobs: Vec<(PageRequest, u32)>,
    pub(super) waiting_spare: Vec<u32>,
    pub(super) operations: Operations,
    pub(super) array: Channels,
    pub(super) jobs: Vec<CommandProgress>,
    pub(super) buffer: HashMap<u32, BufferedPage, Build>,
    pub(super) buffer_sectors: u64,
    pub(super) buffer_limit: u64,
    pub(super) buffer_pages: usize,
    /// Pages retained in the buffer, oldest first; an entry with an outdated stamp is void.
    pub(super) retained: VecDeque<(u32, u64)>,
    pub(super) retained_count: u64,
    pub(super) stamp: u64,
    /// The number of the present hot window, and its end.
    pub(super) window: u32,
    pub(super) window_end: Time,
    pub(super) admitting: VecDeque<(Slot, u64)>,
    pub(super) flushing: Vec<Slot>,
    pub(super) stalled: Vec<VecDeque<PageRequest>>,
    pub(super) stalled_count: u64,
    pub(super) moves_left: Vec<u16>,
    pub(super) erase_waits: Vec<bool>,
    pub(super) reclaim_below: u32,
    pub(super) write_reserve: u32,
    /// The size of the last transfer, and its time on the link and in the buffer's memory.
    link_last: (u64, Time, Time),
    link_in_free: Time,
    link_out_free: Time,
    pub(super) memory_free: Time,
    pub(super) random: Rng,
    pub(super) counts: FlashCounts,
    pub(super) page_programs_asked: u64,
    pub(super) victim: VictimChoice,
}

impl ParallelSsd {
    /// Builds the drive of a preset.
    ///
    /// # Errors
    /// The preset or the options are invalid.
    pub fn new(ssd: &Ssd, options: &SsdOptions, seed: u64) -> Result<Self, SimError> {
        let nand = &ssd.nand;
        let channels = checked_u32("channels", ssd.channels)?;
        let ways = checked_u32("packages_per_channel", ssd.packages_per_channel)?;
        let dies = checked_u32("nand.dies", nand.dies)?;
        let planes_per_die = checked_u32("nand.planes", nand.planes)?;
        let blocks = checked_u32("nand.blocks_per_plane", nand.blocks_per_plane)?;
        let pages = checked_u32("nand.pages_per_block", nand.pages_per_block)?;
        let planes = checked_u32("nand.planes", ssd.planes())?;
        let physical = u64::from(planes) * u64::from(blocks) * u64::from(pages);
        if physical >= u64::from(MAPPING) || pages > 32_767 {
            return Err(SimError::config(
                "nand.blocks_per_plane",
                format!(
                    "{physical} pages are too many: at most {} pages in blocks of at most 32767",
                    MAPPING - 1
                ),
            ));
        }
        if ssd.victim == VictimChoice::LongestChain {
            return Err(SimError::config(
                "victim",
                "longest-chain needs the version chains of a journal, which a drive does not have; use greedy, greedy-of-random or cost-benefit",
            ));
        }
        let sector = if nand.page.0 / 32 > 512 { nand.page.0 / 32 } else { 512.min(nand.page.0) };
        let sectors_per_page = (nand.page.0 / sector) as u32;
        if u64::from(sectors_per_page) * sector != nand.page.0 {
            return Err(SimError::config("nand.page", "must be a multiple of 512 B"));
        }
        let logical_pages = (physical as f64 * (1.0 - ssd.over_provisioning.0)).floor() as u64;
        let reclaim_below = ((f64::from(blocks) * ssd.reclaim_below.0) as u32).max(1);
        if logical_pages == 0 {
            return Err(SimError::config("over_provisioning", "leaves no page to the host"));
        }
        let registers = checked_u32("nand.registers", nand.registers.unwrap_or(1))?;
        // A package is one target if not all of its dies may work at once.
        let units = checked_u32("parallel_units", ssd.units_per_package())?.clamp(1, dies);
        let dies_per_target = if units < dies { dies } else { 1 };
        if registers > 1 && dies_per_target > 1 {
            return Err(SimError::config(
                "nand.registers",
                format!("two registers need dies that work by themselves; set parallel_units to {dies}"),
            ));
        }
        let reserve = options.write_reserve.max(1);
        let endurance = checked_u32("nand.endurance", nand.endurance)?;
        let mut planes_of =
            Planes::new(planes, blocks, pages, if options.wear_out { endurance.max(1) } else { u32::MAX });
        let mut random = Rng::new(seed, "bad blocks");
        let bad = (f64::from(blocks) * f64::from(planes) * options.bad_blocks).round() as u64;
        for _ in 0..bad {
            planes_of.retire_fresh(random.below(u64::from(blocks) * u64::from(planes)) as u32)?;
        }
        let mapping = (!ssd.mapping_in_memory).then(|| {
            let entry = if options.mapping_cache_entry.0 > 0 {
                options.mapping_cache_entry.0
            } else {
                ssd.mapping_entry.0
            };
            let per_page = (nand.page.0 / ssd.mapping_entry.0) as u32;
            MappingCache::new((ssd.mapping_cache.0 / entry.max(1)) as usize, logical_pages as u32, per_page)
        });
        planes_of.open_frontiers();
        let directory = vec![NONE; mapping.as_ref().map_or(0, |mapping| mapping.pages() as usize)];
        let count = planes as usize * blocks as usize;
        let shape = Shape {
            channels,
            targets_per_channel: ways * dies / dies_per_target,
            dies_per_target,
            units: if dies_per_target == 1 { 1 } else { units },
            planes_per_die,
            registers,
        };
        let rules = Rules {
            data_out: if options.commands_first { DataOut::Last } else { DataOut::First },
            turns: true,
            pipelined: true,
            moves_before_programs: false,
            moves_first: options.reclaim_first,
            suspend_program: nand.suspend_program.filter(|_| options.suspend_programs).map(|time| time.0),
            suspend_erase: nand.suspend_erase.filter(|_| options.suspend_erases).map(|time| time.0),
            die_queue: options.die_queue,
            transfer_notices: false,
        };
        let mut machine = Self {
            order: super::translation::spread_order(ssd.spread, [channels, ways, dies, planes_per_die]),
            urgent_below: ssd
                .reclaim_hard_below
                .map_or(0, |share| ((f64::from(blocks) * share.0) as u32).max(1)),
            sectors_per_page,
            sector,
            by_page: Divisor::new(nand.page.0),
            by_sector: Divisor::new(sector),
            logical_pages,
            map: PageMap::sparse(logical_pages as u32, UNMAPPED),
            planes: planes_of,
            initial: InitialData::default(),
            mapping,
            parked: vec![0; directory.len()],
            waiting_jobs: Vec::new(),
            waiting_spare: Vec::new(),
            directory,
            operations: Operations::default(),
            array: Channels::with(nand, shape, rules),
            jobs: Vec::new(),
            buffer: HashMap::default(),
            buffer_sectors: 0,
            // The sectors that all planes can accept at once (MQSim's back pressure), or queue.
            buffer_limit: (u64::from(planes) * u64::from(sectors_per_page) * ssd.destage.unwrap_or(1))
                .min((ssd.data_cache.0 / sector).max(u64::from(sectors_per_page))),
            buffer_pages: ((ssd.data_cache.0 / nand.page.0.max(1)) as usize).max(1),
            retained: VecDeque::new(),
            retained_count: 0,
            stamp: 0,
            window: 1,
            window_end: options.buffer_hot_window.0,
            admitting: VecDeque::new(),
            flushing: Vec::new(),
            stalled: vec![VecDeque::new(); planes as usize],
            stalled_count: 0,
            moves_left: vec![0; count],
            erase_waits: vec![false; count],
            reclaim_below,
            write_reserve: match ssd.reclaim {
                ReclaimTiming::Foreground => reclaim_below.max(reserve),
                ReclaimTiming::Background => reserve,
            },
            link_last: (u64::MAX, 0, 0),
            link_in_free: 0,
            link_out_free: 0,
            memory_free: 0,
            random: Rng::new(seed, "reclamation"),
            counts: FlashCounts::default(),
            page_programs_asked: 0,
            victim: ssd.victim,
            ssd: ssd.clone(),
            options: options.clone(),
        };
        machine.store_mapping()?;
        super::precondition::apply(&mut machine, seed)?;
        if machine.options.begins_full() {
            machine.hold_initial_data();
        }
        (0..planes).for_each(|plane| machine.note_urgency(plane));
        Ok(machine)
    }

    /// Writes the whole mapping table to flash before the run.
    fn store_mapping(&mut self) -> Result<(), SimError> {
        for page in 0..self.directory.len() as u32 {
            let plane = self.plane_of_page(page);
            let Some((address, _)) = self.allocate(plane, FrontierUse::Mapping, MAPPING | page) else {
                return Err(SimError::Full {
                    time_ps: 0,
                    what: "flash has no room for the mapping table".into(),
                });
            };
            self.planes.programmed(address)?;
            self.directory[page as usize] = address.physical;
        }
        Ok(())
    }

    /// Erase counts of all blocks.
    pub fn erased(&self) -> impl Iterator<Item = u32> + '_ {
        self.planes.erased()
    }

    /// Host memory of the drive's tables, bytes: mapping, blocks, spare areas.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.planes.memory_bytes()
            + self.map.memory_bytes()
            + self.mapping.as_ref().map_or(0, MappingCache::memory_bytes)
    }

    /// Size of a sector, the smallest part of a page that is written: at least 512 B, at most 32 a page.
    pub(crate) fn sector_bytes(&self) -> u64 {
        self.sector
    }

    /// Retired blocks.
    #[must_use]
    pub fn retired(&self) -> u64 {
        self.planes.retired()
    }

    /// Busy times of the buses and of the arrays, each summed.
    #[must_use]
    pub fn busy_times(&self) -> (Picos, Picos) {
        (Picos(self.array.bus_busy()), Picos(self.array.array_busy()))
    }

    /// Addressable logical pages.
    pub(super) fn logical_pages(&self) -> u64 {
        self.logical_pages
    }

    /// The times of `bytes` bytes on the link and in the buffer's memory. The last result is cached:
    /// sizes repeat, and the divisions are wide.
    fn times_of(&mut self, bytes: u64) -> (Time, Time) {
        if self.link_last.0 != bytes {
            let link = self.ssd.link.occupancy(deepram_media::Bytes(bytes)).0;
            self.link_last = (bytes, link, self.memory_time(bytes));
        }
        (self.link_last.1, self.link_last.2)
    }

    fn link_ps(&mut self, bytes: u64) -> Time {
        self.times_of(bytes).0
    }

    pub(super) fn memory_ps(&mut self, bytes: u64) -> Time {
        self.times_of(bytes).1
    }

    pub(super) fn full_sectors(&self) -> u32 {
        if self.sectors_per_page == 32 { u32::MAX } else { (1 << self.sectors_per_page) - 1 }
    }

    pub(super) fn bytes_of(&self, sectors: u32) -> u32 {
        sectors.count_ones() * self.sector as u32
    }

    /// Completes a page of a command, and the command with its last page.
    pub(super) fn page_done(
        &mut self,
        slot: u32,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        let job = &mut self.jobs[slot as usize];
        job.pages_left -= 1;
        if job.pages_left > 0 {
            return Ok(());
        }
        let command = job.command;
        if command.op == Op::Read {
            let start = context.now().0.max(self.link_out_free);
            let end = start + self.link_ps(command.len);
            self.link_out_free = end;
            context.schedule(Picos(end + self.ssd.link.latency.0), ParallelEvent(EventKind::Answered(slot)));
        } else {
            context.complete(slot);
        }
        Ok(())
    }

    /// The pages of a command after the first `skip`, each with its sectors.
    #[inline]
    pub(super) fn pages(&self, command: &Command, skip: u64) -> CommandPages {
        CommandPages::new(command, skip, self.by_page, self.by_sector)
    }

    /// Starts a command whose data, if any, have been received.
    fn received(&mut self, slot: Slot, context: &mut Context<ParallelEvent>) -> Result<(), SimError> {
        let command = self.jobs[slot as usize].command;
        match command.op {
            Op::Write if self.ssd.write_cache => {
                self.admitting.push_back((slot, 0));
                self.admit(context)
            }
            Op::Read | Op::Write => {
                let write = command.op == Op::Write;
                let pages = self.pages(&command, 0);
                let count = pages.pages_left();
                self.jobs[slot as usize].pages_left = count as u32;
                if write {
                    self.counts.host_pages += count;
                    self.page_programs_asked += count;
                }
                let mut from_buffer = 0;
                for (logical, sectors) in pages {
                    if !write
                        && !self.buffer.is_empty()
                        && let Some(buffered) = self.buffer.get(&logical)
                        && buffered.sectors & sectors == sectors
                    {
                        self.counts.buffer_read_hits += 1;
                        from_buffer += 1;
                        continue;
                    }
                    self.translate(
                        PageRequest { slot, logical, sectors, write, source: OperationSource::Host },
                        context,
                    )?;
                }
                for _ in 0..from_buffer {
                    self.page_done(slot, context)?;
                }
                Ok(())
            }
            Op::Trim => {
                let page = self.ssd.nand.page.0;
                let first = command.offset.div_ceil(page);
                let last = (command.offset + command.len) / page;
                for logical in first..last {
                    let MappingEntry { physical, .. } = self.map.get(logical as u32);
                    if physical != NONE && !self.buffer.contains_key(&(logical as u32)) {
                        self.planes.invalidate(physical)?;
                        self.map.set(logical as u32, UNMAPPED);
                        self.counts.trimmed_pages += 1;
                    }
                }
                context.complete(slot);
                Ok(())
            }
            Op::Flush => {
                if self.buffer.is_empty() && self.admitting.is_empty() {
                    context.complete(slot);
                } else {
                    self.flushing.push(slot);
                    while self.retained_count > 0 {
                        self.destage_oldest(context)?;
                    }
                }
                Ok(())
            }
        }
    }
}

pub(super) fn full_error(time_ps: Time, plane: u32) -> SimError {
    SimError::Full { time_ps, what: format!("plane {plane} has no free page, and reclamation can free none") }
}

impl Device for ParallelSsd {
    type Event = ParallelEvent;

    fn capacity(&self) -> Bytes {
        Bytes(self.logical_pages * self.ssd.nand.page.0)
    }

    fn queue_limit(&self) -> u64 {
        self.ssd.queue
    }

    #[inline]
    fn prefetch(&self, command: &Command) {
        let logical = self.by_page.of(command.offset) as u32;
        self.map.prefetch(logical);
        if let Some(mapping) = &self.mapping {
            mapping.prefetch(logical);
        }
    }

    fn submit(
        &mut self,
        slot: Slot,
        command: Command,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        let job = CommandProgress { command, pages_left: 0 };
        if self.jobs.len() <= slot as usize {
            self.jobs.resize(slot as usize + 1, job);
        }
        self.jobs[slot as usize] = job;
        if command.len == 0 && command.op != Op::Flush {
            context.complete(slot);
            return Ok(());
        }
        let mut time = context.now().0 + self.ssd.controller.0;
        if command.op == Op::Write {
            let start = context.now().0.max(self.link_in_free);
            let end = start + self.link_ps(command.len);
            self.link_in_free = end;
            time = end + self.ssd.link.latency.0 + self.ssd.controller.0;
        }
        if time == context.now().0 {
            return self.received(slot, context);
        }
        context.schedule(Picos(time), ParallelEvent(EventKind::Received(slot)));
        Ok(())
    }

    fn handle(&mut self, event: ParallelEvent, context: &mut Context<ParallelEvent>) -> Result<(), SimError> {
        match event.0 {
            EventKind::Received(slot) => self.received(slot, context),
            EventKind::Answered(slot) => {
                context.complete(slot);
                Ok(())
            }
            EventKind::Array(event) => self.array_event(event, context),
        }
    }

    fn counts(&self) -> FlashCounts {
        let array = self.array.counts();
        FlashCounts {
            multi_plane: array.multi_plane,
            multi_plane_reads: array.multi_plane_reads,
            multi_plane_programs: array.multi_plane_programs,
            suspensions: array.suspensions,
            ..self.counts
        }
    }

    fn check(&self) -> Result<(), SimError> {
        let counts = &self.counts;
        if self.operations.under_way() == 0 {
            law(
                "pages the host wrote are programmed once each",
                counts.host_programs,
                self.page_programs_asked,
            )?;
            law("no write waits for space at the end", self.stalled_count, 0)?;
            law("pages left in the buffer are retained ones", self.buffer.len() as u64, self.retained_count)?;
            law("no page of the buffer is being destaged at the end", self.buffer_sectors, 0)?;
        }
        if counts.move_programs > counts.move_reads {
            return Err(SimError::Conservation {
                law: "pages moved were read",
                found: format!("{} programs, {} reads", counts.move_programs, counts.move_reads),
            });
        }
        let erased: u64 = self.planes.erased().map(u64::from).sum();
        law("erases add up over the blocks", erased, counts.erases)?;
        let mut mapped = 0;
        for (logical, MappingEntry { physical, .. }) in self.map.iter().filter(|(_, at)| at.physical != NONE)
        {
            mapped += 1;
            if self.planes.stored_key(physical) != logical {
                return Err(SimError::Conservation {
                    law: "a logical page is where the flash says it is",
                    found: format!(
                        "page {logical} at {physical}, which holds {}",
                        self.planes.stored_key(physical)
                    ),
                });
            }
            if self.planes.is_free(self.planes.address(physical).block) {
                return Err(SimError::Conservation {
                    law: "no logical page is in an erased block",
                    found: format!("page {logical} at {physical}"),
                });
            }
        }
        law(
            "no logical page is in two places: live pages are those mapped",
            self.planes.live_pages(),
            mapped + self.directory.len() as u64,
        )
    }
}
