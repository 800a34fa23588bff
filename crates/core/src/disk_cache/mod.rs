//! A disk cache of two levels: DRAM in front of flash in front of a disk (flash disk cache, section 3).
//!
//! ```text
//!   read ----> DRAM ----> flash, read region ----> disk
//!                  <-hit-                    <-miss-
//!                         <------ fill ------
//!   write ---> DRAM --write-back--> flash, write region --flush--> disk
//! ```
//!
//! 1. DRAM holds the most recently used pages, clean and dirty. A page that leaves DRAM dirty, and each
//!    dirty page from time to time ([`DiskCache::write_back`]), is written to flash, out of place, into
//!    the write region. A copy in the read region becomes invalid.
//! 2. A page that is read from the disk enters DRAM and the read region. Without an empty page the least
//!    recently used block of the read region is evicted; dirty pages of an evicted block go to the disk
//!    first. Holes that writes leave in the read region are not reclaimed.
//! 3. The write region, or all of the flash if it is not split, is reclaimed: valid pages of a block move,
//!    and the block is erased (`flash`). Where no block has enough dead pages, the least recently used one
//!    is evicted.
//! 4. Dirty pages of flash are flushed to the disk from time to time ([`DiskCache::flush`]).
//! 5. Errors of reads change strength and density, retire cells, and move hot pages (`faults`), as
//!    [`crate::reliability`] decides.
//!
//! The state changes at once. The caller carries the returned [`Step`]s out in order, and supplies the
//! errors of each read of flash.

mod faults;
mod flash;
mod options;
mod reclaim;
mod step;

use alloc::vec::Vec;

pub use flash::FlashCache;
pub use options::{DiskCacheOptions, FEWEST_BLOCKS, FEWEST_SPLIT_BLOCKS, OptionsError, ReclaimScope};
pub use step::{Cause, FlashReads, NoErrors, Note, PhysicalPage, ReadErrors, ReadOutcome, Step};

use crate::cache::KeyLists;
use crate::reliability::Level;

/// The only list of a table of keys.
const LIST: u32 = 0;

/// The errors that flash reads have, and the steps that the cache takes.
pub(super) struct Run<'a> {
    reads: &'a mut dyn FlashReads,
    steps: &'a mut Vec<Step>,
}

impl Run<'_> {
    fn note(&mut self, note: Note) {
        self.steps.push(Step::Note(note));
    }
}

/// The cache; see the module. Pages are numbered by their place on the disk, below 2^32 - 1.
#[derive(Debug, Clone)]
pub struct DiskCache {
    dram_pages: u32,
    /// Pages in DRAM in the order of use.
    dram: KeyLists<u32>,
    /// Dirty pages in DRAM in the order in which they became dirty.
    dirty: KeyLists<u32>,
    flash: FlashCache,
}

impl DiskCache {
    /// An empty cache.
    ///
    /// # Errors
    /// The options contradict each other.
    pub fn new(options: &DiskCacheOptions) -> Result<Self, OptionsError> {
        options.check()?;
        Ok(Self {
            dram_pages: options.dram_pages,
            dram: KeyLists::new(options.dram_pages as usize),
            dirty: KeyLists::new(options.dram_pages as usize),
            flash: FlashCache::new(options),
        })
    }

    /// The secondary cache.
    #[must_use]
    pub fn flash(&self) -> &FlashCache {
        &self.flash
    }

    /// The secondary cache, to add the times of reads to its global status.
    pub fn flash_mut(&mut self) -> &mut FlashCache {
        &mut self.flash
    }

    /// Pages in DRAM.
    #[must_use]
    pub fn pages_in_dram(&self) -> u32 {
        self.dram.len(LIST) as u32
    }

    /// Dirty pages in DRAM.
    #[must_use]
    pub fn dirty_in_dram(&self) -> u32 {
        self.dirty.len(LIST) as u32
    }

    /// True if the page is in DRAM.
    #[must_use]
    pub fn is_in_dram(&self, page: u32) -> bool {
        self.dram.find(page).is_some()
    }

    /// Reads a page. It is then in DRAM, as the most recently used one.
    pub fn read(&mut self, page: u32, reads: &mut dyn FlashReads, steps: &mut Vec<Step>) -> ReadOutcome {
        if let Some(slot) = self.dram.find(page) {
            self.dram.move_to_newest(slot, LIST);
            self.flash.status_mut().count(Level::Dram);
            return ReadOutcome::Dram;
        }
        let mut run = Run { reads, steps };
        let outcome = match self.flash.read(page, &mut run) {
            Some(Ok(physical)) => ReadOutcome::Flash(physical),
            other => {
                self.flash.status_mut().count(Level::Disk);
                self.flash.fill(page, &mut run);
                ReadOutcome::Disk { failed: other.and_then(Result::err) }
            }
        };
        self.enter(page, &mut run);
        self.flash.settle(&mut run);
        outcome
    }

    /// Writes a whole page. It is then in DRAM, dirty, as the most recently used one. Returns true if it was
    /// in DRAM before.
    pub fn write(&mut self, page: u32, reads: &mut dyn FlashReads, steps: &mut Vec<Step>) -> bool {
        let mut run = Run { reads, steps };
        let hit = match self.dram.find(page) {
            Some(slot) => {
                self.dram.move_to_newest(slot, LIST);
                true
            }
            None => {
                self.enter(page, &mut run);
                false
            }
        };
        if self.dirty.find(page).is_none() {
            self.dirty.push(LIST, page);
        }
        self.flash.settle(&mut run);
        hit
    }

    /// Adds a page to DRAM, which may evict the least recently used one.
    fn enter(&mut self, page: u32, run: &mut Run<'_>) {
        while self.dram.len(LIST) as u32 >= self.dram_pages {
            let Some(victim) = self.dram.remove_oldest(LIST, |_| true) else { break };
            if let Some(slot) = self.dirty.find(victim) {
                self.dirty.remove(slot);
                self.flash.write_back(victim, run);
            }
        }
        self.dram.push(LIST, page);
    }

    /// Writes up to `most` dirty pages of DRAM to flash, the oldest first. Returns their number.
    pub fn write_back(&mut self, most: u32, reads: &mut dyn FlashReads, steps: &mut Vec<Step>) -> u32 {
        let mut run = Run { reads, steps };
        let mut written = 0;
        while written < most
            && let Some(page) = self.dirty.remove_oldest(LIST, |_| true)
        {
            self.flash.write_back(page, &mut run);
            written += 1;
        }
        self.flash.settle(&mut run);
        written
    }

    /// Writes up to `most` dirty pages of flash to the disk, in the order of the disk. Returns their number.
    pub fn flush(&mut self, most: u32, reads: &mut dyn FlashReads, steps: &mut Vec<Step>) -> u32 {
        let mut run = Run { reads, steps };
        let flushed = self.flash.flush(most, &mut run);
        self.flash.settle(&mut run);
        flushed
    }

    /// Reclaims flash in the background, where a region runs out of blocks.
    pub fn reclaim(&mut self, reads: &mut dyn FlashReads, steps: &mut Vec<Step>) {
        let mut run = Run { reads, steps };
        self.flash.reclaim_in_background(&mut run);
        self.flash.settle(&mut run);
    }

    /// Forgets a page, dirty or not. Returns true if it was anywhere.
    pub fn discard(&mut self, page: u32) -> bool {
        let in_dram = self.dram.find(page).map(|slot| self.dram.remove(slot)).is_some();
        if let Some(slot) = self.dirty.find(page) {
            self.dirty.remove(slot);
        }
        self.flash.discard(page) || in_dram
    }
}
