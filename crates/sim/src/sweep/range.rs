//! Ranges of an axis: linear, logarithmic, powers of two.

use super::quantity::{Form, Quantity, Unit};

/// The most values of an axis.
pub(super) const MAX_VALUES: usize = 100_000;

/// The size that logarithmic steps of sizes are rounded to, if both ends are multiples of it.
const PAGE: f64 = 4096.0;

/// A range as the specification gives it.
#[derive(Debug, Default)]
pub(super) struct Range {
    pub(super) from: Option<String>,
    pub(super) to: Option<String>,
    pub(super) step: Option<String>,
    pub(super) points: Option<usize>,
    pub(super) scale: Option<String>,
}

/// The names of the scales.
pub(super) const SCALES: [&str; 3] = ["linear", "log", "powers-of-two"];

impl Range {
    /// The values of the range as texts.
    ///
    /// # Errors
    /// The text says what is missing or wrong, and what would be right.
    pub(super) fn values(&self, form: Form) -> Result<Vec<String>, String> {
        let end = |name: &str, text: &Option<String>| {
            let text = text.as_deref().ok_or_else(|| format!("a range needs `{name}`"))?;
            Quantity::parse(text, form).ok_or_else(|| {
                format!("{name} = {text:?} is not a quantity; give words as a list: [\"a\", \"b\"]")
            })
        };
        let (from, to) = (end("from", &self.from)?, end("to", &self.to)?);
        if from.unit != to.unit {
            return Err("`from` and `to` have different units; give both in the same".into());
        }
        if from.number > to.number {
            return Err("`from` is above `to`; exchange them".into());
        }
        let scale = self.scale.as_deref().unwrap_or("linear");
        let numbers = match scale {
            "linear" => self.linear(&from, &to, form)?,
            "log" => self.log(&from, &to)?,
            _ => self.powers(&from, &to)?,
        };
        let mut values: Vec<String> =
            numbers.into_iter().map(|number| Quantity { number, unit: from.unit.clone() }.text()).collect();
        values.dedup();
        Ok(values)
    }

    fn linear(&self, from: &Quantity, to: &Quantity, form: Form) -> Result<Vec<f64>, String> {
        let length = to.number - from.number;
        let (step, count) = match (&self.step, self.points) {
            (Some(_), Some(_)) => return Err("a linear range has either `step` or `points`".into()),
            (None, Some(points)) => (spacing(length, points)?, points),
            (step, None) => {
                let step = match step {
                    Some(text) => {
                        Quantity::parse(text, form)
                            .filter(|step| step.unit == from.unit && step.number > 0.0)
                            .ok_or_else(|| {
                                format!("step = {text:?} is not a quantity above 0 in the unit of `from`")
                            })?
                            .number
                    }
                    None if from.unit == Unit::Plain => 1.0,
                    None => return Err("a linear range with units needs `step` or `points`".into()),
                };
                // A quotient that rounding has put just below a whole number still reaches the end.
                let steps = (length / step * (1.0 + 1e-12)).floor();
                if steps >= MAX_VALUES as f64 {
                    return Err(too_many());
                }
                (step, steps as usize + 1)
            }
        };
        Ok((0..count).map(|n| from.number + step * n as f64).collect())
    }

    fn log(&self, from: &Quantity, to: &Quantity) -> Result<Vec<f64>, String> {
        self.without("step", self.step.is_some(), "log")?;
        let points = self.points.ok_or("a range with scale = \"log\" needs `points`")?;
        if from.number <= 0.0 {
            return Err("a logarithmic range begins above 0".into());
        }
        let step = spacing((to.number / from.number).ln(), points)?;
        let is_whole = |grain: f64| [from, to].iter().all(|end| (end.number / grain).fract() == 0.0);
        let grain = match from.unit {
            Unit::Size if is_whole(PAGE) => PAGE,
            _ if is_whole(1.0) => 1.0,
            _ => 0.0,
        };
        let value = |n: usize| match n {
            0 => from.number,
            n if n + 1 == points => to.number,
            n => {
                let number = from.number * (step * n as f64).exp();
                if grain > 0.0 { (number / grain).round() * grain } else { number }
            }
        };
        Ok((0..points).map(value).collect())
    }

    fn powers(&self, from: &Quantity, to: &Quantity) -> Result<Vec<f64>, String> {
        self.without("step", self.step.is_some(), "powers-of-two")?;
        self.without("points", self.points.is_some(), "powers-of-two")?;
        if from.number <= 0.0 {
            return Err("a range of powers of two begins above 0".into());
        }
        let doubled = std::iter::successors(Some(from.number), |number| Some(number * 2.0));
        Ok(doubled.take_while(|number| *number <= to.number).collect())
    }

    fn without(&self, name: &str, given: bool, scale: &str) -> Result<(), String> {
        if given {
            Err(format!("a range with scale = \"{scale}\" has no `{name}`; leave it out"))
        } else {
            Ok(())
        }
    }
}

fn too_many() -> String {
    format!("the range has more than {MAX_VALUES} values, the limit of an axis; take larger steps")
}

/// The distance between neighbours of `points` values over a length.
fn spacing(length: f64, points: usize) -> Result<f64, String> {
    match points {
        0 => Err("points = 0: a range has at least one point".into()),
        points if points > MAX_VALUES => Err(too_many()),
        1 if length > 0.0 => {
            Err("points = 1: a range from one value to another has at least two points".into())
        }
        1 => Ok(0.0),
        points => Ok(length / (points - 1) as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(from: &str, to: &str) -> Range {
        Range { from: Some(from.into()), to: Some(to.into()), ..Range::default() }
    }

    fn values(range: Range) -> Vec<String> {
        range.values(Form::Any).unwrap()
    }

    #[test]
    fn ranges_have_the_values_that_their_scale_says() {
        assert_eq!(values(range("1", "4")), ["1", "2", "3", "4"]);
        let tenths = Range { step: Some("0.1".into()), ..range("0.1", "0.5") };
        assert_eq!(values(tenths), ["0.1", "0.2", "0.3", "0.4", "0.5"]);
        let sizes = Range { points: Some(3), ..range("16MiB", "1GiB") };
        assert_eq!(values(sizes), ["16MiB", "520MiB", "1GiB"]);
        let log = Range { points: Some(4), scale: Some("log".into()), ..range("1us", "1ms") };
        assert_eq!(values(log), ["1us", "10us", "100us", "1ms"]);
        let powers = Range { scale: Some("powers-of-two".into()), ..range("16MiB", "100MiB") };
        assert_eq!(values(powers), ["16MiB", "32MiB", "64MiB"]);
    }

    #[test]
    fn a_wrong_range_is_an_error_that_says_what_would_be_right() {
        let of = |range: Range| range.values(Form::Any).unwrap_err();
        for (range, part) in [
            (Range { from: None, ..range("1", "2") }, "needs `from`"),
            (range("2", "1"), "exchange them"),
            (range("1us", "2MiB"), "different units"),
            (range("1us", "2us"), "`step` or `points`"),
            (range("greedy", "lru"), "as a list"),
            (Range { points: Some(0), ..range("1", "2") }, "at least one"),
            (Range { points: Some(1), ..range("1", "2") }, "at least two"),
            (Range { step: Some("0".into()), ..range("1", "2") }, "above 0"),
            (range("1", "1000000000"), "larger steps"),
            (Range { scale: Some("log".into()), ..range("1", "2") }, "needs `points`"),
            (Range { scale: Some("log".into()), points: Some(3), ..range("0", "2") }, "above 0"),
            (
                Range { scale: Some("powers-of-two".into()), points: Some(3), ..range("1", "2") },
                "no `points`",
            ),
        ] {
            let error = of(range);
            assert!(error.contains(part), "{error}");
        }
    }
}
