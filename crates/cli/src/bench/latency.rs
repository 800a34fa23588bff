//! Histogram of access latencies with a relative error of at most 1 %; the maximum is exact.

use std::time::Duration;

use anyhow::Context;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Significant decimal digits. With three, a thread's counters would exceed a small processor cache.
const DIGITS: u8 = 2;
/// Largest latency of the histogram, ns: 2^40 ns, 18 minutes. Longer latencies count as this one.
const LONGEST: u64 = 1 << 40;

/// Latencies of accesses.
#[derive(Debug, Clone)]
pub(super) struct Latency {
    ns: Histogram<u64>,
    longest: Duration,
}

/// Quantiles of latency, microseconds.
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

    /// Number of accesses.
    pub(super) fn count(&self) -> u64 {
        self.ns.len()
    }

    /// Quantiles; `None` without accesses.
    pub(super) fn quantiles(&self) -> Option<Quantiles> {
        let max_us = self.longest.as_nanos() as f64 / 1e3;
        // The end of a histogram bucket may lie beyond the maximum.
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
    fn a_quantile_is_within_the_error_bound() {
        for ns in (1..5000).chain((13..39).flat_map(|n| [(1 << n) - 1, 1 << n, (1 << n) + 12_345])) {
            let mut latency = Latency::new().unwrap();
            latency.add(Duration::from_nanos(ns));
            // The maximum caps a quantile; a second, longer latency removes that cap.
            latency.add(Duration::from_secs(1000));
            let quantile = (latency.quantiles().unwrap().p50_us * 1e3).round();
            assert!(quantile >= ns as f64 && quantile <= ns as f64 * 1.04 + 1.0, "{ns}: {quantile}");
        }
    }

    #[test]
    fn a_latency_beyond_the_histogram_counts_and_is_the_maximum() {
        let mut latency = Latency::new().unwrap();
        latency.add(Duration::from_secs(1_000_000));
        let found = latency.quantiles().unwrap();
        assert_eq!(found.max_us, 1e12);
        assert!(found.p50_us >= LONGEST as f64 / 1e3, "{found:?}");
    }

    #[test]
    fn quantiles_are_those_of_the_added_latencies() {
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
