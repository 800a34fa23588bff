//! Decimal numbers, parsed exactly: `0.2384` us is 238,400 ps and not 238,399.99999999997.

use alloc::format;
use alloc::string::String;

/// A non-negative decimal number: `digits` x 10^`exponent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decimal {
    digits: u128,
    exponent: i32,
}

impl Decimal {
    /// Parses `12`, `0.25`, `1e7` or `2.5e-3`. Underscores between digits are allowed, a minus sign is
    /// not.
    ///
    /// # Errors
    /// A message that quotes the text, if it is not such a number or has more than 38 digits.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad = || {
            format!("`{}` is not a non-negative decimal number", text.chars().take(40).collect::<String>())
        };
        if text.len() > 80 {
            return Err(bad());
        }
        let text = text.strip_prefix('+').unwrap_or(text);
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => {
                let exponent: i32 = exponent.replace('_', "").parse().map_err(|_| bad())?;
                (mantissa, exponent)
            }
            None => (text, 0),
        };
        if !(-60..=60).contains(&exponent) {
            return Err(bad());
        }
        let (mut digits, mut places, mut seen, mut point) = (0u128, 0i32, false, false);
        for c in mantissa.chars() {
            match c {
                '0'..='9' => {
                    seen = true;
                    digits = digits
                        .checked_mul(10)
                        .and_then(|d| d.checked_add(u128::from(c as u32 - '0' as u32)))
                        .ok_or_else(bad)?;
                    places += i32::from(point);
                }
                '.' if !point => point = true,
                '_' if seen => {}
                _ => return Err(bad()),
            }
        }
        if !seen {
            return Err(bad());
        }
        Ok(Self { digits, exponent: exponent - places })
    }

    /// The number times `factor` x 10^`power`, which must be a whole number.
    ///
    /// # Errors
    /// [`Inexact`] if the product is not a whole number of 128 bits.
    pub fn whole(self, factor: u64, power: i32) -> Result<u128, Inexact> {
        let mut value = self.digits.checked_mul(u128::from(factor)).ok_or(Inexact::TooLarge)?;
        let exponent = self.exponent + power;
        for _ in 0..exponent.max(0) {
            if value == 0 {
                break;
            }
            value = value.checked_mul(10).ok_or(Inexact::TooLarge)?;
        }
        for _ in 0..(-exponent).max(0) {
            if value == 0 {
                break;
            }
            if value % 10 != 0 {
                return Err(Inexact::Fraction);
            }
            value /= 10;
        }
        Ok(value)
    }

    /// The floating-point number nearest to this number times `factor` x 10^`power`.
    #[must_use]
    pub fn real(self, factor: u64, power: i32) -> f64 {
        // Parsing the decimal form rounds correctly on every machine; powi does not.
        let scaled: f64 =
            format!("{}e{}", self.digits, self.exponent + power).parse().unwrap_or(f64::INFINITY);
        scaled * factor as f64
    }
}

/// The reason why a number has no whole value in the base unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inexact {
    /// The value exceeds 128 bits.
    TooLarge,
    /// The value has a fractional part.
    Fraction,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_scale_without_rounding() {
        let d = Decimal::parse("0.2384").unwrap();
        assert_eq!(d.whole(1, 6), Ok(238_400));
        assert_eq!(d.whole(1, 3), Err(Inexact::Fraction));
        assert_eq!(Decimal::parse("1e7").unwrap().whole(1, 0), Ok(10_000_000));
        assert_eq!(Decimal::parse("2.50").unwrap().whole(1, 1), Ok(25));
        assert_eq!(Decimal::parse("1_000").unwrap().whole(1024, 0), Ok(1_024_000));
        assert_eq!(Decimal::parse("0").unwrap().whole(1, 60), Ok(0));
        assert_eq!(Decimal::parse("0.833").unwrap().real(1, -9), 0.833e-9);
    }

    #[test]
    fn what_is_no_decimal_is_refused() {
        for text in ["", ".", "-1", "1.2.3", "1e", "e3", "nan", "inf", "0x10", "1e99", "_1"] {
            assert!(Decimal::parse(text).is_err(), "{text}");
        }
        assert!(Decimal::parse(&"9".repeat(41)).is_err());
        assert!(Decimal::parse(&"9".repeat(1000)).is_err());
    }
}
