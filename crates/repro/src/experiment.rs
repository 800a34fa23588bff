//! Experiments: runs in, figures of claims, charts and tables out.

use std::collections::BTreeMap;
use std::fmt;

use deepram_core::suggest::nearest;
use serde::Serialize;

use crate::chart::{Chart, Table};
use crate::claim::Claim;
use crate::error::ReproError;
use crate::run::{Figures, Run};
use crate::store;

/// What an experiment makes of its runs.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Outcome {
    /// Figures by the names that claims use.
    pub figures: Figures,
    /// Charts.
    pub charts: Vec<Chart>,
    /// Tables.
    pub tables: Vec<Table>,
}

/// What becomes of finished runs.
type Evaluate = dyn Fn(&Finished<'_>) -> Result<Outcome, ReproError> + Send + Sync;

/// Some runs, and what they are for.
pub struct Experiment {
    /// A short name, unique in the paper.
    pub id: String,
    /// Its title.
    pub title: String,
    /// What is run, and what differs from the paper.
    pub about: String,
    /// The runs; their names are unique in the experiment.
    pub runs: Vec<Run>,
    evaluate: Box<Evaluate>,
}

impl fmt::Debug for Experiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Experiment").field("id", &self.id).field("runs", &self.runs).finish_non_exhaustive()
    }
}

impl Experiment {
    /// An experiment. `evaluate` is called once all runs have finished.
    pub fn new<E>(
        id: impl Into<String>,
        title: impl Into<String>,
        about: impl Into<String>,
        runs: Vec<Run>,
        evaluate: E,
    ) -> Self
    where
        E: Fn(&Finished<'_>) -> Result<Outcome, ReproError> + Send + Sync + 'static,
    {
        Self { id: id.into(), title: title.into(), about: about.into(), runs, evaluate: Box::new(evaluate) }
    }

    /// This experiment and another as one, under the name of this. Their runs have different names.
    #[must_use]
    pub(crate) fn join(self, other: Self) -> Self {
        let Self { id, title, about, mut runs, evaluate } = self;
        runs.extend(other.runs);
        let evaluate = Box::new(move |finished: &Finished<'_>| {
            let mut outcome = evaluate(finished)?;
            let Outcome { figures, charts, tables } = (other.evaluate)(finished)?;
            outcome.figures.0.extend(figures.0);
            outcome.charts.extend(charts);
            outcome.tables.extend(tables);
            Ok(outcome)
        });
        Self { id, title, about, runs, evaluate }
    }

    /// What comes of it; none while runs are missing.
    pub(crate) fn outcome(&self, results: &store::Results) -> Result<Option<Outcome>, ReproError> {
        if self.runs.iter().any(|run| !results.contains_key(&run.digest)) {
            return Ok(None);
        }
        let outcome = (self.evaluate)(&Finished { experiment: self, results })?;
        match outcome.figures.0.iter().find(|(_, value)| !value.is_finite()) {
            Some((name, value)) => Err(ReproError::Run {
                run: self.id.clone(),
                why: format!("its figure {name} is {value}; figures are finite numbers"),
            }),
            None => Ok(Some(outcome)),
        }
    }
}

/// The finished runs of an experiment.
#[derive(Debug)]
pub struct Finished<'a> {
    experiment: &'a Experiment,
    results: &'a store::Results,
}

impl Finished<'_> {
    /// All figures of a run.
    ///
    /// # Errors
    /// The experiment has no such run.
    pub fn run(&self, name: &str) -> Result<&Figures, ReproError> {
        let run = self.experiment.runs.iter().find(|run| run.name == name);
        run.and_then(|run| self.results.get(&run.digest))
            .map(|stored| &stored.figures)
            .ok_or_else(|| ReproError::NoRun { experiment: self.experiment.id.clone(), run: name.into() })
    }

    /// A figure of a run.
    ///
    /// # Errors
    /// The experiment has no such run, or the run no such figure.
    pub fn figure(&self, run: &str, figure: &str) -> Result<f64, ReproError> {
        let figures = self.run(run)?;
        figures.0.get(figure).copied().ok_or_else(|| {
            let near = nearest(figure, figures.0.keys().map(|key| key.as_ref()))
                .map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
            ReproError::NoFigure { run: run.into(), figure: figure.into(), near }
        })
    }
}

/// What experiments are built from.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Small runs, to see that everything works; verdicts mean little.
    pub quick: bool,
    /// Seed of everything random.
    pub seed: u64,
}

impl Settings {
    /// The one or the other.
    #[must_use]
    pub fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}

/// A publication, its claims, and the experiments that judge them.
#[derive(Debug)]
pub struct Paper {
    /// The name on the command line.
    pub name: &'static str,
    /// The title of its report.
    pub title: &'static str,
    /// What is reproduced, in a sentence or two.
    pub about: &'static str,
    /// What it claims.
    pub claims: Vec<Claim>,
    /// The experiments.
    pub experiments: Vec<Experiment>,
    /// What the results hang on.
    pub sensitivity: Option<crate::sensitivity::Sensitivity>,
}

impl Paper {
    /// That names are unique and claims well-formed. A claim may name an experiment that is not there: it
    /// is then not run.
    ///
    /// # Errors
    /// [`ReproError::Paper`] says what is wrong.
    pub fn check(&self) -> Result<(), ReproError> {
        let wrong = |why: String| Err(ReproError::Paper { paper: self.name.into(), why });
        let mut names = BTreeMap::new();
        for claim in &self.claims {
            let wanted = match claim.expected {
                crate::claim::Expected::Rising => claim.figures.len() >= 2,
                _ => claim.figures.len() == 1,
            };
            if !wanted {
                return wrong(format!(
                    "claim {} has {} figures; an order has two or more, all else one",
                    claim.id,
                    claim.figures.len()
                ));
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
