//! FlatFlash on the platform of the paper's evaluation (section 4), which emulates the drive's memory in
//! host memory behind page protection, instead of the hardware of section 3.
//!
//! Within a protection epoch the first access to a page at the drive raises an exception, pays the drive's
//! time and is counted for promotion; the accesses after it cost what DRAM costs and are not counted. A
//! thread resets the protection. How often is not published, so the epoch is swept and no claim is judged
//! here.

use std::sync::Arc;

use deepram_media::Registry;

use super::machine::{MACHINES, MachineConfig, RunContext, each};
use super::{gups, latency, redis};
use crate::chart::{Axis, Chart, Drawing, Reference, Series, Table};
use crate::error::ReproError;
use crate::experiment::{Experiment, FinishedRuns, Outcome, Settings};
use crate::number::plain;
use crate::simulation_run::SimulationRun;

/// Protection epochs before scaling, by name, in nanoseconds.
const EPOCHS: [(&str, u64); 5] = [
    ("1ms", 1_000_000),
    ("10ms", 10_000_000),
    ("100ms", 100_000_000),
    ("1s", 1_000_000_000),
    ("10s", 10_000_000_000),
];
/// The hardware of section 3.
const HARDWARE: &str = "hardware";

/// A comparison: title, the name of its run on a machine, and the metric that is compared.
struct Pattern {
    title: &'static str,
    run: fn(&str) -> String,
    metric: &'static str,
}

/// Runs of the study with the largest drive or working set.
const PATTERNS: [Pattern; 4] = [
    Pattern {
        title: "random",
        run: |machine| latency::largest("random", machine),
        metric: "latency.mean_ns",
    },
    Pattern {
        title: "sequential",
        run: |machine| latency::largest("sequential", machine),
        metric: "latency.mean_ns",
    },
    Pattern { title: "GUPS", run: gups::named, metric: "simulated_time_ns" },
    Pattern {
        title: "YCSB B",
        run: |machine| redis::name("ycsb-b", machine, redis::NAMED),
        metric: "latency.mean_ns",
    },
];

/// The name of a run with an epoch.
fn at(epoch: &str, run: &str) -> String {
    format!("{epoch}: {run}")
}

/// The studies' runs on `machines` that the comparisons need, with an epoch.
fn runs(context: RunContext<'_>, epoch: &str) -> Result<Vec<SimulationRun>, ReproError> {
    let settings = context.settings;
    let mut all = latency::runs(context, latency::Extent::for_sensitivity())?;
    all.extend(gups::runs(context, gups::Extent::for_sensitivity(settings))?);
    all.extend(redis::runs(context, redis::Extent::for_sensitivity(settings))?);
    let needed: Vec<String> = PATTERNS
        .iter()
        .flat_map(|pattern| context.machines.iter().map(|(machine, _)| (pattern.run)(machine)))
        .collect();
    all.retain(|run| needed.contains(&run.name));
    for run in &mut all {
        run.name = at(epoch, &run.name);
    }
    Ok(all)
}

/// Builds the experiment.
pub(super) fn experiment(settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let mut all = runs(RunContext::plain(settings, registry), HARDWARE)?;
    for (epoch, nanoseconds) in EPOCHS {
        let base = MachineConfig { platform_epoch_ns: Some(nanoseconds), ..MachineConfig::default() };
        let context = RunContext { settings, registry, base: &base, machines: &MACHINES[..1] };
        all.extend(runs(context, epoch)?);
    }
    let about = "The paper measured FlatFlash on an emulator: the drive's memory is host memory, and page \
                 protection makes the first access to a page raise an exception, which adds the drive's time \
                 (section 4). Until a thread protects the page again, further accesses to it are ordinary \
                 accesses to DRAM, and Algorithm 1 does not see them. The paper does not say how often the \
                 thread does so. FlatFlash with this platform's charges, relative to the baselines, by that \
                 epoch (scaled like the sizes); the other experiments simulate the hardware of section 3. \
                 Small runs.";
    Ok(Experiment::new("platform", "The paper's platform", about, all, evaluate))
}

fn evaluate(finished: &FinishedRuns<'_>) -> Result<Outcome, ReproError> {
    let mut outcome = Outcome::default();
    let epochs = || EPOCHS.iter().map(|(epoch, _)| *epoch);
    let mut rows = Vec::new();
    let mut series = Vec::new();
    for Pattern { title, run, metric } in PATTERNS {
        let [_, unified, stack] = each(finished, metric, |machine| at(HARDWARE, &run(machine)))?;
        let mut row = vec![title.to_owned()];
        let mut points = Vec::new();
        for epoch in epochs().chain([HARDWARE]) {
            let flat = finished.metric(&at(epoch, &run("flatflash")), metric)?;
            let key = title.replace(' ', "-").to_lowercase();
            outcome.metrics.set(format!("platform.{epoch}.{key}.over_unified"), unified / flat);
            outcome.metrics.set(format!("platform.{epoch}.{key}.over_stack"), stack / flat);
            row.push(format!("{}, {}", plain(unified / flat), plain(stack / flat)));
            if let Some((_, nanoseconds)) = EPOCHS.iter().find(|(name, _)| *name == epoch) {
                points.push((*nanoseconds as f64 / 1e6, unified / flat));
            }
        }
        rows.push(row);
        series.push(Series::new(title, points));
    }
    let headings = ["over unified, over stack"].into_iter().chain(epochs()).chain([HARDWARE]);
    let headings = headings.map(String::from).collect();
    outcome.tables.push(Table { title: "By protection epoch".into(), headings, rows });
    outcome.charts.push(Chart {
        title: "Speedup over UnifiedMMap by protection epoch".into(),
        about: "Time of UnifiedMMap over that of FlatFlash; more is better for FlatFlash.".into(),
        drawing: Drawing::Lines {
            x: Axis::log("epoch before scaling", "ms"),
            y: Axis::linear("speedup", ""),
            series,
            area: false,
        },
        references: vec![Reference { name: "equal".into(), value: 1.0 }],
    });
    Ok(outcome)
}
