//! Carries out a reproduction and assembles its report.
//!
//! A report depends only on the paper and the metrics of its runs; it contains no dates, durations or
//! paths. The same runs give the same bytes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::claim::{Claim, Class, Expected, Judgement, Tolerance, Verdict};
use crate::error::ReproError;
use crate::experiment::{Outcome, Paper, Settings};
use crate::number::list_with_unit;
use crate::reason::{NO_REASON, StatedReason};
use crate::result_cache::{ResultCache, ResultsByDigest, replace};
use crate::runner::{self, Progress, distinct};
use crate::sensitivity::{Driver, SensitivityResult};
use crate::simulation_run::{Metrics, SimulationRun};

/// Name that selects the sensitivity study in `only`.
pub const SENSITIVITY: &str = "sensitivity";

/// Options of [`reproduce`].
#[derive(Debug, Clone)]
pub struct Options {
    /// Folder for the report and the cached results.
    pub out: PathBuf,
    /// Names of the experiments or claims to run; everything if empty. Other experiments are reported
    /// from cached results where all of these exist.
    pub only: Vec<String>,
    /// Number of simulations that run at once.
    pub jobs: usize,
}

/// A claim with our values and the verdict: one row of `results.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimResult {
    /// Name of the claim.
    pub id: String,
    /// The paper's section, figure or table.
    pub source: String,
    /// The claim in our words.
    pub statement: String,
    /// The paper's value as printed.
    pub paper: String,
    /// The paper's value in comparable form.
    pub expected: Expected,
    /// Unit of the values; empty for ratios and counts.
    pub unit: String,
    /// Allowed deviation.
    pub tolerance: Tolerance,
    /// Allowed deviation as text.
    pub tolerance_words: String,
    /// Class in `results.json`: `E`, `M`, `T`, or `H` for a claim that depends on unavailable hardware
    /// or guest software.
    #[serde(rename = "class")]
    pub class_letter: Cow<'static, str>,
    /// How the value is compared: exact, magnitude, trend or calibrated.
    #[serde(rename = "comparison")]
    pub class: Class,
    /// The paper's value depends on hardware or guest software that is not available here.
    pub hardware_dependent: bool,
    /// Our value comes from synthetic stand-ins for traces of the paper.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub synthetic: bool,
    /// The claim stands only in an earlier draft of the paper.
    pub draft_only: bool,
    /// Name of the experiment.
    pub experiment: String,
    /// Our values by metric name.
    pub metrics: Metrics,
    /// Our value, if the claim is about a single metric.
    pub ours: Option<f64>,
    /// Our values of an order, in the claim's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ordered: Vec<f64>,
    /// The verdict.
    pub verdict: Verdict,
    /// Relative distance from the nearest expected value.
    pub difference: Option<f64>,
    /// Why a missed claim is missed; `None` for every other claim, and if no reason is recorded.
    #[serde(default)]
    pub reason: Option<StatedReason>,
    /// The influence of the sensitivity study's parameters on a missed claim, or why a claim is unavailable; otherwise
    /// empty.
    pub why: String,
    /// The single parameter that brings a missed claim nearest to the paper.
    pub driver: Option<Driver>,
    /// How the claim is read, and assumptions behind our value.
    pub note: String,
    /// Digests of the experiment's runs. Empty in a record.
    #[serde(default)]
    pub runs: Vec<String>,
}

/// An experiment in the report.
#[derive(Debug, Clone, Serialize)]
pub struct ExperimentResult {
    /// Name of the experiment.
    pub id: String,
    /// Title of the section.
    pub title: String,
    /// What is simulated, and how it differs from the paper.
    pub about: String,
    /// Metrics, charts and tables; `None` if the experiment was not run.
    pub outcome: Option<Outcome>,
}

/// A finished run in the report.
#[derive(Debug, Clone, Serialize)]
pub struct RunRecord {
    /// Digest of the run.
    pub digest: String,
    /// Name in the first experiment that contains the run.
    pub name: String,
    /// Name of the procedure.
    pub procedure: String,
    /// The whole resolved configuration.
    pub config: Value,
    /// All metrics of the run.
    pub metrics: Metrics,
}

/// The report of a reproduction; `results.json` is its JSON form.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// Name of the paper.
    pub paper: String,
    /// Title of the report.
    pub title: String,
    /// What is reproduced, in one or two sentences.
    pub about: String,
    /// Version of deepram.
    pub version: String,
    /// Whether the runs were shrunk; verdicts are then not meaningful.
    pub quick: bool,
    /// Seed of every random stream.
    pub seed: u64,
    /// Number of claims by result: `inside`, `outside`, `unavailable`.
    pub summary: BTreeMap<Cow<'static, str>, usize>,
    /// One row per claim.
    pub rows: Vec<ClaimResult>,
    /// The experiments, in the paper's order. Not in a record, and not read back.
    #[serde(default, deserialize_with = "leave_out", skip_serializing_if = "Vec::is_empty")]
    pub experiments: Vec<ExperimentResult>,
    /// The sensitivity study, if it was run.
    pub sensitivity: Option<SensitivityResult>,
    /// All finished runs. Not in a record, and not read back.
    #[serde(default, deserialize_with = "leave_out", skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<RunRecord>,
}

/// Reads a list without keeping it.
fn leave_out<'de, D: Deserializer<'de>, T>(from: D) -> Result<Vec<T>, D::Error> {
    IgnoredAny::deserialize(from).map(|_| Vec::new())
}

/// Carries out the runs that are not cached and assembles the report.
///
/// # Errors
/// The error of a run; [`ReproError::Unknown`] for an unknown name in `only`; [`ReproError::Contents`]
/// for an unexpected file in the output folder.
pub fn reproduce(
    paper: &Paper,
    settings: &Settings,
    options: &Options,
    observe: &(dyn Fn(Progress<'_>) + Sync),
) -> Result<Report, ReproError> {
    paper.check()?;
    let selected = select_runs(paper, &options.only)?;
    let cache = ResultCache::open(&options.out)?;
    let mut results = runner::execute(&selected, &cache, options.jobs, observe)?;
    for run in all_runs(paper) {
        if !results.contains_key(&run.digest)
            && let Some(cached) = cache.load(run)?
        {
            results.insert(run.digest.clone(), cached);
        }
    }
    assemble(paper, settings, &results)
}

fn all_runs(paper: &Paper) -> Vec<&SimulationRun> {
    let own = paper.experiments.iter().flat_map(|experiment| &experiment.runs);
    distinct(own.chain(paper.sensitivity.iter().flat_map(|study| study.runs())))
}

/// Selects the runs of the experiments and claims in `only`.
fn select_runs<'a>(paper: &'a Paper, only: &[String]) -> Result<Vec<&'a SimulationRun>, ReproError> {
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

fn assemble(paper: &Paper, settings: &Settings, results: &ResultsByDigest) -> Result<Report, ReproError> {
    let mut experiments = Vec::new();
    for experiment in &paper.experiments {
        experiments.push(ExperimentResult {
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
        *summary.entry(row.verdict.result().into()).or_default() += 1;
    }
    let runs = all_runs(paper).into_iter().filter_map(|run| {
        let cached = results.get(&run.digest)?;
        Some(RunRecord {
            digest: run.digest.clone(),
            name: run.name.clone(),
            procedure: run.procedure.into(),
            config: run.config.clone(),
            metrics: cached.metrics.clone(),
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
    sections: &[ExperimentResult],
    effects: Option<&SensitivityResult>,
) -> Result<ClaimResult, ReproError> {
    let mut metrics = Metrics::new();
    let mut ours = Vec::new();
    let mut why = String::new();
    let mut reason = None;
    let mut runs = Vec::new();
    let missing = |name: &str| ReproError::Paper {
        paper: paper.name.into(),
        why: format!("experiment {} has no {name}, which claim {} needs", claim.experiment, claim.id),
    };
    match sections.iter().find(|section| section.id == claim.experiment) {
        None => why = format!("There is no experiment {} yet.", claim.experiment),
        Some(ExperimentResult { outcome: None, .. }) => {
            why = format!("Experiment {} was not run.", claim.experiment);
        }
        Some(ExperimentResult { outcome: Some(outcome), .. }) => {
            for &name in claim.metrics {
                // A finished experiment must produce every metric its claims name. Otherwise a misspelt
                // metric would look like a claim that was not run.
                let value = *outcome.metrics.0.get(name).ok_or_else(|| missing(&format!("metric {name}")))?;
                metrics.set(name, value);
                ours.push(value);
            }
            reason = claim
                .reason
                .map(|reason| reason.state(claim, &outcome.metrics, effects))
                .transpose()
                .map_err(|name| missing(&name))?;
            let experiment = paper.experiments.iter().find(|experiment| experiment.id == claim.experiment);
            runs.extend(experiment.iter().flat_map(|e| e.runs.iter().map(|run| run.digest.clone())));
        }
    }
    let Judgement { verdict, difference } = claim.judge(&ours);
    let driver = if verdict.missed() { effects.and_then(|effects| effects.driver(claim)) } else { None };
    if verdict.missed() {
        why = influence(claim, driver.as_ref(), effects.is_some());
    }
    Ok(ClaimResult {
        id: claim.id.into(),
        source: claim.source.into(),
        statement: claim.statement.into(),
        paper: claim.paper.into(),
        expected: claim.expected,
        unit: claim.unit.into(),
        tolerance: claim.tolerance,
        tolerance_words: claim.tolerance_words(),
        class_letter: claim.class_letter().into(),
        class: claim.class,
        hardware_dependent: claim.hardware_dependent,
        synthetic: claim.synthetic,
        draft_only: claim.draft_only,
        experiment: claim.experiment.into(),
        ours: if claim.metrics.len() == 1 { ours.first().copied() } else { None },
        ordered: if claim.metrics.len() > 1 { ours } else { Vec::new() },
        metrics,
        verdict,
        difference,
        // A claim that is met has no use for the reason of an earlier miss.
        reason: reason.filter(|_| verdict.missed()),
        why,
        driver,
        note: claim.note.into(),
        runs,
    })
}

/// Describes the parameter of the sensitivity study that has the largest influence on a missed claim.
fn influence(claim: &Claim, driver: Option<&Driver>, studied: bool) -> String {
    let Some(driver) = driver else {
        return if studied {
            "No parameter of the sensitivity study brings our value nearer to the paper's.".into()
        } else {
            "The sensitivity study was not run.".into()
        };
    };
    format!(
        "The parameter with the largest influence is {} ({}): with {} instead of {}, our value is {} instead of {} ({}).",
        driver.parameter,
        driver.description,
        driver.value,
        driver.base,
        list_with_unit(&driver.ours, claim.unit),
        list_with_unit(&driver.ours_base, claim.unit),
        driver.verdict.words()
    )
}

impl ClaimResult {
    /// The verdict as text; it names synthetic traces.
    #[must_use]
    pub fn verdict_words(&self) -> String {
        let synthetic = if self.synthetic { ", synthetic traces" } else { "" };
        format!("{}{synthetic}", self.verdict.words())
    }

    /// Letters beside the class: H for a claim that depends on hardware, S for synthetic traces.
    #[must_use]
    pub fn letters(&self) -> Vec<&'static str> {
        [(self.hardware_dependent, "H"), (self.synthetic, "S")]
            .into_iter()
            .filter_map(|(is, letter)| is.then_some(letter))
            .collect()
    }

    /// Kind of the reason for a missed claim, as text; `None` for every other claim.
    #[must_use]
    pub fn reason_words(&self) -> Option<&'static str> {
        let words = self.reason.as_ref().map_or(NO_REASON, |reason| reason.kind.words());
        self.verdict.missed().then_some(words)
    }

    /// The reason for a missed claim as a sentence with its kind in front; `None` for every other claim.
    #[must_use]
    pub fn reason_text(&self) -> Option<String> {
        let words = self.reason_words()?;
        let text = self.reason.as_ref().map_or(String::new(), |reason| format!(": {}", reason.text));
        Some(format!("{words}{text}"))
    }
}

impl Report {
    /// The report as one JSON object.
    ///
    /// # Errors
    /// None for a report that [`reproduce`] made.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }

    /// Reads the JSON form of a report or of a record, without experiments and runs.
    ///
    /// # Errors
    /// The value has another form.
    pub fn from_json(value: Value) -> Result<Self, serde_json::Error> {
        let mut report: Self = serde_json::from_value(value)?;
        for row in &mut report.rows {
            row.verdict = row.verdict.of(row.class);
            if let Some(driver) = &mut row.driver {
                driver.verdict = driver.verdict.of(row.class);
            }
        }
        Ok(report)
    }

    /// The report's claims and the headlines of its sensitivity study, without digests: small enough to be kept for each
    /// state of the code.
    #[must_use]
    pub fn record(&self) -> Self {
        let mut record = Self { experiments: Vec::new(), runs: Vec::new(), ..self.clone() };
        for row in &mut record.rows {
            row.runs.clear();
            if let Some(driver) = &mut row.driver {
                driver.runs.clear();
            }
        }
        if let Some(study) = &mut record.sensitivity {
            study.keep_headlines();
        }
        record
    }

    /// Writes `results.json` and `index.html` to a folder and returns the path of the page.
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
