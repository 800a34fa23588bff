//! Taking a lock.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A panic under a lock would be a defect of ours; states are as the last step left them.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
