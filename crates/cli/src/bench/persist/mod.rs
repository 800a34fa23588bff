//! Durable updates of 64 bytes: rate, latency, and bytes that reach the device for each.

mod methods;
mod python;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use deepram_core::Bytes;
use serde::Serialize;

use self::methods::{Bench, METHODS, Step, UpdateMethod};
use super::latency::{Latency, Quantiles};
use super::{CommonArgs, Report, Scratch, Series, device_written};
use crate::output::Table;

/// Pause between two measurements.
const PAUSE: Duration = Duration::from_millis(100);

/// Options of `deepram bench persist`.
#[derive(Debug, Args)]
pub(crate) struct PersistArgs {
    #[command(flatten)]
    pub(super) common: CommonArgs,
    /// Size of the persist region, and of each peer's file
    #[arg(long, default_value = "1M", value_name = "SIZE")]
    size: Bytes,
    /// Numbers of threads, each measured
    #[arg(long, default_value = "1,4,16", value_delimiter = ',', value_name = "N,...")]
    threads: Vec<usize>,
    /// Persists in flight for each thread of `persist-async`
    #[arg(long, default_value_t = 64, value_name = "N")]
    outstanding: usize,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS")]
    seconds: f64,
    /// Methods to measure [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    methods: Vec<String>,
    /// Python with sqlite3 and, for LMDB, the package lmdb
    #[arg(long, default_value = "python3", value_name = "PATH")]
    python: PathBuf,
}

/// One measurement.
#[derive(Debug, Clone, Copy)]
struct Sample {
    per_s: f64,
    times: Quantiles,
    bytes_each: Option<f64>,
}

/// Medians of one method at one number of threads.
#[derive(Debug, Serialize)]
struct PersistRow {
    method: String,
    threads: usize,
    per_s: f64,
    per_s_min: f64,
    per_s_max: f64,
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    /// Bytes written to the device for each update, by all processes; `None` where the kernel does not report them.
    device_bytes_each: Option<f64>,
    /// Rate over that of O_DSYNC writes of 4 KiB, and of 512 B, by the same number of threads in the same rounds.
    over_dsync_4k: Option<f64>,
    over_dsync_512: Option<f64>,
    samples: usize,
}

#[derive(Serialize)]
struct PersistReport {
    size_bytes: u64,
    seconds_each: f64,
    /// Persists in flight for each thread of `persist-async`.
    outstanding: usize,
    rows: Vec<PersistRow>,
    skipped: Vec<String>,
}

pub(super) fn run(args: &PersistArgs) -> anyhow::Result<Report> {
    let names: Vec<&str> = METHODS.iter().map(|method| method.name).chain(python::NAMES).collect();
    for name in &args.methods {
        anyhow::ensure!(
            names.contains(&name.as_str()),
            "--methods {name}: no such method; known are {}",
            names.join(", ")
        );
    }
    anyhow::ensure!(args.size.0 >= 1 << 20, "--size {}: at least 1M", args.size);
    anyhow::ensure!(args.threads.iter().all(|&n| (1..=256).contains(&n)), "--threads: 1 to 256 each");
    anyhow::ensure!(args.outstanding > 0, "--outstanding: at least 1");
    anyhow::ensure!(args.seconds > 0.0 && args.seconds.is_finite(), "--seconds must be above 0");
    let wanted = |name: &str| args.methods.is_empty() || args.methods.iter().any(|method| method == name);
    let scratch = Scratch::new(&args.common.dir)?;
    let bench = Bench::new(&scratch, args.size.0, args.outstanding)?;
    let mut skipped = Vec::new();
    let mut samples: Vec<(String, usize, Vec<Sample>)> = Vec::new();
    let mut note = |name: &str, threads: usize, sample: Sample| match samples
        .iter_mut()
        .find(|(method, of, _)| method == name && *of == threads)
    {
        Some((_, _, all)) => all.push(sample),
        None => samples.push((name.to_owned(), threads, vec![sample])),
    };
    let mut order: Vec<&str> = names.into_iter().filter(|name| wanted(name)).collect();
    for _ in 0..args.common.repeats {
        for &threads in &args.threads {
            for &name in &order {
                let found = match METHODS.iter().find(|method| method.name == name) {
                    Some(method) => measure(method, &bench, threads, args)?,
                    None => match python::measure(name, args, &scratch, threads) {
                        Ok(sample) => sample,
                        Err(error) => {
                            let reason = format!("{name}: {error:#}");
                            if !skipped.contains(&reason) {
                                skipped.push(reason);
                            }
                            continue;
                        }
                    },
                };
                note(name, threads, found);
                // The pause lets the device finish the work of this method before the next one is measured.
                std::thread::sleep(PAUSE);
            }
            // Another order in the next round, so that a method does not always follow the same one.
            order.rotate_left(1);
        }
    }
    bench.close()?;
    let rows = rows(&samples);
    let mut text =
        format!("random updates of 64 bytes in {}, {} s each\n\n{}", args.size, args.seconds, table(&rows));
    for reason in &skipped {
        text += &format!("skipped: {reason}\n");
    }
    let report = PersistReport {
        size_bytes: args.size.0,
        seconds_each: args.seconds,
        outstanding: args.outstanding,
        rows,
        skipped,
    };
    Report::new(&report, text)
}

/// Runs one method with `threads` threads for `--seconds`.
fn measure(
    method: &UpdateMethod,
    bench: &Bench,
    threads: usize,
    args: &PersistArgs,
) -> anyhow::Result<Sample> {
    let mut steps: Vec<Step<'_>> =
        (0..threads).map(|n| (method.make)(bench, n)).collect::<anyhow::Result<_>>()?;
    let before = device_written(&args.common.dir);
    let start = Instant::now();
    let until = Duration::from_secs_f64(args.seconds);
    let took: Vec<anyhow::Result<Latency>> = std::thread::scope(|scope| {
        let running: Vec<_> = steps
            .iter_mut()
            .map(|step| {
                scope.spawn(move || {
                    let mut times = Latency::new()?;
                    let mut last = start.elapsed();
                    while last < until {
                        step()?;
                        let now = start.elapsed();
                        times.add(now - last);
                        last = now;
                    }
                    Ok(times)
                })
            })
            .collect();
        running.into_iter().map(|thread| thread.join().expect("a measuring thread does not panic")).collect()
    });
    let elapsed = start.elapsed();
    let mut times = Latency::new()?;
    for one in took {
        times.merge(&one.with_context(|| method.name)?)?;
    }
    let written = before.zip(device_written(&args.common.dir)).map(|(before, after)| after - before);
    sample(&times, elapsed, written)
}

fn sample(times: &Latency, elapsed: Duration, written: Option<u64>) -> anyhow::Result<Sample> {
    let count = times.count() as f64;
    Ok(Sample {
        per_s: count / elapsed.as_secs_f64(),
        times: times.quantiles().context("no update completed in the time given")?,
        bytes_each: written.map(|bytes| bytes as f64 / count),
    })
}

fn rows(samples: &[(String, usize, Vec<Sample>)]) -> Vec<PersistRow> {
    let of = |all: &[Sample], value: fn(&Sample) -> f64| Series::new("", "", all.iter().map(value).collect());
    let rate = |name: &str, threads: usize| {
        let found = samples.iter().find(|(method, of, _)| method == name && *of == threads);
        found.map(|(_, _, all)| of(all, |s| s.per_s).median)
    };
    let row = |(method, threads, all): &(String, usize, Vec<Sample>)| {
        let per_s = of(all, |s| s.per_s);
        let bytes = Series::new("", "", all.iter().filter_map(|s| s.bytes_each).collect());
        PersistRow {
            method: method.clone(),
            threads: *threads,
            per_s: per_s.median,
            per_s_min: per_s.min,
            per_s_max: per_s.max,
            p50_us: of(all, |s| s.times.p50_us).median,
            p99_us: of(all, |s| s.times.p99_us).median,
            p999_us: of(all, |s| s.times.p999_us).median,
            device_bytes_each: (bytes.samples > 0).then_some(bytes.median),
            over_dsync_4k: rate(methods::DSYNC_4K, *threads).map(|base| per_s.median / base),
            over_dsync_512: rate(methods::DSYNC_512, *threads).map(|base| per_s.median / base),
            samples: all.len(),
        }
    };
    let order = |name: &str| METHODS.iter().position(|method| method.name == name).unwrap_or(METHODS.len());
    let mut rows: Vec<PersistRow> = samples.iter().map(row).collect();
    rows.sort_by_key(|row| (row.threads, order(&row.method), row.method.clone()));
    rows
}

fn table(rows: &[PersistRow]) -> String {
    let headings = [
        "<method",
        "threads",
        "k/s",
        "min",
        "max",
        "p50 us",
        "p99",
        "p99.9",
        "bytes/update",
        "x dsync-4k",
        "x dsync-512",
    ];
    let ratio = |value: Option<f64>| value.map_or("-".into(), |x| format!("{x:.2}"));
    let mut table = Table::new(&headings);
    for row in rows {
        table.row(vec![
            row.method.clone(),
            row.threads.to_string(),
            format!("{:.1}", row.per_s / 1e3),
            format!("{:.1}", row.per_s_min / 1e3),
            format!("{:.1}", row.per_s_max / 1e3),
            format!("{:.1}", row.p50_us),
            format!("{:.0}", row.p99_us),
            format!("{:.0}", row.p999_us),
            row.device_bytes_each.map_or("-".into(), |bytes| format!("{bytes:.0}")),
            ratio(row.over_dsync_4k),
            ratio(row.over_dsync_512),
        ]);
    }
    table.render()
}
