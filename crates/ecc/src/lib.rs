//! Error-correcting codes of flash pages: binary BCH codes, and pages with BCH and CRC-32C (flash disk cache, section
//! 3.2).
//!
//! [`Bch`] encodes and decodes codewords; its parities are those of the Linux kernel. [`PageCodec`] adds a CRC to each
//! page, which finds the errors that a BCH code takes for fewer errors of another codeword.
//!
//! **Speed.** Decoding encodes the received data and compares the parities. Only where they differ it computes
//! syndromes, from the few bits of the difference, then Berlekamp and Massey's error locator and its roots by
//! Berlekamp's traces. Therefore all time that depends on the length of the data is that of encoding, whose [`Kernel`]
//! is chosen for the processor. All kernels give the same bits.

#![deny(unsafe_code)]

mod arith;
mod bch;
mod closed_form;
mod error;
mod field;
mod generator;
mod kernel;
mod locator;
mod page;
mod roots;
mod syndrome;

pub use bch::{Bch, BchBuilder};
pub use error::{CodeError, DecodeError, LengthError, PageError};
pub use kernel::Kernel;
pub use page::PageCodec;
