//! Results of finished runs on disk, one file a run, so that an interrupted reproduction goes on where it was.
//!
//! A file appears whole or not at all: it is written under another name and renamed. It names its own digest,
//! so a file that was copied or edited by hand is noticed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::ReproError;
use crate::run::{Figures, Run};

/// What is kept of a finished run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stored {
    /// The run's digest.
    pub digest: String,
    /// What the first experiment that had it calls it.
    pub name: String,
    /// The procedure's name.
    pub procedure: String,
    /// The whole configuration.
    pub config: Value,
    /// What it yielded.
    pub figures: Figures,
    /// Seconds that it took; of no consequence.
    pub wall_s: f64,
}

/// The folder of finished runs.
#[derive(Debug, Clone)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// The store in `out`, made if it is not there.
    ///
    /// # Errors
    /// A folder cannot be made.
    pub fn open(out: &Path) -> Result<Self, ReproError> {
        let folder = out.join("runs");
        fs::create_dir_all(&folder).map_err(ReproError::io(&folder, "making the folder"))?;
        Ok(Self { folder })
    }

    /// Where a run's result is or would be.
    #[must_use]
    pub fn file(&self, digest: &str) -> PathBuf {
        self.folder.join(format!("{digest}.json"))
    }

    /// The result of a run, if it has finished before.
    ///
    /// # Errors
    /// There is a file, and it is not that run's result.
    pub fn load(&self, run: &Run) -> Result<Option<Stored>, ReproError> {
        let file = self.file(&run.digest);
        let text = match fs::read(&file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(ReproError::io(&file, "reading"))?,
        };
        let again = "remove it, and the run is done again";
        let stored: Stored = serde_json::from_slice(&text).map_err(|error| {
            ReproError::contents(&file, format!("not the result of a run ({error}); {again}"))
        })?;
        if stored.digest != run.digest || stored.config != run.config {
            return Err(ReproError::contents(&file, format!("the result of another run; {again}")));
        }
        Ok(Some(stored))
    }

    /// Keeps a result.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, stored: &Stored) -> Result<(), ReproError> {
        let file = self.file(&stored.digest);
        let text = serde_json::to_string_pretty(stored)
            .map_err(|error| ReproError::contents(&file, error.to_string()))?;
        replace(&file, text.as_bytes())
    }
}

/// Writes a file in one step: whoever reads it sees the old one or the new one.
pub(crate) fn replace(file: &Path, bytes: &[u8]) -> Result<(), ReproError> {
    let mut name = file.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.part", std::process::id()));
    let part = file.with_file_name(name);
    fs::write(&part, bytes).map_err(ReproError::io(&part, "writing"))?;
    fs::rename(&part, file).map_err(ReproError::io(file, "writing"))
}

/// Results by digest.
pub(crate) type Results = BTreeMap<String, Stored>;
