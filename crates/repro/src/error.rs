//! What can go wrong.

use std::path::{Path, PathBuf};

use deepram_sim::SimError;

/// A reproduction that could not be carried out. A claim that comes out wrong is a result, not an error.
#[derive(Debug, thiserror::Error)]
pub enum ReproError {
    /// A simulation failed.
    #[error("run {run}: {source}")]
    Simulation {
        /// The run's name.
        run: String,
        /// Why.
        #[source]
        source: Box<SimError>,
    },
    /// A configuration cannot be resolved.
    #[error("{what}: {source}")]
    Config {
        /// Of what.
        what: String,
        /// Why.
        #[source]
        source: Box<SimError>,
    },
    /// A run ended without a result.
    #[error("run {run}: {why}")]
    Run {
        /// The run's name.
        run: String,
        /// Why.
        why: String,
    },
    /// An experiment asks for a figure that its run does not yield.
    #[error("run {run} yields no figure {figure:?}{near}")]
    NoFigure {
        /// The run's name.
        run: String,
        /// What was asked for.
        figure: String,
        /// The nearest there is.
        near: String,
    },
    /// An experiment asks for a run that it does not have.
    #[error("{experiment} has no run {run:?}")]
    NoRun {
        /// The experiment.
        experiment: String,
        /// What was asked for.
        run: String,
    },
    /// A name that is not known.
    #[error("there is no {what} {name:?}; known: {known}")]
    Unknown {
        /// Of what kind.
        what: &'static str,
        /// The name.
        name: String,
        /// All names.
        known: String,
    },
    /// A paper contradicts itself: a claim without its experiment, a name used twice.
    #[error("paper {paper}: {why}")]
    Paper {
        /// The paper's name.
        paper: String,
        /// What is wrong.
        why: String,
    },
    /// A file in the output folder is not what it should be.
    #[error("{}: {why}", file.display())]
    Contents {
        /// The file.
        file: PathBuf,
        /// What is wrong, and what to do.
        why: String,
    },
    /// A file cannot be read or written.
    #[error("{}: {doing} failed: {source}", file.display())]
    Io {
        /// The file or folder.
        file: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// Why.
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
