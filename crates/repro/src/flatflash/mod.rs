//! FlatFlash: a drive that the processor addresses line by line, with adaptive promotion of pages to DRAM, against
//! two systems that page from the same drive, and all-DRAM.
//!
//! To add an experiment: its function to `EXPERIMENTS`, its claims to `CLAIMS`.

mod claims;
mod constants;
mod cost;
mod database;
mod filesystem;
mod graph;
mod gups;
mod latency;
mod machine;
mod persist_claims;
mod persist_study;
mod promotion;
mod redis;
mod study;

use std::sync::Arc;

use deepram_media::Registry;

use crate::claim::Claim;
use crate::error::ReproError;
use crate::experiment::{Experiment, Paper, Settings};
use crate::sensitivity::Sensitivity;

/// Builds an experiment.
type Build = fn(&Settings, &Arc<Registry>) -> Result<Experiment, ReproError>;

/// The experiments, in the order of the report.
const EXPERIMENTS: &[Build] = &[
    latency::experiment,
    gups::experiment,
    graph::experiment,
    redis::experiment,
    promotion::experiment,
    filesystem::experiment,
    database::experiment,
    constants::experiment,
    cost::experiment,
];

/// What the paper claims, in the same order.
const CLAIMS: &[&[Claim]] = &[claims::memory::CLAIMS, claims::programs::CLAIMS, claims::tables::CLAIMS];

/// The paper. Claims whose experiments are not here are reported as not run.
///
/// # Errors
/// A configuration cannot be resolved.
pub fn paper(settings: &Settings) -> Result<Paper, ReproError> {
    let registry = Registry::builtin()
        .map_err(|error| ReproError::Config { what: "presets".into(), source: Box::new(error.into()) })?;
    let registry = Arc::new(registry);
    Ok(Paper {
        name: "flatflash",
        title: "FlatFlash: a byte-addressable drive as memory",
        about: "A drive whose lines the processor loads and stores, promoting pages to DRAM, against paging from the \
                same drive with one translation for all and behind an operating system's storage stack.",
        claims: [CLAIMS.concat(), persist_claims::filesystem(), persist_claims::database()].concat(),
        experiments: EXPERIMENTS
            .iter()
            .map(|build| build(settings, &registry))
            .collect::<Result<_, ReproError>>()?,
        sensitivity: Some(study(settings, &registry)?),
    })
}

/// What the results hang on: the programs' runs and those of the case studies of persistence.
fn study(settings: &Settings, registry: &Arc<Registry>) -> Result<Sensitivity, ReproError> {
    let headlines = [&study::HEADLINES[..], &persist_study::HEADLINES[..]].concat();
    let parameters = [&study::PARAMETERS[..], &persist_study::PARAMETERS[..]].concat();
    Sensitivity::of_tables(&headlines, &parameters, &|change| {
        let programs = study::experiment(change, settings, registry)?;
        Ok(programs.join(persist_study::experiment(change, settings, registry)?))
    })
}
