//! Metadata of EXT4, XFS and BtrFS made durable by blocks or by lines (FlatFlash, sections 3.5 and 5.5, Figure 13).
//!
//! 1. The systems do the same changes. unified-mmap and traditional-stack write journal or copied nodes by blocks,
//!    flatflash lines in place: what each writes is the workload `metadata`'s, docs/metadata.md.
//! 2. Everything is a 128th of the paper's: of 50 million operations the file set that they make, of the drive's memory,
//!    of the journal.
//! 3. A lifetime is the ratio of pages programmed: as many changes, as much flash.

use std::sync::Arc;

use deepram_media::Registry;
use deepram_sim::{RunOptions, RunResult, SimError, System, SystemConfig, requests};
use deepram_trace::workload::{Spec, SpecError};
use deepram_trace::{ObjectPlacement, TraceError, Workload};
use serde_json::{Value, json};

use crate::chart::{Axis, Bars, Chart, Drawing, Reference, Table};
use crate::error::ReproError;
use crate::experiment::{Experiment, Finished, Outcome, Settings};
use crate::number::plain;
use crate::run::{Figures, Procedure, Run};

/// Raised when the simulator yields other figures for the same configuration.
const METADATA: Procedure = Procedure { name: "metadata", version: 1 };

const SYSTEMS: [(&str, System); 3] =
    [("flatflash", System::FlatFlash), ("unified", System::UnifiedMMap), ("stack", System::TraditionalStack)];
const FILE_SYSTEMS: [&str; 3] = ["ext4", "xfs", "btrfs"];
const OPERATIONS: [&str; 5] = ["create", "rename", "mkdir", "varmail", "webserver"];

/// What the study may change.
#[derive(Debug, Clone)]
pub(super) struct Variant {
    /// Figures of the machine's preset.
    pub(super) machine: Vec<String>,
    /// Keys of the workload.
    pub(super) workload: Vec<String>,
    pub(super) directories: u64,
    pub(super) journal: &'static str,
}

impl Default for Variant {
    fn default() -> Self {
        Self { machine: Vec::new(), workload: Vec::new(), directories: 4000, journal: "1MiB" }
    }
}

/// A drive of 32 GiB with 16 MiB of memory, the paper's 2 GB by 128, and the other caches by as much.
pub(super) const MACHINE: [&str; 4] =
    ["buffer_share=0.05%", "cpu_cache=240KiB", "tlb_entries=8", "tlb_ways=8"];

/// The system on that machine, with bytes that persist.
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

fn name(system: &str, fs: &str, operation: &str) -> String {
    format!("{system}.{fs}.{operation}")
}

fn run(
    registry: &Arc<Registry>,
    variant: &Variant,
    (label, kind): (&str, System),
    (fs, operation): (&str, &str),
    (warm_up, measured): (u64, u64),
    seed: u64,
) -> Result<Run, ReproError> {
    let name = name(label, fs, operation);
    let grain = if kind == System::FlatFlash { "byte" } else { "block" };
    let text = |operations: u64| {
        let Variant { workload, directories, journal, .. } = variant;
        let more: String = workload.iter().map(|key| format!(",{key}")).collect();
        // A file grows to 64 KiB: 400,000 of them fit on the drive.
        format!(
            "metadata:fs={fs},op={operation},grain={grain},dirs={directories},perdir=100,journal={journal},\
             filesize=4KiB,ops={operations}{more}"
        )
    };
    let mut config = system(kind, &variant.machine);
    config.flat.regions = std::iter::once(0..30 << 30).collect();
    let whole = text(warm_up + measured);
    let identity = identity(&name, registry, &config, &whole, json!({ "warm_up": warm_up, "seed": seed }))?;
    let (registry, run, before) = (Arc::clone(registry), name.clone(), text(warm_up));
    Ok(Run::new(name, METADATA, identity, move || {
        let failed = |source: SimError| ReproError::Simulation { run: run.clone(), source: Box::new(source) };
        let workload = |text: &str| Workload::new(text, seed).map_err(|error| failed(wrong_workload(&error)));
        let mut options = RunOptions { seed, workload: whole.clone(), ..RunOptions::default() };
        options.host.warm_up = workload(&before)?.count() as u64;
        let nothing = ObjectPlacement { slot_bytes: 0, slots: 0 };
        let requests = requests(workload(&whole)?.map(Ok::<_, TraceError>), nothing);
        let result = deepram_sim::run(&registry, &config, requests, &options).map_err(failed)?;
        figures_of(&run, &result)
    }))
}

fn wrong_workload(error: &dyn std::fmt::Display) -> SimError {
    SimError::Config { key: "workload".into(), why: error.to_string() }
}

/// Everything that a run's figures depend on: the system, the workload with all its keys, and `more`.
pub(super) fn identity(
    name: &str,
    registry: &Registry,
    config: &SystemConfig,
    workload: &str,
    more: Value,
) -> Result<Value, ReproError> {
    let wrong = |source: SimError| ReproError::Config { what: name.into(), source: Box::new(source) };
    let spec: Spec = workload.parse().map_err(|error: SpecError| wrong(wrong_workload(&error)))?;
    Ok(json!({
        "presets": config.digests(registry).map_err(wrong)?,
        // Whatever options a system gets, they are in here.
        "options": format!("{config:?}"),
        "workload": spec.to_string(),
        "more": more,
    }))
}

/// All numbers of a result, by their path in its JSON.
pub(super) fn figures_of(run: &str, result: &RunResult) -> Result<Figures, ReproError> {
    let value = serde_json::to_value(result)
        .map_err(|error| ReproError::Run { run: run.into(), why: error.to_string() })?;
    Ok(Figures::of_json(&value, &["config", "seed", "intervals", "response", "energy"]))
}

/// The runs of these systems.
fn runs(
    settings: &Settings,
    registry: &Arc<Registry>,
    variant: &Variant,
    systems: &[(&str, System)],
    amount: (u64, u64),
) -> Result<Vec<Run>, ReproError> {
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

/// The runs behind the claims, fewer changes in each.
pub(super) fn study_runs(
    settings: &Settings,
    registry: &Arc<Registry>,
    variant: &Variant,
) -> Result<Vec<Run>, ReproError> {
    runs(settings, registry, variant, &SYSTEMS[..2], settings.pick((6_000, 3_000), (300, 300)))
}

/// Changes of a run before measuring begins, and measured.
fn amount(settings: &Settings) -> (u64, u64) {
    settings.pick((12_000, 8_000), (400, 400))
}

/// Time and programmed pages of a change.
fn of_run(finished: &Finished<'_>, run: &str) -> Result<(f64, f64), ReproError> {
    let programs = finished.figure(run, "flash.programs")?;
    // Nothing may have been programmed in so short a run: then one page stands for it.
    Ok((finished.figure(run, "simulated_time_ns")?, programs.max(1.0)))
}

/// Ratios of unified-mmap to flatflash, one for each file system and operation, and the ends of each one's range.
pub(super) fn figures(finished: &Finished<'_>, outcome: &mut Outcome) -> Result<(), ReproError> {
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
            outcome.figures.set(format!("{fs}.{operation}.speedup"), speedup);
            outcome.figures.set(format!("{fs}.{operation}.lifetime"), lifetime);
            add(format!("{fs}.speedup"), speedup);
            add(format!("{operation}.speedup"), speedup);
            add(format!("{operation}.lifetime"), lifetime);
            add("all.speedup".into(), speedup);
        }
    }
    for (name, least, most) in ranges {
        outcome.figures.set(format!("{name}.least"), least);
        outcome.figures.set(format!("{name}.most"), most);
    }
    Ok(())
}

/// The experiment.
pub(super) fn experiment(settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let (warm_up, measured) = amount(settings);
    let runs = runs(settings, registry, &Variant::default(), &SYSTEMS, (warm_up, measured))?;
    let what = format!(
        "{measured} changes of metadata, each durable by itself, after {warm_up} that are not measured; 400,000 files in \
         4,000 directories, 16 MiB of drive's memory, a journal of 1 MiB: a 128th of what 50 million operations make and \
         of the paper's drive. What is written for a change is that of the file systems' formats (docs/metadata.md). What \
         operations read is in the host's memory on all systems and not simulated. The paper's changes are traced on its \
         machine and are not to be had."
    );
    let measured = measured as f64;
    Ok(Experiment::new("filesystem", "Metadata of file systems", what, runs, move |finished| {
        let mut outcome = Outcome::default();
        figures(finished, &mut outcome)?;
        for fs in FILE_SYSTEMS {
            outcome.charts.push(chart(finished, fs)?);
        }
        outcome.tables.push(table(finished, measured)?);
        Ok(outcome)
    }))
}

fn chart(finished: &Finished<'_>, fs: &str) -> Result<Chart, ReproError> {
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
        title: format!("FlatFlash's speedup, {title}"),
        about: "Time of the other system over that of flatflash; above 1 flatflash is faster.".into(),
        drawing: Drawing::Bars {
            axis: Axis::linear("speedup", ""),
            groups: OPERATIONS.map(String::from).to_vec(),
            series,
            stacked: false,
        },
        references: vec![Reference { name: "the same".into(), value: 1.0 }],
    })
}

fn table(finished: &Finished<'_>, changes: f64) -> Result<Table, ReproError> {
    let mut rows = Vec::new();
    for fs in FILE_SYSTEMS {
        for operation in OPERATIONS {
            let mut row = vec![format!("{fs} {operation}")];
            for (label, _) in SYSTEMS {
                let run = name(label, fs, operation);
                let (time, programs) = of_run(finished, &run)?;
                row.push(plain(time / 1e3 / changes));
                row.push(plain(finished.figure(&run, "host.write_bytes")? / changes));
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
    Ok(Table { title: "A change of metadata".into(), headings, rows })
}
