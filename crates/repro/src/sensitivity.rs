//! Sensitivity study: sets one parameter at a time to the low and the high end of its plausible range,
//! all others staying at their base value.
//!
//! The study never changes a verdict. For a missed claim it names the single parameter that brings our
//! value nearest to the paper's: the assumption behind the difference.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use deepram_core::units::{Bytes, Picos};
use deepram_media::Registry;
use deepram_sim::SimError;
use serde::{Deserialize, Serialize};

use crate::claim::{Claim, Verdict};
use crate::error::ReproError;
use crate::experiment::{Experiment, Outcome, Settings};
use crate::report::SENSITIVITY;
use crate::result_cache::ResultsByDigest;
use crate::simulation_run::{Metrics, SimulationRun};

/// A parameter with the ends of its range. Values are text, such as `30us`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// Its key.
    pub key: String,
    /// Description.
    pub description: String,
    /// Low end of the range.
    pub low: String,
    /// Base value, used for all other results.
    pub base: String,
    /// High end of the range.
    pub high: String,
    /// Reason for these ends.
    pub why: String,
}

/// A parameter set to another value than its base.
#[derive(Debug, Clone, Copy)]
pub struct ParameterChange<'a> {
    /// Key of the parameter.
    pub key: &'a str,
    /// New value.
    pub value: &'a str,
}

impl ParameterChange<'_> {
    /// The error that this key or value is invalid, for the reason `why`.
    pub(crate) fn error(&self, why: impl Into<String>) -> ReproError {
        let source = Box::new(SimError::Config { key: self.key.into(), why: why.into() });
        ReproError::Config { what: "sensitivity".into(), source }
    }

    /// The error that the study cannot set this parameter to this value.
    pub(crate) fn unsupported(&self) -> ReproError {
        self.error(format!("the study cannot set this parameter to {:?}", self.value))
    }

    /// Parses the value; `expected` names the form for the error message.
    fn parse<T: FromStr>(&self, expected: &str) -> Result<T, ReproError> {
        self.value.parse().map_err(|_| self.error(format!("{:?} is not {expected}", self.value)))
    }

    pub(crate) fn number(&self) -> Result<f64, ReproError> {
        self.parse("a number")
    }

    pub(crate) fn count(&self) -> Result<u32, ReproError> {
        self.parse("a whole number")
    }

    pub(crate) fn flag(&self) -> Result<bool, ReproError> {
        self.parse("true or false")
    }

    pub(crate) fn bytes(&self) -> Result<u64, ReproError> {
        self.parse::<Bytes>("a size such as 64MiB").map(|bytes| bytes.0)
    }

    pub(crate) fn picoseconds(&self) -> Result<u64, ReproError> {
        self.parse::<Picos>("a time such as 10us").map(|time| time.0)
    }
}

/// A metric that the study reports for every parameter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Headline {
    /// Name of the metric.
    pub metric: String,
    /// Description.
    pub title: String,
}

/// A parameter in a table: key, description, low end, base, high end, reason for these ends.
pub(crate) type ParameterRow = [&'static str; 6];

/// Builds a table of [`ParameterRow`]s from lines of `key: low, base, high; description; reason`.
macro_rules! parameters {
    ($($key:literal: $low:literal, $base:literal, $high:literal; $description:literal; $why:literal;)*) => {
        &[$([$key, $description, $low, $base, $high, $why]),*]
    };
}
pub(crate) use parameters;

/// A parameter at an end of its range, for tests.
#[cfg(test)]
pub(crate) struct ChangedEnd {
    /// Key of the parameter.
    pub(crate) key: &'static str,
    /// Key and value, for messages.
    pub(crate) text: String,
    /// Names of the runs that differ from those of the base.
    pub(crate) changed: Vec<String>,
}

/// For tests: the names of all runs of the base, and the ends of all ranges that are not the base value.
#[cfg(test)]
pub(crate) fn changed_ends<S: Study>() -> (Vec<String>, Vec<ChangedEnd>) {
    let (settings, registry) = quick();
    let runs = |change| experiment::<S>(change, &settings, &registry).unwrap().runs;
    let base = runs(None);
    let mut ends = Vec::new();
    for &[key, _, low, middle, high, _] in S::PARAMETERS {
        for value in [low, high].into_iter().filter(|value| *value != middle) {
            let text = format!("{key}={value}");
            let now = runs(Some(ParameterChange { key, value }));
            assert_eq!(now.len(), base.len(), "{text}");
            let pairs = now.into_iter().zip(&base);
            let changed = pairs.filter(|(now, base)| (&now.name, &now.digest) != (&base.name, &base.digest));
            ends.push(ChangedEnd { key, changed: changed.map(|(now, _)| now.name).collect(), text });
        }
    }
    (base.into_iter().map(|run| run.name).collect(), ends)
}

/// For tests: settings of quick runs, and the built-in figures.
#[cfg(test)]
fn quick() -> (Settings, Arc<Registry>) {
    (Settings { quick: true, seed: 1 }, Arc::new(Registry::builtin().unwrap()))
}

/// For tests: every end of a range changes runs, and only those of the part that begins its key; `all` changes runs of any
/// part. `part` tells the part of a run by its name.
#[cfg(test)]
pub(crate) fn check_parts<S: Study>(part: impl Fn(&str) -> &'static str) {
    for ChangedEnd { key, text, changed } in changed_ends::<S>().1 {
        let changed: Vec<&str> = changed.iter().map(|name| part(name)).collect();
        assert!(!changed.is_empty(), "{text}");
        let of = key.split_once('.').unwrap().0;
        assert!(of == "all" || changed.iter().all(|part| *part == of), "{text}: {changed:?}");
    }
}

/// For tests: each of these keys and values is an error of the study, when it is applied or when runs are made from it.
#[cfg(test)]
pub(crate) fn check_refused<S: Study>(changes: &[(&str, &str)]) {
    let (settings, registry) = quick();
    for &(key, value) in changes {
        let change = Some(ParameterChange { key, value });
        assert!(experiment::<S>(change, &settings, &registry).is_err(), "{key}={value}");
    }
}

/// Builds the study's experiment, with one parameter changed or with base values.
pub(crate) type Build<'a> = dyn Fn(Option<ParameterChange<'_>>) -> Result<Experiment, ReproError> + 'a;

/// All settings that a study, or a part of one, can change.
pub(crate) trait Study: Sized {
    /// Metric and title of each headline.
    const HEADLINES: &'static [(&'static str, &'static str)];
    /// The parameters.
    const PARAMETERS: &'static [ParameterRow];

    /// The base values.
    fn base(settings: &Settings) -> Self;

    /// Applies a change.
    ///
    /// # Errors
    /// The study has no such parameter, or the parameter does not take this value.
    fn apply(&mut self, change: ParameterChange<'_>) -> Result<(), ReproError>;

    /// The experiment with these settings.
    ///
    /// # Errors
    /// A configuration cannot be resolved.
    fn experiment(self, settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError>;
}

/// The experiment of a study, with `change` applied.
///
/// # Errors
/// Those of [`Study::apply`] and [`Study::experiment`].
pub(crate) fn experiment<S: Study>(
    change: Option<ParameterChange<'_>>,
    settings: &Settings,
    registry: &Arc<Registry>,
) -> Result<Experiment, ReproError> {
    let mut study = S::base(settings);
    if let Some(change) = change {
        study.apply(change)?;
    }
    study.experiment(settings, registry)
}

/// A part of a study: an experiment with its own headlines and parameters.
pub(crate) struct StudyPart<'a> {
    headlines: &'a [(&'a str, &'a str)],
    parameters: &'a [ParameterRow],
    build: Box<Build<'a>>,
}

impl<'a> StudyPart<'a> {
    /// The part with these settings.
    pub(crate) fn of<S: Study>(settings: &'a Settings, registry: &'a Arc<Registry>) -> Self {
        Self {
            headlines: S::HEADLINES,
            parameters: S::PARAMETERS,
            build: Box::new(|change| experiment::<S>(change, settings, registry)),
        }
    }
}

/// A sensitivity study of one experiment.
pub struct Sensitivity {
    /// Metrics that the study reports.
    pub headlines: Vec<Headline>,
    /// Parameters that the study changes.
    pub parameters: Vec<Parameter>,
    base: Experiment,
    /// For each parameter, the experiment at the low end and at the high end.
    changed: Vec<[Experiment; 2]>,
}

impl fmt::Debug for Sensitivity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sensitivity").field("parameters", &self.parameters).finish_non_exhaustive()
    }
}

impl Sensitivity {
    /// Creates the study of these settings.
    ///
    /// # Errors
    /// Those of [`Study::apply`] and [`Study::experiment`].
    pub(crate) fn of<S: Study>(settings: &Settings, registry: &Arc<Registry>) -> Result<Self, ReproError> {
        Self::of_parts(&[StudyPart::of::<S>(settings, registry)])
    }

    /// Creates a study from parts. A change is passed to the part that has its parameter, unless it is the base value;
    /// the other parts are built without a change. The runs of the parts must have different names.
    ///
    /// # Errors
    /// The error of a part's function.
    pub(crate) fn of_parts(parts: &[StudyPart<'_>]) -> Result<Self, ReproError> {
        let headlines = parts.iter().flat_map(|part| part.headlines);
        let headlines =
            headlines.map(|(metric, title)| Headline { metric: (*metric).into(), title: (*title).into() });
        let rows = parts.iter().flat_map(|part| part.parameters).map(|row| {
            let [key, description, low, base, high, why] = row.map(String::from);
            Parameter { key, description, low, base, high, why }
        });
        Self::new(headlines.collect(), rows.collect(), &|change: Option<ParameterChange<'_>>| {
            let none =
                Experiment::new(SENSITIVITY, "Sensitivity", "", Vec::new(), |_| Ok(Outcome::default()));
            parts.iter().try_fold(none, |joined, part| {
                let own = change.filter(|change| {
                    part.parameters.iter().any(|row| row[0] == change.key && row[3] != change.value)
                });
                Ok(joined.join((part.build)(own)?))
            })
        })
    }

    /// Creates a study. `build` is called once without a change and twice for each parameter.
    ///
    /// # Errors
    /// The error of `build`.
    pub fn new(
        headlines: Vec<Headline>,
        parameters: Vec<Parameter>,
        build: &Build<'_>,
    ) -> Result<Self, ReproError> {
        let base = build(None)?;
        let changed = parameters
            .iter()
            .map(|parameter| {
                let at = |value: &str| build(Some(ParameterChange { key: &parameter.key, value }));
                Ok([at(&parameter.low)?, at(&parameter.high)?])
            })
            .collect::<Result<_, ReproError>>()?;
        Ok(Self { headlines, parameters, base, changed })
    }

    /// All runs of the study.
    pub fn runs(&self) -> impl Iterator<Item = &SimulationRun> {
        std::iter::once(&self.base).chain(self.changed.iter().flatten()).flat_map(|e| &e.runs)
    }

    /// Evaluates the study; `None` while a result is missing.
    pub(crate) fn evaluate(
        &self,
        results: &ResultsByDigest,
    ) -> Result<Option<SensitivityResult>, ReproError> {
        let Some(base) = self.base.outcome(results)? else { return Ok(None) };
        let mut rows = Vec::new();
        for (parameter, ends) in self.parameters.iter().zip(&self.changed) {
            let (Some(low), Some(high)) = (ends[0].outcome(results)?, ends[1].outcome(results)?) else {
                return Ok(None);
            };
            let low = RangeEnd::new(&parameter.low, low, &ends[0]);
            let high = RangeEnd::new(&parameter.high, high, &ends[1]);
            let effects: Vec<f64> = self
                .headlines
                .iter()
                .map(|headline| {
                    let base = self.headline(&base.metrics, headline)?;
                    let of = |end: &RangeEnd| Ok(moved(base, self.headline(&end.metrics, headline)?));
                    Ok(of(&low)?.max(of(&high)?))
                })
                .collect::<Result<_, ReproError>>()?;
            let overall = effects.iter().sum::<f64>() / effects.len().max(1) as f64;
            rows.push(ParameterEffect { parameter: parameter.clone(), low, high, effects, overall });
        }
        rows.sort_by(|a, b| b.overall.total_cmp(&a.overall));
        Ok(Some(SensitivityResult { headlines: self.headlines.clone(), base: base.metrics, rows }))
    }

    fn headline(&self, metrics: &Metrics, headline: &Headline) -> Result<f64, ReproError> {
        metrics.0.get(&headline.metric).copied().ok_or_else(|| ReproError::UnknownMetric {
            run: self.base.id.clone(),
            metric: headline.metric.clone(),
            near: String::new(),
        })
    }
}

/// Relative change of a metric; absolute if the base value is 0.
fn moved(base: f64, now: f64) -> f64 {
    let by = (now - base).abs();
    if base == 0.0 { by } else { by / base.abs() }
}

/// Results with a parameter at one end of its range.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RangeEnd {
    /// Value of the parameter.
    pub value: String,
    /// All metrics.
    pub metrics: Metrics,
    /// Digests of the runs. Empty in a record.
    #[serde(default)]
    pub runs: Vec<String>,
}

impl RangeEnd {
    fn new(value: &str, outcome: Outcome, experiment: &Experiment) -> Self {
        let runs = experiment.runs.iter().map(|run| run.digest.clone()).collect();
        Self { value: value.into(), metrics: outcome.metrics, runs }
    }
}

/// Effect of one parameter.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParameterEffect {
    /// The parameter.
    pub parameter: Parameter,
    /// Results at the low end.
    pub low: RangeEnd,
    /// Results at the high end.
    pub high: RangeEnd,
    /// For each headline, the greater relative change of the two ends.
    pub effects: Vec<f64>,
    /// Mean of `effects`, by which parameters are ranked.
    pub overall: f64,
}

/// Results of the study, strongest parameter first.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SensitivityResult {
    /// Metrics that the study reports.
    pub headlines: Vec<Headline>,
    /// All metrics with base values.
    pub base: Metrics,
    /// One entry per parameter.
    pub rows: Vec<ParameterEffect>,
}

/// The single parameter that brings a missed claim nearest to the paper's value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Driver {
    /// Its key.
    pub parameter: String,
    /// Description.
    pub description: String,
    /// Base value, used for all other results.
    pub base: String,
    /// The end of its range that does so.
    pub value: String,
    /// Our values in the study with base values.
    pub ours_base: Vec<f64>,
    /// Our values with the parameter at that end.
    pub ours: Vec<f64>,
    /// Verdict with the parameter at that end.
    pub verdict: Verdict,
    /// Relative distance with the parameter at that end.
    pub difference: Option<f64>,
    /// Digests of the runs at that end. Empty in a record.
    #[serde(default)]
    pub runs: Vec<String>,
}

impl SensitivityResult {
    /// Removes the metrics that are no headlines, and all digests.
    pub(crate) fn keep_headlines(&mut self) {
        let Self { headlines, base, rows } = self;
        let keep = |metrics: &mut Metrics| {
            metrics.0.retain(|name, _| headlines.iter().any(|headline| headline.metric == *name));
        };
        keep(base);
        for end in rows.iter_mut().flat_map(|row| [&mut row.low, &mut row.high]) {
            keep(&mut end.metrics);
            end.runs.clear();
        }
    }

    /// Finds the parameter behind a missed claim. `None` if the study lacks the claim's metrics, or no
    /// parameter brings the value nearer.
    #[must_use]
    pub fn driver(&self, claim: &Claim) -> Option<Driver> {
        let of = |metrics: &Metrics| -> Option<Vec<f64>> {
            claim.metrics.iter().map(|name| metrics.0.get(*name).copied()).collect()
        };
        let ours_base = of(&self.base)?;
        let judge = |ours: &[f64]| {
            let judgement = claim.judge(ours);
            // An order has no distance: 0 if it is met, 1 if it is not.
            let distance =
                judgement.difference.map_or(if judgement.verdict.met() { 0.0 } else { 1.0 }, f64::abs);
            (judgement, distance)
        };
        let mut nearest = judge(&ours_base).1;
        let mut driver = None;
        for effect in &self.rows {
            for end in [&effect.low, &effect.high] {
                let Some(ours) = of(&end.metrics) else { continue };
                let (judgement, distance) = judge(&ours);
                if distance < nearest {
                    nearest = distance;
                    driver = Some(Driver {
                        parameter: effect.parameter.key.clone(),
                        description: effect.parameter.description.clone(),
                        base: effect.parameter.base.clone(),
                        value: end.value.clone(),
                        ours_base: ours_base.clone(),
                        ours,
                        verdict: judgement.verdict,
                        difference: judgement.difference,
                        runs: end.runs.clone(),
                    });
                }
            }
        }
        driver
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_passed_to_the_part_that_has_its_parameter_unless_it_is_the_base_value() {
        let build = |name: &'static str| {
            move |change: Option<ParameterChange<'_>>| {
                let value = change.map_or("none", |change| change.value).to_owned();
                let run = SimulationRun::new(name, "test", serde_json::json!(value), || Ok(Metrics::new()));
                Ok(Experiment::new(name, "", "", vec![run], |_| Ok(Outcome::default())))
            }
        };
        let study = Sensitivity::of_parts(&[
            StudyPart {
                headlines: &[],
                parameters: &[["a", "", "1", "2", "3", ""]],
                build: Box::new(build("one")),
            },
            StudyPart {
                headlines: &[],
                parameters: &[["b", "", "4", "4", "5", ""]],
                build: Box::new(build("two")),
            },
        ])
        .unwrap();
        let values = |experiment: &Experiment| -> Vec<String> {
            experiment.runs.iter().map(|run| format!("{} {}", run.name, run.config)).collect()
        };
        assert_eq!(values(&study.base), ["one \"none\"", "two \"none\""]);
        let changed: Vec<_> = study.changed.iter().flatten().map(values).collect();
        assert_eq!(
            changed,
            [
                ["one \"1\"", "two \"none\""],
                ["one \"3\"", "two \"none\""],
                ["one \"none\"", "two \"none\""],
                ["one \"none\"", "two \"5\""],
            ]
        );
    }
}
