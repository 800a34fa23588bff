//! Sweeps: Python code hands out the points, here or on other machines, and keeps their outcomes in a journal.

use std::path::{Path, PathBuf};

use deepram_sim::sweep::{Journal, Sweep, SweepError, write_results};
use pyo3::prelude::*;

use crate::error::named;

fn wrong(py: Python<'_>, error: &SweepError) -> PyErr {
    named(py, "SimError", error.to_string())
}

/// A sweep: its grid of simulations.
#[pyclass(frozen)]
pub(crate) struct NativeSweep(Sweep);

#[pymethods]
impl NativeSweep {
    /// Parses a specification. `file` names it in errors; its paths are relative to `folder`.
    #[new]
    fn new(py: Python<'_>, file: &str, text: &str, folder: PathBuf) -> PyResult<Self> {
        py.detach(|| Sweep::parse(file, text, &folder)).map(Self).map_err(|error| wrong(py, &error))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// The names of the axes.
    fn axes(&self) -> Vec<String> {
        self.0.axes().iter().map(deepram_sim::sweep::Axis::name).collect()
    }

    /// The digest by which the journal finds a point's outcome.
    fn key(&self, py: Python<'_>, point: usize) -> PyResult<String> {
        py.detach(|| self.0.key(point)).map_err(|error| wrong(py, &error))
    }

    /// Simulates a point. Returns its outcome as a line of JSON.
    fn outcome(&self, py: Python<'_>, point: usize) -> PyResult<String> {
        py.detach(|| self.0.outcome(point)).map_err(|error| wrong(py, &error))
    }
}

/// The finished outcomes of a sweep, in a folder.
#[pyclass(frozen)]
pub(crate) struct NativeJournal {
    journal: Journal,
    folder: PathBuf,
}

#[pymethods]
impl NativeJournal {
    /// Opens the journal of a folder, or makes it.
    #[new]
    fn new(py: Python<'_>, folder: PathBuf) -> PyResult<Self> {
        let journal = py.detach(|| Journal::open(Path::new(&folder))).map_err(|error| wrong(py, &error))?;
        Ok(Self { journal, folder })
    }

    /// Whether the outcome of this key is there.
    fn __contains__(&self, key: &str) -> bool {
        self.journal.contains(key)
    }

    /// Adds an outcome; it is durable when this returns.
    fn append(&self, py: Python<'_>, key: &str, outcome: &str) -> PyResult<()> {
        py.detach(|| self.journal.append(key, outcome)).map_err(|error| wrong(py, &error))
    }

    /// Writes the results of a sweep, whose outcomes are all there, to the folder. Returns the number of failed points, the
    /// first of them with its error, the objectives, and the points of the Pareto front.
    #[expect(clippy::type_complexity, reason = "a tuple for Python")]
    fn write(
        &self,
        py: Python<'_>,
        sweep: &NativeSweep,
    ) -> PyResult<(usize, Option<(usize, String)>, Vec<String>, Vec<usize>)> {
        let summary = py.detach(|| write_results(&sweep.0, &self.journal, &self.folder));
        let summary = summary.map_err(|error| wrong(py, &error))?;
        Ok((summary.failed, summary.first_failure, summary.objectives, summary.front))
    }
}
