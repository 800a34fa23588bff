//! Energy of the buffer relative to one of 42 MB of DRAM (Figure 11).
//!
//! Each trace's energy is that of the buffer's memories and tags over the trace's span. The tags are charged in three
//! ways: `step`, whose two powers were calibrated on the published savings; `linear`, 0.25 mW/MiB; and `none`.

use std::sync::Arc;

use deepram_media::{Registry, WriteBuffer};

use super::grid::{self, Grid, policies};
use super::replay::{BASELINE, Conditions, Endurance, HYBRIDS, Policy, Scheme};
use super::sources::{Source, Sources};
use super::{on_traces, response};
use crate::chart::{Axis, Bars, Chart, Drawing, Reference, Table};
use crate::error::ReproError;
use crate::experiment::{Experiment, FinishedRuns, Outcome, Settings};
use crate::number::plain;
use crate::statistics::mean;

/// Leakage of the tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tags {
    Step,
    Linear,
    None,
}

impl Tags {
    const ALL: [Self; 3] = [Self::Step, Self::Linear, Self::None];

    fn word(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Linear => "linear",
            Self::None => "none",
        }
    }
}

/// Power of the tags of each buffer, the baseline first, mW.
#[derive(Debug, Clone)]
pub(super) struct TagPowers(Vec<[f64; 3]>);

impl TagPowers {
    pub(super) fn new(registry: &Registry) -> Result<Self, ReproError> {
        let power = |buffer: &str, tags: Tags| {
            let set = format!("tags={}", tags.word());
            let preset: Result<WriteBuffer, _> =
                registry.get_with(&format!("buffer.hybrid-{buffer}"), &[set.as_str()]);
            preset
                .map(|preset| preset.tag_power().0 * 1e3)
                .map_err(|error| ReproError::Config { what: "tags".into(), source: Box::new(error.into()) })
        };
        let of = |buffer| {
            let [step, linear, none] = Tags::ALL.map(|tags| power(buffer, tags));
            Ok([step?, linear?, none?])
        };
        Ok(Self(std::iter::once(BASELINE).chain(HYBRIDS).map(of).collect::<Result<_, ReproError>>()?))
    }

    fn of(&self, buffer: &str, tags: Tags) -> f64 {
        let at = HYBRIDS.iter().position(|hybrid| *hybrid == buffer).map_or(0, |at| at + 1);
        self.0[at][tags as usize]
    }
}

impl Grid<'_> {
    /// Energy of the buffer under a trace: dynamic, static, mJ.
    fn energy(
        &self,
        source: &Source,
        buffer: &str,
        policy: Option<Policy>,
        (powers, tags): (&TagPowers, Tags),
    ) -> Result<(f64, f64), ReproError> {
        let of = |metric: &str| self.metric(source, buffer, policy, metric);
        let dynamic = of("buffer.dram.dynamic_mj")? + of("buffer.pcm.dynamic_mj")?;
        let leakage = of("buffer.dram.static_mj")? + of("buffer.pcm.static_mj")?;
        Ok((dynamic, leakage + powers.of(buffer, tags) * of("seconds")?))
    }

    /// Energy relative to the baseline's.
    fn relative_energy(
        &self,
        source: &Source,
        buffer: &str,
        policy: Policy,
        tags: (&TagPowers, Tags),
    ) -> Result<f64, ReproError> {
        let (dynamic, leakage) = self.energy(source, buffer, Some(policy), tags)?;
        let (base_dynamic, base_leakage) = self.energy(source, BASELINE, None, tags)?;
        Ok((dynamic + leakage) / (base_dynamic + base_leakage))
    }

    /// Relative energies of a buffer under all traces and policies.
    fn all_energies(&self, buffer: &str, tags: (&TagPowers, Tags)) -> Result<Vec<f64>, ReproError> {
        let mut all = Vec::new();
        for source in self.sources {
            for policy in policies(&Scheme::ALL) {
                all.push(self.relative_energy(source, buffer, policy, tags)?);
            }
        }
        Ok(all)
    }
}

/// Sets the metrics of the claims.
pub(super) fn metrics(
    grid: Grid<'_>,
    powers: &TagPowers,
    tags: Tags,
    outcome: &mut Outcome,
) -> Result<(), ReproError> {
    let metrics = &mut outcome.metrics;
    for buffer in HYBRIDS {
        // The reading of the claims, then all readings by name.
        let named = Tags::ALL.map(|tags| (format!(".{}", tags.word()), tags));
        for (name, reading) in std::iter::once((String::new(), tags)).chain(named) {
            let all = grid.all_energies(buffer, (powers, reading))?;
            let least = all.iter().copied().fold(f64::INFINITY, f64::min);
            let most = all.iter().copied().fold(0.0, f64::max);
            let mean = mean(&all).unwrap_or(f64::NAN);
            metrics.set(format!("saving.{buffer}{name}.max_percent"), 100.0 * (1.0 - least));
            metrics.set(format!("increase.{buffer}{name}.max_percent"), 100.0 * (most - 1.0));
            metrics.set(format!("energy.{buffer}{name}.mean"), mean);
            metrics.set(format!("energy.{buffer}{name}.max"), most);
        }
    }
    metrics.set("energy.42.mean", 1.0);
    let mut least = f64::INFINITY;
    for source in grid.sources {
        let mut share = |buffer: &str, policy: Option<Policy>| {
            let (dynamic, leakage) = grid.energy(source, buffer, policy, (powers, tags))?;
            least = least.min(100.0 * leakage / (dynamic + leakage));
            Ok::<_, ReproError>(())
        };
        share(BASELINE, None)?;
        for buffer in HYBRIDS {
            for policy in policies(&Scheme::ALL) {
                share(buffer, Some(policy))?;
            }
        }
    }
    metrics.set("leakage.least_percent", least);
    for buffer in std::iter::once(BASELINE).chain(HYBRIDS) {
        let policy = (buffer != BASELINE).then_some(Policy { scheme: Scheme::Ts, endurance: Endurance::Low });
        let lost = |source: &Source| grid.metric(source, buffer, policy, "at_risk.max_bytes");
        let all = grid.sources.iter().map(lost).collect::<Result<Vec<_>, _>>()?;
        metrics.set(format!("at_risk.{buffer}.max_mb"), all.into_iter().fold(0.0, f64::max) / 1e6);
    }
    Ok(())
}

/// Builds the experiment.
pub(super) fn experiment(
    settings: &Settings,
    registry: &Arc<Registry>,
    sources: &Sources,
) -> Result<Experiment, ReproError> {
    let conditions = conditions(settings);
    let powers = TagPowers::new(registry)?;
    let head = [
        "energy",
        "Energy of the buffer (Figure 11)",
        "Energy of DRAM, PCM and tags over the span of each trace, relative to that of 42 MB of DRAM under the same \
         trace. Seven buffers, three policies, two endurances. Each trace is replayed once at its own times, with a cold \
         buffer and a drive of 512 GiB whose pages are all mapped.",
    ];
    let runs = grid::runs(sources.all(), &conditions, registry)?;
    Ok(on_traces(head, runs, sources, move |finished, sources| evaluate(finished, sources, &powers)))
}

/// Conditions of the figures: whole traces, or short ones for quick runs.
pub(super) fn conditions(settings: &Settings) -> Conditions {
    Conditions { most: settings.pick(None, Some(20_000)), seed: settings.seed, ..Conditions::default() }
}

fn evaluate(
    finished: &FinishedRuns<'_>,
    sources: &[Source],
    powers: &TagPowers,
) -> Result<Outcome, ReproError> {
    let grid = Grid { finished, sources };
    let mut outcome = Outcome::default();
    metrics(grid, powers, Tags::Step, &mut outcome)?;
    let tags = (powers, Tags::Step);
    for policy in [(Scheme::Ts, Endurance::Low), (Scheme::TwoLevel, Endurance::Low)] {
        let policy = Policy { scheme: policy.0, endurance: policy.1 };
        let series = HYBRIDS.iter().map(|buffer| {
            let of = |source: &Source| grid.relative_energy(source, buffer, policy, tags);
            Ok(Bars::new(buffer, sources.iter().map(of).collect::<Result<_, _>>()?))
        });
        outcome.charts.push(Chart {
            title: format!(
                "Energy relative to 42 MB of DRAM, {}, {}",
                policy.scheme.title(),
                policy.endurance.word()
            ),
            about: "Energy of each buffer by trace. Leakage dominates, so the traces differ little.".into(),
            drawing: Drawing::Bars {
                axis: Axis::linear("energy relative to 42 MB of DRAM", ""),
                groups: sources.iter().map(Source::title).collect(),
                series: series.collect::<Result<_, ReproError>>()?,
                stacked: false,
            },
            references: vec![Reference { name: "42 MB of DRAM".into(), value: 1.0 }],
        });
    }
    let value = |source: &Source, buffer, policy| grid.relative_energy(source, buffer, policy, tags);
    outcome.tables.push(response::by_trace(
        "Energy relative to 42 MB of DRAM, by policy and endurance",
        sources,
        &Scheme::ALL,
        &value,
    )?);
    outcome.tables.push(savings(&outcome));
    Ok(outcome)
}

/// Largest saving of each buffer by the way in which tags are charged.
fn savings(outcome: &Outcome) -> Table {
    let of = |buffer: &str, tags: Tags| {
        let name = format!("saving.{buffer}.{}.max_percent", tags.word());
        outcome.metrics.0.get(&name).map_or_else(|| "–".into(), |value| plain(*value))
    };
    Table {
        title: "Largest saving in percent, by the tags' leakage".into(),
        headings: ["buffer", "tags by two calibrated powers", "0.25 mW/MiB", "without tags"]
            .map(String::from)
            .into(),
        rows: HYBRIDS
            .iter()
            .map(|buffer| {
                let mut row = vec![(*buffer).to_owned()];
                row.extend(Tags::ALL.map(|tags| of(buffer, tags)));
                row
            })
            .collect(),
    }
}
