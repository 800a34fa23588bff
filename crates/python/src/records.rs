//! Records from Python: columns of NumPy arrays, a trace file or a generated workload.

use std::path::PathBuf;

use deepram_trace::{Format, Item, Op, ReadOptions, Request, TraceError, TraceReader, Workload};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::error::named;

/// Records between two looks for signals such as that of Ctrl-C.
const STEP: u64 = 1 << 16;

/// The source of records.
#[derive(FromPyObject)]
pub(crate) enum Source {
    /// Offsets, lengths and operations (0 read, 1 write, 2 trim, 3 flush), and times in picoseconds if there are any: the
    /// bytes of arrays of uint64, uint64, uint8 and uint64.
    Columns(PyBackedBytes, PyBackedBytes, PyBackedBytes, Option<PyBackedBytes>),
    /// A trace file, its format and the size of its address unit.
    File(PathBuf, Option<String>, Option<u64>),
    /// A generated workload.
    Workload(String),
}

/// The records of a source, one after the other.
pub(crate) type Items<'a> = Box<dyn Iterator<Item = Result<Item, TraceError>> + Send + 'a>;

impl Source {
    /// Opens the source. `most` records are enough; 0: all.
    pub(crate) fn items(&self, py: Python<'_>, seed: u64, most: u64) -> PyResult<Items<'_>> {
        let trace = |error: TraceError| named(py, "TraceError", error.to_string());
        let items: Items<'_> = match self {
            Self::Columns(offsets, lens, ops, times) => {
                Box::new(columns(offsets, lens, ops, times.as_deref())?)
            }
            Self::File(path, format, unit_bytes) => {
                let format = format.as_deref().map(str::parse::<Format>).transpose().map_err(trace)?;
                let options = ReadOptions { format, unit_bytes: *unit_bytes, ..ReadOptions::default() };
                Box::new(py.detach(|| TraceReader::open(path, &options)).map_err(trace)?)
            }
            Self::Workload(spec) => {
                let workload =
                    Workload::new(spec, seed).map_err(|error| named(py, "TraceError", error.to_string()))?;
                if !workload.ends() && most == 0 {
                    let name = workload.spec().name();
                    let problem = format!("{name} is endless: give count=N in the workload, or requests=N");
                    return Err(PyValueError::new_err(problem));
                }
                Box::new(workload.map(Ok))
            }
        };
        Ok(items)
    }
}

fn columns<'a>(
    offsets: &'a [u8],
    lens: &'a [u8],
    ops: &'a [u8],
    times: Option<&'a [u8]>,
) -> PyResult<impl Iterator<Item = Result<Item, TraceError>> + Send + 'a> {
    let count = ops.len();
    if [Some(offsets), Some(lens), times].into_iter().flatten().any(|column| column.len() != count * 8) {
        return Err(PyValueError::new_err("the columns have different lengths"));
    }
    if let Some(op) = ops.iter().find(|&&op| usize::from(op) >= Op::ALL.len()) {
        return Err(PyValueError::new_err(format!(
            "{op} is no operation: give 0 (read), 1 (write), 2 (trim), 3 (flush)"
        )));
    }
    let word = |column: &[u8], at: usize| {
        u64::from_ne_bytes(column[at * 8..at * 8 + 8].try_into().expect("eight bytes"))
    };
    Ok((0..count).map(move |at| {
        Ok(Item::Block(Request {
            time_ps: times.map(|times| word(times, at)),
            device: 0,
            offset: word(offsets, at),
            len: word(lens, at),
            op: Op::ALL[usize::from(ops[at])],
        }))
    }))
}

/// Looks for signals now and then, and keeps the exception of a signal handler.
#[derive(Default)]
pub(crate) struct Interrupts {
    seen: u64,
    raised: Option<PyErr>,
}

impl Interrupts {
    /// Counts a record. Returns `false` if a signal handler has raised: the work must end.
    pub(crate) fn go_on(&mut self) -> bool {
        self.seen += 1;
        if self.seen.is_multiple_of(STEP) && self.raised.is_none() {
            self.raised = Python::attach(|py| py.check_signals()).err();
        }
        self.raised.is_none()
    }

    /// Returns the exception of a signal handler, if there is one, instead of a result.
    pub(crate) fn or<T>(self, result: PyResult<T>) -> PyResult<T> {
        match self.raised {
            Some(raised) => Err(raised),
            None => result,
        }
    }
}
