//! NVMM: flash main memory behind a hardware-managed DRAM cache, compared with paging from an SSD and
//! with all-DRAM.

mod claims;
mod filebench;
mod latency_sweep;
mod lifetime;
mod machine;
mod overhead;
mod page_table;
mod power;
mod prefetch;
mod programs;
mod randomness;
mod sensitivity;
mod technology;
mod workloads;

pub use claims::CLAIMS;

use std::sync::Arc;

use deepram_media::Registry;

use self::latency_sweep::LatencySweep;
use crate::error::ReproError;
use crate::experiment::{Paper, Settings};
use crate::sensitivity::Sensitivity;

/// Builds the paper. Claims without an experiment are reported as unavailable.
///
/// # Errors
/// A configuration cannot be resolved.
pub fn paper(settings: &Settings) -> Result<Paper, ReproError> {
    let registry = Registry::builtin()
        .map_err(|error| ReproError::Config { what: "presets".into(), source: Box::new(error.into()) })?;
    let registry = Arc::new(registry);
    Ok(Paper {
        name: "nvmm",
        title: "NVMM: flash as main memory",
        about: "A flash main memory behind a DRAM cache, an SSD behind an operating system's paging, and \
                all-DRAM, under the same programs.",
        claims: CLAIMS.to_vec(),
        experiments: vec![
            page_table::experiment(),
            overhead::experiment(settings, &registry)?,
            technology::experiment(settings, &registry)?,
            LatencySweep::Gups.experiment(settings, &registry)?,
            LatencySweep::Mmap.experiment(settings, &registry)?,
            filebench::experiment(settings, &registry)?,
            randomness::experiment(settings, &registry)?,
            prefetch::experiment(settings, &registry)?,
            power::experiment(settings, &registry)?,
            lifetime::experiment(settings, &registry)?,
        ],
        sensitivity: Some(Sensitivity::of::<sensitivity::Assumptions>(settings, &registry)?),
    })
}
