//! Cost of making one changed byte durable in a range of byte-addressable memory (NVMM application study, Fig. 5): every line of
//! the range flushed, or the lines of dirty pages only.

use std::fs::File;
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::Args;
use deepram_core::{Bytes, Picos};
use deepram_pool::memory::{FlushMethod, MemoryController, MemoryOptions, Selective};
use deepram_trace::workload::Rng;
use serde::Serialize;

use super::{OutputArgs, Report};
use crate::output::{Table, duration};

/// Options of `deepram bench msync`.
#[derive(Debug, Args)]
pub(crate) struct MsyncArgs {
    /// Sizes of the range
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1,64,512,4KiB,32KiB,256KiB,1MB,10MB,100MB",
        value_name = "SIZE"
    )]
    sizes: Vec<Bytes>,
    /// Also a range of 8 GiB, for which as much memory must be free
    #[arg(long)]
    full: bool,
    /// Flush methods: clflush, clflushopt, clwb, wof [default: all that the processor has]
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    methods: Vec<FlushMethod>,
    /// Searches for dirty pages: off (every line is flushed), scan (page table), list (page faults)
    #[arg(long, value_delimiter = ',', default_value = "off,scan,list", value_name = "NAME", value_parser = selective)]
    selective: Vec<Selective>,
    /// Delay of the barrier that ends a flush (L_WBAR of the paper)
    #[arg(long, default_value = "0ns", value_name = "TIME")]
    barrier: Picos,
    /// Time of each measurement, milliseconds; one flush at least
    #[arg(long, default_value_t = 60, value_name = "MS", value_parser = clap::value_parser!(u16).range(1..))]
    milliseconds: u16,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

/// The range that `--full` adds.
const FULL: Bytes = Bytes(8 << 30);
/// The range at which selective flushing is compared with the others.
const COMPARED: Bytes = Bytes(100_000_000);
/// Goal: the slowest selective flush of a byte takes at most this many times as long as the fastest, over all sizes.
pub(super) const FLAT: f64 = 2.0;
/// Most samples of a measurement.
const SAMPLES: usize = 40_000;
/// Parts of a measurement, in each of which a page is cleared at least once if the samples are many.
const PARTS: usize = 15;
/// Part of the samples that come first and do not count: the first stores to clean pages.
const WARM_UP: usize = 10;
/// Bytes of a page, in a multiple of which the changed byte lies.
const PAGE: u64 = 4096;
const SEED: u64 = 27;

fn selective(name: &str) -> Result<Selective, String> {
    let found = Selective::ALL.into_iter().find(|selective| selective.name() == name);
    found.ok_or_else(|| "expected off, auto, scan or list".into())
}

#[derive(Serialize)]
struct MsyncReport {
    barrier_ns: f64,
    seed: u64,
    rows: Vec<MsyncRow>,
    curves: Vec<Curve>,
    /// Why a mode did not run.
    skipped: Vec<String>,
}

#[derive(Serialize)]
struct MsyncRow {
    method: &'static str,
    selective: &'static str,
    /// Whether the changed byte is the same each time, or a random one of the range.
    byte: &'static str,
    size_bytes: u64,
    /// Mean time of the store and of the flush: the median over parts of the measurement, as other work on the machine falls into
    /// some of them.
    mean_ns: f64,
    p50_ns: f64,
    p99_ns: f64,
    /// Median of the flush alone.
    flush_p50_ns: f64,
    samples: usize,
    lines_per_flush: f64,
    pages_examined_per_flush: f64,
}

/// One mode over all sizes.
#[derive(Serialize)]
struct Curve {
    method: &'static str,
    selective: &'static str,
    byte: &'static str,
    /// Slowest mean over the fastest.
    slowest_over_fastest: f64,
    /// Whether the curve meets the goal for selective flushing.
    flat: bool,
    /// Time of a flush of every line, by the same method, over this, for 100 MB.
    gain_at_100_mb: Option<f64>,
}

pub(super) fn run(args: &MsyncArgs) -> anyhow::Result<Report> {
    let mut sizes: Vec<u64> = args.sizes.iter().map(|size| size.0).collect();
    sizes.extend(args.full.then_some(FULL.0));
    sizes.sort_unstable();
    sizes.dedup();
    let largest = *sizes.last().unwrap_or(&0);
    ensure!(sizes.first().is_some_and(|&least| least > 0), "--sizes: give at least one byte");
    ensure!(largest <= 1 << 40, "--sizes: {} is more than 1 TiB", Bytes(largest));
    let available = FlushMethod::ALL.into_iter().filter(|method| method.is_available());
    let methods = if args.methods.is_empty() { available.collect() } else { args.methods.clone() };
    let barrier = Duration::from_nanos(args.barrier.0 / 1000);
    let file = File::from(rustix::fs::memfd_create("msync", rustix::fs::MemfdFlags::CLOEXEC)?);
    MemoryController::create_in_file(&file, largest)?;
    let offset = fill(file.try_clone()?, largest)?;
    let mut report = MsyncReport {
        barrier_ns: args.barrier.ns(),
        seed: SEED,
        rows: Vec::new(),
        curves: Vec::new(),
        skipped: Vec::new(),
    };
    for &selective in &args.selective {
        for &method in &methods {
            let options = MemoryOptions { method, selective, barrier };
            let memory = match MemoryController::open_file(file.try_clone()?, &options) {
                Ok(memory) => memory,
                Err(error) => {
                    report.skipped.push(format!("{method} {}: {error}", selective.name()));
                    continue;
                }
            };
            // Every page is in the page table.
            for page in (0..largest).step_by(PAGE as usize) {
                memory.read(offset + page, &mut [0])?;
            }
            for byte in ["same", "random"] {
                for &size in &sizes {
                    report.rows.push(measure(&memory, offset, size, byte, args)?);
                }
            }
        }
    }
    report.curves = curves(&report.rows);
    let text = text(&report);
    Report::new(&report, text)
}

/// Allocates a region of `len` bytes and brings all of its pages into memory. Returns its offset.
fn fill(file: File, len: u64) -> anyhow::Result<u64> {
    let memory = MemoryController::open_file(file, &MemoryOptions::default())?;
    let offset = memory.create_region("", len)?.offset;
    for page in (0..len).step_by(PAGE as usize) {
        memory.write(offset + page, &[1])?;
    }
    Ok(offset)
}

/// Stores to a byte of the range and flushes the range, again and again.
fn measure(
    memory: &MemoryController,
    offset: u64,
    size: u64,
    byte: &'static str,
    args: &MsyncArgs,
) -> anyhow::Result<MsyncRow> {
    let mut rng = Rng::new(SEED, "bench msync");
    let (mut both, mut alone) = (Vec::new(), Vec::new());
    let (mut lines, mut pages) = (0, 0);
    let limit = Duration::from_millis(u64::from(args.milliseconds));
    let begin = Instant::now();
    let mut round = 0_usize;
    while both.is_empty() || both.len() < SAMPLES && begin.elapsed() < limit {
        // The first byte of a page: some methods depend on the place of a dirty line in its page.
        let at = if byte == "same" { size / 2 / PAGE * PAGE } else { rng.below(size) };
        round += 1;
        let start = Instant::now();
        memory.write(offset + at, &[round as u8])?;
        let stored = Instant::now();
        let counts = memory.flush(offset, size)?;
        let end = Instant::now();
        // Slow flushes are few, and need no warming up.
        if round > WARM_UP || end - start > limit / 100 {
            both.push((end - start).as_nanos() as u64);
            alone.push((end - stored).as_nanos() as u64);
            lines += counts.lines_written_back;
            pages += counts.pages_examined;
        }
    }
    let samples = both.len();
    let mean_ns = median_of_means(&both);
    both.sort_unstable();
    alone.sort_unstable();
    Ok(MsyncRow {
        method: memory.options().method.name(),
        selective: memory.search(),
        byte,
        size_bytes: size,
        mean_ns,
        p50_ns: both[samples / 2] as f64,
        p99_ns: both[samples * 99 / 100] as f64,
        flush_p50_ns: alone[samples / 2] as f64,
        samples,
        lines_per_flush: lines as f64 / samples as f64,
        pages_examined_per_flush: pages as f64 / samples as f64,
    })
}

/// Median over up to [`PARTS`] parts of the mean of each.
fn median_of_means(times: &[u64]) -> f64 {
    let parts = times.chunks(times.len().div_ceil(PARTS).max(1));
    let mut means: Vec<f64> = parts.map(|part| part.iter().sum::<u64>() as f64 / part.len() as f64).collect();
    means.sort_unstable_by(f64::total_cmp);
    means[means.len() / 2]
}

/// The modes, each over all sizes.
fn curves(rows: &[MsyncRow]) -> Vec<Curve> {
    let mode = |row: &MsyncRow| (row.method, row.selective, row.byte);
    let at_100_mb = |of: (&str, &str, &str)| {
        rows.iter().find(|row| mode(row) == of && row.size_bytes == COMPARED.0).map(|row| row.mean_ns)
    };
    let curve = |rows: &[MsyncRow]| {
        let (method, selective, byte) = mode(&rows[0]);
        let means = || rows.iter().map(|row| row.mean_ns);
        let ratio = means().fold(0.0, f64::max) / means().fold(f64::INFINITY, f64::min);
        let every_line = at_100_mb((method, "off", byte));
        let gain = every_line.zip(at_100_mb((method, selective, byte))).map(|(all, this)| all / this);
        let gain_at_100_mb = gain.filter(|_| selective != "off");
        Curve { method, selective, byte, slowest_over_fastest: ratio, flat: ratio <= FLAT, gain_at_100_mb }
    };
    rows.chunk_by(|a, b| mode(a) == mode(b)).map(curve).collect()
}

fn text(report: &MsyncReport) -> String {
    let mut sizes: Vec<u64> = report.rows.iter().map(|row| row.size_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let named: Vec<String> = sizes.iter().map(|&size| Bytes(size).to_string()).collect();
    let mut headings = vec!["<method", "<selective", "<byte"];
    headings.extend(named.iter().map(String::as_str));
    headings.extend(["slowest/fastest", "gain at 100 MB"]);
    let mut table = Table::new(&headings);
    for curve in &report.curves {
        let mut cells = vec![curve.method.into(), curve.selective.into(), curve.byte.into()];
        cells.extend(sizes.iter().map(|&size| {
            let of = |row: &&MsyncRow| {
                (row.method, row.selective, row.byte, row.size_bytes)
                    == (curve.method, curve.selective, curve.byte, size)
            };
            let row = report.rows.iter().find(of);
            row.map_or_else(|| "-".into(), |row| duration(Duration::from_nanos(row.mean_ns as u64)))
        }));
        cells.push(format!("{:.2}", curve.slowest_over_fastest));
        cells.push(curve.gain_at_100_mb.map_or_else(|| "-".into(), |gain| format!("{gain:.0}")));
        table.row(cells);
    }
    let skipped: String = report.skipped.iter().map(|reason| format!("skipped: {reason}\n")).collect();
    format!(
        "Mean time of a store of one byte and a flush of the range around it, barrier {} ns.\nGoal: selective flushing of a \
         byte (list, same) within {FLAT} x over all sizes.\n\n{}{skipped}",
        report.barrier_ns,
        table.render()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(selective: &'static str, size_bytes: u64, mean_ns: f64) -> MsyncRow {
        MsyncRow {
            method: "clwb",
            selective,
            byte: "same",
            size_bytes,
            mean_ns,
            p50_ns: mean_ns,
            p99_ns: mean_ns,
            flush_p50_ns: mean_ns,
            samples: 1,
            lines_per_flush: 1.0,
            pages_examined_per_flush: 0.0,
        }
    }

    #[test]
    fn a_disturbed_part_does_not_count() {
        let mut times = vec![100; 150];
        times[17] = 1_000_000;
        times[149] = 1_000_000;
        assert_eq!(median_of_means(&times), 100.0);
        assert_eq!(median_of_means(&[7]), 7.0);
        assert_eq!(median_of_means(&[1, 2, 9]), 2.0);
    }

    #[test]
    fn a_curve_is_flat_within_the_goal_and_gains_against_every_line() {
        let rows = [
            row("off", 1, 100.0),
            row("off", COMPARED.0, 9e6),
            row("list", 1, 150.0),
            row("list", COMPARED.0, 300.0),
        ];
        let curves = curves(&rows);
        let found: Vec<_> =
            curves.iter().map(|curve| (curve.selective, curve.flat, curve.gain_at_100_mb)).collect();
        assert_eq!(found, [("off", false, None), ("list", true, Some(30_000.0))]);
        assert_eq!(curves[1].slowest_over_fastest, 2.0);
    }
}
