//! Goals: bounds on the figures of a hierarchy, written as `p99=200us,years=5`.

use std::fmt;
use std::str::FromStr;

use deepram_core::suggest::nearest;
use deepram_core::units::{Picos, split_unit};
use serde::Serialize;

use super::Figures;

/// A figure that a goal bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Mean latency.
    Mean,
    /// 99th percentile of the latency.
    P99,
    /// Lifetime.
    Years,
    /// Price.
    Price,
    /// Mean power.
    Watts,
}

impl Metric {
    /// All metrics.
    pub const ALL: [Metric; 5] = [Metric::Mean, Metric::P99, Metric::Years, Metric::Price, Metric::Watts];

    /// The metric's key in a target.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Metric::Mean => "mean",
            Metric::P99 => "p99",
            Metric::Years => "years",
            Metric::Price => "price",
            Metric::Watts => "watts",
        }
    }

    /// The metric's name in a sentence.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Metric::Mean => "mean latency",
            Metric::P99 => "p99 latency",
            Metric::Years => "lifetime",
            Metric::Price => "price",
            Metric::Watts => "power",
        }
    }

    /// The figure: nanoseconds, years, US dollars or watts. Without wear the lifetime is infinite.
    #[must_use]
    pub fn of(self, figures: &Figures) -> f64 {
        match self {
            Metric::Mean => figures.mean_ns,
            Metric::P99 => figures.p99_ns,
            Metric::Years => figures.years.unwrap_or(f64::INFINITY),
            Metric::Price => figures.usd,
            Metric::Watts => figures.watts,
        }
    }

    /// Whether the bound is the least acceptable value; otherwise it is the largest.
    #[must_use]
    pub const fn at_least(self) -> bool {
        matches!(self, Metric::Years)
    }

    /// A value of the metric with its unit.
    #[must_use]
    pub fn show(self, value: f64) -> String {
        match self {
            Metric::Mean | Metric::P99 => show_time(value),
            Metric::Years if value.is_finite() => format!("{} years", three_digits(value)),
            Metric::Years => "no wear".into(),
            Metric::Price => format!("{value:.2} USD"),
            Metric::Watts => format!("{} W", three_digits(value)),
        }
    }

    /// Parses a bound of the metric. The error says what would be right.
    fn parse(self, text: &str) -> Result<f64, String> {
        let (units, example): (&[&str], &str) = match self {
            Metric::Mean | Metric::P99 => {
                let time = text.parse::<Picos>().map_err(|error| error.to_string())?;
                return match time.0 {
                    0 => Err("expected a time above 0, such as 200us".into()),
                    ps => Ok(ps as f64 / 1e3),
                };
            }
            Metric::Years => (&["", "y", "years"], "5"),
            Metric::Price => (&["", "USD", "usd"], "25"),
            Metric::Watts => (&["", "W", "w"], "0.5"),
        };
        let (number, unit) = split_unit(text);
        let value = number.parse::<f64>().ok().filter(|value| value.is_finite() && *value > 0.0);
        value
            .filter(|_| units.contains(&unit))
            .ok_or_else(|| format!("{text:?} is not a number of {} above 0, such as {example}", self.unit()))
    }

    const fn unit(self) -> &'static str {
        match self {
            Metric::Mean | Metric::P99 => "nanoseconds",
            Metric::Years => "years",
            Metric::Price => "US dollars",
            Metric::Watts => "watts",
        }
    }
}

/// A time in nanoseconds with the unit that keeps it at 1 or above.
#[must_use]
pub fn show_time(ns: f64) -> String {
    for (unit, size) in [("s", 1e9), ("ms", 1e6), ("µs", 1e3)] {
        if ns >= size {
            return format!("{} {unit}", three_digits(ns / size));
        }
    }
    format!("{} ns", three_digits(ns))
}

/// A number with three significant digits, or with all digits before the point.
#[must_use]
pub fn three_digits(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let before_point = value.abs().log10().floor() as i32 + 1;
    format!("{value:.*}", usize::try_from(3 - before_point).unwrap_or(0).min(9))
}

/// Bounds that a hierarchy must keep, all of them.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Goals(Vec<(Metric, f64)>);

/// A goal that a hierarchy misses.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Shortfall {
    /// The metric.
    pub metric: Metric,
    /// The bound.
    pub bound: f64,
    /// The hierarchy's value.
    pub value: f64,
}

impl Shortfall {
    /// The factor by which the value misses the bound; above 1.
    #[must_use]
    pub fn factor(&self) -> f64 {
        if self.metric.at_least() { self.bound / self.value } else { self.value / self.bound }
    }
}

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { metric, bound, value } = *self;
        let side = if metric.at_least() { "below" } else { "above" };
        let percent = (value / bound - 1.0).abs() * 100.0;
        let by = if self.factor() >= 2.0 {
            format!("by a factor of {}", three_digits(self.factor()))
        } else {
            format!("by {} %", three_digits(percent))
        };
        write!(f, "{} {} is {side} {}, {by}", metric.label(), metric.show(value), metric.show(bound))
    }
}

impl Goals {
    /// Whether there are no goals.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bound of a metric, if it is a goal.
    #[must_use]
    pub fn bound(&self, metric: Metric) -> Option<f64> {
        self.0.iter().find(|(other, _)| *other == metric).map(|(_, bound)| *bound)
    }

    /// The goals that `figures` misses, in the order of the target.
    #[must_use]
    pub fn missed(&self, figures: &Figures) -> Vec<Shortfall> {
        let missed = |&(metric, bound): &(Metric, f64)| {
            let value = metric.of(figures);
            let kept = if metric.at_least() { value >= bound } else { value <= bound };
            (!kept).then_some(Shortfall { metric, bound, value })
        };
        self.0.iter().filter_map(missed).collect()
    }
}

impl FromStr for Goals {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut goals: Vec<(Metric, f64)> = Vec::new();
        for part in text.split(',') {
            let Some((key, value)) = part.split_once('=') else {
                return Err(format!("expected KEY=VALUE such as p99=200us, found {part:?}"));
            };
            let (key, value) = (key.trim(), value.trim());
            let Some(metric) = Metric::ALL.into_iter().find(|metric| metric.name() == key) else {
                let names = Metric::ALL.map(Metric::name);
                let near =
                    nearest(key, names).map_or_else(String::new, |near| format!("; did you mean {near}?"));
                return Err(format!("there is no goal {key:?}{near} (known: {})", names.join(", ")));
            };
            if goals.iter().any(|(other, _)| *other == metric) {
                return Err(format!("{key} is given twice"));
            }
            goals.push((metric, metric.parse(value).map_err(|error| format!("{key}: {error}"))?));
        }
        Ok(Self(goals))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIGURES: Figures = Figures {
        mean_ns: 100.0,
        p99_ns: 250_000.0,
        energy_nj: 1.0,
        watts: 2.0,
        years: Some(4.0),
        usd: 10.0,
    };

    #[test]
    fn a_target_is_parsed_with_and_without_units() {
        let goals: Goals = "p99=200us, years=5,price=25USD,watts=0.5W,mean=1.5ms".parse().unwrap();
        let expected = [
            (Metric::P99, 200_000.0),
            (Metric::Years, 5.0),
            (Metric::Price, 25.0),
            (Metric::Watts, 0.5),
            (Metric::Mean, 1_500_000.0),
        ];
        assert_eq!(goals.0, expected);
    }

    #[test]
    fn a_wrong_target_is_an_error_that_says_what_would_be_right() {
        for (text, expected) in [
            ("p98=200us", "did you mean p99?"),
            ("p99", "expected KEY=VALUE"),
            ("", "expected KEY=VALUE"),
            ("p99=200", "p99: "),
            ("p99=0us", "above 0"),
            ("years=five", "years: \"five\" is not a number of years above 0, such as 5"),
            ("price=-1", "above 0"),
            ("watts=1kW", "number of watts"),
            ("years=5,years=6", "years is given twice"),
            ("speed=3", "known: mean, p99, years, price, watts"),
        ] {
            let error = text.parse::<Goals>().unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_missed_goal_says_by_how_much() {
        let goals: Goals = "p99=200us,years=10,price=10".parse().unwrap();
        let missed = goals.missed(&FIGURES);
        let texts: Vec<String> = missed.iter().map(ToString::to_string).collect();
        let years = "lifetime 4.00 years is below 10.0 years, by a factor of 2.50";
        assert_eq!(texts, ["p99 latency 250 µs is above 200 µs, by 25.0 %", years]);
        let no_wear = Figures { years: None, p99_ns: 200_000.0, ..FIGURES };
        assert!(goals.missed(&no_wear).is_empty(), "a bound is inclusive, and no wear lasts for ever");
    }

    #[test]
    fn numbers_have_three_digits_or_all_before_the_point() {
        let texts = [0.0, 0.012_34, 0.1234, 1.234, 12.34, 123.4, 1234.5].map(three_digits);
        assert_eq!(texts, ["0", "0.0123", "0.123", "1.23", "12.3", "123", "1234"]);
        assert_eq!([999.0, 1500.0, 2e6, 3e9].map(show_time), ["999 ns", "1.50 µs", "2.00 ms", "3.00 s"]);
    }
}
