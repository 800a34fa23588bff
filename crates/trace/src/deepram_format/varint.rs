//! Variable-length integers (LEB128) and zigzag-coded differences.

/// Appends `value`, seven bits per byte, lowest bits first.
pub(super) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends the zigzag-coded difference of `value` to `base`.
pub(super) fn put_delta(out: &mut Vec<u8>, value: u64, base: u64) {
    let delta = value.wrapping_sub(base) as i64;
    put(out, (delta << 1 ^ delta >> 63) as u64);
}

/// Reads a number; `None` if it is truncated or larger than 64 bits.
pub(super) fn take(input: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = input.split_first()?;
        *input = rest;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return None;
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Reads a difference and adds it to `base`.
pub(super) fn take_delta(input: &mut &[u8], base: u64) -> Option<u64> {
    let zigzag = take(input)?;
    Some(base.wrapping_add((zigzag >> 1) ^ (zigzag & 1).wrapping_neg()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_deltas_come_back_at_every_size() {
        let values = (0..64).flat_map(|s| [1u64 << s, (1 << s) - 1, (1 << s) + 1]).chain([u64::MAX]);
        for value in values {
            for base in [0, 1, value, u64::MAX, 1 << 63] {
                let mut out = Vec::new();
                put(&mut out, value);
                put_delta(&mut out, value, base);
                let mut input = &out[..];
                assert_eq!(take(&mut input), Some(value));
                assert_eq!(take_delta(&mut input, base), Some(value));
                assert!(input.is_empty());
            }
        }
    }

    #[test]
    fn a_number_past_64_bits_or_cut_off_is_refused() {
        assert_eq!(take(&mut &[0xff; 11][..]), None);
        assert_eq!(take(&mut &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2][..]), None);
        assert_eq!(take(&mut &[0x80][..]), None);
    }
}
