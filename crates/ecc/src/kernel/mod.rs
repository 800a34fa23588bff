//! Kernels: the same functions for different processors. Every kernel gives the same bits.

use std::fmt;

use crate::arith::{Arith, LogArith};
use crate::field::Field;
use crate::generator::Generator;
use crate::locator::locator;
use crate::roots::{Roots, roots};

mod tables;

/// Largest parity of a code, in words of 64 bits: m = 16 and t = 64.
pub(crate) const MAX_WORDS: usize = 16;

/// A parity, left-aligned: bit 63 of word 0 is the coefficient of the highest power. Unused bits are 0.
pub(crate) type Parity = [u64; MAX_WORDS];

/// The instructions that encode and decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kernel {
    /// Tables of 4 bits of the data: 2 KiB for each 64 bits of parity.
    Portable,
    /// Tables of 8 bits of the data: 16 KiB for each 64 bits of parity.
    Table,
}

impl Kernel {
    /// Every kernel, from the slowest on most processors to the fastest.
    pub const ALL: [Self; 2] = [Self::Portable, Self::Table];

    /// The kernels that this processor can run.
    pub fn available() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|kernel| kernel.is_available())
    }

    /// The fastest kernel that this processor can run.
    #[must_use]
    pub fn best() -> Self {
        Self::available().last().unwrap_or(Self::Portable)
    }

    /// True if this processor has the kernel's instructions.
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            Self::Portable | Self::Table => true,
        }
    }

    /// The name for options and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Table => "table",
        }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Computes parities with one kernel.
#[derive(Debug)]
pub(crate) enum Encoder {
    Nibbles(tables::TableEncoder<4, 256>),
    Bytes(tables::TableEncoder<8, 2048>),
}

impl Encoder {
    pub(crate) fn new(kernel: Kernel, generator: &Generator, _data_len: usize) -> Self {
        match kernel {
            Kernel::Portable => Self::Nibbles(tables::TableEncoder::new(generator)),
            Kernel::Table => Self::Bytes(tables::TableEncoder::new(generator)),
        }
    }

    /// The parity of the data.
    pub(crate) fn parity(&self, data: &[u8]) -> Parity {
        match self {
            Self::Nibbles(tables) => tables.parity(data),
            Self::Bytes(tables) => tables.parity(data),
        }
    }
}

/// Finds errors with one kernel.
#[derive(Debug)]
pub(crate) enum Decoder {
    Logarithms(&'static Field),
}

impl Decoder {
    pub(crate) fn new(kernel: Kernel, field: &'static Field) -> Self {
        match kernel {
            Kernel::Portable | Kernel::Table => Self::Logarithms(field),
        }
    }

    /// α^p for each wrong power p of x, from the odd syndromes. `None` if more than t bits are wrong.
    pub(crate) fn roots(&self, odd: &[u16]) -> Option<Roots> {
        match self {
            Self::Logarithms(field) => find(LogArith(field), odd),
        }
    }
}

/// The algorithm of every kernel. The locator with the coefficient of x^0 first is the polynomial of the inverse roots
/// with the leading coefficient first.
#[inline(always)]
fn find<A: Arith>(arith: A, odd: &[u16]) -> Option<Roots> {
    let (locator, degree) = locator(arith, odd)?;
    roots(arith, &locator, degree)
}
