//! What the simulator predicts of this machine against what the pool does on it: HPCC RandomAccess
//! and a scan, at three sizes of DRAM.
//!
//! Everything the prediction rests on is measured in the same run and none of it is fitted: the device
//! (as `deepram media measure`), an access to plain memory, a fault that needs no device, a first store
//! into a clean segment, and the processor time of writing back.

use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use anyhow::{Context, ensure};
use clap::Args;
use deepram_core::Bytes;
use deepram_media::{File, Registry};
use deepram_pool::{CreateOptions, Lifetime, OpenOptions, Pool, Words};
use deepram_sim::host::{HostOptions, drive};
use deepram_sim::pager::{Pager, PagerOptions};
use deepram_trace::{Op, Request};
use serde::Serialize;

use super::{Common, Scratch, mix, timed};
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

#[derive(Serialize)]
struct Costs {
    hit_ns: f64,
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
    let file: File = registry.get("file.measured")?;
    let scratch = Scratch::new(&args.common.dir)?;
    let bar = progress("measuring the machine");
    let costs = costs(&scratch, &file, data)?;
    bar.finish_and_clear();
    let path = scratch.file("data.pool");
    fill(&path, data)?;
    let mut rows = Vec::new();
    for ratio in RATIOS {
        for update in [true, false] {
            let bar = progress("running and simulating");
            rows.push(compare(&path, &file, &costs, data, data / ratio, update, args.updates)?);
            bar.finish_and_clear();
        }
    }
    if args.common.json {
        return emit_json(&serde_json::json!({ "costs": costs, "rows": rows }));
    }
    let Costs { hit_ns, fault_ns, protect_ns, flush_ns, device_read_us } = costs;
    emit_text(&format!(
        "measured: access {hit_ns:.0} ns, fault without device {:.1} µs, first store {:.1} µs, write-back {:.2} µs a segment, device read {device_read_us:.1} µs\n\n",
        fault_ns / 1e3,
        protect_ns / 1e3,
        flush_ns / 1e3,
    ))?;
    let mut table = Table::new(&[
        "<workload",
        "DRAM : data",
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

/// A pool with every segment of the data on flash.
fn fill(path: &Path, data: u64) -> anyhow::Result<()> {
    create(path, data)?;
    let pool = Pool::open(&[path], &OpenOptions::new((data / 4).max(64 << 20)))?;
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
fn costs(scratch: &Scratch, file: &File, data: u64) -> anyhow::Result<Costs> {
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
    let pool = Pool::open(&[&path], &OpenOptions::new(4 * TOUCHED * SEGMENT))?;
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
    let device = file.interval(true, Bytes(1 << 20)).0 as f64 / 1e3 * SEGMENT as f64 / (1 << 20) as f64;
    let flush_ns = (time.as_nanos() as f64 / TOUCHED as f64 - device).max(0.0);
    drop(words);
    pool.close()?;
    std::fs::remove_file(&path)?;
    let device_read_us = file.alone(false, Bytes(SEGMENT)).0 as f64 / 1e6;
    Ok(Costs { hit_ns, fault_ns, protect_ns, flush_ns, device_read_us })
}

/// One workload at one size of DRAM, really and simulated.
fn compare(
    path: &Path,
    file: &File,
    costs: &Costs,
    data: u64,
    dram: u64,
    update: bool,
    count: u64,
) -> anyhow::Result<Row> {
    let segments = data / SEGMENT;
    // A scan goes on until every segment that the warm-up left has gone.
    let (warm_up, count) = if update { (count, count) } else { (segments, segments) };
    let pool = Pool::open(&[path], &OpenOptions::new(dram))
        .with_context(|| format!("with {} of DRAM", Bytes(dram)))?;
    let words = words(&pool, data)?;
    let place = |n: u64| if update { mix(n) % (data / 8) } else { n % segments * (SEGMENT / 8) };
    let access = |from: u64, to: u64| {
        for n in from..to {
            let word = &words[place(n) as usize];
            if update {
                word.fetch_xor(n, Relaxed);
            } else {
                black_box(word.load(Relaxed));
            }
        }
    };
    access(0, warm_up);
    let before = pool.stats();
    let ((), time) = timed(|| access(warm_up, warm_up + count));
    let after = pool.stats();
    let measured_per_s = count as f64 / time.as_secs_f64();
    let frames = after.resident_segments.max(before.resident_segments) as u32;
    let user = after.bytes_user - before.bytes_user;
    let write_amplification =
        if user == 0 { 1.0 } else { (after.bytes_written - before.bytes_written) as f64 / user as f64 };
    drop(words);
    pool.close()?;

    let ps = |ns: f64| (ns * 1e3) as u64;
    let options = PagerOptions {
        data,
        segment: SEGMENT,
        frames,
        hit_ps: ps(costs.hit_ns),
        fault_ps: ps(costs.fault_ns),
        protect_ps: ps(costs.protect_ns),
        flush_ps: ps(costs.flush_ns),
    };
    let mut pager = Pager::new(file, &options)?;
    let op = if update { Op::Write } else { Op::Read };
    let requests = (0..warm_up + count)
        .map(|n| Ok(Request { time_ps: None, device: 0, offset: place(n) * 8, len: 8, op }));
    let host = HostOptions { warm_up, ..HostOptions::default() };
    let simulated = drive(&mut pager, requests, &host)?;
    let predicted_per_s = simulated.requests_per_s;
    Ok(Row {
        workload: if update { "GUPS" } else { "scan" },
        dram_bytes: dram,
        frames,
        predicted_per_s,
        measured_per_s,
        ratio: predicted_per_s / measured_per_s,
        predicted_misses: simulated.counts.host_reads as f64 / count as f64,
        measured_misses: (after.faults_missing - before.faults_missing) as f64 / count as f64,
        write_amplification,
    })
}
