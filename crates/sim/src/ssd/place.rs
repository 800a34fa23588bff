//! Where a page is read and written, and what follows when an operation on flash is over.

use deepram_media::{NandOp, Spread};

use super::map::NONE;
use super::mapping::Found;
use super::parallel::{Operation, PageJob, ParallelEvent, ParallelSsd, Place, Source, full_error};
use super::pool::Use;
use crate::error::SimError;
use crate::host::Context;

impl ParallelSsd {
    /// The plane that a logical page belongs to.
    #[inline]
    pub(super) fn home(&self, logical: u32) -> u32 {
        let mut rest =
            if self.ssd.stride <= 1 { logical } else { (u64::from(logical) / self.ssd.stride) as u32 };
        let mut digit = |radix: u32| {
            let digit = rest % radix;
            rest /= radix;
            digit
        };
        let (c, w, d, p) = (self.channels, self.ways, self.dies, self.planes);
        let (channel, way, die, plane);
        match self.ssd.spread {
            Spread::Cwdp => {
                channel = digit(c);
                way = digit(w);
                die = digit(d);
                plane = digit(p);
            }
            Spread::Cwpd => {
                channel = digit(c);
                way = digit(w);
                plane = digit(p);
                die = digit(d);
            }
            Spread::Cdwp => {
                channel = digit(c);
                die = digit(d);
                way = digit(w);
                plane = digit(p);
            }
            Spread::Cpwd => {
                channel = digit(c);
                plane = digit(p);
                way = digit(w);
                die = digit(d);
            }
            Spread::Wcdp => {
                way = digit(w);
                channel = digit(c);
                die = digit(d);
                plane = digit(p);
            }
            Spread::Pcwd => {
                plane = digit(p);
                channel = digit(c);
                way = digit(w);
                die = digit(d);
            }
        }
        ((channel * w + way) * d + die) * p + plane
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
        let page = mapping.page_of(job.logical);
        let (found, write) = match mapping.find(job.logical) {
            Some(found) => (found, None),
            None => mapping.insert(job.logical),
        };
        if found == Found::Resident {
            self.counts.mapping_hits += 1;
        } else {
            self.counts.mapping_misses += 1;
        }
        if let Some(page) = write {
            self.write_mapping(page, context)?;
        }
        match found {
            Found::Resident => self.place(job, context),
            Found::Awaited => {
                self.park(page, job);
                Ok(())
            }
            Found::Missing => {
                self.park(page, job);
                let physical = self.directory[page as usize];
                self.pool.read_started(physical);
                // One sector holds the entry.
                let number = self.new_operation(Operation {
                    op: NandOp::Read,
                    source: Source::Mapping,
                    physical,
                    key: page,
                    bytes: self.sector as u32,
                    owner: NONE,
                    blocked: false,
                    copy_back: false,
                    place: Place::default(),
                });
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
        let (mut physical, _) = self.map.get(job.logical);
        if physical == NONE {
            if !self.options.reads_assume_written {
                // Nothing is there: zeros from the controller.
                return self.page_done(job.slot, context);
            }
            let plane = self.home(job.logical);
            let Some((page, full)) = self.pool.allocate(plane, Use::Host, job.logical) else {
                return Err(full_error(context.now(), plane));
            };
            self.pool.programmed(page);
            self.map.set(job.logical, page, self.full_sectors());
            physical = page;
            if full {
                self.reclaim(plane, context)?;
            }
        }
        self.pool.read_started(physical);
        let number = self.new_operation(Operation {
            op: NandOp::Read,
            source: Source::Host,
            physical,
            key: job.logical,
            bytes: self.bytes_of(job.sectors),
            owner: job.slot,
            blocked: false,
            copy_back: false,
            place: Place::default(),
        });
        self.enqueue(number, context)
    }

    fn write_page(&mut self, job: PageJob, context: &mut Context<ParallelEvent>) -> Result<(), SimError> {
        let plane = self.home(job.logical);
        let stall = self.pool.free(plane) < self.write_reserve || !self.pool.has_room(plane, Use::Host);
        if stall || !self.stalled[plane as usize].is_empty() {
            if self.pool.reclaiming(plane) == 0 {
                self.reclaim(plane, context)?;
            }
            if self.pool.reclaiming(plane) > 0 {
                self.stalled[plane as usize].push_back(job);
                self.stalled_count += 1;
                return Ok(());
            }
            if !self.pool.has_room(plane, Use::Host) {
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
        let (old, before) = self.map.get(job.logical);
        let Some((physical, full)) = self.pool.allocate(plane, Use::Host, job.logical) else {
            return Err(full_error(context.now(), plane));
        };
        let missing = if old == NONE { 0 } else { before & !job.sectors };
        if old != NONE {
            self.pool.invalidate(old);
        }
        self.map.set(job.logical, physical, job.sectors | missing);
        if let Some(mapping) = &mut self.mapping {
            mapping.dirty(job.logical);
        }
        let program = self.new_operation(Operation {
            op: NandOp::Program,
            source: job.source,
            physical,
            key: job.logical,
            bytes: self.bytes_of(job.sectors | missing),
            owner: job.slot,
            blocked: missing != 0,
            copy_back: false,
            place: Place::default(),
        });
        let mut read = None;
        if missing != 0 {
            self.pool.read_started(old);
            read = Some(self.new_operation(Operation {
                op: NandOp::Read,
                source: Source::Merge,
                physical: old,
                key: job.logical,
                bytes: self.bytes_of(missing),
                owner: program,
                blocked: false,
                copy_back: false,
                place: Place::default(),
            }));
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
        let operation = self.operations[number as usize];
        self.end_operation(number);
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
        let block = self.pool.block_of(operation.physical);
        let last = self.pool.read_done(operation.physical);
        match operation.source {
            Source::Host | Source::Buffer => {
                self.counts.host_reads += 1;
                self.page_done(operation.owner, context)?;
            }
            Source::Merge => {
                self.counts.merge_reads += 1;
                self.operations[operation.owner as usize].blocked = false;
                self.wake(operation.owner, context)?;
            }
            Source::Mapping => {
                self.counts.mapping_reads += 1;
                if let Some(mapping) = &mut self.mapping {
                    mapping.arrived(operation.key);
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
        self.pool.programmed(operation.physical);
        match operation.source {
            Source::Move => {
                self.counts.move_programs += 1;
                self.moved(operation.key, context)
            }
            Source::Mapping => {
                self.counts.mapping_programs += 1;
                if let Some(mapping) = &mut self.mapping {
                    mapping.written(operation.key);
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
