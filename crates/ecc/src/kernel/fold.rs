//! Encoding by carry-less multiplication. A chunk of data is a sum of words times constants x^(64·i) mod g, and each
//! constant has as many words as the parity. The products are added without reduction; one Barrett reduction at the end
//! of a chunk leaves its parity, which is added to the front of the next chunk.
//!
//! All products of a chunk are independent of each other, so that the multiplier is always busy; a division word by word
//! would wait for each quotient. The number of products is that of the schoolbook: words of data times words of parity.

use super::{MAX_WORDS, Parity, tables::times_x};
use crate::generator::Generator;

/// Bytes that the constants of a vector cover.
pub(super) const BLOCK: usize = 64;
/// Words in a block.
const BLOCK_WORDS: usize = BLOCK / 8;
/// Largest number of words of constants: 16 KiB, a part of the first-level cache.
const MAX_CONSTANTS: usize = 2048;

/// The constants of a code.
#[derive(Debug)]
pub(crate) struct FoldTable {
    /// Words of parity.
    words: usize,
    /// Bytes of a chunk, a multiple of [`BLOCK`].
    chunk: usize,
    /// For each block of a chunk, for each word of parity, the constants of the block's words. The parity's word 0 is
    /// that of the lowest powers here.
    constants: Vec<u64>,
    /// The generator without its leading term, the word of the lowest powers first.
    generator: Vec<u64>,
    /// ⌊x^(64·words + 64) / generator⌋ without its leading term.
    quotient: u64,
}

/// 64-bit words in a vector register, and the operations that a kernel needs.
pub(super) trait Vector: Copy {
    /// Bytes of a vector.
    const BYTES: usize;

    /// # Safety
    /// The processor has the instructions of this type.
    unsafe fn zero() -> Self;

    /// # Safety
    /// The processor has the instructions of this type, and `from` is the address of [`BYTES`](Self::BYTES) readable
    /// bytes.
    unsafe fn load(from: *const u8) -> Self;

    /// Reverses the bytes of each word.
    ///
    /// # Safety
    /// The processor has the instructions of this type.
    unsafe fn swap_bytes(self) -> Self;

    /// Adds the products of the words of each pair: even word with even word, odd with odd.
    ///
    /// # Safety
    /// The processor has the instructions of this type.
    unsafe fn add_products(self, a: Self, b: Self) -> Self;

    /// The sum of all pairs of words: low word, high word.
    ///
    /// # Safety
    /// The processor has the instructions of this type.
    unsafe fn sum(self) -> [u64; 2];
}

impl FoldTable {
    pub(crate) fn new(generator: &Generator, data_len: usize) -> Self {
        let aligned = generator.aligned();
        let words = aligned.len();
        let data_words = data_len.div_ceil(8);
        // Chunks of equal length; one that follows another has room for its parity.
        let chunks = data_words.div_ceil(MAX_CONSTANTS / words);
        let blocks = data_words.div_ceil(chunks).div_ceil(BLOCK_WORDS).max(MAX_WORDS / BLOCK_WORDS);
        let mut constants = vec![0; blocks * BLOCK_WORDS * words];
        let mut power = aligned.clone();
        for word in (0..blocks * BLOCK_WORDS).rev() {
            let (block, lane) = (word / BLOCK_WORDS, word % BLOCK_WORDS);
            for (j, &value) in power.iter().rev().enumerate() {
                constants[(block * words + j) * BLOCK_WORDS + lane] = value;
            }
            for _ in 0..64 {
                times_x(&mut power, &aligned);
            }
        }
        Self {
            words,
            chunk: blocks * BLOCK,
            constants,
            quotient: quotient(aligned[0]),
            generator: aligned.into_iter().rev().collect(),
        }
    }

    /// The parity of the data. `multiply` is the product of two words, low word first.
    ///
    /// # Safety
    /// The processor has the instructions of `V` and `multiply`.
    #[inline(always)]
    pub(super) unsafe fn parity<V: Vector, const PASS: usize>(
        &self,
        data: &[u8],
        multiply: impl Fn(u64, u64) -> [u64; 2] + Copy,
    ) -> Parity {
        let mut parity = [0; MAX_WORDS];
        // The first chunk is the odd one: zeros before the data change nothing.
        let mut rest = data;
        let mut len = match data.len() % self.chunk {
            0 => self.chunk.min(data.len()),
            odd => odd,
        };
        while len > 0 {
            let (chunk, after) = rest.split_at(len);
            // Blocks that are not read from the data itself: one that is filled up, or those that the parity is added to.
            let mut front = [0; 2 * BLOCK];
            let (fronts, blocks) = if len == self.chunk {
                front.copy_from_slice(&chunk[..2 * BLOCK]);
                for (bytes, word) in front.as_chunks_mut().0.iter_mut().zip(&parity[..self.words]) {
                    *bytes = (u64::from_be_bytes(*bytes) ^ word).to_be_bytes();
                }
                (2, &chunk[2 * BLOCK..])
            } else {
                let odd = len % BLOCK;
                front[BLOCK - odd..BLOCK].copy_from_slice(&chunk[..odd]);
                (usize::from(odd > 0), &chunk[odd..])
            };
            let (front, _) = front[..fronts * BLOCK].as_chunks();
            let (blocks, _) = blocks.as_chunks();
            // SAFETY: as for this function.
            let sums = unsafe { self.products::<V, PASS>(front, blocks) };
            self.reduce(&sums, multiply, &mut parity);
            (rest, len) = (after, self.chunk.min(after.len()));
        }
        parity
    }

    /// The sum of the products of the last blocks of a chunk, for each word of parity.
    ///
    /// # Safety
    /// As for [`parity`](Self::parity).
    #[inline(always)]
    unsafe fn products<V: Vector, const PASS: usize>(
        &self,
        front: &[[u8; BLOCK]],
        blocks: &[[u8; BLOCK]],
    ) -> [[u64; 2]; MAX_WORDS] {
        let mut sums = [[0; 2]; MAX_WORDS];
        for first in (0..self.words).step_by(PASS) {
            macro_rules! pass {
                ($($n:literal)*) => {
                    match (self.words - first).min(PASS) {
                        // SAFETY: as for this function.
                        $($n => unsafe { self.pass::<V, $n>(front, blocks, first, &mut sums) },)*
                        _ => unreachable!("a pass has at most 16 words"),
                    }
                };
            }
            pass!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
        }
        sums
    }

    /// The sums of `N` words of parity from the word `first` on.
    ///
    /// # Safety
    /// As for [`parity`](Self::parity).
    #[inline(always)]
    unsafe fn pass<V: Vector, const N: usize>(
        &self,
        front: &[[u8; BLOCK]],
        blocks: &[[u8; BLOCK]],
        first: usize,
        sums: &mut [[u64; 2]; MAX_WORDS],
    ) {
        let row = self.words * BLOCK_WORDS;
        let from = self.constants.len() - (front.len() + blocks.len()) * row;
        // SAFETY: as for this function.
        let mut accumulators = [unsafe { V::zero() }; N];
        let mut constants = self.constants[from..].chunks_exact(row);
        for blocks in [front, blocks] {
            for (block, constants) in blocks.iter().zip(&mut constants) {
                let constants = &constants[first * BLOCK_WORDS..(first + N) * BLOCK_WORDS];
                for at in (0..BLOCK).step_by(V::BYTES) {
                    // SAFETY: a block has BLOCK bytes, of which V::BYTES from `at` on are read; so do the constants of
                    // each of the N words.
                    unsafe {
                        let data = V::load(block.as_ptr().add(at)).swap_bytes();
                        for (j, sum) in accumulators.iter_mut().enumerate() {
                            let constant = V::load(constants.as_ptr().cast::<u8>().add(j * BLOCK + at));
                            *sum = sum.add_products(data, constant);
                        }
                    }
                }
            }
        }
        for (sum, accumulator) in sums[first..first + N].iter_mut().zip(accumulators) {
            // SAFETY: as for this function.
            *sum = unsafe { accumulator.sum() };
        }
    }

    /// Adds the sums at their words and reduces the word above the parity.
    #[inline(always)]
    fn reduce(
        &self,
        sums: &[[u64; 2]; MAX_WORDS],
        multiply: impl Fn(u64, u64) -> [u64; 2],
        parity: &mut Parity,
    ) {
        let words = self.words;
        let top = sums[words - 1][1];
        let quotient = top ^ multiply(top, self.quotient)[1];
        let mut above = 0;
        for j in 0..words {
            let [low, high] = multiply(quotient, self.generator[j]);
            parity[words - 1 - j] = sums[j][0] ^ low ^ above;
            above = sums[j][1] ^ high;
        }
    }
}

/// ⌊x^128 / (x^64 + tail)⌋ without x^64.
fn quotient(tail: u64) -> u64 {
    // The dividend's upper half after the subtraction of the first term, and the quotient so far.
    let (mut rest, mut quotient) = (tail, 0);
    for bit in (0..64).rev() {
        let carry = rest >> 63;
        rest <<= 1;
        if carry == 1 {
            rest ^= tail;
            quotient |= 1 << bit;
        }
    }
    quotient
}
