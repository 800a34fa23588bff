//! FlatFlash: the two case studies of its persistence (sections 3.5, 5.5 and 5.6).

mod database;
mod filesystem;
mod persist_claims;
mod persist_study;

use std::sync::Arc;

use deepram_media::Registry;

use crate::error::ReproError;
use crate::experiment::{Paper, Settings};

/// The paper.
///
/// # Errors
/// A configuration cannot be resolved.
pub fn paper(settings: &Settings) -> Result<Paper, ReproError> {
    let registry = Registry::builtin()
        .map_err(|error| ReproError::Config { what: "presets".into(), source: Box::new(error.into()) })?;
    let registry = Arc::new(registry);
    Ok(Paper {
        name: "flatflash",
        title: "FlatFlash: a drive whose lines the processor loads and stores",
        about: "FlatFlash, and the same drive behind paging, with one table for translation and with a storage stack.",
        claims: persist_claims::filesystem().into_iter().chain(persist_claims::database()).collect(),
        experiments: vec![
            filesystem::experiment(settings, &registry)?,
            database::experiment(settings, &registry)?,
        ],
        sensitivity: Some(persist_study::study(settings, &registry)?),
    })
}
