//! Durable updates of 64 bytes: how many a second, how long each takes, what reaches the device.

mod python;
mod ways;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use deepram_core::Bytes;
use serde::Serialize;

use self::ways::{Bench, Step, WAYS, Way};
use super::latency::{Latency, Quantiles};
use super::{Common, Scratch, Series, device_written};
use crate::output::Table;

/// Between two measurements.
const PAUSE: Duration = Duration::from_millis(100);

/// Options of `deepram bench persist`.
#[derive(Debug, Args)]
pub(crate) struct PersistArgs {
    #[command(flatten)]
    common: Common,
    /// Memory that is updated: the persist region, and each peer's file
    #[arg(long, default_value = "1M", value_name = "SIZE")]
    size: Bytes,
    /// Threads, one measurement each
    #[arg(long, default_value = "1,4,16", value_delimiter = ',', value_name = "N,...")]
    threads: Vec<usize>,
    /// Persists that each thread has under way in `persist-async`
    #[arg(long, default_value_t = 64, value_name = "N")]
    outstanding: usize,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS")]
    seconds: f64,
    /// What takes part: all unless given
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    ways: Vec<String>,
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

/// Medians of one way at one number of threads.
#[derive(Debug, Serialize)]
struct Row {
    way: String,
    threads: usize,
    per_s: f64,
    per_s_min: f64,
    per_s_max: f64,
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    /// Bytes written to the device, by anybody, for each update; absent where the kernel does not tell.
    device_bytes_each: Option<f64>,
    /// Updates a second against O_DSYNC writes of 4 KiB and 512 B by as many threads in the same rounds.
    over_dsync_4k: Option<f64>,
    over_dsync_512: Option<f64>,
    samples: usize,
}

#[derive(Serialize)]
struct Outcome {
    size_bytes: u64,
    seconds_each: f64,
    rows: Vec<Row>,
    left_out: Vec<String>,
}

pub(super) fn run(args: &PersistArgs) -> anyhow::Result<()> {
    let names: Vec<&str> = WAYS.iter().map(|way| way.name).chain(python::NAMES).collect();
    for name in &args.ways {
        anyhow::ensure!(names.contains(&name.as_str()), "--ways {name}: there are {}", names.join(", "));
    }
    anyhow::ensure!(args.size.0 >= 1 << 20, "--size {}: at least 1M", args.size);
    anyhow::ensure!(args.threads.iter().all(|&n| (1..=256).contains(&n)), "--threads: 1 to 256 each");
    anyhow::ensure!(args.outstanding > 0, "--outstanding: at least 1");
    anyhow::ensure!(args.seconds > 0.0 && args.seconds.is_finite(), "--seconds must be above 0");
    let wanted = |name: &str| args.ways.is_empty() || args.ways.iter().any(|way| way == name);
    let scratch = Scratch::new(&args.common.dir)?;
    let bench = Bench::new(&scratch, args.size.0, args.outstanding)?;
    let mut left_out = Vec::new();
    let mut samples: Vec<(String, usize, Vec<Sample>)> = Vec::new();
    let mut note = |name: &str, threads: usize, sample: Sample| match samples
        .iter_mut()
        .find(|(way, of, _)| way == name && *of == threads)
    {
        Some((_, _, all)) => all.push(sample),
        None => samples.push((name.to_owned(), threads, vec![sample])),
    };
    let mut order: Vec<&str> = names.into_iter().filter(|name| wanted(name)).collect();
    for _ in 0..args.common.repeats {
        for &threads in &args.threads {
            for &name in &order {
                let found = match WAYS.iter().find(|way| way.name == name) {
                    Some(way) => measure(way, &bench, threads, args)?,
                    None => match python::measure(name, args, &scratch, threads) {
                        Ok(sample) => sample,
                        Err(why) => {
                            let why = format!("{name}: {why:#}");
                            if !left_out.contains(&why) {
                                left_out.push(why);
                            }
                            continue;
                        }
                    },
                };
                note(name, threads, found);
                // What the device has still to do for one must not be the next one's.
                std::thread::sleep(PAUSE);
            }
            // Nor must the same one always come after the same other.
            order.rotate_left(1);
        }
    }
    bench.close()?;
    let rows = rows(&samples);
    if args.common.json {
        let outcome = Outcome { size_bytes: args.size.0, seconds_each: args.seconds, rows, left_out };
        println!("{}", serde_json::to_string_pretty(&outcome)?);
        return Ok(());
    }
    println!("64 bytes at random in {}, {} s each\n", args.size, args.seconds);
    print!("{}", table(&rows));
    for why in left_out {
        println!("left out: {why}");
    }
    Ok(())
}

/// Runs one way with so many threads for the time asked.
fn measure(way: &Way, bench: &Bench, threads: usize, args: &PersistArgs) -> anyhow::Result<Sample> {
    let mut steps: Vec<Step<'_>> =
        (0..threads).map(|n| (way.make)(bench, n)).collect::<anyhow::Result<_>>()?;
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
        times.merge(&one.with_context(|| way.name)?)?;
    }
    let written = before.zip(device_written(&args.common.dir)).map(|(before, after)| after - before);
    sample(&times, elapsed, written)
}

fn sample(times: &Latency, elapsed: Duration, written: Option<u64>) -> anyhow::Result<Sample> {
    let count = times.count() as f64;
    Ok(Sample {
        per_s: count / elapsed.as_secs_f64(),
        times: times.quantiles().context("no update was made in the time")?,
        bytes_each: written.map(|bytes| bytes as f64 / count),
    })
}

fn rows(samples: &[(String, usize, Vec<Sample>)]) -> Vec<Row> {
    let of = |all: &[Sample], value: fn(&Sample) -> f64| Series::new("", "", all.iter().map(value).collect());
    let rate = |name: &str, threads: usize| {
        let found = samples.iter().find(|(way, of, _)| way == name && *of == threads);
        found.map(|(_, _, all)| of(all, |s| s.per_s).median)
    };
    let row = |(way, threads, all): &(String, usize, Vec<Sample>)| {
        let per_s = of(all, |s| s.per_s);
        let bytes = Series::new("", "", all.iter().filter_map(|s| s.bytes_each).collect());
        Row {
            way: way.clone(),
            threads: *threads,
            per_s: per_s.median,
            per_s_min: per_s.min,
            per_s_max: per_s.max,
            p50_us: of(all, |s| s.times.p50_us).median,
            p99_us: of(all, |s| s.times.p99_us).median,
            p999_us: of(all, |s| s.times.p999_us).median,
            device_bytes_each: (bytes.samples > 0).then_some(bytes.median),
            over_dsync_4k: rate(ways::DSYNC_4K, *threads).map(|base| per_s.median / base),
            over_dsync_512: rate(ways::DSYNC_512, *threads).map(|base| per_s.median / base),
            samples: all.len(),
        }
    };
    let place = |name: &str| WAYS.iter().position(|way| way.name == name).unwrap_or(WAYS.len());
    let mut rows: Vec<Row> = samples.iter().map(row).collect();
    rows.sort_by_key(|row| (row.threads, place(&row.way), row.way.clone()));
    rows
}

fn table(rows: &[Row]) -> String {
    let headings = [
        "<way",
        "threads",
        "k/s",
        "min",
        "max",
        "p50 us",
        "p99",
        "p99.9",
        "bytes each",
        "x 4 KiB",
        "x 512 B",
    ];
    let ratio = |value: Option<f64>| value.map_or("-".into(), |x| format!("{x:.2}"));
    let mut table = Table::new(&headings);
    for row in rows {
        table.row(vec![
            row.way.clone(),
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
