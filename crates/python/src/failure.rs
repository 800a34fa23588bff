//! Pools that were abandoned because an access to their memory could not be served: the reasons, and memory for the rest of
//! the access.

use std::ptr;
use std::sync::{Mutex, PoisonError};

use deepram_pool::PoolError;

use crate::error::class_of;

/// The reason for which a pool was abandoned.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    /// The start of the pool's memory.
    start: usize,
    /// The class of the exception.
    pub(crate) class: String,
    pub(crate) message: String,
}

static FAILURES: Mutex<Vec<Failure>> = Mutex::new(Vec::new());

/// Keeps the reason for which the pool with memory at `start` is abandoned.
pub(crate) fn record(start: usize, reason: Option<&PoolError>) {
    let what =
        reason.map_or_else(|| "an access to memory of the pool failed".to_owned(), ToString::to_string);
    let failure = Failure {
        start,
        class: reason.map_or_else(|| "PoolError".to_owned(), class_of),
        message: format!(
            "{what}; the pool is closed as a crash would leave it, at its last token, and its arrays are stale"
        ),
    };
    let mut failures = FAILURES.lock().unwrap_or_else(PoisonError::into_inner);
    // A later pool may have the same addresses.
    failures.retain(|other| other.start != start);
    failures.push(failure);
}

/// Returns the reason for which the pool with memory at `start` was abandoned.
pub(crate) fn of(start: usize) -> Option<Failure> {
    let failures = FAILURES.lock().unwrap_or_else(PoisonError::into_inner);
    failures.iter().find(|failure| failure.start == start).cloned()
}

/// Replaces a range by writable memory that takes at most 2 MiB, or a 1024th of the range: it repeats.
pub(crate) fn map_scratch(start: usize, len: usize) -> bool {
    let part = (len / 1024).max(1).next_multiple_of(2 << 20);
    // SAFETY: the calls take no pointer but a static text and the range, which belongs to an abandoned pool:
    // nothing but stale references uses it.
    unsafe {
        let file = libc::memfd_create(c"deepram".as_ptr(), libc::MFD_CLOEXEC);
        if file < 0 {
            return false;
        }
        let mut mapped = libc::ftruncate(file, part as libc::off_t) == 0;
        for at in (start..start + len).step_by(part) {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_SHARED | libc::MAP_FIXED;
            let address = ptr::with_exposed_provenance_mut(at);
            let part = part.min(start + len - at);
            mapped = mapped && libc::mmap(address, part, protection, flags, file, 0) != libc::MAP_FAILED;
        }
        libc::close(file);
        mapped
    }
}
