//! NVMM: flash main memory behind a hardware-managed DRAM cache, against paging from an SSD and all-DRAM.

mod claims;
mod page_table;

pub use claims::CLAIMS;

use crate::error::ReproError;
use crate::experiment::{Paper, Settings};

/// The paper. Claims whose experiments are not here yet are reported as not run.
///
/// # Errors
/// A configuration cannot be resolved.
pub fn paper(_settings: &Settings) -> Result<Paper, ReproError> {
    Ok(Paper {
        name: "nvmm",
        title: "NVMM: flash as main memory",
        about: "A flash main memory with a DRAM cache, an SSD behind an operating system's paging, and all-DRAM, \
                under the same programs.",
        claims: CLAIMS.to_vec(),
        experiments: vec![page_table::experiment()],
        sensitivity: None,
    })
}
