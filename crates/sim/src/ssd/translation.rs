//! Address translation of a drive: looks up the physical page of a logical page, reads or writes it, and
//! continues the operations that depend on it.

use deepram_core::ftl::MappingLookup;
use deepram_media::{AllocationOrder, NandOp};
use deepram_trace::Op;

use super::operation::{Operation, OperationSource, not_under_way};
use super::parallel::{CommandProgress, MappingEntry, PageRequest, ParallelEvent, ParallelSsd, full_error};
use crate::error::SimError;
use crate::flash_array::blocks::{FrontierUse, NONE, PageAddress};
use crate::host::{Command, Context, Slot};

/// The planes of consecutive logical pages, over one round of all planes. Of channels (C), packages (W),
/// dies (D) and planes (P), the one whose letter comes first in the spread's name changes fastest.
pub(super) fn spread_order(spread: AllocationOrder, [c, w, d, p]: [u32; 4]) -> Vec<u32> {
    let order: [usize; 4] = match spread {
        AllocationOrder::Cwdp => [0, 1, 2, 3],
        AllocationOrder::Cwpd => [0, 1, 3, 2],
        AllocationOrder::Cdwp => [0, 2, 1, 3],
        AllocationOrder::Cpwd => [0, 3, 1, 2],
        AllocationOrder::Wcdp => [1, 0, 2, 3],
        AllocationOrder::Pcwd => [3, 0, 1, 2],
    };
    let radix = [c, w, d, p];
    (0..c * w * d * p)
        .map(|number| {
            let mut rest = number;
            let mut digit = [0; 4];
            for place in order {
                digit[place] = rest % radix[place];
                rest /= radix[place];
            }
            ((digit[0] * w + digit[1]) * d + digit[2]) * p + digit[3]
        })
        .collect()
}

impl ParallelSsd {
    /// Reads or writes sectors of one page for a controller that has its own buffer: without the host link,
    /// the controller's time and the drive's write cache. `slot` completes when flash has the page, or
    /// the data have left the channel.
    pub(crate) fn access_page(
        &mut self,
        slot: Slot,
        (logical, sectors): (u32, u32),
        write: bool,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        // A write completes at once with its last page; a read would be sent over the link.
        let command = Command { op: Op::Write, offset: 0, len: 0 };
        let job = CommandProgress { command, pages_left: 1 };
        if self.jobs.len() <= slot as usize {
            self.jobs.resize(slot as usize + 1, job);
        }
        self.jobs[slot as usize] = job;
        self.counts.host_pages += u64::from(write);
        self.page_programs_asked += u64::from(write);
        self.translate(PageRequest { slot, logical, sectors, write, source: OperationSource::Host }, context)
    }

    /// The plane of a logical page.
    #[inline]
    pub(super) fn plane_of_page(&self, logical: u32) -> u32 {
        let stripe =
            if self.ssd.stride <= 1 { logical } else { (u64::from(logical) / self.ssd.stride) as u32 };
        self.order[(stripe % self.order.len() as u32) as usize]
    }

    /// Translates a page request, then performs it. If the mapping page is not cached, the request waits
    /// until the mapping page has been read.
    pub(super) fn translate(
        &mut self,
        job: PageRequest,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        let Some(mapping) = &mut self.mapping else {
            return self.serve_page(job, context);
        };
        let (found, write) = mapping.look_up(job.logical);
        let needed = mapping.page_of(job.logical);
        if found == MappingLookup::Hit {
            self.counts.mapping_hits += 1;
        } else {
            self.counts.mapping_misses += 1;
        }
        if let Some(page) = write {
            self.write_mapping(page, context)?;
        }
        match found {
            MappingLookup::Hit => self.serve_page(job, context),
            MappingLookup::Pending => {
                self.park(needed, job);
                Ok(())
            }
            MappingLookup::Miss => {
                self.park(needed, job);
                let address = self.planes.address(self.directory[needed as usize]);
                self.planes.read_started(address.block);
                // The entry lies in one sector.
                let bytes = self.sector as u32;
                let read =
                    Operation::new(NandOp::Read, OperationSource::Mapping, address, needed, bytes, NONE);
                let number = self.operations.add(read);
                self.enqueue(number, context)
            }
        }
    }

    /// Appends a request to those that wait for a mapping page.
    fn park(&mut self, page: u32, job: PageRequest) {
        let number = match self.waiting_spare.pop() {
            Some(number) => {
                self.waiting_jobs[number as usize] = (job, 0);
                number
            }
            None => {
                self.waiting_jobs.push((job, 0));
                (self.waiting_jobs.len() - 1) as u32
            }
        };
        let mut last = self.parked[page as usize];
        if last == 0 {
            self.parked[page as usize] = number + 1;
            return;
        }
        while self.waiting_jobs[last as usize - 1].1 != 0 {
            last = self.waiting_jobs[last as usize - 1].1;
        }
        self.waiting_jobs[last as usize - 1].1 = number + 1;
    }

    /// Continues the requests that waited for a mapping page, first come, first served.
    fn unpark(&mut self, page: u32, context: &mut Context<ParallelEvent>) -> Result<(), SimError> {
        let mut next = std::mem::take(&mut self.parked[page as usize]);
        while next != 0 {
            let (job, after) = self.waiting_jobs[next as usize - 1];
            self.waiting_spare.push(next - 1);
            next = after;
            self.serve_page(job, context)?;
        }
        Ok(())
    }

    /// Reads or writes a page whose mapping is cached.
    fn serve_page(&mut self, job: PageRequest, context: &mut Context<ParallelEvent>) -> Result<(), SimError> {
        if job.write { self.write_page(job, context) } else { self.read_page(job, context) }
    }

    fn read_page(&mut self, job: PageRequest, context: &mut Context<ParallelEvent>) -> Result<(), SimError> {
        let found = self.map.get(job.logical).physical;
        let address = if found != NONE {
            self.planes.address(found)
        } else if !self.options.reads_assume_written {
            // The page was never written: the controller answers with zeros.
            return self.page_done(job.slot, context);
        } else if let Some(address) = self.initial_address(job.logical) {
            address
        } else {
            self.assume_written(job.logical, context)?
        };
        self.planes.read_started(address.block);
        let bytes = self.bytes_of(job.sectors);
        let read = Operation::new(NandOp::Read, OperationSource::Host, address, job.logical, bytes, job.slot);
        let number = self.operations.add(read);
        self.enqueue(number, context)
    }

    /// Places a page that was written before the run.
    fn assume_written(
        &mut self,
        logical: u32,
        context: &mut Context<ParallelEvent>,
    ) -> Result<PageAddress, SimError> {
        let plane = self.plane_of_page(logical);
        let Some((address, full)) = self.allocate(plane, FrontierUse::Host, logical) else {
            return Err(full_error(context.now().0, plane));
        };
        self.planes.programmed(address)?;
        let sectors = self.full_sectors();
        self.map.set(logical, MappingEntry { physical: address.physical, sectors, window: 0 });
        if full {
            self.reclaim(plane, context)?;
        }
        Ok(address)
    }

    fn write_page(&mut self, job: PageRequest, context: &mut Context<ParallelEvent>) -> Result<(), SimError> {
        let plane = self.plane_of_page(job.logical);
        let stall =
            self.planes.free(plane) < self.write_reserve || !self.planes.has_room(plane, FrontierUse::Host);
        if stall || !self.stalled[plane as usize].is_empty() {
            if self.planes.reclaiming(plane) == 0 {
                self.reclaim(plane, context)?;
            }
            let has_room = self.planes.has_room(plane, FrontierUse::Host);
            let must_wait = !has_room || !self.stalled[plane as usize].is_empty();
            if self.planes.reclaiming(plane) > 0 || (must_wait && self.planes.is_programming(plane)) {
                self.stalled[plane as usize].push_back(job);
                self.stalled_count += 1;
                return Ok(());
            }
            if !has_room {
                return Err(full_error(context.now().0, plane));
            }
        }
        self.write_now(job, plane, context)
    }

    pub(super) fn write_now(
        &mut self,
        job: PageRequest,
        plane: u32,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        let Some((address, full)) = self.allocate(plane, FrontierUse::Host, job.logical) else {
            return Err(full_error(context.now().0, plane));
        };
        let MappingEntry { physical: old, sectors: before, window } = self.map.get(job.logical);
        let initial = if old == NONE { self.initial_address(job.logical) } else { None };
        let missing = match (old, initial) {
            (NONE, None) => 0,
            (NONE, Some(_)) => self.full_sectors() & !job.sectors,
            _ => before & !job.sectors,
        };
        let sectors = job.sectors | missing;
        self.map.set(job.logical, MappingEntry { physical: address.physical, sectors, window });
        if old != NONE {
            self.planes.invalidate(old)?;
        } else if initial.is_some() {
            self.rewrote_initial_page(plane)?;
        }
        if let Some(mapping) = &mut self.mapping {
            mapping.mark_dirty(job.logical);
        }
        let bytes = self.bytes_of(sectors);
        let program = Operation::new(NandOp::Program, job.source, address, job.logical, bytes, job.slot);
        let program = self.operations.add(Operation { blocked: missing != 0, ..program });
        let mut read = None;
        if missing != 0 {
            let from = initial.unwrap_or_else(|| self.planes.address(old));
            self.planes.read_started(from.block);
            let bytes = self.bytes_of(missing);
            let merge =
                Operation::new(NandOp::Read, OperationSource::Merge, from, job.logical, bytes, program);
            read = Some(self.operations.add(merge));
        }
        if full {
            self.reclaim(plane, context)?;
        }
        self.enqueue(program, context)?;
        match read {
            Some(read) => self.enqueue(read, context),
            None => Ok(()),
        }
    }

    /// Ends an operation, and continues what depends on it.
    pub(super) fn finish(
        &mut self,
        number: u32,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        let operation = self.operations.take(number).ok_or_else(|| not_under_way(number))?;
        match operation.op {
            NandOp::Read => self.read_ended(operation, context),
            NandOp::Program => self.program_ended(operation, context),
            NandOp::Erase => self.erase_ended(operation, context),
        }
    }

    fn read_ended(
        &mut self,
        operation: Operation,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        let block = operation.address.block;
        let last = self.planes.read_done(block);
        match operation.source {
            OperationSource::Host | OperationSource::Buffer => {
                self.counts.host_reads += 1;
                self.page_done(operation.owner, context)?;
            }
            OperationSource::Merge => {
                self.counts.merge_reads += 1;
                self.array.wake(operation.owner, context.now().0);
                self.schedule_array(context);
            }
            OperationSource::Mapping => {
                self.counts.mapping_reads += 1;
                if let Some(mapping) = &mut self.mapping {
                    mapping.read_completed(operation.key);
                }
                self.unpark(operation.key, context)?;
            }
            OperationSource::Move => {
                self.counts.move_reads += 1;
                self.move_page(operation, context)?;
            }
        }
        if last && std::mem::take(&mut self.erase_waits[block as usize]) {
            self.erase_block(block, context)?;
        }
        Ok(())
    }

    fn program_ended(
        &mut self,
        operation: Operation,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        self.planes.programmed(operation.address)?;
        let plane = operation.address.plane;
        if !self.stalled[plane as usize].is_empty() && self.planes.reclaiming(plane) == 0 {
            self.resume_stalled(plane, context)?;
        }
        match operation.source {
            OperationSource::Move => {
                self.counts.move_programs += 1;
                self.page_moved(operation.key, context)
            }
            OperationSource::Mapping => {
                self.counts.mapping_programs += 1;
                if let Some(mapping) = &mut self.mapping {
                    mapping.write_completed(operation.key);
                }
                Ok(())
            }
            OperationSource::Buffer => {
                self.counts.host_programs += 1;
                self.release_buffer(operation.owner);
                self.destaged(operation.key, context)
            }
            OperationSource::Host | OperationSource::Merge => {
                self.counts.host_programs += 1;
                self.page_done(operation.owner, context)
            }
        }
    }
}
