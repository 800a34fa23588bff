//! Dirty bytes in volatile memory over time: what a power cut would lose.

use serde::Serialize;

use crate::engine::Time;

/// Samples of a series. When they are used up, every second one is dropped and the interval doubles.
const SAMPLES: usize = 512;
/// The first interval between samples, picoseconds: 1 us.
const FIRST_INTERVAL: Time = 1_000_000;

/// Data that a power cut would lose, as reported.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct AtRisk {
    /// Maximum, bytes.
    pub max_bytes: u64,
    /// Mean over time, bytes.
    pub mean_bytes: f64,
    /// Interval of the series.
    pub interval_ns: f64,
    /// Bytes at the start of measuring and after each interval.
    pub series_bytes: Vec<u64>,
}

/// Follows a number of bytes over time, in bounded memory.
pub(crate) struct VolatileData {
    bytes: u64,
    max: u64,
    /// Bytes times picoseconds.
    area: u128,
    start: Time,
    changed: Time,
    interval: Time,
    next: Time,
    samples: Vec<u64>,
}

impl VolatileData {
    pub(crate) fn new() -> Self {
        Self {
            bytes: 0,
            max: 0,
            area: 0,
            start: 0,
            changed: 0,
            interval: FIRST_INTERVAL,
            next: 0,
            samples: Vec::with_capacity(SAMPLES),
        }
    }

    /// The present number of bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Sets the number of bytes at `now`, which does not go back.
    #[inline]
    pub(crate) fn set(&mut self, bytes: u64, now: Time) {
        if bytes == self.bytes {
            return;
        }
        self.advance(now);
        self.bytes = bytes;
        self.max = self.max.max(bytes);
    }

    #[inline]
    fn advance(&mut self, now: Time) {
        if now >= self.next {
            self.sample(now);
        }
        self.area += u128::from(self.bytes) * u128::from(now - self.changed);
        self.changed = now;
    }

    /// Takes the samples due by `now`.
    fn sample(&mut self, now: Time) {
        while self.next <= now {
            if self.samples.len() == SAMPLES {
                let mut index = 0;
                self.samples.retain(|_| {
                    index += 1;
                    index % 2 == 1
                });
                self.interval *= 2;
                self.next = self.start + self.interval * self.samples.len() as u64;
                continue;
            }
            self.samples.push(self.bytes);
            self.next += self.interval;
        }
    }

    /// Forgets the past of `now`.
    pub(crate) fn begin_measuring(&mut self, now: Time) {
        let bytes = self.bytes;
        *self = Self { bytes, max: bytes, start: now, changed: now, next: now, ..Self::new() };
    }

    /// The report over `time` since measuring began.
    pub(crate) fn report(&self, time: Time) -> AtRisk {
        let rest = u128::from(self.bytes) * u128::from((self.start + time).saturating_sub(self.changed));
        let mean_bytes = if time == 0 { self.bytes as f64 } else { (self.area + rest) as f64 / time as f64 };
        AtRisk {
            max_bytes: self.max,
            mean_bytes,
            interval_ns: self.interval as f64 / 1e3,
            series_bytes: self.samples.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_maximum_and_samples_follow_a_step_function() {
        let mut data = VolatileData::new();
        data.set(100, 2_500_000);
        data.set(40, 4_500_000);
        let report = data.report(10_000_000);
        assert_eq!((report.max_bytes, report.interval_ns), (100, 1e3));
        // 2.5 us of 0, 2 us of 100, 5.5 us of 40.
        assert!((report.mean_bytes - 42.0).abs() < 1e-9, "{}", report.mean_bytes);
        assert_eq!(report.series_bytes, [0, 0, 0, 100, 100]);
    }

    #[test]
    fn memory_is_bounded_and_samples_stay_at_their_times() {
        let mut data = VolatileData::new();
        // The bytes are the microseconds.
        for now in 1..=100_000u64 {
            data.set(now, now * 1_000_000);
        }
        let report = data.report(100_000_000_000);
        assert!(report.series_bytes.len() <= SAMPLES && report.series_bytes.len() >= SAMPLES / 4);
        let step = (report.interval_ns / 1e3) as u64;
        // A change at the moment of a sample counts as later.
        for (sample, index) in report.series_bytes.iter().zip(0u64..) {
            assert_eq!(*sample, (index * step).saturating_sub(1), "sample {index}");
        }
        assert!((report.mean_bytes - 49_999.5).abs() < 1.0);
    }

    #[test]
    fn measuring_begins_with_the_present_bytes() {
        let mut data = VolatileData::new();
        data.set(500, 1_000);
        data.set(30, 5_000);
        data.begin_measuring(10_000);
        let report = data.report(1_000);
        assert_eq!((report.max_bytes, report.mean_bytes), (30, 30.0));
    }
}
