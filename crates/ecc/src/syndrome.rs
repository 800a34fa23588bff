//! Syndromes of a codeword, from the difference between the received parity and that of the received data. The
//! difference has as many bits as the parity and the same syndromes as the codeword.

use crate::field::Field;
use crate::kernel::Parity;

/// Syndromes in a block: as many values of 16 bits as fit into a `u128`.
const BLOCK: usize = 8;

/// The syndromes of each bit of a parity.
#[derive(Debug)]
pub(crate) struct SyndromeRows {
    t: usize,
    blocks: usize,
    /// Row i has the values α^(p·(2k+1)), where p is the power of x of bit i of an aligned parity; zeros from k = t.
    rows: Vec<u128>,
}

impl SyndromeRows {
    pub(crate) fn new(field: &Field, t: usize, degree: usize) -> Self {
        let blocks = t.div_ceil(BLOCK);
        let mut rows = vec![0; degree * blocks];
        for (i, row) in rows.chunks_exact_mut(blocks).enumerate() {
            let power = (degree - 1 - i) as u64;
            for k in 0..t {
                let value = field.exp((power * (2 * k as u64 + 1) % u64::from(field.order)) as u32);
                row[k / BLOCK] |= u128::from(value) << (16 * (k % BLOCK));
            }
        }
        Self { t, blocks, rows }
    }

    /// The odd syndromes S1, S3, ..., S(2t−1) of a difference of parities.
    pub(crate) fn odd(&self, difference: &Parity, syndromes: &mut [u16; 64]) {
        match self.blocks {
            1 => self.sum::<1>(difference, syndromes),
            2 => self.sum::<2>(difference, syndromes),
            3 => self.sum::<3>(difference, syndromes),
            4 => self.sum::<4>(difference, syndromes),
            5 => self.sum::<5>(difference, syndromes),
            6 => self.sum::<6>(difference, syndromes),
            7 => self.sum::<7>(difference, syndromes),
            _ => self.sum::<8>(difference, syndromes),
        }
    }

    fn sum<const BLOCKS: usize>(&self, difference: &Parity, syndromes: &mut [u16; 64]) {
        let (rows, _) = self.rows.as_chunks::<BLOCKS>();
        let mut sums = [0_u128; BLOCKS];
        for (number, &word) in difference.iter().enumerate() {
            let mut left = word;
            while left != 0 {
                let from_top = left.leading_zeros() as usize;
                left ^= 1 << (63 - from_top);
                for (sum, block) in sums.iter_mut().zip(&rows[64 * number + from_top]) {
                    *sum ^= block;
                }
            }
        }
        for (k, syndrome) in syndromes[..self.t].iter_mut().enumerate() {
            *syndrome = (sums[k / BLOCK] >> (16 * (k % BLOCK))) as u16;
        }
    }
}
