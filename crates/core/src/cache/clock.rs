//! CLOCK: the keys are in a ring, each with one reference bit that a use sets. The hand moves round the
//! ring: it clears a set bit and passes on (the second chance), and evicts the first key whose bit is
//! clear. A new key takes the most recently vacated position, which after an eviction is the one just
//! behind the hand.
//!
//! F. J. Corbató, "A Paging Experiment with the Multics System", in: In Honor of P. M. Morse,
//! MIT Press 1969.
//!
//! Memory: 4 bytes and two bits a position, 6 to 9 bytes a key in the index. The bits are kept in words
//! of 64, so that the hand passes runs of vacant or referenced positions quickly.

use alloc::vec::Vec;

use super::Replacement;

/// An empty index slot, and the end of the list of vacant positions.
const NONE: u32 = u32::MAX;

/// A cache with CLOCK replacement; see the module.
#[derive(Debug, Clone)]
pub struct Clock {
    /// The expected number of keys; memory grows up to it in steps, and beyond it if necessary.
    capacity: usize,
    /// The key at each position; a vacant position holds the next vacant one, or [`NONE`].
    ring: Vec<u32>,
    occupied: Vec<u64>,
    referenced: Vec<u64>,
    vacant: u32,
    hand: usize,
    len: usize,
    /// The position of each key: open addressing with linear probing, [`NONE`] if empty.
    index: Vec<u32>,
}

impl Clock {
    /// An empty ring for about `capacity` keys. More keys are accepted; memory grows with the number of
    /// keys.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            ring: Vec::new(),
            occupied: Vec::new(),
            referenced: Vec::new(),
            vacant: NONE,
            hand: 0,
            len: 0,
            index: Vec::new(),
        }
    }

    /// The index slot at which the search for a key begins: the key's hash, scaled to the size of the
    /// index.
    fn home(&self, key: u32) -> usize {
        // The 32-bit finaliser of MurmurHash3 (public domain): neighbouring keys get distant slots.
        let mut hash = key;
        hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
        hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
        hash ^= hash >> 16;
        ((u64::from(hash) * self.index.len() as u64) >> 32) as usize
    }

    fn after(&self, at: usize) -> usize {
        if at + 1 == self.index.len() { 0 } else { at + 1 }
    }

    /// The index slot of the key.
    fn find(&self, key: u32) -> Option<usize> {
        if self.len == 0 {
            return None;
        }
        let mut at = self.home(key);
        while self.index[at] != NONE {
            if self.ring[self.index[at] as usize] == key {
                return Some(at);
            }
            at = self.after(at);
        }
        None
    }

    /// Adds a key that the index does not contain.
    fn index_insert(&mut self, key: u32, position: u32) {
        let mut at = self.home(key);
        while self.index[at] != NONE {
            at = self.after(at);
        }
        self.index[at] = position;
    }

    /// Empties an index slot and closes the gap: later entries that were displaced past the gap move
    /// back into it, so that a search may stop at the first empty slot.
    fn index_remove(&mut self, mut gap: usize) {
        let size = self.index.len();
        let distance = |from: usize, to: usize| {
            if to >= from { to - from } else { to + size - from }
        };
        let mut at = gap;
        loop {
            at = self.after(at);
            let position = self.index[at];
            if position == NONE {
                break;
            }
            let home = self.home(self.ring[position as usize]);
            if distance(home, at) >= distance(gap, at) {
                self.index[gap] = position;
                gap = at;
            }
        }
        self.index[gap] = NONE;
    }

    /// Provides memory for one more position, and keeps the index at most two thirds full.
    fn grow(&mut self) {
        let len = self.ring.len();
        let mut target = (len + len / 2).max(64);
        if len < self.capacity {
            target = target.min(self.capacity.max(64));
        }
        self.ring.reserve_exact(target - len);
        let words = target.div_ceil(64);
        self.occupied.reserve_exact(words - self.occupied.len());
        self.referenced.reserve_exact(words - self.referenced.len());
        self.index = Vec::new();
        self.index.resize(target + target / 2, NONE);
        // Only a ring without vacant positions grows.
        for position in 0..len {
            self.index_insert(self.ring[position], position as u32);
        }
    }

    /// Takes a vacant position, the most recently vacated first.
    fn take_position(&mut self) -> u32 {
        if self.vacant != NONE {
            let position = self.vacant;
            self.vacant = self.ring[position as usize];
            return position;
        }
        if self.index.len() * 2 <= self.ring.len() * 3 {
            self.grow();
        }
        let position = self.ring.len();
        self.ring.push(NONE);
        if position / 64 == self.occupied.len() {
            self.occupied.push(0);
            self.referenced.push(0);
        }
        position as u32
    }

    /// Removes the key of the index slot `at`.
    fn vacate(&mut self, at: usize) {
        let position = self.index[at];
        self.index_remove(at);
        let (word, bit) = (position as usize / 64, 1 << (position % 64));
        self.occupied[word] &= !bit;
        self.referenced[word] &= !bit;
        self.ring[position as usize] = self.vacant;
        self.vacant = position;
        self.len -= 1;
    }
}

impl Replacement for Clock {
    fn insert(&mut self, key: u32) {
        if self.contains(key) {
            return self.touch(key);
        }
        let position = self.take_position();
        self.index_insert(key, position);
        self.ring[position as usize] = key;
        self.occupied[position as usize / 64] |= 1 << (position % 64);
        self.len += 1;
    }

    fn touch(&mut self, key: u32) {
        if let Some(at) = self.find(key) {
            let position = self.index[at];
            self.referenced[position as usize / 64] |= 1 << (position % 64);
        }
    }

    fn remove(&mut self, key: u32) {
        if let Some(at) = self.find(key) {
            self.vacate(at);
        }
    }

    fn victim(&mut self, eligible: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        let words = self.occupied.len();
        let (mut word, mut from) = (self.hand / 64, !0u64 << (self.hand % 64));
        // Two laps, and again the beginning of the word in which the hand started.
        for _ in 0..=2 * words {
            if word >= words {
                (word, from) = (0, !0);
                if words == 0 {
                    return None;
                }
            }
            let mut candidates = self.occupied[word] & !self.referenced[word] & from;
            while candidates != 0 {
                let bit = candidates & candidates.wrapping_neg();
                let key = self.ring[word * 64 + bit.trailing_zeros() as usize];
                if eligible(key) {
                    // The keys that the hand has passed in this word have had their second chance.
                    self.referenced[word] &= !(from & (bit - 1));
                    self.hand = word * 64 + bit.trailing_zeros() as usize + 1;
                    if let Some(at) = self.find(key) {
                        self.vacate(at);
                    }
                    return Some(key);
                }
                candidates &= candidates - 1;
            }
            self.referenced[word] &= !from;
            word += 1;
            from = !0;
        }
        None
    }

    fn contains(&self, key: u32) -> bool {
        self.find(key).is_some()
    }

    fn len(&self) -> usize {
        self.len
    }

    fn capacity(&self) -> usize {
        self.capacity.max(1)
    }

    fn memory_bytes(&self) -> usize {
        let words = self.occupied.capacity() + self.referenced.capacity();
        size_of::<Self>() + 4 * (self.ring.capacity() + self.index.capacity()) + 8 * words
    }
}
