//! Constraints between parameters: `dram < set.pool.data`, `4 * threads <= depth`, `preset != slc`.

use std::cmp::Ordering;

use super::key::short;
use super::quantity::{Form, Quantity};

/// The comparisons, those of two characters first.
const COMPARISONS: [(&str, Comparison); 6] = [
    ("<=", Comparison::AtMost),
    (">=", Comparison::AtLeast),
    ("==", Comparison::Equal),
    ("!=", Comparison::Different),
    ("<", Comparison::Less),
    (">", Comparison::More),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Less,
    AtMost,
    Equal,
    Different,
    AtLeast,
    More,
}

impl Comparison {
    fn holds(self, order: Ordering) -> bool {
        match self {
            Comparison::Less => order.is_lt(),
            Comparison::AtMost => order.is_le(),
            Comparison::Equal => order.is_eq(),
            Comparison::Different => order.is_ne(),
            Comparison::AtLeast => order.is_ge(),
            Comparison::More => order.is_gt(),
        }
    }
}

/// A side of a comparison: a factor times a parameter or value.
#[derive(Debug, Clone, PartialEq)]
struct Side {
    factor: Option<f64>,
    name: String,
}

/// A comparison of two sides. A side that is no parameter of the sweep is a value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Constraint {
    left: Side,
    comparison: Comparison,
    right: Side,
}

impl Constraint {
    /// Parses a constraint.
    ///
    /// # Errors
    /// The text says what is wrong, and what would be right.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let example =
            "expected two sides and one of < <= > >= == !=, such as `dram < 4GiB` or `2 * threads <= depth`";
        let wrong = || format!("constraint `{}`: {example}", short(text));
        let (at, sign, comparison) = text
            .char_indices()
            .find_map(|(at, _)| {
                let (sign, comparison) = COMPARISONS.iter().find(|(sign, _)| text[at..].starts_with(sign))?;
                Some((at, *sign, *comparison))
            })
            .ok_or_else(wrong)?;
        let side = |text: &str| {
            let (factor, name) = match text.split_once('*') {
                Some((factor, name)) => {
                    let factor: f64 = factor.trim().parse().ok()?;
                    (Some(factor).filter(|factor| factor.is_finite()).map(Some)?, name.trim())
                }
                None => (None, text.trim()),
            };
            let plain = !name.is_empty() && !name.contains(['<', '>', '=', '!', '*']);
            plain.then(|| Side { factor, name: name.to_owned() })
        };
        let left = side(&text[..at]).ok_or_else(wrong)?;
        let right = side(&text[at + sign.len()..]).ok_or_else(wrong)?;
        Ok(Self { left, comparison, right })
    }

    /// The names of both sides.
    pub(super) fn names(&self) -> [&str; 2] {
        [&self.left.name, &self.right.name]
    }

    /// Whether the constraint holds. `value` gives the value of a parameter with its form; `None` for a name that is no
    /// parameter.
    ///
    /// # Errors
    /// The sides are not comparable.
    pub(super) fn holds<'a>(
        &'a self,
        value: impl Fn(&str) -> Option<(&'a str, Form)>,
    ) -> Result<bool, String> {
        let (left, right) = (value(&self.left.name), value(&self.right.name));
        // A value has the form of the parameter that it is compared with.
        let form = |own: Option<(&str, Form)>, other: Option<(&str, Form)>| {
            own.or(other).map_or(Form::Any, |(_, form)| form)
        };
        let quantity = |side: &Side, own: Option<(&str, Form)>, form| {
            let quantity = Quantity::parse(own.map_or(side.name.as_str(), |(text, _)| text), form)?;
            Some(Quantity { number: quantity.number * side.factor.unwrap_or(1.0), ..quantity })
        };
        let numbers =
            (quantity(&self.left, left, form(left, right)), quantity(&self.right, right, form(right, left)));
        let text =
            |side: &'a Side, own: Option<(&'a str, Form)>| own.map_or(side.name.as_str(), |(text, _)| text);
        let (a, b) = (text(&self.left, left), text(&self.right, right));
        match numbers {
            (Some(left), Some(right)) if left.unit == right.unit => {
                let order = left.number.partial_cmp(&right.number).unwrap_or(Ordering::Equal);
                Ok(self.comparison.holds(order))
            }
            (Some(_), Some(_)) => Err(format!("{a} and {b} have different units")),
            _ if self.left.factor.or(self.right.factor).is_some() => {
                Err(format!("{a} or {b} is a word, which has no multiple"))
            }
            _ if matches!(self.comparison, Comparison::Equal | Comparison::Different) => {
                Ok(self.comparison.holds(a.cmp(b)))
            }
            _ => Err(format!("{a} or {b} is a word, which == and != compare")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(text: &str) -> Result<bool, String> {
        let values = |name: &str| match name {
            "dram" => Some(("16M", Form::Size)),
            "requests" => Some(("10k", Form::Count)),
            "threads" => Some(("4", Form::Any)),
            "preset" => Some(("slc", Form::Any)),
            _ => None,
        };
        Constraint::parse(text)?.holds(values)
    }

    #[test]
    fn comparisons_know_units_and_factors() {
        for (text, expected) in [
            ("dram < 17MiB", true),
            ("dram < 16MiB", false),
            ("dram <= 16MiB", true),
            ("2 * dram > 32MiB", false),
            ("dram >= 2 * 8M", true),
            ("requests == 10000", true),
            ("threads != 4", false),
            ("preset == slc", true),
            ("preset != tlc", true),
        ] {
            assert_eq!(holds(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_compared_is_an_error() {
        for (text, part) in [
            ("dram", "expected two sides"),
            ("dram < ", "expected two sides"),
            ("dram < threads < 4", "expected two sides"),
            ("x * dram < 4", "expected two sides"),
            ("dram < 30us", "is a word"),
            ("threads < dram", "different units"),
            ("preset < tlc", "== and !="),
            ("2 * preset == tlc", "no multiple"),
        ] {
            let error = holds(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
