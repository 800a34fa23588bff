//! A reproduction from paper to `results.json`.
//!
//! A report depends on the paper and the runs' figures alone: no dates, no durations, no paths. The same
//! runs give the same bytes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use crate::claim::{Claim, Class, Expected, Judged, Tolerance, Verdict};
use crate::error::ReproError;
use crate::experiment::{Outcome, Paper, Settings};
use crate::run::{Figures, Run};
use crate::runner::{self, Progress, distinct};
use crate::sensitivity::{Driver, Effects};
use crate::store::{Results, Store, replace};

/// The name by which `only` asks for the sensitivity study.
pub const SENSITIVITY: &str = "sensitivity";

/// How a paper is reproduced.
#[derive(Debug, Clone)]
pub struct Options {
    /// Folder of the report and of finished runs.
    pub out: PathBuf,
    /// Experiments or claims that are run; all if empty. Others are reported if their runs are there.
    pub only: Vec<String>,
    /// Simulations at a time.
    pub jobs: usize,
    /// Whether finished runs are done again.
    pub fresh: bool,
}

/// A claim with its verdict.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The claim's name.
    pub id: String,
    /// Where the paper says so.
    pub source: String,
    /// What is claimed.
    pub what: String,
    /// The paper's value as it gives it.
    pub paper: String,
    /// The same for the judge.
    pub expected: Expected,
    /// The unit.
    pub unit: String,
    /// How far off is still right.
    pub tolerance: Tolerance,
    /// The same in words.
    pub tolerance_words: String,
    /// How close it has to come.
    pub class: Class,
    /// Depends on hardware or guest software that is not to be had.
    pub guest: bool,
    /// From text of an earlier draft.
    pub ghost: bool,
    /// The experiment.
    pub experiment: String,
    /// Our figures by name.
    pub figures: Figures,
    /// Our figure, if the claim is about one.
    pub ours: Option<f64>,
    /// The figures of an order, in the claim's order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ordered: Vec<f64>,
    /// The verdict.
    pub verdict: Verdict,
    /// Distance to the nearest expected value as a share of it.
    pub difference: Option<f64>,
    /// Why it is outside or was not run; empty if neither.
    pub why: String,
    /// What drives the difference of a missed claim.
    pub driver: Option<Driver>,
    /// What a reader should know.
    pub note: String,
    /// The runs behind it.
    pub runs: Vec<String>,
}

/// An experiment as it is reported.
#[derive(Debug, Clone, Serialize)]
pub struct Section {
    /// Its name.
    pub id: String,
    /// Its title.
    pub title: String,
    /// What was run.
    pub about: String,
    /// What came of it; none if it was not run.
    pub outcome: Option<Outcome>,
}

/// A run as it is reported.
#[derive(Debug, Clone, Serialize)]
pub struct Ran {
    /// The digest.
    pub digest: String,
    /// Its name in the first experiment that has it.
    pub name: String,
    /// The procedure and its version.
    pub procedure: String,
    /// The whole configuration.
    pub config: Value,
    /// All figures.
    pub figures: Figures,
}

/// A reproduction.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The paper's name.
    pub paper: String,
    /// The title.
    pub title: String,
    /// What is reproduced.
    pub about: String,
    /// Version of deepram.
    pub version: String,
    /// Whether runs were small: verdicts mean little.
    pub quick: bool,
    /// The seed.
    pub seed: u64,
    /// How many claims have each verdict.
    pub summary: BTreeMap<&'static str, usize>,
    /// The claims.
    pub rows: Vec<Row>,
    /// The experiments.
    pub experiments: Vec<Section>,
    /// What the results hang on.
    pub sensitivity: Option<Effects>,
    /// The runs.
    pub runs: Vec<Ran>,
}

/// Runs what is missing and reports.
///
/// # Errors
/// A run's own; [`ReproError::Unknown`] for a name in `only`; contents of the folder that are not what they
/// should be.
pub fn reproduce(
    paper: &Paper,
    settings: &Settings,
    options: &Options,
    observe: &(dyn Fn(Progress<'_>) + Sync),
) -> Result<Report, ReproError> {
    paper.check()?;
    let chosen = chosen(paper, &options.only)?;
    let store = Store::open(&options.out)?;
    let mut results = runner::execute(&chosen, &store, options.jobs, options.fresh, observe)?;
    for run in all_runs(paper) {
        if !results.contains_key(&run.digest)
            && let Some(stored) = store.load(run)?
        {
            results.insert(run.digest.clone(), stored);
        }
    }
    assemble(paper, settings, &results)
}

fn all_runs(paper: &Paper) -> Vec<&Run> {
    let own = paper.experiments.iter().flat_map(|experiment| &experiment.runs);
    distinct(own.chain(paper.sensitivity.iter().flat_map(|study| study.runs())))
}

/// The runs that `only` asks for.
fn chosen<'a>(paper: &'a Paper, only: &[String]) -> Result<Vec<&'a Run>, ReproError> {
    if only.is_empty() {
        return Ok(all_runs(paper));
    }
    let mut runs = Vec::new();
    for name in only {
        let claim = paper.claims.iter().find(|claim| claim.id == name);
        let id = claim.map_or(name.as_str(), |claim| claim.experiment);
        if let Some(experiment) = paper.experiments.iter().find(|experiment| experiment.id == id) {
            runs.extend(&experiment.runs);
        } else if let (SENSITIVITY, Some(study)) = (id, &paper.sensitivity) {
            runs.extend(study.runs());
        } else if claim.is_none() {
            let experiments = paper.experiments.iter().map(|experiment| experiment.id.as_str());
            let study = paper.sensitivity.iter().map(|_| SENSITIVITY);
            let claims = paper.claims.iter().map(|claim| claim.id);
            let known: Vec<&str> = experiments.chain(study).chain(claims).collect();
            return Err(ReproError::Unknown {
                what: "experiment or claim",
                name: name.clone(),
                known: known.join(", "),
            });
        }
    }
    Ok(runs)
}

fn assemble(paper: &Paper, settings: &Settings, results: &Results) -> Result<Report, ReproError> {
    let mut experiments = Vec::new();
    for experiment in &paper.experiments {
        experiments.push(Section {
            id: experiment.id.clone(),
            title: experiment.title.clone(),
            about: experiment.about.clone(),
            outcome: experiment.outcome(results)?,
        });
    }
    let sensitivity = match &paper.sensitivity {
        Some(study) => study.evaluate(results)?,
        None => None,
    };
    let mut rows = Vec::new();
    for claim in &paper.claims {
        rows.push(row(paper, claim, &experiments, sensitivity.as_ref())?);
    }
    let mut summary = BTreeMap::new();
    for row in &rows {
        *summary.entry(row.verdict.words()).or_default() += 1;
    }
    let runs = all_runs(paper).into_iter().filter_map(|run| {
        let stored = results.get(&run.digest)?;
        Some(Ran {
            digest: run.digest.clone(),
            name: run.name.clone(),
            procedure: format!("{} {}", run.procedure.name, run.procedure.version),
            config: run.config.clone(),
            figures: stored.figures.clone(),
        })
    });
    Ok(Report {
        paper: paper.name.into(),
        title: paper.title.into(),
        about: paper.about.into(),
        version: env!("CARGO_PKG_VERSION").into(),
        quick: settings.quick,
        seed: settings.seed,
        summary,
        rows,
        runs: runs.collect(),
        experiments,
        sensitivity,
    })
}

fn row(
    paper: &Paper,
    claim: &Claim,
    sections: &[Section],
    effects: Option<&Effects>,
) -> Result<Row, ReproError> {
    let mut figures = Figures::new();
    let mut ours = Vec::new();
    let mut why = String::new();
    let mut runs = Vec::new();
    match sections.iter().find(|section| section.id == claim.experiment) {
        None => why = format!("there is no experiment {} yet", claim.experiment),
        Some(Section { outcome: None, .. }) => {
            why = format!("experiment {} was not run", claim.experiment);
        }
        Some(Section { outcome: Some(outcome), .. }) => {
            for &name in claim.figures {
                // An experiment that ran has to yield what its claims are about: else a misspelt name
                // would pass for a claim that could not be judged.
                let value = *outcome.figures.0.get(name).ok_or_else(|| ReproError::Paper {
                    paper: paper.name.into(),
                    why: format!(
                        "experiment {} yields no figure {name} for claim {}",
                        claim.experiment, claim.id
                    ),
                })?;
                figures.set(name, value);
                ours.push(value);
            }
            let experiment = paper.experiments.iter().find(|experiment| experiment.id == claim.experiment);
            runs.extend(experiment.iter().flat_map(|e| e.runs.iter().map(|run| run.digest.clone())));
        }
    }
    let Judged { verdict, difference } = claim.judge(&ours);
    let driver = if verdict.missed() { effects.and_then(|effects| effects.driver(claim)) } else { None };
    if verdict.missed() {
        why = reason(claim, driver.as_ref(), effects.is_some());
    }
    Ok(Row {
        id: claim.id.into(),
        source: claim.place.into(),
        what: claim.what.into(),
        paper: claim.paper.into(),
        expected: claim.expected,
        unit: claim.unit.into(),
        tolerance: claim.tolerance,
        tolerance_words: claim.tolerance_words(),
        class: claim.class,
        guest: claim.guest,
        ghost: claim.ghost,
        experiment: claim.experiment.into(),
        ours: if claim.figures.len() == 1 { ours.first().copied() } else { None },
        ordered: if claim.figures.len() > 1 { ours } else { Vec::new() },
        figures,
        verdict,
        difference,
        why,
        driver,
        note: claim.note.into(),
        runs,
    })
}

/// Why a claim is missed, as far as the study shows it.
fn reason(claim: &Claim, driver: Option<&Driver>, studied: bool) -> String {
    let Some(driver) = driver else {
        return if studied {
            "no parameter of the sensitivity study brings it nearer".into()
        } else {
            "no sensitivity run was made".into()
        };
    };
    let list = |values: &[f64]| {
        let shown: Vec<String> =
            values.iter().map(|&value| crate::number::with_unit(value, claim.unit)).collect();
        shown.join(", ")
    };
    format!(
        "{} ({}) drives it most: {} instead of {} turns {} into {} ({})",
        driver.what,
        driver.parameter,
        driver.value,
        driver.base,
        list(&driver.ours_base),
        list(&driver.ours),
        driver.verdict.words()
    )
}

impl Report {
    /// As one JSON object.
    ///
    /// # Errors
    /// Never for a report that [`reproduce`] made.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }

    /// Writes `results.json` and `index.html` to a folder; returns the page's path.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, out: &Path) -> Result<PathBuf, ReproError> {
        let file = out.join("results.json");
        let json = self.to_json().map_err(|error| ReproError::contents(&file, error.to_string()))?;
        replace(&file, json.as_bytes())?;
        let page = out.join("index.html");
        replace(&page, crate::html::page(self).as_bytes())?;
        Ok(page)
    }
}
