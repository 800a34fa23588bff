//! Hash index from a key to its slot: open addressing with linear probing.
//!
//! An entry is 8 bytes: 32 bits of the key's hash above, the slot below. A search compares the stored
//! hashes first and reads a key only where the hashes are equal; moving an entry needs no access to its
//! key. A removal closes its gap. The index is at most a third full: by measurement, half full costs a
//! fifth of the speed, and a quarter full gains a tenth.

use alloc::vec::Vec;

/// An empty position. No caller uses its slot number.
const EMPTY: u64 = u64::MAX;

/// 32 bits of a key's hash: the two halves of a 128-bit product, combined by exclusive or.
#[inline]
pub(crate) fn hash(key: u64) -> u32 {
    let product = u128::from(key ^ 0x9E37_79B9_7F4A_7C15) * u128::from(0xD6E8_FEB8_6659_FD93u64);
    ((product as u64 ^ (product >> 64) as u64) >> 32) as u32
}

#[inline]
fn entry(hash: u32, slot: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(slot)
}

/// The index; see the module. The caller keeps the keys.
#[derive(Debug, Clone)]
pub(crate) struct HashIndex {
    entries: Vec<u64>,
}

impl HashIndex {
    /// An empty index for `slots` entries, at least one.
    pub(crate) fn new(slots: usize) -> Self {
        let mut entries = Vec::new();
        entries.resize(3 * slots, EMPTY);
        Self { entries }
    }

    /// The position at which the search for a hash begins: the hash, scaled to the size of the index.
    #[inline]
    fn home(&self, hash: u32) -> usize {
        ((u64::from(hash) * self.entries.len() as u64) >> 32) as usize
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        if at + 1 == self.entries.len() { 0 } else { at + 1 }
    }

    /// The slot with this hash for which `matches` is true: `matches` compares the key.
    #[inline]
    pub(crate) fn find(&self, hash: u32, matches: impl Fn(u32) -> bool) -> Option<u32> {
        let mut at = self.home(hash);
        loop {
            let entry = self.entries[at];
            if (entry >> 32) as u32 == hash && entry != EMPTY && matches(entry as u32) {
                return Some(entry as u32);
            }
            if entry == EMPTY {
                return None;
            }
            at = self.after(at);
        }
    }

    /// Inserts a slot that the index does not contain.
    #[inline]
    pub(crate) fn insert(&mut self, hash: u32, slot: u32) {
        let mut at = self.home(hash);
        while self.entries[at] != EMPTY {
            at = self.after(at);
        }
        self.entries[at] = entry(hash, slot);
    }

    /// Removes a slot that the index contains. Later entries that were displaced past the gap move back
    /// into it, so that a search may stop at the first empty position.
    #[inline]
    pub(crate) fn remove(&mut self, hash: u32, slot: u32) {
        let mut gap = self.home(hash);
        while self.entries[gap] != entry(hash, slot) {
            gap = self.after(gap);
        }
        let size = self.entries.len();
        let distance = |from: usize, to: usize| if to >= from { to - from } else { to + size - from };
        let mut at = gap;
        loop {
            at = self.after(at);
            let entry = self.entries[at];
            if entry == EMPTY {
                break;
            }
            if distance(self.home((entry >> 32) as u32), at) >= distance(gap, at) {
                self.entries[gap] = entry;
                gap = at;
            }
        }
        self.entries[gap] = EMPTY;
    }

    /// Moves all entries to an index for `slots` entries.
    pub(crate) fn resize(&mut self, slots: usize) {
        let mut larger = Self::new(slots);
        for entry in self.entries.iter().filter(|entry| **entry != EMPTY) {
            larger.insert((entry >> 32) as u32, *entry as u32);
        }
        *self = larger;
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        8 * self.entries.capacity()
    }
}
