//! The pages of a command.

use crate::flash_array::blocks::Divisor;
use crate::host::Command;

/// The pages of a command, each with its sectors.
pub(crate) struct CommandPages {
    page: Divisor,
    sector: Divisor,
    number: u64,
    /// The offset of the next byte within the page, and the bytes left.
    at: u64,
    left: u64,
}

impl CommandPages {
    /// The pages of `command` after the first `skip`.
    #[inline]
    pub(crate) fn new(command: &Command, skip: u64, page: Divisor, sector: Divisor) -> Self {
        let number = page.of(command.offset);
        let at = command.offset - number * page.number;
        let whole = Self { page, sector, number, at, left: command.len };
        if skip == 0 {
            return whole;
        }
        // The skipped pages end with a whole page.
        let skipped = skip * page.number - at;
        Self { number: number + skip, at: 0, left: command.len.saturating_sub(skipped), ..whole }
    }

    /// The number of pages left.
    pub(crate) fn pages_left(&self) -> u64 {
        self.page.of(self.at + self.left + self.page.number - 1)
    }
}

impl Iterator for CommandPages {
    type Item = (u32, u32);

    #[inline]
    fn next(&mut self) -> Option<(u32, u32)> {
        if self.left == 0 {
            return None;
        }
        let stop = (self.at + self.left).min(self.page.number);
        let (first, last) = (self.sector.of(self.at), self.sector.of(stop - 1));
        let number = self.number as u32;
        self.left -= stop - self.at;
        self.at = 0;
        self.number += 1;
        Some((number, (u32::MAX << first) & (u32::MAX >> (31 - last))))
    }
}
