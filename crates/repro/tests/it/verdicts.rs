//! The arithmetic of verdicts.

use crate::common::claim;
use deepram_repro::{Claim, Class, Expected, Tolerance, Verdict};
use proptest::prelude::*;

const ONE: &[&str] = &["figure"];
const THREE: &[&str] = &["a", "b", "c"];

fn verdict(expected: Expected, ours: f64) -> (Verdict, Option<f64>) {
    let judged = claim("c", expected, ONE).judge(&[ours]);
    (judged.verdict, judged.difference)
}

#[test]
fn a_magnitude_is_inside_up_to_a_fifth_off_and_at_the_fifth() {
    let three = Expected::Value(3.0);
    assert_eq!(verdict(three, 3.0), (Verdict::Inside, Some(0.0)));
    // In binary, 3 * 1.2 is slightly below 3.6; a figure equal to the bound must still be inside.
    assert_eq!(verdict(three, 3.6).0, Verdict::Inside);
    assert_eq!(verdict(three, 2.4).0, Verdict::Inside);
    assert_eq!(verdict(three, 3.61).0, Verdict::Outside);
    assert_eq!(verdict(three, 2.39).0, Verdict::Outside);
    let (outside, difference) = verdict(three, 4.5);
    assert_eq!(outside, Verdict::Outside);
    assert!((difference.unwrap() - 0.5).abs() < 1e-12);
    assert!((verdict(three, 1.5).1.unwrap() + 0.5).abs() < 1e-12);
}

#[test]
fn a_range_has_its_tolerance_at_the_ends_only() {
    let range = Expected::Range(1.5, 2.0);
    for inside in [1.2, 1.5, 1.7, 2.0, 2.4] {
        assert_eq!(verdict(range, inside).0, Verdict::Inside, "{inside}");
    }
    for outside in [1.19, 2.41, 0.0, -1.5] {
        assert_eq!(verdict(range, outside).0, Verdict::Outside, "{outside}");
    }
    assert_eq!(verdict(range, 1.7).1, Some(0.0));
    assert!((verdict(range, 2.2).1.unwrap() - 0.1).abs() < 1e-12, "from the range's nearest end");
}

#[test]
fn a_bound_is_one_sided() {
    assert_eq!(verdict(Expected::AtMost(2.0), -1e9).0, Verdict::Inside);
    assert_eq!(verdict(Expected::AtMost(2.0), 2.4).0, Verdict::Inside);
    assert_eq!(verdict(Expected::AtMost(2.0), 2.41).0, Verdict::Outside);
    assert_eq!(verdict(Expected::AtLeast(2.0), 1e9), (Verdict::Inside, Some(0.0)));
    assert_eq!(verdict(Expected::AtLeast(2.0), 1.59).0, Verdict::Outside);
}

#[test]
fn exact_and_absolute_tolerances_are_what_they_say() {
    let exact =
        Claim { tolerance: Tolerance::None, class: Class::Exact, ..claim("c", Expected::Value(16.0), ONE) };
    assert_eq!(exact.judge(&[16.0]).verdict, Verdict::Inside);
    assert_eq!(exact.judge(&[16.001]).verdict, Verdict::Outside);
    let digits = Claim { tolerance: Tolerance::Absolute(0.05), ..exact.clone() };
    assert_eq!(digits.judge(&[16.05]).verdict, Verdict::Inside);
    assert_eq!(digits.judge(&[16.06]).verdict, Verdict::Outside);
    let zero = Claim { expected: Expected::Value(0.0), ..exact };
    assert_eq!(zero.judge(&[0.0]).difference, Some(0.0));
    assert_eq!(zero.judge(&[1.0]).difference, None, "a relative difference from zero is undefined");
}

#[test]
fn a_trend_holds_or_does_not() {
    let order = Claim { class: Class::Trend, ..claim("c", Expected::Rising, THREE) };
    assert_eq!(order.judge(&[1.0, 2.0, 3.0]).verdict, Verdict::TrendHolds);
    assert_eq!(order.judge(&[1.0, 2.0, 2.0]).verdict, Verdict::TrendFails, "equal figures do not rise");
    assert_eq!(order.judge(&[1.0, 3.0, 2.0]).verdict, Verdict::TrendFails);
    let below =
        Claim { class: Class::Trend, tolerance: Tolerance::None, ..claim("c", Expected::AtMost(1.0), ONE) };
    assert_eq!(below.judge(&[0.99]).verdict, Verdict::TrendHolds);
    assert_eq!(below.judge(&[1.01]).verdict, Verdict::TrendFails);
}

#[test]
fn nothing_and_no_number_are_not_run() {
    assert_eq!(claim("c", Expected::Value(1.0), ONE).judge(&[]).verdict, Verdict::Unavailable);
    assert_eq!(verdict(Expected::AtLeast(1.0), f64::NAN).0, Verdict::Unavailable);
    assert_eq!(verdict(Expected::AtLeast(1.0), f64::INFINITY).0, Verdict::Unavailable);
    assert_eq!(claim("c", Expected::Rising, THREE).judge(&[1.0]).verdict, Verdict::Unavailable);
}

#[test]
fn tolerances_are_said_in_words() {
    let words = |expected, tolerance| Claim { tolerance, ..claim("c", expected, ONE) }.tolerance_words();
    assert_eq!(words(Expected::Value(1.0), Tolerance::Relative(0.2)), "±20 %");
    assert_eq!(words(Expected::Range(1.0, 2.0), Tolerance::Relative(0.2)), "±20 % at the ends");
    assert_eq!(words(Expected::Value(1.0), Tolerance::Absolute(0.05)), "±0.05 µs");
    assert_eq!(words(Expected::Value(1.0), Tolerance::None), "none");
}

proptest! {
    #[test]
    fn a_verdict_does_not_depend_on_the_unit(
        low in 0.1..10.0f64, span in 0.0..10.0f64, ours in 0.01..40.0f64, scale in 1e-6..1e6f64,
    ) {
        let high = low + span;
        // Within rounding of a bound both verdicts are right, so these cases are skipped.
        prop_assume!((ours / (low * 0.8) - 1.0).abs() > 1e-6 && (ours / (high * 1.2) - 1.0).abs() > 1e-6);
        let (plain, difference) = verdict(Expected::Range(low, high), ours);
        let (scaled, same) = verdict(Expected::Range(low * scale, high * scale), ours * scale);
        prop_assert_eq!(plain, scaled);
        prop_assert!((difference.unwrap() - same.unwrap()).abs() < 1e-9);
        let expected = ours >= low * 0.8 && ours <= high * 1.2;
        prop_assert_eq!(plain == Verdict::Inside, expected);
    }
}
