//! Characterisations of traces.

use deepram_core::cache::Policy;
use deepram_trace::FORMATS;
use deepram_trace::characterize::{
    CharacterizeError, CharacterizeOptions, Characterizer, Counted, DistanceHistogram, Sampling,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::named;
use crate::records::{Interrupts, Source};

/// Records between two looks for signals.
const STEP: u64 = 1 << 16;

/// A characterisation as JSON, and the stack distances of reads and writes as bytes of uint64.
type Characterized<'py> = (String, Option<Distances<'py>>);
/// Hits at each distance (reads, writes, reads, ...), and the first accesses of reads and of writes.
type Distances<'py> = (Bound<'py, PyBytes>, u64, u64);

/// Characterises the records of a source.
#[pyfunction]
#[pyo3(signature = (source, *, page, window, policies, cache_sizes, sample=None, sample_pages=None, limit=0, seed=1))]
#[expect(clippy::too_many_arguments, reason = "each is an option of deepram.trace.characterize")]
pub(crate) fn characterize<'py>(
    py: Python<'py>,
    source: Source,
    page: u64,
    window: u64,
    policies: Vec<String>,
    cache_sizes: Vec<u64>,
    sample: Option<f64>,
    sample_pages: Option<u32>,
    limit: u64,
    seed: u64,
) -> PyResult<Characterized<'py>> {
    let policies = policies.iter().map(|name| name.parse::<Policy>()).collect::<Result<Vec<_>, _>>();
    let options = CharacterizeOptions {
        page_bytes: page,
        window_requests: window,
        policies: policies.map_err(|error| PyValueError::new_err(error.to_string()))?,
        cache_bytes: cache_sizes,
        sampling: match (sample, sample_pages) {
            (Some(rate), None) => Sampling::Rate(rate),
            (None, Some(pages)) => Sampling::Pages(pages),
            (None, None) => Sampling::Exact,
            (Some(_), Some(_)) => {
                return Err(PyValueError::new_err("give sample or sample_pages, not both"));
            }
        },
        ..CharacterizeOptions::default()
    };
    let wrong = |error: &CharacterizeError| match error {
        CharacterizeError::Option(problem) => PyValueError::new_err(problem.clone()),
        other => named(py, "TraceError", other.to_string()),
    };
    let mut characterizer = Characterizer::new(&options).map_err(|error| wrong(&error))?;
    let interrupts = Interrupts::default();
    let added = source.with_items(py, seed, limit, |items| {
        let most = if limit == 0 { u64::MAX } else { limit };
        for (number, item) in (1..=most).zip(items) {
            let item = item.map_err(|error| error.to_string())?;
            characterizer.add(&item).map_err(|error| error.to_string())?;
            if number.is_multiple_of(STEP) && !interrupts.go_on() {
                break;
            }
        }
        Ok(())
    })?;
    let figures = added
        .map_err(|message: String| named(py, "TraceError", message))
        .and_then(|()| py.detach(|| characterizer.finish()).map_err(|error| wrong(&error)));
    let figures = interrupts.or(figures)?;
    let json = serde_json::to_string(&figures).map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok((json, figures.distances.as_ref().map(|histogram| distances(py, histogram))))
}

fn distances<'py>(py: Python<'py>, histogram: &DistanceHistogram) -> Distances<'py> {
    let bytes: Vec<u8> =
        histogram.distances().iter().flatten().flat_map(|count| count.to_ne_bytes()).collect();
    let first = |counted| histogram.first_accesses(counted);
    (PyBytes::new(py, &bytes), first(Counted::Reads), first(Counted::Writes))
}

/// Returns the trace formats as (name, description).
#[pyfunction]
pub(crate) fn trace_formats() -> Vec<(&'static str, &'static str)> {
    FORMATS.iter().map(|format| (format.name, format.description)).collect()
}
