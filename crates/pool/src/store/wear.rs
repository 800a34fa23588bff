//! Counts the bytes written to the device over the life of the controller. Checkpoints store the counts in the
//! header, so a crash loses those of the log since the last checkpoint.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use super::Store;
use crate::format::header::{WearCounts, WearLimits};
use crate::stats::add;

/// The counts of a store.
pub(super) struct Wear {
    written: AtomicU64,
    user: AtomicU64,
    since_ns: u64,
}

impl Wear {
    /// Continues with these counts.
    pub(super) fn new(counts: WearCounts) -> Self {
        let WearCounts { written, user, since_ns } = counts;
        // A pool of an earlier build is counted from now on.
        let since_ns = if since_ns == 0 { now_ns() } else { since_ns };
        Self { written: AtomicU64::new(written), user: AtomicU64::new(user), since_ns }
    }

    pub(super) fn counts(&self) -> WearCounts {
        let (written, user) = (self.written.load(Relaxed), self.user.load(Relaxed));
        WearCounts { written, user, since_ns: self.since_ns }
    }
}

/// Returns the time in nanoseconds since 1970; 0 before that.
pub(super) fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

impl Store {
    /// Counts bytes written to the device.
    pub(super) fn count_written(&self, bytes: u64) {
        self.wear.written.fetch_add(bytes, Relaxed);
        add(&self.counters.bytes_written, bytes);
    }

    /// Counts bytes of segments written for the user.
    pub(super) fn count_user(&self, bytes: u64) {
        self.wear.user.fetch_add(bytes, Relaxed);
        add(&self.counters.bytes_user, bytes);
    }

    /// Returns the bytes written over the life of the controller.
    pub(crate) fn wear(&self) -> WearCounts {
        self.wear.counts()
    }

    /// Returns the limits that were set when the pool was created.
    pub(crate) fn wear_limits(&self) -> WearLimits {
        self.identity.limits
    }
}
