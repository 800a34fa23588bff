//! The locations of pages: the frame in memory, and the page of the drive.
//!
//! Drive page n is the drive's n-th 4 KiB. A page of a file has the drive page of its own number. A page
//! of anonymous memory has a drive page, its swap slot, from its first write-back until it is written to
//! again in memory. Slots are allocated in order, round the swap area, so pages that are evicted
//! together lie together.
//!
//! Versions stand for data: a page's version is the number of the host's writes to it; a drive page's
//! version is that of the page when it was last written back.

use deepram_core::ftl::PageMap;

use crate::error::SimError;

/// No frame, no drive page, no page.
pub(super) const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    frame: u32,
    slot: u32,
    version: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DriveCopy {
    page: u32,
    version: u32,
}

pub(super) struct PageLocations {
    swap: bool,
    pages: u32,
    table: PageMap<Entry>,
    drive_pages: PageMap<DriveCopy>,
    next: u32,
    in_use: u64,
}

impl PageLocations {
    /// Locations of `pages` pages: all on the drive or, for swap, untouched.
    pub(super) fn new(swap: bool, pages: u32) -> Self {
        Self {
            swap,
            pages,
            table: PageMap::sparse(pages, Entry { frame: NONE, slot: NONE, version: 0 }),
            drive_pages: PageMap::sparse(pages, DriveCopy { page: NONE, version: 0 }),
            next: 0,
            in_use: 0,
        }
    }

    pub(super) fn pages(&self) -> u32 {
        self.pages
    }

    #[inline]
    pub(super) fn frame(&self, page: u32) -> Option<u32> {
        Some(self.table.get(page).frame).filter(|frame| *frame != NONE)
    }

    pub(super) fn set_frame(&mut self, page: u32, frame: u32) {
        let entry = self.table.get(page);
        self.table.set(page, Entry { frame, ..entry });
    }

    /// Prefetches the page's entry into the processor's caches.
    pub(super) fn prefetch(&self, page: u32) {
        self.table.prefetch(page);
    }

    /// The page's version: the number of the host's writes to it.
    #[inline]
    pub(super) fn version(&self, page: u32) -> u32 {
        self.table.get(page).version
    }

    /// Records a write of the host. Returns the page's new version.
    #[inline]
    pub(super) fn write(&mut self, page: u32) -> u32 {
        let mut entry = self.table.get(page);
        entry.version = entry.version.wrapping_add(1);
        self.table.set(page, entry);
        entry.version
    }

    /// The drive page of a page, if it has one.
    pub(super) fn drive_page_of(&self, page: u32) -> Option<u32> {
        if self.swap { Some(self.table.get(page).slot).filter(|slot| *slot != NONE) } else { Some(page) }
    }

    /// The page whose data a drive page holds.
    pub(super) fn page_at(&self, drive_page: u32) -> Option<u32> {
        if self.swap {
            Some(self.drive_pages.get(drive_page).page).filter(|page| *page != NONE)
        } else {
            Some(drive_page).filter(|drive_page| *drive_page < self.pages)
        }
    }

    /// The version of the data in a drive page.
    pub(super) fn version_at(&self, drive_page: u32) -> u32 {
        self.drive_pages.get(drive_page).version
    }

    /// The drive page to write a page to: its present one, or the next free slot.
    ///
    /// # Errors
    /// No slot is free. That cannot happen, since there are as many slots as pages.
    pub(super) fn allocate_drive_page(&mut self, page: u32) -> Result<u32, SimError> {
        if let Some(drive_page) = self.drive_page_of(page) {
            return Ok(drive_page);
        }
        if self.in_use >= u64::from(self.pages) {
            return Err(SimError::Conservation {
                law: "a page without a slot finds a free slot",
                found: format!("{} slots of {} in use", self.in_use, self.pages),
            });
        }
        while self.drive_pages.get(self.next).page != NONE {
            self.next = (self.next + 1) % self.pages;
        }
        let slot = self.next;
        self.next = (self.next + 1) % self.pages;
        self.in_use += 1;
        self.drive_pages.set(slot, DriveCopy { page, version: 0 });
        let entry = self.table.get(page);
        self.table.set(page, Entry { slot, ..entry });
        Ok(slot)
    }

    /// Records that a drive page was written with this version of the page.
    pub(super) fn written(&mut self, drive_page: u32, page: u32, version: u32) {
        self.drive_pages.set(drive_page, DriveCopy { page, version });
    }

    /// Frees the page's swap slot, whose data are out of date.
    pub(super) fn release(&mut self, page: u32) {
        let entry = self.table.get(page);
        if self.swap && entry.slot != NONE {
            self.drive_pages.set(entry.slot, DriveCopy { page: NONE, version: 0 });
            self.table.set(page, Entry { slot: NONE, ..entry });
            self.in_use -= 1;
        }
    }

    /// The pages in memory, with their frames.
    pub(super) fn resident(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.table.iter().map(|(page, entry)| (page, entry.frame)).filter(|(_, frame)| *frame != NONE)
    }

    /// Checks the laws of this table: slots and their pages refer to each other, and the drive holds the
    /// last version of every page that is not in memory.
    ///
    /// # Errors
    /// [`SimError::Conservation`].
    pub(super) fn check(&self) -> Result<(), SimError> {
        let mut slots = 0;
        for (page, entry) in self.table.iter() {
            slots += u64::from(entry.slot != NONE);
            let drive_page = self.drive_page_of(page);
            if let Some(drive_page) = drive_page
                && self.page_at(drive_page) != Some(page)
            {
                return Err(SimError::Conservation {
                    law: "a page's slot holds the page",
                    found: format!(
                        "page {page} has slot {drive_page}, which holds {:?}",
                        self.page_at(drive_page)
                    ),
                });
            }
            let drive_version = drive_page.map_or(0, |drive_page| self.version_at(drive_page));
            if entry.frame == NONE && drive_version != entry.version {
                return Err(SimError::Conservation {
                    law: "the drive has the last data of each page that is not in memory",
                    found: format!("page {page} at version {drive_version}, not {}", entry.version),
                });
            }
        }
        crate::flash::law("slots in use are those that pages have", self.in_use, slots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_slot_is_given_to_two_pages_however_often_the_area_is_gone_round(
            steps in prop::collection::vec((0u32..8, any::<bool>()), 1..200),
        ) {
            let mut store = PageLocations::new(true, 8);
            let mut model: [Option<u32>; 8] = [None; 8];
            for (page, take) in steps {
                if take {
                    let drive_page = store.allocate_drive_page(page).unwrap();
                    prop_assert!(model[page as usize].is_none_or(|had| had == drive_page));
                    model[page as usize] = Some(drive_page);
                    store.written(drive_page, page, store.version(page));
                } else {
                    store.release(page);
                    model[page as usize] = None;
                }
                for (page, drive_page) in (0..).zip(model) {
                    prop_assert_eq!(store.drive_page_of(page), drive_page);
                    prop_assert!(drive_page.is_none_or(|drive_page| store.page_at(drive_page) == Some(page)));
                }
                store.check().unwrap();
            }
        }
    }
}
