//! Numbers pages 0, 1, ... in the order of their first use.

use super::options::CharacterizeError;
use crate::workload::mix64;

/// A page of a device, or an object, which is a page of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Page {
    /// Number of the page on its device: the address divided by the page size; the id of an object.
    pub number: u64,
    /// Number of the device.
    pub device: u32,
}

impl Page {
    /// A hash of the page, uniform over 64 bits.
    #[inline]
    #[must_use]
    pub fn hash(self) -> u64 {
        mix64(self.number ^ u64::from(self.device).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }
}

/// The number of no page.
const FREE: u32 = u32::MAX;
/// Most pages: the times of a stack are 32 bits, and a stack needs some free.
const MOST_PAGES: u32 = u32::MAX / 2;

#[derive(Clone, Copy, Debug)]
struct Slot {
    number: u64,
    device: u32,
    id: u32,
}

/// A hash table from pages to their numbers: open addressing with linear probing, at most half full.
#[derive(Clone, Debug)]
pub struct PageIndex {
    slots: Vec<Slot>,
    pages: u32,
    /// Numbers of removed pages, which are given again.
    removed: Vec<u32>,
}

impl Default for PageIndex {
    fn default() -> Self {
        Self::new()
    }
}

impl PageIndex {
    /// An index without pages.
    #[must_use]
    pub fn new() -> Self {
        Self { slots: vec![Slot { number: 0, device: 0, id: FREE }; 1024], pages: 0, removed: Vec::new() }
    }

    /// Number of pages in the index.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.pages - self.removed.len() as u32
    }

    /// True if the index has no pages.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of a page, which enters the index if it is new. `None` if the index is full (2^31 pages).
    #[inline]
    pub fn number(&mut self, page: Page) -> Option<u32> {
        let mut at = self.home(page);
        loop {
            let slot = self.slots[at];
            if slot.number == page.number && slot.device == page.device && slot.id != FREE {
                return Some(slot.id);
            }
            if slot.id == FREE {
                return self.insert(page, at);
            }
            at = self.after(at);
        }
    }

    /// The numbers of pages, which enter the index if they are new, in `numbers`. The waits for memory overlap.
    ///
    /// # Errors
    /// The index is full.
    pub(super) fn number_all(
        &mut self,
        pages: impl Iterator<Item = Page> + Clone,
        numbers: &mut Vec<u32>,
    ) -> Result<(), CharacterizeError> {
        // Loads that depend on nothing, which the processor starts together.
        let homes = pages.clone().map(|page| self.slots[self.home(page)].id);
        std::hint::black_box(homes.fold(0, |all, id| all ^ id));
        numbers.clear();
        for page in pages {
            numbers.push(self.number(page).ok_or(CharacterizeError::TooManyPages)?);
        }
        Ok(())
    }

    fn insert(&mut self, page: Page, at: usize) -> Option<u32> {
        let id = match self.removed.pop() {
            Some(id) => id,
            None if self.pages < MOST_PAGES => {
                self.pages += 1;
                self.pages - 1
            }
            None => return None,
        };
        self.slots[at] = Slot { number: page.number, device: page.device, id };
        if self.pages as usize * 2 > self.slots.len() {
            let larger = vec![Slot { number: 0, device: 0, id: FREE }; 2 * self.slots.len()];
            for slot in std::mem::replace(&mut self.slots, larger) {
                if slot.id != FREE {
                    let at = self.find(Page { number: slot.number, device: slot.device });
                    self.slots[at] = slot;
                }
            }
        }
        Some(id)
    }

    /// Removes a page; its number may be given to another page.
    pub fn remove(&mut self, page: Page) {
        let mut gap = self.find(page);
        if self.slots[gap].id == FREE {
            return;
        }
        self.removed.push(self.slots[gap].id);
        // Pages that were displaced past the gap move back into it, so that a search may stop at a free slot.
        let mask = self.slots.len() - 1;
        let mut at = gap;
        loop {
            at = self.after(at);
            let slot = self.slots[at];
            if slot.id == FREE {
                break;
            }
            let home = self.home(Page { number: slot.number, device: slot.device });
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(gap) & mask {
                self.slots[gap] = slot;
                gap = at;
            }
        }
        self.slots[gap].id = FREE;
    }

    /// The slot of a page, or the free slot at which the search for it ends.
    fn find(&self, page: Page) -> usize {
        let mut at = self.home(page);
        while self.slots[at].id != FREE
            && (self.slots[at].number, self.slots[at].device) != (page.number, page.device)
        {
            at = self.after(at);
        }
        at
    }

    /// The slot at which the search for a page begins.
    #[inline]
    fn home(&self, page: Page) -> usize {
        page.hash() as usize & (self.slots.len() - 1)
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }
}
