//! Reproduces the published results of the papers: runs the simulations behind each claim, judges our
//! value against the paper's, and writes a report.
//!
//! ```no_run
//! use deepram_repro::{Options, Settings, paper, reproduce};
//!
//! let settings = Settings { quick: false, seed: 1 };
//! let paper = paper("validation", &settings)?;
//! let options = Options { out: "out".into(), only: Vec::new(), jobs: 2 };
//! let report = reproduce(&paper, &settings, &options, &|_| {})?;
//! report.write(&options.out)?;
//! # Ok::<(), deepram_repro::ReproError>(())
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`claim`] | a paper's claims and the arithmetic of verdicts |
//! | [`reason`] | why a missed claim is missed |
//! | [`simulation_run`], [`runner`], [`result_cache`] | simulations, run in parallel and cached on disk by digest |
//! | [`experiment`] | turns finished runs into metrics, charts and tables |
//! | [`sensitivity`] | one-at-a-time parameter study; names the parameter behind a missed claim |
//! | [`compare`] | the claims that differ between two reports |
//! | [`report`] | the reproduction as data; [`html`] and [`svg`] render it as a page |
//! | [`simulate`] | a simulator run as a run of an experiment |
//! | [`flatflash`], [`nvmm`], [`disk_cache`], [`ssd_buffer`], [`pmem`], [`validation`] | the papers, and the simulator's own validation |
//!
//! A claim that the simulation does not confirm is reported as such, with an explanation. No parameter
//! is tuned to meet a claim.

#![forbid(unsafe_code)]

pub mod chart;
pub mod claim;
pub mod compare;
pub mod disk_cache;
mod error;
pub mod experiment;
pub mod flatflash;
pub mod html;
pub mod number;
pub mod nvmm;
pub mod pmem;
pub mod reason;
pub mod report;
pub mod result_cache;
pub mod runner;
pub mod sensitivity;
pub mod simulate;
pub mod simulation_run;
#[cfg(test)]
mod source_digest;
pub mod ssd_buffer;
pub mod statistics;
pub mod svg;
pub mod validation;

pub use claim::{Claim, Class, Expected, Judgement, Tolerance, Verdict};
pub use error::ReproError;
pub use experiment::{Experiment, FinishedRuns, Outcome, Paper, Settings};
pub use reason::{Ends, Reason, ReasonKind, StatedReason};
pub use report::{Options, Report, reproduce};
pub use runner::Progress;
pub use simulation_run::{Metrics, SimulationRun};
pub use ssd_buffer::TraceFile;

/// Names of everything that can be reproduced: five papers, and `validation`, the checks of the simulator
/// itself.
pub const PAPERS: [&str; 6] = ["nvmm", "flatflash", "disk-cache", "ssd-buffer", "pmem", "validation"];

/// Builds the paper called `name`, with its experiments sized by `settings`.
///
/// # Errors
/// [`ReproError::Unknown`] if no paper has that name; otherwise a configuration that cannot be resolved.
pub fn paper(name: &str, settings: &Settings) -> Result<Paper, ReproError> {
    paper_on(name, settings, &[])
}

/// As [`paper`], with recordings of the traces that the paper used. Beside its results on synthetic stand-ins, the
/// paper then has those on the recordings.
///
/// # Errors
/// As [`paper`]; a recording that cannot be read or that the paper did not use.
pub fn paper_on(name: &str, settings: &Settings, traces: &[TraceFile]) -> Result<Paper, ReproError> {
    match name {
        "ssd-buffer" => ssd_buffer::paper(settings, traces),
        _ if !traces.is_empty() => {
            Err(ReproError::Paper { paper: name.into(), why: "it replays no traces".into() })
        }
        "nvmm" => nvmm::paper(settings),
        "flatflash" => flatflash::paper(settings),
        "disk-cache" => disk_cache::paper(settings),
        "pmem" => pmem::paper(settings),
        "validation" => validation::paper(settings),
        _ => Err(ReproError::Unknown { what: "paper", name: name.into(), known: PAPERS.join(", ") }),
    }
}
