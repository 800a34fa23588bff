//! Parsing of quantities with units, for every option and file of deepram.
//!
//! A quantity is a number, an optional blank, and a unit. Fractions are exact, and allowed if the result
//! is whole: `1.5KiB` is 1536 bytes, `0.3B` is an error. As in coreutils, `K` and `KiB` are powers of
//! 1024 and `KB` is 1000, in either case; units of time are case-sensitive.

use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use super::{Bytes, Decimal, Picos};

/// A unit: its name, factor and power. One unit is factor x 10^power base units.
pub type Unit = (&'static str, u64, i32);

/// The units of [`Bytes`], in the spelling of presets.
pub const SIZE_UNITS: &[Unit] = &[
    ("B", 1, 0),
    ("KiB", 1 << 10, 0),
    ("MiB", 1 << 20, 0),
    ("GiB", 1 << 30, 0),
    ("TiB", 1 << 40, 0),
    ("PiB", 1 << 50, 0),
    ("EiB", 1 << 60, 0),
    ("kB", 1, 3),
    ("MB", 1, 6),
    ("GB", 1, 9),
    ("TB", 1, 12),
    ("PB", 1, 15),
    ("EB", 1, 18),
];

/// The units of [`Picos`].
pub const TIME_UNITS: &[Unit] = &[
    ("ps", 1, 0),
    ("ns", 1, 3),
    ("us", 1, 6),
    // The micro sign, and the Greek letter that looks like it.
    ("\u{b5}s", 1, 6),
    ("\u{3bc}s", 1, 6),
    ("ms", 1, 9),
    ("s", 1, 12),
];

const COUNT_UNITS: &[Unit] = &[("", 1, 0), ("k", 1, 3), ("M", 1, 6), ("G", 1, 9)];

/// A text that is not a quantity of the expected kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseUnitError {
    text: String,
    name: &'static str,
    wanted: &'static str,
}

impl ParseUnitError {
    /// The accepted form, with examples: "a time with its unit such as 250ns".
    #[must_use]
    pub fn wanted(&self) -> &'static str {
        self.wanted
    }
}

impl fmt::Display for ParseUnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a {}: expected {}", self.text, self.name, self.wanted)
    }
}

impl core::error::Error for ParseUnitError {}

/// A kind of quantity: its name and accepted form, for error messages.
struct Quantity {
    name: &'static str,
    wanted: &'static str,
}

const SIZE: Quantity = Quantity {
    name: "size",
    wanted: "a number of bytes such as 4096, 4KiB, 1.5GiB or 1GB (K, M, G, T, P are powers of 1024; KB, MB, GB of 1000)",
};
const TIME: Quantity =
    Quantity { name: "time", wanted: "a time with its unit such as 250ns, 10us, 1.5ms or 2s" };
const COUNT: Quantity =
    Quantity { name: "count", wanted: "a whole number such as 1000, 10k, 2.5M or 1G (decimal)" };
const RATE: Quantity =
    Quantity { name: "rate", wanted: "a rate per second above 0 such as 20000, 20k or 0.5" };
const SHARE: Quantity = Quantity { name: "share", wanted: "a share from 0 to 1, or 0% to 100%" };

impl Quantity {
    fn error(&self, text: &str) -> ParseUnitError {
        ParseUnitError { text: text.chars().take(40).collect(), name: self.name, wanted: self.wanted }
    }

    /// Parses a number and a unit to whole base units. `scale` gives the factor and power of a unit.
    fn whole(&self, text: &str, scale: impl Fn(&str) -> Option<(u64, i32)>) -> Result<u64, ParseUnitError> {
        let (number, unit) = split_unit(text);
        scale(unit)
            .zip(Decimal::parse(number).ok())
            .and_then(|((factor, power), number)| number.whole(factor, power).ok())
            .and_then(|value| u64::try_from(value).ok())
            .ok_or_else(|| self.error(text))
    }
}

fn unit_named(units: &[Unit], name: &str) -> Option<(u64, i32)> {
    units.iter().find(|(unit, ..)| *unit == name).map(|&(_, factor, power)| (factor, power))
}

fn size_unit(name: &str) -> Option<(u64, i32)> {
    let is = |unit: &str| {
        let short = unit.strip_suffix("iB").is_some_and(|letter| {
            name.eq_ignore_ascii_case(letter)
                || name.strip_suffix(['i', 'I']).is_some_and(|n| n.eq_ignore_ascii_case(letter))
        });
        short || name.eq_ignore_ascii_case(unit)
    };
    if name.is_empty() {
        return Some((1, 0));
    }
    SIZE_UNITS.iter().find(|(unit, ..)| is(unit)).map(|&(_, factor, power)| (factor, power))
}

/// Splits a quantity into number and unit: `2.5 MiB` is `2.5` and `MiB`; `1e-3s` is `1e-3` and `s`.
#[must_use]
pub fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text
        .char_indices()
        .find(|&(at, c)| {
            let exponent = matches!(c, 'e' | 'E')
                && at > 0
                && text[at + 1..].starts_with(|c: char| c.is_ascii_digit() || c == '-');
            let sign = c == '-' && text[..at].ends_with(['e', 'E']);
            !(c.is_ascii_digit() || c == '.' || c == '_' || exponent || sign)
        })
        .map_or(text.len(), |(at, _)| at);
    (text[..end].trim(), text[end..].trim())
}

impl FromStr for Bytes {
    type Err = ParseUnitError;

    /// Parses a size such as `4096`, `4KiB`, `4k`, `1.5GiB` or `1GB`.
    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        SIZE.whole(text, size_unit).map(Self)
    }
}

impl FromStr for Picos {
    type Err = ParseUnitError;

    /// Parses a duration such as `10us` or `1.5ms`; only zero needs no unit.
    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let (number, unit) = split_unit(text);
        if unit.is_empty() && Decimal::parse(number).is_ok_and(|n| n.whole(1, 0) == Ok(0)) {
            return Ok(Self(0));
        }
        TIME.whole(text, |unit| unit_named(TIME_UNITS, unit)).map(Self)
    }
}

/// Parses a count with decimal multiples: `1000`, `1k`, `2.5M`, `1G`.
///
/// # Errors
/// [`ParseUnitError`] unless the text is a whole number below 2^64.
pub fn parse_count(text: &str) -> Result<u64, ParseUnitError> {
    COUNT.whole(text, |unit| unit_named(COUNT_UNITS, if unit == "K" { "k" } else { unit }))
}

/// Parses a rate in events a second: `20000`, `20k`, `20k/s`, `0.5`.
///
/// # Errors
/// [`ParseUnitError`] unless the text is a number above zero.
pub fn parse_rate(text: &str) -> Result<f64, ParseUnitError> {
    let trimmed = text.trim();
    let (number, unit) = split_unit(trimmed.strip_suffix("/s").unwrap_or(trimmed));
    unit_named(COUNT_UNITS, if unit == "K" { "k" } else { unit })
        .zip(Decimal::parse(number).ok())
        .map(|((factor, power), number)| number.real(factor, power))
        .filter(|rate| rate.is_finite() && *rate > 0.0)
        .ok_or_else(|| RATE.error(text))
}

/// Parses a share: `0.7`, `70%`.
///
/// # Errors
/// [`ParseUnitError`] unless the text is a number from 0 to 1.
pub fn parse_share(text: &str) -> Result<f64, ParseUnitError> {
    let (number, unit) = split_unit(text);
    unit_named(&[("", 1, 0), ("%", 1, -2)], unit)
        .zip(Decimal::parse(number).ok())
        .map(|((factor, power), number)| number.real(factor, power))
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| SHARE.error(text))
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn sizes_are_read_in_the_usual_spellings() {
        for (text, bytes) in [
            ("0", 0),
            ("17", 17),
            ("64k", 64 << 10),
            ("4K", 4096),
            ("512M", 512 << 20),
            ("512MB", 512_000_000),
            ("4kb", 4000),
            ("4GiB", 4 << 30),
            (" 2 gib ", 2 << 30),
            ("2Gi", 2 << 30),
            ("1T", 1 << 40),
            ("12 b", 12),
            ("1.5GiB", 3 << 29),
            ("15E", 15 << 60),
            ("1e3", 1000),
        ] {
            assert_eq!(text.parse::<Bytes>(), Ok(Bytes(bytes)), "{text}");
        }
    }

    #[test]
    fn every_unit_that_a_preset_may_spell_is_read() {
        for &(name, factor, power) in SIZE_UNITS {
            let value = factor * 10u64.pow(power.unsigned_abs());
            assert_eq!(alloc::format!("1 {name}").parse(), Ok(Bytes(value)), "{name}");
        }
        for &(name, factor, power) in TIME_UNITS {
            let value = factor * 10u64.pow(power.unsigned_abs());
            assert_eq!(alloc::format!("1{name}").parse(), Ok(Picos(value)), "{name}");
        }
    }

    #[test]
    fn times_counts_rates_and_shares_are_read_exactly() {
        assert_eq!("1.5ms".parse(), Ok(Picos(1_500_000_000)));
        assert_eq!("0.2384 us".parse(), Ok(Picos(238_400)));
        assert_eq!("0".parse(), Ok(Picos(0)));
        assert_eq!(parse_count("2.5M"), Ok(2_500_000));
        assert_eq!(parse_count("3K"), Ok(3000));
        assert_eq!(parse_rate("20k/s"), Ok(20_000.0));
        assert_eq!(parse_rate("0.5"), Ok(0.5));
        assert_eq!(parse_share("70%"), Ok(0.7));
        assert_eq!(parse_share("1"), Ok(1.0));
    }

    #[test]
    fn what_is_no_quantity_is_an_error_that_says_so() {
        let sizes = [
            "",
            ".",
            "G",
            "-1",
            "4X",
            "4 Gibi",
            "1..2",
            "0.3B",
            "99999999999999999999",
            "99999999P",
            "1é",
            "nan",
        ];
        for text in sizes {
            let error = text.parse::<Bytes>().unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("4KiB"), "{error}");
        }
        for text in ["10", "10min", "us", "1US", "-1us", "1e30s", "0.1ps"] {
            let error = text.parse::<Picos>().unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("10us"), "{error}");
        }
        for text in ["", "0.5", "1KiB", "-3", "1e20"] {
            assert!(parse_count(text).unwrap_err().to_string().contains("10k"), "{text}");
        }
        for text in ["0", "nan", "inf", "-3", "1/h", "9e400"] {
            assert!(parse_rate(text).unwrap_err().to_string().contains("20k"), "{text}");
        }
        for text in ["1.01", "101%", "NaN", "-0.1", "5 %%"] {
            assert!(parse_share(text).unwrap_err().to_string().contains("100%"), "{text}");
        }
    }

    #[test]
    fn a_number_splits_from_its_unit() {
        for (text, number, unit) in [
            ("30us", "30", "us"),
            ("2.5 ms", "2.5", "ms"),
            ("1e-3s", "1e-3", "s"),
            ("1E", "1", "E"),
            ("5", "5", ""),
            ("", "", ""),
            ("µs", "", "µs"),
        ] {
            assert_eq!(split_unit(text), (number, unit));
        }
    }
}
