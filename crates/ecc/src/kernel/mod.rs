//! Kernels: the same functions for different processors. Every kernel gives the same bits.

use std::fmt;

use crate::arith::{Arith, LogArith};
use crate::field::Field;
use crate::generator::Generator;
use crate::locator::locator;
use crate::roots::{Roots, roots};
use crate::syndrome::SyndromeTable;

#[allow(unsafe_code)]
mod fold;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[allow(unsafe_code)]
mod products;
mod tables;

#[cfg(target_arch = "aarch64")]
#[allow(unsafe_code)]
#[path = "aarch64.rs"]
mod clmul;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[path = "other.rs"]
mod clmul;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
#[path = "x86_64.rs"]
mod clmul;

/// Largest parity of a code, in words of 64 bits: m = 16 and t = 64.
pub(crate) const MAX_WORDS: usize = 16;

/// Largest parity for tables of 8 bits, bits.
const MAX_TABLE_BITS: usize = 192;

/// A parity, left-aligned: bit 63 of word 0 is the coefficient of the highest power. Unused bits are 0.
pub(crate) type Parity = [u64; MAX_WORDS];

/// The instructions that encode and decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kernel {
    /// Tables of 4 bits of the data: 2 KiB for each 64 bits of parity.
    Portable,
    /// Tables of 8 bits of the data, 16 KiB for each 64 bits of parity, up to 192 bits of parity: as many as the
    /// first-level cache holds. Beyond, the tables of [`Portable`](Self::Portable), which are then faster.
    Table,
    /// Carry-less multiplication of 64-bit words: PCLMULQDQ of x86-64, PMULL of AArch64.
    Clmul,
    /// Two carry-less multiplications at once: VPCLMULQDQ of x86-64 with AVX2.
    Clmul256,
    /// Four carry-less multiplications at once: VPCLMULQDQ of x86-64 with AVX-512.
    Clmul512,
}

impl Kernel {
    /// Every kernel, from the slowest on most processors to the fastest.
    pub const ALL: [Self; 5] = [Self::Portable, Self::Table, Self::Clmul, Self::Clmul256, Self::Clmul512];

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
            Self::Clmul | Self::Clmul256 | Self::Clmul512 => clmul::is_available(self),
        }
    }

    /// The name for options and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Table => "table",
            Self::Clmul => "clmul",
            Self::Clmul256 => "clmul-256",
            Self::Clmul512 => "clmul-512",
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
    Fold(clmul::FoldEncoder),
}

impl Encoder {
    /// `None` if the processor lacks the kernel's instructions. `data_len` is the length of the longest data, bytes.
    pub(crate) fn new(kernel: Kernel, generator: &Generator, data_len: usize) -> Option<Self> {
        Some(match kernel {
            Kernel::Portable => Self::Nibbles(tables::TableEncoder::new(generator)),
            Kernel::Table if generator.degree <= MAX_TABLE_BITS => {
                Self::Bytes(tables::TableEncoder::new(generator))
            }
            Kernel::Table => Self::Nibbles(tables::TableEncoder::new(generator)),
            Kernel::Clmul | Kernel::Clmul256 | Kernel::Clmul512 => {
                Self::Fold(clmul::FoldEncoder::new(kernel, fold::FoldTable::new(generator, data_len))?)
            }
        })
    }

    /// The parity of the data.
    pub(crate) fn parity(&self, data: &[u8]) -> Parity {
        match self {
            Self::Nibbles(tables) => tables.parity(data),
            Self::Bytes(tables) => tables.parity(data),
            Self::Fold(fold) => fold.parity(data),
        }
    }
}

/// Finds errors with one kernel.
#[derive(Debug)]
pub(crate) enum Decoder {
    Logarithms(&'static Field),
    Products(clmul::ProductDecoder),
}

impl Decoder {
    /// `None` if the processor lacks the kernel's instructions.
    pub(crate) fn new(kernel: Kernel, field: &'static Field) -> Option<Self> {
        Some(match kernel {
            Kernel::Portable | Kernel::Table => Self::Logarithms(field),
            Kernel::Clmul | Kernel::Clmul256 | Kernel::Clmul512 => {
                Self::Products(clmul::ProductDecoder::new(kernel, field)?)
            }
        })
    }

    /// α^p for each wrong power p of x, from the difference of the parities, into `roots`. False if more than t bits are
    /// wrong.
    pub(crate) fn roots(&self, syndromes: &SyndromeTable, difference: &Parity, roots: &mut Roots) -> bool {
        match self {
            Self::Logarithms(field) => find(LogArith(field), syndromes, difference, roots),
            Self::Products(products) => products.roots(syndromes, difference, roots),
        }
    }
}

/// The algorithm of every kernel. The locator with the coefficient of x^0 first is the polynomial of the inverse roots
/// with the leading coefficient first.
#[inline(always)]
fn find<A: Arith>(arith: A, syndromes: &SyndromeTable, difference: &Parity, found: &mut Roots) -> bool {
    let odd = syndromes.odd(arith, difference);
    let Some((locator, degree)) = locator(arith, &odd, syndromes.t()) else { return false };
    roots(arith, &locator, degree, found).is_some()
}
