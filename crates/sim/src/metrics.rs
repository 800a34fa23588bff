//! The measurements of a run: latencies, and throughput and flash operations over time.

use deepram_core::units::Picos;
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::engine::Time;
use crate::error::SimError;

/// Latencies of requests. Count, mean, deviation, minimum and maximum are exact; percentiles are within
/// 0.1%.
#[derive(Debug, Clone)]
pub struct Latencies {
    /// In units of 100 ps.
    histogram: Histogram<u64>,
    count: u64,
    sum_ps: u128,
    /// Sum of squares, in square nanoseconds.
    squares: f64,
    max_ps: Time,
    min_ps: Time,
}

/// The longest latency that the histogram distinguishes, in units of 100 ps: 10^15 ps, 1000 s.
const MAX_LATENCY: u64 = 10_000_000_000_000;

impl Latencies {
    /// An empty collection.
    ///
    /// # Errors
    /// The bounds used are valid; an error comes from the histogram itself.
    pub fn new() -> Result<Self, SimError> {
        let histogram = Histogram::new_with_bounds(1, MAX_LATENCY, 3)
            .map_err(|error| SimError::config("latency histogram", error.to_string()))?;
        Ok(Self { histogram, count: 0, sum_ps: 0, squares: 0.0, max_ps: 0, min_ps: Time::MAX })
    }

    /// Adds a latency.
    #[inline]
    pub fn add(&mut self, latency: Picos) {
        let latency_ps = latency.0;
        self.count += 1;
        self.sum_ps += u128::from(latency_ps);
        let ns = latency_ps as f64 * 1e-3;
        self.squares += ns * ns;
        self.max_ps = self.max_ps.max(latency_ps);
        self.min_ps = self.min_ps.min(latency_ps);
        self.histogram.saturating_record(latency_ps / 100);
    }

    /// Removes all latencies.
    pub fn clear(&mut self) {
        self.histogram.reset();
        (self.count, self.sum_ps, self.squares) = (0, 0, 0.0);
        (self.max_ps, self.min_ps) = (0, Time::MAX);
    }

    /// Adds all latencies of another collection.
    ///
    /// # Errors
    /// Collections have the same bounds; an error comes from the histogram itself.
    pub fn merge(&mut self, other: &Self) -> Result<(), SimError> {
        self.count += other.count;
        self.sum_ps += other.sum_ps;
        self.squares += other.squares;
        self.max_ps = self.max_ps.max(other.max_ps);
        self.min_ps = self.min_ps.min(other.min_ps);
        self.histogram
            .add(&other.histogram)
            .map_err(|error| SimError::config("latency histogram", error.to_string()))
    }

    /// The number of latencies.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The mean in nanoseconds; 0 without latencies.
    #[must_use]
    pub fn mean_ns(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum_ps as f64 / self.count as f64 / 1e3 }
    }

    /// The sum in picoseconds.
    #[must_use]
    pub fn sum_ps(&self) -> u128 {
        self.sum_ps
    }

    /// The summary that results report.
    #[must_use]
    pub fn summary(&self) -> LatencySummary {
        let mean = self.mean_ns();
        let variance = if self.count == 0 { 0.0 } else { self.squares / self.count as f64 - mean * mean };
        let at = |quantile| {
            let ps = self.histogram.value_at_quantile(quantile).saturating_mul(100);
            ps.min(self.max_ps) as f64 / 1e3
        };
        LatencySummary {
            count: self.count,
            mean_ns: mean,
            deviation_ns: variance.max(0.0).sqrt(),
            min_ns: if self.count == 0 { 0.0 } else { self.min_ps as f64 / 1e3 },
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p95_ns: at(0.95),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            p9999_ns: at(0.9999),
            max_ns: self.max_ps as f64 / 1e3,
        }
    }
}

/// Summary of latencies as results report it. Percentiles are within 0.1% of the exact ones.
#[derive(Debug, Clone, PartialEq, Serialize, Default)]
pub struct LatencySummary {
    /// Number of requests.
    pub count: u64,
    /// Mean.
    pub mean_ns: f64,
    /// Standard deviation.
    pub deviation_ns: f64,
    /// Minimum.
    pub min_ns: f64,
    /// Median.
    pub p50_ns: f64,
    /// 90th percentile.
    pub p90_ns: f64,
    /// 95th percentile.
    pub p95_ns: f64,
    /// 99th percentile.
    pub p99_ns: f64,
    /// 99.9th percentile.
    pub p999_ns: f64,
    /// 99.99th percentile.
    pub p9999_ns: f64,
    /// Maximum.
    pub max_ns: f64,
}

/// One interval of a run's time series.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Interval {
    /// End of the interval.
    pub end_ns: f64,
    /// Requests completed in the interval.
    pub completed: u64,
    /// Bytes of the completed requests.
    pub bytes: u64,
    /// Mean latency of the completed requests.
    pub mean_ns: f64,
    /// Maximum latency of the completed requests.
    pub max_ns: f64,
    /// Flash pages programmed in the interval, for any cause.
    pub flash_programs: u64,
    /// Flash blocks erased in the interval.
    pub flash_erases: u64,
}

/// Collects a time series of equal intervals. At most [`TimeSeries::MAX_INTERVALS`] are kept: beyond
/// that, neighbouring intervals are merged and the length doubles, so the memory of a long run is
/// bounded.
#[derive(Debug, Clone)]
pub struct TimeSeries {
    start: Time,
    length: Time,
    end: Time,
    current: Bin,
    bins: Vec<Bin>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Bin {
    completed: u64,
    bytes: u64,
    sum_ps: u128,
    max_ps: Time,
    programs: u64,
    erases: u64,
}

impl Bin {
    fn merge(&mut self, other: Bin) {
        self.completed += other.completed;
        self.bytes += other.bytes;
        self.sum_ps += other.sum_ps;
        self.max_ps = self.max_ps.max(other.max_ps);
        self.programs += other.programs;
        self.erases += other.erases;
    }
}

impl TimeSeries {
    /// The maximum number of intervals kept.
    pub const MAX_INTERVALS: usize = 4096;

    /// Intervals of `length` from time `start` on.
    #[must_use]
    pub fn new(start: Picos, length: Picos) -> Self {
        let (start, length) = (start.0, length.0.max(1));
        Self { start, length, end: start + length, current: Bin::default(), bins: Vec::new() }
    }

    /// True if an interval has ended by `now` and [`TimeSeries::close`] must be called.
    #[inline]
    pub fn is_due(&self, now: Picos) -> bool {
        now.0 >= self.end
    }

    /// Closes the intervals that ended by `now`. `programs` and `erases` count the flash operations
    /// since the last close; they are attributed to the first closed interval.
    pub fn close(&mut self, now: Picos, programs: u64, erases: u64) {
        self.current.programs += programs;
        self.current.erases += erases;
        while now.0 >= self.end {
            self.bins.push(std::mem::take(&mut self.current));
            if self.bins.len() == Self::MAX_INTERVALS {
                self.merge_pairs();
            }
            self.end = self.start + self.length * (self.bins.len() as u64 + 1);
        }
    }

    fn merge_pairs(&mut self) {
        let joined: Vec<Bin> = self
            .bins
            .chunks(2)
            .map(|pair| {
                let mut bin = pair[0];
                if let Some(second) = pair.get(1) {
                    bin.merge(*second);
                }
                bin
            })
            .collect();
        self.bins = joined;
        self.length *= 2;
    }

    /// Adds a request that completes at the present.
    #[inline]
    pub fn add(&mut self, latency: Picos, bytes: u64) {
        let latency_ps = latency.0;
        self.current.completed += 1;
        self.current.bytes += bytes;
        self.current.sum_ps += u128::from(latency_ps);
        self.current.max_ps = self.current.max_ps.max(latency_ps);
    }

    /// The intervals; the last one ends at `now`.
    #[must_use]
    pub fn finish(mut self, now: Picos, programs: u64, erases: u64) -> Vec<Interval> {
        self.close(now, programs, erases);
        let mut ends: Vec<Time> =
            (1..=self.bins.len() as u64).map(|n| self.start + n * self.length).collect();
        if self.current.completed > 0 || self.current.programs > 0 || self.current.erases > 0 {
            self.bins.push(self.current);
            ends.push(now.0);
        }
        ends.iter()
            .zip(&self.bins)
            .map(|(end, bin)| Interval {
                end_ns: *end as f64 / 1e3,
                completed: bin.completed,
                bytes: bin.bytes,
                mean_ns: if bin.completed == 0 {
                    0.0
                } else {
                    bin.sum_ps as f64 / bin.completed as f64 / 1e3
                },
                max_ns: bin.max_ps as f64 / 1e3,
                flash_programs: bin.programs,
                flash_erases: bin.erases,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_deviation_and_extremes_are_exact_and_percentiles_close() {
        let mut latencies = Latencies::new().unwrap();
        for us in 1..=10_000u64 {
            latencies.add(Picos(us * 1_000_000));
        }
        let summary = latencies.summary();
        assert_eq!(summary.mean_ns, 5_000_500.0);
        assert_eq!((summary.min_ns, summary.max_ns), (1_000.0, 10_000_000.0));
        // The variance of 1..n is (n^2 - 1) / 12.
        let deviation = ((1e8f64 - 1.0) / 12.0).sqrt() * 1e3;
        assert!((summary.deviation_ns - deviation).abs() < 1e-6 * deviation);
        for (found, exact) in [(summary.p50_ns, 5e6), (summary.p99_ns, 9.9e6), (summary.p9999_ns, 9.999e6)] {
            assert!((found - exact).abs() <= 0.001 * exact, "{found} {exact}");
        }
    }

    #[test]
    fn a_series_keeps_all_that_happened_when_intervals_are_joined() {
        let mut series = TimeSeries::new(Picos(0), Picos(10));
        let mut time = Picos(0);
        for _ in 0..100_000 {
            time = time + Picos(3);
            if series.is_due(time) {
                series.close(time, 2, 1);
            }
            series.add(Picos(5), 1);
        }
        let intervals = series.finish(time, 0, 0);
        assert!(intervals.len() <= TimeSeries::MAX_INTERVALS);
        assert_eq!(intervals.iter().map(|i| i.completed).sum::<u64>(), 100_000);
        assert_eq!(
            intervals.iter().map(|i| i.flash_programs).sum::<u64>(),
            2 * intervals.iter().map(|i| i.flash_erases).sum::<u64>()
        );
        assert!(intervals.windows(2).all(|pair| pair[0].end_ns <= pair[1].end_ns));
    }
}
