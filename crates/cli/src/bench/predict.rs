//! What the simulator predicts of this machine against what the pool does on it: HPCC RandomAccess
//! and a scan, at three sizes of DRAM. Nothing is read ahead of use: the simulated pool does not.
//!
//! Everything the prediction rests on is measured in the same run: the device (as `deepram media measure`),
//! an access to plain memory, a first store into a clean segment, the processor time of writing back, and a
//! fault. What a fault takes beside the device depends on what ran before: a processor that sleeps has to wake.
//! So it is measured as the pool runs, with device reads under way: random loads at a size of DRAM that is none
//! of the three, just before each run that is predicted, of which the device's own time and the hits are taken away. That is the one figure calibrated
//! on a run of the pool; nothing is fitted to the runs that are compared.
//!
//! The machine's other work comes and goes. Each run is measured in parts, and the median of their rates taken.

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
use deepram_trace::{Op, Request};
use serde::Serialize;

use super::{Common, Scratch, Series, mix, timed};
use crate::measure::{MeasureArgs, measure};
use crate::output::{Table, emit_json, emit_text, progress};

/// Options of `deepram bench predict`.
#[derive(Debug, Args)]
pub(crate) struct PredictArgs {
    #[command(flatten)]
    common: Common,
    /// Bytes of the data
    #[arg(long, default_value = "1GiB", value_name = "SIZE")]
    data: Bytes,
    /// Updates measured at each size of DRAM; as many come before to warm it up
    #[arg(long, default_value_t = 200_000, value_name = "N")]
    updates: u64,
    /// Seconds for each figure of the device
    #[arg(long, default_value_t = 1.0, value_name = "S")]
    seconds: f64,
}

const SEGMENT: u64 = 4096;
/// Data over DRAM.
const RATIOS: [u64; 3] = [8, 4, 2];
/// The same of the run that the cost of a fault is taken from.
const CALIBRATION: u64 = 3;

#[derive(Clone, Copy, Serialize)]
struct Costs {
    hit_ns: f64,
    /// Beside device reads, once that is known; with nothing else going on until then.
    fault_ns: f64,
    protect_ns: f64,
    flush_ns: f64,
    device_read_us: f64,
}

#[derive(Serialize)]
struct Row {
    workload: &'static str,
    dram_bytes: u64,
    frames: u32,
    /// What a fault took beside device reads, just before.
    fault_us: f64,
    predicted_per_s: f64,
    measured_per_s: f64,
    ratio: f64,
    predicted_misses: f64,
    measured_misses: f64,
    write_amplification: f64,
}

pub(super) fn run(args: &PredictArgs) -> anyhow::Result<()> {
    let data = args.data.0 / (1 << 20) * (1 << 20);
    ensure!(data >= 64 << 20, "--data {}: at least 64 MiB", args.data);
    ensure!(args.updates >= 1000, "--updates {}: at least 1000", args.updates);
    let (_, text) = measure(&MeasureArgs::folder(&args.common.dir, args.data, args.seconds))?;
    let mut registry = Registry::builtin()?;
    registry.add("the device measured", &text)?;
    let file: MeasuredFile = registry.get("file.measured")?;
    let scratch = Scratch::new(&args.common.dir)?;
    let bar = progress("measuring the machine");
    let costs = costs(&scratch, &file, data)?;
    bar.finish_and_clear();
    let path = scratch.file("data.pool");
    fill(&path, data)?;
    let mut rows = Vec::new();
    for ratio in RATIOS {
        for work in [Work::Update, Work::Scan] {
            let bar = progress("calibrating, running and simulating");
            let fault_ns = fault_beside_reads(&path, &costs, data, args)?;
            let costs = Costs { fault_ns, ..costs };
            rows.push(compare(&path, &file, &costs, data, data / ratio, work, args)?);
            bar.finish_and_clear();
        }
    }
    if args.common.json {
        return emit_json(&serde_json::json!({ "costs": costs, "rows": rows }));
    }
    let Costs { hit_ns, fault_ns, protect_ns, flush_ns, device_read_us } = costs;
    emit_text(&format!(
        "measured: access {hit_ns:.0} ns, fault alone {:.1} µs, first store {:.1} µs, write-back {:.2} µs a segment, device read {device_read_us:.1} µs\n\n",
        fault_ns / 1e3,
        protect_ns / 1e3,
        flush_ns / 1e3,
    ))?;
    let mut table = Table::new(&[
        "<workload",
        "DRAM : data",
        "fault µs",
        "predicted k/s",
        "measured k/s",
        "ratio",
        "misses predicted",
        "measured",
        "written / stored",
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
    emit_text(&table.render())
}

fn words(pool: &Pool, bytes: u64) -> anyhow::Result<Words> {
    let root = pool.root("data")?;
    ensure!(root.len >= bytes, "the pool holds {} instead of {}", Bytes(root.len), Bytes(bytes));
    Ok(pool.words(root.addr, (bytes / 8) as usize)?)
}

fn create(path: &Path, data: u64) -> anyhow::Result<()> {
    // Flash for the data, its older versions, and the first page, which holds the names.
    Pool::create(&[path], &CreateOptions::new(data + (1 << 20)))?;
    Ok(())
}

/// A pool as it is simulated: with so much DRAM, and reading nothing ahead of use.
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
        word.store(mix(at), Relaxed);
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
            plain[(mix(n) % (data / 8)) as usize].fetch_xor(n, Relaxed);
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

/// What is done with the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Random updates.
    Update,
    /// Random loads.
    Load,
    /// A load of each segment in turn.
    Scan,
}

impl Work {
    /// The word of the n-th access.
    fn place(self, n: u64, data: u64) -> u64 {
        match self {
            Work::Update | Work::Load => mix(n) % (data / 8),
            Work::Scan => n % (data / SEGMENT) * (SEGMENT / 8),
        }
    }

    /// Accesses to warm up with, and as many to be measured: a scan goes on until every segment that the
    /// warm-up left has gone.
    fn count(self, data: u64, args: &PredictArgs) -> u64 {
        if self == Work::Scan { data / SEGMENT } else { args.updates }
    }
}

/// What a run of the real pool was like.
struct Ran {
    per_s: f64,
    frames: u32,
    misses: f64,
    write_amplification: f64,
}

/// The pool at one size of DRAM.
fn run_pool(path: &Path, data: u64, dram: u64, work: Work, args: &PredictArgs) -> anyhow::Result<Ran> {
    let pool =
        Pool::open(&[path], &options(dram)).with_context(|| format!("with {} of DRAM", Bytes(dram)))?;
    let words = words(&pool, data)?;
    let access = |from: u64, to: u64| {
        for n in from..to {
            let word = &words[work.place(n, data) as usize];
            if work == Work::Update {
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
    let ran = Ran {
        per_s,
        frames: after.resident_segments.max(before.resident_segments) as u32,
        misses: (after.faults_missing - before.faults_missing) as f64 / count as f64,
        write_amplification: if user == 0 { 1.0 } else { written as f64 / user as f64 },
    };
    drop(words);
    pool.close()?;
    Ok(ran)
}

/// What a fault takes beside the device when device reads keep the machine awake.
fn fault_beside_reads(path: &Path, costs: &Costs, data: u64, args: &PredictArgs) -> anyhow::Result<f64> {
    let ran = run_pool(path, data, data / CALIBRATION, Work::Load, args)?;
    ensure!(ran.misses > 0.0, "none of the loads missed; use more --data");
    let fault = (1e9 / ran.per_s - costs.hit_ns) / ran.misses - costs.device_read_us * 1e3;
    // The device was slower when it was measured than it is now: then a fault takes nothing that can be told.
    Ok(fault.max(0.0))
}

/// One workload at one size of DRAM, really and simulated.
fn compare(
    path: &Path,
    file: &MeasuredFile,
    costs: &Costs,
    data: u64,
    dram: u64,
    work: Work,
    args: &PredictArgs,
) -> anyhow::Result<Row> {
    let ran = run_pool(path, data, dram, work, args)?;
    let picos = |ns: f64| Picos((ns * 1e3) as u64);
    let options = PoolModelOptions {
        data: Bytes(data),
        // The budget less tables and buffers.
        dram: Bytes(u64::from(ran.frames) * SEGMENT),
        segment: Bytes(SEGMENT),
        hit: picos(costs.hit_ns),
        fault: picos(costs.fault_ns),
        protect: picos(costs.protect_ns),
        flush: picos(costs.flush_ns),
    };
    let mut pager = PoolModel::new(file, &options)?;
    let op = if work == Work::Update { Op::Write } else { Op::Read };
    let count = work.count(data, args);
    let requests = (0..2 * count)
        .map(|n| Ok(Request { time_ps: None, device: 0, offset: work.place(n, data) * 8, len: 8, op }));
    let host = HostOptions { warm_up: count, ..HostOptions::default() };
    let simulated = drive(&mut pager, requests, &host)?;
    let predicted_per_s = simulated.requests_per_s;
    Ok(Row {
        workload: if work == Work::Update { "GUPS" } else { "scan" },
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
