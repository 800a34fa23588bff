//! Flash disk cache (Integrating NAND Flash Devices onto Servers): reclamation, endurance and lifetime of flash as a
//! disk cache, and the power and bandwidth of a server with it.
//!
//! | module | contents | paper |
//! |---|---|---|
//! | [`claims()`] | the claims | |
//! | `reclamation` | time of reclamation over the occupied share of the flash | Figure 2b |
//! | `endurance` | cycles that a memory tolerates over the strength of its code | Figure 5 |
//! | `partition` | the best division into single-level and multi-level cells | Figure 7 |
//! | `server` | power, bandwidth, and throughput over the strength of the code | Figures 8 and 9 |
//! | `lifetime` | accesses until all flash has failed, and latency meanwhile | Figure 10 |
//! | `deviation` | the same at other deviations of the endurance of pages | Figure 10 |
//! | `regions` | misses and reclamation with one region of flash or two | section 3.1, Figure 4 |
//! | `untimed` | the cache without time, for `lifetime`, `deviation` and `regions` | |
//! | `sensitivity` | what the paper leaves open | |
//!
//! The benchmarks and traces are not available. Generated workloads take their place, and are named so.

mod claims;
mod deviation;
mod endurance;
mod lifetime;
mod partition;
mod reclamation;
mod regions;
mod sensitivity;
mod server;
mod untimed;

pub use claims::claims;

use std::sync::Arc;

use deepram_media::{DiskCacheServer, Registry};

use crate::error::ReproError;
use crate::experiment::{Paper, Settings};
use crate::sensitivity::Sensitivity;

/// The preset of the paper's server.
const SERVER: &str = "flash-256m-1g";

/// The server of a preset, with overrides.
fn server(registry: &Registry, preset: &str, set: &[&str]) -> Result<DiskCacheServer, ReproError> {
    let found = registry.get_with(&format!("server.{preset}"), set);
    found.map_err(|error| ReproError::Config { what: preset.into(), source: Box::new(error.into()) })
}

/// Builds the paper.
///
/// # Errors
/// A configuration cannot be resolved.
pub fn paper(settings: &Settings) -> Result<Paper, ReproError> {
    let registry = Registry::builtin()
        .map_err(|error| ReproError::Config { what: "presets".into(), source: Box::new(error.into()) })?;
    let registry = Arc::new(registry);
    Ok(Paper {
        name: "disk-cache",
        title: "Flash disk cache: flash between DRAM and disk",
        about: "A disk cache of DRAM and flash whose controller changes the strength of codes and the density of cells. \
                The paper's benchmarks and traces are not available: generated workloads take their place.",
        claims: claims(),
        experiments: vec![
            reclamation::experiment(settings, &registry)?,
            regions::experiment(settings, &registry)?,
            endurance::experiment(&registry)?,
            partition::experiment(settings, &registry)?,
            server::power(settings, &registry)?,
            server::strength(settings, &registry)?,
            lifetime::experiment(settings, &registry)?,
            deviation::experiment(settings, &registry)?,
        ],
        sensitivity: Some(Sensitivity::of::<sensitivity::Assumptions>(settings, &registry)?),
    })
}
