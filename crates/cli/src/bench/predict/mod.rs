//! Compares the simulator's prediction for this machine with the measured pool: HPCC RandomAccess and a scan, at three
//! sizes of DRAM. The pool runs without readahead, because the simulated pool has none.
//!
//! Every input of the prediction is measured in the same run: the device (as `deepram media measure`), an access to
//! plain memory, a first store into a clean segment, the processor time of write-back, and a fault. The software time
//! of a fault depends on the load before it, because a sleeping processor must wake. The bench therefore measures it
//! under device reads: random loads at a fourth size of DRAM, just before each predicted run, less the device's own
//! time and the hits. That is the only input calibrated on a run of the pool. No input is fitted to the compared runs.
//!
//! Other load on the machine varies. Each run is measured in parts, and the median of their rates counts.

use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use anyhow::{Context, ensure};
use clap::Args;
use deepram_core::Bytes;
use deepram_media::{MeasuredFile, Picos, Registry};
use deepram_pool::{CreateOptions, FaultOptions, Lifetime, OpenOptions, Pool, Words};
use deepram_sim::host::{HostOptions, drive};
use deepram_sim::pool_model::{PoolModel, PoolModelOptions};
use deepram_trace::workload::mix64;
use deepram_trace::{Op, Request};
use serde::Serialize;

use super::{CommonArgs, Report, Scratch, Series, timed};
use crate::measure::{MeasureArgs, measure};
use crate::output::{Table, progress};

/// Options of `deepram bench predict`.
#[derive(Debug, Args)]
pub(crate) struct PredictArgs {
    #[command(flatten)]
    pub(super) common: CommonArgs,
    /// Size of the data
    #[arg(long, default_value = "1GiB", value_name = "SIZE")]
    data: Bytes,
    /// Updates measured at each size of DRAM, after a warm-up of the same number
    #[arg(long, default_value_t = 200_000, value_name = "N")]
    updates: u64,
    /// Seconds for each device measurement
    #[arg(long, default_value_t = 1.0, value_name = "S")]
    seconds: f64,
}

const SEGMENT: u64 = 4096;
/// Sizes of the data over the sizes of DRAM.
const RATIOS: [u64; 3] = [8, 4, 2];
/// The same ratio for the calibration of the fault cost.
const CALIBRATION: u64 = 3;

/// Measured costs, the inputs of the prediction.
#[derive(Clone, Copy, Serialize)]
struct Costs {
    hit_ns: f64,
    /// Software time of a fault: on an idle machine at first, under device reads once calibrated.
    fault_ns: f64,
    protect_ns: f64,
    flush_ns: f64,
    device_read_us: f64,
}

#[derive(Serialize)]
struct PredictRow {
    workload: &'static str,
    dram_bytes: u64,
    frames: u32,
    /// Calibrated software time of a fault, measured just before.
    fault_us: f64,
    predicted_per_s: f64,
    measured_per_s: f64,
    ratio: f64,
    predicted_misses: f64,
    measured_misses: f64,
    write_amplification: f64,
}

pub(super) fn run(args: &PredictArgs) -> anyhow::Result<Report> {
    let data = args.data.0 / (1 << 20) * (1 << 20);
    ensure!(data >= 64 << 20, "--data {}: at least 64 MiB", args.data);
    ensure!(args.updates >= 1000, "--updates {}: at least 1000", args.updates);
    let (_, text) = measure(&MeasureArgs::folder(&args.common.dir, args.data, args.seconds))?;
    let mut registry = Registry::builtin()?;
    registry.add("the measured device", &text)?;
    let file: MeasuredFile = registry.get("file.measured")?;
    let scratch = Scratch::new(&args.common.dir)?;
    let bar = progress("measuring the machine");
    let costs = costs(&scratch, &file, data)?;
    bar.finish_and_clear();
    let path = scratch.file("data.pool");
    fill(&path, data)?;
    let mut rows = Vec::new();
    for ratio in RATIOS {
        for work in [Workload::Update, Workload::Scan] {
            let bar = progress("calibrating, running and simulating");
            let fault_ns = fault_cost_under_reads(&path, &costs, data, args)?;
            let costs = Costs { fault_ns, ..costs };
            rows.push(compare(&path, &file, &costs, data, data / ratio, work, args)?);
            bar.finish_and_clear();
        }
    }
    let Costs { hit_ns, fault_ns, protect_ns, flush_ns, device_read_us } = costs;
    let mut text = format!(
        "measured: access {hit_ns:.0} ns, fault on an idle machine {:.1} µs, first store {:.1} µs, write-back of a segment \
         {:.2} µs, device read {device_read_us:.1} µs\n\n",
        fault_ns / 1e3,
        protect_ns / 1e3,
        flush_ns / 1e3,
    );
    let mut table = Table::new(&[
        "<workload",
        "DRAM : data",
        "fault µs",
        "predicted k/s",
        "measured k/s",
        "ratio",
        "predicted misses",
        "measured misses",
        "write amplification",
    ]);
    for row in &rows {
        table.row(vec![
            row.workload.into(),
            format!("1 : {}", data / row.dram_bytes),
            format!("{:.1}", row.fault_us),
            format!("{:.1}", row.predicted_per_s / 1e3),
            format!("{:.1}", row.measured_per_s / 1e3),
            format!("{:.2}", row.ratio),
            format!("{:.3}", row.predicted_misses),
            format!("{:.3}", row.measured_misses),
            format!("{:.2}", row.write_amplification),
        ]);
    }
    text += &table.render();
    Report::new(&serde_json::json!({ "costs": costs, "rows": rows }), text)
}

fn words(pool: &Pool, bytes: u64) -> anyhow::Result<Words> {
    let root = pool.root("data")?;
    ensure!(root.len >= bytes, "the pool holds {} instead of {}", Bytes(root.len), Bytes(bytes));
    Ok(pool.words(root.addr, (bytes / 8) as usize)?)
}

fn create(path: &Path, data: u64) -> anyhow::Result<()> {
    // Flash for the data, its older versions, and the first page, which holds the named roots.
    Pool::create(&[path], &CreateOptions::new(data + (1 << 20)))?;
    Ok(())
}

/// Options of a pool as it is simulated: `dram` bytes of DRAM, no readahead.
fn options(dram: u64) -> OpenOptions {
    OpenOptions::new(dram).faults(FaultOptions { readahead: false, ..FaultOptions::default() })
}

/// A pool with every segment of the data on flash.
fn fill(path: &Path, data: u64) -> anyhow::Result<()> {
    create(path, data)?;
    let pool = Pool::open(&[path], &options((data / 4).max(64 << 20)))?;
    let addr = pool.alloc(data, Lifetime::Permanent)?;
    pool.set_root("data", addr, data)?;
    let words = words(&pool, data)?;
    let bar = progress("filling the pool");
    for (at, word) in (0..).zip(words.iter()) {
        word.store(mix64(at), Relaxed);
    }
    pool.sync()?;
    bar.finish_and_clear();
    drop(words);
    pool.close().map_err(Into::into)
}

/// What the machine takes for the parts of an access.
fn costs(scratch: &Scratch, file: &MeasuredFile, data: u64) -> anyhow::Result<Costs> {
    const TOUCHED: u64 = 8192;
    let plain: Vec<AtomicU64> = (0..data / 8).map(AtomicU64::new).collect();
    let ((), time) = timed(|| {
        for n in 0..1_000_000 {
            plain[(mix64(n) % (data / 8)) as usize].fetch_xor(n, Relaxed);
        }
    });
    let hit_ns = time.as_nanos() as f64 / 1e6;
    drop(plain);
    let path = scratch.file("cost.pool");
    create(&path, 2 * TOUCHED * SEGMENT)?;
    let pool = Pool::open(&[&path], &options(4 * TOUCHED * SEGMENT))?;
    let bytes = TOUCHED * SEGMENT;
    let addr = pool.alloc(bytes, Lifetime::Permanent)?;
    pool.set_root("data", addr, bytes)?;
    let words = words(&pool, bytes)?;
    let step = (SEGMENT / 8) as usize;
    // Never written, so that no device read is needed.
    let (sum, time) = timed(|| words.iter().step_by(step).map(|word| word.load(Relaxed)).sum::<u64>());
    black_box(sum);
    let fault_ns = time.as_nanos() as f64 / TOUCHED as f64;
    let ((), time) = timed(|| words.iter().step_by(step).for_each(|word| word.store(1, Relaxed)));
    let protect_ns = time.as_nanos() as f64 / TOUCHED as f64;
    let (token, time) = timed(|| pool.sync());
    token?;
    let device =
        file.completion_interval(true, Bytes(1 << 20)).0 as f64 / 1e3 * SEGMENT as f64 / (1 << 20) as f64;
    let flush_ns = (time.as_nanos() as f64 / TOUCHED as f64 - device).max(0.0);
    drop(words);
    pool.close()?;
    std::fs::remove_file(&path)?;
    let device_read_us = file.latency(false, Bytes(SEGMENT)).0 as f64 / 1e6;
    Ok(Costs { hit_ns, fault_ns, protect_ns, flush_ns, device_read_us })
}

/// Access patterns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Workload {
    /// Random updates.
    Update,
    /// Random loads.
    Load,
    /// A load of each segment in turn.
    Scan,
}

impl Workload {
    /// Word of the n-th access.
    fn word(self, n: u64, data: u64) -> u64 {
        match self {
            Workload::Update | Workload::Load => mix64(n) % (data / 8),
            Workload::Scan => n % (data / SEGMENT) * (SEGMENT / 8),
        }
    }

    /// Accesses of the warm-up, and of the measurement. A scan covers all data, so that every segment of the
    /// warm-up is evicted.
    fn count(self, data: u64, args: &PredictArgs) -> u64 {
        if self == Workload::Scan { data / SEGMENT } else { args.updates }
    }
}

/// Measurements of one run of the pool.
struct PoolRun {
    per_s: f64,
    frames: u32,
    misses: f64,
    write_amplification: f64,
}

/// Measures the pool at one size of DRAM.
fn run_pool(
    path: &Path,
    data: u64,
    dram: u64,
    work: Workload,
    args: &PredictArgs,
) -> anyhow::Result<PoolRun> {
    let pool =
        Pool::open(&[path], &options(dram)).with_context(|| format!("with {} of DRAM", Bytes(dram)))?;
    let words = words(&pool, data)?;
    let access = |from: u64, to: u64| {
        for n in from..to {
            let word = &words[work.word(n, data) as usize];
            if work == Workload::Update {
                word.fetch_xor(n, Relaxed);
            } else {
                black_box(word.load(Relaxed));
            }
        }
    };
    let count = work.count(data, args);
    access(0, count);
    let before = pool.stats();
    let parts = (args.common.repeats as u64).clamp(1, count);
    let bound = |part: u64| count + count * part / parts;
    let rates = (0..parts).map(|part| {
        let (from, to) = (bound(part), bound(part + 1));
        let ((), time) = timed(|| access(from, to));
        (to - from) as f64 / time.as_secs_f64()
    });
    let per_s = Series::new("", "", rates.collect()).median;
    let after = pool.stats();
    let user = after.bytes_user - before.bytes_user;
    let written = after.bytes_written - before.bytes_written;
    let ran = PoolRun {
        per_s,
        frames: after.resident_segments.max(before.resident_segments) as u32,
        misses: (after.faults_missing - before.faults_missing) as f64 / count as f64,
        write_amplification: if user == 0 { 1.0 } else { written as f64 / user as f64 },
    };
    drop(words);
    pool.close()?;
    Ok(ran)
}

/// Software time of a fault, ns, while device reads keep the processors awake.
fn fault_cost_under_reads(path: &Path, costs: &Costs, data: u64, args: &PredictArgs) -> anyhow::Result<f64> {
    let ran = run_pool(path, data, data / CALIBRATION, Workload::Load, args)?;
    ensure!(ran.misses > 0.0, "no load missed; give more --data");
    let fault = (1e9 / ran.per_s - costs.hit_ns) / ran.misses - costs.device_read_us * 1e3;
    // A device that is faster now than when it was measured would give a negative cost: then the cost is 0.
    Ok(fault.max(0.0))
}

/// Measures and simulates one workload at one size of DRAM.
fn compare(
    path: &Path,
    file: &MeasuredFile,
    costs: &Costs,
    data: u64,
    dram: u64,
    work: Workload,
    args: &PredictArgs,
) -> anyhow::Result<PredictRow> {
    let ran = run_pool(path, data, dram, work, args)?;
    let picos = |ns: f64| Picos((ns * 1e3) as u64);
    let options = PoolModelOptions {
        data: Bytes(data),
        // The DRAM that tables and buffers leave for frames.
        dram: Bytes(u64::from(ran.frames) * SEGMENT),
        segment: Bytes(SEGMENT),
        hit: picos(costs.hit_ns),
        fault: picos(costs.fault_ns),
        protect: picos(costs.protect_ns),
        flush: picos(costs.flush_ns),
    };
    let mut model = PoolModel::new(file, &options)?;
    let op = if work == Workload::Update { Op::Write } else { Op::Read };
    let count = work.count(data, args);
    let requests = (0..2 * count)
        .map(|n| Ok(Request { time_ps: None, device: 0, offset: work.word(n, data) * 8, len: 8, op }));
    let host = HostOptions { warm_up: count, ..HostOptions::default() };
    let simulated = drive(&mut model, requests, &host)?;
    let predicted_per_s = simulated.requests_per_s;
    Ok(PredictRow {
        workload: if work == Workload::Update { "GUPS" } else { "scan" },
        dram_bytes: dram,
        frames: ran.frames,
        fault_us: costs.fault_ns / 1e3,
        predicted_per_s,
        measured_per_s: ran.per_s,
        ratio: predicted_per_s / ran.per_s,
        predicted_misses: simulated.counts.host_reads as f64 / count as f64,
        measured_misses: ran.misses,
        write_amplification: ran.write_amplification,
    })
}
