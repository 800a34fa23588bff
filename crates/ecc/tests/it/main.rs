//! Integration tests of deepram-ecc.

mod decoding;
mod hostile;
mod pages;
mod parameters;
mod peer;
mod reference;

use deepram_ecc::{Bch, Kernel};

/// A code with one kernel.
fn code(kernel: Kernel, t: usize, data_len: usize) -> Bch {
    Bch::builder(t, data_len).kernel(kernel).build().expect("a possible code")
}

/// Inverts one bit of a codeword, whose positions are those of `Bch::decode_into`.
fn flip(data: &mut [u8], parity: &mut [u8], position: usize) {
    let (byte, bit) = (position / 8, 1 << (position % 8));
    if byte < data.len() { data[byte] ^= bit } else { parity[byte - data.len()] ^= bit }
}

/// The positions of all bits of a codeword, in the order of transmission.
fn positions(code: &Bch) -> impl Iterator<Item = usize> + use<> {
    (0..8 * code.data_len() + code.parity_bits()).map(|from_front| from_front ^ 7)
}
