//! Metadata updates of EXT4, XFS and BtrFS, made durable by block or by line (FlatFlash, sections 3.5
//! and 5.5, Figure 13).
//!
//! 1. All systems make the same changes. UnifiedMMap and TraditionalStack write journal blocks or copied
//!    tree nodes; FlatFlash writes lines in place and then waits for one write-verify read. The workload
//!    `metadata` defines what each writes.
//! 2. All sizes are 1/128 of the paper's: the file set that 50 million operations create, the journal and
//!    the machine ([`SCALE`]).
//! 3. A lifetime ratio is the ratio of pages programmed for the same number of changes.

use std::sync::Arc;

use deepram_media::Registry;
use deepram_sim::{RunOptions, RunResult, SimError, System, SystemConfig, requests};
use deepram_trace::workload::{Spec, SpecError};
use deepram_trace::{ObjectPlacement, TraceError, Workload};
use serde_json::{Value, json};

use crate::chart::{Axis, Bars, Chart, Drawing, Reference, Table};
use crate::error::ReproError;
use crate::experiment::{Experiment, FinishedRuns, Outcome, Settings};
use crate::number::plain;
use crate::simulate::workload_error;
use crate::simulation_run::{Metrics, SimulationRun};

/// Name of the procedure, part of the digest.
const METADATA: &str = "metadata";

const SYSTEMS: [(&str, System); 3] =
    [("flatflash", System::FlatFlash), ("unified", System::UnifiedMMap), ("stack", System::TraditionalStack)];
pub(super) const FILE_SYSTEMS: [&str; 3] = ["ext4", "xfs", "btrfs"];
const OPERATIONS: [&str; 5] = ["create", "rename", "mkdir", "varmail", "webserver"];

/// Settings that the sensitivity study can change.
#[derive(Debug, Clone)]
pub(super) struct Variant {
    preset: &'static str,
    /// End of the persistent region, which begins at 0.
    region: u64,
    /// Preset overrides, `key=value`.
    pub(super) machine: Vec<String>,
    /// Additional workload keys, `key=value`.
    pub(super) workload: Vec<String>,
    pub(super) directories: u64,
    pub(super) journal: &'static str,
    /// `once` for one write-verify read behind the lines of a change, `each` for one behind each structure.
    pub(super) fence: &'static str,
}

impl Default for Variant {
    fn default() -> Self {
        Self {
            preset: "p3700-32gib",
            region: 30 << 30,
            machine: Vec::new(),
            workload: Vec::new(),
            directories: 4000,
            journal: "1MiB",
            fence: "once",
        }
    }
}

impl Variant {
    /// The paper's machine, the files that 50 million operations create, and a journal of their size.
    #[cfg(test)]
    pub(super) fn full_size() -> Self {
        let machine = ["buffer_share=0.125%", "cpu_cache=30MiB", "tlb_entries=1024"];
        let machine = machine.iter().chain(&["write_queue=64", "reset_epoch=10000"]);
        Self {
            preset: "p3700",
            region: 1400 << 30,
            machine: machine.map(|text| (*text).to_owned()).collect(),
            directories: SCALE * 4000,
            journal: "128MiB",
            ..Self::default()
        }
    }
}

/// Divisor of the paper's sizes.
pub(super) const SCALE: u64 = 128;

/// Overrides for a drive of 32 GiB with 16 MiB of memory, 1/128 of the paper's 2 GB, and equally scaled
/// caches, queues and epoch of Algorithm 1. As in `machine`, nothing that works at once is scaled.
pub(super) const MACHINE: [&str; 6] = [
    "buffer_share=0.05%",
    "cpu_cache=240KiB",
    "tlb_entries=8",
    "tlb_ways=8",
    "write_queue=1",
    "reset_epoch=500",
];

/// The system on this machine, with `machine` replacing overrides of the same key.
pub(super) fn system(system: System, machine: &[String]) -> SystemConfig {
    let mut config = SystemConfig::new(system);
    config.preset = "p3700-32gib".into();
    config.overrides = MACHINE.iter().map(|text| (*text).to_owned()).collect();
    for text in machine {
        let key = text.split('=').next().unwrap_or_default();
        config.overrides.retain(|other| other.split('=').next() != Some(key));
        config.overrides.push(text.clone());
    }
    config
}

pub(super) fn name(system: &str, fs: &str, operation: &str) -> String {
    format!("{system}.{fs}.{operation}")
}

fn run(
    registry: &Arc<Registry>,
    variant: &Variant,
    (label, kind): (&str, System),
    (fs, operation): (&str, &str),
    (warm_up, measured): (u64, u64),
    seed: u64,
) -> Result<SimulationRun, ReproError> {
    let name = name(label, fs, operation);
    let grain = if kind == System::FlatFlash { "byte" } else { "block" };
    let text = |operations: u64| {
        let Variant { workload, directories, journal, fence, .. } = variant;
        let more: String = workload.iter().map(|key| format!(",{key}")).collect();
        // A file grows to at most 64 KiB, so that 400,000 files fit on the drive.
        format!(
            "metadata:fs={fs},op={operation},grain={grain},fence={fence},dirs={directories},perdir=100,\
             journal={journal},filesize=4KiB,ops={operations}{more}"
        )
    };
    let mut config = system(kind, &variant.machine);
    config.preset = variant.preset.into();
    config.flat.regions = std::iter::once(0..variant.region).collect();
    let whole = text(warm_up + measured);
    let identity = identity(&name, registry, &config, &whole, json!({ "warm_up": warm_up, "seed": seed }))?;
    let (registry, run, before) = (Arc::clone(registry), name.clone(), text(warm_up));
    Ok(SimulationRun::new(name, METADATA, identity, move || {
        let failed = |source: SimError| ReproError::Simulation { run: run.clone(), source: Box::new(source) };
        let workload = |text: &str| Workload::new(text, seed).map_err(|error| failed(workload_error(&error)));
        let mut options = RunOptions { seed, workload: whole.clone(), ..RunOptions::default() };
        options.host.warm_up = workload(&before)?.count() as u64;
        let nothing = ObjectPlacement { slot_bytes: 0, slots: 0 };
        let requests = requests(workload(&whole)?.map(Ok::<_, TraceError>), nothing);
        let result = deepram_sim::run(&registry, &config, requests, &options).map_err(failed)?;
        metrics_of(&run, &result)
    }))
}

/// Everything that a run's metrics depend on, for the digest: the system, the workload with all its
/// keys, and `more`.
pub(super) fn identity(
    name: &str,
    registry: &Registry,
    config: &SystemConfig,
    workload: &str,
    more: Value,
) -> Result<Value, ReproError> {
    let wrong = |source: SimError| ReproError::Config { what: name.into(), source: Box::new(source) };
    let spec: Spec = workload.parse().map_err(|error: SpecError| wrong(workload_error(&error)))?;
    Ok(json!({
        "presets": config.digests(registry).map_err(wrong)?,
        // The `Debug` form covers every option of the system.
        "options": format!("{config:?}"),
        "workload": spec.to_string(),
        "more": more,
    }))
}

/// All numbers of a result, by their path in its JSON.
pub(super) fn metrics_of(run: &str, result: &RunResult) -> Result<Metrics, ReproError> {
    let value = serde_json::to_value(result)
        .map_err(|error| ReproError::Run { run: run.into(), why: error.to_string() })?;
    Ok(Metrics::of_json(&value, &["config", "seed", "intervals", "response", "energy"]))
}

/// Builds the runs of these systems.
fn runs(
    settings: &Settings,
    registry: &Arc<Registry>,
    variant: &Variant,
    systems: &[(&str, System)],
    amount: (u64, u64),
) -> Result<Vec<SimulationRun>, ReproError> {
    let mut all = Vec::new();
    for fs in FILE_SYSTEMS {
        for operation in OPERATIONS {
            for of in systems {
                all.push(run(registry, variant, *of, (fs, operation), amount, settings.seed)?);
            }
        }
    }
    Ok(all)
}

/// The runs of the sensitivity study: those behind the claims, with fewer changes.
pub(super) fn study_runs(
    settings: &Settings,
    registry: &Arc<Registry>,
    variant: &Variant,
) -> Result<Vec<SimulationRun>, ReproError> {
    runs(settings, registry, variant, &SYSTEMS[..2], settings.pick((6_000, 3_000), (300, 300)))
}

/// The runs that create files, so many before measurement and measured.
#[cfg(test)]
pub(super) fn creations(
    settings: &Settings,
    registry: &Arc<Registry>,
    variant: &Variant,
    amount: (u64, u64),
) -> Result<Vec<SimulationRun>, ReproError> {
    let runs = runs(settings, registry, variant, &SYSTEMS, amount)?;
    Ok(runs.into_iter().filter(|run| run.name.ends_with(OPERATIONS[0])).collect())
}

/// Number of changes before measurement, and measured.
pub(super) fn amount(settings: &Settings) -> (u64, u64) {
    settings.pick((12_000, 8_000), (400, 400))
}

/// Time in nanoseconds, and pages programmed.
fn of_run(finished: &FinishedRuns<'_>, run: &str) -> Result<(f64, f64), ReproError> {
    let programs = finished.metric(run, "flash.programs")?;
    // A short run may program no page; it counts as one.
    Ok((finished.metric(run, "simulated_time_ns")?, programs.max(1.0)))
}

/// Sets the ratios of UnifiedMMap to FlatFlash for each file system and operation, and the ends of their
/// ranges.
pub(super) fn metrics(finished: &FinishedRuns<'_>, outcome: &mut Outcome) -> Result<(), ReproError> {
    let mut ranges: Vec<(String, f64, f64)> = Vec::new();
    let mut add = |name: String, value: f64| match ranges.iter_mut().find(|range| range.0 == name) {
        Some(range) => (range.1, range.2) = (range.1.min(value), range.2.max(value)),
        None => ranges.push((name, value, value)),
    };
    for fs in FILE_SYSTEMS {
        for operation in OPERATIONS {
            let ours = of_run(finished, &name("flatflash", fs, operation))?;
            let theirs = of_run(finished, &name("unified", fs, operation))?;
            let (speedup, lifetime) = (theirs.0 / ours.0, theirs.1 / ours.1);
            outcome.metrics.set(format!("{fs}.{operation}.speedup"), speedup);
            outcome.metrics.set(format!("{fs}.{operation}.lifetime"), lifetime);
            add(format!("{fs}.speedup"), speedup);
            add(format!("{operation}.speedup"), speedup);
            add(format!("{operation}.lifetime"), lifetime);
            add("all.speedup".into(), speedup);
        }
    }
    for (name, least, most) in ranges {
        outcome.metrics.set(format!("{name}.least"), least);
        outcome.metrics.set(format!("{name}.most"), most);
    }
    Ok(())
}

/// Builds the experiment.
pub(super) fn experiment(settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let (warm_up, measured) = amount(settings);
    let runs = runs(settings, registry, &Variant::default(), &SYSTEMS, (warm_up, measured))?;
    let what = format!(
        "{measured} metadata changes, each made durable separately, after {warm_up} unmeasured ones; \
         400,000 files in 4,000 directories, 16 MiB of memory in the drive and a journal of 1 MiB: 1/{SCALE} \
         of what 50 million operations create and of the paper's drive. By line, one write-verify read ends \
         a change. The bytes written by a change \
         follow the file systems' on-disk formats. Reads are served from host memory on \
         all systems and are not simulated. The paper traced the changes on its machine; these traces are \
         not available."
    );
    let measured = measured as f64;
    Ok(Experiment::new("filesystem", "File-system metadata", what, runs, move |finished| {
        let mut outcome = Outcome::default();
        metrics(finished, &mut outcome)?;
        for fs in FILE_SYSTEMS {
            outcome.charts.push(chart(finished, fs)?);
        }
        outcome.tables.push(table(finished, measured)?);
        Ok(outcome)
    }))
}

fn chart(finished: &FinishedRuns<'_>, fs: &str) -> Result<Chart, ReproError> {
    let title = match fs {
        "ext4" => "EXT4",
        "xfs" => "XFS",
        _ => "BtrFS",
    };
    let mut series = Vec::new();
    for (label, words) in [("unified", "over unified-mmap"), ("stack", "over traditional-stack")] {
        let ratio = |operation: &&str| {
            let ours = of_run(finished, &name("flatflash", fs, operation))?;
            Ok(of_run(finished, &name(label, fs, operation))?.0 / ours.0)
        };
        series.push(Bars::new(words, OPERATIONS.iter().map(ratio).collect::<Result<_, ReproError>>()?));
    }
    Ok(Chart {
        title: format!("Speedup of FlatFlash, {title}"),
        about: "Time of the other system over that of FlatFlash; above 1 FlatFlash is faster.".into(),
        drawing: Drawing::Bars {
            axis: Axis::linear("speedup", ""),
            groups: OPERATIONS.map(String::from).to_vec(),
            series,
            stacked: false,
        },
        references: vec![Reference { name: "equal".into(), value: 1.0 }],
    })
}

fn table(finished: &FinishedRuns<'_>, changes: f64) -> Result<Table, ReproError> {
    let mut rows = Vec::new();
    for fs in FILE_SYSTEMS {
        for operation in OPERATIONS {
            let mut row = vec![format!("{fs} {operation}")];
            for (label, _) in SYSTEMS {
                let run = name(label, fs, operation);
                let (time, programs) = of_run(finished, &run)?;
                row.push(plain(time / 1e3 / changes));
                row.push(plain(finished.metric(&run, "host.write_bytes")? / changes));
                row.push(plain(programs / changes));
            }
            rows.push(row);
        }
    }
    let mut headings = vec![String::new()];
    for (label, _) in SYSTEMS {
        for what in ["µs", "bytes written", "pages programmed"] {
            headings.push(format!("{label}, {what}"));
        }
    }
    Ok(Table { title: "Costs of a metadata change".into(), headings, rows })
}
