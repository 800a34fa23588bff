//! Values of axes as quantities: for ranges, comparisons and columns of results.

use deepram_core::units::{Bytes, Picos, SIZE_UNITS, TIME_UNITS, parse_count, parse_rate, split_unit};

use crate::simulation::parse_time;

/// The form of a parameter's values, as far as the parameter fixes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// A size; a number without a unit counts bytes.
    Size,
    /// A time; a number without a unit counts microseconds.
    Time,
    /// A whole number, decimal: `10k` is 10,000.
    Count,
    /// The unit tells.
    Any,
}

/// The unit of a quantity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unit {
    /// No unit.
    Plain,
    /// Bytes.
    Size,
    /// Picoseconds.
    Time,
    /// Another unit, such as `GT/s`.
    Other(String),
}

/// A number with its unit; sizes in bytes, times in picoseconds.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Quantity {
    pub(super) number: f64,
    pub(super) unit: Unit,
}

impl Quantity {
    /// Reads a value of a parameter; `None` for a word.
    pub(super) fn parse(text: &str, form: Form) -> Option<Self> {
        let size = |text: &str| {
            text.parse().ok().map(|Bytes(bytes)| Self { number: bytes as f64, unit: Unit::Size })
        };
        let of_time = |Picos(ps)| Self { number: ps as f64, unit: Unit::Time };
        match form {
            Form::Size => size(text),
            Form::Time => parse_time(text).ok().map(of_time),
            Form::Count => {
                let plain = |number| Self { number, unit: Unit::Plain };
                parse_count(text).map(|n| n as f64).or_else(|_| parse_rate(text)).ok().map(plain)
            }
            Form::Any => {
                let (number, unit) = split_unit(text);
                let number: f64 = number.parse().ok().filter(|number: &f64| number.is_finite())?;
                if unit.is_empty() {
                    return Some(Self { number, unit: Unit::Plain });
                }
                if let Ok(time) = text.parse() {
                    return Some(of_time(time));
                }
                size(text).or_else(|| Some(Self { number, unit: Unit::Other(unit.to_owned()) }))
            }
        }
    }

    /// The quantity as text that the parameter accepts: with the largest unit that leaves a whole number.
    pub(super) fn text(&self) -> String {
        let whole = |units: &[(&'static str, u64, i32)]| {
            // Sizes and times are whole numbers of base units.
            let number = self.number.round().max(0.0) as u64;
            let mut best = (units[0].0, number);
            for &(name, factor, power) in units {
                let one = factor.saturating_mul(10_u64.saturating_pow(power.unsigned_abs()));
                if number > 0 && number.is_multiple_of(one) && number / one < best.1 {
                    best = (name, number / one);
                }
            }
            format!("{}{}", best.1, best.0)
        };
        match &self.unit {
            Unit::Plain => plain(self.number),
            // Powers of 1024 come first in the list, and powers of 1000 are left out.
            Unit::Size => whole(&SIZE_UNITS[..7]),
            Unit::Time => whole(TIME_UNITS),
            Unit::Other(unit) => format!("{} {unit}", plain(self.number)),
        }
    }
}

/// A number with at most nine significant digits, without trailing zeros and without an exponent.
fn plain(number: f64) -> String {
    if number == 0.0 {
        return "0".into();
    }
    let digits = 8 - number.abs().log10().floor() as i32;
    let text = format!("{number:.*}", usize::try_from(digits.clamp(0, 300)).unwrap_or(0));
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any(text: &str) -> Option<Quantity> {
        Quantity::parse(text, Form::Any)
    }

    #[test]
    fn a_quantity_is_written_as_text_that_reads_as_the_same_quantity() {
        for (text, written) in [
            ("16MiB", "16MiB"),
            ("1.5KiB", "1536B"),
            ("1MB", "1000000B"),
            ("30us", "30us"),
            ("1500ns", "1500ns"),
            ("2s", "2s"),
            ("0.1", "0.1"),
            ("8", "8"),
            ("120000", "120000"),
            ("16GT/s", "16 GT/s"),
        ] {
            let quantity = any(text).unwrap();
            assert_eq!(quantity.text(), written);
            assert_eq!(any(written), Some(quantity));
        }
        assert_eq!(plain(0.1 + 0.2), "0.3");
        assert_eq!(plain(-2.5e-7), "-0.00000025");
    }

    #[test]
    fn the_form_of_a_parameter_decides_what_a_letter_means() {
        assert_eq!(Quantity::parse("10k", Form::Count).unwrap().number, 10_000.0);
        assert_eq!(Quantity::parse("10k", Form::Size).unwrap().number, 10_240.0);
        assert_eq!(Quantity::parse("10", Form::Time).unwrap().number, 1e7);
        assert_eq!(any("greedy"), None);
    }
}
