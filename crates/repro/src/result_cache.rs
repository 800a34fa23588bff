//! Caches the results of finished runs on disk, one file per run, so that an interrupted reproduction
//! resumes.
//!
//! A file is written under a temporary name and renamed, so a partial file never has the final name. A
//! file records its own digest and configuration, so a copied or edited file is detected.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::ReproError;
use crate::simulation_run::{Metrics, SimulationRun};

/// The cached result of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CachedResult {
    /// Digest of the run.
    pub digest: String,
    /// Name of the run in the first experiment that contains it.
    pub name: String,
    /// Name of the procedure.
    pub procedure: String,
    /// The whole resolved configuration.
    pub config: Value,
    /// Metrics of the run.
    pub metrics: Metrics,
    /// Wall-clock time in seconds; not part of any report.
    pub wall_s: f64,
}

/// Folder of cached results.
#[derive(Debug, Clone)]
pub struct ResultCache {
    folder: PathBuf,
}

impl ResultCache {
    /// Opens the cache in `out/runs`, creating the folder if needed.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub fn open(out: &Path) -> Result<Self, ReproError> {
        let folder = out.join("runs");
        fs::create_dir_all(&folder).map_err(ReproError::io(&folder, "creating the folder"))?;
        Ok(Self { folder })
    }

    /// Path of the result file for a digest, whether or not the file exists.
    #[must_use]
    pub fn file(&self, digest: &str) -> PathBuf {
        self.folder.join(format!("{digest}.json"))
    }

    /// Loads the result of a run; `None` if it has not finished before.
    ///
    /// # Errors
    /// The file cannot be read, or does not hold the result of this run.
    pub fn load(&self, run: &SimulationRun) -> Result<Option<CachedResult>, ReproError> {
        let file = self.file(&run.digest);
        let text = match fs::read(&file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(ReproError::io(&file, "reading"))?,
        };
        let again = "remove it to repeat the run";
        let stored: CachedResult = serde_json::from_slice(&text)
            .map_err(|error| ReproError::contents(&file, format!("not a result file ({error}); {again}")))?;
        if stored.digest != run.digest || stored.config != run.config {
            return Err(ReproError::contents(
                &file,
                format!(
                    "the file holds the result of another run; \
                                                            {again}"
                ),
            ));
        }
        Ok(Some(stored))
    }

    /// Saves a result.
    pub fn save(&self, stored: &CachedResult) -> Result<(), ReproError> {
        let file = self.file(&stored.digest);
        let text = serde_json::to_string_pretty(stored)
            .map_err(|error| ReproError::contents(&file, error.to_string()))?;
        replace(&file, text.as_bytes())
    }
}

/// Replaces a file atomically: a reader sees either the old or the new contents.
pub(crate) fn replace(file: &Path, bytes: &[u8]) -> Result<(), ReproError> {
    let mut name = file.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.part", std::process::id()));
    let part = file.with_file_name(name);
    fs::write(&part, bytes).map_err(ReproError::io(&part, "writing"))?;
    fs::rename(&part, file).map_err(ReproError::io(file, "writing"))
}

/// Results of finished runs by digest.
pub(crate) type ResultsByDigest = BTreeMap<String, CachedResult>;
