//! The thresholds of the hybrid SSD cache against direct transcriptions of its Algorithms 2, 3 and 4, and its Bloom filter
//! against the formula of its error.

use deepram_core::migration::{
    BloomFilter, CoolnessForm, CoolnessThreshold, ExpectedWrites, FilterDecay, HotnessForm, HotnessThreshold,
    MAX_COUNT, PageHash, SaturatingCounter, WearBalance, WriteAdmission,
};
use proptest::prelude::*;

use crate::hybrid_model::{Algorithm2, Algorithm3, Algorithm4};

/// A filter so large that it never errs on these streams.
fn exact() -> BloomFilter {
    BloomFilter::new(1 << 17, 4)
}

proptest! {
    #[test]
    fn hotness_after_every_write_and_period_is_that_of_algorithm_2(
        literal in any::<bool>(),
        scaled in any::<bool>(),
        (dram, resident) in (0u64..60, 1u64..200),
        stream in prop::collection::vec((0u64..50, 0u8..20), 0..800),
    ) {
        let form = if literal { HotnessForm::Literal } else { HotnessForm::Corrected };
        let mut threshold = HotnessThreshold::new(form, scaled, dram, exact());
        let mut model = Algorithm2 { threshold: 1, ..Algorithm2::default() };
        let mut counts = [0u8; 50];
        for (step, (page, forget)) in stream.into_iter().enumerate() {
            // A page leaves the buffer now and then, and loses its count.
            if forget == 0 {
                counts[page as usize] = 0;
            }
            let before = counts[page as usize];
            let counter = SaturatingCounter::new(before + 1);
            counts[page as usize] = counter.count();
            let had = (before > 0).then(|| SaturatingCounter::new(before));
            threshold.record(PageHash::of(page), had, counter);
            model.access(page, (before > 0).then_some(before), counter.count(), form);
            if step % 64 == 63 {
                threshold.end_period(resident);
                model.period_end(dram, resident, scaled);
            }
            prop_assert_eq!(threshold.threshold(), model.threshold);
            let buckets: Vec<i64> = threshold.trackers().iter().map(|pages| i64::from(*pages)).collect();
            prop_assert_eq!(&buckets[..], &model.bucket[1..]);
        }
    }

    #[test]
    fn coolness_after_every_period_is_that_of_algorithm_3(
        literal in any::<bool>(),
        ratio in 0.0f64..8.0,
        stream in prop::collection::vec((1u8..9, 0u64..500, 0u64..500), 0..600),
    ) {
        let form = if literal { CoolnessForm::Literal } else { CoolnessForm::Corrected };
        let mut threshold = CoolnessThreshold::new(form);
        let mut balance = WearBalance::new(ExpectedWrites::OfActual, ratio, 32);
        let mut model = Algorithm3 { threshold: 1, ..Algorithm3::default() };
        for (step, (count, pcm, ssd)) in stream.into_iter().enumerate() {
            threshold.record(count);
            model.access(count);
            if step % 32 == 31 {
                balance.end_period(pcm, ssd);
                model.disparity += ssd as f64 - (pcm + ssd) as f64 * (1.0 / (ratio + 1.0));
                let hotness = count;
                threshold.end_period(balance.disparity(), balance.ssd_writes(), hotness);
                model.period_end(32.0 * (1.0 / (ratio + 1.0)), hotness, form);
            }
            prop_assert_eq!(threshold.threshold(), model.threshold);
            prop_assert_eq!(threshold.is_closed(), model.closed);
            prop_assert_eq!(&threshold.frequency()[..], &model.frequency[1..]);
            prop_assert_eq!(balance.disparity(), model.disparity);
        }
    }

    #[test]
    fn admission_of_every_write_is_that_of_algorithm_4(
        shift in any::<bool>(),
        stream in prop::collection::vec((0u64..30, 1u8..6, any::<bool>()), 0..600),
    ) {
        let decay = if shift { FilterDecay::Shift } else { FilterDecay::Reset };
        let mut admission = WriteAdmission::new(decay, &exact());
        let mut model = Algorithm4::default();
        for (step, (page, threshold, closed)) in stream.into_iter().enumerate() {
            let hash = PageHash::of(page);
            let count = admission.count(hash);
            prop_assert_eq!(count, model.count(page));
            let closed = closed && step % 5 == 0;
            prop_assert_eq!(admission.admit(hash, count, threshold, closed), model.is_cached(page, threshold, closed));
            if step % 64 == 63 {
                admission.end_period();
                model.period_end(decay);
            }
        }
    }
}

#[test]
fn a_saturated_counter_stays_and_a_count_out_of_range_is_brought_into_it() {
    let counts: Vec<u8> =
        std::iter::successors(Some(SaturatingCounter::new(0)), |counter| Some(counter.incremented()))
            .map(SaturatingCounter::count)
            .take(10)
            .collect();
    assert_eq!(counts, [1, 2, 3, 4, 5, 6, 7, 8, 8, 8]);
    assert!(SaturatingCounter::new(200).is_saturated() && !SaturatingCounter::new(7).is_saturated());
    assert_eq!(SaturatingCounter::new(200).count(), MAX_COUNT);
}

#[test]
fn a_page_written_a_hundred_times_is_one_page_of_the_last_register_unless_the_form_is_literal() {
    for (form, last) in [(HotnessForm::Corrected, 1), (HotnessForm::Literal, 0)] {
        let mut threshold = HotnessThreshold::new(form, false, 10, exact());
        let mut counter = SaturatingCounter::new(1);
        threshold.record(PageHash::of(3), None, counter);
        for _ in 0..100 {
            let next = counter.incremented();
            threshold.record(PageHash::of(3), Some(counter), next);
            counter = next;
        }
        assert_eq!(threshold.trackers()[7], last, "{form:?}");
        let negative = threshold.trackers().iter().any(|pages| *pages < 0);
        assert_eq!(negative, form == HotnessForm::Literal);
    }
}

#[test]
fn the_disparity_steers_the_ssd_writes_to_their_share() {
    // 1,000 periods of writes whose counts are spread; below the threshold they go to the SSD.
    let ratio = 1.5;
    let mut balance = WearBalance::new(ExpectedWrites::OfActual, ratio, 512);
    let mut threshold = CoolnessThreshold::new(CoolnessForm::Corrected);
    let (mut all_pcm, mut all_ssd) = (0, 0);
    for period in 0..1000u64 {
        let (mut pcm, mut ssd) = (0, 0);
        for write in 0..512u64 {
            let count = 1 + ((write * 7 + period) % 4) as u8;
            threshold.record(count);
            if count < threshold.threshold() || threshold.is_closed() { ssd += 1 } else { pcm += 1 }
        }
        balance.end_period(pcm, ssd);
        threshold.end_period(balance.disparity(), balance.ssd_writes(), 8);
        (all_pcm, all_ssd) = (all_pcm + pcm, all_ssd + ssd);
    }
    let share = all_ssd as f64 / (all_pcm + all_ssd) as f64;
    assert!((share - 1.0 / (ratio + 1.0)).abs() < 0.01, "{share}");
}

#[test]
fn a_bloom_filter_errs_as_often_as_the_formula_says_and_never_forgets() {
    for (pages, bytes, hashes) in
        [(512u64, 1024u32, 4u32), (256, 1024, 4), (1024, 1024, 4), (2048, 1024, 4), (512, 512, 2)]
    {
        let (mut wrong, mut asked) = (0u64, 0u64);
        for round in 0..60u64 {
            let mut filter = BloomFilter::new(bytes, hashes);
            let of = |page: u64| PageHash::of(round << 40 | page);
            (0..pages).for_each(|page| filter.insert(of(page)));
            assert!((0..pages).all(|page| filter.contains(of(page))));
            wrong += (1 << 20..(1 << 20) + 20_000).filter(|page| filter.contains(of(*page))).count() as u64;
            asked += 20_000;
            filter.clear();
            assert_eq!(filter, BloomFilter::new(bytes, hashes));
        }
        let measured = wrong as f64 / asked as f64;
        let filled = 1.0 - (-f64::from(hashes) * pages as f64 / (f64::from(bytes) * 8.0)).exp();
        let formula = filled.powi(hashes as i32);
        // Double hashing errs a little more often than independent positions.
        assert!((0.9..1.25).contains(&(measured / formula)), "{pages} pages: {measured}, formula {formula}");
    }
}
