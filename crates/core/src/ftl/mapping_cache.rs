//! A drive's mapping cache: an LRU cache of single entries of the L2P map (the cached mapping table of
//! DFTL). The map itself is on flash, in mapping pages of `per_page` entries.
//!
//! 1. A miss starts a read of the entry's mapping page. The entry is *pending* until the read completes,
//!    and so is any other entry of that page requested in the meantime.
//! 2. Evicting a dirty entry writes its mapping page once for all dirty entries of the page; the entries
//!    that stay in the cache become clean.
//! 3. A mapping page whose write is in flight is still in memory: a miss on its entries needs no read.
//! 4. Every operation takes O(1), whatever `per_page` is: an entry is pending or dirty by comparison of
//!    its numbers with the numbers of its page's reads and writes, not by a flag that each read or write
//!    would have to change in every entry.

use alloc::vec;
use alloc::vec::Vec;

const NIL: u32 = u32::MAX;

/// The outcome of [`MappingCache::look_up`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MappingLookup {
    /// The entry is in the cache.
    Hit,
    /// A read of its mapping page is in flight.
    Pending,
    /// The caller must read its mapping page.
    Miss,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    logical: u32,
    page: u32,
    /// Slot of the next entry of the same bucket.
    chain: u32,
    newer: u32,
    older: u32,
    /// Number of the page read that brings the entry; 0 if it needed none.
    read_number: u32,
    /// Number of the page write that will save the entry; an earlier number if the entry is clean.
    write_number: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct MapPage {
    /// Number of reads started.
    reads: u32,
    /// Number of writes started.
    writes: u32,
    /// Number of writes in flight.
    writes_in_flight: u16,
    reading: bool,
}

/// The mapping cache; see the module.
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
    /// An empty cache of `capacity` entries, at least 2, of the map of `logical` pages with `per_page`
    /// entries a mapping page, at least 1.
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

    /// Number of mapping pages.
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
        // Fibonacci hashing: neighbouring pages get distant buckets.
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

    fn is_pending(&self, entry: &Entry) -> bool {
        let page = &self.pages[entry.page as usize];
        page.reading && entry.read_number == page.reads
    }

    fn is_dirty(&self, entry: &Entry) -> bool {
        entry.write_number > self.pages[entry.page as usize].writes
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

    /// Loads the data that [`MappingCache::look_up`] of a logical page will need into the processor's
    /// caches, without waiting for them.
    #[inline]
    pub fn prefetch(&self, logical: u32) {
        core::hint::black_box(self.find(logical));
        // The next victim, its bucket and its neighbour in the LRU list.
        if let Some(oldest) = self.entries.get(self.oldest as usize) {
            core::hint::black_box(self.buckets[self.bucket(oldest.logical)]);
            core::hint::black_box(self.entries.get(oldest.newer as usize).map(|entry| entry.newer));
        }
    }

    /// Looks up the entry of a logical page, and inserts it on a miss. The second result is the mapping
    /// page that the caller must write because a dirty entry was evicted; the caller reports the end of
    /// the write with [`MappingCache::write_completed`], and the end of a read with
    /// [`MappingCache::read_completed`].
    pub fn look_up(&mut self, logical: u32) -> (MappingLookup, Option<u32>) {
        if let Some(slot) = self.find(logical) {
            if self.is_pending(&self.entries[slot as usize]) {
                return (MappingLookup::Pending, None);
            }
            if self.newest != slot {
                self.unlink(slot);
                self.link_newest(slot);
            }
            return (MappingLookup::Hit, None);
        }
        let evicted = if self.entries.len() < self.capacity { None } else { self.evict() };
        let write = evicted.and_then(|(_, write)| write);
        let page = self.page_of(logical);
        let state = &mut self.pages[page as usize];
        let (found, read_number) = if state.writes_in_flight > 0 {
            (MappingLookup::Hit, 0)
        } else if state.reading {
            (MappingLookup::Pending, state.reads)
        } else {
            state.reading = true;
            state.reads += 1;
            (MappingLookup::Miss, state.reads)
        };
        let bucket = self.bucket(logical);
        let chain = self.buckets[bucket];
        let entry = Entry { logical, page, chain, newer: NIL, older: NIL, read_number, write_number: 0 };
        let slot = match evicted {
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

    /// Evicts the least recently used entry that is not pending; returns its slot, and the mapping page
    /// to write if the entry was dirty. `None` if all entries are pending; the cache then exceeds its
    /// capacity for a while.
    fn evict(&mut self) -> Option<(u32, Option<u32>)> {
        let mut slot = self.oldest;
        while slot != NIL && self.is_pending(&self.entries[slot as usize]) {
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
        page.writes_in_flight += 1;
        Some((slot, Some(entry.page)))
    }

    /// Marks the entry of a logical page dirty, if it is in the cache.
    pub fn mark_dirty(&mut self, logical: u32) {
        if let Some(slot) = self.find(logical) {
            let entry = &mut self.entries[slot as usize];
            entry.write_number = self.pages[entry.page as usize].writes + 1;
        }
    }

    /// Ends the read of a mapping page: its pending entries become resident.
    pub fn read_completed(&mut self, page: u32) {
        if let Some(page) = self.pages.get_mut(page as usize) {
            page.reading = false;
        }
    }

    /// Ends a write of a mapping page.
    pub fn write_completed(&mut self, page: u32) {
        if let Some(page) = self.pages.get_mut(page as usize) {
            page.writes_in_flight = page.writes_in_flight.saturating_sub(1);
        }
    }

    /// Memory of the tables, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.buckets.capacity() * size_of::<u32>()
            + self.entries.capacity() * size_of::<Entry>()
            + self.pages.capacity() * size_of::<MapPage>()
    }
}
