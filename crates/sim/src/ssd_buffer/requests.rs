//! Requests of the host, and the flash accesses that they cause.

use deepram_core::hybrid_buffer::{BufferAction, BufferRead, BufferWrite, Memory};
use deepram_core::units::Picos;
use deepram_media::DestageRule;
use deepram_trace::Op;

use super::{BufferEvent, BufferedSsd};
use crate::engine::Time;
use crate::error::SimError;
use crate::host::{Command, Context, Device, Event, Slot};
use crate::ssd::command_pages::CommandPages;

/// A request of the host.
#[derive(Debug, Clone, Copy)]
pub(super) struct HostRequest {
    pub(super) command: Command,
    /// Parts that must complete: flash accesses, and the request itself until all pages were started.
    pub(super) parts: u32,
    /// The end of the accesses of memories so far.
    pub(super) ready: Time,
}

impl Default for HostRequest {
    fn default() -> Self {
        Self { command: Command { op: Op::Flush, offset: 0, len: 0 }, parts: 0, ready: 0 }
    }
}

/// A write that waits for the destage queue: its request, and the number of its pages that are done.
#[derive(Debug, Clone, Copy)]
pub(super) struct WaitingWrite {
    slot: Slot,
    done: u64,
}

/// A flush that waits for victims.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flush {
    slot: Slot,
    /// The last victim that it waits for, and the number of victims left.
    last: u64,
    left: u64,
}

/// The purpose of a flash access.
#[derive(Debug, Clone, Copy)]
pub(super) enum Purpose {
    /// A part of this request.
    Request(Slot),
    /// The rest of a page that this request writes, on its way to this memory.
    Fetch(Slot, Memory),
    /// A page that this request reads and that enters this memory.
    Fill(Slot, Memory),
    /// Padding of a victim block: read, then written.
    Pad,
    /// A victim, by its number; the request completes with it if there is one.
    Destage(u64, Option<Slot>),
}

/// A read or write of flash.
#[derive(Debug, Clone, Copy)]
pub(super) struct FlashAccess {
    pub(super) page: u64,
    pub(super) sectors: u32,
    pub(super) write: bool,
    pub(super) purpose: Purpose,
}

impl BufferedSsd {
    fn pages_of(&self, slot: Slot, skip: u64) -> CommandPages {
        CommandPages::new(&self.requests[slot as usize].command, skip, self.by_page, self.by_sector)
    }

    #[inline]
    fn ready_at(&mut self, slot: Slot, end: Time) {
        let ready = &mut self.requests[slot as usize].ready;
        *ready = (*ready).max(end);
    }

    /// Ends a part of a request, and the request with its last part.
    #[inline]
    fn end_part(&mut self, slot: Slot, context: &mut Context<BufferEvent>) {
        let request = &mut self.requests[slot as usize];
        request.parts -= 1;
        if request.parts > 0 {
            return;
        }
        if request.ready > self.now {
            context.queue.push(Picos(request.ready), Event::Complete(slot));
        } else {
            context.complete(slot);
        }
    }

    /// Adds a flash access. Returns its number.
    fn new_access(&mut self, access: FlashAccess) -> u32 {
        if let Purpose::Request(slot)
        | Purpose::Fetch(slot, _)
        | Purpose::Fill(slot, _)
        | Purpose::Destage(_, Some(slot)) = access.purpose
        {
            self.requests[slot as usize].parts += 1;
        }
        match self.spare.pop() {
            Some(number) => {
                self.accesses[number as usize] = access;
                number
            }
            None => {
                self.accesses.push(access);
                (self.accesses.len() - 1) as u32
            }
        }
    }

    fn start_access(
        &mut self,
        access: FlashAccess,
        context: &mut Context<BufferEvent>,
    ) -> Result<(), SimError> {
        let number = self.new_access(access);
        self.access_flash(number, context)
    }

    pub(super) fn read(&mut self, slot: Slot, context: &mut Context<BufferEvent>) -> Result<(), SimError> {
        for (page, sectors) in self.pages_of(slot, 0) {
            let page = u64::from(page);
            self.counts.page_reads += 1;
            let mut actions = std::mem::take(&mut self.actions);
            let outcome = self.buffer.read(page, sectors, &mut actions);
            if !actions.is_empty() {
                for action in actions.drain(..) {
                    self.perform(action, Some(slot), (page, sectors), context)?;
                }
                self.update_at_risk();
            }
            self.actions = actions;
            let mut purpose = Purpose::Request(slot);
            let missing = match outcome {
                BufferRead::Hit(memory) => {
                    self.read_memory(slot, memory, sectors);
                    match memory {
                        Memory::Dram => self.counts.read_hits_dram += 1,
                        Memory::Pcm => self.counts.read_hits_pcm += 1,
                    }
                    continue;
                }
                BufferRead::Partial(memory, valid) => {
                    self.read_memory(slot, memory, valid);
                    self.counts.read_hits_partial += 1;
                    sectors & !valid
                }
                BufferRead::Filled(memory) => {
                    self.counts.read_fills += 1;
                    purpose = Purpose::Fill(slot, memory);
                    self.full_page()
                }
                BufferRead::Miss => sectors,
            };
            let queued = |(at, valid): &(u64, u32)| if *at == page { *valid } else { 0 };
            let missing = missing & !self.queue.iter().map(queued).fold(0, |all, valid| all | valid);
            if missing == 0 {
                self.counts.read_hits_queue += 1;
                self.fill(purpose);
                continue;
            }
            self.start_access(FlashAccess { page, sectors: missing, write: false, purpose }, context)?;
        }
        self.sample_thresholds();
        self.end_part(slot, context);
        Ok(())
    }

    /// The sectors of a whole page.
    fn full_page(&self) -> u32 {
        u32::MAX >> (32 - self.page_sectors)
    }

    /// Writes a page that was read for [`Purpose::Fill`] to its memory.
    fn fill(&mut self, purpose: Purpose) {
        if let Purpose::Fill(_, memory) = purpose {
            self.arrays[memory as usize].write(self.page_sectors, self.now);
        }
    }

    fn read_memory(&mut self, slot: Slot, memory: Memory, sectors: u32) {
        let end = self.arrays[memory as usize].read(sectors.count_ones(), self.now);
        self.ready_at(slot, end);
    }

    /// Writes the pages of a request after the first `done`. Returns the number of pages that are done if
    /// the next one must wait for the destage queue.
    fn write_pages(
        &mut self,
        slot: Slot,
        done: u64,
        context: &mut Context<BufferEvent>,
    ) -> Result<Option<u64>, SimError> {
        for (page, written) in self.pages_of(slot, done).zip(done..) {
            if self.queue_is_full() && self.buffer.write_destages(page.0.into()) {
                return Ok(Some(written));
            }
            self.write_page(slot, page, context)?;
        }
        self.update_at_risk();
        self.end_part(slot, context);
        Ok(None)
    }

    pub(super) fn write(&mut self, slot: Slot, context: &mut Context<BufferEvent>) -> Result<(), SimError> {
        if let Some(done) = self.write_pages(slot, 0, context)? {
            self.counts.waits_for_queue += 1;
            self.waiting.push_back(WaitingWrite { slot, done });
        }
        Ok(())
    }

    fn queue_is_full(&self) -> bool {
        self.queue.len() as u64 + self.padding >= self.preset.destage_queue
    }

    fn write_page(
        &mut self,
        slot: Slot,
        (page, sectors): (u32, u32),
        context: &mut Context<BufferEvent>,
    ) -> Result<(), SimError> {
        let page = u64::from(page);
        let mut actions = std::mem::take(&mut self.actions);
        self.counts.page_writes += 1;
        match self.buffer.write(page, sectors, &mut actions) {
            BufferWrite::Hit(Memory::Dram) => self.counts.write_hits_dram += 1,
            BufferWrite::Hit(Memory::Pcm) => self.counts.write_hits_pcm += 1,
            BufferWrite::Filled(Memory::Dram) => self.counts.fills_dram += 1,
            BufferWrite::Filled(Memory::Pcm) => self.counts.fills_pcm += 1,
            BufferWrite::Bypassed => self.counts.bypasses += 1,
        }
        for action in actions.drain(..) {
            self.perform(action, Some(slot), (page, sectors), context)?;
        }
        self.actions = actions;
        self.sample_thresholds();
        Ok(())
    }

    /// Performs an action of a write or read of a page; of a flush if there is no request.
    fn perform(
        &mut self,
        action: BufferAction,
        slot: Option<Slot>,
        (page, sectors): (u64, u32),
        context: &mut Context<BufferEvent>,
    ) -> Result<(), SimError> {
        let [dram, pcm] = &mut self.arrays;
        match action {
            BufferAction::Write(memory) => {
                self.counts.pcm_page_writes += u64::from(memory == Memory::Pcm);
                let end = self.arrays[memory as usize].write(sectors.count_ones(), self.now);
                if let Some(slot) = slot {
                    self.ready_at(slot, end);
                }
                Ok(())
            }
            BufferAction::Promote { sectors } => {
                self.counts.promotions += 1;
                let read = pcm.read(sectors.count_ones(), self.now);
                dram.write(sectors.count_ones(), read);
                Ok(())
            }
            BufferAction::Demote { sectors } => {
                self.counts.demotions += 1;
                self.counts.pcm_page_writes += 1;
                let read = dram.read(sectors.count_ones(), self.now);
                pcm.write(sectors.count_ones(), read);
                Ok(())
            }
            BufferAction::Bypass => match slot {
                Some(slot) => {
                    let purpose = Purpose::Request(slot);
                    self.start_access(FlashAccess { page, sectors, write: true, purpose }, context)
                }
                None => Ok(()),
            },
            BufferAction::Fetch { to, sectors } => match slot {
                Some(slot) => {
                    self.counts.fetches += 1;
                    let purpose = Purpose::Fetch(slot, to);
                    self.start_access(FlashAccess { page, sectors, write: false, purpose }, context)
                }
                None => Ok(()),
            },
            BufferAction::Destage { page, sectors, from } => {
                match from {
                    Memory::Dram => self.counts.destages_dram += 1,
                    Memory::Pcm => self.counts.destages_pcm += 1,
                }
                self.counts.partial_destages += u64::from(sectors.count_ones() < self.page_sectors);
                self.victims += 1;
                self.queue.push((page, sectors));
                self.queued_sectors += u64::from(sectors.count_ones());
                let read = self.arrays[from as usize].read(sectors.count_ones(), self.now);
                let waits = slot.filter(|_| self.preset.destage == DestageRule::Synchronous);
                let purpose = Purpose::Destage(self.victims, waits);
                let number = self.new_access(FlashAccess { page, sectors, write: true, purpose });
                context.schedule(Picos(read), BufferEvent::Destage(number));
                Ok(())
            }
            BufferAction::Pad { page } => self.pad(page, context),
            BufferAction::Drop { .. } => {
                self.counts.clean_evictions += 1;
                Ok(())
            }
        }
    }

    /// Reads a page from flash, to write it there again.
    fn pad(&mut self, page: u64, context: &mut Context<BufferEvent>) -> Result<(), SimError> {
        // The last block of the drive can be cut off by the drive's capacity.
        if page >= self.by_page.of(self.drive.device().capacity().0) {
            return Ok(());
        }
        self.counts.padding += 1;
        self.padding += 1;
        let sectors = self.full_page();
        self.start_access(FlashAccess { page, sectors, write: false, purpose: Purpose::Pad }, context)
    }

    /// Records the thresholds if a period has ended.
    #[inline]
    fn sample_thresholds(&mut self) {
        let ended = self.buffer.periods() - self.counts.periods;
        if ended > 0 {
            let now = self.buffer.thresholds();
            self.counts.periods += ended;
            self.counts.periods_closed += ended * u64::from(now.closed);
            self.counts.hotness_sum += ended * u64::from(now.hotness);
            self.counts.coolness_sum += ended * u64::from(now.coolness);
        }
    }

    /// Drops the pages that lie in the request as a whole, from the buffer and from flash.
    pub(super) fn trim(&mut self, slot: Slot, context: &mut Context<BufferEvent>) -> Result<(), SimError> {
        let Command { offset, len, .. } = self.requests[slot as usize].command;
        let page = self.by_page.number;
        for page in offset.div_ceil(page)..(offset + len) / page {
            if let Some(memory) = self.buffer.discard(page) {
                self.trimmed[memory as usize] += 1;
            }
        }
        self.update_at_risk();
        let purpose = Purpose::Request(slot);
        let number = self.new_access(FlashAccess { page: 0, sectors: 0, write: true, purpose });
        let command = self.requests[slot as usize].command;
        self.finished.extend(self.drive.submit(number, command, context.now())?);
        self.end_part(slot, context);
        Ok(())
    }

    /// Moves all pages out of DRAM, and waits for the victims in the destage queue.
    pub(super) fn flush(&mut self, slot: Slot, context: &mut Context<BufferEvent>) -> Result<(), SimError> {
        let mut actions = std::mem::take(&mut self.actions);
        while self.buffer.evict_for_flush(&mut actions) {
            for action in actions.drain(..) {
                self.perform(action, None, (0, 0), context)?;
            }
        }
        self.actions = actions;
        self.update_at_risk();
        let end = self.arrays[Memory::Pcm as usize].free();
        self.ready_at(slot, end);
        let left = self.queue.len() as u64;
        if left == 0 {
            self.end_part(slot, context);
        } else {
            self.flushes.push(Flush { slot, last: self.victims, left });
        }
        Ok(())
    }

    /// Handles the flash accesses that have ended, then schedules the drive's next event.
    pub(super) fn finish_accesses(&mut self, context: &mut Context<BufferEvent>) -> Result<(), SimError> {
        while let Some(number) = self.finished.pop_front() {
            let FlashAccess { page, sectors, write, purpose } = self.accesses[number as usize];
            self.spare.push(number);
            match purpose {
                Purpose::Request(slot) => self.end_part(slot, context),
                Purpose::Fetch(slot, to) => {
                    self.counts.pcm_page_writes += u64::from(to == Memory::Pcm);
                    let end = self.arrays[to as usize].write(sectors.count_ones(), self.now);
                    self.ready_at(slot, end);
                    self.end_part(slot, context);
                }
                Purpose::Fill(slot, _) => {
                    self.fill(purpose);
                    self.end_part(slot, context);
                }
                Purpose::Pad if write => {
                    self.padding -= 1;
                    self.resume_writes(context)?;
                }
                Purpose::Pad => {
                    self.start_access(FlashAccess { page, sectors, write: true, purpose }, context)?
                }
                Purpose::Destage(victim, waits) => self.destaged((page, sectors), victim, waits, context)?,
            }
        }
        self.schedule_drive(context);
        Ok(())
    }

    /// Handles a victim that flash has programmed.
    fn destaged(
        &mut self,
        entry: (u64, u32),
        victim: u64,
        waits: Option<Slot>,
        context: &mut Context<BufferEvent>,
    ) -> Result<(), SimError> {
        if let Some(at) = self.queue.iter().position(|queued| *queued == entry) {
            self.queue.swap_remove(at);
            self.queued_sectors -= u64::from(entry.1.count_ones());
        }
        self.update_at_risk();
        if let Some(slot) = waits {
            self.end_part(slot, context);
        }
        let mut at = 0;
        while at < self.flushes.len() {
            let flush = &mut self.flushes[at];
            flush.left -= u64::from(victim <= flush.last);
            if flush.left > 0 {
                at += 1;
                continue;
            }
            let Flush { slot, .. } = self.flushes.remove(at);
            self.end_part(slot, context);
        }
        self.resume_writes(context)
    }

    /// Continues the writes that wait for the destage queue, while it has room.
    fn resume_writes(&mut self, context: &mut Context<BufferEvent>) -> Result<(), SimError> {
        while !self.queue_is_full()
            && let Some(WaitingWrite { slot, done }) = self.waiting.pop_front()
        {
            if let Some(done) = self.write_pages(slot, done, context)? {
                self.waiting.push_front(WaitingWrite { slot, done });
            }
        }
        Ok(())
    }
}
