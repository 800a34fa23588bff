//! Promotion: the adaptive threshold against fixed ones, against none, and as printed (FlatFlash, section 3.4). The
//! paper argues for it and shows no figure.

use std::sync::Arc;

use deepram_media::Registry;

use super::machine::{Base, Bench, MACHINES};
use super::{graph, latency, redis};
use crate::chart::{Axis, Bars, Chart, Drawing, Reference};
use crate::curve::geometric_mean;
use crate::error::ReproError;
use crate::experiment::{Experiment, Finished, Outcome, Settings};
use crate::run::Run;

const ADAPTIVE: &str = "adaptive";
/// What the bounds of the ratio must be for the threshold to stay at its largest: it always goes up.
const UP: [&str; 2] = ["low_ratio=99.9%", "high_ratio=100%"];
const FIXED: [(&str, &[&str]); 3] = [
    ("fixed at 1", &["max_threshold=1", UP[0], UP[1]]),
    ("fixed at 3", &["max_threshold=3", UP[0], UP[1]]),
    ("fixed at 7", &["max_threshold=7", UP[0], UP[1]]),
];
const OTHERS: [(&str, &[&str]); 4] = [
    ("as printed", &["algorithm=literal"]),
    ("hardly ever", &["max_threshold=255", UP[0], UP[1]]),
    ("idle DRAM first", &["fill_idle=true"]),
    (ADAPTIVE, &[]),
];

/// All patterns of access, on FlatFlash alone.
fn patterns(settings: &Settings, registry: &Arc<Registry>, base: &Base) -> Result<Vec<Run>, ReproError> {
    let bench = Bench { settings, registry, base, machines: &MACHINES[..1] };
    let mut runs = latency::runs(bench, latency::Extent::study(settings))?;
    runs.extend(redis::runs(bench, redis::Extent::study(settings))?);
    runs.extend(graph::runs(bench, graph::Extent::study(settings))?);
    Ok(runs)
}

/// The experiment.
pub(super) fn experiment(settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let mut runs = Vec::new();
    let mut names = Vec::new();
    for (policy, figures) in FIXED.into_iter().chain(OTHERS) {
        let overrides = figures.iter().map(|text| (*text).into()).collect();
        let base = Base { overrides, ..Base::default() };
        let all = patterns(settings, registry, &base)?;
        names = all.iter().map(|run| run.name.replace(".flatflash.", ", ")).collect::<Vec<_>>();
        runs.extend(all.into_iter().zip(&names).map(|(mut run, name)| {
            run.name = of(policy, name);
            run
        }));
    }
    Ok(Experiment::new(
        "promotion",
        "When pages are promoted",
        "FlatFlash under the patterns of the other experiments (small runs) with other rules of promotion: fixed \
         thresholds (one of 255 uses, which pages hardly ever reach), Algorithm 1 as printed, and promotion at the first use as long as DRAM has frames that no \
         page has had. The paper argues that a fixed threshold does not suit all patterns, without a figure.",
        runs,
        move |finished| evaluate(finished, &names),
    ))
}

fn of(policy: &str, pattern: &str) -> String {
    format!("{policy}: {pattern}")
}

fn evaluate(finished: &Finished<'_>, patterns: &[String]) -> Result<Outcome, ReproError> {
    let mut outcome = Outcome::default();
    // Mean latency with another rule over that with the adaptive one, over all patterns.
    let over = |policy: &str| -> Result<f64, ReproError> {
        let time = |policy: &str, pattern: &str| finished.figure(&of(policy, pattern), "latency.mean_ns");
        let ratios = patterns
            .iter()
            .map(|pattern| Ok(time(policy, pattern)? / time(ADAPTIVE, pattern)?))
            .collect::<Result<Vec<f64>, ReproError>>()?;
        Ok(geometric_mean(&ratios).unwrap_or(f64::NAN))
    };
    let mut best = f64::INFINITY;
    let (mut groups, mut values) = (Vec::new(), Vec::new());
    for (at, (policy, _)) in FIXED.into_iter().chain(OTHERS).enumerate() {
        let mean = over(policy)?;
        if at < FIXED.len() {
            best = best.min(mean);
        }
        outcome.figures.set(format!("promotion.{}", policy.replace(' ', "_")), mean);
        groups.push(policy.to_owned());
        values.push(mean);
    }
    outcome.figures.set("promotion.best_fixed", best);
    outcome.charts.push(Chart {
        title: "Latency with other rules of promotion".into(),
        about: "Geometric mean over all patterns, over that of the adaptive rule; above 1 the adaptive rule is better.".into(),
        drawing: Drawing::Bars {
            axis: Axis::linear("latency over that of the adaptive rule", ""),
            groups,
            series: vec![Bars::new("mean", values)],
            stacked: false,
        },
        references: vec![Reference { name: "as good".into(), value: 1.0 }],
    });
    Ok(outcome)
}
