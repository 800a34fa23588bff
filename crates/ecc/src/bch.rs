//! Codes: parameters, encoding and decoding.

use crate::error::{CodeError, DecodeError, LengthError};
use crate::field::{DEGREES, Field};
use crate::generator::Generator;
use crate::kernel::{Decoder, Encoder, Kernel, Parity};
use crate::roots::Roots;
use crate::syndrome::SyndromeTable;

/// The largest number of correctable bits.
pub(crate) const MAX_T: usize = 64;

/// Parameters of a code that need not have their default.
#[derive(Debug, Clone)]
pub struct BchBuilder {
    t: usize,
    data_len: usize,
    m: Option<u32>,
    kernel: Option<Kernel>,
}

impl BchBuilder {
    /// The degree of the field GF(2^m), 5 to 16. Default: the smallest in which data and parity fit into the 2^m − 1
    /// bits of a codeword.
    #[must_use]
    pub fn m(mut self, m: u32) -> Self {
        self.m = Some(m);
        self
    }

    /// The kernel. Default: the fastest of this processor. The results do not depend on it.
    #[must_use]
    pub fn kernel(mut self, kernel: Kernel) -> Self {
        self.kernel = Some(kernel);
        self
    }

    /// Builds the code and its tables, which takes milliseconds.
    ///
    /// # Errors
    /// The parameters are impossible, or the processor lacks the kernel's instructions.
    pub fn build(self) -> Result<Bch, CodeError> {
        let Self { t, data_len, m, kernel } = self;
        if !(1..=MAX_T).contains(&t) {
            return Err(CodeError::Strength { t });
        }
        if data_len == 0 {
            return Err(CodeError::NoData);
        }
        let kernel = kernel.unwrap_or_else(Kernel::best);
        let fits = |m: u32| {
            let parity_bits = m as usize * t;
            data_len.checked_mul(8).is_some_and(|bits| bits < (1 << m) - parity_bits.min(1 << m))
        };
        let m = match m {
            Some(m) if !DEGREES.contains(&m) => return Err(CodeError::Degree { m }),
            Some(m) => m,
            None => DEGREES.clone().find(|&m| fits(m)).unwrap_or(*DEGREES.end()),
        };
        let field = Field::of_degree(m);
        let generator = Generator::new(field, t);
        // The generator's degree is below m·t where two of its roots are conjugate.
        let max = (field.order as usize - generator.degree) / 8;
        if data_len > max {
            return Err(CodeError::TooLong { data_len, m, t, max });
        }
        Ok(Bch {
            t,
            data_len,
            field,
            kernel,
            parity_bits: generator.degree,
            encoder: Encoder::new(kernel, &generator, data_len).ok_or(CodeError::Kernel { kernel })?,
            syndromes: SyndromeTable::new(field, t, generator.degree),
            decoder: Decoder::new(kernel, field).ok_or(CodeError::Kernel { kernel })?,
        })
    }
}

/// A binary BCH code, shortened to a length of data: corrects any `t` wrong bits of data and parity.
///
/// The code is systematic and narrow-sense over GF(2^m), with the primitive polynomials of the Linux kernel's BCH
/// (`lib/bch.c`) and, for m = 16, x^16 + x^12 + x^3 + x + 1. The data is a polynomial whose highest power is the most
/// significant bit of byte 0; the parity is its remainder, left-aligned in ⌈m·t / 8⌉ bytes. These are the bytes of the
/// Linux kernel.
///
/// ```
/// use deepram_ecc::Bch;
///
/// let code = Bch::new(4, 512)?;
/// let mut data = vec![0x5A; 512];
/// let mut parity = vec![0; code.parity_len()];
/// code.encode(&data, &mut parity)?;
/// data[7] ^= 0x81;
/// parity[0] ^= 0x10;
/// assert_eq!(code.decode(&mut data, &mut parity), Ok(3));
/// assert_eq!(data, vec![0x5A; 512]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Bch {
    t: usize,
    data_len: usize,
    field: &'static Field,
    kernel: Kernel,
    parity_bits: usize,
    encoder: Encoder,
    syndromes: SyndromeTable,
    decoder: Decoder,
}

impl Bch {
    /// The code that corrects `t` bits (1 to 64) of `data_len` bytes of data and their parity, in the smallest field
    /// that is large enough: m = 13 for 512 B, 14 for 1 KiB, 15 for 2 KiB and 16 for 4 KiB with common strengths. The
    /// longest data has 8189 bytes, with t = 1.
    ///
    /// # Errors
    /// The parameters are impossible; the error says what is possible.
    pub fn new(t: usize, data_len: usize) -> Result<Self, CodeError> {
        Self::builder(t, data_len).build()
    }

    /// Like [`new`](Self::new), with a choice of field and kernel.
    #[must_use]
    pub fn builder(t: usize, data_len: usize) -> BchBuilder {
        BchBuilder { t, data_len, m: None, kernel: None }
    }

    /// Correctable bits.
    #[must_use]
    pub fn t(&self) -> usize {
        self.t
    }

    /// Degree of the field GF(2^m).
    #[must_use]
    pub fn m(&self) -> u32 {
        self.field.m
    }

    /// The primitive polynomial of the field: bit i is the coefficient of x^i.
    #[must_use]
    pub fn polynomial(&self) -> u32 {
        self.field.polynomial
    }

    /// Length of the data, bytes.
    #[must_use]
    pub fn data_len(&self) -> usize {
        self.data_len
    }

    /// Length of the parity, bytes: ⌈m·t / 8⌉.
    #[must_use]
    pub fn parity_len(&self) -> usize {
        (self.field.m as usize * self.t).div_ceil(8)
    }

    /// Length of the parity, bits: m·t, or less where two of the code's roots are conjugate. The parity's bytes may
    /// have more bits: these are written as 0 and ignored by decoding.
    #[must_use]
    pub fn parity_bits(&self) -> usize {
        self.parity_bits
    }

    /// The kernel in use.
    #[must_use]
    pub fn kernel(&self) -> Kernel {
        self.kernel
    }

    fn check(&self, data: &[u8], parity: &[u8]) -> Result<(), LengthError> {
        LengthError::check("data", data.len(), self.data_len)?;
        LengthError::check("parity", parity.len(), self.parity_len())
    }

    /// Writes the parity of the data.
    ///
    /// # Errors
    /// A buffer has the wrong length.
    pub fn encode(&self, data: &[u8], parity: &mut [u8]) -> Result<(), LengthError> {
        self.check(data, parity)?;
        self.write_parity(data, parity);
        Ok(())
    }

    /// Writes the parity of data of at most the code's length. Shorter data has leading zeros.
    pub(crate) fn write_parity(&self, data: &[u8], parity: &mut [u8]) {
        let words = self.encoder.parity(data);
        for (bytes, word) in parity.chunks_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_be_bytes()[..bytes.len()]);
        }
    }

    /// Corrects data and parity in place and returns the number of bits corrected.
    ///
    /// # Errors
    /// More than `t` bits are wrong, and the code noticed it; data and parity are unchanged. A code cannot notice every
    /// such case: a few look like `t` or fewer errors of another codeword, and [`PageCodec`](crate::PageCodec) finds
    /// these by its CRC. Also if a buffer has the wrong length.
    pub fn decode(&self, data: &mut [u8], parity: &mut [u8]) -> Result<usize, DecodeError> {
        self.check(data, parity)?;
        let mut positions = Positions::default();
        if !self.find(data, parity, &mut positions) {
            return Err(DecodeError::Uncorrectable { t: self.t });
        }
        for &position in positions.as_slice() {
            flip(data, parity, position);
        }
        Ok(positions.as_slice().len())
    }

    /// Replaces `positions` by the positions of the wrong bits, in ascending order, and changes no data. Position p is
    /// bit p mod 8 (0 is the least significant) of byte ⌊p / 8⌋ of the data followed by the parity, as in the Linux
    /// kernel.
    ///
    /// # Errors
    /// As [`decode`](Self::decode); `positions` is then empty.
    pub fn decode_into(
        &self,
        data: &[u8],
        parity: &[u8],
        positions: &mut Vec<usize>,
    ) -> Result<(), DecodeError> {
        positions.clear();
        self.check(data, parity)?;
        let mut found = Positions::default();
        if !self.find(data, parity, &mut found) {
            return Err(DecodeError::Uncorrectable { t: self.t });
        }
        positions.extend_from_slice(found.as_slice());
        positions.sort_unstable();
        Ok(())
    }

    /// Finds the wrong bits of a codeword whose data has at most the code's length. False if there are more than `t`.
    pub(crate) fn find(&self, data: &[u8], parity: &[u8], positions: &mut Positions) -> bool {
        positions.count = 0;
        let difference = self.difference(data, parity);
        if difference == Parity::default() {
            return true;
        }
        let mut roots = Roots::default();
        if !self.decoder.roots(&self.syndromes, &difference, &mut roots) {
            return false;
        }
        let bits = 8 * data.len() + self.parity_bits;
        for &root in roots.as_slice() {
            // A root beyond the shortened code is an error in bits that are not stored.
            let Some(from_front) = bits.checked_sub(self.field.log(root) as usize + 1) else { return false };
            positions.values[positions.count] = from_front ^ 7;
            positions.count += 1;
        }
        true
    }

    /// The received parity minus that of the received data.
    fn difference(&self, data: &[u8], parity: &[u8]) -> Parity {
        let mut difference = self.encoder.parity(data);
        for (bytes, word) in parity.chunks(8).zip(&mut difference) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            *word ^= u64::from_be_bytes(padded);
        }
        // Bits beyond the parity are no part of the codeword.
        if let Some(last) = difference.get_mut(self.parity_bits / 64) {
            *last &= !(u64::MAX >> (self.parity_bits % 64));
        }
        difference.iter_mut().skip(self.parity_bits / 64 + 1).for_each(|word| *word = 0);
        difference
    }
}

/// Positions of wrong bits, in the order of [`Bch::decode_into`], not sorted.
#[derive(Debug)]
pub(crate) struct Positions {
    values: [usize; MAX_T],
    count: usize,
}

impl Default for Positions {
    fn default() -> Self {
        Self { values: [0; MAX_T], count: 0 }
    }
}

impl Positions {
    pub(crate) fn as_slice(&self) -> &[usize] {
        &self.values[..self.count]
    }
}

/// Inverts one bit of data or parity.
pub(crate) fn flip(data: &mut [u8], parity: &mut [u8], position: usize) {
    let (byte, bit) = (position / 8, 1 << (position % 8));
    match data.get_mut(byte) {
        Some(byte) => *byte ^= bit,
        None => parity[byte - data.len()] ^= bit,
    }
}
