//! Sizes of pages and lines.

use core::fmt;
use core::ops::Range;

/// The sizes of the page that has a dirty bit and of the line that is written back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Geometry {
    page_shift: u8,
    line_shift: u8,
}

impl Geometry {
    /// Pages of 4 KiB and lines of 64 B: the paper's.
    pub const PAPER: Self = Self { page_shift: 12, line_shift: 6 };

    /// Pages of `page_bytes` and lines of `line_bytes`.
    ///
    /// # Errors
    /// One of them is not a power of two, or a line is larger than a page.
    pub const fn new(page_bytes: u64, line_bytes: u64) -> Result<Self, GeometryError> {
        if !page_bytes.is_power_of_two() || !line_bytes.is_power_of_two() || line_bytes > page_bytes {
            return Err(GeometryError { page_bytes, line_bytes });
        }
        let (page_shift, line_shift) = (page_bytes.trailing_zeros() as u8, line_bytes.trailing_zeros() as u8);
        Ok(Self { page_shift, line_shift })
    }

    /// Bytes of a page.
    #[must_use]
    pub const fn page_bytes(self) -> u64 {
        1 << self.page_shift
    }

    /// Bytes of a line.
    #[must_use]
    pub const fn line_bytes(self) -> u64 {
        1 << self.line_shift
    }

    /// The number of the page with the byte at `address`.
    #[must_use]
    pub const fn page_of(self, address: u64) -> u64 {
        address >> self.page_shift
    }

    /// The numbers of the pages of which `range` contains a byte.
    #[must_use]
    pub const fn pages_of(self, range: &Range<u64>) -> Range<u64> {
        units(range, self.page_shift)
    }

    /// The numbers of the lines of which `range` contains a byte.
    #[must_use]
    pub const fn lines_of(self, range: &Range<u64>) -> Range<u64> {
        units(range, self.line_shift)
    }

    /// The numbers of the pages that `range` contains whole; empty if there is none.
    #[must_use]
    pub const fn whole_pages_of(self, range: &Range<u64>) -> Range<u64> {
        let first = self.page_of(range.start) + (range.start & (self.page_bytes() - 1) != 0) as u64;
        let end = self.page_of(range.end);
        first..if end > first { end } else { first }
    }
}

/// The numbers of the units of 2^`shift` bytes of which `range` contains a byte.
const fn units(range: &Range<u64>, shift: u8) -> Range<u64> {
    let first = range.start >> shift;
    if range.end <= range.start { first..first } else { first..((range.end - 1) >> shift) + 1 }
}

/// Sizes that are not those of pages and lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GeometryError {
    page_bytes: u64,
    line_bytes: u64,
}

impl fmt::Display for GeometryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "pages of {} B with lines of {} B; give powers of two, and a line that is not larger than a page",
            self.page_bytes, self.line_bytes
        )
    }
}

impl core::error::Error for GeometryError {}
