//! Published figures computed anew: what a paper claims, the runs that show it, the verdict, the report.
//!
//! ```no_run
//! use deepram_repro::{Options, Settings, paper, reproduce};
//!
//! let settings = Settings { quick: false, seed: 1 };
//! let paper = paper("ground", &settings)?;
//! let options = Options { out: "out".into(), only: Vec::new(), jobs: 2, fresh: false };
//! let report = reproduce(&paper, &settings, &options, &|_| {})?;
//! report.write(&options.out)?;
//! # Ok::<(), deepram_repro::ReproError>(())
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`claim`] | what a paper says, and the arithmetic of verdicts |
//! | [`run`], [`runner`], [`store`] | simulations by digest, on several threads, resumable |
//! | [`experiment`] | runs to figures, charts, tables |
//! | [`sensitivity`] | one parameter at a time; what drives a difference |
//! | [`report`] | all of it as data; [`html`] and [`svg`] as a page |
//! | [`simulate`] | a run of the simulator |
//! | [`flatflash`], [`ground`], [`nvmm`] | the papers |
//!
//! A claim that comes out differently is shown so and explained, never tuned away.

#![forbid(unsafe_code)]

pub mod chart;
pub mod claim;
pub mod curve;
mod error;
pub mod experiment;
pub mod flatflash;
pub mod ground;
pub mod html;
pub mod number;
pub mod nvmm;
pub mod report;
pub mod run;
pub mod runner;
pub mod sensitivity;
pub mod simulate;
pub mod store;
pub mod svg;

pub use claim::{Claim, Class, Expected, Judged, Tolerance, Verdict};
pub use error::ReproError;
pub use experiment::{Experiment, Finished, Outcome, Paper, Settings};
pub use report::{Options, Report, reproduce};
pub use run::{Figures, Procedure, Run};
pub use runner::Progress;

/// The papers that can be reproduced, by name.
pub const PAPERS: [&str; 3] = ["nvmm", "flatflash", "ground"];

/// The paper of that name.
///
/// # Errors
/// There is none, or its configurations cannot be resolved.
pub fn paper(name: &str, settings: &Settings) -> Result<Paper, ReproError> {
    match name {
        "nvmm" => nvmm::paper(settings),
        "flatflash" => flatflash::paper(settings),
        "ground" => ground::paper(settings),
        _ => Err(ReproError::Unknown { what: "paper", name: name.into(), known: PAPERS.join(", ") }),
    }
}
