//! Histograms of a fault service: fault latencies and the queue depth of reads.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::stats::add;

/// Buckets of the latency histogram for each doubling of the latency.
const STEPS: u32 = 4;
/// Buckets of the latency histogram, from 1 us to over an hour.
const LATENCIES: usize = 32 * STEPS as usize;
/// Buckets of the queue depth histogram: depths 1 to 63, and one bucket for every depth above.
const DEPTHS: usize = 64;

/// Counts of fault latencies, from the moment a handler takes a fault until its page is mapped, and of queue depths: the
/// reads in flight when a read is started, that read included.
#[derive(Debug)]
pub struct Histograms {
    fault_ns: AtomicU64,
    latencies: [AtomicU64; LATENCIES],
    depth_sum: AtomicU64,
    depths: [AtomicU64; DEPTHS],
    /// Reads that are in flight now.
    reads_in_flight: AtomicU64,
}

impl Default for Histograms {
    fn default() -> Self {
        Self {
            fault_ns: AtomicU64::new(0),
            latencies: [const { AtomicU64::new(0) }; LATENCIES],
            depth_sum: AtomicU64::new(0),
            depths: [const { AtomicU64::new(0) }; DEPTHS],
            reads_in_flight: AtomicU64::new(0),
        }
    }
}

impl Histograms {
    /// Adds the latency of one fault.
    pub fn fault_served(&self, time: Duration) {
        add(&self.fault_ns, time.as_nanos() as u64);
        add(&self.latencies[bucket(time)], 1);
    }

    /// Records the queue depth at the start of a read.
    pub fn read_begins(&self) {
        let depth = self.reads_in_flight.fetch_add(1, Relaxed) + 1;
        add(&self.depth_sum, depth);
        add(&self.depths[(depth as usize).min(DEPTHS) - 1], 1);
    }

    /// Records the completion of such a read.
    pub fn read_ends(&self) {
        self.reads_in_flight.fetch_sub(1, Relaxed);
    }

    /// The running totals: sum of the latencies in nanoseconds, latency buckets, sum of the depths, depth buckets.
    pub fn totals(&self) -> impl Iterator<Item = u64> + '_ {
        let latencies = std::iter::once(&self.fault_ns).chain(&self.latencies);
        let depths = std::iter::once(&self.depth_sum).chain(&self.depths);
        latencies.chain(depths).map(|total| total.load(Relaxed))
    }

    /// Fault latencies: the upper end of each bucket and the faults in it. Empty buckets are left out.
    #[must_use]
    pub fn fault_latency(&self) -> Vec<(Duration, u64)> {
        let counts: Vec<u64> = self.latencies.iter().map(|count| count.load(Relaxed)).collect();
        latency_buckets(&counts)
    }
}

/// A reading of the histograms.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HistogramReading {
    /// Fault latencies: the upper end of each bucket and the faults in it. Empty buckets are left out.
    pub fault_latency: Vec<(Duration, u64)>,
    /// Sum of all fault latencies.
    pub fault_time: Duration,
    /// Each queue depth and the reads started at it. Depth 64 stands for every depth above 63.
    pub queue_depth: Vec<(u64, u64)>,
    /// Sum of all queue depths; depths above 64 count in full.
    pub queue_depth_sum: u64,
}

impl HistogramReading {
    /// Number of totals that [`Histograms::totals`] has.
    pub const TOTALS: usize = 1 + LATENCIES + 1 + DEPTHS;

    /// The reading that these totals encode; they may be sums of the totals of several histograms.
    ///
    /// # Panics
    /// They are not [`HistogramReading::TOTALS`] numbers.
    #[must_use]
    pub fn of(totals: &[u64]) -> Self {
        assert_eq!(totals.len(), Self::TOTALS);
        let (latencies, depths) = totals.split_at(1 + LATENCIES);
        let filled = depths[1..].iter().enumerate().filter(|(_, count)| **count > 0);
        Self {
            fault_latency: latency_buckets(&latencies[1..]),
            fault_time: Duration::from_nanos(latencies[0]),
            queue_depth: filled.map(|(n, count)| (n as u64 + 1, *count)).collect(),
            queue_depth_sum: depths[0],
        }
    }
}

/// The filled buckets of these counts: upper end and faults.
fn latency_buckets(counts: &[u64]) -> Vec<(Duration, u64)> {
    let filled = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    filled.map(|(bucket, count)| (upper_end(bucket), *count)).collect()
}

/// The histogram bucket of a latency: its distance from 1 us in quarters of a doubling. The function avoids `log2`, for which
/// each process would load the mathematics library.
fn bucket(time: Duration) -> usize {
    const QUARTERS: [f64; STEPS as usize - 1] =
        [1.189_207_115_002_721, std::f64::consts::SQRT_2, 1.681_792_830_507_429];
    let us = (time.as_nanos() as f64 / 1e3).max(1.0);
    let doublings = us.to_bits() >> (f64::MANTISSA_DIGITS - 1);
    let fraction = us / f64::from_bits(doublings << (f64::MANTISSA_DIGITS - 1));
    let quarters = QUARTERS.iter().filter(|quarter| fraction >= **quarter).count();
    let doublings = doublings as usize - (f64::MAX_EXP as usize - 1);
    (doublings * STEPS as usize + quarters).min(LATENCIES - 1)
}

/// The upper end of a bucket of the latency histogram.
fn upper_end(bucket: usize) -> Duration {
    Duration::from_secs_f64((((bucket + 1) as f64) / f64::from(STEPS)).exp2() / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PagerStats;

    #[test]
    fn a_latency_lies_in_its_bucket() {
        for us in [1u64, 2, 3, 7, 50, 51, 999, 123_456] {
            let time = Duration::from_micros(us);
            let n = bucket(time);
            assert!(time <= upper_end(n), "{us}");
            assert!(n == 0 || time >= upper_end(n - 1), "{us}");
        }
        for n in 0..LATENCIES - 1 {
            let end = upper_end(n);
            assert_eq!(bucket(end - Duration::from_nanos(1)), n);
            assert_eq!(bucket(end + Duration::from_nanos(1)), n + 1);
        }
        assert_eq!((bucket(Duration::ZERO), bucket(Duration::MAX)), (0, LATENCIES - 1));
        let stats = PagerStats {
            fault_latency: vec![(Duration::from_micros(10), 90), (Duration::from_micros(100), 10)],
            ..PagerStats::default()
        };
        assert_eq!(stats.latency_at(0.5), Some(Duration::from_micros(10)));
        assert_eq!(stats.latency_at(0.99), Some(Duration::from_micros(100)));
        assert_eq!(PagerStats::default().latency_at(0.5), None);
    }
}
