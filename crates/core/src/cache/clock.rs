//! CLOCK: keys lie in a ring, each with one reference bit that a use sets. The hand goes round;
//! a key whose bit is set loses the bit and stays (the second chance), one whose bit is clear is
//! evicted. A new key takes the place last vacated, which after an eviction is the one just
//! behind the hand.
//!
//! F. J. Corbató, "A Paging Experiment with the Multics System", in: In Honor of P. M. Morse,
//! MIT Press 1969.
//!
//! Memory: 4 bytes and two bits a place, 6 to 9 bytes a key in the index. The bits are in words
//! of 64, so that the hand passes runs of vacant or referenced places quickly.

use alloc::vec::Vec;

use super::Replacement;

/// An index slot without a key, and the end of the list of vacant places.
const NONE: u32 = u32::MAX;

/// The CLOCK policy; see the module.
#[derive(Debug, Clone)]
pub struct Clock {
    /// The size the caller expects; memory grows up to it in steps, and beyond it if need be.
    capacity: usize,
    /// The key in each place; in a vacant place the next vacant one, or [`NONE`].
    places: Vec<u32>,
    occupied: Vec<u64>,
    referenced: Vec<u64>,
    vacant: u32,
    hand: usize,
    len: usize,
    /// Place of each key: open addressing with linear probing, [`NONE`] if empty.
    index: Vec<u32>,
}

impl Clock {
    /// An empty ring for about `capacity` keys. More are accepted; memory is taken as keys come.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            places: Vec::new(),
            occupied: Vec::new(),
            referenced: Vec::new(),
            vacant: NONE,
            hand: 0,
            len: 0,
            index: Vec::new(),
        }
    }

    /// Where the search for a key begins: its hash, scaled to the size of the index.
    fn home(&self, key: u32) -> usize {
        // The 32-bit finaliser of MurmurHash3 (public domain): neighbours end up far apart.
        let mut hash = key;
        hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
        hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
        hash ^= hash >> 16;
        ((u64::from(hash) * self.index.len() as u64) >> 32) as usize
    }

    fn after(&self, at: usize) -> usize {
        if at + 1 == self.index.len() { 0 } else { at + 1 }
    }

    /// The index slot that holds the key.
    fn find(&self, key: u32) -> Option<usize> {
        if self.len == 0 {
            return None;
        }
        let mut at = self.home(key);
        while self.index[at] != NONE {
            if self.places[self.index[at] as usize] == key {
                return Some(at);
            }
            at = self.after(at);
        }
        None
    }

    /// Enters a key that the index does not have.
    fn enter(&mut self, key: u32, place: u32) {
        let mut at = self.home(key);
        while self.index[at] != NONE {
            at = self.after(at);
        }
        self.index[at] = place;
    }

    /// Empties an index slot and closes the gap: whatever follows and was pushed past the gap
    /// moves back into it, so that searches may stop at the first empty slot.
    fn leave(&mut self, mut gap: usize) {
        let size = self.index.len();
        let distance = |from: usize, to: usize| {
            if to >= from { to - from } else { to + size - from }
        };
        let mut at = gap;
        loop {
            at = self.after(at);
            let place = self.index[at];
            if place == NONE {
                break;
            }
            let home = self.home(self.places[place as usize]);
            if distance(home, at) >= distance(gap, at) {
                self.index[gap] = place;
                gap = at;
            }
        }
        self.index[gap] = NONE;
    }

    /// Makes room for one more place, and keeps the index at most two thirds full.
    fn grow(&mut self) {
        let held = self.places.len();
        let mut target = (held + held / 2).max(64);
        if held < self.capacity {
            target = target.min(self.capacity.max(64));
        }
        self.places.reserve_exact(target - held);
        let words = target.div_ceil(64);
        self.occupied.reserve_exact(words - self.occupied.len());
        self.referenced.reserve_exact(words - self.referenced.len());
        self.index = Vec::new();
        self.index.resize(target + target / 2, NONE);
        // Only a ring without vacant places grows.
        for place in 0..held {
            self.enter(self.places[place], place as u32);
        }
    }

    /// A vacant place.
    fn take_place(&mut self) -> u32 {
        if self.vacant != NONE {
            let place = self.vacant;
            self.vacant = self.places[place as usize];
            return place;
        }
        if self.index.len() * 2 <= self.places.len() * 3 {
            self.grow();
        }
        let place = self.places.len();
        self.places.push(NONE);
        if place / 64 == self.occupied.len() {
            self.occupied.push(0);
            self.referenced.push(0);
        }
        place as u32
    }

    /// Forgets the key in the index slot `at`.
    fn vacate(&mut self, at: usize) {
        let place = self.index[at];
        self.leave(at);
        let (word, bit) = (place as usize / 64, 1 << (place % 64));
        self.occupied[word] &= !bit;
        self.referenced[word] &= !bit;
        self.places[place as usize] = self.vacant;
        self.vacant = place;
        self.len -= 1;
    }
}

impl Replacement for Clock {
    fn insert(&mut self, key: u32) {
        if self.contains(key) {
            return self.touch(key);
        }
        let place = self.take_place();
        self.enter(key, place);
        self.places[place as usize] = key;
        self.occupied[place as usize / 64] |= 1 << (place % 64);
        self.len += 1;
    }

    fn touch(&mut self, key: u32) {
        if let Some(at) = self.find(key) {
            let place = self.index[at];
            self.referenced[place as usize / 64] |= 1 << (place % 64);
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
        // Two laps, and the start of the word in which they began.
        for _ in 0..=2 * words {
            if word >= words {
                (word, from) = (0, !0);
                if words == 0 {
                    return None;
                }
            }
            let mut waiting = self.occupied[word] & !self.referenced[word] & from;
            while waiting != 0 {
                let bit = waiting & waiting.wrapping_neg();
                let key = self.places[word * 64 + bit.trailing_zeros() as usize];
                if eligible(key) {
                    // What the hand passed on its way here has had its second chance.
                    self.referenced[word] &= !(from & (bit - 1));
                    self.hand = word * 64 + bit.trailing_zeros() as usize + 1;
                    if let Some(at) = self.find(key) {
                        self.vacate(at);
                    }
                    return Some(key);
                }
                waiting &= waiting - 1;
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
        size_of::<Self>() + 4 * (self.places.capacity() + self.index.capacity()) + 8 * words
    }
}
