//! Errors of this crate.

use crate::kernel::Kernel;

/// The parameters of a code are impossible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CodeError {
    /// The field's degree is outside of 5 to 16.
    #[error("m is {m}; expected 5 to 16")]
    Degree {
        /// The degree that was asked for.
        m: u32,
    },
    /// The number of correctable bits is outside of 1 to 64.
    #[error("t is {t}; expected 1 to 64 correctable bits")]
    Strength {
        /// The strength that was asked for.
        t: usize,
    },
    /// There is no data.
    #[error("data_len is 0; expected at least 1 byte")]
    NoData,
    /// Data and parity are longer than a codeword of this field.
    #[error(
        "data_len is {data_len} bytes; a codeword of m = {m} has 2^{m} - 1 bits, which hold at most {max} bytes \
         of data with t = {t}"
    )]
    TooLong {
        /// The length that was asked for, bytes.
        data_len: usize,
        /// The degree of the field.
        m: u32,
        /// Correctable bits.
        t: usize,
        /// The longest data of this m and t, bytes.
        max: usize,
    },
    /// The processor lacks the instructions of this kernel.
    #[error("kernel {kernel} needs instructions that this processor lacks; expected one of {}", available())]
    Kernel {
        /// The kernel that was asked for.
        kernel: Kernel,
    },
    /// The number of codewords of a page is 0, or larger than the number of its bytes.
    #[error("{codewords} codewords for a page of {page_len} bytes; expected 1 to {page_len}")]
    Codewords {
        /// The number that was asked for.
        codewords: usize,
        /// The length of the page's data, bytes.
        page_len: usize,
    },
}

fn available() -> String {
    Kernel::available().map(|kernel| kernel.name()).collect::<Vec<_>>().join(", ")
}

/// A buffer has another length than the code needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the {part} has {len} bytes; expected {expected}")]
pub struct LengthError {
    /// The buffer: `data`, `parity` or `page`.
    pub part: &'static str,
    /// Its length, bytes.
    pub len: usize,
    /// The length that the code needs, bytes.
    pub expected: usize,
}

impl LengthError {
    pub(crate) fn check(part: &'static str, len: usize, expected: usize) -> Result<(), Self> {
        if len == expected { Ok(()) } else { Err(Self { part, len, expected }) }
    }
}

/// A codeword could not be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A buffer has another length than the code needs.
    #[error(transparent)]
    Length(#[from] LengthError),
    /// More bits are wrong than the code corrects.
    #[error("more than {t} bits are wrong, which is all that the code corrects")]
    Uncorrectable {
        /// Correctable bits of the codeword.
        t: usize,
    },
}

/// A page could not be decoded. The page is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    /// The buffer has another length than the page.
    #[error(transparent)]
    Length(#[from] LengthError),
    /// More bits of a codeword are wrong than the code corrects.
    #[error("more than {t} bits of codeword {codeword} are wrong, which is all that the code corrects")]
    Uncorrectable {
        /// The codeword, counted from 0.
        codeword: usize,
        /// Correctable bits of the codeword.
        t: usize,
    },
    /// The correction gave other data than was written: the CRC differs. So many bits were wrong that they looked
    /// like fewer errors of another codeword.
    #[error("the corrected page has CRC-32C {found:08x}, and {stored:08x} was stored: it was miscorrected")]
    Miscorrected {
        /// CRC-32C of the corrected data.
        found: u32,
        /// CRC-32C stored with the data, after correction.
        stored: u32,
    },
}
