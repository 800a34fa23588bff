//! Hybrid SSD cache (A Hybrid Non-Volatile Cache Design for Solid-State Drives Using Comprehensive I/O
//! Characterization): characterisation of eight traces, and a drive behind write buffers of DRAM and PCM.
//!
//! | module | contents | paper |
//! |---|---|---|
//! | [`claims()`] | the claims | |
//! | `sources` | stand-ins for the traces (`deepram_trace::workload::standin`), and recordings in their place | Table III |
//! | `characterise`, `locality`, `temporal` | the characterisation | Table III, Figures 4 to 8 and 10 |
//! | `table_v` | leakage of the configurations | Table V |
//! | `replay`, `grid` | simulations of all configurations, policies and endurances | section VI-C |
//! | `energy`, `lifetime`, `response` | what they cost and how fast they are | Figures 11, 12, 13 |
//! | `hotness` | adaptive against fixed hotness thresholds | section VI-C |
//! | `sensitivity` | what the paper leaves open | |
//!
//! The traces are not available. All results come from synthetic stand-ins, and are named so, except those of the
//! recordings that a user names ([`TraceFile`]).

mod characterise;
mod claims;
mod energy;
mod grid;
mod hotness;
mod lifetime;
mod locality;
mod replay;
mod response;
mod sensitivity;
mod sources;
mod table_v;
mod temporal;

pub use claims::claims;
pub use sources::TraceFile;

use std::sync::Arc;

use deepram_media::Registry;

use self::sources::Sources;
use crate::chart::Table;
use crate::claim::Claim;
use crate::error::ReproError;
use crate::experiment::{Experiment, FinishedRuns, Outcome, Paper, Settings};
use crate::number::list_with_unit;
use crate::sensitivity::Sensitivity;
use crate::simulation_run::{Metrics, SimulationRun};

/// Builds the paper. Beside the results on the stand-ins it has those with `files` in place of some of them.
///
/// # Errors
/// A configuration cannot be resolved, or a file is not one of the paper's traces or cannot be read.
pub fn paper(settings: &Settings, files: &[TraceFile]) -> Result<Paper, ReproError> {
    let registry = Registry::builtin()
        .map_err(|error| ReproError::Config { what: "presets".into(), source: Box::new(error.into()) })?;
    let registry = Arc::new(registry);
    let sources = Sources::new(files)?;
    Ok(Paper {
        name: "ssd-buffer",
        title: "Hybrid SSD cache: a write buffer of DRAM and PCM",
        about: "A drive behind write buffers of DRAM and PCM, against one of DRAM alone, and the characterisation of \
                the traces. The paper's eight traces are not available: synthetic stand-ins, fitted to their published \
                characterisation, take their place.",
        claims: claims(),
        experiments: vec![
            locality::traffic(settings, &sources),
            locality::experiment(settings, &sources),
            temporal::working_set(settings, &sources),
            temporal::hit_ratio(settings, &sources),
            table_v::experiment(&registry)?,
            energy::experiment(settings, &registry, &sources)?,
            lifetime::experiment(settings, &registry, &sources)?,
            response::experiment(settings, &registry, &sources)?,
            hotness::experiment(settings, &registry, &sources)?,
        ],
        sensitivity: Some(Sensitivity::of::<sensitivity::Assumptions>(settings, &registry)?),
    })
}

/// Name, title and description of an experiment.
type Head = [&'static str; 3];

/// An experiment on all traces. With recordings, it shows the results on the stand-ins, those with the recordings in
/// place of their stand-ins, and the claims on both.
fn on_traces<E>(
    [id, title, about]: Head,
    runs: Vec<SimulationRun>,
    sources: &Sources,
    evaluate: E,
) -> Experiment
where
    E: Fn(&FinishedRuns<'_>, &[sources::Source]) -> Result<Outcome, ReproError> + Send + Sync + 'static,
{
    let sources = sources.clone();
    Experiment::new(id, title, about, runs, move |finished| {
        let mut outcome = evaluate(finished, &sources.stand_ins)?;
        if let Some(recorded) = &sources.recorded {
            let with = sources.recordings();
            let beside = evaluate(finished, recorded)?;
            outcome.tables.push(both(id, &outcome.metrics, &beside.metrics, &with));
            outcome.charts.extend(beside.charts.into_iter().map(|mut chart| {
                chart.title = format!("{}, with {with}", chart.title);
                chart
            }));
            outcome.tables.extend(beside.tables.into_iter().map(|mut table| {
                table.title = format!("{}, with {with}", table.title);
                table
            }));
        }
        Ok(outcome)
    })
}

/// The claims of an experiment on the stand-ins alone and with recordings.
fn both(experiment: &str, stand_ins: &Metrics, recorded: &Metrics, with: &str) -> Table {
    let judged = |claim: &Claim, metrics: &Metrics| {
        let values: Vec<f64> =
            claim.metrics.iter().filter_map(|name| metrics.0.get(*name).copied()).collect();
        [list_with_unit(&values, claim.unit), claim.judge(&values).verdict.words().to_owned()]
    };
    let all = claims();
    let claims = all.iter().filter(|claim| claim.experiment == experiment);
    let rows = claims.map(|claim| {
        let mut row = vec![claim.id.to_owned(), claim.paper.to_owned()];
        row.extend(judged(claim, stand_ins));
        row.extend(judged(claim, recorded));
        row
    });
    Table {
        title: format!("Claims on synthetic traces alone, and with {with}"),
        headings: ["claim", "paper", "synthetic", "verdict", "with recordings", "verdict"]
            .map(String::from)
            .into(),
        rows: rows.collect(),
    }
}
