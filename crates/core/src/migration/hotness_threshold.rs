//! The hotness threshold: after how many writes a page of the PCM partition moves to the DRAM partition
//! (hybrid SSD cache, section V-C, Algorithm 2).
//!
//! Eight registers, the block trackers, hold how many pages of the present period have a count of 1 to
//! 8. A write of a page that the period has seen moves the page from the register below to that of its
//! new count. At the period's end, the threshold becomes the smallest count for which the pages with at
//! least this count fill the DRAM partition, and 1 if they do not fill it.
//!
//! The algorithm as printed differs in two places ([`HotnessForm::Literal`]):
//!
//! - It increments a register only for a page that the period has not seen, so a page that is written
//!   again leaves the registers, which can become negative.
//! - It moves a page whose counter is saturated from register 7 to 8 at every write, so register 8
//!   counts writes and not pages.

use super::bloom_filter::{BloomFilter, PageHash};
use super::saturating_counter::{MAX_COUNT, SaturatingCounter};

/// The form of Algorithm 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HotnessForm {
    /// Each page of the period is in the register of its count; see the module.
    #[default]
    Corrected,
    /// As printed.
    Literal,
}

/// The state of Algorithm 2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HotnessThreshold {
    form: HotnessForm,
    /// Scales the registers from the period's pages to all resident pages.
    scaled: bool,
    /// Pages of the DRAM partition.
    dram_pages: u64,
    seen: BloomFilter,
    trackers: [i32; MAX_COUNT as usize],
    /// Pages of the period, as the Bloom filter tells them apart.
    unique: u32,
    threshold: u8,
}

impl HotnessThreshold {
    /// The state before the first write, with a threshold of 1 and an empty filter like `filter`. If
    /// `scaled`, the registers count for all resident pages, in the proportion in which the pages of the
    /// period do (the paper declares an interpolation and does not state it).
    #[must_use]
    pub fn new(form: HotnessForm, scaled: bool, dram_pages: u64, filter: BloomFilter) -> Self {
        let mut seen = filter;
        seen.clear();
        Self { form, scaled, dram_pages, seen, trackers: [0; MAX_COUNT as usize], unique: 0, threshold: 1 }
    }

    /// Records a write of a page whose counter was `before` (`None` if it had none) and is `counter`.
    #[inline]
    pub fn record(&mut self, page: PageHash, before: Option<SaturatingCounter>, counter: SaturatingCounter) {
        let at = usize::from(counter.count()) - 1;
        let seen = self.seen.contains(page);
        if !seen {
            self.seen.insert(page);
            self.unique += 1;
        }
        match self.form {
            HotnessForm::Corrected => {
                if seen && before.is_some_and(SaturatingCounter::is_saturated) {
                    return;
                }
                if seen && at > 0 {
                    // The filter may take a new page for one that it has seen.
                    self.trackers[at - 1] = (self.trackers[at - 1] - 1).max(0);
                }
                self.trackers[at] += 1;
            }
            HotnessForm::Literal => {
                if !seen {
                    self.trackers[at] += 1;
                } else if at > 0 {
                    self.trackers[at - 1] -= 1;
                }
            }
        }
    }

    /// Ends a period: sets the threshold and begins the next period. `resident` is the number of pages in
    /// the buffer.
    pub fn end_period(&mut self, resident: u64) {
        let (mut sum, mut count) = (0i64, MAX_COUNT);
        while count > 0 && !self.fills_dram(sum, resident) {
            sum += i64::from(self.trackers[usize::from(count) - 1]);
            self.threshold = count;
            count -= 1;
        }
        self.trackers = [0; MAX_COUNT as usize];
        self.unique = 0;
        self.seen.clear();
    }

    /// True if `pages` pages of the period fill the DRAM partition.
    fn fills_dram(&self, pages: i64, resident: u64) -> bool {
        let (pages, dram) = (i128::from(pages), i128::from(self.dram_pages));
        if self.scaled {
            pages * i128::from(resident) >= dram * i128::from(self.unique.max(1))
        } else {
            pages >= dram
        }
    }

    /// The threshold, 1 to 8.
    #[must_use]
    #[inline]
    pub fn threshold(&self) -> u8 {
        self.threshold
    }

    /// The registers: entry n holds the pages of the present period with a count of n + 1.
    #[must_use]
    pub fn trackers(&self) -> [i32; MAX_COUNT as usize] {
        self.trackers
    }
}
