//! The adaptive hotness threshold against the best fixed one, without wear control, and against two levels
//! (section VI-C).

use std::sync::Arc;

use deepram_media::Registry;

use super::on_traces;
use super::replay::{Conditions, Endurance, HYBRIDS, Policy, Replay, Scheme};
use super::sources::{Source, Sources};
use crate::chart::{Axis, Chart, Drawing, Series, Table};
use crate::error::ReproError;
use crate::experiment::{Experiment, FinishedRuns, Outcome, Settings};
use crate::number::plain;
use crate::simulation_run::SimulationRun;
use crate::statistics::mean;

/// The fixed thresholds.
const FIXED: std::ops::RangeInclusive<u32> = 1..=8;
/// Requests of each trace, which is replayed 114 times.
const REQUESTS: u64 = 150_000;

const METRIC: &str = "response.mean_us";

/// Endurance of the PCM. Without wear control it changes nothing.
const ENDURANCE: Endurance = Endurance::Low;

/// Name of a replay without wear control. `fixed` is the threshold; `None` adapts it.
fn run_name(source: &Source, buffer: &str, scheme: Scheme, fixed: Option<u32>) -> String {
    let label = source.label();
    match (scheme, fixed) {
        (Scheme::TwoLevel, _) => format!("{label}.{buffer}.2l.uncontrolled"),
        (_, None) => format!("{label}.{buffer}.{}.adaptive", scheme.word()),
        (_, Some(fixed)) => format!("{label}.{buffer}.{}.fixed-{fixed}", scheme.word()),
    }
}

fn runs(
    settings: &Settings,
    registry: &Arc<Registry>,
    sources: &Sources,
) -> Result<Vec<SimulationRun>, ReproError> {
    let most = Some(settings.pick(REQUESTS, 5_000));
    let seed = settings.seed;
    let mut runs = Vec::new();
    for source in sources.all() {
        for buffer in HYBRIDS {
            for scheme in Scheme::ALL {
                let thresholds: Vec<Option<u32>> = match scheme {
                    Scheme::TwoLevel => vec![None],
                    Scheme::Ts | Scheme::Tp => std::iter::once(None).chain(FIXED.map(Some)).collect(),
                };
                for fixed in thresholds {
                    let mut flat = vec!["coolness=off".to_owned()];
                    if let Some(fixed) = fixed {
                        flat.extend(["hotness=fixed".to_owned(), format!("hot_threshold={fixed}")]);
                    }
                    let conditions = Conditions { most, flat, seed, ..Conditions::default() };
                    let policy = Some(Policy { scheme, endurance: ENDURANCE });
                    let mut replay = Replay::new(source, buffer, policy, &conditions);
                    replay.name = run_name(source, buffer, scheme, fixed);
                    runs.push(replay.run(registry)?);
                }
            }
        }
    }
    Ok(runs)
}

/// Builds the experiment.
pub(super) fn experiment(
    settings: &Settings,
    registry: &Arc<Registry>,
    sources: &Sources,
) -> Result<Experiment, ReproError> {
    let head = [
        "hotness",
        "Adaptive against fixed hotness thresholds (section VI-C)",
        "TS and TP without wear control, so every page may enter PCM, with fixed hotness thresholds of 1 to 8 and with the \
         adaptive one, for six buffers and eight traces. Each trace is cut to its first 150,000 requests.",
    ];
    Ok(on_traces(head, runs(settings, registry, sources)?, sources, evaluate))
}

/// Response times of one combination of buffer, trace and policy.
struct Combination {
    fixed: Vec<f64>,
    adaptive: f64,
    levels: f64,
}

impl Combination {
    fn best(&self) -> f64 {
        self.fixed.iter().copied().fold(f64::INFINITY, f64::min)
    }
}

fn evaluate(finished: &FinishedRuns<'_>, sources: &[Source]) -> Result<Outcome, ReproError> {
    let mut outcome = Outcome::default();
    let mut series = Vec::new();
    let mut rows = Vec::new();
    let percent = |ratio: f64| 100.0 * (ratio - 1.0);
    for scheme in Scheme::FLAT {
        let mut all = Vec::new();
        for buffer in HYBRIDS {
            for source in sources {
                let of = |scheme, fixed| finished.metric(&run_name(source, buffer, scheme, fixed), METRIC);
                all.push(Combination {
                    fixed: FIXED.map(|fixed| of(scheme, Some(fixed))).collect::<Result<_, _>>()?,
                    adaptive: of(scheme, None)?,
                    levels: of(Scheme::TwoLevel, None)?,
                });
            }
        }
        let over_best: Vec<f64> = all.iter().map(|one| percent(one.adaptive / one.best())).collect();
        let over_levels: Vec<f64> = all.iter().map(|one| percent(one.adaptive / one.levels)).collect();
        let name = scheme.word();
        for (what, values) in [("over_best", &over_best), ("over_levels", &over_levels)] {
            let worst = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            outcome.metrics.set(format!("{what}.{name}.mean_percent"), mean(values).unwrap_or(f64::NAN));
            outcome.metrics.set(format!("{what}.{name}.worst_percent"), worst);
            rows.push(vec![
                format!("{}, {}", scheme.title(), what.replace('_', " ")),
                mean(values).map_or_else(|| "–".into(), plain),
                plain(worst),
            ]);
        }
        let relative = |at: usize| {
            let ratios: Vec<f64> = all.iter().map(|one| one.fixed[at] / one.best()).collect();
            mean(&ratios).unwrap_or(f64::NAN)
        };
        let points = FIXED.zip(0..).map(|(fixed, at)| (f64::from(fixed), relative(at)));
        series.push(Series::new(scheme.title(), points.collect()));
    }
    outcome.charts.push(Chart {
        title: "Response time by fixed hotness threshold".into(),
        about: "Mean over all buffers and traces of the response time with a fixed threshold relative to the best fixed \
                threshold of the same buffer and trace."
            .into(),
        drawing: Drawing::Lines {
            x: Axis::linear("hotness threshold", ""),
            y: Axis::linear("relative to the best", ""),
            series,
            area: false,
        },
        references: Vec::new(),
    });
    outcome.tables.push(Table {
        title: "Response time with the adaptive threshold, percent above".into(),
        headings: ["compared", "mean", "worst"].map(String::from).into(),
        rows,
    });
    Ok(outcome)
}
