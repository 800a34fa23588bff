//! The steps of core's cache as jobs of the flash, disk requests, DRAM accesses and counts.

use deepram_core::disk_cache::{Cause, Note, PhysicalPage, Step};
use deepram_core::reliability::{Density, Region};
use deepram_media::NandOp;

use super::DiskCacheDevice;
use super::flash_jobs::JobPurpose;
use crate::flash_array::OperationClass;

/// A disk page that is being fetched, and the number of the fetch.
pub(super) type Fetching = Option<(u32, u32)>;

impl DiskCacheDevice {
    /// Carries out the steps of an operation. `fetching` is the disk page that it fetches. Returns true if
    /// pages are written back.
    pub(super) fn carry_out(&mut self, fetching: Fetching) -> bool {
        let mut steps = std::mem::take(&mut self.steps);
        let before = self.write_backs.started;
        for step in steps.drain(..) {
            match step {
                Step::Read(page) => {
                    self.counts.second_reads += 1;
                    self.flash.move_reads += 1;
                    self.add_job(NandOp::Read, OperationClass::Move, page, JobPurpose::Other, None);
                }
                Step::Program { to, disk, cause } => self.program(to, disk, cause, fetching),
                Step::Move { from, to, cause } => self.move_page(from, to, cause),
                Step::Flush { from, disk } => {
                    self.counts.flushes += 1;
                    self.flash.move_reads += 1;
                    self.flush_reads += 1;
                    self.add_job(NandOp::Read, OperationClass::Move, from, JobPurpose::Flush(disk), None);
                }
                Step::DiskWrite(page) => {
                    self.counts.direct_writes += 1;
                    self.access_dram(page, self.page, false);
                    self.disk.write(page);
                }
                Step::Erase(block) => self.erase(block),
                Step::Note(note) => self.count_note(note),
            }
        }
        self.steps = steps;
        self.write_backs.started > before
    }

    /// Adds a job behind another one, and starts it if it need not wait. Returns its number.
    fn add_job(
        &mut self,
        op: NandOp,
        class: OperationClass,
        page: PhysicalPage,
        purpose: JobPurpose,
        after: Option<u32>,
    ) -> u32 {
        let busy = self.jobs.idle_time(op, page);
        self.counts.flash_busy_ps += busy;
        if self.reclaiming {
            self.counts.reclaim_busy_ps += busy;
        }
        let single = u64::from(page.density == Density::Slc);
        match op {
            NandOp::Read => self.counts.slc_reads += single,
            NandOp::Program => self.counts.slc_programs += single,
            NandOp::Erase => self.counts.slc_erases += single,
        }
        let number = self.jobs.add((op, class), page, purpose, after.as_slice());
        self.jobs.start(number, self.now);
        number
    }

    /// Adds a read of a request.
    pub(super) fn add_host_read(&mut self, page: PhysicalPage, purpose: JobPurpose) {
        self.flash.host_reads += 1;
        self.add_job(NandOp::Read, OperationClass::Demand, page, purpose, None);
    }

    fn program(&mut self, to: PhysicalPage, disk: u32, cause: Cause, fetching: Fetching) {
        self.errors.programmed(to);
        self.flash.host_programs += 1;
        self.access_dram(disk, self.page, false);
        if cause == Cause::WriteBack {
            self.counts.write_backs += 1;
            self.write_backs.started += 1;
            let purpose = JobPurpose::WriteBack(self.write_backs.started);
            self.add_job(NandOp::Program, OperationClass::Program, to, purpose, None);
            return;
        }
        self.counts.fills += 1;
        let class = (NandOp::Program, OperationClass::Program);
        let busy = self.jobs.idle_time(NandOp::Program, to);
        self.counts.flash_busy_ps += busy;
        self.counts.slc_programs += u64::from(to.density == Density::Slc);
        let number = self.jobs.add(class, to, JobPurpose::Other, &[]);
        match fetching {
            Some((page, fetch)) if page == disk => {
                self.jobs.hold(number);
                if let Some(fetch) = self.fetches.get(fetch) {
                    fetch.fill = Some(number);
                }
            }
            _ => self.jobs.start(number, self.now),
        }
    }

    fn move_page(&mut self, from: PhysicalPage, to: PhysicalPage, cause: Cause) {
        self.errors.programmed(to);
        self.flash.move_reads += 1;
        self.flash.move_programs += 1;
        match cause {
            Cause::Reclaim => self.counts.reclaim_moves += 1,
            Cause::Hot => self.counts.hot_moves += 1,
            Cause::Wear => self.counts.wear_moves += 1,
            Cause::Fault | Cause::Fill | Cause::WriteBack => self.counts.fault_moves += 1,
        }
        let read = self.add_job(NandOp::Read, OperationClass::Move, from, JobPurpose::Other, None);
        self.add_job(NandOp::Program, OperationClass::MoveProgram, to, JobPurpose::Other, Some(read));
    }

    fn erase(&mut self, block: u32) {
        self.errors.erased(block);
        self.flash.erases += 1;
        let flash = self.cache.flash();
        let shape = flash.shape();
        let single = shape.pages_of(block).all(|page| flash.page(page).density() == Density::Slc);
        let density = if single { Density::Slc } else { Density::Mlc };
        let page = PhysicalPage { page: shape.page(block, 0), block, density, strength: 0 };
        self.add_job(NandOp::Erase, OperationClass::Erase, page, JobPurpose::Other, None);
        self.reclaiming = false;
    }

    fn count_note(&mut self, note: Note) {
        let did = &mut self.counts;
        match note {
            Note::Reclaim { .. } => {
                did.reclaimed_blocks += 1;
                self.reclaiming = true;
            }
            Note::Evict { region, pages } => {
                match region {
                    Region::Read => did.evicted_read_blocks += 1,
                    Region::Write => did.evicted_write_blocks += 1,
                }
                did.evicted_pages += u64::from(pages);
            }
            Note::Drop => did.dropped_pages += 1,
            Note::Strengthen => did.strengthened += 1,
            Note::FaultToSlc => did.faults_to_slc += 1,
            Note::HotToSlc => did.hot_to_slc += 1,
            Note::WearSwap => did.wear_swaps += 1,
            Note::RetirePage => did.retired_cells += 1,
            Note::RetireBlock => did.retired_blocks += 1,
            Note::Uncorrectable => did.uncorrectable += 1,
            Note::Lost => did.lost += 1,
            Note::Dead => {}
        }
    }
}
