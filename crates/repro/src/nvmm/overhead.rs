//! The software-overhead table: single-page reads from an SSD through the operating system. It is the
//! only table that parameters are calibrated on (presets/software.toml).

use std::sync::Arc;

use deepram_media::{Bytes, Registry, Ssd};
use deepram_sim::host::HostOptions;
use deepram_sim::paging::PagingOptions;
use deepram_sim::{RunOptions, System, SystemConfig};
use deepram_trace::workload::Rng;
use deepram_trace::{Op, Request};

use super::machine::MachineConfig;
use crate::chart::{Axis, Bars, Chart, Drawing};
use crate::error::ReproError;
use crate::experiment::{Experiment, FinishedRuns, Outcome, Settings};
use crate::simulate;
use crate::simulation_run::SimulationRun;

const DRIVES: [(&str, &str, &str); 2] =
    [("slc", "paging-slc", "linux-slc"), ("mlc", "paging-mlc", "linux-mlc")];

/// Settings that the sensitivity study can change.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Variant {
    /// Other threads that fault at the same time.
    pub(super) others: u32,
    /// A fault reads the pages around it, too.
    pub(super) read_around: bool,
}

/// Builds the runs.
pub(super) fn runs(
    settings: &Settings,
    registry: &Arc<Registry>,
    variant: Variant,
) -> Result<Vec<SimulationRun>, ReproError> {
    let count = settings.pick(20_000, 2_000);
    let seed = settings.seed;
    let mut runs = Vec::new();
    for (name, preset, software) in DRIVES {
        let mut config = SystemConfig::new(System::SsdPaging);
        config.preset = preset.into();
        config.software = software.into();
        config.paging = PagingOptions { memory: Bytes(256 << 20), ..MachineConfig::default().paging };
        // One page per access, as in the table.
        if !variant.read_around {
            config.paging.readahead_most = 0;
        }
        let host = HostOptions { threads: 1 + variant.others, ..HostOptions::default() };
        let options = RunOptions { seed, host, ..RunOptions::default() };
        let drive: Ssd = registry
            .get(&format!("ssd.{preset}"))
            .map_err(|error| ReproError::Config { what: name.into(), source: Box::new(error.into()) })?;
        let pages = drive.host_bytes().0 / 4096;
        let what = format!("random pages of {pages}, {count} reads, seed {seed}");
        runs.push(simulate::stream(name, registry, config, &what, options, move || {
            let mut random = Rng::new(seed, "overhead");
            (0..count).map(move |_| Request {
                time_ps: None,
                device: 0,
                offset: random.below(pages) * 4096,
                len: 64,
                op: Op::Read,
            })
        })?);
    }
    Ok(runs)
}

/// Sets the metrics; returns the mean hardware and software times for a chart.
pub(super) fn metrics(
    finished: &FinishedRuns<'_>,
    outcome: &mut Outcome,
) -> Result<[Vec<f64>; 2], ReproError> {
    let (mut hardware, mut software) = (Vec::new(), Vec::new());
    for (name, ..) in DRIVES {
        let part = |of: &str, what: &str| finished.metric(name, &format!("counters.fault_times.{of}.{what}"));
        for (of, short) in [("total", "total"), ("hardware", "hw"), ("software", "sw")] {
            outcome.metrics.set(format!("{name}.{short}_us"), part(of, "mean_ps")? / 1e6);
            outcome.metrics.set(format!("{name}.{short}_sd_us"), part(of, "deviation_ps")? / 1e6);
        }
        let (soft, all) = (part("software", "mean_ps")?, part("total", "mean_ps")?);
        outcome.metrics.set(format!("{name}.sw_percent"), soft / all * 100.0);
        hardware.push(part("hardware", "mean_ps")? / 1e6);
        software.push(soft / 1e6);
    }
    Ok([hardware, software])
}

/// Builds the experiment.
pub(super) fn experiment(settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let runs = runs(settings, registry, Variant::default())?;
    Ok(Experiment::new(
        "overhead",
        "Software overhead of SSDs",
        "One thread reads random pages of a mapped file, one page per fault. Software times are calibrated \
         on the paper's table; the SSD's times are not.",
        runs,
        |finished| {
            let mut outcome = Outcome::default();
            let [hardware, software] = metrics(finished, &mut outcome)?;
            outcome.charts.push(Chart {
                title: "Mean time of an SSD access, by part".into(),
                about: "Hardware and software time of one page fault.".into(),
                drawing: Drawing::Bars {
                    axis: Axis::linear("time", "µs"),
                    groups: vec!["SLC".into(), "MLC".into()],
                    series: vec![Bars::new("hardware", hardware), Bars::new("software", software)],
                    stacked: true,
                },
                references: Vec::new(),
            });
            Ok(outcome)
        },
    ))
}
