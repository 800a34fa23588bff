//! The operations of the flash in time, on the shared flash array: what each waits for, and what it is for.
//!
//! 1. A program waits until its block has been erased, and until the data are there: a fill for the disk,
//!    a page that moves for its read.
//! 2. An erase waits until all operations of its block have ended.
//! 3. A read of a page whose program is under way waits for it. Reads of the host do not come here then:
//!    the data are in the controller's buffer.
//! 4. A read ends when its data have been decoded. Decoders work side by side, and no operation waits for
//!    one.

use std::collections::HashMap;

use deepram_core::disk_cache::PhysicalPage;
use deepram_core::reliability::{Density, FlashShape};
use deepram_media::{DiskCacheServer, Nand, NandOp};

use crate::engine::Time;
use crate::flash_array::{Channels, Operation, OperationClass};
use crate::host::Slot;
use crate::slab::Slab;

/// The purpose of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobPurpose {
    /// A read of a disk page for a request.
    Request(Slot, u32),
    /// A read of a request that cannot be corrected: the fetch of this number follows.
    Failed(u32),
    /// A read whose data go to this disk page.
    Flush(u32),
    /// A page of DRAM, by the number of its write-back.
    WriteBack(u64),
    /// Anything that others wait for at most.
    Other,
}

/// An operation that waits or is under way.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) op: NandOp,
    class: OperationClass,
    pub(super) page: PhysicalPage,
    pub(super) purpose: JobPurpose,
    /// Jobs and fetches that must end first.
    waits: u32,
    /// Jobs that wait for this one.
    next: Vec<u32>,
}

/// The jobs of the flash.
pub(super) struct FlashJobs {
    pub(super) array: Channels,
    jobs: Slab<Job>,
    slc: Nand,
    mlc: Nand,
    shape: FlashShape,
    planes: u32,
    /// Decoding time at each strength.
    decode: Vec<Time>,
    /// Jobs of each block.
    of_block: Vec<Vec<u32>>,
    /// Programs under way, by page.
    programs: HashMap<u32, u32>,
    /// Erases under way, by block.
    erases: HashMap<u32, u32>,
}

impl FlashJobs {
    pub(super) fn new(server: &DiskCacheServer, shape: FlashShape, decode: Vec<Time>) -> Self {
        let planes = (server.channels * server.dies) as u32;
        Self {
            array: Channels::new(&server.mlc, server.channels as u32, planes),
            jobs: Slab::new(),
            slc: server.slc.clone(),
            mlc: server.mlc.clone(),
            shape,
            planes,
            decode,
            of_block: vec![Vec::new(); shape.blocks as usize],
            programs: HashMap::new(),
            erases: HashMap::new(),
        }
    }

    fn nand(&self, density: Density) -> &Nand {
        if density == Density::Slc { &self.slc } else { &self.mlc }
    }

    /// The time of decoding a page.
    pub(super) fn decode_time(&self, page: PhysicalPage) -> Time {
        self.decode.get(usize::from(page.strength)).or(self.decode.last()).copied().unwrap_or(0)
    }

    /// The time of an operation on an idle flash, decoding included.
    pub(super) fn idle_time(&self, op: NandOp, page: PhysicalPage) -> Time {
        let decode = if op == NandOp::Read { self.decode_time(page) } else { 0 };
        self.nand(page.density).idle_latency(op, 1).0 + decode
    }

    /// True if the page's program has not ended.
    pub(super) fn is_pending(&self, page: PhysicalPage) -> bool {
        self.programs.contains_key(&page.page.0)
    }

    /// Adds a job that waits for those before it, and for `more` other events. Returns its number.
    pub(super) fn add(
        &mut self,
        (op, class): (NandOp, OperationClass),
        page: PhysicalPage,
        purpose: JobPurpose,
        more: &[u32],
    ) -> u32 {
        let mut before: Vec<u32> = more.to_vec();
        match op {
            NandOp::Read => before.extend(self.programs.get(&page.page.0)),
            NandOp::Program => before.extend(self.erases.get(&page.block)),
            NandOp::Erase => before.extend(&self.of_block[page.block as usize]),
        }
        before.sort_unstable();
        before.dedup();
        let waits = before.len() as u32;
        let number = self.jobs.add(Job { op, class, page, purpose, waits, next: Vec::new() });
        for other in before {
            if let Some(other) = self.jobs.get(other) {
                other.next.push(number);
            }
        }
        self.of_block[page.block as usize].push(number);
        match op {
            NandOp::Read => {}
            NandOp::Program => {
                self.programs.insert(page.page.0, number);
            }
            NandOp::Erase => {
                self.erases.insert(page.block, number);
            }
        }
        number
    }

    /// Lets a job wait for one more event.
    pub(super) fn hold(&mut self, number: u32) {
        if let Some(job) = self.jobs.get(number) {
            job.waits += 1;
        }
    }

    /// One event that the job waits for has happened.
    pub(super) fn release(&mut self, number: u32, now: Time) {
        if let Some(job) = self.jobs.get(number) {
            job.waits -= 1;
        }
        self.start(number, now);
    }

    /// Starts a job that waits for nothing.
    pub(super) fn start(&mut self, number: u32, now: Time) {
        let Some(job) = self.jobs.get(number) else { return };
        if job.waits > 0 {
            return;
        }
        let (op, class, page) = (job.op, job.class, job.page);
        let nand = self.nand(page.density);
        let index = page.page.0 - self.shape.page(page.block, 0).0;
        let operation = Operation {
            class,
            plane: page.block % self.planes,
            page: index,
            bytes: if op == NandOp::Erase { 0 } else { nand.page.0 as u32 },
            array_time: Some(nand.array_time(op).0),
            copy_back: false,
            blocked: false,
            limited: false,
        };
        self.array.submit_operation(number, operation, now);
    }

    /// A job under way.
    pub(super) fn job(&mut self, number: u32) -> Option<&Job> {
        self.jobs.get(number).map(|job| &*job)
    }

    /// Ends a job, and starts those that waited for it alone. Returns it.
    pub(super) fn end(&mut self, number: u32, now: Time) -> Option<Job> {
        let job = self.jobs.take(number)?;
        let block = job.page.block;
        self.of_block[block as usize].retain(|other| *other != number);
        match job.op {
            NandOp::Program if self.programs.get(&job.page.page.0) == Some(&number) => {
                self.programs.remove(&job.page.page.0);
            }
            NandOp::Erase if self.erases.get(&block) == Some(&number) => {
                self.erases.remove(&block);
            }
            _ => {}
        }
        for next in &job.next {
            self.release(*next, now);
        }
        Some(job)
    }

    /// True if no job waits or is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.jobs.is_empty()
    }
}
