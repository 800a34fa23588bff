//! Quantities with their units in the type.

use alloc::string::String;
use core::fmt;
use core::str::FromStr;

/// A number of bytes. Shown and read with binary multiples: `512 MiB`, `4GiB`, `64k`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(pub u64);

/// Names of the binary multiples, from 2^10 up.
const MULTIPLES: [(&str, u32); 5] = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40), ("PiB", 50)];

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
        // Two digits after the point, rounded; `rest` is below 2^50, so nothing overflows.
        let hundredths = (rest * 100 + (1 << (shift - 1))) >> shift;
        let (whole, hundredths) = if hundredths == 100 { (whole + 1, 0) } else { (whole, hundredths) };
        write!(f, "{whole}.{hundredths:02} {name}")
    }
}

/// A size that is not one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseBytesError {
    text: String,
}

impl fmt::Display for ParseBytesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "\"{}\" is not a size: write a whole number and, if need be, K, M, G, T or P (powers of 1024), like 512M or 4GiB",
            self.text
        )
    }
}

impl core::error::Error for ParseBytesError {}

impl FromStr for Bytes {
    type Err = ParseBytesError;

    fn from_str(text: &str) -> Result<Self, ParseBytesError> {
        let error = || ParseBytesError { text: text.chars().take(40).collect() };
        let trimmed = text.trim();
        let digits = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(digits);
        let number: u64 = number.parse().map_err(|_| error())?;
        let unit = unit.trim();
        let shift = if unit.is_empty() || unit.eq_ignore_ascii_case("b") {
            0
        } else {
            MULTIPLES
                .iter()
                .find(|(name, _)| {
                    let short = unit.strip_suffix(['b', 'B']).unwrap_or(unit);
                    [&name[..1], &name[..2]].iter().any(|form| short.eq_ignore_ascii_case(form))
                })
                .map(|&(_, shift)| shift)
                .ok_or_else(error)?
        };
        number.checked_mul(1 << shift).map(Self).ok_or_else(error)
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
    /// A virtual page of 64 KiB, by its number (28 bits).
    PageId(u32);
    /// A segment-sized place on flash: block × slots per block + index. The flash page number of
    /// the NVMM paper (34 bits).
    Slot(u64);
    /// A block of flash: what is erased, or used anew, at once.
    BlockId(u32);
    /// An epoch as an entry stores it (24 bits); see [`crate::journal`].
    Stamp(u32);
    /// What a sync closes. Never used twice in the life of a volume.
    Epoch(u64);
}

/// Bytes of a virtual page (NVMM, Software Interface: 16 bits of offset).
pub const PAGE_BYTES: u64 = 1 << 16;

/// How much flash programs at once (NVMM, Page Table Organization: 8 KiB, or 4 or 16).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SegmentSize {
    /// 4 KiB: 16 segments a page, each in one of 2 places.
    K4,
    /// 8 KiB: 8 segments a page, each in one of 4 places.
    K8,
    /// 16 KiB: 4 segments a page, each in one of 8 places.
    K16,
}

impl SegmentSize {
    /// Bytes of a segment.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self {
            Self::K4 => 4096,
            Self::K8 => 8192,
            Self::K16 => 16384,
        }
    }

    /// Segments in a page.
    #[must_use]
    pub const fn per_page(self) -> u8 {
        (PAGE_BYTES / self.bytes()) as u8
    }

    /// Alternative places of a segment in the 32-bit vector (facts 1a: 4 at 8 KiB).
    #[must_use]
    pub const fn places(self) -> u8 {
        32 / self.per_page()
    }

    /// The size of `bytes`, if it is one of the three.
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
    fn sizes_are_read_in_the_usual_spellings() {
        for (text, bytes) in [
            ("0", 0),
            ("17", 17),
            ("64k", 64 << 10),
            ("512M", 512 << 20),
            ("512MB", 512 << 20),
            ("4GiB", 4 << 30),
            (" 2 gib ", 2 << 30),
            ("1T", 1 << 40),
            ("12 b", 12),
        ] {
            assert_eq!(text.parse::<Bytes>(), Ok(Bytes(bytes)), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_an_error_that_says_so() {
        for text in ["", "G", "-1", "1.5G", "4 Gibi", "99999999999999999999", "99999999P", "1é"] {
            let error = text.parse::<Bytes>().unwrap_err().to_string();
            assert!(error.contains(text.trim()), "{error}");
        }
    }

    #[test]
    fn sizes_are_shown_in_the_largest_unit_that_fits() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.50 KiB"),
            ((1 << 30) - 1, "1024.00 MiB"),
            (4 << 30, "4 GiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }

    #[test]
    fn a_vector_of_32_bits_gives_2_4_and_8_places() {
        let all = [SegmentSize::K4, SegmentSize::K8, SegmentSize::K16];
        assert_eq!(all.map(SegmentSize::per_page), [16, 8, 4]);
        assert_eq!(all.map(SegmentSize::places), [2, 4, 8]);
        for size in all {
            assert_eq!(SegmentSize::from_bytes(size.bytes()), Some(size));
        }
        assert_eq!(SegmentSize::from_bytes(512), None);
    }
}
