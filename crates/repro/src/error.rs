//! Errors of a reproduction.

use std::path::{Path, PathBuf};

use deepram_sim::SimError;

/// A reproduction that could not be carried out. A missed claim is a result, not an error.
#[derive(Debug, thiserror::Error)]
pub enum ReproError {
    /// A simulation failed.
    #[error("run {run}: {source}")]
    Simulation {
        /// Name of the run.
        run: String,
        /// Cause.
        #[source]
        source: Box<SimError>,
    },
    /// A preset, override or workload cannot be resolved.
    #[error("{what}: {source}")]
    Config {
        /// The run or component that asked for the configuration.
        what: String,
        /// Cause.
        #[source]
        source: Box<SimError>,
    },
    /// A run finished without a usable result.
    #[error("run {run}: {why}")]
    Run {
        /// Name of the run.
        run: String,
        /// Cause.
        why: String,
    },
    /// An experiment reads a metric that its run does not produce.
    #[error("run {run} has no metric {metric:?}{near}")]
    UnknownMetric {
        /// Name of the run.
        run: String,
        /// What was asked for.
        metric: String,
        /// The most similar existing name, as the end of the message; empty without one.
        near: String,
    },
    /// An experiment reads a run that it does not contain.
    #[error("{experiment} has no run {run:?}")]
    NoRun {
        /// Name of the experiment.
        experiment: String,
        /// What was asked for.
        run: String,
    },
    /// An unknown name was given.
    #[error("unknown {what} {name:?}; expected one of: {known}")]
    Unknown {
        /// Kind of the name, such as `paper`.
        what: &'static str,
        /// The name given.
        name: String,
        /// All valid names, separated by commas.
        known: String,
    },
    /// A paper's definition is inconsistent: a name is used twice, or a claim refers to a metric that
    /// its experiment does not produce.
    #[error("paper {paper}: {why}")]
    Paper {
        /// Name of the paper.
        paper: String,
        /// What is inconsistent.
        why: String,
    },
    /// A file in the output folder has unexpected contents.
    #[error("{}: {why}", file.display())]
    Contents {
        /// Path of the file.
        file: PathBuf,
        /// What is wrong with the file, and how to repair it.
        why: String,
    },
    /// A file or folder cannot be read or written.
    #[error("{}: {doing} failed: {source}", file.display())]
    Io {
        /// Path of the file or folder.
        file: PathBuf,
        /// The failed operation, such as `reading`.
        doing: &'static str,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
}

impl ReproError {
    pub(crate) fn io(file: &Path, doing: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        let file = file.to_path_buf();
        move |source| Self::Io { file, doing, source }
    }

    pub(crate) fn contents(file: &Path, why: impl Into<String>) -> Self {
        Self::Contents { file: file.to_path_buf(), why: why.into() }
    }
}
