//! Encoding by tables: a word of data is cut into slices of a few bits, and the parity of each slice is looked up.

use super::{MAX_WORDS, Parity};
use crate::generator::Generator;

/// Tables for slices of `BITS` bits. `ROWS` is the number of rows: 2^BITS for each of the 64 / BITS slices of a word.
#[derive(Debug)]
pub(crate) struct TableEncoder<const BITS: usize, const ROWS: usize> {
    words: usize,
    /// Row `slice · 2^BITS + value` holds `value · x^(BITS · slice)` times x^(64·words), modulo the aligned generator.
    rows: Vec<u64>,
}

impl<const BITS: usize, const ROWS: usize> TableEncoder<BITS, ROWS> {
    pub(crate) fn new(generator: &Generator) -> Self {
        let aligned = generator.aligned();
        let words = aligned.len();
        let mut rows = vec![0; ROWS * words];
        // x^(64·words) is congruent to the generator without its leading term.
        let mut power = aligned.clone();
        for bit in 0..64 {
            let (slice, value) = (bit / BITS, 1 << (bit % BITS));
            // Every value below twice this one: the power plus the row without the bit.
            for low in 0..value {
                let (from, to) = ((slice << BITS | low) * words, (slice << BITS | low | value) * words);
                for j in 0..words {
                    rows[to + j] = rows[from + j] ^ power[j];
                }
            }
            times_x(&mut power, &aligned);
        }
        Self { words, rows }
    }

    pub(crate) fn parity(&self, data: &[u8]) -> Parity {
        macro_rules! dispatch {
            ($($words:literal)*) => {
                match self.words {
                    $($words => parity::<$words, BITS, ROWS>(&self.rows, data),)*
                    other => unreachable!("{other} words of parity"),
                }
            };
        }
        dispatch!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16)
    }
}

/// Multiplies a polynomial by x, modulo the aligned generator.
pub(crate) fn times_x(power: &mut [u64], aligned: &[u64]) {
    let carry = power[0] >> 63;
    for j in 0..power.len() {
        let below = power.get(j + 1).map_or(0, |word| word >> 63);
        power[j] = (power[j] << 1 | below) ^ (carry * aligned[j]);
    }
}

/// The parity of the data, by rows of `WORDS` words.
fn parity<const WORDS: usize, const BITS: usize, const ROWS: usize>(rows: &[u64], data: &[u8]) -> Parity {
    let rows: &[[u64; WORDS]; ROWS] = rows.as_chunks().0.try_into().expect("the encoder has all rows");
    let (head, whole) = data.split_at(data.len() % 8);
    let mut first = [0; 8];
    first[8 - head.len()..].copy_from_slice(head);
    let mut state = [0; WORDS];
    let mut step = |word: [u8; 8]| {
        let top = state[0] ^ u64::from_be_bytes(word);
        state.copy_within(1.., 0);
        state[WORDS - 1] = 0;
        for slice in 0..64 / BITS {
            let value = (top >> (BITS * slice)) as usize & ((1 << BITS) - 1);
            for (sum, word) in state.iter_mut().zip(&rows[slice << BITS | value]) {
                *sum ^= word;
            }
        }
    };
    // Zeros before the data have the parity 0, whatever their number.
    step(first);
    whole.as_chunks().0.iter().for_each(|&word| step(word));
    let mut parity = [0; MAX_WORDS];
    parity[..WORDS].copy_from_slice(&state);
    parity
}
