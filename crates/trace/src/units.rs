//! Units as people write them, and back.

use std::fmt;

/// Picoseconds in a nanosecond.
pub const PS_PER_NS: u64 = 1_000;
/// Picoseconds in a microsecond.
pub const PS_PER_US: u64 = 1_000_000;
/// Picoseconds in a millisecond.
pub const PS_PER_MS: u64 = 1_000_000_000;
/// Picoseconds in a second.
pub const PS_PER_S: u64 = 1_000_000_000_000;

/// A number of bytes, displayed with the largest binary unit that keeps it at or above one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(
    /// The number of bytes.
    pub u64,
);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let mut unit = 0;
        while unit + 1 < UNITS.len() && self.0 >> (10 * (unit + 1)) != 0 {
            unit += 1;
        }
        let scale = 1u64 << (10 * unit);
        if self.0.is_multiple_of(scale) {
            write!(f, "{} {}", self.0 / scale, UNITS[unit])
        } else {
            write!(f, "{:.3} {}", self.0 as f64 / scale as f64, UNITS[unit])
        }
    }
}

/// A number and the letters after it: `"2.5MiB"` is `("2.5", "MiB")`.
fn split_unit(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (&text[..end], &text[end..])
}

/// `number * scale`, exact; fractions are allowed where the product is whole.
fn scaled(number: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.len() > 18 {
        return None;
    }
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()?.into() };
    let part: u128 = if fraction.is_empty() { 0 } else { fraction.parse::<u64>().ok()?.into() };
    let ten = 10u128.pow(fraction.len() as u32);
    let part = part * u128::from(scale);
    if !part.is_multiple_of(ten) {
        return None;
    }
    u64::try_from(whole.checked_mul(u128::from(scale))? + part / ten).ok()
}

/// `4096`, `4KiB`, `4K` (binary), `4KB` (decimal), `1.5GiB`.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split_unit(text);
    let scale = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => 0,
    };
    let value = if scale == 0 { None } else { scaled(number, scale) };
    value
        .ok_or_else(|| "a number of bytes such as 4096, 4KiB, 1.5GiB or 1GB (K, M, G are binary)".to_string())
}

/// `1000`, `1k`, `2.5M`, `1G` (decimal).
pub(crate) fn parse_count(text: &str) -> Result<u64, String> {
    let (number, unit) = split_unit(text);
    let scale = match unit {
        "" => 1,
        "k" | "K" => 1_000,
        "m" | "M" => 1_000_000,
        "g" | "G" => 1_000_000_000,
        _ => 0,
    };
    let value = if scale == 0 { None } else { scaled(number, scale) };
    value.ok_or_else(|| "a count such as 1000, 10k, 2.5M or 1G (decimal)".to_string())
}

/// `10us`, `1.5ms`, `0`: picoseconds.
pub(crate) fn parse_time_ps(text: &str) -> Result<u64, String> {
    let (number, unit) = split_unit(text);
    let scale = match unit {
        "" if scaled(number, 1) == Some(0) => 1,
        "ps" => 1,
        "ns" => PS_PER_NS,
        "us" | "µs" => PS_PER_US,
        "ms" => PS_PER_MS,
        "s" => PS_PER_S,
        _ => 0,
    };
    let value = if scale == 0 { None } else { scaled(number, scale) };
    value.ok_or_else(|| "a time with its unit such as 250ns, 10us, 1.5ms or 2s".to_string())
}

/// `20000`, `20k`, `20k/s`: events a second.
pub(crate) fn parse_rate(text: &str) -> Result<f64, String> {
    let per_second = parse_count(text.strip_suffix("/s").unwrap_or(text)).ok().map(|n| n as f64);
    let plain = || text.parse::<f64>().ok();
    per_second
        .or_else(plain)
        .filter(|r| r.is_finite() && *r > 0.0)
        .ok_or_else(|| "a rate per second above 0 such as 20000, 20k or 0.5".to_string())
}

/// `0.7`, `70%`: a share of one.
pub(crate) fn parse_ratio(text: &str) -> Result<f64, String> {
    let value = match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().ok().map(|p| p / 100.0),
        None => text.parse::<f64>().ok(),
    };
    value.filter(|v| (0.0..=1.0).contains(v)).ok_or_else(|| "a share from 0 to 1, or 0% to 100%".to_string())
}

/// The candidate that a misspelt `word` most likely means, if any is near enough.
pub(crate) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > 64 {
        return None;
    }
    let word = word.to_ascii_lowercase();
    candidates
        .into_iter()
        .map(|c| (distance(word.as_bytes(), c.to_ascii_lowercase().as_bytes()), c))
        .filter(|(d, c)| *d <= 1.max(c.len().max(word.len()) / 2))
        .min_by_key(|(d, _)| *d)
        .map(|(_, c)| c)
}

/// Levenshtein's edit distance.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replace = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_counts_times_rates_and_shares_are_read_exactly() {
        assert_eq!(parse_bytes("1.5GiB"), Ok(3 << 29));
        assert_eq!(parse_bytes("4k"), Ok(4096));
        assert_eq!(parse_bytes("4KB"), Ok(4000));
        assert_eq!(parse_count("2.5M"), Ok(2_500_000));
        assert_eq!(parse_time_ps("1.5ms"), Ok(1_500_000_000));
        assert_eq!(parse_time_ps("0"), Ok(0));
        assert_eq!(parse_rate("20k/s"), Ok(20_000.0));
        assert_eq!(parse_rate("0.5"), Ok(0.5));
        assert_eq!(parse_ratio("70%"), Ok(0.7));
    }

    #[test]
    fn nonsense_and_overflow_are_refused() {
        for bad in ["", ".", "4X", "-1", "1..2", "99999999999TiB", "0.3B", "1e3"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
        for bad in ["10", "10min", "us"] {
            assert!(parse_time_ps(bad).is_err(), "{bad}");
        }
        for bad in ["0", "nan", "inf", "-3"] {
            assert!(parse_rate(bad).is_err(), "{bad}");
        }
        for bad in ["1.01", "101%", "NaN"] {
            assert!(parse_ratio(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_nearest_key_is_found_and_a_far_one_is_not() {
        assert_eq!(nearest("thetta", ["span", "theta"]), Some("theta"));
        assert_eq!(nearest("xyzzyplugh", ["span", "theta"]), None);
    }

    #[test]
    fn bytes_are_shown_in_the_largest_unit_at_or_above_one() {
        assert_eq!(Bytes(4096).to_string(), "4 KiB");
        assert_eq!(Bytes(1536).to_string(), "1.500 KiB");
        assert_eq!(Bytes(u64::MAX).to_string(), "16.000 EiB");
        assert_eq!(Bytes(0).to_string(), "0 B");
    }
}
