//! Estimates from samples against the exact figures.

use deepram_trace::Workload;
use deepram_trace::characterize::{Characterization, CharacterizeOptions, Characterizer, Sampling};

fn characterize(spec: &str, sampling: Sampling) -> Characterization {
    let options = CharacterizeOptions { sampling, ..CharacterizeOptions::default() };
    let mut characterizer = Characterizer::new(&options).unwrap();
    for item in Workload::new(spec, 3).unwrap() {
        characterizer.add(&item).unwrap();
    }
    characterizer.finish().unwrap()
}

const SKEWED: &str = "zipf:theta=0.8,span=1GiB,count=400k,read=0.5,size=8KiB";
const UNIFORM: &str = "uniform:span=256MiB,count=300k,read=0.5,size=8KiB";

/// Mean absolute error of the hit ratios, and the share of capacities at which the error is within three standard errors.
fn errors(exact: &Characterization, estimate: &Characterization) -> (f64, f64) {
    let distances = exact.distances.as_ref().unwrap();
    let points = estimate.lru.iter().filter(|point| point.capacity_pages >= 256);
    let errors: Vec<(f64, f64)> = points
        .map(|point| {
            let counted = deepram_trace::characterize::Counted::All;
            let over = deepram_trace::characterize::Denominator::AllAccesses;
            let exact = distances.hit_ratio(point.capacity_pages, counted, over).unwrap();
            ((point.all.unwrap() - exact).abs(), point.standard_error.unwrap())
        })
        .collect();
    let mean = errors.iter().map(|error| error.0).sum::<f64>() / errors.len() as f64;
    let within = errors.iter().filter(|(error, standard)| *error <= 3.0 * standard + 0.001).count();
    (mean, within as f64 / errors.len() as f64)
}

#[test]
fn a_sample_estimates_hit_ratios_within_its_stated_error() {
    for spec in [SKEWED, UNIFORM] {
        let exact = characterize(spec, Sampling::Exact);
        for sampling in [Sampling::Rate(0.1), Sampling::Pages(8_000)] {
            let estimate = characterize(spec, sampling);
            let (mean, within) = errors(&exact, &estimate);
            // A tenth of 32,768 pages is off by 1.6 % (one standard deviation), and the hit ratios with it.
            assert!(mean < 0.03 && within >= 0.9, "{spec}, {sampling:?}: mean error {mean}, {within} within");
            let (pages, unique) = (estimate.all.unique_pages as f64, exact.all.unique_pages as f64);
            assert!((pages / unique - 1.0).abs() < 0.06, "{spec}, {sampling:?}: {pages} for {unique}");
            for (estimate, exact) in [(&estimate.read, &exact.read), (&estimate.write, &exact.write)] {
                assert_eq!((estimate.requests, estimate.bytes), (exact.requests, exact.bytes));
                let ratio = estimate.unique_pages as f64 / exact.unique_pages as f64;
                assert!((ratio - 1.0).abs() < 0.06, "{spec}, {sampling:?}: {ratio}");
            }
            for (estimate, exact) in estimate.working_sets.iter().zip(&exact.working_sets) {
                assert_eq!(estimate.windows, exact.windows);
                assert!((estimate.mean_pages / exact.mean_pages - 1.0).abs() < 0.1, "{spec}, {sampling:?}");
            }
            assert_eq!(estimate.spatial, exact.spatial, "the spatial classes need no sample");
        }
    }
}

#[test]
fn a_sample_never_holds_more_pages_than_its_size() {
    let figures = characterize(SKEWED, Sampling::Pages(1_000));
    let sample = figures.sample.unwrap();
    assert!(sample.pages <= 1_000 && sample.pages > 950, "{sample:?}");
    assert!(sample.rate < 0.05, "{sample:?}");
}

#[test]
fn a_sample_of_all_pages_is_exact() {
    let spec = "zipf:theta=0.9,span=16MiB,count=20k,read=0.5";
    let exact = characterize(spec, Sampling::Exact);
    for sampling in [Sampling::Rate(1.0), Sampling::Pages(1 << 20)] {
        let all = characterize(spec, sampling);
        assert_eq!((all.all, all.read, all.write), (exact.all, exact.read, exact.write));
        assert_eq!(all.working_sets, exact.working_sets);
        // Distances below 32 have a class each.
        for (all, exact) in all.lru.iter().zip(&exact.lru).filter(|(point, _)| point.capacity_pages <= 32) {
            let difference = all.all.unwrap() - exact.all.unwrap();
            assert!(difference.abs() < 1e-12, "{difference} at {}", exact.capacity_pages);
        }
    }
}
