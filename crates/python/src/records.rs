//! Records from Python: columns of NumPy arrays, a trace file or a generated workload.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use deepram_trace::{Columns, Format, Item, Op, ReadOptions, TraceError, TraceReader, Workload};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::error::{named, of_trace};

/// Offsets, lengths and operations (0 read, 1 write, 2 trim, 3 flush), and times in picoseconds if there are any: the bytes of
/// arrays of uint64, uint64, uint8 and uint64.
pub(crate) type RawColumns = (PyBackedBytes, PyBackedBytes, PyBackedBytes, Option<PyBackedBytes>);

/// The source of records of a characterisation.
#[derive(FromPyObject)]
pub(crate) enum Source {
    /// Arrays.
    Arrays(PyBackedBytes, PyBackedBytes, PyBackedBytes, Option<PyBackedBytes>),
    /// A trace file, its format and the size of its address unit.
    File(PathBuf, Option<String>, Option<u64>),
    /// A generated workload.
    Workload(String),
}

impl Source {
    /// Calls `with` with the records, without the interpreter's lock. `most` records are enough; 0: all.
    pub(crate) fn with_items<T: Send>(
        self,
        py: Python<'_>,
        seed: u64,
        most: u64,
        with: impl FnOnce(&mut (dyn Iterator<Item = Result<Item, TraceError>> + Send)) -> T + Send,
    ) -> PyResult<T> {
        match self {
            Self::Arrays(offsets, lens, ops, times) => {
                let columns = columns(py, &(offsets, lens, ops, times))?;
                Ok(py.detach(|| with(&mut columns.items().map(Ok))))
            }
            Self::File(path, format, unit_bytes) => {
                let format = format.map(|name| name.parse::<Format>()).transpose();
                let format = format.map_err(|error| of_trace(py, &error))?;
                let options = ReadOptions { format, unit_bytes, ..ReadOptions::default() };
                let opened = py.detach(|| TraceReader::open(&path, &options));
                let mut reader = opened.map_err(|error| of_trace(py, &error))?;
                Ok(py.detach(|| with(&mut reader)))
            }
            Self::Workload(spec) => {
                let workload =
                    Workload::new(&spec, seed).map_err(|error| named(py, "TraceError", error.to_string()))?;
                if !workload.ends() && most == 0 {
                    let name = workload.spec().name();
                    let problem = format!("{name} is endless: give count=N in the workload, or limit=N");
                    return Err(PyValueError::new_err(problem));
                }
                Ok(py.detach(|| with(&mut workload.map(Ok))))
            }
        }
    }
}

/// The requests of arrays.
pub(crate) fn columns(py: Python<'_>, arrays: &RawColumns) -> PyResult<Columns> {
    let (offsets, lens, ops, times) = arrays;
    let words = |bytes: &PyBackedBytes| -> Vec<u64> {
        let words = bytes.chunks_exact(8);
        words.map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes"))).collect()
    };
    let op = |op: &u8| {
        Op::ALL.get(usize::from(*op)).copied().ok_or_else(|| {
            let known = "give 0 (read), 1 (write), 2 (trim), 3 (flush)";
            PyValueError::new_err(format!("{op} is no operation: {known}"))
        })
    };
    let ops: Vec<Op> = ops.iter().map(op).collect::<PyResult<_>>()?;
    let columns = py.detach(|| Columns::new(words(offsets), words(lens), ops, times.as_ref().map(words)));
    columns.map_err(|error| of_trace(py, &error))
}

/// Looks for signals such as that of Ctrl-C, and keeps the exception of a signal handler.
#[derive(Default)]
pub(crate) struct Interrupts {
    raised: Mutex<Option<PyErr>>,
}

impl Interrupts {
    /// Returns `false` if a signal handler has raised: the work must end.
    pub(crate) fn go_on(&self) -> bool {
        let mut raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner);
        if raised.is_none() {
            *raised = Python::attach(|py| py.check_signals()).err();
        }
        raised.is_none()
    }

    /// Returns the exception of a signal handler, if there is one, instead of a result.
    pub(crate) fn or<T>(self, result: PyResult<T>) -> PyResult<T> {
        match self.raised.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(raised) => Err(raised),
            None => result,
        }
    }
}
