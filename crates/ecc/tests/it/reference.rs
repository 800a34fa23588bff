//! Small codes against a decoder that tries every error pattern.

use std::collections::HashMap;

use deepram_ecc::{Bch, DecodeError, Kernel};

use super::{flip, positions};

/// The parity by long division, bit by bit, with the generator read from the parity of the data 1: x^degree mod g is g
/// without its leading term.
fn long_division(code: &Bch, data: &[u8]) -> u64 {
    let degree = code.parity_bits();
    let mut one = vec![0; code.data_len()];
    one[code.data_len() - 1] = 1;
    let generator = number(code, &encoded(code, &one));
    let mut rest = 0;
    for bit in data.iter().flat_map(|byte| (0..8).rev().map(move |bit| u64::from(byte >> bit & 1))) {
        let carry = rest >> (degree - 1) & 1 ^ bit;
        rest = rest << 1 & ((1 << degree) - 1);
        if carry == 1 {
            rest ^= generator;
        }
    }
    rest
}

fn encoded(code: &Bch, data: &[u8]) -> Vec<u8> {
    let mut parity = vec![0; code.parity_len()];
    code.encode(data, &mut parity).unwrap();
    parity
}

/// A parity as a number, the bit of the highest power first.
fn number(code: &Bch, parity: &[u8]) -> u64 {
    let value = parity.iter().fold(0, |value, &byte| value << 8 | u64::from(byte));
    value >> (8 * parity.len() - code.parity_bits())
}

#[test]
fn parities_are_remainders_of_long_division() {
    for kernel in Kernel::available() {
        for (m, t, data_len) in [(5, 1, 3), (5, 2, 2), (5, 3, 2), (6, 3, 5), (8, 5, 20), (13, 4, 512)] {
            let code = Bch::builder(t, data_len).m(m).kernel(kernel).build().unwrap();
            for number_of_data in 0..200_u32 {
                let data: Vec<u8> =
                    (0..data_len as u32).map(|i| (number_of_data * 193 + i * i * 7 + i) as u8).collect();
                assert_eq!(
                    number(&code, &encoded(&code, &data)),
                    long_division(&code, &data),
                    "{kernel}, m {m}, t {t}: {data:?}"
                );
            }
        }
    }
}

#[test]
fn every_word_near_a_codeword_is_decoded_as_trying_all_patterns_does() {
    // (31, 21) shortened to 2 bytes: 26 bits, and (31, 16) shortened to 1 byte and to 2 bytes.
    for (t, data_len) in [(2, 2), (3, 1), (3, 2)] {
        for kernel in Kernel::available() {
            let code = Bch::builder(t, data_len).m(5).kernel(kernel).build().unwrap();
            let all: Vec<usize> = positions(&code).collect();
            let data: Vec<u8> = [0xA7, 0x31][..data_len].to_vec();
            let sent = (data.clone(), encoded(&code, &data));
            // For each difference of parities the patterns of up to t errors that give it: at most one.
            let mut patterns: HashMap<u64, Vec<usize>> = HashMap::new();
            for pattern in combinations(&all, t) {
                let (mut data, mut parity) = (vec![0; data_len], vec![0; code.parity_len()]);
                pattern.iter().for_each(|&at| flip(&mut data, &mut parity, at));
                let difference = number(&code, &parity) ^ number(&code, &encoded(&code, &data));
                assert!(patterns.insert(difference, pattern).is_none(), "two patterns look alike");
            }
            for pattern in combinations(&all, t + 1) {
                let (mut data, mut parity) = sent.clone();
                pattern.iter().for_each(|&at| flip(&mut data, &mut parity, at));
                let difference = number(&code, &parity) ^ number(&code, &encoded(&code, &data));
                let mut found = Vec::new();
                let result = code.decode_into(&data, &parity, &mut found);
                match patterns.get(&difference) {
                    Some(nearest) => {
                        let mut nearest = nearest.clone();
                        nearest.sort_unstable();
                        assert_eq!((result, &found), (Ok(()), &nearest), "{kernel}, t {t}: {pattern:?}");
                        assert!(pattern.len() > t || found.len() == pattern.len());
                    }
                    None => {
                        assert_eq!(
                            result,
                            Err(DecodeError::Uncorrectable { t }),
                            "{kernel}, t {t}: {pattern:?}"
                        );
                        assert!(found.is_empty());
                    }
                }
            }
        }
    }
}

/// All sets of at most `size` elements.
fn combinations(all: &[usize], size: usize) -> Vec<Vec<usize>> {
    let mut sets = vec![(0, vec![])];
    let mut from = 0;
    for _ in 0..size {
        let end = sets.len();
        for set in from..end {
            let (next, elements): (usize, Vec<usize>) = sets[set].clone();
            for at in next..all.len() {
                sets.push((at + 1, [&elements[..], &all[at..=at]].concat()));
            }
        }
        from = end;
    }
    sets.into_iter().map(|(_, elements)| elements).collect()
}
