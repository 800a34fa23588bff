//! Distributions of sizes and inter-arrival times.

use serde::Serialize;

/// Classes of an octave.
const PER_OCTAVE: u64 = 16;
/// Values below this one have a class each.
const EXACT: u64 = 2 * PER_OCTAVE;

/// The class of a value: values below 32 have a class each, larger ones share 16 classes an octave, each at most 6.25 %
/// wide.
#[inline]
pub(super) fn class_of(value: u64) -> usize {
    if value < EXACT {
        return value as usize;
    }
    let octave = value.ilog2() - EXACT.ilog2();
    (EXACT + u64::from(octave) * PER_OCTAVE + ((value >> (octave + 1)) - PER_OCTAVE)) as usize
}

/// The smallest and the largest value of a class.
pub(super) fn class_bounds(class: usize) -> (u64, u64) {
    let class = class as u64;
    if class < EXACT {
        return (class, class);
    }
    let (octave, within) = ((class - EXACT) / PER_OCTAVE, (class - EXACT) % PER_OCTAVE);
    let low = (PER_OCTAVE + within) << (octave + 1);
    (low, low + ((1 << (octave + 1)) - 1))
}

/// Counts of values by class, with exact sum, minimum and maximum.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum: u128,
    range: Option<(u64, u64)>,
}

impl Histogram {
    /// Counts a value.
    #[inline]
    pub fn add(&mut self, value: u64) {
        let class = class_of(value);
        if class >= self.counts.len() {
            self.counts.resize(class + 1, 0);
        }
        self.counts[class] += 1;
        self.count += 1;
        self.sum += u128::from(value);
        self.range = Some(self.range.map_or((value, value), |(low, high)| (low.min(value), high.max(value))));
    }

    /// Adds the values of another histogram.
    pub fn merge(&mut self, other: &Self) {
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.range = match (self.range, other.range) {
            (Some((low, high)), Some((lower, higher))) => Some((low.min(lower), high.max(higher))),
            (one, other) => one.or(other),
        };
    }

    /// The distribution; `None` without values.
    #[must_use]
    pub fn distribution(&self) -> Option<Distribution> {
        let (min, max) = self.range?;
        let quantile = |share: f64| {
            let rank = (share * self.count as f64).ceil().max(1.0) as u64;
            let mut sum = 0;
            let class = self.counts.iter().position(|count| {
                sum += count;
                sum >= rank
            });
            class.map_or(max, |class| class_bounds(class).1.min(max))
        };
        let classes = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        Some(Distribution {
            count: self.count,
            min,
            mean: self.sum as f64 / self.count as f64,
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            max,
            classes: classes
                .map(|(class, &count)| ValueClass {
                    from: class_bounds(class).0,
                    to: class_bounds(class).1,
                    count,
                })
                .collect(),
        })
    }
}

/// A distribution of values. Minimum, mean and maximum are exact; a quantile is the upper end of its class, at most
/// 6.25 % above the exact one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Distribution {
    /// Number of values.
    pub count: u64,
    /// Smallest value.
    pub min: u64,
    /// Mean value.
    pub mean: f64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Largest value.
    pub max: u64,
    /// The classes that have values, in ascending order.
    pub classes: Vec<ValueClass>,
}

/// Number of values in a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ValueClass {
    /// Smallest value of the class.
    pub from: u64,
    /// Largest value of the class.
    pub to: u64,
    /// Number of values.
    pub count: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_follow_each_other_and_hold_their_values() {
        let mut next = 0u64;
        for class in 0.. {
            let (low, high) = class_bounds(class);
            assert_eq!(low, next, "class {class}");
            assert_eq!((class_of(low), class_of(high)), (class, class));
            assert!((high - low) as f64 <= low as f64 / 16.0);
            match high.checked_add(1) {
                Some(after) => next = after,
                None => break,
            }
        }
    }
}
