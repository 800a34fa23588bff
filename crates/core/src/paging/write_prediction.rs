//! Predicts whether a page will be written again after it is read back.
//!
//! A page that was written after an earlier read is installed writable. This saves the write-protection fault of its
//! first store, but such a page is written to the swap file each time it leaves. So the prediction is tested now and
//! then: the page is installed write-protected once. Either a fault shows that it is still written, or it leaves clean
//! and costs no write. Tests become rarer where most of them only cost a fault.
//!
//! [`PagePrediction`] is the state of one page, [`WritePrediction`] that of the whole pager.

use super::PackedState;

/// A test begins at one departure in this many: most frequently, at first, and most rarely.
const MIN_INTERVAL: u8 = 4;
const FIRST_INTERVAL: u8 = 8;
const MAX_INTERVAL: u8 = 64;
/// Outcomes after which the interval is chosen anew.
const ROUND: u8 = 64;
/// Of these, the number of pages written again from which on tests become rarer, or stay as frequent.
const RARER_FROM: u8 = 40;
const SAME_FROM: u8 = 28;
/// At every this many evicted huge pages, the prediction that the huge page will be written is dropped.
const HUGE_PAGES_PER_RESET: u64 = 8;

/// How often predictions are tested, and the outcomes since that was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WritePrediction {
    /// Departures of pages that are predicted to be written.
    departures: u32,
    interval: u8,
    clean: u8,
    written: u8,
}

impl Default for WritePrediction {
    fn default() -> Self {
        Self { departures: 0, interval: FIRST_INTERVAL, clean: 0, written: 0 }
    }
}

impl PackedState for WritePrediction {
    fn to_word(self) -> u64 {
        let [a, b, c, d] = self.departures.to_le_bytes();
        u64::from_le_bytes([a, b, c, d, self.interval, self.clean, self.written, 0])
    }

    fn from_word(word: u64) -> Self {
        let [a, b, c, d, interval, clean, written, _] = word.to_le_bytes();
        Self { departures: u32::from_le_bytes([a, b, c, d]), interval, clean, written }
    }
}

impl WritePrediction {
    /// Called when a page that is predicted to be written leaves memory. Returns whether to test the prediction on its
    /// next return.
    pub fn starts_test(&mut self) -> bool {
        let starts = self.departures.is_multiple_of(self.interval.into());
        self.departures = self.departures.wrapping_add(1);
        starts
    }

    /// Records the outcome of a test.
    pub fn test_ended(&mut self, outcome: TestOutcome) {
        match outcome {
            TestOutcome::LeftClean => self.clean += 1,
            TestOutcome::WrittenAgain => self.written += 1,
        }
        if self.clean + self.written < ROUND {
            return;
        }
        self.interval = match self.written {
            RARER_FROM.. => (self.interval * 2).min(MAX_INTERVAL),
            SAME_FROM.. => self.interval,
            _ => (self.interval / 2).max(MIN_INTERVAL),
        };
        (self.clean, self.written) = (0, 0);
    }
}

/// What a test of a prediction has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TestOutcome {
    /// The page left memory without having been written.
    LeftClean,
    /// The page was written again.
    WrittenAgain,
}

/// The prediction for one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PagePrediction {
    /// The page is predicted to be written, and is installed writable.
    written: bool,
    /// The prediction is being tested: the page is installed write-protected.
    testing: bool,
}

impl PagePrediction {
    /// Whether the page is predicted to be written, and therefore installed writable.
    #[must_use]
    pub fn is_written(self) -> bool {
        self.written
    }

    /// Records an access to a page that was in the swap file. The first write to a fresh page is none: it predicts
    /// nothing. Returns the outcome for [`WritePrediction::test_ended`], if a test has ended.
    #[must_use]
    pub fn accessed(&mut self, write: bool) -> Option<TestOutcome> {
        self.written |= write;
        (write && core::mem::take(&mut self.testing)).then_some(TestOutcome::WrittenAgain)
    }

    /// Records that the page leaves memory clean. Returns the outcome for [`WritePrediction::test_ended`], if a test has
    /// ended.
    #[must_use]
    pub fn left_clean(&mut self) -> Option<TestOutcome> {
        core::mem::take(&mut self.testing).then_some(TestOutcome::LeftClean)
    }

    /// Begins a test: the page is installed write-protected when it comes back.
    pub fn test(&mut self) {
        *self = Self { written: false, testing: true };
    }

    /// Sets the prediction of a page that moves as a part of a huge page; see [`resets_huge_page`].
    pub fn set_written(&mut self, written: bool) {
        self.written = written;
    }
}

/// Whether the prediction of a huge page's pages is dropped as the huge page leaves, where `evicted` huge pages have left
/// so far. A huge page is predicted to be written as a whole, so no page of it can be tested alone.
#[must_use]
pub fn resets_huge_page(evicted: u64) -> bool {
    evicted.is_multiple_of(HUGE_PAGES_PER_RESET)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn outcome(written: bool) -> TestOutcome {
        if written { TestOutcome::WrittenAgain } else { TestOutcome::LeftClean }
    }

    /// Number of tests among `departures` of a page that is `written` each time, or never.
    fn tests_started(prediction: &mut WritePrediction, departures: usize, written: bool) -> usize {
        let mut started = 0;
        for _ in 0..departures {
            if prediction.starts_test() {
                prediction.test_ended(outcome(written));
                started += 1;
            }
        }
        started
    }

    #[test]
    fn tests_become_rarer_where_most_only_cost_a_fault() {
        let mut all = WritePrediction::default();
        assert_eq!(tests_started(&mut all, 8 * 64, true), 64);
        tests_started(&mut all, 10_000, true);
        assert_eq!(tests_started(&mut all, 6_400, true), 100, "one in 64");
        tests_started(&mut all, 64 * 256, false);
        assert_eq!(tests_started(&mut all, 400, false), 100, "one in 4");
        tests_started(&mut all, 10_000, true);
        assert_eq!(tests_started(&mut all, 6_400, true), 100, "and back");
    }

    #[test]
    fn a_page_is_tested_once_and_predicted_again_when_it_is_written() {
        let mut page = PagePrediction::default();
        assert_eq!(page.accessed(false), None);
        assert!(!page.is_written());
        assert_eq!(page.accessed(true), None);
        assert!(page.is_written());
        assert_eq!(page.left_clean(), None, "no test is under way");
        page.test();
        assert!(!page.is_written());
        assert_eq!(page.accessed(false), None, "a read decides nothing");
        assert_eq!(page.accessed(true), Some(TestOutcome::WrittenAgain));
        assert_eq!((page.is_written(), page.accessed(true)), (true, None));
        page.test();
        assert_eq!(page.left_clean(), Some(TestOutcome::LeftClean));
        assert_eq!((page.is_written(), page.left_clean()), (false, None));
    }

    #[test]
    fn one_huge_page_in_eight_forgets_its_prediction() {
        assert_eq!((1..=800).filter(|evicted| resets_huge_page(*evicted)).count(), 100);
    }

    proptest! {
        /// Compares the packed state with all outcomes so far, cut into rounds.
        #[test]
        fn the_interval_follows_the_rounds_of_outcomes(
            outcomes in proptest::collection::vec(prop_oneof![Just(true), Just(false), Just(true)], 0..2000),
            departures in any::<u32>(),
        ) {
            let mut prediction = WritePrediction { departures, ..WritePrediction::default() };
            for written in &outcomes {
                prediction.test_ended(outcome(*written));
                prop_assert_eq!(WritePrediction::from_word(prediction.to_word()), prediction);
            }
            let mut interval = 8u32;
            for round in outcomes.chunks_exact(64) {
                interval = match round.iter().filter(|written| **written).count() {
                    40.. => (interval * 2).min(64),
                    28.. => interval,
                    _ => (interval / 2).max(4),
                };
            }
            let starts: Vec<bool> = (0..256).map(|_| prediction.starts_test()).collect();
            for (n, starts) in (0..).zip(starts) {
                prop_assert_eq!(starts, departures.wrapping_add(n).is_multiple_of(interval));
            }
        }
    }
}
