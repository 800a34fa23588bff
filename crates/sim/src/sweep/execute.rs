//! Carries out the points that the journal lacks, several at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::Sweep;
use super::error::SweepError;
use super::journal::Journal;

/// Progress of [`execute`].
#[derive(Debug, Clone, Copy)]
pub enum Progress {
    /// The points to compute are known.
    Planned {
        /// Points to compute.
        missing: usize,
        /// Points whose outcome the journal has.
        known: usize,
    },
    /// A point has been computed and is durable.
    Finished,
}

/// Computes the points that the journal lacks on `jobs` threads; each is durable as soon as it is computed.
///
/// # Errors
/// An input file cannot be read; the journal cannot be written. No further point starts then. A simulation that fails
/// is recorded, and is no error.
pub fn execute(
    sweep: &Sweep,
    journal: &Journal,
    jobs: usize,
    observe: &(dyn Fn(Progress) + Sync),
) -> Result<(), SweepError> {
    let mut missing = Vec::new();
    let mut keys = std::collections::BTreeSet::new();
    for point in 0..sweep.len() {
        let key = sweep.key(point)?;
        if !journal.contains(&key) && keys.insert(key.clone()) {
            missing.push((point, key));
        }
    }
    observe(Progress::Planned { missing: missing.len(), known: sweep.len() - missing.len() });
    let next = AtomicUsize::new(0);
    let failed: Mutex<Option<SweepError>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, missing.len().max(1)) {
            scope.spawn(|| {
                while let Some((point, key)) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let done = sweep.outcome(*point).and_then(|outcome| journal.append(key, &outcome));
                    match done {
                        Ok(()) => observe(Progress::Finished),
                        Err(error) => {
                            next.store(missing.len(), Ordering::Relaxed);
                            failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                        }
                    }
                }
            });
        }
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}
