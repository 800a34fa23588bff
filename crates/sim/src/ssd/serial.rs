//! An SSD of elements behind one host channel, each element doing one operation at a time: the model of
//! DiskSim's SSD extension (Agrawal et al.).
//!
//! ```text
//!   host --write: transfer--> pages to elements --all done--> complete
//!   host ------- read ------> pages to elements --all done--> transfer --> complete
//! ```
//!
//! 1. The channel moves one command's data at a time. Completed commands go before new ones, new ones in
//!    the order of arrival. Reads need the channel for their data only.
//! 2. An element serves its pages in order. A page takes array time, and the transfer of the whole page
//!    with its spare bytes between register and controller.
//! 3. An element with several parallel units serves all its waiting pages, reads first, in rounds: one
//!    page per unit and round, with the array operations in parallel and the transfers one after
//!    another.
//! 4. Before an element serves a page, it cleans any plane that is short of free blocks.

use deepram_core::units::{Bytes, Picos};
use std::collections::VecDeque;

use deepram_media::{NandOp, Ssd, VictimChoice};
use deepram_trace::Op;

use super::element::{Element, ElementShape};
use crate::error::SimError;
use crate::flash::{FlashCounts, law};
use crate::host::{Command, Context, Device, Slot};

/// An event of the drive.
#[derive(Debug, Clone, Copy)]
pub enum SerialEvent {
    /// The channel has moved a command's data.
    TransferDone(Slot),
    /// An element has served a page of a command.
    Served(u32, Slot),
    /// The element's batch or cleaning has ended.
    Free(u32),
}

#[derive(Debug, Clone, Copy)]
struct QueuedPage {
    slot: Slot,
    logical: u32,
    write: bool,
}

#[derive(Debug, Clone, Copy)]
struct CommandProgress {
    command: Command,
    pages_left: u32,
}

struct ElementQueue {
    waiting: VecDeque<QueuedPage>,
    busy: bool,
}

/// Maximum pages of a batch of an element with several units.
const BATCH: usize = 100;

/// A simulated drive of serial elements.
pub struct SerialSsd {
    elements: Vec<Element>,
    units: Vec<ElementQueue>,
    jobs: Vec<CommandProgress>,
    arrived: VecDeque<Slot>,
    finished: VecDeque<Slot>,
    channel_busy: bool,
    page: u64,
    stride: u64,
    logical_pages: u64,
    parallel: u32,
    planes: u32,
    batch: usize,
    queue: u64,
    read_ps: u64,
    transfer_ps: u64,
    controller_ps: u64,
    link: deepram_media::Link,
    page_link_ps: u64,
    host_reads: u64,
    issued_pages: u64,
    busy_ps: u64,
}

impl SerialSsd {
    /// Builds the drive of a preset.
    ///
    /// # Errors
    /// The preset requires a feature that this model lacks.
    pub fn new(ssd: &Ssd) -> Result<Self, SimError> {
        let nand = &ssd.nand;
        if ssd.victim != VictimChoice::Greedy {
            return Err(SimError::config(
                "victim",
                "a drive with one pool per package is cleaned greedily; use greedy",
            ));
        }
        let planes = checked_u32("nand.planes", nand.dies * nand.planes)?;
        let parallel = checked_u32("parallel_units", ssd.units_per_package())?;
        if parallel == 0 || !planes.is_multiple_of(parallel) {
            return Err(SimError::config(
                "parallel_units",
                format!("must divide the {planes} planes of a package"),
            ));
        }
        let blocks = checked_u32("nand.blocks_per_plane", nand.blocks_per_plane)?;
        // Whole blocks of a plane, as DiskSim counts its percentages.
        let share = |fraction: f64| (f64::from(blocks) * fraction + 1e-9).floor() as u32;
        let shape = ElementShape {
            planes,
            blocks_per_plane: blocks,
            pages_per_block: checked_u32("nand.pages_per_block", nand.pages_per_block)?,
            summary: ssd.block_summary.is_some(),
            reserved_per_plane: share(ssd.over_provisioning.0),
            clean_at: share(ssd.reclaim_below.0),
            read_ps: nand.array_time(NandOp::Read).0,
            program_ps: nand.array_time(NandOp::Program).0,
            erase_ps: nand.array_time(NandOp::Erase).0,
            summary_bus_ps: ssd.block_summary.map_or(0, |bytes| nand.transfer(bytes).0),
        };
        let count = checked_u32("channels", ssd.packages())?;
        let elements = (0..count).map(|_| Element::new(shape)).collect::<Result<Vec<_>, _>>()?;
        let logical = elements.first().map_or(0, |_| shape.logical_pages()) * u64::from(count);
        Ok(Self {
            units: elements.iter().map(|_| ElementQueue { waiting: VecDeque::new(), busy: false }).collect(),
            elements,
            jobs: Vec::new(),
            arrived: VecDeque::new(),
            finished: VecDeque::new(),
            channel_busy: false,
            page: nand.page.0,
            stride: ssd.stride.max(1),
            logical_pages: logical,
            parallel,
            planes,
            batch: BATCH.min((shape.clean_at * shape.data_pages()).max(1) as usize),
            queue: ssd.queue,
            read_ps: shape.read_ps,
            transfer_ps: nand.page_transfer().0,
            controller_ps: ssd.controller.0,
            page_link_ps: ssd.link.occupancy(nand.page).0 + ssd.link.latency.0,
            link: ssd.link.clone(),
            host_reads: 0,
            issued_pages: 0,
            busy_ps: 0,
        })
    }

    /// Erase counts of all blocks.
    pub fn erased(&self) -> impl Iterator<Item = u32> + '_ {
        self.elements.iter().flat_map(Element::erased)
    }

    /// Busy time of the elements, summed over the elements.
    #[must_use]
    pub fn busy_time(&self) -> Picos {
        Picos(self.busy_ps)
    }

    fn link_ps(&self, bytes: u64) -> u64 {
        if bytes == self.page {
            self.page_link_ps
        } else {
            self.link.occupancy(deepram_media::Bytes(bytes)).0 + self.link.latency.0
        }
    }

    /// Gives the channel to the next command while it is free.
    fn serve_channel(&mut self, context: &mut Context<SerialEvent>) -> Result<(), SimError> {
        while !self.channel_busy {
            if let Some(slot) = self.finished.pop_front() {
                let command = self.jobs[slot as usize].command;
                if command.op == Op::Read {
                    self.move_data(slot, command.len, context);
                } else {
                    context.complete(slot);
                }
            } else if let Some(slot) = self.arrived.pop_front() {
                let command = self.jobs[slot as usize].command;
                if command.op == Op::Write && command.len > 0 {
                    self.move_data(slot, command.len, context);
                } else {
                    self.issue(slot, context)?;
                }
            } else {
                break;
            }
        }
        Ok(())
    }

    fn move_data(&mut self, slot: Slot, bytes: u64, context: &mut Context<SerialEvent>) {
        self.channel_busy = true;
        let time = self.controller_ps + self.link_ps(bytes);
        context.schedule(Picos(context.now().0 + time), SerialEvent::TransferDone(slot));
    }

    /// The element of a logical page, and the page's number in the element.
    #[inline]
    fn element_of(&self, page: u64) -> (usize, u32) {
        let (count, stride) = (self.elements.len() as u64, self.stride);
        let element = (page / stride) % count;
        let logical = (page - page % (stride * count)) / count + page % stride;
        (element as usize, logical as u32)
    }

    /// Splits a command into pages, and queues the pages at their elements.
    fn issue(&mut self, slot: Slot, context: &mut Context<SerialEvent>) -> Result<(), SimError> {
        let command = self.jobs[slot as usize].command;
        if command.len == 0 || command.op == Op::Flush {
            self.finished.push_back(slot);
            return Ok(());
        }
        let first = command.offset / self.page;
        let last = (command.offset + command.len - 1) / self.page;
        if command.op == Op::Trim {
            // Whole pages only; a part of a page stays.
            let first = command.offset.div_ceil(self.page);
            let end = (command.offset + command.len) / self.page;
            for page in first..end {
                let (element, logical) = self.element_of(page);
                self.elements[element].trim(logical)?;
            }
            self.finished.push_back(slot);
            return Ok(());
        }
        let write = command.op == Op::Write;
        self.jobs[slot as usize].pages_left = (last - first + 1) as u32;
        self.issued_pages += if write { last - first + 1 } else { 0 };
        for page in first..=last {
            let (element, logical) = self.element_of(page);
            self.units[element].waiting.push_back(QueuedPage { slot, logical, write });
            self.activate(element, context)?;
        }
        Ok(())
    }

    fn activate(&mut self, element: usize, context: &mut Context<SerialEvent>) -> Result<(), SimError> {
        let unit = &mut self.units[element];
        if unit.busy || unit.waiting.is_empty() {
            return Ok(());
        }
        let now = context.now().0;
        if let Some(time) = self.clean(element).map_err(|error| with_time(error, now))? {
            self.units[element].busy = true;
            self.busy_ps += time;
            context.schedule(Picos(now + time), SerialEvent::Free(element as u32));
            return Ok(());
        }
        if self.parallel > 1 {
            return self.serve_batch(element, context);
        }
        let Some(page) = self.units[element].waiting.pop_front() else { return Ok(()) };
        let array = if page.write {
            self.elements[element].write(page.logical).map_err(|error| with_time(error, now))?.0
        } else {
            self.host_reads += 1;
            self.read_ps
        };
        let time = array + self.transfer_ps;
        self.units[element].busy = true;
        self.busy_ps += time;
        context.schedule(Picos(now + time), SerialEvent::Served(element as u32, page.slot));
        Ok(())
    }

    /// Cleans one plane in each parallel unit that needs it, in parallel. Returns the longest time;
    /// `None` if no plane needed cleaning.
    fn clean(&mut self, element: usize) -> Result<Option<u64>, SimError> {
        let per_unit = self.planes / self.parallel;
        let mut longest = None;
        for unit in 0..self.parallel {
            let planes = unit * per_unit..(unit + 1) * per_unit;
            longest = longest.max(self.elements[element].clean(planes)?);
        }
        Ok(longest)
    }

    /// Serves the waiting pages of an element with several units (3 above).
    fn serve_batch(&mut self, element: usize, context: &mut Context<SerialEvent>) -> Result<(), SimError> {
        let now = context.now().0;
        // The number of pages that the planes can certainly take before they must be cleaned again.
        let most = self.batch;
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        while let Some(page) = self.units[element].waiting.pop_front() {
            if page.write {
                writes.push(page);
            } else {
                reads.push(page);
            }
            if reads.len() == BATCH || writes.len() == most {
                break;
            }
        }
        let per_unit = self.planes / self.parallel;
        let mut start = now;
        for pages in [reads, writes] {
            let mut units: Vec<VecDeque<(QueuedPage, u64)>> = vec![VecDeque::new(); self.parallel as usize];
            for page in pages {
                let (plane, array) = if page.write {
                    let (array, plane) =
                        self.elements[element].write(page.logical).map_err(|error| with_time(error, now))?;
                    (plane, array)
                } else {
                    self.host_reads += 1;
                    (self.elements[element].plane_of(page.logical).unwrap_or(0), self.read_ps)
                };
                units[(plane / per_unit) as usize].push_back((page, array));
            }
            while units.iter().any(|unit| !unit.is_empty()) {
                let mut end = start;
                let mut moved = 0;
                for unit in &mut units {
                    if let Some((page, array)) = unit.pop_front() {
                        moved += 1;
                        let done = start + array + moved * self.transfer_ps;
                        end = end.max(done);
                        context.schedule(Picos(done), SerialEvent::Served(element as u32, page.slot));
                    }
                }
                start = end;
            }
        }
        self.units[element].busy = true;
        self.busy_ps += start - now;
        context.schedule(Picos(start), SerialEvent::Free(element as u32));
        Ok(())
    }
}

/// Sets the time of a [`SimError::Full`].
fn with_time(error: SimError, now: u64) -> SimError {
    match error {
        SimError::Full { what, .. } => SimError::Full { time_ps: now, what },
        other => other,
    }
}

/// Converts a count to 32 bits, or reports that it is too large.
pub(crate) fn checked_u32(key: &str, value: u64) -> Result<u32, SimError> {
    u32::try_from(value)
        .map_err(|_| SimError::config(key, format!("{value} is too many: at most {}", u32::MAX)))
}

impl Device for SerialSsd {
    type Event = SerialEvent;

    fn capacity(&self) -> Bytes {
        Bytes(self.logical_pages * self.page)
    }

    fn queue_limit(&self) -> u64 {
        self.queue
    }

    fn prefetch(&self, command: &Command) {
        let (element, logical) = self.element_of(command.offset / self.page);
        self.elements[element].prefetch(logical);
    }

    fn submit(
        &mut self,
        slot: Slot,
        command: Command,
        context: &mut Context<SerialEvent>,
    ) -> Result<(), SimError> {
        let job = CommandProgress { command, pages_left: 0 };
        if self.jobs.len() <= slot as usize {
            self.jobs.resize(slot as usize + 1, job);
        }
        self.jobs[slot as usize] = job;
        self.arrived.push_back(slot);
        self.serve_channel(context)
    }

    fn handle(&mut self, event: SerialEvent, context: &mut Context<SerialEvent>) -> Result<(), SimError> {
        match event {
            SerialEvent::TransferDone(slot) => {
                self.channel_busy = false;
                if self.jobs[slot as usize].command.op == Op::Read {
                    context.complete(slot);
                } else {
                    self.issue(slot, context)?;
                }
                self.serve_channel(context)
            }
            SerialEvent::Served(element, slot) => {
                if self.parallel == 1 {
                    self.units[element as usize].busy = false;
                }
                let job = &mut self.jobs[slot as usize];
                job.pages_left -= 1;
                if job.pages_left == 0 {
                    self.finished.push_back(slot);
                    self.serve_channel(context)?;
                }
                self.activate(element as usize, context)
            }
            SerialEvent::Free(element) => {
                self.units[element as usize].busy = false;
                self.activate(element as usize, context)
            }
        }
    }

    fn counts(&self) -> FlashCounts {
        let mut counts = FlashCounts { host_reads: self.host_reads, ..FlashCounts::default() };
        for element in &self.elements {
            let one = &element.counts;
            counts.host_programs += one.host_programs;
            counts.move_reads += one.move_reads;
            counts.move_programs += one.move_programs;
            counts.summary_programs += one.summary_programs;
            counts.erases += one.erases;
            counts.host_pages += one.host_pages;
            counts.trimmed_pages += one.trimmed_pages;
        }
        counts
    }

    fn check(&self) -> Result<(), SimError> {
        let counts = self.counts();
        law("pages read by reclamation are programmed again", counts.move_reads, counts.move_programs)?;
        let waiting: u64 =
            self.units.iter().flat_map(|unit| &unit.waiting).filter(|page| page.write).count() as u64;
        law(
            "pages the host wrote are programmed once each",
            counts.host_programs + waiting,
            self.issued_pages,
        )?;
        let erased: u64 = self.erased().map(u64::from).sum();
        law("erases add up over the blocks", erased, counts.erases)?;
        self.elements.iter().try_for_each(Element::check)
    }
}
