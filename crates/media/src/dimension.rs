//! Dimensions and units: the valid units of a figure, and the factor of each to the base unit.

use deepram_core::units::{self, SIZE_UNITS, TIME_UNITS};

/// The physical dimension of a figure. Each variant names the base unit in which values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dimension {
    /// Whole picoseconds.
    Time,
    /// Whole picojoules.
    Energy,
    /// Whole bytes.
    Size,
    /// Whole transfers a second.
    TransferRate,
    /// A whole number of at least one: planes, cycles, bits, queue entries.
    Count,
    /// Picojoules a bit.
    EnergyPerBit,
    /// Bytes a second.
    Bandwidth,
    /// Watts.
    Power,
    /// Watts a byte: leakage that grows with capacity.
    PowerDensity,
    /// Amperes.
    Current,
    /// Volts.
    Voltage,
    /// A share, 0 to 1.
    Fraction,
    /// A number without a unit: an exponent or a ratio.
    Factor,
    /// US dollars a byte.
    Price,
    /// The year of a price.
    Year,
    /// Revolutions a minute.
    Rotation,
    /// True or false.
    Flag,
    /// One of these words.
    Name(&'static [&'static str]),
}

/// A unit: the base unit times `factor` x 10^`power`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unit {
    pub(crate) factor: u64,
    pub(crate) power: i32,
}

const KI: u64 = 1 << 10;
const MI: u64 = 1 << 20;
const GI: u64 = 1 << 30;
const TI: u64 = 1 << 40;

impl Dimension {
    fn table(self) -> &'static [units::Unit] {
        match self {
            Dimension::Time => TIME_UNITS,
            Dimension::Energy => &[
                ("pJ", 1, 0),
                ("nJ", 1, 3),
                ("uJ", 1, 6),
                ("µJ", 1, 6),
                ("μJ", 1, 6),
                ("mJ", 1, 9),
                ("J", 1, 12),
            ],
            Dimension::Size => SIZE_UNITS,
            Dimension::TransferRate => {
                &[("T/s", 1, 0), ("MT/s", 1, 6), ("GT/s", 1, 9), ("Mb/s", 1, 6), ("Gb/s", 1, 9)]
            }
            Dimension::Count => &[("count", 1, 0), ("bit", 1, 0), ("cycles", 1, 0)],
            Dimension::EnergyPerBit => &[("pJ/bit", 1, 0), ("nJ/bit", 1, 3)],
            Dimension::Bandwidth => {
                &[("B/s", 1, 0), ("MB/s", 1, 6), ("GB/s", 1, 9), ("MiB/s", MI, 0), ("GiB/s", GI, 0)]
            }
            Dimension::Power => &[("W", 1, 0), ("mW", 1, -3), ("uW", 1, -6), ("µW", 1, -6)],
            // 1 mW/MiB = 1e-3 / 2^20 W/B, and 2^-20 is 5^20 x 10^-20.
            Dimension::PowerDensity => {
                &[("W/B", 1, 0), ("mW/MiB", 95_367_431_640_625, -23), ("mW/MB", 1, -9)]
            }
            Dimension::Current => &[("A", 1, 0), ("mA", 1, -3), ("uA", 1, -6)],
            Dimension::Voltage => &[("V", 1, 0), ("mV", 1, -3)],
            Dimension::Fraction => &[("fraction", 1, 0), ("%", 1, -2)],
            Dimension::Factor => &[("factor", 1, 0)],
            // 2^-30 is 5^30 x 10^-30, which does not fit; a gigabyte of memory is priced as 10^9 B.
            Dimension::Price => &[("USD/GB", 1, -9), ("USD/TB", 1, -12)],
            Dimension::Year => &[("year", 1, 0)],
            Dimension::Rotation => &[("rpm", 1, 0)],
            Dimension::Flag => &[("flag", 1, 0)],
            Dimension::Name(_) => &[("name", 1, 0)],
        }
    }

    /// The valid units of a figure of this dimension, for error messages.
    pub fn expected(self) -> &'static str {
        match self {
            Dimension::Time => "ps, ns, us, ms or s",
            Dimension::Energy => "pJ, nJ, uJ, mJ or J",
            Dimension::Size => "B, KiB, MiB, GiB, TiB, kB, MB, GB or TB",
            Dimension::TransferRate => "T/s, MT/s, GT/s, Mb/s or Gb/s",
            Dimension::Count => "count, bit or cycles",
            Dimension::EnergyPerBit => "pJ/bit or nJ/bit",
            Dimension::Bandwidth => "B/s, MB/s, GB/s, MiB/s or GiB/s",
            Dimension::Power => "W, mW or uW",
            Dimension::PowerDensity => "W/B, mW/MiB or mW/MB",
            Dimension::Current => "A, mA or uA",
            Dimension::Voltage => "V or mV",
            Dimension::Fraction => "fraction or %",
            Dimension::Factor => "factor",
            Dimension::Price => "USD/GB or USD/TB",
            Dimension::Year => "year",
            Dimension::Rotation => "rpm",
            Dimension::Flag => "flag",
            Dimension::Name(_) => "name",
        }
    }

    pub(crate) fn unit(self, text: &str) -> Option<Unit> {
        self.table().iter().find(|(name, ..)| *name == text).map(|&(_, factor, power)| Unit { factor, power })
    }

    /// The unit of a number without unit in an override; `None` if the dimension requires a unit.
    pub(crate) fn bare_unit(self) -> Option<&'static str> {
        match self {
            Dimension::Count => Some("count"),
            Dimension::Fraction => Some("fraction"),
            Dimension::Factor => Some("factor"),
            Dimension::Year => Some("year"),
            Dimension::Flag => Some("flag"),
            Dimension::Name(_) => Some("name"),
            _ => None,
        }
    }

    /// The largest valid value in base units, for dimensions with whole values. Products of a few such
    /// values fit in 128 bits.
    pub(crate) fn whole_limit(self) -> Option<u64> {
        match self {
            // Eleven days; no operation of a device takes longer.
            Dimension::Time => Some(1_000_000_000_000_000_000),
            Dimension::Energy => Some(1_000_000_000_000_000_000),
            Dimension::Size => Some(1 << 56),
            Dimension::TransferRate => Some(1_000_000_000_000_000),
            Dimension::Count => Some(1 << 40),
            Dimension::Year => Some(9999),
            Dimension::Rotation => Some(1_000_000),
            _ => None,
        }
    }

    /// A value in base units as number and unit, in the largest unit that the value reaches.
    pub fn in_readable_unit(self, value: f64) -> (String, &'static str) {
        let steps: &[(&'static str, f64)] = match self {
            Dimension::Time => &[("ps", 1.0), ("ns", 1e3), ("us", 1e6), ("ms", 1e9), ("s", 1e12)],
            Dimension::Energy => &[("pJ", 1.0), ("nJ", 1e3), ("uJ", 1e6), ("mJ", 1e9)],
            Dimension::Size => {
                &[("B", 1.0), ("KiB", KI as f64), ("MiB", MI as f64), ("GiB", GI as f64), ("TiB", TI as f64)]
            }
            Dimension::TransferRate => &[("T/s", 1.0), ("MT/s", 1e6), ("GT/s", 1e9)],
            Dimension::Bandwidth => &[("B/s", 1.0), ("MB/s", 1e6), ("GB/s", 1e9)],
            Dimension::Power => &[("uW", 1e-6), ("mW", 1e-3), ("W", 1.0)],
            Dimension::Current => &[("uA", 1e-6), ("mA", 1e-3), ("A", 1.0)],
            Dimension::Price => &[("USD/GB", 1e-9)],
            other => return (digits(value), other.table()[0].0),
        };
        let (unit, scale) =
            steps.iter().rev().find(|(_, scale)| value >= *scale).copied().unwrap_or(steps[0]);
        (digits(value / scale), unit)
    }
}

/// The value with at most seven significant digits, without trailing zeros.
fn digits(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let magnitude = value.abs().log10().floor() as i32;
    let places = (6 - magnitude).clamp(0, 12) as usize;
    let text = format!("{value:.places$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_expected_list_names_real_units() {
        for dimension in [
            Dimension::Time,
            Dimension::Energy,
            Dimension::Size,
            Dimension::TransferRate,
            Dimension::Count,
            Dimension::EnergyPerBit,
            Dimension::Bandwidth,
            Dimension::Power,
            Dimension::PowerDensity,
            Dimension::Current,
            Dimension::Voltage,
            Dimension::Fraction,
            Dimension::Factor,
            Dimension::Price,
            Dimension::Year,
            Dimension::Rotation,
            Dimension::Flag,
            Dimension::Name(&[]),
        ] {
            for unit in dimension.expected().split(", ").flat_map(|u| u.split(" or ")) {
                assert!(dimension.unit(unit).is_some(), "{dimension:?} {unit}");
            }
            if let Some(bare) = dimension.bare_unit() {
                assert!(dimension.unit(bare).is_some());
            }
            for value in [0.0, 0.5, 1.0, 1234.5, 8.2e13] {
                let (_, unit) = dimension.in_readable_unit(value);
                assert!(dimension.unit(unit).is_some(), "{dimension:?} {unit}");
            }
        }
    }

    #[test]
    fn a_milliwatt_a_mebibyte_is_what_it_says() {
        let unit = Dimension::PowerDensity.unit("mW/MiB").unwrap();
        let watts = unit.factor as f64 * 10f64.powi(unit.power);
        assert!((watts * 1_048_576.0 / 1e-3 - 1.0).abs() < 1e-12);
    }

    #[test]
    fn humane_values_pick_the_fitting_unit() {
        assert_eq!(Dimension::Time.in_readable_unit(25e6), ("25".into(), "us"));
        assert_eq!(Dimension::Size.in_readable_unit(8192.0), ("8".into(), "KiB"));
        assert_eq!(Dimension::Bandwidth.in_readable_unit(984_615_384.6), ("984.6154".into(), "MB/s"));
    }
}
