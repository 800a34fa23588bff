//! What the results hang on: one parameter at a time goes to the low and the high end of what is plausible,
//! all others stay.
//!
//! Nothing here changes a verdict. For a claim that is missed it tells which single parameter brings ours
//! nearest to the paper's value: the assumption that drives the difference.

use std::fmt;

use serde::Serialize;

use crate::claim::{Claim, Verdict};
use crate::error::ReproError;
use crate::experiment::{Experiment, Outcome};
use crate::run::{Figures, Run};
use crate::store::Results;

/// A parameter with the ends of its range. Values are text, as the study understands them: `30us`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Parameter {
    /// Its key.
    pub key: String,
    /// What it is.
    pub what: String,
    /// The low end.
    pub low: String,
    /// What all results are computed with.
    pub base: String,
    /// The high end.
    pub high: String,
    /// Why these ends.
    pub why: String,
}

/// A parameter set to something else.
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    /// The parameter's key.
    pub key: &'a str,
    /// Its new value.
    pub value: &'a str,
}

/// A figure that the study watches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Headline {
    /// The figure's name in the study's outcome.
    pub figure: String,
    /// What it is.
    pub title: String,
}

/// Builds the study's experiment: with one change, or as it is.
type Build<'a> = dyn Fn(Option<Change<'_>>) -> Result<Experiment, ReproError> + 'a;

/// A study of one experiment under changed parameters.
pub struct Sensitivity {
    /// What it watches.
    pub headlines: Vec<Headline>,
    /// What it changes.
    pub parameters: Vec<Parameter>,
    base: Experiment,
    /// By parameter: at the low end, at the high end.
    changed: Vec<[Experiment; 2]>,
}

impl fmt::Debug for Sensitivity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sensitivity").field("parameters", &self.parameters).finish_non_exhaustive()
    }
}

impl Sensitivity {
    /// A study of tables: figure and title of each headline; key, what it is, low end, base, high end, why
    /// these ends. `build` is not asked for ends that are the base.
    ///
    /// # Errors
    /// `build`'s own.
    pub(crate) fn of_tables(
        headlines: &[(&str, &str)],
        parameters: &[[&str; 6]],
        build: &Build<'_>,
    ) -> Result<Self, ReproError> {
        let headlines = headlines
            .iter()
            .map(|(figure, title)| Headline { figure: (*figure).into(), title: (*title).into() });
        let rows = parameters.iter().map(|row| {
            let [key, what, low, base, high, why] = row.map(String::from);
            Parameter { key, what, low, base, high, why }
        });
        Self::new(headlines.collect(), rows.collect(), &|change: Option<Change<'_>>| {
            let is_base = |change: &Change<'_>| {
                parameters.iter().any(|row| row[0] == change.key && row[3] == change.value)
            };
            build(change.filter(|change| !is_base(change)))
        })
    }

    /// A study. `build` is called once without a change and twice for each parameter.
    ///
    /// # Errors
    /// `build`'s own.
    pub fn new(
        headlines: Vec<Headline>,
        parameters: Vec<Parameter>,
        build: &Build<'_>,
    ) -> Result<Self, ReproError> {
        let base = build(None)?;
        let changed = parameters
            .iter()
            .map(|parameter| {
                let at = |value: &str| build(Some(Change { key: &parameter.key, value }));
                Ok([at(&parameter.low)?, at(&parameter.high)?])
            })
            .collect::<Result<_, ReproError>>()?;
        Ok(Self { headlines, parameters, base, changed })
    }

    /// All runs.
    pub fn runs(&self) -> impl Iterator<Item = &Run> {
        std::iter::once(&self.base).chain(self.changed.iter().flatten()).flat_map(|e| &e.runs)
    }

    /// What comes of it; none while runs are missing.
    pub(crate) fn evaluate(&self, results: &Results) -> Result<Option<Effects>, ReproError> {
        let Some(base) = self.base.outcome(results)? else { return Ok(None) };
        let mut rows = Vec::new();
        for (parameter, ends) in self.parameters.iter().zip(&self.changed) {
            let (Some(low), Some(high)) = (ends[0].outcome(results)?, ends[1].outcome(results)?) else {
                return Ok(None);
            };
            let low = End::new(&parameter.low, low, &ends[0]);
            let high = End::new(&parameter.high, high, &ends[1]);
            let effects: Vec<f64> = self
                .headlines
                .iter()
                .map(|headline| {
                    let base = self.headline(&base.figures, headline)?;
                    let of = |end: &End| Ok(moved(base, self.headline(&end.figures, headline)?));
                    Ok(of(&low)?.max(of(&high)?))
                })
                .collect::<Result<_, ReproError>>()?;
            let overall = effects.iter().sum::<f64>() / effects.len().max(1) as f64;
            rows.push(Effect { parameter: parameter.clone(), low, high, effects, overall });
        }
        rows.sort_by(|a, b| b.overall.total_cmp(&a.overall));
        Ok(Some(Effects { headlines: self.headlines.clone(), base: base.figures, rows }))
    }

    fn headline(&self, figures: &Figures, headline: &Headline) -> Result<f64, ReproError> {
        figures.0.get(&headline.figure).copied().ok_or_else(|| ReproError::NoFigure {
            run: self.base.id.clone(),
            figure: headline.figure.clone(),
            near: String::new(),
        })
    }
}

/// By how much of itself a figure moved.
fn moved(base: f64, now: f64) -> f64 {
    let by = (now - base).abs();
    if base == 0.0 { by } else { by / base.abs() }
}

/// The study with a parameter at one end.
#[derive(Debug, Clone, Serialize)]
pub struct End {
    /// The parameter's value.
    pub value: String,
    /// All figures.
    pub figures: Figures,
    /// The runs behind them.
    pub runs: Vec<String>,
}

impl End {
    fn new(value: &str, outcome: Outcome, experiment: &Experiment) -> Self {
        let runs = experiment.runs.iter().map(|run| run.digest.clone()).collect();
        Self { value: value.into(), figures: outcome.figures, runs }
    }
}

/// What one parameter does.
#[derive(Debug, Clone, Serialize)]
pub struct Effect {
    /// The parameter.
    pub parameter: Parameter,
    /// At its low end.
    pub low: End,
    /// At its high end.
    pub high: End,
    /// For each headline the greater of the two moves, as a share of the headline.
    pub effects: Vec<f64>,
    /// Their mean, which the rows are sorted by.
    pub overall: f64,
}

/// What all parameters do, the strongest first.
#[derive(Debug, Clone, Serialize)]
pub struct Effects {
    /// What was watched.
    pub headlines: Vec<Headline>,
    /// All figures without a change.
    pub base: Figures,
    /// One for each parameter.
    pub rows: Vec<Effect>,
}

/// The single parameter that brings a missed claim nearest to the paper.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Driver {
    /// Its key.
    pub parameter: String,
    /// What it is.
    pub what: String,
    /// What all results are computed with.
    pub base: String,
    /// The end of its range.
    pub value: String,
    /// The claim's figures in the study without a change.
    pub ours_base: Vec<f64>,
    /// And there.
    pub ours: Vec<f64>,
    /// What the verdict would be there.
    pub verdict: Verdict,
    /// The difference there.
    pub difference: Option<f64>,
    /// The runs that show it.
    pub runs: Vec<String>,
}

impl Effects {
    /// The driver of a claim that is missed. None if the study does not yield its figures, or no parameter
    /// brings it nearer.
    #[must_use]
    pub fn driver(&self, claim: &Claim) -> Option<Driver> {
        let of = |figures: &Figures| -> Option<Vec<f64>> {
            claim.figures.iter().map(|name| figures.0.get(*name).copied()).collect()
        };
        let ours_base = of(&self.base)?;
        let distance = |ours: &[f64]| {
            let judged = claim.judge(ours);
            // An order is met or not; what is met is nearest.
            let far = judged.difference.map_or(if judged.verdict.met() { 0.0 } else { 1.0 }, f64::abs);
            (judged, far)
        };
        let mut nearest = distance(&ours_base).1;
        let mut driver = None;
        for effect in &self.rows {
            for end in [&effect.low, &effect.high] {
                let Some(ours) = of(&end.figures) else { continue };
                let (judged, far) = distance(&ours);
                if far < nearest {
                    nearest = far;
                    driver = Some(Driver {
                        parameter: effect.parameter.key.clone(),
                        what: effect.parameter.what.clone(),
                        base: effect.parameter.base.clone(),
                        value: end.value.clone(),
                        ours_base: ours_base.clone(),
                        ours,
                        verdict: judged.verdict,
                        difference: judged.difference,
                        runs: end.runs.clone(),
                    });
                }
            }
        }
        driver
    }
}
