//! Where pages are: in which frame, and in which place of the drive.
//!
//! The n-th place of the drive is its n-th 4 KiB. A page of a file has the place of its own number. A
//! page of anonymous memory has a place, its slot, from its first write-back until it is written to
//! again in memory; slots are given out in order, round the swap area, so that what is evicted together
//! lies together.
//!
//! Versions stand for data: the host's is how often it wrote to the page, a place's that of the page
//! when it was last written there.

use deepram_core::ftl::PageMap;

use crate::error::SimError;

/// No frame, no place, no page.
pub(super) const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    frame: u32,
    slot: u32,
    version: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    page: u32,
    version: u32,
}

pub(super) struct Store {
    swap: bool,
    pages: u32,
    table: PageMap<Entry>,
    places: PageMap<Held>,
    next: u32,
    in_use: u64,
}

impl Store {
    /// `pages` pages, all of them on the drive or, for swap, untouched.
    pub(super) fn new(swap: bool, pages: u32) -> Self {
        Self {
            swap,
            pages,
            table: PageMap::sparse(pages, Entry { frame: NONE, slot: NONE, version: 0 }),
            places: PageMap::sparse(pages, Held { page: NONE, version: 0 }),
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

    /// Brings what is known of the page into the processor's caches.
    pub(super) fn foresee(&self, page: u32) {
        self.table.prefetch(page);
    }

    /// How often the host wrote to the page.
    #[inline]
    pub(super) fn version(&self, page: u32) -> u32 {
        self.table.get(page).version
    }

    /// The host writes to the page: its new version.
    #[inline]
    pub(super) fn write(&mut self, page: u32) -> u32 {
        let mut entry = self.table.get(page);
        entry.version = entry.version.wrapping_add(1);
        self.table.set(page, entry);
        entry.version
    }

    /// Where the drive has the page, if it does.
    pub(super) fn place(&self, page: u32) -> Option<u32> {
        if self.swap { Some(self.table.get(page).slot).filter(|slot| *slot != NONE) } else { Some(page) }
    }

    /// The page that the place holds.
    pub(super) fn page_at(&self, place: u32) -> Option<u32> {
        if self.swap {
            Some(self.places.get(place).page).filter(|page| *page != NONE)
        } else {
            Some(place).filter(|place| *place < self.pages)
        }
    }

    /// The version that the place holds.
    pub(super) fn held(&self, place: u32) -> u32 {
        self.places.get(place).version
    }

    /// A place to write the page to: the one it has, or the next free slot.
    ///
    /// # Errors
    /// There is no free slot. A page that needs one has none, so there is always one.
    pub(super) fn place_for(&mut self, page: u32) -> Result<u32, SimError> {
        if let Some(place) = self.place(page) {
            return Ok(place);
        }
        if self.in_use >= u64::from(self.pages) {
            return Err(SimError::Conservation {
                law: "pages without a slot leave slots free",
                found: format!("{} slots of {} in use", self.in_use, self.pages),
            });
        }
        while self.places.get(self.next).page != NONE {
            self.next = (self.next + 1) % self.pages;
        }
        let slot = self.next;
        self.next = (self.next + 1) % self.pages;
        self.in_use += 1;
        self.places.set(slot, Held { page, version: 0 });
        let entry = self.table.get(page);
        self.table.set(page, Entry { slot, ..entry });
        Ok(slot)
    }

    /// The place has been written with that version of the page.
    pub(super) fn written(&mut self, place: u32, page: u32, version: u32) {
        self.places.set(place, Held { page, version });
    }

    /// The page differs from its slot now, which is free.
    pub(super) fn release(&mut self, page: u32) {
        let entry = self.table.get(page);
        if self.swap && entry.slot != NONE {
            self.places.set(entry.slot, Held { page: NONE, version: 0 });
            self.table.set(page, Entry { slot: NONE, ..entry });
            self.in_use -= 1;
        }
    }

    /// Pages in memory: page, frame.
    pub(super) fn resident(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.table.iter().map(|(page, entry)| (page, entry.frame)).filter(|(_, frame)| *frame != NONE)
    }

    /// The laws of this table: slots and their pages name each other, and what is not in memory is on the
    /// drive as the host wrote it last.
    ///
    /// # Errors
    /// [`SimError::Conservation`].
    pub(super) fn check(&self) -> Result<(), SimError> {
        let mut slots = 0;
        for (page, entry) in self.table.iter() {
            slots += u64::from(entry.slot != NONE);
            let place = self.place(page);
            if let Some(place) = place
                && self.page_at(place) != Some(page)
            {
                return Err(SimError::Conservation {
                    law: "a page's slot holds the page",
                    found: format!("page {page} has slot {place}, which holds {:?}", self.page_at(place)),
                });
            }
            let held = place.map_or(0, |place| self.held(place));
            if entry.frame == NONE && held != entry.version {
                return Err(SimError::Conservation {
                    law: "the drive has the last data of each page that is not in memory",
                    found: format!("page {page} at version {held}, not {}", entry.version),
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
            let mut store = Store::new(true, 8);
            let mut model: [Option<u32>; 8] = [None; 8];
            for (page, take) in steps {
                if take {
                    let place = store.place_for(page).unwrap();
                    prop_assert!(model[page as usize].is_none_or(|had| had == place));
                    model[page as usize] = Some(place);
                    store.written(place, page, store.version(page));
                } else {
                    store.release(page);
                    model[page as usize] = None;
                }
                for (page, place) in (0..).zip(model) {
                    prop_assert_eq!(store.place(page), place);
                    prop_assert!(place.is_none_or(|place| store.page_at(place) == Some(page)));
                }
                store.check().unwrap();
            }
        }
    }
}
