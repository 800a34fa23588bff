//! Quantities with their units in the type, and the parsing and printing of quantities.

mod decimal;
mod text;

use core::fmt;

pub use decimal::{Decimal, Inexact};
pub use text::{
    ParseUnitError, SIZE_UNITS, TIME_UNITS, Unit, parse_count, parse_rate, parse_share, split_unit,
};

/// A number of bytes. Printed and parsed with binary multiples: `512 MiB`, `4GiB`, `64k`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(pub u64);

/// The names of the binary multiples, from 2^10 up, with the power of two.
const MULTIPLES: [(&str, u32); 6] =
    [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40), ("PiB", 50), ("EiB", 60)];

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(&(name, shift)) = MULTIPLES.iter().rev().find(|(_, shift)| self.0 >> shift != 0) else {
            return write!(f, "{} B", self.0);
        };
        let whole = self.0 >> shift;
        let rest = self.0 - (whole << shift);
        if rest == 0 {
            return write!(f, "{whole} {name}");
        }
        // Two digits after the point, rounded.
        let hundredths = (u128::from(rest) * 100 + (1 << (shift - 1))) >> shift;
        let (whole, hundredths) = if hundredths == 100 { (whole + 1, 0) } else { (whole, hundredths) };
        write!(f, "{whole}.{hundredths:02} {name}")
    }
}

/// A duration, or a time since the start of a simulation, in whole picoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Picos(pub u64);

/// Picoseconds in a nanosecond.
pub const PS_PER_NS: u64 = 1_000;
/// Picoseconds in a microsecond.
pub const PS_PER_US: u64 = 1_000_000;
/// Picoseconds in a millisecond.
pub const PS_PER_MS: u64 = 1_000_000_000;
/// Picoseconds in a second.
pub const PS_PER_S: u64 = 1_000_000_000_000;

impl Picos {
    /// The duration of `ns` nanoseconds.
    #[must_use]
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns * PS_PER_NS)
    }

    /// The duration of `us` microseconds.
    #[must_use]
    pub const fn from_us(us: u64) -> Self {
        Self(us * PS_PER_US)
    }

    /// The duration in nanoseconds.
    #[must_use]
    pub const fn ns(self) -> f64 {
        self.0 as f64 / PS_PER_NS as f64
    }

    /// The duration in seconds.
    #[must_use]
    pub const fn seconds(self) -> f64 {
        self.0 as f64 / PS_PER_S as f64
    }

    /// `self` x `n`, saturating at the longest duration.
    #[must_use]
    pub const fn times(self, n: u64) -> Self {
        Self(self.0.saturating_mul(n))
    }
}

impl core::ops::Add for Picos {
    type Output = Self;

    /// The sum, saturating at the longest duration.
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl core::iter::Sum for Picos {
    fn sum<I: Iterator<Item = Self>>(spans: I) -> Self {
        spans.fold(Self(0), |a, b| a + b)
    }
}

macro_rules! numbers {
    ($($(#[doc = $doc:expr])+ $name:ident($inner:ty);)+) => {$(
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )+};
}

numbers! {
    /// The number of a virtual page of 64 KiB (28 bits).
    PageId(u32);
    /// The number of a segment-sized slot of flash: block × slots per block + index. The NVMM paper's
    /// flash page number (34 bits).
    Slot(u64);
    /// The number of a block: the unit of erasure.
    BlockId(u32);
    /// An epoch's number in a page-table entry (24 bits); see [`crate::journal`].
    Stamp(u32);
    /// An epoch's number. A sync closes an epoch; no number is used twice in the life of a volume.
    Epoch(u64);
}

/// Size of a virtual page, in bytes (NVMM, Software Interface: 16 bits of offset).
pub const PAGE_BYTES: u64 = 1 << 16;

/// The size of a segment: the unit of flash reads and programs (NVMM, Page Table Organization: 8 KiB, or
/// 4 or 16 KiB).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SegmentSize {
    /// 4 KiB: 16 segments a page, 2 alternative positions each.
    K4,
    /// 8 KiB: 8 segments a page, 4 alternative positions each.
    K8,
    /// 16 KiB: 4 segments a page, 8 alternative positions each.
    K16,
}

impl SegmentSize {
    /// Size of a segment, in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self {
            Self::K4 => 4096,
            Self::K8 => 8192,
            Self::K16 => 16384,
        }
    }

    /// Number of segments in a page.
    #[must_use]
    pub const fn per_page(self) -> u8 {
        (PAGE_BYTES / self.bytes()) as u8
    }

    /// Number of alternative positions of a segment in the 32-bit vector (NVMM, Use of the Bit Vector: 4
    /// at 8 KiB).
    #[must_use]
    pub const fn positions(self) -> u8 {
        32 / self.per_page()
    }

    /// The segment size of `bytes` bytes; `None` if `bytes` is not 4096, 8192 or 16384.
    #[must_use]
    pub const fn from_bytes(bytes: u64) -> Option<Self> {
        match bytes {
            4096 => Some(Self::K4),
            8192 => Some(Self::K8),
            16384 => Some(Self::K16),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn sizes_are_shown_in_the_largest_unit_that_fits() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.50 KiB"),
            ((1 << 30) - 1, "1024.00 MiB"),
            (4 << 30, "4 GiB"),
            (u64::MAX, "16.00 EiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }

    #[test]
    fn a_vector_of_32_bits_gives_2_4_and_8_places() {
        let all = [SegmentSize::K4, SegmentSize::K8, SegmentSize::K16];
        assert_eq!(all.map(SegmentSize::per_page), [16, 8, 4]);
        assert_eq!(all.map(SegmentSize::positions), [2, 4, 8]);
        for size in all {
            assert_eq!(SegmentSize::from_bytes(size.bytes()), Some(size));
        }
        assert_eq!(SegmentSize::from_bytes(512), None);
    }
}
