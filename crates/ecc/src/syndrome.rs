//! Syndromes of a codeword, from the difference between the received parity and that of the received data. The
//! difference has as many bits as the parity and the same syndromes as the codeword.
//!
//! The syndromes of a word of the difference are sums of rows of a table, one for each 4 bits; Horner's rule joins the
//! words. The table has the same size for every length of the parity and fits into the first-level cache.

use crate::arith::Arith;
use crate::field::Field;
use crate::kernel::Parity;

/// Values of 16 bits in a `u128`.
const BLOCK: usize = 8;
/// Slices of 4 bits in a word.
const SLICES: usize = 16;

/// Odd syndromes, at most 64: S_1, S_3, ... Those from t on are 0.
pub(crate) type OddSyndromes = [u32; 64];

/// Tables for the syndromes of one code.
#[derive(Debug)]
pub(crate) struct SyndromeTable {
    t: usize,
    parity_bits: usize,
    blocks: usize,
    /// Row `16 · slice + value` has the syndromes of `value · x^(4 · slice)`, 16 bits each, in `blocks` blocks.
    rows: Vec<u128>,
    /// α^(64·(2k+1)): what a word's syndromes are multiplied by for the next word.
    next_word: OddSyndromes,
}

impl SyndromeTable {
    pub(crate) fn new(field: &Field, t: usize, parity_bits: usize) -> Self {
        let blocks = t.div_ceil(BLOCK);
        let syndrome = |power: usize, k: usize| field.exp((power * (2 * k + 1)) as u32 % field.order);
        let mut rows = vec![0; SLICES * 16 * blocks];
        for (number, row) in rows.chunks_exact_mut(blocks).enumerate() {
            let (slice, value) = (number / 16, number % 16);
            for bit in (0..4).filter(|bit| value >> bit & 1 == 1) {
                for k in 0..t {
                    row[k / BLOCK] ^= u128::from(syndrome(4 * slice + bit, k)) << (16 * (k % BLOCK));
                }
            }
        }
        let mut next_word = [0; 64];
        for (k, factor) in next_word.iter_mut().take(t).enumerate() {
            *factor = syndrome(64, k);
        }
        Self { t, parity_bits, blocks, rows, next_word }
    }

    /// Correctable bits.
    pub(crate) fn t(&self) -> usize {
        self.t
    }

    /// The odd syndromes of a difference of parities.
    #[inline(always)]
    pub(crate) fn odd<A: Arith>(&self, arith: A, difference: &Parity) -> OddSyndromes {
        let words = self.parity_bits.div_ceil(64);
        // The difference is aligned to the left; the last word must end with the coefficient of x^0.
        let unused = 64 * words - self.parity_bits;
        let mut syndromes = [0; 64];
        let mut before = 0;
        for (number, &word) in difference[..words].iter().enumerate() {
            let word = if unused == 0 {
                word
            } else {
                let aligned = before << (64 - unused) | word >> unused;
                before = word;
                aligned
            };
            if number > 0 {
                arith.multiply_each(&mut syndromes, &self.next_word, self.t);
            }
            self.add_word(word, &mut syndromes);
        }
        syndromes
    }

    /// Adds the syndromes of one word.
    #[inline(always)]
    fn add_word(&self, word: u64, syndromes: &mut OddSyndromes) {
        macro_rules! dispatch {
            ($($blocks:literal)*) => {
                match self.blocks {
                    $($blocks => self.add_blocks::<$blocks>(word, syndromes),)*
                    other => unreachable!("{other} blocks of syndromes"),
                }
            };
        }
        dispatch!(1 2 3 4 5 6 7 8);
    }

    #[inline(always)]
    fn add_blocks<const BLOCKS: usize>(&self, word: u64, syndromes: &mut OddSyndromes) {
        let (rows, _) = self.rows.as_chunks::<BLOCKS>();
        let mut sums = [0; BLOCKS];
        for (slice, rows) in rows.as_chunks::<16>().0.iter().enumerate() {
            let row = &rows[(word >> (4 * slice)) as usize & 15];
            for (sum, block) in sums.iter_mut().zip(row) {
                *sum ^= block;
            }
        }
        for (syndromes, sum) in syndromes.as_chunks_mut::<BLOCK>().0.iter_mut().zip(sums) {
            for (k, syndrome) in syndromes.iter_mut().enumerate() {
                *syndrome ^= u32::from((sum >> (16 * k)) as u16);
            }
        }
    }
}
