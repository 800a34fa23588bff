//! Maps values to coordinates on an axis, and chooses its ticks.

/// A linear or logarithmic mapping from values to coordinates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    /// Lowest and highest value shown.
    pub domain: (f64, f64),
    /// Coordinates of `domain`.
    pub range: (f64, f64),
    log: bool,
}

impl Scale {
    /// Creates a scale that shows all values, rounded outwards to ticks. A linear scale starts at 0 if
    /// `from_zero` is set or 0 is near; a logarithmic scale ignores values that are not positive.
    #[must_use]
    pub fn new(values: impl IntoIterator<Item = f64>, log: bool, from_zero: bool, range: (f64, f64)) -> Self {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values {
            if value.is_finite() && (!log || value > 0.0) {
                low = low.min(value);
                high = high.max(value);
            }
        }
        let domain = match (low <= high, log) {
            (false, false) => (0.0, 1.0),
            (false, true) => (1.0, 10.0),
            (true, true) => around_log(low, high),
            (true, false) => around_linear(low, high, from_zero),
        };
        Self { domain, range, log }
    }

    /// Like [`Scale::new`], but without rounding outwards.
    #[must_use]
    pub fn tight(values: impl IntoIterator<Item = f64> + Clone, log: bool, range: (f64, f64)) -> Self {
        let mut scale = Self::new(values.clone(), log, false, range);
        let kept = values.into_iter().filter(|value| value.is_finite() && (!log || *value > 0.0));
        let (low, high) = kept.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
        if low < high {
            scale.domain = (low, high);
        }
        scale
    }

    /// Coordinate of a value; `None` if the axis cannot show it.
    #[must_use]
    pub fn at(&self, value: f64) -> Option<f64> {
        if !value.is_finite() || (self.log && value <= 0.0) {
            return None;
        }
        let of = |x: f64| if self.log { x.log10() } else { x };
        let (low, high) = (of(self.domain.0), of(self.domain.1));
        // Halved, so that the extremes of `f64` do not overflow.
        let share = (of(value) * 0.5 - low * 0.5) / (high * 0.5 - low * 0.5);
        Some(self.range.0 + share * (self.range.1 - self.range.0))
    }

    /// Round values in the domain, about one per `gap` of the coordinate.
    #[must_use]
    pub fn ticks(&self, gap: f64) -> Vec<f64> {
        let room = ((self.range.1 - self.range.0).abs() / gap).floor().max(2.0) as usize;
        let (low, high) = self.domain;
        if self.log { log_ticks(low, high, room) } else { linear_ticks(low, high, room) }
    }
}

/// Smallest of 1, 2, 5 times a power of ten that is at least `step`.
fn round_up(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|&s| s >= step * (1.0 - 1e-9)).unwrap_or(step)
}

fn around_linear(low: f64, high: f64, from_zero: bool) -> (f64, f64) {
    let near = low > 0.0 && low < 0.5 * high || high < 0.0 && high > 0.5 * low;
    let low = if (from_zero || near) && low > 0.0 { 0.0 } else { low };
    let high = if (from_zero || near) && high < 0.0 { 0.0 } else { high };
    let span = high - low;
    if !span.is_finite() {
        return (low, high);
    }
    if span <= 1e-12 * low.abs().max(high.abs()) || span == 0.0 {
        // A single value: extend the domain around it, or from 0.
        let around = if high == 0.0 { 1.0 } else { high.abs() };
        return if from_zero && high > 0.0 { (0.0, round_up(around)) } else { (low - around, high + around) };
    }
    let step = round_up(span / 5.0);
    ((low / step).floor() * step, (high / step).ceil() * step)
}

fn around_log(low: f64, high: f64) -> (f64, f64) {
    // Below two decades, 1, 2 and 5 are bounds as well; otherwise only whole decades.
    let fine = high / low < 100.0;
    let bound = |value: f64, up: bool| {
        let power = 10f64.powf(value.log10().floor());
        let steps: &[f64] = if fine { &[1.0, 2.0, 5.0, 10.0] } else { &[1.0, 10.0] };
        let mut steps = steps.iter().map(|m| m * power);
        if up {
            steps.find(|&s| s >= value * (1.0 - 1e-9)).unwrap_or(value)
        } else {
            steps.rfind(|&s| s <= value * (1.0 + 1e-9)).unwrap_or(value)
        }
    };
    let (low, high) = (bound(low, false), bound(high, true));
    if high > low { (low, high) } else { (low / 10.0, high * 10.0) }
}

fn linear_ticks(low: f64, high: f64, room: usize) -> Vec<f64> {
    let step = round_up((high - low) / room as f64);
    if !(step.is_finite() && step > 0.0) {
        return vec![low, high];
    }
    let first = (low / step - 1e-9).ceil();
    let last = (high / step + 1e-9).floor();
    (0..=(last - first).max(0.0) as usize).map(|n| (first + n as f64) * step).collect()
}

fn log_ticks(low: f64, high: f64, room: usize) -> Vec<f64> {
    let (first, last) = ((low.log10() - 1e-9).ceil() as i32, (high.log10() + 1e-9).floor() as i32);
    let decades = (last - first + 1).max(0) as usize;
    let every = decades.div_ceil(room).max(1);
    let within = |value: &f64| *value >= low * (1.0 - 1e-9) && *value <= high * (1.0 + 1e-9);
    let multiples: &[f64] = if decades * 3 <= room && every == 1 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let ticks: Vec<f64> = (first - 1..=last)
        .filter(|power| (power - first).rem_euclid(every as i32) == 0)
        .flat_map(|power| multiples.iter().map(move |m| m * 10f64.powi(power)))
        .filter(within)
        .collect();
    if ticks.is_empty() { vec![low, high] } else { ticks }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_the_domain_are_ends_of_the_range() {
        let scale = Scale::new([3.0, 97.0], false, true, (10.0, 110.0));
        assert_eq!(scale.domain, (0.0, 100.0));
        assert_eq!((scale.at(0.0), scale.at(50.0), scale.at(100.0)), (Some(10.0), Some(60.0), Some(110.0)));
        assert_eq!(scale.ticks(25.0), [0.0, 50.0, 100.0]);
    }

    #[test]
    fn a_logarithmic_axis_shows_decades() {
        let scale = Scale::new([25.0, 750_000.0, -1.0, 0.0], true, false, (0.0, 500.0));
        assert_eq!(scale.domain, (10.0, 1e6));
        assert_eq!(scale.at(1000.0), Some(200.0));
        assert_eq!(scale.at(0.0), None);
        assert_eq!(scale.ticks(80.0), [10.0, 100.0, 1e3, 1e4, 1e5, 1e6]);
        let few = Scale::new([1.2, 4.0], true, false, (0.0, 300.0));
        assert_eq!(few.domain, (1.0, 5.0));
        assert_eq!(few.ticks(50.0), [1.0, 2.0, 5.0]);
    }

    #[test]
    fn one_value_and_none_have_an_axis() {
        for values in [vec![], vec![0.0], vec![7.0], vec![-3.0]] {
            for (log, zero) in [(false, false), (false, true), (true, false)] {
                let scale = Scale::new(values.clone(), log, zero, (0.0, 100.0));
                assert!(scale.domain.0 < scale.domain.1, "{values:?} {scale:?}");
                assert!(scale.ticks(30.0).len() >= 2, "{values:?} {scale:?}");
            }
        }
    }
}
