//! Predicts whether a page will be written again after it is read back.
//!
//! A page that was written after an earlier read is installed writable. This saves the write-protection fault of its
//! first store, but such a page is written to the swap file each time it leaves. So the prediction is tested now and
//! then: the page is installed write-protected once. Either a fault shows that it is still written, or it leaves clean
//! and costs no write. Tests become rarer where most of them only cost a fault.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A test begins at one departure in this many: most frequently, at first, and most rarely.
const MIN_INTERVAL: u32 = 4;
const FIRST_INTERVAL: u32 = 8;
const MAX_INTERVAL: u32 = 64;
/// Outcomes after which the interval is chosen anew.
const ROUND: u32 = 64;
/// Of these, the number of pages written again from which on tests become rarer, or stay as frequent.
const RARER_FROM: u32 = 40;
const SAME_FROM: u32 = 28;

/// The test interval and the outcomes since it was chosen. Threads that count at the same time may lose counts: these
/// are estimates.
#[derive(Debug)]
pub(super) struct WritePrediction {
    interval: AtomicU32,
    departures: AtomicU32,
    clean: AtomicU32,
    written: AtomicU32,
}

impl Default for WritePrediction {
    fn default() -> Self {
        let [departures, clean, written] = [const { AtomicU32::new(0) }; 3];
        Self { interval: AtomicU32::new(FIRST_INTERVAL), departures, clean, written }
    }
}

impl WritePrediction {
    /// Called when a page that is predicted to be written leaves memory. Returns whether to test the prediction on its
    /// next return.
    pub(super) fn starts_test(&self) -> bool {
        let departures = self.departures.fetch_add(1, Relaxed);
        departures.is_multiple_of(self.interval.load(Relaxed))
    }

    /// Records that a tested page left clean.
    pub(super) fn page_left_clean(&self) {
        self.clean.fetch_add(1, Relaxed);
        self.adapt();
    }

    /// Records that a tested page was written again.
    pub(super) fn page_written_again(&self) {
        self.written.fetch_add(1, Relaxed);
        self.adapt();
    }

    fn adapt(&self) {
        let (clean, written) = (self.clean.load(Relaxed), self.written.load(Relaxed));
        if clean + written < ROUND {
            return;
        }
        self.clean.store(0, Relaxed);
        self.written.store(0, Relaxed);
        let interval = self.interval.load(Relaxed);
        let new = match written {
            RARER_FROM.. => (interval * 2).min(MAX_INTERVAL),
            SAME_FROM.. => interval,
            _ => (interval / 2).max(MIN_INTERVAL),
        };
        self.interval.store(new, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of tests among `departures` of a page that is `written` each time, or never.
    fn tests_started(prediction: &WritePrediction, departures: usize, written: bool) -> usize {
        let started = (0..departures).filter(|_| prediction.starts_test());
        started
            .inspect(|_| if written { prediction.page_written_again() } else { prediction.page_left_clean() })
            .count()
    }

    #[test]
    fn tests_become_rarer_where_most_only_cost_a_fault() {
        let all = WritePrediction::default();
        assert_eq!(tests_started(&all, 8 * 64, true), 64);
        tests_started(&all, 10_000, true);
        assert_eq!(tests_started(&all, 6_400, true), 100, "one in 64");
        tests_started(&all, 64 * 256, false);
        assert_eq!(tests_started(&all, 400, false), 100, "one in 4");
        tests_started(&all, 10_000, true);
        assert_eq!(tests_started(&all, 6_400, true), 100, "and back");
    }
}
