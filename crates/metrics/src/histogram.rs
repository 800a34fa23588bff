//! A histogram of integers, by the upper ends of its buckets.

use std::collections::BTreeMap;
use std::time::Duration;

/// Counts of values by bucket. A key of `counts` is the upper end of a bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Sum of all values.
    pub sum: u64,
    /// Number of values in each bucket, by its upper end.
    pub counts: BTreeMap<u64, u64>,
}

impl Histogram {
    /// A histogram of times in nanoseconds, from their sum and the upper end and count of each bucket.
    #[must_use]
    pub fn of_times(sum: Duration, buckets: &[(Duration, u64)]) -> Self {
        let ns = |time: &Duration| time.as_nanos() as u64;
        Self { sum: ns(&sum), counts: buckets.iter().map(|(end, count)| (ns(end), *count)).collect() }
    }

    /// Number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.values().sum()
    }

    /// A quantile: the upper end of the bucket below which `share` of the values lie. `None` without values.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let all = self.count() as f64;
        let mut below = 0;
        self.counts.iter().find_map(|(end, count)| {
            below += count;
            (*count > 0 && below as f64 >= share * all).then_some(*end)
        })
    }

    /// Mean of the values; `None` without values.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum as f64 / count as f64)
    }

    /// Number of values in buckets that end at or below `end`.
    #[must_use]
    pub fn up_to(&self, end: u64) -> u64 {
        self.counts.range(..=end).map(|(_, count)| count).sum()
    }

    /// Histogram of the values added since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let earlier = |end| before.counts.get(end).copied().unwrap_or(0);
        let counts = self.counts.iter().map(|(end, count)| (*end, count.saturating_sub(earlier(end))));
        Self {
            sum: self.sum.saturating_sub(before.sum),
            counts: counts.filter(|(_, count)| *count > 0).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_means_and_differences() {
        let early = Histogram { sum: 90, counts: [(10, 9)].into() };
        let late = Histogram { sum: 1090, counts: [(10, 9), (100, 1), (900, 1)].into() };
        assert_eq!(
            (late.quantile(0.5), late.quantile(0.9), late.quantile(1.0)),
            (Some(10), Some(100), Some(900))
        );
        assert_eq!((early.mean(), late.up_to(899)), (Some(10.0), 10));
        assert_eq!(late.since(&early), Histogram { sum: 1000, counts: [(100, 1), (900, 1)].into() });
        let none = early.since(&late);
        assert_eq!((none.count(), none.quantile(0.5), none.mean()), (0, None, None));
    }
}
