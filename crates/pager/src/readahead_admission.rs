//! Decides whether pages that were read ahead enter the victim buffer when they leave memory. The pages of a scan do
//! not: they were used once, so they are dropped, as they are in the swap file already.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// One return in this many departures pays for copying all of them: reading pages of a stream again is cheap.
const DEPARTURES_PER_RETURN: u32 = 8;
/// One page in this many is admitted in any case, so that a change is seen.
const SAMPLE_EVERY: u32 = 16;
/// Outcomes after which older outcomes count half.
const HISTORY: u32 = 1024;

/// Outcomes of pages that were read ahead and admitted to the victim buffer.
#[derive(Debug, Default)]
pub(super) struct ReadaheadAdmission {
    returned: AtomicU32,
    departed: AtomicU32,
    asked: AtomicU32,
}

impl ReadaheadAdmission {
    /// Whether to admit the next such page.
    pub(super) fn admit(&self) -> bool {
        let (returned, departed) = (self.returned.load(Relaxed), self.departed.load(Relaxed));
        returned.saturating_mul(DEPARTURES_PER_RETURN) >= departed
            || self.asked.fetch_add(1, Relaxed).is_multiple_of(SAMPLE_EVERY)
    }

    /// Records that a page came back into memory.
    pub(super) fn page_returned(&self) {
        self.count(&self.returned);
    }

    /// Records that a page left the victim buffer for the swap file.
    pub(super) fn page_departed(&self) {
        self.count(&self.departed);
    }

    /// Two threads that halve at the same time halve twice: the counts are estimates.
    fn count(&self, counter: &AtomicU32) {
        counter.fetch_add(1, Relaxed);
        let (returned, departed) = (self.returned.load(Relaxed), self.departed.load(Relaxed));
        if returned.saturating_add(departed) > HISTORY {
            self.returned.store(returned / 2, Relaxed);
            self.departed.store(departed / 2, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(admission: &ReadaheadAdmission) -> usize {
        (0..160).filter(|_| admission.admit()).count()
    }

    #[test]
    fn pages_are_admitted_as_long_as_some_come_back() {
        let admission = ReadaheadAdmission::default();
        assert_eq!(admitted(&admission), 160, "nothing is known yet");
        for _ in 0..100_000 {
            admission.page_departed();
        }
        assert_eq!(admitted(&admission), 10, "a sample");
        for _ in 0..300 {
            admission.page_returned();
            admission.page_departed();
        }
        assert_eq!(admitted(&admission), 160, "the past does not weigh for ever");
    }
}
