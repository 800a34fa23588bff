//! Digests of segments, by which a checkpoint finds what has changed.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use xxhash_rust::xxh3::xxh3_128;

use crate::pool::slice;

/// Returns the XXH3 digests of the segments of `bytes` bytes at `data`, 16 bytes each; the last segment may be shorter. The
/// caller keeps the array, and does not change it during the call.
#[pyfunction]
pub(crate) fn segment_digests(
    py: Python<'_>,
    data: usize,
    bytes: usize,
    segment: usize,
) -> Bound<'_, PyBytes> {
    let digests = py.detach(|| {
        // SAFETY: the caller, `deepram/_batch.py`, passes the data pointer of a contiguous array of that many bytes, which it
        // holds during the call.
        let bytes = unsafe { slice::<u8>(data, bytes) };
        bytes.chunks(segment.max(1)).flat_map(|segment| xxh3_128(segment).to_le_bytes()).collect::<Vec<u8>>()
    });
    PyBytes::new(py, &digests)
}
