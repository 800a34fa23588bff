//! NVMM application study (A Study of Application Performance with Non-Volatile Main Memory): latency, bandwidth and cost
//! of persistence of emulated persistent memory, and applications on it, on drives and on DRAM.
//!
//! | module | contents | paper |
//! |---|---|---|
//! | [`claims()`] | the claims | |
//! | `characterise` | load latency, bandwidth, barrier, msync over the size of its range | Figures 2 to 5 |
//! | `filebench` | FileServer, WebServer, Varmail | Figures 6 and 7 |
//! | `mongo` | YCSB on a mapped database, fsync-safe and journaled | Figures 8 to 10 |
//! | `tpcc` | TPC-C on a database with a buffer pool and a log | Figure 11 |
//! | `memcached` | memtier's mixes on a key-value cache in memory | Figure 12 |
//! | `sensitivity` | what the paper leaves open | |
//!
//! The applications are generated workloads; their processor time is assumed.

mod characterise;
mod claims;
mod filebench;
mod memcached;
mod mongo;
mod sensitivity;
mod tpcc;

pub use claims::claims;

use std::sync::Arc;

use deepram_media::Registry;
use deepram_sim::{RunOptions, System, SystemConfig};

use crate::chart::{Axis, Bars, Chart, Drawing};
use crate::error::ReproError;
use crate::experiment::{FinishedRuns, Outcome, Paper, Settings};
use crate::sensitivity::{Sensitivity, Study};
use crate::simulate;
use crate::simulation_run::SimulationRun;

/// The configurations of Table IV.
const TABLE_IV: [&str; 6] = ["pdram", "pm-lat", "pm-bw", "nvmm-raw", "nvmm-wof", "nvmm-opt"];
/// The other media.
const MEDIA: [&str; 3] = ["ext4-ssd", "ext4-disk", "tmpfs"];

/// Configuration of a preset with overrides.
fn config(preset: &str, set: &[String]) -> SystemConfig {
    SystemConfig { preset: preset.into(), overrides: set.to_vec(), ..SystemConfig::new(System::Pmem) }
}

/// A run of a generated workload on a preset by `threads` threads.
fn workload(
    (settings, registry): (&Settings, &Arc<Registry>),
    name: &str,
    (preset, set): (&str, &[String]),
    spec: &str,
    (threads, warm_up): (u32, u64),
) -> Result<SimulationRun, ReproError> {
    let mut options = RunOptions { seed: settings.seed, workload: spec.into(), ..RunOptions::default() };
    (options.host.threads, options.host.warm_up) = (threads, warm_up);
    simulate::workload(name, registry, config(preset, set), spec, options)
}

/// Owned settings.
fn owned(set: &[&str]) -> Vec<String> {
    set.iter().map(|text| (*text).to_owned()).collect()
}

/// Sets `NAME.PRESET.over.BASE` for every preset of `of`: throughput over that of `base`.
fn ratios(
    finished: &FinishedRuns<'_>,
    outcome: &mut Outcome,
    (name, of, base): (&str, &[&str], &str),
) -> Result<(), ReproError> {
    let rate = |preset: &str| finished.metric(&format!("{name}.{preset}"), "throughput_requests_per_s");
    for preset in of {
        outcome.metrics.set(format!("{name}.{preset}.over.{base}"), rate(preset)? / rate(base)?);
    }
    Ok(())
}

/// Bars of the ratios that [`ratios`] set: a group for each workload, a bar for each preset.
fn ratio_chart(
    outcome: &mut Outcome,
    title: &str,
    names: &[&str],
    presets: &[&str],
    (base, log): (&str, bool),
) {
    let of = |preset: &&str| {
        let value = |name: &&str| outcome.metrics.0.get(&format!("{name}.{preset}.over.{base}")).copied();
        Bars { name: (*preset).into(), values: names.iter().map(value).collect() }
    };
    let series = presets.iter().map(of).collect();
    let axis = if log { Axis::log("throughput ratio", "") } else { Axis::linear("throughput ratio", "") };
    outcome.charts.push(Chart {
        title: title.into(),
        about: format!("Relative to {base}."),
        drawing: Drawing::Bars { axis, groups: owned(names), series, stacked: false },
        references: Vec::new(),
    });
}

/// Builds the paper.
///
/// # Errors
/// A configuration cannot be resolved.
pub fn paper(settings: &Settings) -> Result<Paper, ReproError> {
    let registry = Registry::builtin()
        .map_err(|error| ReproError::Config { what: "presets".into(), source: Box::new(error.into()) })?;
    let registry = Arc::new(registry);
    let study = sensitivity::Assumptions::base(settings);
    Ok(Paper {
        name: "pmem",
        title: "NVMM application study: applications on persistent memory",
        about: "Persistent memory on the memory bus with emulated latency, bandwidth and barriers, against SSD, disk and DRAM. \
                The applications are generated workloads with assumed processor times.",
        claims: claims(),
        experiments: vec![
            characterise::latency(settings, &registry)?,
            characterise::bandwidth(settings, &registry)?,
            characterise::barrier(settings, &registry)?,
            characterise::msync(settings, &registry)?,
            filebench::experiment(&study, settings, &registry)?,
            mongo::fsync_safe(&study, settings, &registry)?,
            mongo::journaled(&study, settings, &registry)?,
            tpcc::experiment(&study, settings, &registry)?,
            memcached::experiment(&study, settings, &registry)?,
        ],
        sensitivity: Some(Sensitivity::of::<sensitivity::Assumptions>(settings, &registry)?),
    })
}
