//! A histogram of latencies: 32 steps for each doubling, so each is right to 3 %.

use std::time::Duration;

use serde::{Deserialize, Serialize};

const BITS: u32 = 5;
const STEPS: u64 = 1 << BITS;
/// Up to 2^40 ns, 18 minutes.
const BUCKETS: usize = (41 - BITS as usize) * STEPS as usize;

/// How many accesses took how long.
#[derive(Debug, Clone)]
pub(super) struct Latency {
    counts: Vec<u64>,
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
    pub(super) fn new() -> Self {
        Self { counts: vec![0; BUCKETS], longest: Duration::ZERO }
    }

    pub(super) fn add(&mut self, time: Duration) {
        self.counts[bucket(time.as_nanos() as u64)] += 1;
        self.longest = self.longest.max(time);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, n)| *sum += n);
        self.longest = self.longest.max(other.longest);
    }

    /// `None` of nothing.
    pub(super) fn quantiles(&self) -> Option<Quantiles> {
        let max_us = self.longest.as_nanos() as f64 / 1e3;
        let at = |share| Some((self.at(share)? as f64 / 1e3).min(max_us));
        Some(Quantiles { p50_us: at(0.5)?, p99_us: at(0.99)?, p999_us: at(0.999)?, max_us })
    }

    /// The time in nanoseconds that this share did not exceed.
    fn at(&self, share: f64) -> Option<u64> {
        let all: u64 = self.counts.iter().sum();
        let wanted = ((all as f64 * share).ceil() as u64).max(1);
        let mut below = 0;
        let found = self.counts.iter().position(|n| {
            below += n;
            below >= wanted
        });
        found.map(upper_end)
    }
}

/// Below 2 x `STEPS` each number has its own; then the highest bits, `BITS` after the first, count.
fn bucket(ns: u64) -> usize {
    let shift = ns.max(1).ilog2().saturating_sub(BITS);
    ((u64::from(shift) * STEPS + (ns >> shift)) as usize).min(BUCKETS - 1)
}

/// The largest number in a bucket.
fn upper_end(bucket: usize) -> u64 {
    let shift = (bucket as u64 / STEPS).saturating_sub(1);
    ((bucket as u64 - shift * STEPS + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_lies_in_its_bucket_and_buckets_are_narrow() {
        for ns in (0..5000).chain((13..39).flat_map(|n| [(1 << n) - 1, 1 << n, (1 << n) + 12_345])) {
            let n = bucket(ns);
            assert!(ns <= upper_end(n), "{ns}");
            assert!(n == 0 || ns > upper_end(n - 1), "{ns}");
            assert!(upper_end(n) as f64 <= ns as f64 * 1.04 + 1.0, "{ns}: {}", upper_end(n));
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_those_of_what_was_added() {
        let mut latency = Latency::new();
        assert!(latency.quantiles().is_none());
        (0..990).for_each(|_| latency.add(Duration::from_nanos(40)));
        let mut slow = Latency::new();
        (0..10).for_each(|_| slow.add(Duration::from_micros(100)));
        latency.merge(&slow);
        let found = latency.quantiles().unwrap();
        assert_eq!((found.p50_us, found.p99_us), (0.04, 0.04));
        assert_eq!((found.p999_us, found.max_us), (100.0, 100.0));
    }
}
