//! Lifetime of drive and buffer (Figure 12): size times endurance over the rate of page writes, with perfect wear
//! levelling, for PCM and flash; the shorter one counts. The value of a collection is the mean over its traces.

use std::sync::Arc;

use deepram_media::Registry;
use deepram_trace::workload::standin::Collection;

use super::energy::conditions;
use super::grid::{self, Capacities, Grid, Lifetime};
use super::on_traces;
use super::replay::{BASELINE, Endurance, HYBRIDS, Policy, Scheme};
use super::response::{by_buffer, by_trace};
use super::sources::{GROUPS, Source, Sources};
use crate::chart::Axis;
use crate::error::ReproError;
use crate::experiment::{Experiment, FinishedRuns, Outcome, Settings};
use crate::statistics::mean;

/// Lifetimes of a grid's drives.
#[derive(Clone, Copy)]
struct Lifetimes<'a> {
    grid: Grid<'a>,
    capacities: &'a Capacities,
}

impl Lifetimes<'_> {
    fn of(&self, source: &Source, buffer: &str, policy: Option<Policy>) -> Result<Lifetime, ReproError> {
        self.grid.lifetime(source, buffer, policy, self.capacities)
    }

    /// Hours of a collection.
    fn hours(&self, group: Collection, buffer: &str, policy: Option<Policy>) -> Result<f64, ReproError> {
        self.grid.group_mean(group, |source| Ok(self.of(source, buffer, policy)?.shorter()))
    }

    /// Hours of a collection relative to those of the baseline.
    fn over_baseline(&self, group: Collection, buffer: &str, policy: Policy) -> Result<f64, ReproError> {
        Ok(self.hours(group, buffer, Some(policy))? / self.hours(group, BASELINE, None)?)
    }

    /// Lifetime of PCM over that of flash in a collection, each the mean over the traces.
    fn pcm_over_flash(&self, group: Collection, buffer: &str, policy: Policy) -> Result<f64, ReproError> {
        let mean = |of: fn(Lifetime) -> f64| {
            self.grid.group_mean(group, |source| Ok(of(self.of(source, buffer, Some(policy))?)))
        };
        Ok(mean(|lifetime| lifetime.pcm)? / mean(|lifetime| lifetime.flash)?)
    }
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

/// Sets the metrics of the claims.
pub(super) fn metrics(
    grid: Grid<'_>,
    capacities: &Capacities,
    outcome: &mut Outcome,
) -> Result<(), ReproError> {
    let lifetimes = Lifetimes { grid, capacities };
    let metrics = &mut outcome.metrics;
    let percent = |ratio: f64| 100.0 * (ratio - 1.0);
    for endurance in Endurance::ALL {
        let key = endurance.word();
        let levels = Policy { scheme: Scheme::TwoLevel, endurance };
        // TS and TP: over the baseline and over two levels, by buffer and collection.
        let (mut over_42, mut over_levels, mut by_trace) = (Vec::new(), Vec::new(), Vec::new());
        let (mut ts_over_levels, mut pcm_over_flash) = (Vec::new(), Vec::new());
        for buffer in HYBRIDS {
            let mut own = Vec::new();
            for (group, _) in GROUPS {
                let of_levels = lifetimes.hours(group, buffer, Some(levels))?;
                for scheme in Scheme::FLAT {
                    let policy = Policy { scheme, endurance };
                    let hours = lifetimes.hours(group, buffer, Some(policy))?;
                    own.push(lifetimes.over_baseline(group, buffer, policy)?);
                    over_levels.push(hours / of_levels);
                    if scheme == Scheme::Ts {
                        ts_over_levels.push(hours / of_levels);
                    }
                    pcm_over_flash.push((group, lifetimes.pcm_over_flash(group, buffer, policy)?));
                }
            }
            for source in grid.sources {
                for scheme in Scheme::FLAT {
                    let ours = lifetimes.of(source, buffer, Some(Policy { scheme, endurance }))?;
                    let baseline = lifetimes.of(source, BASELINE, None)?;
                    by_trace.push((source.group(), ours, ours.shorter() / baseline.shorter()));
                }
            }
            metrics.set(format!("lifetime.{key}.{buffer}.mean"), mean(&own).unwrap_or(f64::NAN));
            metrics.set(format!("lifetime.{key}.{buffer}.least"), least(&own));
            over_42.extend(own);
        }
        let of_traces: Vec<f64> = by_trace.iter().map(|(.., ratio)| *ratio).collect();
        for (baseline, values) in [("42", &over_42), ("2l", &over_levels), ("42_by_trace", &of_traces)] {
            metrics.set(format!("gain.{key}.over_{baseline}.best_percent"), percent(most(values)));
            let mean = mean(values).unwrap_or(f64::NAN);
            metrics.set(format!("gain.{key}.over_{baseline}.mean_percent"), percent(mean));
        }
        metrics.set(format!("levels_over_flat.{key}"), 1.0 / mean(&over_levels).unwrap_or(f64::NAN));
        metrics.set(format!("ts_over_levels.{key}"), mean(&ts_over_levels).unwrap_or(f64::NAN));
        // How far PCM and flash are from lasting equally long, by collection and by trace.
        let balanced = |group: Collection| group != Collection::Mse;
        let apart = |ratio: f64| 100.0 * (ratio.max(1.0 / ratio) - 1.0);
        let of = |wanted: &dyn Fn(Collection) -> bool| -> Vec<f64> {
            pcm_over_flash.iter().filter(|(group, _)| wanted(*group)).map(|(_, ratio)| *ratio).collect()
        };
        let distances: Vec<f64> = of(&balanced).into_iter().map(apart).collect();
        let traces = by_trace.iter().filter(|(group, ..)| balanced(*group));
        let traces: Vec<f64> = traces.map(|(_, ours, _)| apart(ours.pcm / ours.flash)).collect();
        for (reading, values) in [("", &distances), ("_by_trace", &traces)] {
            metrics.set(format!("match.{key}{reading}.worst_percent"), most(values));
            metrics.set(format!("match.{key}{reading}.mean_percent"), mean(values).unwrap_or(f64::NAN));
        }
        metrics.set(format!("pcm_over_flash.{key}.mse.least"), least(&of(&|group| group == Collection::Mse)));
        metrics.set(format!("pcm_over_flash.{key}.least"), least(&of(&|_| true)));
    }
    let of_4_80: Vec<f64> = Endurance::ALL
        .into_iter()
        .filter_map(|endurance| metrics.0.get(&format!("lifetime.{}.4-80.least", endurance.word())).copied())
        .collect();
    metrics.set("lifetime.4-80.least", least(&of_4_80));
    Ok(())
}

/// Builds the experiment.
pub(super) fn experiment(
    settings: &Settings,
    registry: &Arc<Registry>,
    sources: &Sources,
) -> Result<Experiment, ReproError> {
    let head = [
        "lifetime",
        "Lifetime of drive and buffer (Figure 12)",
        "Hours until PCM or flash is worn out at the trace's rate of page writes, with perfect wear levelling: flash of \
         3,000 cycles, PCM of 1e7 or 1e8. The paper names no baseline; ours are 42 MB of DRAM and two levels. The traces \
         are too short to collect many blocks, so flash wears by the programs.",
    ];
    let capacities = Capacities::new(registry, &[])?;
    let runs = grid::runs(sources.all(), &conditions(settings), registry)?;
    Ok(on_traces(head, runs, sources, move |finished, sources| evaluate(finished, sources, &capacities)))
}

fn evaluate(
    finished: &FinishedRuns<'_>,
    sources: &[Source],
    capacities: &Capacities,
) -> Result<Outcome, ReproError> {
    let grid = Grid { finished, sources };
    let mut outcome = Outcome::default();
    metrics(grid, capacities, &mut outcome)?;
    let lifetimes = Lifetimes { grid, capacities };
    for endurance in Endurance::ALL {
        for (group, title) in GROUPS {
            outcome.charts.push(by_buffer(
                ("Lifetime", title, endurance),
                Axis::log("lifetime", "hours"),
                lifetimes.hours(group, BASELINE, None)?,
                &|buffer, policy| lifetimes.hours(group, buffer, Some(policy)),
            )?);
        }
    }
    let over_baseline = |source: &Source, buffer: &'static str, policy| {
        let baseline = lifetimes.of(source, BASELINE, None)?.shorter();
        Ok(lifetimes.of(source, buffer, Some(policy))?.shorter() / baseline)
    };
    let balance = |source: &Source, buffer: &'static str, policy| {
        let ours = lifetimes.of(source, buffer, Some(policy))?;
        Ok(ours.pcm / ours.flash)
    };
    outcome.tables.push(by_trace(
        "Lifetime relative to 42 MB of DRAM, by policy and endurance",
        sources,
        &Scheme::ALL,
        &over_baseline,
    )?);
    outcome.tables.push(by_trace(
        "Lifetime of PCM relative to that of flash",
        sources,
        &Scheme::ALL,
        &balance,
    )?);
    Ok(outcome)
}
