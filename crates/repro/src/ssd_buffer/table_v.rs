//! Leakage of the configurations (Table V) over an hour in which the drive has next to nothing to do.

use std::sync::Arc;

use deepram_media::{Registry, WriteBuffer};
use deepram_sim::{RunOptions, System, SystemConfig};
use deepram_trace::{Op, PS_PER_S, Request};

use super::replay::{BASELINE, HYBRIDS};
use crate::chart::Table;
use crate::error::ReproError;
use crate::experiment::{Experiment, FinishedRuns, Outcome};
use crate::number::plain;
use crate::simulate;
use crate::simulation_run::SimulationRun;

/// Parts of the energy that count: without the tags, whose leakage the table does not have.
const PARTS: [&str; 2] = ["energy.buffer dram.static_nj", "energy.buffer pcm.static_nj"];

fn idle_hour(buffer: &'static str, registry: &Arc<Registry>) -> Result<SimulationRun, ReproError> {
    let config = SystemConfig {
        preset: format!("hybrid-{buffer}"),
        overrides: vec!["tags=none".into()],
        ..SystemConfig::new(System::SsdBuffer)
    };
    let what = "two writes, an hour apart";
    simulate::stream(&format!("idle.{buffer}"), registry, config, what, RunOptions::default(), || {
        [0, 3600 * PS_PER_S].into_iter().map(|time| Request {
            time_ps: Some(time),
            device: 0,
            offset: 0,
            len: 8192,
            op: Op::Write,
        })
    })
}

/// Power of DRAM and tags, mW.
fn dram_power(registry: &Registry, buffer: &str) -> Result<f64, ReproError> {
    let preset: Result<WriteBuffer, _> = registry.get(&format!("buffer.hybrid-{buffer}"));
    preset
        .map(|preset| (preset.dram.leakage.0 + preset.tag_power().0) * 1e3)
        .map_err(|error| ReproError::Config { what: "table-v".into(), source: Box::new(error.into()) })
}

/// Builds the experiment.
pub(super) fn experiment(registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let all = || std::iter::once(BASELINE).chain(HYBRIDS);
    let runs = all().map(|buffer| idle_hour(buffer, registry)).collect::<Result<_, _>>()?;
    let dram = [BASELINE, "1-20"].map(|buffer| dram_power(registry, buffer));
    let [dram_42, dram_1_20] = dram;
    let saving = 100.0 * (1.0 - dram_1_20? / dram_42?);
    Ok(Experiment::new(
        "table-v",
        "Leakage of the configurations (Table V)",
        "Leakage of DRAM and PCM over an idle hour, without the tags, whose leakage Table V does not have. The power of \
         DRAM that the text states includes the tags.",
        runs,
        move |finished| {
            let mut outcome = evaluate(finished)?;
            outcome.metrics.set("dram_power.1-20.saving_percent", saving);
            Ok(outcome)
        },
    ))
}

fn evaluate(finished: &FinishedRuns<'_>) -> Result<Outcome, ReproError> {
    let mut outcome = Outcome::default();
    let energy = |buffer: &str| {
        let parts = PARTS.map(|part| finished.metric(&format!("idle.{buffer}"), part));
        let [dram, pcm] = parts;
        Ok::<_, ReproError>((dram?, pcm?))
    };
    let (baseline, _) = energy(BASELINE)?;
    let mut rows = Vec::new();
    for buffer in HYBRIDS {
        let (dram, pcm) = energy(buffer)?;
        let saving = 100.0 * (1.0 - (dram + pcm) / baseline);
        outcome.metrics.set(format!("leakage.{buffer}.saving_percent"), saving);
        outcome.metrics.set(format!("leakage.{buffer}.dram_saving_percent"), 100.0 * (1.0 - dram / baseline));
        rows.push(vec![buffer.to_owned(), plain(dram / 3.6e9), plain(pcm / 3.6e9), plain(saving)]);
    }
    outcome.tables.push(Table {
        title: "Leakage without tags".into(),
        headings: ["buffer", "DRAM, mW", "PCM, mW", "saving, %"].map(String::from).into(),
        rows,
    });
    Ok(outcome)
}
