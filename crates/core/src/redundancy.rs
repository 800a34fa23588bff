//! Stripes with parity: which slots of a block protect each other.
//!
//! A block with `data + parity` redundancy is divided into `data` columns of consecutive slots, all of one length, and
//! has `parity` further columns beside its slots. Row `r` is a stripe: slot `r` of each column. The log fills the
//! slots in order, column after column, so parity always covers a prefix of the block, in which it takes the slots
//! beyond the prefix as zeros. A slot of the prefix never changes until the block is reused, so parity of a shorter
//! prefix stays correct while the log goes on.

use alloc::string::{String, ToString};
use core::fmt;
use core::ops::Range;
use core::str::FromStr;

/// The numbers of data and parity columns of a block: as many damaged slots of a stripe as there are parity columns
/// can be rebuilt. Printed and parsed as `8+1`; `8` is `8+1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Redundancy {
    data: u8,
    parity: u8,
}

/// The text is not a redundancy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseRedundancyError {
    text: String,
}

impl fmt::Display for ParseRedundancyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is not a redundancy: expected data and parity columns such as 8+1 or 8+2, with 1 to {} data columns \
             and 1 to {} parity columns",
            self.text,
            Redundancy::MAX_DATA,
            Redundancy::MAX_PARITY
        )
    }
}

impl core::error::Error for ParseRedundancyError {}

impl Redundancy {
    /// The most data columns.
    pub const MAX_DATA: u8 = 32;
    /// The most parity columns.
    pub const MAX_PARITY: u8 = 4;

    /// `None` unless there are 1 to [`Redundancy::MAX_DATA`] data columns and 1 to [`Redundancy::MAX_PARITY`] parity
    /// columns.
    #[must_use]
    pub fn new(data: u8, parity: u8) -> Option<Self> {
        let valid = (1..=Self::MAX_DATA).contains(&data) && (1..=Self::MAX_PARITY).contains(&parity);
        valid.then_some(Self { data, parity })
    }

    /// Number of data columns.
    #[must_use]
    pub fn data(self) -> u8 {
        self.data
    }

    /// Number of parity columns.
    #[must_use]
    pub fn parity(self) -> u8 {
        self.parity
    }

    /// Number of rows of a block with `slots` slots, a multiple of the number of data columns.
    #[must_use]
    pub fn rows(self, slots: u16) -> u16 {
        slots / u16::from(self.data)
    }

    /// The slots of row `row` that are below `covered`, by column; the others count as zeros.
    pub fn stripe(self, slots: u16, row: u16, covered: u16) -> impl Iterator<Item = Option<u16>> {
        let rows = self.rows(slots);
        (0..u16::from(self.data)).map(move |column| Some(column * rows + row).filter(|slot| *slot < covered))
    }

    /// The rows that slots `from..to` lie in, in at most two ranges, lowest first.
    #[must_use]
    pub fn rows_of(self, slots: u16, from: u16, to: u16) -> [Range<u16>; 2] {
        let rows = self.rows(slots);
        if from >= to {
            return [0..0, 0..0];
        }
        if to - from >= rows {
            return [0..rows, 0..0];
        }
        let (first, last) = (from % rows, (to - 1) % rows);
        if first <= last { [first..last + 1, 0..0] } else { [0..last + 1, first..rows] }
    }
}

impl fmt::Display for Redundancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.data, self.parity)
    }
}

impl FromStr for Redundancy {
    type Err = ParseRedundancyError;

    fn from_str(text: &str) -> Result<Self, ParseRedundancyError> {
        let (data, parity) = text.split_once('+').unwrap_or((text, "1"));
        let number = |text: &str| text.trim().parse().ok();
        number(data)
            .zip(number(parity))
            .and_then(|(data, parity)| Self::new(data, parity))
            .ok_or_else(|| ParseRedundancyError { text: text.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn text_gives_columns_or_an_error_that_says_what_is_right() {
        for (text, columns) in [("8", (8, 1)), ("8+1", (8, 1)), ("10 + 2", (10, 2)), ("32+4", (32, 4))] {
            let parsed: Redundancy = text.parse().unwrap();
            assert_eq!((parsed.data(), parsed.parity()), columns, "{text}");
            assert_eq!(parsed.to_string().parse(), Ok(parsed));
        }
        for text in ["", "0", "0+1", "33+1", "8+0", "8+5", "8+1+1", "-8", "8x1", "300"] {
            let error = text.parse::<Redundancy>().unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("8+1"), "{error}");
        }
    }

    #[test]
    fn each_slot_is_in_one_row_and_each_row_has_one_slot_of_each_column() {
        let redundancy = Redundancy::new(4, 1).unwrap();
        let all: Vec<u16> =
            (0..16).flat_map(|row| redundancy.stripe(64, row, 64)).map(Option::unwrap).collect();
        let mut sorted = all.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..64).collect::<Vec<_>>());
        assert_eq!(all[..4], [0, 16, 32, 48]);
        let covered: Vec<_> = redundancy.stripe(64, 3, 20).collect();
        assert_eq!(covered, [Some(3), Some(19), None, None]);
    }

    #[test]
    fn the_rows_of_a_range_are_those_of_its_slots() {
        let redundancy = Redundancy::new(3, 1).unwrap();
        for from in 0..24_u16 {
            for to in from..=24 {
                let ranges = redundancy.rows_of(24, from, to);
                let listed: Vec<u16> = ranges.iter().cloned().flatten().collect();
                let mut rows: Vec<u16> = (from..to).map(|slot| slot % 8).collect();
                rows.sort_unstable();
                rows.dedup();
                assert_eq!(listed, rows, "{from}..{to}");
            }
        }
    }
}
