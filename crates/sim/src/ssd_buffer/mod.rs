//! An SSD with a write buffer of DRAM and PCM (hybrid SSD cache): core's [`HybridBuffer`] decides, this
//! module adds time, energy, wear and the drive ([`ParallelSsd`]), which has no buffer of its own.
//!
//! ```text
//!   host --write--> DRAM, PCM --victim--> destage queue --> flash
//!    |  ^             | hit                                  ^ |
//!    |  +---read------+--------------------------------------|-+
//!    +--------------write of a cold page---------------------+
//! ```
//!
//! 1. Each memory serves one page access after the other, in the order in which they are asked for.
//! 2. A write is complete when its data are in a memory, or on flash if it bypasses the buffer. A read is
//!    complete when its data have left the memory or the flash channel. The host's link takes no time: the
//!    drive's `link`, `controller` and `data_cache` are not used.
//! 3. A victim is read from its memory before the write that takes its place. Then it waits in the
//!    destage queue, a volatile memory of the controller, until flash has it; reads find it there. While
//!    the queue is full, writes that would evict another page wait, first come, first served.
//!    A victim that is an erase block enters the queue whole, however full it is; so does the victim of a
//!    read that keeps its page, as reads do not wait.
//! 4. Moves between the memories are asked for after the access of the host that causes them, so they
//!    delay later accesses only.
//! 5. A flush moves every page of DRAM on as a victim, until no dirty one is left, and completes when the
//!    destage queue has written all pages that it held then.
//! 6. A page that a read brings into the buffer is read from flash whole. The state changes at once: a
//!    second read hits, though the data come when flash has answered. Padding of a victim block is read from
//!    flash and then written there.

mod configure;
mod counts;
mod decisions;
mod memory_array;
mod requests;
mod volatile_data;

use std::collections::VecDeque;

use deepram_core::hybrid_buffer::{BufferAction, Memory};
use deepram_core::units::{Bytes, Picos};
use deepram_media::{Ssd, WriteBuffer, endurance_ratio};
use deepram_trace::Op;

use crate::error::SimError;
use crate::flash::{FlashCounts, law};
use crate::flash_array::blocks::Divisor;
use crate::host::{Command, Context, Device, Slot};
use crate::nested::NestedDevice;
use crate::ssd::{ParallelSsd, SsdOptions};

pub use counts::{BufferCounts, BufferReport, Lifetime};
pub use volatile_data::AtRisk;

use decisions::Decisions;
use memory_array::MemoryArray;
use requests::{FlashAccess, Flush, HostRequest, WaitingWrite};
use volatile_data::VolatileData;

/// An event of the device.
#[derive(Debug, Clone, Copy)]
pub enum BufferEvent {
    /// The drive's next event is due.
    Drive,
    /// A victim has been read from its memory: the flash access of this number can start.
    Destage(u32),
}

/// A simulated SSD with a write buffer; see the module.
pub struct BufferedSsd {
    preset: WriteBuffer,
    ssd: Ssd,
    buffer: Decisions,
    arrays: [MemoryArray; 2],
    drive: NestedDevice<ParallelSsd>,
    /// The time of the event that is scheduled for the drive.
    due: Option<Picos>,
    by_page: Divisor,
    by_sector: Divisor,
    page_sectors: u32,
    requests: Vec<HostRequest>,
    /// Flash accesses under way, by reusable numbers.
    accesses: Vec<FlashAccess>,
    spare: Vec<u32>,
    finished: VecDeque<Slot>,
    /// Pages and sectors that wait for flash, in no order, and the number of their sectors.
    queue: Vec<(u64, u32)>,
    queued_sectors: u64,
    /// Padding pages that are being read from flash and written again. They take part in the queue's length.
    padding: u64,
    /// Victims so far: the number of the last one.
    victims: u64,
    waiting: VecDeque<WaitingWrite>,
    /// Trimmed pages of each memory.
    trimmed: [u64; 2],
    flushes: Vec<Flush>,
    actions: Vec<BufferAction>,
    at_risk: VolatileData,
    now: u64,
    counts: BufferCounts,
    base: BufferCounts,
    flash_base: FlashCounts,
}

impl BufferedSsd {
    /// Builds the device of a buffer's and a drive's preset. `options` are the drive's.
    ///
    /// # Errors
    /// A preset or the options are invalid, or do not fit together.
    pub fn new(preset: &WriteBuffer, ssd: &Ssd, options: &SsdOptions, seed: u64) -> Result<Self, SimError> {
        let page = ssd.nand.page;
        if preset.dram.page != page {
            return Err(SimError::config(
                "dram.page",
                format!(
                    "is {} B, but a page of the drive has {} B; they must be equal",
                    preset.dram.page.0, page.0
                ),
            ));
        }
        if ssd.write_cache {
            return Err(SimError::config(
                "drive.write_cache",
                "must be false: the buffer of this system is the drive's only one",
            ));
        }
        let drive = ParallelSsd::new(ssd, options, seed)?;
        let sector = drive.sector_bytes();
        let page_sectors = (page.0 / sector) as u32;
        let array = |of| MemoryArray::new(of, page_sectors, preset.access_charge);
        Ok(Self {
            buffer: configure::decisions(preset, ssd, page_sectors)?,
            arrays: [array(&preset.dram), array(&preset.pcm)],
            drive: NestedDevice::new(drive),
            due: None,
            by_page: Divisor::new(page.0),
            by_sector: Divisor::new(sector),
            page_sectors,
            requests: Vec::new(),
            accesses: Vec::new(),
            spare: Vec::new(),
            finished: VecDeque::new(),
            queue: Vec::new(),
            queued_sectors: 0,
            padding: 0,
            victims: 0,
            waiting: VecDeque::new(),
            trimmed: [0; 2],
            flushes: Vec::new(),
            actions: Vec::new(),
            at_risk: VolatileData::new(),
            now: 0,
            counts: BufferCounts::default(),
            base: BufferCounts::default(),
            flash_base: FlashCounts::default(),
            preset: preset.clone(),
            ssd: ssd.clone(),
        })
    }

    /// The drive behind the buffer.
    pub fn drive(&self) -> &ParallelSsd {
        self.drive.device()
    }

    /// The buffer's counters since measuring began.
    #[must_use]
    pub fn buffer_counts(&self) -> BufferCounts {
        self.counts.since(&self.base)
    }

    /// The report over `time`, the measured time.
    #[must_use]
    pub fn report(&self, time: Picos) -> BufferReport {
        let end = self.buffer.thresholds();
        let flash = self.drive.device().counts().since(&self.flash_base);
        let (pcm, nand) = (&self.preset.pcm, &self.ssd.nand);
        let busy = |array: &MemoryArray| {
            if time.0 == 0 { 0.0 } else { array.counts().busy as f64 / time.0 as f64 }
        };
        BufferReport {
            hotness: end.hotness,
            coolness: end.coolness,
            closed: end.closed,
            write_disparity: self.buffer.write_disparity(),
            endurance_ratio: endurance_ratio(
                (pcm.size, pcm.endurance.unwrap_or(0)),
                (self.ssd.raw_bytes(), nand.endurance),
            ),
            at_risk: self.at_risk.report(time.0),
            pcm_dirty_bytes: self.buffer.dirty_sectors(Memory::Pcm) * self.by_sector.number,
            dram_busy: busy(&self.arrays[Memory::Dram as usize]),
            pcm_busy: busy(&self.arrays[Memory::Pcm as usize]),
            lifetime: Lifetime::new(
                (pcm.size, pcm.endurance.unwrap_or(0), self.buffer_counts().pcm_page_writes * pcm.page.0),
                (self.ssd.raw_bytes(), nand.endurance, flash.programs() * nand.page.0),
                time.seconds(),
            ),
        }
    }

    /// Energy over `time` by component: accesses, then leakage, in picojoules.
    pub(crate) fn energy_pj(&self, time: Picos) -> [(&'static str, f64, f64); 3] {
        let [dram, pcm] = &self.arrays;
        let of = |name, array: &MemoryArray| {
            let (dynamic, leakage) = array.energy_pj(time.0);
            (name, dynamic, leakage)
        };
        let tags = self.preset.tag_power().0 * time.0 as f64;
        [of("buffer dram", dram), of("buffer pcm", pcm), ("buffer tags", 0.0, tags)]
    }

    /// Updates the bytes that a power cut would lose.
    fn update_at_risk(&mut self) {
        let sectors = self.buffer.dirty_sectors(Memory::Dram) + self.queued_sectors;
        self.at_risk.set(sectors * self.by_sector.number, self.now);
    }

    /// Runs the drive's events that are due.
    fn advance_drive(&mut self, context: &mut Context<BufferEvent>) -> Result<(), SimError> {
        self.finished.extend(self.drive.advance(context.now())?);
        self.finish_accesses(context)
    }

    /// Starts a flash access.
    fn access_flash(&mut self, number: u32, context: &mut Context<BufferEvent>) -> Result<(), SimError> {
        let FlashAccess { page, sectors, write, .. } = self.accesses[number as usize];
        // The drive's capacity bounds the page numbers.
        let target = (page as u32, sectors);
        let done = self
            .drive
            .call(context.now(), |drive, context| drive.access_page(number, target, write, context))?;
        self.finished.extend(done);
        Ok(())
    }

    /// Schedules the drive's next event.
    fn schedule_drive(&mut self, context: &mut Context<BufferEvent>) {
        if let Some(next) = self.drive.next()
            && self.due.is_none_or(|due| next < due || due <= context.now())
        {
            self.due = Some(next);
            context.schedule(next, BufferEvent::Drive);
        }
    }
}

impl Device for BufferedSsd {
    type Event = BufferEvent;

    fn capacity(&self) -> Bytes {
        self.drive.device().capacity()
    }

    fn queue_limit(&self) -> u64 {
        self.ssd.queue
    }

    fn submit(
        &mut self,
        slot: Slot,
        command: Command,
        context: &mut Context<BufferEvent>,
    ) -> Result<(), SimError> {
        self.now = context.now().0;
        if self.requests.len() <= slot as usize {
            self.requests.resize(slot as usize + 1, HostRequest::default());
        }
        // The request holds itself open until all of its pages have been started.
        self.requests[slot as usize] = HostRequest { command, parts: 1, ready: self.now };
        match command.op {
            Op::Read => self.read(slot, context)?,
            Op::Write => self.write(slot, context)?,
            Op::Trim => self.trim(slot, context)?,
            Op::Flush => self.flush(slot, context)?,
        }
        self.finish_accesses(context)
    }

    fn handle(&mut self, event: BufferEvent, context: &mut Context<BufferEvent>) -> Result<(), SimError> {
        self.now = context.now().0;
        match event {
            BufferEvent::Drive => self.advance_drive(context),
            BufferEvent::Destage(number) => {
                self.access_flash(number, context)?;
                self.finish_accesses(context)
            }
        }
    }

    fn begin_measuring(&mut self) {
        self.base = self.counts;
        self.flash_base = self.drive.device().counts();
        self.arrays.iter_mut().for_each(MemoryArray::begin_measuring);
        self.at_risk.begin_measuring(self.now);
    }

    fn counts(&self) -> FlashCounts {
        self.drive.device().counts()
    }

    fn check(&self) -> Result<(), SimError> {
        let did = &self.counts;
        law(
            "every page that the host wrote went to a memory or to flash",
            did.write_hits_dram + did.write_hits_pcm + did.fills_dram + did.fills_pcm + did.bypasses,
            did.page_writes,
        )?;
        law(
            "each page that entered DRAM is there or has left it",
            did.fills_dram + did.read_fills + did.promotions,
            self.buffer.pages_in(Memory::Dram) as u64
                + did.demotions
                + did.destages_dram
                + did.clean_evictions
                + self.trimmed[0],
        )?;
        law(
            "each page that entered PCM is there or has left it",
            did.fills_pcm + did.demotions,
            self.buffer.pages_in(Memory::Pcm) as u64 + did.promotions + did.destages_pcm + self.trimmed[1],
        )?;
        let pcm = &self.arrays[Memory::Pcm as usize];
        law("the wear of the PCM is its writes", did.pcm_page_writes, pcm.total_writes())?;
        law("the bytes at risk are those of DRAM and queue", self.at_risk.bytes(), {
            let sectors = self.buffer.dirty_sectors(Memory::Dram) + self.queued_sectors;
            sectors * self.by_sector.number
        })?;
        if self.accesses.len() == self.spare.len() {
            law("no victim is left in the destage queue", self.queue.len() as u64, 0)?;
            law("no write waits for the destage queue", self.waiting.len() as u64, 0)?;
            law(
                "flash has programmed every victim, its padding and every write that bypassed the buffer",
                self.drive.device().counts().host_programs,
                did.destages_dram + did.destages_pcm + did.padding + did.bypasses,
            )?;
        }
        self.drive.check()
    }
}
