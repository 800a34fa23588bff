//! The cached mapping table: entries of the page map in the controller's memory, the rest on flash.
//!
//! 1. An entry is resident, or awaited: its mapping page is being read.
//! 2. The least recently used resident entry leaves for a new one. If it is dirty its mapping page is
//!    written anew, and with it every other dirty entry of that page becomes clean.
//! 3. While a mapping page is being written, its entries are still in memory and need no read.

use std::collections::HashMap;

const NIL: u32 = u32::MAX;

/// What a lookup found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// The entry is in memory.
    Resident,
    /// Its page is being read already.
    Awaited,
    /// Its page must be read.
    Missing,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    logical: u32,
    newer: u32,
    older: u32,
    dirty: bool,
    awaited: bool,
    /// Ring of the entries of the same mapping page.
    next: u32,
    before: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct MapPage {
    /// An entry of the page's ring, plus one.
    ring: u32,
    /// Writes of this page under way.
    leaving: u32,
    /// A read of this page is under way.
    arriving: bool,
}

/// A multiplicative hash: keys are numbers, and iteration order is never used.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Mix(u64);

impl std::hash::Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

pub(crate) type Build = std::hash::BuildHasherDefault<Mix>;

/// The table's cache.
#[derive(Debug, Clone)]
pub(crate) struct MappingCache {
    capacity: usize,
    per_page: u32,
    index: HashMap<u32, u32, Build>,
    entries: Vec<Entry>,
    newest: u32,
    oldest: u32,
    pages: Vec<MapPage>,
    spare: Vec<u32>,
}

impl MappingCache {
    /// Room for `capacity` entries of a table of `logical` pages with `per_page` entries a mapping page.
    pub(crate) fn new(capacity: usize, logical: u64, per_page: u32) -> Self {
        Self {
            capacity: capacity.max(2),
            per_page,
            index: HashMap::default(),
            entries: Vec::new(),
            newest: NIL,
            oldest: NIL,
            pages: vec![MapPage::default(); logical.div_ceil(u64::from(per_page)) as usize],
            spare: Vec::new(),
        }
    }

    pub(crate) fn page_of(&self, logical: u32) -> u32 {
        logical / self.per_page
    }

    pub(crate) fn pages(&self) -> u32 {
        self.pages.len() as u32
    }

    fn unlink(&mut self, slot: u32) {
        let entry = self.entries[slot as usize];
        match entry.newer {
            NIL => self.newest = entry.older,
            newer => self.entries[newer as usize].older = entry.older,
        }
        match entry.older {
            NIL => self.oldest = entry.newer,
            older => self.entries[older as usize].newer = entry.newer,
        }
    }

    fn link_newest(&mut self, slot: u32) {
        let old = std::mem::replace(&mut self.newest, slot);
        self.entries[slot as usize].newer = NIL;
        self.entries[slot as usize].older = old;
        match old {
            NIL => self.oldest = slot,
            old => self.entries[old as usize].newer = slot,
        }
    }

    /// Looks an entry up; the caller inserts it if it is not there.
    pub(crate) fn find(&mut self, logical: u32) -> Option<Found> {
        let slot = *self.index.get(&logical)?;
        if self.entries[slot as usize].awaited {
            return Some(Found::Awaited);
        }
        if self.newest != slot {
            self.unlink(slot);
            self.link_newest(slot);
        }
        Some(Found::Resident)
    }

    /// Makes room if there is none, and inserts the entry: resident if its page is in memory on its way
    /// out, awaited otherwise. Also the mapping page that must be written for the entry that left.
    pub(crate) fn insert(&mut self, logical: u32) -> (Found, Option<u32>) {
        let mut write = None;
        if self.index.len() >= self.capacity {
            write = self.evict();
        }
        let page = self.page_of(logical);
        let state = self.pages[page as usize];
        let (found, awaited) = if state.leaving > 0 {
            (Found::Resident, false)
        } else if state.arriving {
            (Found::Awaited, true)
        } else {
            self.pages[page as usize].arriving = true;
            (Found::Missing, true)
        };
        let entry = Entry { logical, newer: NIL, older: NIL, dirty: false, awaited, next: NIL, before: NIL };
        let slot = match self.spare.pop() {
            Some(slot) => {
                self.entries[slot as usize] = entry;
                slot
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        self.link_newest(slot);
        self.join(page, slot);
        self.index.insert(logical, slot);
        (found, write)
    }

    fn join(&mut self, page: u32, slot: u32) {
        let state = &mut self.pages[page as usize];
        if state.ring == 0 {
            self.entries[slot as usize].next = slot;
            self.entries[slot as usize].before = slot;
        } else {
            let head = state.ring - 1;
            let next = self.entries[head as usize].next;
            self.entries[slot as usize].next = next;
            self.entries[slot as usize].before = head;
            self.entries[head as usize].next = slot;
            self.entries[next as usize].before = slot;
        }
        self.pages[page as usize].ring = slot + 1;
    }

    fn leave(&mut self, page: u32, slot: u32) {
        let Entry { next, before, .. } = self.entries[slot as usize];
        if next == slot {
            self.pages[page as usize].ring = 0;
            return;
        }
        self.entries[before as usize].next = next;
        self.entries[next as usize].before = before;
        self.pages[page as usize].ring = next + 1;
    }

    /// Drops the least recently used resident entry; the mapping page to write if it was dirty.
    fn evict(&mut self) -> Option<u32> {
        let mut slot = self.oldest;
        while slot != NIL && self.entries[slot as usize].awaited {
            slot = self.entries[slot as usize].newer;
        }
        if slot == NIL {
            return None;
        }
        let Entry { logical, dirty, .. } = self.entries[slot as usize];
        let page = self.page_of(logical);
        self.unlink(slot);
        self.leave(page, slot);
        self.index.remove(&logical);
        self.spare.push(slot);
        if !dirty {
            return None;
        }
        let ring = self.pages[page as usize].ring;
        if ring != 0 {
            let first = ring - 1;
            let mut slot = first;
            loop {
                self.entries[slot as usize].dirty = false;
                slot = self.entries[slot as usize].next;
                if slot == first {
                    break;
                }
            }
        }
        self.pages[page as usize].leaving += 1;
        Some(page)
    }

    /// The entry, resident, was changed.
    pub(crate) fn dirty(&mut self, logical: u32) {
        if let Some(slot) = self.index.get(&logical) {
            self.entries[*slot as usize].dirty = true;
        }
    }

    /// The mapping page has been read: its awaited entries are resident.
    pub(crate) fn arrived(&mut self, page: u32) {
        self.pages[page as usize].arriving = false;
        let ring = self.pages[page as usize].ring;
        if ring == 0 {
            return;
        }
        let mut slot = ring - 1;
        loop {
            self.entries[slot as usize].awaited = false;
            slot = self.entries[slot as usize].next;
            if slot == ring - 1 {
                break;
            }
        }
    }

    /// A write of the mapping page is over.
    pub(crate) fn written(&mut self, page: u32) {
        let leaving = &mut self.pages[page as usize].leaving;
        *leaving = leaving.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_dirty_entry_takes_its_page_with_it() {
        let mut cache = MappingCache::new(2, 100, 10);
        assert_eq!(cache.insert(1), (Found::Missing, None));
        assert_eq!(cache.insert(2), (Found::Awaited, None));
        cache.arrived(0);
        assert_eq!(cache.find(1), Some(Found::Resident));
        cache.dirty(1);
        cache.dirty(2);
        // 2 is older now; with it leaves page 0, and 1 is clean.
        assert_eq!(cache.insert(33), (Found::Missing, Some(0)));
        cache.arrived(3);
        assert_eq!(cache.insert(44).1, None, "1 was clean");
        assert_eq!(cache.find(2), None);
        // Page 0 is still in memory until its write is over.
        assert_eq!(cache.insert(2).0, Found::Resident);
        cache.written(0);
    }
}
