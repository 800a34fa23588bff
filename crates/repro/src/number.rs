//! Formats numbers for readers.

/// Three significant digits, with separators of thousands: `1,230,000`, `85.4`, `0.00123`, `1.2e-7`.
#[must_use]
pub fn plain(x: f64) -> String {
    significant(x, 3)
}

/// Six significant digits, for exact values.
#[must_use]
pub fn precise(x: f64) -> String {
    significant(x, 6)
}

fn significant(x: f64, wanted: i32) -> String {
    if x == 0.0 || !x.is_finite() {
        return if x == 0.0 { "0".into() } else { "–".into() };
    }
    let size = x.abs();
    if !(1e-4..1e12).contains(&size) {
        return trim(&format!("{x:.*e}", (wanted - 1) as usize));
    }
    // Round first: 999.7 has four digits before the point once it is 1,000.
    let digits = size.log10().floor() as i32;
    let unit = 10f64.powi(digits + 1 - wanted);
    let rounded = if size < 1e15 { (x / unit).round() * unit } else { x };
    let digits = rounded.abs().log10().floor() as i32;
    let decimals = (wanted - 1 - digits).max(0) as usize;
    separated(&trim(&format!("{rounded:.decimals$}")))
}

/// The number followed by its unit, if there is one.
#[must_use]
pub fn with_unit(x: f64, unit: &str) -> String {
    if unit.is_empty() { plain(x) } else { format!("{} {unit}", plain(x)) }
}

/// Each number followed by the unit, separated by commas.
#[must_use]
pub fn list_with_unit(values: &[f64], unit: &str) -> String {
    let shown: Vec<String> = values.iter().map(|&value| with_unit(value, unit)).collect();
    shown.join(", ")
}

/// A relative difference: `+12 %`, `−3.4 %`, `0 %`.
#[must_use]
pub fn difference(share: f64) -> String {
    let percent = share * 100.0;
    if percent.abs() < 0.005 {
        return "0 %".into();
    }
    let sign = if percent < 0.0 { "−" } else { "+" };
    let size = percent.abs();
    let text = if size < 10.0 { plain((size * 10.0).round().max(1.0) / 10.0) } else { plain(size.round()) };
    format!("{sign}{text} %")
}

/// A short label of an axis tick.
#[must_use]
pub fn tick(x: f64) -> String {
    let size = x.abs();
    let (scaled, suffix) = match size {
        s if s >= 1e12 => return trim(&format!("{x:e}")),
        s if s >= 1e9 => (x / 1e9, " G"),
        s if s >= 1e6 => (x / 1e6, " M"),
        s if s >= 1e4 => (x / 1e3, " k"),
        s if s >= 1e-4 || s == 0.0 => (x, ""),
        _ => return trim(&format!("{x:e}")),
    };
    // Nine decimals: ticks are round numbers, and further digits are rounding errors.
    let text = trim(&format!("{scaled:.9}"));
    let text = if suffix.is_empty() { separated(&text) } else { text };
    format!("{}{suffix}", text.replace('-', "−"))
}

/// Removes trailing zeros of the fraction.
fn trim(text: &str) -> String {
    let (number, exponent) = text.split_once('e').map_or((text, None), |(n, e)| (n, Some(e)));
    let number =
        if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    exponent.map_or_else(|| number.to_owned(), |e| format!("{number}e{e}"))
}

/// Inserts commas between groups of three digits.
fn separated(text: &str) -> String {
    let (sign, rest) = text.strip_prefix('-').map_or(("", text), |rest| ("−", rest));
    let (whole, fraction) = rest.split_once('.').map_or((rest, ""), |(w, f)| (w, f));
    let mut out = String::from(sign);
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_separators() {
        let shown = [0.0, 1.0, 85.4, 999.7, 1234.0, 1_234_567.0, 0.001_234_5, -12.345, 1.2e-7].map(plain);
        assert_eq!(shown, ["0", "1", "85.4", "1,000", "1,230", "1,230,000", "0.00123", "−12.3", "1.2e-7"]);
        assert_eq!(with_unit(85.4, "us"), "85.4 us");
        assert_eq!(with_unit(3.0, ""), "3");
    }

    #[test]
    fn exact_values_have_six_digits() {
        assert_eq!([132.511_04, 16.0, 1_234_567.8].map(precise), ["132.511", "16", "1,234,570"]);
    }

    #[test]
    fn differences_have_a_sign() {
        assert_eq!(
            [0.0, 0.123, -0.034, 12.0, 0.000_01].map(difference),
            ["0 %", "+12 %", "−3.4 %", "+1,200 %", "0 %"]
        );
    }

    #[test]
    fn ticks_are_short() {
        assert_eq!(
            [0.0, 0.1, 750.0, 1000.0, 75_000.0, 2.5e6, -3.0].map(tick),
            ["0", "0.1", "750", "1,000", "75 k", "2.5 M", "−3"]
        );
        assert_eq!(tick(0.1 + 0.2), "0.3");
    }
}
