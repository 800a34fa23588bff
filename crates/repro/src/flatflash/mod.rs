//! FlatFlash: an SSD that the processor addresses by cache line, with adaptive promotion of pages to
//! DRAM, compared with two systems that page from the same SSD and with all-DRAM.
//!
//! To add an experiment, add its function to `EXPERIMENTS` and its claims to `CLAIMS`.

mod claims;
mod constants;
mod cost;
mod database;
mod filesystem;
#[cfg(test)]
mod full_size;
mod graph;
mod gups;
mod latency;
mod machine;
mod persistence_sensitivity;
mod platform;
mod promotion;
mod redis;
mod sensitivity;

use std::sync::Arc;

use deepram_media::Registry;

use crate::claim::Claim;
use crate::error::ReproError;
use crate::experiment::{Experiment, Paper, Settings};
use crate::sensitivity::{Sensitivity, StudyPart};

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
    platform::experiment,
    constants::experiment,
    cost::experiment,
];

/// The claims, in the order of the experiments.
const CLAIMS: &[&[Claim]] = &[claims::memory::CLAIMS, claims::programs::CLAIMS, claims::tables::CLAIMS];

/// Builds the paper. Claims without an experiment are reported as unavailable.
///
/// # Errors
/// A configuration cannot be resolved.
pub fn paper(settings: &Settings) -> Result<Paper, ReproError> {
    let registry = Registry::builtin()
        .map_err(|error| ReproError::Config { what: "presets".into(), source: Box::new(error.into()) })?;
    let registry = Arc::new(registry);
    Ok(Paper {
        name: "flatflash",
        title: "FlatFlash: a byte-addressable SSD as memory",
        about: "An SSD whose lines the processor loads and stores, with promotion of pages to DRAM, \
                compared with paging from the same SSD through one merged translation layer (UnifiedMMap) \
                and through an operating system's storage stack (TraditionalStack).",
        claims: [CLAIMS.concat(), claims::persistence::filesystem(), claims::persistence::database()]
            .concat(),
        experiments: EXPERIMENTS
            .iter()
            .map(|build| build(settings, &registry))
            .collect::<Result<_, ReproError>>()?,
        sensitivity: Some(sensitivity_study(settings, &registry)?),
    })
}

/// The sensitivity study: the programs' runs and the two case studies of persistence.
fn sensitivity_study(settings: &Settings, registry: &Arc<Registry>) -> Result<Sensitivity, ReproError> {
    Sensitivity::of_parts(&[
        StudyPart::of::<sensitivity::Assumptions>(settings, registry),
        StudyPart::of::<persistence_sensitivity::Assumptions>(settings, registry),
    ])
}
