//! Characterisation of the emulator: load latency (Figure 2), bandwidth (Figure 3), barriers (Figure 4), and msync over the
//! size of its range (Figure 5).

use std::sync::Arc;

use deepram_media::Registry;
use deepram_sim::RunOptions;
use deepram_trace::{Op, Request};

use super::{config, owned, workload};
use crate::chart::{Axis, Chart, Drawing, Series};
use crate::error::ReproError;
use crate::experiment::{Experiment, Outcome, Settings};
use crate::simulate;
use crate::simulation_run::SimulationRun;

/// Configured load latencies, nanoseconds.
const LATENCIES: [u32; 9] = [0, 75, 150, 225, 300, 450, 600, 800, 1000];
/// Throttles as 1/n.
const THROTTLES: [u32; 5] = [1, 2, 4, 8, 16];
/// Barrier latencies, microseconds.
const BARRIERS: [u32; 5] = [0, 1, 2, 5, 10];
/// Sizes of the range of an msync, bytes.
const SIZES: [u64; 9] = [1, 64, 1024, 4096, 65_536, 1 << 20, 10 << 20, 30 << 20, 100 << 20];

/// Name, preset and settings of the ways of flushing.
const METHODS: [(&str, &str, &[&str]); 8] = [
    ("default", "pdram", &[]),
    ("clflushopt", "pdram", &["flush=clflushopt"]),
    ("wof", "pdram", &["flush=wof"]),
    ("clwb", "pdram", &["flush=clwb"]),
    ("spf", "pdram", &["flush=wof", "flushed=selective"]),
    ("wof-raw", "nvmm-wof", &[]),
    ("ssd", "ext4-ssd", &[]),
    ("hdd", "ext4-disk", &[]),
];

fn lines(title: &str, about: &str, (x, y): (Axis, Axis), series: Vec<Series>) -> Chart {
    Chart {
        title: title.into(),
        about: about.into(),
        drawing: Drawing::Lines { x, y, series, area: false },
        references: Vec::new(),
    }
}

/// Figure 2: dependent loads of one thread that miss all caches.
pub(super) fn latency(settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let count = settings.pick(20_000, 500);
    let spec = format!("uniform:span=16GiB,size=64,read=1,count={count}");
    let mut runs = Vec::new();
    for latency in LATENCIES {
        let set = owned(&[&format!("read_latency={latency}ns")]);
        runs.push(workload((settings, registry), &format!("l{latency}"), ("pm-lat", &set), &spec, (1, 0))?);
    }
    let about = "One thread loads lines of 16 GiB at random, each after the last.";
    Ok(Experiment::new("latency", "Load latency (Figure 2)", about, runs, |finished| {
        let mut outcome = Outcome::default();
        let (mut points, mut worst) = (Vec::new(), 0f64);
        for latency in LATENCIES {
            let ns = finished.metric(&format!("l{latency}"), "latency.mean_ns")?;
            outcome.metrics.set(format!("ns.{latency}"), ns);
            points.push((f64::from(latency), ns));
            if (150..=600).contains(&latency) {
                worst = worst.max(100.0 * (ns / f64::from(latency) - 1.0).abs());
            }
        }
        outcome.metrics.set("worst_percent", worst);
        let axes = (Axis::linear("configured latency", "ns"), Axis::linear("load latency", "ns"));
        outcome.charts.push(lines("Load latency", "", axes, vec![Series::new("measured", points)]));
        Ok(outcome)
    }))
}

/// Figure 3: all cores read, or write, large ranges.
pub(super) fn bandwidth(settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let count = settings.pick(4_000, 200);
    let mut runs = Vec::new();
    for (name, read) in [("read", 1), ("write", 0)] {
        let spec = format!("sequential:span=64GiB,size=64KiB,read={read},count={count}");
        for part in THROTTLES {
            let set = owned(&[&format!("throttle={}", 1.0 / f64::from(part))]);
            let run =
                workload((settings, registry), &format!("{name}.{part}"), ("pdram", &set), &spec, (16, 0));
            runs.push(run?);
        }
    }
    let about =
        "Sixteen threads, one a core, load or store 64 KiB at a time. The rate is that of the memory.";
    Ok(Experiment::new("bandwidth", "Bandwidth (Figure 3)", about, runs, |finished| {
        let mut outcome = Outcome::default();
        let (mut series, mut worst) = (Vec::new(), 0f64);
        for name in ["read", "write"] {
            let rate = |part: u32| finished.metric(&format!("{name}.{part}"), "counters.pmem_bytes_per_s");
            let full = rate(1)?;
            let mut points = Vec::new();
            for part in THROTTLES.into_iter().rev() {
                let throttle = 1.0 / f64::from(part);
                let ratio = rate(part)? / full;
                outcome.metrics.set(format!("{name}.ratio.{part}"), ratio);
                worst = worst.max(100.0 * (ratio / throttle - 1.0).abs());
                points.push((throttle, rate(part)? / 1e9));
            }
            series.push(Series::new(name, points));
        }
        outcome.metrics.set("worst_percent", worst);
        let axes = (Axis::linear("share of the bandwidth", ""), Axis::linear("bandwidth", "GB/s"));
        outcome.charts.push(lines("Bandwidth", "", axes, series));
        Ok(outcome)
    }))
}

/// A loop that stores one byte and flushes a range of `size` bytes.
fn msync_loop(
    (settings, registry): (&Settings, &Arc<Registry>),
    name: &str,
    (preset, set): (&str, &[String]),
    (size, repeats): (u64, u64),
) -> Result<SimulationRun, ReproError> {
    let mut options = RunOptions { seed: settings.seed, ..RunOptions::default() };
    // Each flush follows its store.
    options.host.warm_up = 2;
    let what = format!("store one byte and flush {size} B, {repeats} times");
    simulate::stream(name, registry, config(preset, set), &what, options, move || {
        (0..2 * repeats + 2).map(move |n| {
            let (op, len) = if n % 2 == 0 { (Op::Write, 1) } else { (Op::Flush, size) };
            Request { time_ps: None, device: 0, offset: 0, len, op }
        })
    })
}

/// Mean time of a store and its flush, in nanoseconds, from that of all requests.
const PAIR: f64 = 2.0;

/// Figure 4: the loop with one byte over the latency of the barrier.
pub(super) fn barrier(settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let mut runs = Vec::new();
    for barrier in BARRIERS {
        let set = owned(&[&format!("barrier={barrier}us")]);
        let repeats = settings.pick(1000, 50);
        runs.push(msync_loop((settings, registry), &format!("b{barrier}"), ("pdram", &set), (1, repeats))?);
    }
    let about = "One thread stores a byte and flushes it.";
    Ok(Experiment::new("barrier", "Barrier latency (Figure 4)", about, runs, |finished| {
        let mut outcome = Outcome::default();
        let mut points = Vec::new();
        for barrier in BARRIERS {
            let us = PAIR * finished.metric(&format!("b{barrier}"), "latency.mean_ns")? / 1e3;
            outcome.metrics.set(format!("us.{barrier}"), us);
            points.push((f64::from(barrier), us));
        }
        let (first, last) = (points[0], points[points.len() - 1]);
        outcome.metrics.set("slope", (last.1 - first.1) / (last.0 - first.0));
        outcome.metrics.set("intercept_us", first.1);
        let axes = (Axis::linear("barrier latency", "µs"), Axis::linear("store and msync", "µs"));
        outcome.charts.push(lines(
            "Latency of a store and its msync",
            "",
            axes,
            vec![Series::new("measured", points)],
        ));
        Ok(outcome)
    }))
}

/// Figure 5: the loop over the size of the range.
pub(super) fn msync(settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let repeats = settings.pick(50, 5);
    let mut runs = Vec::new();
    for (name, preset, set) in METHODS {
        for size in SIZES {
            runs.push(msync_loop(
                (settings, registry),
                &format!("{name}.{size}"),
                (preset, &owned(set)),
                (size, repeats),
            )?);
        }
    }
    let about = "One thread stores a byte and flushes a range around it, which is not in the caches, at full bandwidth. wof-raw has \
                 the bandwidth and latency of NVMM-Raw.";
    Ok(Experiment::new("msync", "msync over the size of its range (Figure 5)", about, runs, |finished| {
        let mut outcome = Outcome::default();
        let mut series = Vec::new();
        let ms = |name: &str, size: u64| {
            Ok::<_, ReproError>(PAIR * finished.metric(&format!("{name}.{size}"), "latency.mean_ns")? / 1e6)
        };
        let (small, ten, large) = (SIZES[0], SIZES[6], SIZES[8]);
        for (name, ..) in METHODS {
            let mut points = Vec::new();
            for size in SIZES {
                points.push((size as f64, ms(name, size)?));
            }
            outcome.metrics.set(format!("{name}.ms.1_byte"), ms(name, small)?);
            outcome.metrics.set(format!("{name}.ms.100_mb"), ms(name, large)?);
            outcome.metrics.set(format!("{name}.growth.10_to_100_mb"), ms(name, large)? / ms(name, ten)?);
            outcome
                .metrics
                .set(format!("{name}.growth.1_byte_to_100_mb"), ms(name, large)? / ms(name, small)?);
            outcome.metrics.set(format!("{name}.over.hdd.100_mb"), ms(name, large)? / ms("hdd", large)?);
            // Where the time of the linear part meets that of the disk.
            let each = (ms(name, large)? - ms(name, ten)?) / (large - ten) as f64;
            if each > 0.0 {
                let crossing = (ms("hdd", small)? - ms(name, small)?) / each / f64::from(1 << 20);
                outcome.metrics.set(format!("{name}.crossing_mb"), crossing);
            }
            series.push(Series::new(name, points));
        }
        outcome.metrics.set("spf.saving.100_mb", ms("wof", large)? / ms("spf", large)?);
        let axes = (Axis::log("range", "B"), Axis::log("store and msync", "ms"));
        outcome.charts.push(lines("Latency of a store and its msync", "", axes, series));
        Ok(outcome)
    }))
}
