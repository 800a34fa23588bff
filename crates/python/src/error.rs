//! Errors as exceptions of `deepram.errors`, which has a class for each variant of the pool's error.

use deepram_core::Bytes;
use deepram_pool::PoolError;
use deepram_sim::SimError;
use deepram_sim::simulation::OPTIONS;
use deepram_trace::TraceError;
use pyo3::exceptions::{PyFileNotFoundError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyType;

/// Returns the class of `deepram.errors` with this name, or the base class of the pool's errors.
pub(crate) fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyType>> {
    let errors = py.import("deepram.errors")?;
    let found = errors.getattr(name).or_else(|_| errors.getattr("PoolError"))?;
    Ok(found.cast_into::<PyType>()?)
}

/// Makes an exception of the class with this name.
pub(crate) fn named(py: Python<'_>, name: &str, message: String) -> PyErr {
    class(py, name).map_or_else(
        |_| PyRuntimeError::new_err(message.clone()),
        |class| PyErr::from_type(class, message.clone()),
    )
}

/// Makes the exception of a pool's error: `NoSpace` becomes `NoSpaceError`.
pub(crate) fn of_pool(py: Python<'_>, error: &PoolError) -> PyErr {
    named(py, &class_of(error), error.to_string())
}

/// Returns the name of the class of a pool's error.
pub(crate) fn class_of(error: &PoolError) -> String {
    let debug = format!("{error:?}");
    let variant: String = debug.chars().take_while(char::is_ascii_alphanumeric).collect();
    format!("{variant}Error")
}

/// Makes the exception of a trace's error.
pub(crate) fn of_trace(py: Python<'_>, error: &TraceError) -> PyErr {
    match error {
        TraceError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            PyFileNotFoundError::new_err(error.to_string())
        }
        _ => named(py, "TraceError", error.to_string()),
    }
}

/// Makes the exception of a simulation's error, with options under the names that they have in Python.
pub(crate) fn of_simulation(py: Python<'_>, error: &SimError) -> PyErr {
    match error {
        SimError::Trace(error) => of_trace(py, error),
        SimError::Workload(error) => named(py, "TraceError", error.to_string()),
        _ => named(py, "SimError", with_keywords(error.to_string())),
    }
}

/// Writes `--warm-up` and `warm-up` as `warm_up`.
fn with_keywords(mut message: String) -> String {
    for option in OPTIONS.into_iter().chain(["set"]) {
        let keyword = option.replace('-', "_");
        message = message.replace(&format!("--{option}"), &keyword);
        if option.contains('-') {
            message = message.replace(option, &keyword);
        }
    }
    message
}

/// Turns a result of the pool into one of Python.
pub(crate) trait OrRaise<T> {
    /// Raises the exception of the error.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for deepram_pool::Result<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| of_pool(py, &error))
    }
}

/// Parses a size such as `4096`, `"64KiB"` or `"1.5GiB"`, and returns bytes.
///
/// Raises `ValueError` for a text that is no size.
#[pyfunction]
pub(crate) fn parse_size(text: &str) -> PyResult<u64> {
    text.parse::<Bytes>().map(|bytes| bytes.0).map_err(|error| PyValueError::new_err(error.to_string()))
}
