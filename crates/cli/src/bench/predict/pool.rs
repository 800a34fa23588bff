//! A mapped pool over its journaled store: what its parts cost, an array in it, and the same array simulated.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

use anyhow::{Context, ensure};
use deepram_core::Bytes;
use deepram_media::{MeasuredFile, Picos};
use deepram_pool::{CreateOptions, FaultOptions, Lifetime, OpenOptions, Pool, Words};
use deepram_sim::host::{HostOptions, drive};
use deepram_sim::pool_model::{PoolModel, PoolModelOptions};
use deepram_trace::workload::mix64;
use serde::Serialize;

use super::workload::Workload;
use super::{Counts, Device, Outcome, PAGE};
use crate::bench::{Scratch, timed};
use crate::output::progress;

/// Segments on which the costs are measured.
const SEGMENTS: u64 = 8192;

/// Software costs of the pool, nanoseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct PoolCosts {
    hit_ns: f64,
    /// Of a fault that reads, without the device's time; negative where polling for the read saves more than the fault costs.
    fault_ns: f64,
    first_store_ns: f64,
    write_back_ns: f64,
    install_ns: f64,
    /// Of one more segment of a huge page.
    stage_ns: f64,
}

impl PoolCosts {
    /// The median of each cost.
    pub(super) fn median(all: &[Self]) -> Self {
        let of = |cost: fn(&Self) -> f64| super::median(all.iter().map(cost).collect());
        Self {
            hit_ns: of(|costs| costs.hit_ns),
            fault_ns: of(|costs| costs.fault_ns),
            first_store_ns: of(|costs| costs.first_store_ns),
            write_back_ns: of(|costs| costs.write_back_ns),
            install_ns: of(|costs| costs.install_ns),
            stage_ns: of(|costs| costs.stage_ns),
        }
    }

    /// The costs as one line of text.
    pub(super) fn shown(&self) -> String {
        format!(
            "pool: fault {:.1} µs, first store {:.1} µs, write-back of a segment {:.2} µs, a segment more {:.2} µs, \
             {:.3} µs in a huge page",
            self.fault_ns / 1e3,
            self.first_store_ns / 1e3,
            self.write_back_ns / 1e3,
            self.install_ns / 1e3,
            self.stage_ns / 1e3
        )
    }
}

/// A pool in a file, filled in order with `data` bytes that are all on flash. Updates run in a new pool each time: they move segments
/// away from their neighbours, and a scan of those reads them one by one.
pub(super) struct FilledPool {
    read: PathBuf,
    updated: PathBuf,
    data: u64,
}

fn create(path: &Path, data: u64, flash: Option<u64>) -> anyhow::Result<()> {
    // Besides the data the first page, which holds the named roots.
    Pool::create(&[path], &CreateOptions { flash, ..CreateOptions::new(data + (1 << 20)) })?;
    Ok(())
}

fn words(pool: &Pool, bytes: u64) -> anyhow::Result<Words> {
    let root = pool.root("data")?;
    ensure!(root.len >= bytes, "the pool holds {} instead of {}", Bytes(root.len), Bytes(bytes));
    Ok(pool.words(root.addr, (bytes / 8) as usize)?)
}

fn options(dram: u64, huge_pages: bool) -> OpenOptions {
    OpenOptions::new(dram).faults(FaultOptions {
        pin_faulting_threads: true,
        huge_pages,
        ..FaultOptions::default()
    })
}

impl FilledPool {
    pub(super) fn create(scratch: &Scratch, data: u64) -> anyhow::Result<Self> {
        let [read, updated] = ["read.pool", "updated.pool"].map(|name| scratch.file(name));
        Self::fill(&read, data, None)?;
        Ok(Self { read, updated, data })
    }

    fn fill(path: &Path, data: u64, flash: Option<u64>) -> anyhow::Result<()> {
        create(path, data, flash)?;
        let pool = Pool::open(&[path], &options((data / 4).max(64 << 20), true))?;
        let addr = pool.alloc(data, Lifetime::Permanent)?;
        pool.set_root("data", addr, data)?;
        let words = words(&pool, data)?;
        let bar = progress("filling the pool");
        (0..).zip(words.iter()).for_each(|(at, word)| word.store(mix64(at), Relaxed));
        pool.sync()?;
        bar.finish_and_clear();
        drop(words);
        pool.close()?;
        Ok(())
    }

    /// Measures the costs: those of a step by repeating the step alone, those of a fault and of a segment that is read ahead by
    /// random loads and by scans, without huge pages and with them, at a size of DRAM that is not predicted.
    pub(super) fn costs(
        &self,
        scratch: &Scratch,
        device: &Device,
        hit_ns: f64,
        accesses: u64,
    ) -> anyhow::Result<PoolCosts> {
        let path = scratch.file("cost.pool");
        create(&path, 2 * SEGMENTS * PAGE, None)?;
        let faults = FaultOptions { readahead: false, pin_faulting_threads: true, ..FaultOptions::default() };
        let pool = Pool::open(&[&path], &OpenOptions::new(4 * SEGMENTS * PAGE).faults(faults))?;
        let bytes = SEGMENTS * PAGE;
        let addr = pool.alloc(bytes, Lifetime::Permanent)?;
        pool.set_root("data", addr, bytes)?;
        let words = words(&pool, bytes)?;
        let step = (PAGE / 8) as usize;
        // Never written, so that no device read is needed.
        black_box(words.iter().step_by(step).map(|word| word.load(Relaxed)).sum::<u64>());
        let stores = super::time_apart(SEGMENTS, |segment| words[segment as usize * step].store(1, Relaxed));
        let first_store_ns = (stores - hit_ns).max(0.0);
        pool.without_pinning(|| ());
        let (token, time) = timed(|| pool.sync());
        token?;
        let write = device.file.completion_interval(true, Bytes(1 << 20)).0 as f64 / 1e3;
        let write = write * PAGE as f64 / (1 << 20) as f64;
        let write_back_ns = (time.as_nanos() as f64 / SEGMENTS as f64 - write).max(0.0);
        drop(words);
        pool.close()?;
        std::fs::remove_file(&path)?;
        let dram = self.data / super::CALIBRATION;
        let (ran, file) = device.beside(|| self.measure(dram, Workload::Reads, accesses, true))?;
        let fault_ns = super::fault_ns(&file, &ran, hit_ns, 0.0)?;
        let idle =
            PoolCosts { hit_ns, fault_ns, first_store_ns, write_back_ns, install_ns: 0.0, stage_ns: 0.0 };
        let of_scan = |dram, huge_pages, costs: &dyn Fn(f64) -> PoolCosts| {
            let (ran, file) = device.beside(|| self.measure(dram, Workload::Scan, accesses, huge_pages))?;
            let sizes = (self.data, dram, ran.frames.unwrap_or(0));
            super::cost_of_rate(ran.per_s, |cost| {
                Ok(simulate(&file, &costs(cost), sizes, Workload::Scan, accesses, huge_pages)?.per_s)
            })
        };
        let install_ns = of_scan(self.data / super::CALIBRATION_OF_PAGES, false, &|install_ns| PoolCosts {
            install_ns,
            ..idle
        })?;
        let stage_ns = of_scan(dram, true, &|stage_ns| PoolCosts { install_ns, stage_ns, ..idle })?;
        Ok(PoolCosts { install_ns, stage_ns, ..idle })
    }

    /// Runs the array in the pool.
    pub(super) fn measure(
        &self,
        dram: u64,
        work: Workload,
        accesses: u64,
        huge_pages: bool,
    ) -> anyhow::Result<Outcome> {
        let count = work.count(self.data, accesses);
        let path = if work.writes() {
            // Flash for the data, all that is written, and a reserve: no block is reclaimed, which is not simulated either.
            Self::fill(&self.updated, self.data, Some(2 * self.data + 2 * count * PAGE))?;
            &self.updated
        } else {
            &self.read
        };
        let pool = Pool::open(&[path], &options(dram, huge_pages))
            .with_context(|| format!("with {} of DRAM", Bytes(dram)))?;
        let words = words(&pool, self.data)?;
        let mut all = work.words(self.data);
        let mut access = |count: u64| {
            for (n, at) in (0..).zip(all.by_ref().take(count as usize)) {
                let word = &words[at as usize];
                if work.writes() {
                    word.fetch_xor(n, Relaxed);
                } else {
                    black_box(word.load(Relaxed));
                }
            }
        };
        access(count);
        let before = pool.stats();
        let ((), time) = timed(|| access(count));
        let after = pool.stats();
        pool.without_pinning(|| ());
        let each = |before: u64, after: u64| (after - before) as f64 / count as f64;
        let counts = Counts {
            misses: each(before.faults_missing, after.faults_missing),
            second_chances: 0.0,
            first_stores: each(before.faults_write_protected, after.faults_write_protected),
            read_ahead: each(before.readahead_segments, after.readahead_segments),
            written: each(before.write_backs, after.write_backs),
        };
        ensure!(
            after.blocks_reclaimed == before.blocks_reclaimed,
            "{}: blocks were reclaimed, which is not simulated",
            path.display()
        );
        let frames = Some(before.frames.max(after.frames));
        drop(words);
        pool.close()?;
        if work.writes() {
            std::fs::remove_file(path)?;
        }
        Ok(Outcome { per_s: count as f64 / time.as_secs_f64(), counts, frames })
    }
}

/// Simulates the array (its bytes, those of DRAM, and the frames that tables and buffers leave of these).
pub(super) fn simulate(
    file: &MeasuredFile,
    costs: &PoolCosts,
    (data, dram, frames): (u64, u64, u64),
    work: Workload,
    accesses: u64,
    huge_pages: bool,
) -> anyhow::Result<Outcome> {
    let picos = |ns: f64| Picos((ns * 1e3) as u64);
    let options = PoolModelOptions {
        data: Bytes(data),
        dram: Bytes(frames * PAGE),
        budget: Bytes(dram),
        segment: Bytes(PAGE),
        hit: picos(costs.hit_ns),
        fault: picos(costs.fault_ns),
        protect: picos(costs.first_store_ns),
        flush: picos(costs.write_back_ns),
        install: picos(costs.install_ns),
        stage: picos(costs.stage_ns),
        huge_pages,
        ..PoolModelOptions::default()
    };
    let mut model = PoolModel::new(&super::polled(file, costs.fault_ns), &options)?;
    let count = work.count(data, accesses);
    let host = HostOptions { warm_up: count, ..HostOptions::default() };
    let simulated = drive(&mut model, work.requests(data, 2 * count), &host)?;
    let did = model.pool_counts();
    let each = |counted: u64| counted as f64 / count as f64;
    let counts = Counts {
        misses: each(did.missing),
        second_chances: 0.0,
        first_stores: each(did.first_stores),
        read_ahead: each(did.readahead_segments),
        written: each(did.written),
    };
    Ok(Outcome { per_s: simulated.requests_per_s, counts, frames: None })
}
