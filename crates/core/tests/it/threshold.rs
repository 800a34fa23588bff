//! The adaptive promotion threshold: Algorithm 1 of FlatFlash, and our deviations from the printed algorithm.

use deepram_core::migration::{EpochReset, PromotionThreshold, PromotionTrigger, ThresholdOptions};
use proptest::prelude::*;

#[test]
fn as_printed_there_is_one_epoch_if_no_page_leaves_and_with_a_count_of_its_own_one_each_10000_uses() {
    let epochs = |options| {
        let mut threshold = PromotionThreshold::new(options);
        let mut counts = [0u8; 20_000];
        // Ten uses of each page keep every count far from its maximum.
        for n in 0..200_000usize {
            threshold.update(&mut counts[n % 20_000], false);
        }
        assert_eq!(threshold.resident_count(), 200_000);
        threshold.epochs()
    };
    assert_eq!(epochs(ThresholdOptions::literal()), 1);
    assert_eq!(epochs(ThresholdOptions::default()), 20);
}

/// Uses one page a few times and then, when the threshold has come down, up to a thousand times. Returns the
/// number of these later uses before the page is promoted.
fn stuck(trigger: PromotionTrigger) -> usize {
    let mut threshold = PromotionThreshold::new(ThresholdOptions { trigger, ..ThresholdOptions::default() });
    let mut lagging = 0;
    for _ in 0..4 {
        assert!(!threshold.update(&mut lagging, true));
    }
    // Other pages are used until they are promoted, again and again: nearly all uses are of promoted pages.
    while threshold.current() > 3 {
        let mut page = 0;
        while !threshold.update(&mut page, true) {}
        threshold.adjust_count(page);
    }
    let mut uses = 0;
    while uses < 1000 && !threshold.update(&mut lagging, true) {
        uses += 1;
        // The uses of this page lower the promoted share; uses of other pages raise it again.
        while threshold.current() > 3 || threshold.promoted_share() < 0.8 {
            let mut page = 0;
            while !threshold.update(&mut page, true) {}
            threshold.adjust_count(page);
        }
    }
    uses
}

#[test]
fn as_printed_a_page_past_a_lowered_threshold_is_never_promoted() {
    assert_eq!(stuck(PromotionTrigger::Exactly), 1000);
    assert_eq!(stuck(PromotionTrigger::AtLeast), 0);
}

#[test]
fn a_page_that_may_not_move_is_promoted_at_a_later_use() {
    let mut threshold = PromotionThreshold::new(ThresholdOptions::default());
    let mut page = 0;
    assert!((0..20).all(|_| !threshold.update(&mut page, false)));
    assert_eq!((page, threshold.promoted_share()), (20, 0.0));
    assert!(threshold.update(&mut page, true));
}

#[test]
fn uses_of_a_page_in_flight_are_uses_of_a_promoted_page_but_not_as_printed() {
    let share = |options| {
        let mut threshold = PromotionThreshold::new(options);
        let mut page = 0;
        while !threshold.update(&mut page, true) {}
        for _ in 0..13 {
            threshold.use_in_flight(&mut page);
        }
        assert_eq!((page, threshold.resident_count()), (20, 20));
        threshold.promoted_share()
    };
    assert_eq!(share(ThresholdOptions::default()), 1.0);
    // The algorithm as printed adds the count to `AggPromotedCnt` at the seventh use alone.
    assert_eq!(share(ThresholdOptions::literal()), 7.0 / 20.0);
}

#[test]
fn the_threshold_comes_down_while_pages_are_used_again_and_goes_up_while_they_are_not() {
    let mut threshold = PromotionThreshold::new(ThresholdOptions::default());
    assert_eq!((threshold.current(), threshold.promoted_share()), (7, 0.0));
    let mut least = 7;
    for _ in 0..100 {
        let mut page = 0;
        while !threshold.update(&mut page, true) {}
        threshold.adjust_count(page);
        least = least.min(threshold.current());
    }
    assert_eq!(least, 1);
    for _ in 0..5000 {
        let mut page = 0;
        threshold.update(&mut page, false);
        threshold.adjust_count(page);
    }
    assert_eq!(threshold.current(), 7);
}

/// The algorithm line by line as printed; a page's number stands for its set and way.
struct Printed {
    counts: Vec<u64>,
    net: u64,
    uses: u64,
    promoted: u64,
    threshold: u64,
}

impl Printed {
    fn update(&mut self, page: usize) -> bool {
        self.net += 1;
        self.uses += 1;
        self.counts[page] += 1;
        let flag = self.counts[page] == self.threshold;
        if flag {
            self.promoted += self.counts[page];
        }
        let ratio = self.promoted as f64 / self.uses as f64;
        if ratio <= 0.25 {
            if self.threshold < 7 {
                self.threshold += 1;
            }
        } else if ratio >= 0.75 && self.threshold > 1 && flag {
            self.threshold -= 1;
        }
        if self.uses == 10_000 {
            self.uses = self.net;
            self.promoted = 0;
            self.threshold = 7;
        }
        flag
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn the_literal_variant_is_the_algorithm_as_printed(
        uses in prop::collection::vec((0usize..30, 0u8..8), 0..3000),
        long in any::<bool>(),
    ) {
        let mut literal = PromotionThreshold::new(ThresholdOptions::literal());
        let mut counts = [0u8; 30];
        let (net, at, promoted) = (0, 0, 0);
        let mut printed = Printed { counts: vec![0; 30], net, uses: at, promoted, threshold: 7 };
        for (page, leaves) in uses.iter().cycle().take(if long { 12_000.min(uses.len() * 9) } else { uses.len() }) {
            if counts[*page] == u8::MAX {
                continue;
            }
            prop_assert_eq!(literal.update(&mut counts[*page], true), printed.update(*page));
            prop_assert_eq!(u64::from(literal.current()), printed.threshold);
            if *leaves == 0 {
                literal.adjust_count(std::mem::take(&mut counts[*page]));
                printed.net -= std::mem::take(&mut printed.counts[*page]);
            }
            prop_assert_eq!(literal.resident_count(), printed.net);
        }
    }

    #[test]
    fn the_net_count_is_the_sum_of_the_pages_counts_and_the_threshold_stays_in_its_range(
        uses in prop::collection::vec((0usize..5, 0u8..40, any::<bool>()), 0..3000),
        epoch in 1u64..200,
        reset in prop_oneof![Just(EpochReset::Uses), Just(EpochReset::AccessCount)],
        most in 0u8..12,
    ) {
        let options = ThresholdOptions { reset_epoch: epoch, reset, max_threshold: most, ..ThresholdOptions::default() };
        let mut threshold = PromotionThreshold::new(options);
        let mut counts = [0u8; 5];
        for (page, leaves, may) in uses {
            let promoted = threshold.update(&mut counts[page], may);
            prop_assert!(may || !promoted);
            if promoted || leaves == 0 {
                threshold.adjust_count(std::mem::take(&mut counts[page]));
            }
            prop_assert_eq!(threshold.resident_count(), counts.iter().map(|count| u64::from(*count)).sum::<u64>());
            prop_assert!((1..=most.max(1)).contains(&threshold.current()));
        }
    }
}
