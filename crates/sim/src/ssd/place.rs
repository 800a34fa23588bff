//! Where a page is read and written, and what follows when an operation on flash is over.

use deepram_core::ftl::MappingLookup;
use deepram_media::{AllocationOrder, NandOp};

use super::operation::{Operation, Source};
use super::parallel::{At, PageJob, ParallelEvent, ParallelSsd, full_error};
use super::planes::{NONE, Use};
use crate::error::SimError;
use crate::host::Context;

/// The planes that consecutive logical pages belong to, over one round of all planes: of channels,
/// packages, dies and planes, the place whose letter stands first changes fastest.
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
    /// The plane that a logical page belongs to.
    #[inline]
    pub(super) fn home(&self, logical: u32) -> u32 {
        let stripe =
            if self.ssd.stride <= 1 { logical } else { (u64::from(logical) / self.ssd.stride) as u32 };
        self.order[(stripe % self.order.len() as u32) as usize]
    }

    /// Looks up where the page is, then reads or writes it; parks it while its mapping page is fetched.
    pub(super) fn translate(
        &mut self,
        job: PageJob,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        let Some(mapping) = &mut self.mapping else {
            return self.place(job, context);
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
            MappingLookup::Hit => self.place(job, context),
            MappingLookup::Pending => {
                self.park(needed, job);
                Ok(())
            }
            MappingLookup::Miss => {
                self.park(needed, job);
                let spot = self.planes.spot(self.directory[needed as usize]);
                self.planes.read_started(spot.block);
                // One sector holds the entry.
                let bytes = self.sector as u32;
                let number = self.operations.begin(NandOp::Read, Source::Mapping, spot, needed, bytes, NONE);
                self.enqueue(number, context)
            }
        }
    }

    /// Lets a job wait for a mapping page, behind those that wait for it already.
    fn park(&mut self, page: u32, job: PageJob) {
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

    /// Goes on with the jobs that waited for a mapping page, first come first served.
    fn unpark(&mut self, page: u32, context: &mut Context<ParallelEvent>) -> Result<(), SimError> {
        let mut next = std::mem::take(&mut self.parked[page as usize]);
        while next != 0 {
            let (job, after) = self.waiting_jobs[next as usize - 1];
            self.waiting_spare.push(next - 1);
            next = after;
            self.place(job, context)?;
        }
        Ok(())
    }

    /// Reads or writes a page whose place is known.
    fn place(&mut self, job: PageJob, context: &mut Context<ParallelEvent>) -> Result<(), SimError> {
        if job.write { self.write_page(job, context) } else { self.read_page(job, context) }
    }

    fn read_page(&mut self, job: PageJob, context: &mut Context<ParallelEvent>) -> Result<(), SimError> {
        let found = self.map.get(job.logical).physical;
        let spot = if found != NONE {
            self.planes.spot(found)
        } else if !self.options.reads_assume_written {
            // Nothing is there: zeros from the controller.
            return self.page_done(job.slot, context);
        } else {
            let plane = self.home(job.logical);
            let Some((spot, full)) = self.planes.allocate(plane, Use::Host, job.logical) else {
                return Err(full_error(context.now(), plane));
            };
            self.planes.programmed(spot)?;
            self.map
                .set(job.logical, At { physical: spot.physical, sectors: self.full_sectors(), window: 0 });
            if full {
                self.reclaim(plane, context)?;
            }
            spot
        };
        self.planes.read_started(spot.block);
        let bytes = self.bytes_of(job.sectors);
        let number = self.operations.begin(NandOp::Read, Source::Host, spot, job.logical, bytes, job.slot);
        self.enqueue(number, context)
    }

    fn write_page(&mut self, job: PageJob, context: &mut Context<ParallelEvent>) -> Result<(), SimError> {
        let plane = self.home(job.logical);
        let stall = self.planes.free(plane) < self.write_reserve || !self.planes.has_room(plane, Use::Host);
        if stall || !self.stalled[plane as usize].is_empty() {
            if self.planes.reclaiming(plane) == 0 {
                self.reclaim(plane, context)?;
            }
            if self.planes.reclaiming(plane) > 0 {
                self.stalled[plane as usize].push_back(job);
                self.stalled_count += 1;
                return Ok(());
            }
            if !self.planes.has_room(plane, Use::Host) {
                return Err(full_error(context.now(), plane));
            }
        }
        self.write_now(job, plane, context)
    }

    pub(super) fn write_now(
        &mut self,
        job: PageJob,
        plane: u32,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        let Some((spot, full)) = self.planes.allocate(plane, Use::Host, job.logical) else {
            return Err(full_error(context.now(), plane));
        };
        let At { physical: old, sectors: before, window } = self.map.get(job.logical);
        let missing = if old == NONE { 0 } else { before & !job.sectors };
        let sectors = job.sectors | missing;
        self.map.set(job.logical, At { physical: spot.physical, sectors, window });
        if old != NONE {
            self.planes.invalidate(old)?;
        }
        if let Some(mapping) = &mut self.mapping {
            mapping.mark_dirty(job.logical);
        }
        let bytes = self.bytes_of(sectors);
        let program = self.operations.begin(NandOp::Program, job.source, spot, job.logical, bytes, job.slot);
        let mut read = None;
        if missing != 0 {
            self.operations.get_mut(program).blocked = true;
            let from = self.planes.spot(old);
            self.planes.read_started(from.block);
            let bytes = self.bytes_of(missing);
            read =
                Some(self.operations.begin(NandOp::Read, Source::Merge, from, job.logical, bytes, program));
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

    /// An operation is over: what depends on it goes on.
    pub(super) fn finish(
        &mut self,
        number: u32,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        let operation = self.operations.end(number);
        match operation.op {
            NandOp::Read => self.read_over(operation, context),
            NandOp::Program => self.program_over(operation, context),
            NandOp::Erase => self.erase_over(operation, context),
        }
    }

    fn read_over(
        &mut self,
        operation: Operation,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        let block = operation.spot.block;
        let last = self.planes.read_done(block);
        match operation.source {
            Source::Host | Source::Buffer => {
                self.counts.host_reads += 1;
                self.page_done(operation.owner, context)?;
            }
            Source::Merge => {
                self.counts.merge_reads += 1;
                self.operations.get_mut(operation.owner).blocked = false;
                self.wake(operation.owner, context);
            }
            Source::Mapping => {
                self.counts.mapping_reads += 1;
                if let Some(mapping) = &mut self.mapping {
                    mapping.read_completed(operation.key);
                }
                self.unpark(operation.key, context)?;
            }
            Source::Move => {
                self.counts.move_reads += 1;
                self.move_page(operation, context)?;
            }
        }
        if last && std::mem::take(&mut self.erase_waits[block as usize]) {
            self.erase_block(block, context)?;
        }
        Ok(())
    }

    fn program_over(
        &mut self,
        operation: Operation,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        self.planes.programmed(operation.spot)?;
        match operation.source {
            Source::Move => {
                self.counts.move_programs += 1;
                self.moved(operation.key, context)
            }
            Source::Mapping => {
                self.counts.mapping_programs += 1;
                if let Some(mapping) = &mut self.mapping {
                    mapping.write_completed(operation.key);
                }
                Ok(())
            }
            Source::Buffer => {
                self.counts.host_programs += 1;
                self.destaged(operation.key, context)
            }
            Source::Host | Source::Merge => {
                self.counts.host_programs += 1;
                self.page_done(operation.owner, context)
            }
        }
    }
}
