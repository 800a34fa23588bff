//! The results of a sweep as files: `results.jsonl` and `results.parquet`, in the order of the grid.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::columns::{Table, TableBuilder};
use super::error::SweepError;
use super::journal::Journal;
use super::{Sweep, parquet};

/// The results of a sweep.
#[derive(Debug)]
pub struct Summary {
    /// The points of the grid.
    pub points: usize,
    /// Points whose simulation failed.
    pub failed: usize,
    /// The first failed point and its error.
    pub first_failure: Option<(usize, String)>,
    /// The points on the Pareto front, if the specification names figures.
    pub front: Vec<usize>,
    /// The names of those figures, those to minimize first.
    pub objectives: Vec<String>,
    /// All results.
    pub table: Table,
}

/// Writes `results.jsonl` and `results.parquet` into a folder, in the order of the grid. The bytes depend on nothing but
/// the specification, the contents of its inputs and the program.
///
/// # Errors
/// The journal lacks a point, or a file cannot be read or written; a figure of `[pareto]` does not exist. The files are
/// written even then, unless they are the cause.
pub fn write_results(sweep: &Sweep, journal: &Journal, folder: &Path) -> Result<Summary, SweepError> {
    let lines = NewFile::create(&folder.join("results.jsonl"))?;
    let mut out = BufWriter::new(&lines.file);
    let mut table = TableBuilder::new(sweep);
    let mut failures = Vec::new();
    for point in 0..sweep.len() {
        let key = sweep.key(point)?;
        let outcome = journal.outcome(&key)?.ok_or_else(|| SweepError::Output {
            path: folder.to_owned(),
            why: format!("point {point} has no outcome yet; run the sweep to its end"),
        })?;
        let line = sweep.line(point, &outcome)?;
        writeln!(out, "{line}").map_err(SweepError::io(&lines.part, "writing"))?;
        let parsed: Value = serde_json::from_str(&outcome).map_err(|error| SweepError::Output {
            path: folder.to_owned(),
            why: format!(
                "the outcome of point {point} is no JSON ({error}); remove the journal to repeat the sweep"
            ),
        })?;
        if let Some(error) = parsed.get("error").and_then(Value::as_str) {
            failures.push((point, error.to_owned()));
        }
        table.add(&sweep.values(point)?, &parsed);
    }
    out.flush().map_err(SweepError::io(&lines.part, "writing"))?;
    drop(out);
    lines.finish()?;
    let table = table.finish();
    let binary = NewFile::create(&folder.join("results.parquet"))?;
    parquet::write(&table, &binary.file).map_err(|error| SweepError::Output {
        path: binary.path.clone(),
        why: format!("writing failed: {error}"),
    })?;
    binary.finish()?;
    let front = sweep.objectives.front(&table);
    let front = front.map_err(|why| SweepError::Output { path: folder.join("results.jsonl"), why })?;
    Ok(Summary {
        points: sweep.len(),
        failed: failures.len(),
        first_failure: failures.into_iter().next(),
        front,
        objectives: sweep.objectives.names().into_iter().map(str::to_owned).collect(),
        table,
    })
}

/// A file that takes its name when it is complete.
struct NewFile {
    path: PathBuf,
    part: PathBuf,
    file: File,
}

impl NewFile {
    fn create(path: &Path) -> Result<Self, SweepError> {
        let mut part = path.as_os_str().to_owned();
        part.push(".part");
        let part = PathBuf::from(part);
        let file = File::create(&part).map_err(SweepError::io(&part, "creating"))?;
        Ok(Self { path: path.to_owned(), part, file })
    }

    fn finish(self) -> Result<(), SweepError> {
        self.file.sync_all().map_err(SweepError::io(&self.part, "flushing"))?;
        std::fs::rename(&self.part, &self.path).map_err(SweepError::io(&self.path, "renaming to"))
    }
}
