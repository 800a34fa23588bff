//! The flash page status table (FPST): for each page the strength of its code, the density of its cells,
//! how often it was read, and whether it holds data (flash disk cache, sections 3.1 and 3.3).

use alloc::vec;
use alloc::vec::Vec;

use super::{Density, FlashPage};

const VALID: u8 = 1;
const DIRTY: u8 = 2;
const SLC: u8 = 4;
const BAD: u8 = 8;

/// The status of a page, in four bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageStatus {
    strength: u8,
    flags: u8,
    reads: u16,
}

impl PageStatus {
    /// Bits that the page's code corrects.
    #[must_use]
    pub fn strength(self) -> u8 {
        self.strength
    }

    /// The density of the page's cells.
    #[must_use]
    pub fn density(self) -> Density {
        if self.flags & SLC == 0 { Density::Mlc } else { Density::Slc }
    }

    /// Reads of the page, halved from time to time.
    #[must_use]
    pub fn reads(self) -> u16 {
        self.reads
    }

    /// The page holds data.
    #[must_use]
    pub fn is_valid(self) -> bool {
        self.flags & VALID != 0
    }

    /// The page holds data that the disk does not have.
    #[must_use]
    pub fn is_dirty(self) -> bool {
        self.flags & DIRTY != 0
    }

    /// The page's cells are out of service.
    #[must_use]
    pub fn is_bad(self) -> bool {
        self.flags & BAD != 0
    }
}

/// The table.
#[derive(Debug, Clone)]
pub struct PageStatusTable {
    pages: Vec<PageStatus>,
}

impl PageStatusTable {
    /// `pages` empty pages with codes of this strength in cells of this density.
    #[must_use]
    pub fn new(pages: u32, strength: u8, density: Density) -> Self {
        let flags = if density == Density::Slc { SLC } else { 0 };
        Self { pages: vec![PageStatus { strength, flags, reads: 0 }; pages as usize] }
    }

    /// The status of a page.
    #[must_use]
    #[inline]
    pub fn get(&self, page: FlashPage) -> PageStatus {
        self.pages[page.0 as usize]
    }

    fn set(&mut self, page: FlashPage, flag: u8, on: bool) {
        let status = &mut self.pages[page.0 as usize];
        status.flags = if on { status.flags | flag } else { status.flags & !flag };
    }

    /// The page now holds data, with so many reads to start with.
    pub fn fill(&mut self, page: FlashPage, dirty: bool, reads: u16) {
        self.set(page, VALID, true);
        self.set(page, DIRTY, dirty);
        self.pages[page.0 as usize].reads = reads;
    }

    /// The page no longer holds data.
    pub fn empty(&mut self, page: FlashPage) {
        self.set(page, VALID | DIRTY, false);
        self.pages[page.0 as usize].reads = 0;
    }

    /// The disk has the page's data.
    pub fn clean(&mut self, page: FlashPage) {
        self.set(page, DIRTY, false);
    }

    /// Counts a read. The count saturates. Returns it.
    #[inline]
    pub fn count_read(&mut self, page: FlashPage) -> u16 {
        let status = &mut self.pages[page.0 as usize];
        status.reads = status.reads.saturating_add(1);
        status.reads
    }

    /// Halves the reads of all pages.
    pub fn age(&mut self) {
        self.pages.iter_mut().for_each(|status| status.reads /= 2);
    }

    /// Sets the strength of a page's next code.
    pub fn set_strength(&mut self, page: FlashPage, strength: u8) {
        self.pages[page.0 as usize].strength = strength;
    }

    /// Sets the density of the cells of a page and its neighbour.
    pub fn set_density(&mut self, page: FlashPage, density: Density) {
        for page in [page.first(), page.first().neighbour()] {
            self.set(page, SLC, density == Density::Slc);
        }
    }

    /// Takes the cells of a page and its neighbour out of service.
    pub fn set_bad(&mut self, page: FlashPage) {
        for page in [page.first(), page.first().neighbour()] {
            self.set(page, BAD, true);
        }
    }

    /// Memory of the table, bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.pages.capacity() * size_of::<PageStatus>()
    }
}
