//! Sweeps: a grid of simulations over any parameters, carried out on several threads or machines, and resumed after a
//! kill.
//!
//! A [`Sweep`] is read from a specification. Its grid has every combination of the values of the axes that keeps the
//! constraints; the first axis varies slowest. A point is numbered by its place in the grid. [`Sweep::outcome`] computes
//! one point and returns the same bytes wherever it runs. A [`Journal`] keeps finished outcomes on disk, [`execute()`]
//! computes those that it lacks, and [`write_results`] writes all of them in the order of the grid.
//!
//! ```
//! use deepram_sim::sweep::{Journal, Sweep, execute, write_results};
//!
//! let text = r#"
//!     system = "ssd"
//!     workload = "uniform:span=1MiB,count=100"
//!     [axes]
//!     preset = ["z-ssd", "tlc"]
//!     depth = { from = 1, to = 4, scale = "powers-of-two" }
//! "#;
//! let sweep = Sweep::parse("sweep.toml", text, "".as_ref())?;
//! assert_eq!(sweep.len(), 6);
//! let out = std::env::temp_dir().join(format!("deepram-sweep-{}", std::process::id()));
//! let journal = Journal::open(&out)?;
//! execute(&sweep, &journal, 2, &|_progress| {})?;
//! let summary = write_results(&sweep, &journal, &out)?;
//! assert_eq!((summary.points, summary.failed), (6, 0));
//! # std::fs::remove_dir_all(out)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod columns;
mod constraint;
mod error;
mod execute;
mod grid;
mod journal;
mod key;
mod objectives;
mod outcome;
mod parquet;
mod quantity;
mod range;
mod results;
mod spec;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use deepram_media::Registry;

use key::Key;
use objectives::Objectives;

pub use columns::{Cell, Column, Table};
pub use error::SweepError;
pub use execute::{Progress, execute};
pub use journal::Journal;
pub use results::{Summary, write_results};

/// Limit of the combinations of the axes' values.
pub const MAX_POINTS: usize = 1_000_000;

/// The version of the program with the digest of its sources: part of the key of every point, so that results of
/// another program are never taken for those of this one.
pub const PROGRAM: &str = concat!(env!("CARGO_PKG_VERSION"), "+", env!("DEEPRAM_SIM_SOURCES"));

/// An axis of a sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis {
    key: Key,
    form: quantity::Form,
    values: Vec<String>,
}

impl Axis {
    /// The name of the varied parameter: an option of `deepram sim`, `set.KEY`, or `workload.KEY`.
    #[must_use]
    pub fn name(&self) -> String {
        self.key.to_string()
    }

    /// The values, in their order.
    #[must_use]
    pub fn values(&self) -> &[String] {
        &self.values
    }
}

/// A sweep: its axes, its grid, and the presets that it uses.
#[derive(Debug)]
pub struct Sweep {
    registry: Registry,
    /// The folder to which the paths of the specification are relative.
    folder: PathBuf,
    /// Parameters that are the same for all points, the system and the workload first.
    fixed: Vec<(Key, String)>,
    axes: Vec<Axis>,
    /// The combinations that keep the constraints, as numbers in the whole grid, ascending.
    points: Vec<usize>,
    objectives: Objectives,
    /// Digests of the contents of input files, by path.
    inputs: Mutex<BTreeMap<PathBuf, String>>,
}

impl Sweep {
    /// Reads a specification from a file.
    ///
    /// # Errors
    /// The file, or a file of presets that it names, cannot be read or is wrong.
    pub fn load(file: &Path) -> Result<Self, SweepError> {
        let bytes = std::fs::read(file).map_err(SweepError::io(file, "reading"))?;
        let name = file.display().to_string();
        let text = std::str::from_utf8(&bytes).map_err(|error| SweepError::Spec {
            file: name.clone(),
            line: 1 + bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count(),
            what: "not UTF-8; a sweep is TOML text".into(),
        })?;
        Self::parse(&name, text, file.parent().unwrap_or(Path::new("")))
    }

    /// Parses a specification. `file` names it in errors; `folder` is the folder to which its paths are relative.
    ///
    /// # Errors
    /// [`SweepError::Spec`]: what is wrong, on which line, and what would be right.
    pub fn parse(file: &str, text: &str, folder: &Path) -> Result<Self, SweepError> {
        grid::build(file, spec::parse(file, text)?, folder)
    }

    /// The number of points.
    #[must_use]
    pub fn len(&self) -> usize {
        self.points.len()
    }

    /// Whether no combination keeps the constraints. [`Sweep::parse`] rejects such a sweep.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// The axes, the slowest first.
    #[must_use]
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// The values of a point, one for each axis.
    ///
    /// # Errors
    /// The sweep has no point of this number.
    pub fn values(&self, point: usize) -> Result<Vec<&str>, SweepError> {
        let number = *self.points.get(point).ok_or_else(|| self.no_point(point))?;
        Ok(grid::values(&self.axes, number).collect())
    }

    fn no_point(&self, number: usize) -> SweepError {
        SweepError::NoPoint { number, last: self.points.len().saturating_sub(1) }
    }
}
