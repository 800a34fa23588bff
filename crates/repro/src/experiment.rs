//! Experiments: sets of runs, evaluated into metrics, charts and tables.

use std::collections::BTreeMap;
use std::fmt;

use deepram_core::suggest::nearest;
use serde::Serialize;

use crate::chart::{Chart, Table};
use crate::claim::Claim;
use crate::error::ReproError;
use crate::reason::{Ends, Reason};
use crate::result_cache;
use crate::simulation_run::{Metrics, SimulationRun};

/// Result of evaluating an experiment.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Outcome {
    /// Metrics, under the names that claims use.
    pub metrics: Metrics,
    /// Charts for the report.
    pub charts: Vec<Chart>,
    /// Tables for the report.
    pub tables: Vec<Table>,
}

/// The function that evaluates finished runs.
type Evaluate = dyn Fn(&FinishedRuns<'_>) -> Result<Outcome, ReproError> + Send + Sync;

/// A set of runs and the function that evaluates them.
pub struct Experiment {
    /// Short name, unique in the paper.
    pub id: String,
    /// Title in the report.
    pub title: String,
    /// What is simulated, and how it differs from the paper.
    pub about: String,
    /// The runs. Names are unique in the experiment.
    pub runs: Vec<SimulationRun>,
    evaluate: Box<Evaluate>,
}

impl fmt::Debug for Experiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Experiment").field("id", &self.id).field("runs", &self.runs).finish_non_exhaustive()
    }
}

impl Experiment {
    /// Creates an experiment. `evaluate` is called once all runs have finished.
    pub fn new<E>(
        id: impl Into<String>,
        title: impl Into<String>,
        about: impl Into<String>,
        runs: Vec<SimulationRun>,
        evaluate: E,
    ) -> Self
    where
        E: Fn(&FinishedRuns<'_>) -> Result<Outcome, ReproError> + Send + Sync + 'static,
    {
        Self { id: id.into(), title: title.into(), about: about.into(), runs, evaluate: Box::new(evaluate) }
    }

    /// Combines two experiments under the name of this one. Their runs must have different names.
    #[must_use]
    pub(crate) fn join(self, other: Self) -> Self {
        let Self { id, title, about, mut runs, evaluate } = self;
        runs.extend(other.runs);
        let evaluate = Box::new(move |finished: &FinishedRuns<'_>| {
            let mut outcome = evaluate(finished)?;
            let Outcome { metrics, charts, tables } = (other.evaluate)(finished)?;
            outcome.metrics.0.extend(metrics.0);
            outcome.charts.extend(charts);
            outcome.tables.extend(tables);
            Ok(outcome)
        });
        Self { id, title, about, runs, evaluate }
    }

    /// Evaluates the experiment; `None` while a result is missing.
    pub(crate) fn outcome(
        &self,
        results: &result_cache::ResultsByDigest,
    ) -> Result<Option<Outcome>, ReproError> {
        if self.runs.iter().any(|run| !results.contains_key(&run.digest)) {
            return Ok(None);
        }
        let outcome = (self.evaluate)(&FinishedRuns { experiment: self, results })?;
        match outcome.metrics.0.iter().find(|(_, value)| !value.is_finite()) {
            Some((name, value)) => Err(ReproError::Run {
                run: self.id.clone(),
                why: format!("metric {name} is {value}; metrics must be finite"),
            }),
            None => Ok(Some(outcome)),
        }
    }
}

/// Results of an experiment's runs, passed to its evaluation function.
#[derive(Debug)]
pub struct FinishedRuns<'a> {
    experiment: &'a Experiment,
    results: &'a result_cache::ResultsByDigest,
}

impl FinishedRuns<'_> {
    /// Returns all metrics of the run called `name`.
    ///
    /// # Errors
    /// [`ReproError::NoRun`] if the experiment has no such run.
    pub fn run(&self, name: &str) -> Result<&Metrics, ReproError> {
        let run = self.experiment.runs.iter().find(|run| run.name == name);
        run.and_then(|run| self.results.get(&run.digest))
            .map(|stored| &stored.metrics)
            .ok_or_else(|| ReproError::NoRun { experiment: self.experiment.id.clone(), run: name.into() })
    }

    /// Returns one metric of the run called `run`.
    ///
    /// # Errors
    /// [`ReproError::NoRun`] or [`ReproError::UnknownMetric`].
    pub fn metric(&self, run: &str, metric: &str) -> Result<f64, ReproError> {
        let metrics = self.run(run)?;
        metrics.0.get(metric).copied().ok_or_else(|| {
            let near = nearest(metric, metrics.0.keys().map(|key| key.as_ref()))
                .map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
            ReproError::UnknownMetric { run: run.into(), metric: metric.into(), near }
        })
    }
}

/// Settings common to all experiments.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Shrinks all runs, to check that everything works; verdicts are then not meaningful.
    pub quick: bool,
    /// Seed of every random stream.
    pub seed: u64,
}

impl Settings {
    /// Returns `quick` for quick runs, otherwise `full`.
    #[must_use]
    pub fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}

/// A paper: its claims, the experiments that judge them and the sensitivity study.
#[derive(Debug)]
pub struct Paper {
    /// Name on the command line.
    pub name: &'static str,
    /// Title of the report.
    pub title: &'static str,
    /// What is reproduced, in one or two sentences.
    pub about: &'static str,
    /// Claims, in the order of the report.
    pub claims: Vec<Claim>,
    /// Experiments, in the order of the report.
    pub experiments: Vec<Experiment>,
    /// Sensitivity study, if the paper has one.
    pub sensitivity: Option<crate::sensitivity::Sensitivity>,
}

impl Paper {
    /// Checks that names are unique and every claim has the right number of metrics. A claim may name an
    /// experiment that does not exist; it is reported as unavailable.
    ///
    /// # Errors
    /// [`ReproError::Paper`] describes the first inconsistency.
    pub fn check(&self) -> Result<(), ReproError> {
        let wrong = |why: String| Err(ReproError::Paper { paper: self.name.into(), why });
        let mut names = BTreeMap::new();
        for claim in &self.claims {
            let wanted = match claim.expected {
                crate::claim::Expected::Rising => claim.metrics.len() >= 2,
                _ => claim.metrics.len() == 1,
            };
            if !wanted {
                return wrong(format!(
                    "claim {} has {} metrics; an order needs two or more, every other claim exactly one",
                    claim.id,
                    claim.metrics.len()
                ));
            }
            if let Some(Reason::LeftOpen { ends: Ends::Parameter(key), .. }) = claim.reason
                && !self.sensitivity.iter().flat_map(|study| &study.parameters).any(|known| known.key == key)
            {
                return wrong(format!("claim {} names {key}, which is no parameter of the study", claim.id));
            }
            if names.insert(claim.id.to_owned(), "claim").is_some() {
                return wrong(format!("two claims are named {}", claim.id));
            }
        }
        for experiment in &self.experiments {
            if let Some(what) = names.insert(experiment.id.clone(), "experiment") {
                return wrong(format!("experiment {} has the name of another {what}", experiment.id));
            }
            let mut runs = BTreeMap::new();
            for run in &experiment.runs {
                if runs.insert(run.name.as_str(), ()).is_some() {
                    return wrong(format!("experiment {} has two runs named {}", experiment.id, run.name));
                }
            }
        }
        Ok(())
    }
}
