//! The cached part of a drive's mapping table, least recently used first out, one entry at a time
//! (DFTL's cached mapping table). The table itself is on flash, `per_page` entries a mapping page.
//!
//! 1. An entry that is not there makes its mapping page be read; it is *awaited* until the page
//!    has arrived, and so are entries of the same page asked for meanwhile.
//! 2. A dirty entry that leaves takes the dirty entries of its page with it: the page is written
//!    once for all, and those that stay are clean.
//! 3. A mapping page whose write is under way is still in memory: its entries need no read.
//! 4. Every operation takes O(1), whatever the number of entries of a page: what is awaited and
//!    what is dirty is told by numbers of the page's reads and writes, not by marks on each entry.

use alloc::vec;
use alloc::vec::Vec;

const NIL: u32 = u32::MAX;

/// What a lookup found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// The entry is in the cache.
    Resident,
    /// Its mapping page is being read already.
    Awaited,
    /// Its mapping page must be read.
    Missing,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    logical: u32,
    page: u32,
    /// Next entry of the same bucket.
    chain: u32,
    newer: u32,
    older: u32,
    /// The read of the page that it came with; 0 if it needed none.
    read: u32,
    /// The write of the page that will save it; an earlier one if it is clean.
    saved_by: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct MapPage {
    /// Reads begun so far.
    reads: u32,
    /// Writes begun so far.
    writes: u32,
    /// Writes under way.
    leaving: u16,
    arriving: bool,
}

/// The table's cache; see the module.
#[derive(Debug, Clone)]
pub struct MappingCache {
    capacity: usize,
    per_page: u32,
    buckets: Vec<u32>,
    shift: u32,
    entries: Vec<Entry>,
    newest: u32,
    oldest: u32,
    pages: Vec<MapPage>,
}

impl MappingCache {
    /// Room for `capacity` entries, at least 2, of a table of `logical` pages with `per_page` entries
    /// a mapping page, at least 1.
    #[must_use]
    pub fn new(capacity: usize, logical: u32, per_page: u32) -> Self {
        let (capacity, per_page) = (capacity.clamp(2, 1 << 30), per_page.max(1));
        let buckets = capacity.min(logical.max(1) as usize).next_power_of_two().max(2);
        Self {
            capacity,
            per_page,
            buckets: vec![NIL; buckets],
            shift: 32 - buckets.ilog2(),
            entries: Vec::new(),
            newest: NIL,
            oldest: NIL,
            pages: vec![MapPage::default(); logical.div_ceil(per_page) as usize],
        }
    }

    /// Mapping pages of the table.
    #[must_use]
    pub fn pages(&self) -> u32 {
        self.pages.len() as u32
    }

    /// The mapping page that holds the entry of a logical page.
    #[must_use]
    pub fn page_of(&self, logical: u32) -> u32 {
        logical / self.per_page
    }

    fn bucket(&self, logical: u32) -> usize {
        // Fibonacci hashing: neighbours end up far apart.
        (logical.wrapping_mul(0x9E37_79B9) >> self.shift) as usize
    }

    fn find(&self, logical: u32) -> Option<u32> {
        let mut slot = self.buckets[self.bucket(logical)];
        while slot != NIL {
            let entry = &self.entries[slot as usize];
            if entry.logical == logical {
                return Some(slot);
            }
            slot = entry.chain;
        }
        None
    }

    fn is_awaited(&self, entry: &Entry) -> bool {
        let page = &self.pages[entry.page as usize];
        page.arriving && entry.read == page.reads
    }

    fn is_dirty(&self, entry: &Entry) -> bool {
        entry.saved_by > self.pages[entry.page as usize].writes
    }

    fn unlink(&mut self, slot: u32) {
        let Entry { newer, older, .. } = self.entries[slot as usize];
        match newer {
            NIL => self.newest = older,
            newer => self.entries[newer as usize].older = older,
        }
        match older {
            NIL => self.oldest = newer,
            older => self.entries[older as usize].newer = newer,
        }
    }

    fn link_newest(&mut self, slot: u32) {
        let second = core::mem::replace(&mut self.newest, slot);
        let entry = &mut self.entries[slot as usize];
        (entry.newer, entry.older) = (NIL, second);
        match second {
            NIL => self.oldest = slot,
            second => self.entries[second as usize].newer = slot,
        }
    }

    /// Brings what [`MappingCache::look_up`] of a logical page will need into the processor's caches:
    /// nothing waits for it now.
    #[inline]
    pub fn foresee(&self, logical: u32) {
        core::hint::black_box(self.find(logical));
        // What leaves next, its bucket and its neighbour.
        if let Some(oldest) = self.entries.get(self.oldest as usize) {
            core::hint::black_box(self.buckets[self.bucket(oldest.logical)]);
            core::hint::black_box(self.entries.get(oldest.newer as usize).map(|entry| entry.newer));
        }
    }

    /// Looks the entry of a logical page up, and enters it if it is not there. Also the mapping page
    /// to be written for the dirty entry that made room; [`MappingCache::written`] says when it is.
    pub fn look_up(&mut self, logical: u32) -> (Found, Option<u32>) {
        if let Some(slot) = self.find(logical) {
            if self.is_awaited(&self.entries[slot as usize]) {
                return (Found::Awaited, None);
            }
            if self.newest != slot {
                self.unlink(slot);
                self.link_newest(slot);
            }
            return (Found::Resident, None);
        }
        let vacated = if self.entries.len() < self.capacity { None } else { self.evict() };
        let write = vacated.and_then(|(_, write)| write);
        let page = self.page_of(logical);
        let state = &mut self.pages[page as usize];
        let (found, read) = if state.leaving > 0 {
            (Found::Resident, 0)
        } else if state.arriving {
            (Found::Awaited, state.reads)
        } else {
            state.arriving = true;
            state.reads += 1;
            (Found::Missing, state.reads)
        };
        let bucket = self.bucket(logical);
        let chain = self.buckets[bucket];
        let entry = Entry { logical, page, chain, newer: NIL, older: NIL, read, saved_by: 0 };
        let slot = match vacated {
            Some((slot, _)) => {
                self.entries[slot as usize] = entry;
                slot
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        self.buckets[bucket] = slot;
        self.link_newest(slot);
        (found, write)
    }

    /// Drops the least recently used resident entry: its slot, and the mapping page to write if it
    /// was dirty. `None` if all are awaited; the cache is then larger than it should be for a while.
    fn evict(&mut self) -> Option<(u32, Option<u32>)> {
        let mut slot = self.oldest;
        while slot != NIL && self.is_awaited(&self.entries[slot as usize]) {
            slot = self.entries[slot as usize].newer;
        }
        let entry = *self.entries.get(slot as usize)?;
        self.unlink(slot);
        let bucket = self.bucket(entry.logical);
        if self.buckets[bucket] == slot {
            self.buckets[bucket] = entry.chain;
        } else {
            let mut at = self.buckets[bucket];
            while self.entries[at as usize].chain != slot {
                at = self.entries[at as usize].chain;
            }
            self.entries[at as usize].chain = entry.chain;
        }
        if !self.is_dirty(&entry) {
            return Some((slot, None));
        }
        let page = &mut self.pages[entry.page as usize];
        page.writes += 1;
        page.leaving += 1;
        Some((slot, Some(entry.page)))
    }

    /// The entry, if resident, was changed.
    pub fn dirty(&mut self, logical: u32) {
        if let Some(slot) = self.find(logical) {
            let entry = &mut self.entries[slot as usize];
            entry.saved_by = self.pages[entry.page as usize].writes + 1;
        }
    }

    /// The mapping page has been read: its awaited entries are resident.
    pub fn arrived(&mut self, page: u32) {
        if let Some(page) = self.pages.get_mut(page as usize) {
            page.arriving = false;
        }
    }

    /// A write of the mapping page is over.
    pub fn written(&mut self, page: u32) {
        if let Some(page) = self.pages.get_mut(page as usize) {
            page.leaving = page.leaving.saturating_sub(1);
        }
    }

    /// Bytes of memory held.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.buckets.capacity() * size_of::<u32>()
            + self.entries.capacity() * size_of::<Entry>()
            + self.pages.capacity() * size_of::<MapPage>()
    }
}
