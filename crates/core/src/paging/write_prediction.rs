//! Predicts whether a page will be written again after it is read back.
//!
//! A page that was written after an earlier read is installed writable. This saves the write-protection fault of its
//! first store, but such a page is written to the swap file each time it leaves. So the prediction is tested now and
//! then: the page is installed write-protected once. Either a fault shows that it is still written, or it leaves clean
//! and costs no write. Tests become rarer where most of them only cost a fault.
//!
//! The first return of a page is predicted from the first returns of other pages, of which one in eight is observed:
//! the page is installed write-protected.
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
/// Number of written first returns in a round from which on they are predicted to be written, or the prediction stays: a page that
/// is predicted wrongly is written to the swap file several times before a test shows it.
const FIRST_FROM: u8 = 52;
const FIRST_SAME_FROM: u8 = 44;
/// One in this many first returns is observed where the others are predicted to be written.
const OBSERVED_SHARE: u8 = 8;
/// At every this many evicted huge pages, the prediction that the huge page will be written is dropped.
const HUGE_PAGES_PER_RESET: u64 = 8;

/// How often predictions are tested, whether first returns are predicted to be written, and the outcomes since that was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WritePrediction {
    /// Departures of pages that are predicted to be written. The intervals divide 256.
    departures: u8,
    interval: u8,
    clean: u8,
    written: u8,
    /// First departures of pages.
    first_departures: u8,
    first_is_written: bool,
    first_clean: u8,
    first_written: u8,
}

impl Default for WritePrediction {
    fn default() -> Self {
        Self {
            departures: 0,
            interval: FIRST_INTERVAL,
            clean: 0,
            written: 0,
            first_departures: 0,
            first_is_written: false,
            first_clean: 0,
            first_written: 0,
        }
    }
}

impl PackedState for WritePrediction {
    fn to_word(self) -> u64 {
        u64::from_le_bytes([
            self.departures,
            self.interval,
            self.clean,
            self.written,
            self.first_departures,
            self.first_is_written.into(),
            self.first_clean,
            self.first_written,
        ])
    }

    fn from_word(word: u64) -> Self {
        let [departures, interval, clean, written, first_departures, first, first_clean, first_written] =
            word.to_le_bytes();
        let first_is_written = first != 0;
        Self {
            departures,
            interval,
            clean,
            written,
            first_departures,
            first_is_written,
            first_clean,
            first_written,
        }
    }
}

impl WritePrediction {
    /// Called when a page leaves memory. Returns its new prediction, for its next return.
    #[must_use]
    pub fn page_leaves(&mut self, page: PagePrediction) -> PagePrediction {
        if page.is_written() {
            let tests = self.departures.is_multiple_of(self.interval);
            self.departures = self.departures.wrapping_add(1);
            return if tests { PagePrediction::Tested } else { page };
        }
        if page != PagePrediction::Unknown {
            return page;
        }
        let observed = self.first_departures.is_multiple_of(OBSERVED_SHARE);
        self.first_departures = self.first_departures.wrapping_add(1);
        if self.first_is_written && !observed { PagePrediction::Written } else { PagePrediction::Observed }
    }

    /// Records the outcome of a test or an observation.
    pub fn outcome(&mut self, outcome: WriteOutcome) {
        let (clean, written) = match outcome.is_first {
            true => (&mut self.first_clean, &mut self.first_written),
            false => (&mut self.clean, &mut self.written),
        };
        *(if outcome.is_written { &mut *written } else { &mut *clean }) += 1;
        if *clean + *written < ROUND {
            return;
        }
        let most_are_written = core::mem::take(written);
        *clean = 0;
        if outcome.is_first {
            self.first_is_written = match most_are_written {
                FIRST_FROM.. => true,
                FIRST_SAME_FROM.. => self.first_is_written,
                _ => false,
            };
        } else {
            self.interval = match most_are_written {
                RARER_FROM.. => (self.interval * 2).min(MAX_INTERVAL),
                SAME_FROM.. => self.interval,
                _ => (self.interval / 2).max(MIN_INTERVAL),
            };
        }
    }
}

/// What a test of a prediction, or the observation of a page's first return, has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WriteOutcome {
    /// It was the first return of the page.
    is_first: bool,
    /// The page was written again; otherwise it left memory without having been written.
    is_written: bool,
}

/// The prediction for one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PagePrediction {
    /// The page has not left memory yet.
    #[default]
    Unknown,
    /// The page is installed write-protected, and its first return shows whether it is written again.
    Observed,
    /// The page is predicted not to be written, and is installed write-protected.
    Clean,
    /// The page is predicted to be written, and is installed writable.
    Written,
    /// That prediction is being tested: the page is installed write-protected.
    Tested,
}

impl PagePrediction {
    /// Whether the page is predicted to be written, and therefore installed writable.
    #[must_use]
    pub fn is_written(self) -> bool {
        self == Self::Written
    }

    /// Records an access to a page that was in the swap file. The first write to a fresh page is none: it predicts
    /// nothing. Returns the outcome for [`WritePrediction::outcome`], if there is one.
    #[must_use]
    pub fn accessed(&mut self, write: bool) -> Option<WriteOutcome> {
        if !write {
            return None;
        }
        self.ended(true, Self::Written)
    }

    /// Records that the page leaves memory clean. Returns the outcome for [`WritePrediction::outcome`], if there is one.
    #[must_use]
    pub fn left_clean(&mut self) -> Option<WriteOutcome> {
        let prediction = if self.is_written() { Self::Written } else { Self::Clean };
        self.ended(false, prediction)
    }

    fn ended(&mut self, is_written: bool, prediction: Self) -> Option<WriteOutcome> {
        let is_first = *self == Self::Observed;
        let ended = is_first || *self == Self::Tested;
        *self = prediction;
        ended.then_some(WriteOutcome { is_first, is_written })
    }

    /// Sets the prediction of a page that moves as a part of a huge page; see [`resets_huge_page`].
    pub fn set_written(&mut self, written: bool) {
        *self = if written { Self::Written } else { Self::Clean };
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
    use proptest::prelude::*;

    fn outcome(is_written: bool) -> WriteOutcome {
        WriteOutcome { is_first: false, is_written }
    }

    /// Number of tests among `departures` of a page that is `written` each time, or never.
    fn tests_started(prediction: &mut WritePrediction, departures: usize, written: bool) -> usize {
        let mut started = 0;
        for _ in 0..departures {
            if prediction.page_leaves(PagePrediction::Written) == PagePrediction::Tested {
                prediction.outcome(outcome(written));
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
    fn first_returns_are_predicted_by_those_of_other_pages() {
        let mut all = WritePrediction::default();
        // Number of pages that are installed writable, of 768 that leave for the first time.
        let mut writable = |written_of_8: usize| {
            let mut first = |n: usize| {
                let mut page = all.page_leaves(PagePrediction::Unknown);
                // Eight of 64 pages are observed where the others are predicted to be written, all 64 elsewhere.
                let outcome = if n / 8 % 8 < written_of_8 { page.accessed(true) } else { page.left_clean() };
                outcome.inspect(|outcome| all.outcome(*outcome)).is_none()
            };
            (0..768).filter(|n| first(*n)).count()
        };
        assert_eq!(writable(6), 0);
        assert_eq!(writable(7), 704 / 8 * 7, "after a round");
        assert_eq!(writable(6), 768 / 8 * 7, "six in eight keep the prediction");
        assert_eq!(writable(0), 56 / 8 * 7, "until the round ends");
        assert_eq!(writable(6), 0);
    }

    #[test]
    fn a_page_is_tested_once_and_predicted_again_when_it_is_written() {
        let mut page = PagePrediction::Clean;
        assert_eq!(page.accessed(false), None);
        assert!(!page.is_written());
        assert_eq!(page.accessed(true), None);
        assert!(page.is_written());
        assert_eq!(page.left_clean(), None, "no test is under way");
        page = PagePrediction::Tested;
        assert!(!page.is_written());
        assert_eq!(page.accessed(false), None, "a read decides nothing");
        assert_eq!(page.accessed(true), Some(outcome(true)));
        assert_eq!((page.is_written(), page.accessed(true)), (true, None));
        page = PagePrediction::Tested;
        assert_eq!(page.left_clean(), Some(outcome(false)));
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
            departures in any::<u8>(),
        ) {
            let mut prediction = WritePrediction { departures, ..WritePrediction::default() };
            for written in &outcomes {
                prediction.outcome(outcome(*written));
                prop_assert_eq!(WritePrediction::from_word(prediction.to_word()), prediction);
            }
            let mut interval = 8u8;
            for round in outcomes.chunks_exact(64) {
                interval = match round.iter().filter(|written| **written).count() {
                    40.. => (interval * 2).min(64),
                    28.. => interval,
                    _ => (interval / 2).max(4),
                };
            }
            for n in 0..=255 {
                let tests = prediction.page_leaves(PagePrediction::Written) == PagePrediction::Tested;
                prop_assert_eq!(tests, departures.wrapping_add(n).is_multiple_of(interval));
            }
        }
    }
}
