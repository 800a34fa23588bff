//! Latencies of accesses: each is told to within 1 %, the longest exactly.

use std::time::Duration;

use anyhow::Context;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Decimal digits that are kept of each. With three, a thread's counters would outgrow a small processor cache.
const DIGITS: u8 = 2;
/// Longer ones are counted as this: 2^40 ns, 18 minutes.
const LONGEST: u64 = 1 << 40;

/// How many accesses took how long.
#[derive(Debug, Clone)]
pub(super) struct Latency {
    ns: Histogram<u64>,
    longest: Duration,
}

/// What of it is told, in microseconds.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Quantiles {
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) p999_us: f64,
    pub(super) max_us: f64,
}

impl Latency {
    pub(super) fn new() -> anyhow::Result<Self> {
        let ns = Histogram::new_with_bounds(1, LONGEST, DIGITS).context("a histogram of latencies")?;
        Ok(Self { ns, longest: Duration::ZERO })
    }

    #[inline]
    pub(super) fn add(&mut self, time: Duration) {
        self.ns.saturating_record(time.as_nanos() as u64);
        self.longest = self.longest.max(time);
    }

    pub(super) fn merge(&mut self, other: &Self) -> anyhow::Result<()> {
        self.longest = self.longest.max(other.longest);
        self.ns.add(&other.ns).context("adding histograms of latencies")
    }

    /// How many.
    pub(super) fn count(&self) -> u64 {
        self.ns.len()
    }

    /// `None` of nothing.
    pub(super) fn quantiles(&self) -> Option<Quantiles> {
        let max_us = self.longest.as_nanos() as f64 / 1e3;
        // The end of a counter's range may lie beyond the longest.
        let at = |share| (self.ns.value_at_quantile(share) as f64 / 1e3).min(max_us);
        (!self.ns.is_empty()).then(|| Quantiles {
            p50_us: at(0.5),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_is_told_to_within_the_bounds() {
        for ns in (1..5000).chain((13..39).flat_map(|n| [(1 << n) - 1, 1 << n, (1 << n) + 12_345])) {
            let mut latency = Latency::new().unwrap();
            latency.add(Duration::from_nanos(ns));
            // The longest caps what is told; another, longer one lets it go to the end of its range.
            latency.add(Duration::from_secs(1000));
            let told = (latency.quantiles().unwrap().p50_us * 1e3).round();
            assert!(told >= ns as f64 && told <= ns as f64 * 1.04 + 1.0, "{ns}: {told}");
        }
    }

    #[test]
    fn one_too_long_for_the_histogram_is_counted_and_told_as_the_longest() {
        let mut latency = Latency::new().unwrap();
        latency.add(Duration::from_secs(1_000_000));
        let found = latency.quantiles().unwrap();
        assert_eq!(found.max_us, 1e12);
        assert!(found.p50_us >= LONGEST as f64 / 1e3, "{found:?}");
    }

    #[test]
    fn quantiles_are_those_of_what_was_added() {
        let mut latency = Latency::new().unwrap();
        assert!(latency.quantiles().is_none());
        (0..990).for_each(|_| latency.add(Duration::from_nanos(40)));
        let mut slow = Latency::new().unwrap();
        (0..10).for_each(|_| slow.add(Duration::from_micros(100)));
        latency.merge(&slow).unwrap();
        let found = latency.quantiles().unwrap();
        assert_eq!((found.p50_us, found.p99_us), (0.04, 0.04));
        assert_eq!((found.p999_us, found.max_us), (100.0, 100.0));
    }
}
