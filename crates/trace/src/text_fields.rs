//! Parses the fields of text traces from bytes without allocating. Errors say what was expected.

/// Why a field or line is invalid, and what is expected.
pub(crate) type Reason = String;

/// At most `max` bytes of the text, with control and non-ASCII bytes escaped.
pub(crate) fn shorten(text: &[u8], max: usize) -> String {
    let mut out: String = text[..text.len().min(max)].escape_ascii().to_string();
    if text.len() > max {
        out.push_str("...");
    }
    out
}

/// Removes blanks at both ends.
pub(crate) fn trim(text: &[u8]) -> &[u8] {
    text.trim_ascii()
}

/// Splits at runs of blanks into at most `N` fields; returns the fields and their total number.
pub(crate) fn blank_fields<const N: usize>(line: &[u8]) -> ([&[u8]; N], usize) {
    let mut fields: [&[u8]; N] = [&[]; N];
    let mut count = 0;
    let parts = line.split(|b| b.is_ascii_whitespace()).filter(|f| !f.is_empty());
    for field in parts {
        if count < N {
            fields[count] = field;
        }
        count += 1;
    }
    (fields, count)
}

/// Splits at commas into at most `N` trimmed fields; returns the fields and their total number.
pub(crate) fn comma_fields<const N: usize>(line: &[u8]) -> ([&[u8]; N], usize) {
    let mut fields: [&[u8]; N] = [&[]; N];
    let mut count = 0;
    for field in line.split(|b| *b == b',') {
        if count < N {
            fields[count] = trim(field);
        }
        count += 1;
    }
    (fields, count)
}

fn bad(field_name: &str, field: &[u8], wanted: &str) -> Reason {
    format!("{field_name} is \"{}\", expected {wanted}", shorten(field, 24))
}

/// Parses a decimal number below 2^64.
pub(crate) fn uint(field: &[u8], field_name: &str) -> Result<u64, Reason> {
    let mut value = 0u64;
    if field.is_empty() {
        return Err(bad(field_name, field, "a whole number"));
    }
    for &b in field {
        let digit = b.wrapping_sub(b'0');
        if digit > 9 {
            return Err(bad(field_name, field, "a whole number"));
        }
        value = value
            .checked_mul(10)
            .and_then(|v| v.checked_add(u64::from(digit)))
            .ok_or_else(|| bad(field_name, field, "a whole number below 2^64"))?;
    }
    Ok(value)
}

/// Parses a decimal number below 2^32.
pub(crate) fn uint32(field: &[u8], field_name: &str) -> Result<u32, Reason> {
    u32::try_from(uint(field, field_name)?).map_err(|_| bad(field_name, field, "a whole number below 2^32"))
}

/// Parses a hexadecimal number below 2^64, with or without `0x`.
pub(crate) fn hex(field: &[u8], field_name: &str) -> Result<u64, Reason> {
    let digits = field.strip_prefix(b"0x").or(field.strip_prefix(b"0X")).unwrap_or(field);
    if digits.is_empty() {
        return Err(bad(field_name, field, "a hexadecimal number"));
    }
    let mut value = 0u64;
    for &b in digits {
        let digit = (b as char).to_digit(16).ok_or_else(|| bad(field_name, field, "a hexadecimal number"))?;
        if value >> 60 != 0 {
            return Err(bad(field_name, field, "a hexadecimal number below 2^64"));
        }
        value = value << 4 | u64::from(digit);
    }
    Ok(value)
}

/// Parses a decimal fraction such as `5265.313` in units of `unit_ps` (a power of ten) into whole
/// picoseconds, truncating smaller digits.
pub(crate) fn time_ps(field: &[u8], unit_ps: u64, field_name: &str) -> Result<u128, Reason> {
    let point = field.iter().position(|b| *b == b'.').unwrap_or(field.len());
    let (whole, fraction) = (&field[..point], field.get(point + 1..).unwrap_or(&[]));
    if whole.is_empty() && fraction.is_empty() {
        return Err(bad(field_name, field, "a non-negative time"));
    }
    let wanted = "a non-negative time such as 12.345";
    let whole = if whole.is_empty() {
        0
    } else {
        uint(whole, field_name).map_err(|_| bad(field_name, field, wanted))?
    };
    let mut total = u128::from(whole) * u128::from(unit_ps);
    let mut scale = unit_ps;
    for &b in fraction {
        let digit = b.wrapping_sub(b'0');
        if digit > 9 {
            return Err(bad(field_name, field, wanted));
        }
        scale /= 10;
        total += u128::from(scale) * u128::from(digit);
    }
    Ok(total)
}

/// Returns `units * unit_bytes`, in bytes.
pub(crate) fn in_bytes(units: u64, unit_bytes: u64, field_name: &str) -> Result<u64, Reason> {
    units
        .checked_mul(unit_bytes)
        .ok_or_else(|| format!("{field_name} {units} x {unit_bytes} bytes passes 2^64"))
}

/// Checks that a request ends before 2^64.
pub(crate) fn check_end(offset: u64, len: u64) -> Result<(), Reason> {
    offset
        .checked_add(len)
        .map(|_| ())
        .ok_or_else(|| format!("offset {offset} plus length {len} passes 2^64"))
}

/// The error that a line has the wrong number of fields.
pub(crate) fn field_count(found: usize, wanted: &str) -> Reason {
    format!("{found} fields, expected {wanted}")
}

/// The 64-bit FNV-1a hash of a name.
pub(crate) fn fnv1a(name: &[u8]) -> u64 {
    name.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}

/// A bijection of the 64-bit numbers in which every output bit depends on every input bit
/// (Stafford's variant 13 of the MurmurHash3 finaliser).
pub fn mix64(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_at_the_edge_are_read_and_past_it_are_refused() {
        assert_eq!(uint(b"18446744073709551615", "n"), Ok(u64::MAX));
        assert!(uint(b"18446744073709551616", "n").unwrap_err().contains("2^64"));
        assert_eq!(hex(b"0xffffffffffffffff", "n"), Ok(u64::MAX));
        assert!(hex(b"10000000000000000", "n").unwrap_err().contains("2^64"));
        for bad in [&b""[..], b"-1", b"1x", b"+1", b"\0"] {
            assert!(uint(bad, "n").is_err());
        }
    }

    #[test]
    fn decimal_times_are_exact_in_picoseconds() {
        assert_eq!(time_ps(b"5265.313", 1_000_000_000, "t"), Ok(5_265_313_000_000));
        assert_eq!(time_ps(b"0.0000000000019", 1_000_000_000_000, "t"), Ok(1));
        assert_eq!(time_ps(b".5", 1_000, "t"), Ok(500));
        for bad in [&b"."[..], b"1.2.3", b"-1", b"1e5", b""] {
            assert!(time_ps(bad, 1_000, "t").is_err());
        }
    }

    #[test]
    fn offending_text_is_shortened_and_escaped() {
        assert_eq!(shorten(b"ab\0\xff", 10), "ab\\x00\\xff");
        assert_eq!(shorten(&[b'x'; 99], 4), "xxxx...");
    }

    #[test]
    fn the_published_fnv1a_values_come_out() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
