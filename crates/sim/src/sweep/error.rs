//! The errors of a sweep.

use std::path::{Path, PathBuf};

use crate::error::SimError;

/// An error of a sweep as a whole. A simulation that fails is no such error: its point is recorded as failed.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The specification is wrong.
    #[error("{file}:{line}: {what}")]
    Spec {
        /// The specification's file.
        file: String,
        /// The line, counted from 1.
        line: usize,
        /// The problem, and text that would be valid.
        what: String,
    },
    /// A file could not be read or written.
    #[error("{}: {doing} failed: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operation.
        doing: &'static str,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// A file in the output folder has contents that a sweep does not write, or another sweep uses the folder.
    #[error("{}: {why}", path.display())]
    Output {
        /// The file.
        path: PathBuf,
        /// The problem, and its remedy.
        why: String,
    },
    /// A point that the grid does not have.
    #[error("there is no point {number}; the sweep has points 0 to {last}")]
    NoPoint {
        /// The number asked for.
        number: usize,
        /// The number of the last point.
        last: usize,
    },
    /// The presets cannot be loaded.
    #[error(transparent)]
    Simulation(#[from] SimError),
}

impl SweepError {
    /// Turns an error of the operating system into one that names the file and the operation.
    pub(crate) fn io(path: &Path, doing: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, doing, source }
    }
}
