//! Fuzz function for the error-correcting codes. For any bytes as parameters, data and parity, a code is an error or
//! decodes: its result is a codeword within t bits, or the codeword is unchanged; every kernel gives the same result.
//!
//! The fuzz target and `crates/ecc/tests/it/hostile.rs` share this file.

use deepram_ecc::{Bch, Kernel, PageCodec};

/// A function that a fuzz target calls with arbitrary bytes.
pub(crate) type Target = fn(&[u8]);

/// Every target of this file: its name and its function.
pub(crate) const TARGETS: &[(&str, Target)] = &[("ecc", ecc)];

/// Returns a small valid input: t = 3, 40 bytes in a field of the default degree, then data and its bit errors.
pub(crate) fn sample(target: &str) -> Vec<u8> {
    assert_eq!(target, "ecc", "no sample for {target}");
    let mut sample = vec![3, 0, 40, 0];
    sample.extend(0..40);
    sample.extend([1, 0, 90, 0]);
    sample
}

/// Takes t, the field's degree, the length and the data off the input; the rest are positions of errors.
pub(crate) fn ecc(input: &[u8]) {
    let &[t, m, low, high, ref rest @ ..] = input else { return };
    let data_len = usize::from(u16::from_le_bytes([low, high]));
    let (given, errors) = rest.split_at(rest.len().min(data_len));
    let mut data = given.to_vec();
    data.resize(data_len, 0xC3);

    let mut results = Vec::new();
    for kernel in Kernel::available() {
        let mut builder = Bch::builder(t.into(), data_len).kernel(kernel);
        if m != 0 {
            builder = builder.m(m.into());
        }
        let code = match builder.build() {
            Ok(code) => code,
            Err(error) => {
                let text = error.to_string();
                assert!(!text.is_empty() && text.len() < 300, "{text:?}");
                return;
            }
        };
        let mut parity = vec![0; code.parity_len()];
        code.encode(&data, &mut parity).expect("the lengths are right");
        let bits = 8 * (data_len + parity.len());
        let (mut wrong_data, mut wrong_parity) = (data.clone(), parity.clone());
        let mut positions = std::collections::BTreeSet::new();
        for error in errors.as_chunks().0 {
            let position = usize::from(u16::from_le_bytes(*error)) % bits;
            if positions.insert(position) {
                flip(&mut wrong_data, &mut wrong_parity, position);
            }
        }
        let (mut corrected_data, mut corrected_parity) = (wrong_data.clone(), wrong_parity.clone());
        let result = code.decode(&mut corrected_data, &mut corrected_parity);
        match result {
            Ok(corrected) => {
                assert!(corrected <= code.t());
                let mut again = vec![0; parity.len()];
                code.encode(&corrected_data, &mut again).expect("the lengths are right");
                let unused = 8 * parity.len() - code.parity_bits();
                let last = corrected_parity.len() - 1;
                corrected_parity[last] &= 0xFF_u8.checked_shl(unused as u32).unwrap_or(0);
                // Fields with conjugate roots have more unused bits than a byte.
                let whole = code.parity_bits() / 8;
                assert_eq!(again[..whole], corrected_parity[..whole], "the result is a codeword");
            }
            Err(_) => {
                assert!(corrected_data == wrong_data && corrected_parity == wrong_parity);
                assert!(positions.len() > code.t(), "{} errors were not corrected", positions.len());
            }
        }
        if positions.len() <= code.t() {
            assert!(corrected_data == data, "{} errors were miscorrected", positions.len());
        }
        results.push((result, corrected_data));
    }
    assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "the kernels differ");

    // Noise as a page.
    if let Ok(codec) = PageCodec::new(t.into(), data_len, 1 + usize::from(m) % 4) {
        let mut page = input.to_vec();
        page.resize(codec.stored_len(), 0);
        let _ = codec.decode(&mut page);
        codec.encode(&mut page).expect("the length is right");
        assert_eq!(codec.decode(&mut page), Ok(0));
    }
}

fn flip(data: &mut [u8], parity: &mut [u8], position: usize) {
    let (byte, bit) = (position / 8, 1 << (position % 8));
    if byte < data.len() { data[byte] ^= bit } else { parity[byte - data.len()] ^= bit }
}
