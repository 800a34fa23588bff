//! Validation of the simulator itself: results that DiskSim reports for its own drive, and laws of
//! queueing that any drive and any DRAM must follow. It takes seconds and exercises the path from a
//! claim to the page.

use std::sync::Arc;

use deepram_media::Registry;
use deepram_sim::host::{Dispatch, Stop};
use deepram_sim::peers::DiskSimSynthetic;
use deepram_sim::ssd::Precondition;
use deepram_sim::{RunOptions, System, SystemConfig};

use crate::chart::{Axis, Bars, Chart, Drawing, Reference, Series};
use crate::claim::{Claim, Class, Expected, Tolerance, magnitude, trend};
use crate::error::ReproError;
use crate::experiment::{Experiment, Outcome, Paper, Settings};
use crate::sensitivity::{Headline, Parameter, ParameterChange, Sensitivity};
use crate::simulate;
use crate::simulation_run::Metrics;

const PEERS: &str = "DiskSim 4.0 with the SSD extension, reference results";
const QUEUEING: &str = "queueing, presets tlc and ddr4-2400";

const fn disksim(
    id: &'static str,
    what: &'static str,
    (paper, value): (&'static str, f64),
    metrics: &'static [&'static str],
) -> Claim {
    magnitude(id, "disksim", PEERS, what, (paper, Expected::Value(value)), metrics)
        .held_to(Class::Exact, Tolerance::Absolute(0.0005))
        .unit("µs")
        .noted("Tolerance: half of the last digit given.")
}

/// The claims.
pub const CLAIMS: [Claim; 6] = [
    disksim(
        "disksim-sequential",
        "Sequential reads, mean response time",
        ("132.511 µs", 132.511),
        &["sequential_read_us"],
    ),
    disksim(
        "disksim-random",
        "Random reads, mean response time",
        ("136.118 µs", 136.118),
        &["random_read_us"],
    ),
    disksim(
        "disksim-write",
        "Random writes, mean response time",
        ("329.458 µs", 329.458),
        &["random_write_us"],
    ),
    trend(
        "depth-helps",
        "depth",
        QUEUEING,
        "Throughput of a drive's reads at queue depths 1, 4, 16 and 64",
        ("rising", Expected::Rising),
        &["rate.d1", "rate.d4", "rate.d16", "rate.d64"],
    ),
    trend(
        "depth-costs",
        "depth",
        QUEUEING,
        "Mean latency of a drive's reads at queue depths 1, 4, 16 and 64",
        ("rising", Expected::Rising),
        &["latency_us.d1", "latency_us.d4", "latency_us.d16", "latency_us.d64"],
    ),
    trend(
        "dram-faster",
        "depth",
        QUEUEING,
        "Latency of a drive's read relative to that of a DRAM line",
        ("above 100", Expected::AtLeast(100.0)),
        &["drive_over_dram"],
    ),
];

/// Builds the validation as a paper.
///
/// # Errors
/// A configuration cannot be resolved.
pub fn paper(settings: &Settings) -> Result<Paper, ReproError> {
    let registry = Registry::builtin()
        .map_err(|error| ReproError::Config { what: "presets".into(), source: Box::new(error.into()) })?;
    let registry = Arc::new(registry);
    Ok(Paper {
        name: "validation",
        title: "Validation of the simulator",
        about: "A plain drive and plain DRAM: DiskSim's own cases, and laws of queueing.",
        claims: CLAIMS.to_vec(),
        experiments: vec![peers(settings, &registry)?, depth(settings, &registry, &[])?],
        sensitivity: Some(study(settings, &registry)?),
    })
}

/// Addressable sectors in DiskSim's cases.
const SECTORS: u64 = 7_018_904;
/// The cases: name of the run, reads, sequential, DiskSim's result in microseconds.
const CASES: [(&str, bool, bool, f64); 3] = [
    ("sequential_read", true, true, 132.511),
    ("random_read", true, false, 136.118),
    ("random_write", false, false, 329.458),
];

fn peers(settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let count = settings.pick(250_000, 20_000);
    let runs = CASES
        .iter()
        .map(|&(name, read, sequential, _)| {
            let config = SystemConfig { preset: "disksim-ssd".into(), ..SystemConfig::new(System::Ssd) };
            let mut options = RunOptions { seed: settings.seed, ..RunOptions::default() };
            // Like DiskSim's driver: a cyclic scan that ends at the last arrival.
            options.host.dispatch = Dispatch::Cyclic;
            options.host.stop = Stop::LastArrival;
            let what = format!("disksim:count={count},sectors={SECTORS},read={read},sequential={sequential}");
            simulate::stream(name, registry, config, &what, options, move || {
                DiskSimSynthetic::new(count, SECTORS, read, sequential)
            })
        })
        .collect::<Result<_, _>>()?;
    Ok(Experiment::new(
        "disksim",
        "DiskSim's drive and requests",
        "Preset disksim-ssd. The requests equal those of DiskSim's generator one by one.",
        runs,
        |finished| {
            let mut outcome = Outcome::default();
            let mut ours = Vec::new();
            for (name, ..) in CASES {
                let mean = finished.metric(name, "latency.mean_ns")? / 1e3;
                outcome.metrics.set(format!("{name}_us"), mean);
                ours.push(mean);
            }
            outcome.charts.push(Chart {
                title: "Mean response time".into(),
                about: "Mean response time of each of DiskSim's cases, ours and DiskSim's.".into(),
                drawing: Drawing::Bars {
                    axis: Axis::linear("mean response time", "µs"),
                    groups: vec!["sequential reads".into(), "random reads".into(), "random writes".into()],
                    series: vec![
                        Bars::new("ours", ours),
                        Bars::new("DiskSim", CASES.iter().map(|case| case.3).collect()),
                    ],
                    stacked: false,
                },
                references: Vec::new(),
            });
            Ok(outcome)
        },
    ))
}

const DEPTHS: [u32; 4] = [1, 4, 16, 64];

fn depth(
    settings: &Settings,
    registry: &Arc<Registry>,
    overrides: &[String],
) -> Result<Experiment, ReproError> {
    let count = settings.pick(40_000, 4_000);
    let spec = format!("uniform:span=1GiB,read=1,count={count}");
    let mut runs = Vec::new();
    for depth in DEPTHS {
        let mut config = SystemConfig::new(System::Ssd);
        config.overrides = overrides.to_vec();
        config.ssd.precondition = Precondition::Sequential(0.1);
        let mut options = RunOptions { seed: settings.seed, workload: spec.clone(), ..RunOptions::default() };
        options.host.per_thread = depth;
        runs.push(simulate::workload(&format!("d{depth}"), registry, config, &spec, options)?);
    }
    let options = RunOptions { seed: settings.seed, workload: spec.clone(), ..RunOptions::default() };
    let line = format!("uniform:span=1GiB,size=64,read=1,count={count}");
    runs.push(simulate::workload("dram", registry, SystemConfig::new(System::Dram), &line, options)?);
    Ok(Experiment::new(
        "depth",
        "Queue depth of a drive",
        "Preset tlc, a tenth of it written; uniform reads of 4 KiB over 1 GiB. DRAM: preset ddr4-2400, \
         lines of 64 B.",
        runs,
        |finished| {
            let mut metrics = Metrics::new();
            let (mut rates, mut means, mut tails) = (Vec::new(), Vec::new(), Vec::new());
            for depth in DEPTHS {
                let run = format!("d{depth}");
                let rate = finished.metric(&run, "throughput_requests_per_s")?;
                let mean = finished.metric(&run, "latency.mean_ns")? / 1e3;
                metrics.set(format!("rate.{run}"), rate);
                metrics.set(format!("latency_us.{run}"), mean);
                rates.push((f64::from(depth), rate));
                means.push((f64::from(depth), mean));
                tails.push((f64::from(depth), finished.metric(&run, "latency.p99_ns")? / 1e3));
            }
            let dram = finished.metric("dram", "latency.mean_ns")? / 1e3;
            metrics.set("drive_over_dram", finished.metric("d1", "latency.mean_ns")? / 1e3 / dram);
            let depths = Axis::log("queue depth", "");
            let lines = |title: &str, about: &str, y: Axis, series| Chart {
                title: title.into(),
                about: about.into(),
                drawing: Drawing::Lines { x: depths.clone(), y, series, area: false },
                references: Vec::new(),
            };
            let mut latency = lines(
                "Latency",
                "Mean and 99th percentile of read latency by queue depth.",
                Axis::log("latency", "µs"),
                vec![Series::new("99th percentile", tails), Series::new("mean", means)],
            );
            latency.references.push(Reference { name: "DRAM line".into(), value: dram });
            let rate = lines(
                "Throughput",
                "Reads per second by queue depth: rising, with diminishing gains.",
                Axis::log("reads per second", "1/s"),
                vec![Series::new("reads", rates)],
            );
            let parts = |run: &str| -> Result<Vec<f64>, ReproError> {
                ["flash read.dynamic_nj", "flash standby.static_nj"]
                    .iter()
                    .map(|part| Ok(finished.metric(run, &format!("energy.{part}"))? / 1e6))
                    .collect()
            };
            let names: Vec<String> = DEPTHS.iter().map(|depth| format!("d{depth}")).collect();
            let energy = names.iter().map(|run| parts(run)).collect::<Result<Vec<_>, _>>()?;
            let of = |part: usize| energy.iter().map(|parts| parts[part]).collect();
            let energy = Chart {
                title: "Energy of the reads".into(),
                about: "Energy of all reads by component: the faster the reads complete, the less standby \
                     energy they take."
                    .into(),
                drawing: Drawing::Bars {
                    axis: Axis::linear("energy", "mJ"),
                    groups: DEPTHS.iter().map(|depth| format!("depth {depth}")).collect(),
                    series: vec![Bars::new("array reads", of(0)), Bars::new("standby", of(1))],
                    stacked: true,
                },
                references: Vec::new(),
            };
            Ok(Outcome { metrics, charts: vec![latency, rate, energy], tables: Vec::new() })
        },
    ))
}

fn study(settings: &Settings, registry: &Arc<Registry>) -> Result<Sensitivity, ReproError> {
    let parameter = |key: &str, description: &str, low: &str, base: &str, high: &str| Parameter {
        key: key.into(),
        description: description.into(),
        low: low.into(),
        base: base.into(),
        high: high.into(),
        why: "half and double".into(),
    };
    let parameters = vec![
        parameter("nand.read", "flash read time", "22.5us", "45us", "90us"),
        parameter("channels", "channels of the drive", "4", "8", "16"),
        parameter("controller", "controller time", "1.5us", "3us", "6us"),
    ];
    let headline = |metric: &str, title: &str| Headline { metric: metric.into(), title: title.into() };
    let headlines =
        vec![headline("latency_us.d1", "latency at depth 1"), headline("rate.d64", "throughput at depth 64")];
    Sensitivity::new(headlines, parameters, &|change: Option<ParameterChange<'_>>| {
        let overrides: Vec<String> =
            change.iter().map(|change| format!("{}={}", change.key, change.value)).collect();
        depth(settings, registry, &overrides)
    })
}
