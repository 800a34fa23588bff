//! The cache without time: where each access is satisfied, what it would wait for on idle devices, and what the flash
//! does behind it.

use deepram_core::disk_cache::{Cause, DiskCache, Note, PhysicalPage, ReadOutcome, Step};
use deepram_core::reliability::Density;
use deepram_media::{Bytes, DiskCacheServer, NandOp};
use deepram_sim::SimError;
use deepram_sim::disk_cache::{WearingFlash, untimed_cache};
use deepram_trace::{ObjectPlacement, Op, Workload};

use crate::simulate::workload_error;

/// Placement of objects; the generated workloads have none.
const OBJECTS: ObjectPlacement = ObjectPlacement { slot_bytes: 4096, slots: 1 << 20 };

/// Counters of a cache without time, in pages unless stated otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct UntimedCounts {
    /// Pages read.
    pub(super) reads: u64,
    /// Reads that flash satisfied.
    pub(super) flash_hits: u64,
    /// Reads that the disk satisfied.
    pub(super) misses: u64,
    /// Pages written.
    pub(super) writes: u64,
    /// Writes of pages that were neither in DRAM nor in flash.
    pub(super) write_misses: u64,
    /// Waiting time of all reads, picoseconds: flash with its decoder, the disk. A hit of DRAM waits for nothing.
    pub(super) read_ps: u64,
    /// Waiting time of the reads that flash satisfied, picoseconds.
    pub(super) flash_ps: u64,
    /// Pages programmed, for any cause.
    pub(super) programs: u64,
    /// Pages that reclamation moved.
    pub(super) reclaim_moves: u64,
    /// Blocks reclaimed.
    pub(super) reclaimed_blocks: u64,
    /// Blocks erased, for any cause.
    pub(super) erases: u64,
}

impl UntimedCounts {
    /// The counts since `before`.
    pub(super) fn since(&self, before: &Self) -> Self {
        Self {
            reads: self.reads - before.reads,
            flash_hits: self.flash_hits - before.flash_hits,
            misses: self.misses - before.misses,
            writes: self.writes - before.writes,
            write_misses: self.write_misses - before.write_misses,
            read_ps: self.read_ps - before.read_ps,
            flash_ps: self.flash_ps - before.flash_ps,
            programs: self.programs - before.programs,
            reclaim_moves: self.reclaim_moves - before.reclaim_moves,
            reclaimed_blocks: self.reclaimed_blocks - before.reclaimed_blocks,
            erases: self.erases - before.erases,
        }
    }

    /// Pages accessed.
    pub(super) fn accesses(&self) -> u64 {
        self.reads + self.writes
    }
}

/// A cache of a server, run by accesses alone. Its periods are numbers of accesses.
pub(super) struct UntimedServer {
    cache: DiskCache,
    flash: WearingFlash,
    steps: Vec<Step>,
    counts: UntimedCounts,
    page: u64,
    /// Times of a read of single-level and multi-level cells, without decoding, picoseconds.
    read_ps: [u64; 2],
    /// Decoding time by strength, picoseconds.
    decode_ps: Vec<u64>,
    disk_ps: u64,
    write_back: u64,
    flush: u64,
}

impl UntimedServer {
    /// A fresh server. Dirty pages of DRAM go to flash each `write_back` accesses, those of flash to the disk each
    /// `flush` accesses.
    pub(super) fn new(
        server: &DiskCacheServer,
        seed: u64,
        (write_back, flush): (u64, u64),
    ) -> Result<Self, SimError> {
        let page = server.mlc.page;
        let read = |nand: &deepram_media::Nand| nand.idle_latency(NandOp::Read, 1).0;
        Ok(Self {
            cache: untimed_cache(server)?,
            flash: WearingFlash::new(server, seed),
            steps: Vec::new(),
            counts: UntimedCounts::default(),
            page: page.0,
            read_ps: [read(&server.slc), read(&server.mlc)],
            decode_ps: (0..=server.strongest()).map(|strength| server.ecc.decode(page, strength).0).collect(),
            disk_ps: server.disk.random(Bytes(page.0), false).0,
            write_back,
            flush,
        })
    }

    /// The cache.
    pub(super) fn cache(&self) -> &DiskCache {
        &self.cache
    }

    /// Everything counted so far.
    pub(super) fn counts(&self) -> UntimedCounts {
        self.counts
    }

    /// Runs the accesses of a workload until `go_on` returns false or the workload ends. `go_on` is called after each
    /// page.
    pub(super) fn run(
        &mut self,
        workload: &str,
        seed: u64,
        mut go_on: impl FnMut(&Self) -> bool,
    ) -> Result<(), SimError> {
        for item in Workload::new(workload, seed).map_err(|error| workload_error(&error))? {
            let request = item.to_request(&OBJECTS);
            if request.len == 0 {
                continue;
            }
            let (first, last) = (request.offset / self.page, (request.offset + request.len - 1) / self.page);
            for page in first..=last {
                self.access(page as u32, request.op == Op::Write);
                if !go_on(self) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn access(&mut self, page: u32, write: bool) {
        if write {
            let held = self.cache.is_in_dram(page) || self.cache.flash().find(page).is_some();
            self.counts.writes += 1;
            self.counts.write_misses += u64::from(!held);
            self.cache.write(page, &mut self.flash, &mut self.steps);
        } else {
            self.counts.reads += 1;
            self.read(page);
        }
        let accesses = self.counts.accesses();
        if accesses.is_multiple_of(self.write_back) {
            self.cache.write_back(u32::MAX, &mut self.flash, &mut self.steps);
        }
        if accesses.is_multiple_of(self.flush) {
            self.cache.flush(u32::MAX, &mut self.flash, &mut self.steps);
        }
        self.cache.reclaim(&mut self.flash, &mut self.steps);
        self.count_steps();
    }

    fn read(&mut self, page: u32) {
        match self.cache.read(page, &mut self.flash, &mut self.steps) {
            ReadOutcome::Dram => {}
            ReadOutcome::Flash(at) => {
                let time = self.flash_time(at);
                self.counts.flash_hits += 1;
                self.counts.flash_ps += time;
                self.counts.read_ps += time;
            }
            ReadOutcome::Disk { failed } => {
                self.counts.misses += 1;
                self.counts.read_ps += self.disk_ps + failed.map_or(0, |at| self.flash_time(at));
            }
        }
    }

    /// Time of a read of flash with its decoding, picoseconds.
    fn flash_time(&self, page: PhysicalPage) -> u64 {
        let array = self.read_ps[usize::from(page.density == Density::Mlc)];
        array + self.decode_ps.get(usize::from(page.strength)).copied().unwrap_or(0)
    }

    fn count_steps(&mut self) {
        let counts = &mut self.counts;
        for step in self.steps.drain(..) {
            match step {
                Step::Program { .. } => counts.programs += 1,
                Step::Move { cause, .. } => {
                    counts.programs += 1;
                    counts.reclaim_moves += u64::from(cause == Cause::Reclaim);
                }
                Step::Erase(_) => counts.erases += 1,
                Step::Note(Note::Reclaim { .. }) => counts.reclaimed_blocks += 1,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use deepram_media::Registry;

    use super::super::{SERVER, server};
    use super::*;

    const SET: [&str; 3] = ["dram_cache=64KiB", "flash=8MiB", "errors.base=none"];

    #[test]
    fn each_read_waits_for_the_level_that_has_its_page() {
        let registry = Registry::builtin().unwrap();
        let server = server(&registry, SERVER, &SET).unwrap();
        let mut untimed = UntimedServer::new(&server, 1, (64, 4096)).unwrap();
        // 2048 pages fit into flash, 32 into DRAM.
        untimed.run("uniform:span=2MiB,read=1,size=2KiB,count=60k", 1, |_| true).unwrap();
        let counts = untimed.counts();
        assert_eq!((counts.reads, counts.writes, counts.misses), (60_000, 0, 1024));
        assert!(counts.flash_hits > 50_000, "{}", counts.flash_hits);
        let flash = server.mlc.idle_latency(NandOp::Read, 1).0 + server.ecc.decode(server.mlc.page, 1).0;
        let slc = server.slc.idle_latency(NandOp::Read, 1).0 + server.ecc.decode(server.mlc.page, 1).0;
        let mean = counts.flash_ps / counts.flash_hits;
        assert!((slc..=flash).contains(&mean), "{mean}");
        assert_eq!(counts.read_ps, counts.flash_ps + 1024 * server.disk.random(Bytes(2048), false).0);
    }

    #[test]
    fn writes_of_new_pages_miss_and_the_counts_of_a_part_are_a_difference() {
        let registry = Registry::builtin().unwrap();
        let server = server(&registry, SERVER, &SET).unwrap();
        let mut untimed = UntimedServer::new(&server, 1, (64, 4096)).unwrap();
        untimed.run("uniform:span=256KiB,read=0,size=4KiB,count=2k", 1, |_| true).unwrap();
        let first = untimed.counts();
        assert_eq!((first.accesses(), first.write_misses), (4000, 128));
        untimed
            .run("uniform:span=256KiB,read=0,size=4KiB,count=2k", 2, |of| of.counts().writes < 5000)
            .unwrap();
        let second = untimed.counts().since(&first);
        assert_eq!((second.writes, second.write_misses, second.reads), (1000, 0, 0));
        assert!(second.programs > 0);
    }
}
