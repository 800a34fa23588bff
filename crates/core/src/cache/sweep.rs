//! CLOCK with counters whose hand goes through the keys in their own order, lowest first, and then
//! again: pages that leave one after the other are neighbours in memory, so that one call protects,
//! drops and writes many. A use counts, up to 16; whoever has a count loses one as the hand passes.
//! The newest eighth is passed over: what was just read ahead has not had its chance yet.
//!
//! Memory is that of an ordered tree, some 30 bytes a key.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use core::ops::Bound::{Excluded, Unbounded};

use super::{Key, Replacement};

/// Highest count.
const MOST: u8 = 16;
/// This part of the keys, the newest ones, is passed over.
const NEW_SHARE: usize = 8;

/// The policy; see the module.
#[derive(Debug, Clone)]
pub struct Sweep<K = u64> {
    capacity: usize,
    keys: BTreeMap<K, Held>,
    /// The key that the hand has passed last.
    hand: Option<K>,
    /// Keys inserted so far, modulo 2^32.
    inserted: u32,
}

#[derive(Debug, Clone, Copy)]
struct Held {
    count: u8,
    /// How many keys had been inserted before.
    since: u32,
}

impl Held {
    fn touch(&mut self) {
        self.count = MOST.min(self.count + 1);
    }
}

impl<K: Key + Ord> Sweep<K> {
    /// An empty set. [`Replacement::access`] keeps `capacity` keys in it.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { capacity, keys: BTreeMap::new(), hand: None, inserted: 0 }
    }
}

impl<K: Key + Ord> Replacement<K> for Sweep<K> {
    fn insert(&mut self, key: K) {
        match self.keys.entry(key) {
            Entry::Occupied(mut held) => held.get_mut().touch(),
            Entry::Vacant(place) => {
                place.insert(Held { count: 0, since: self.inserted });
                self.inserted = self.inserted.wrapping_add(1);
            }
        }
    }

    fn touch(&mut self, key: K) {
        if let Some(held) = self.keys.get_mut(&key) {
            held.touch();
        }
    }

    fn remove(&mut self, key: K) {
        self.keys.remove(&key);
    }

    fn victim(&mut self, eligible: &mut dyn FnMut(K) -> bool) -> Option<K> {
        let (len, inserted) = (self.keys.len(), self.inserted);
        let new = (len / NEW_SHARE) as u32;
        let mut passed = 0;
        // After MOST laps all counts are 0; in the last lap nobody is too new, and every key is asked about.
        let most = (usize::from(MOST) + 1) * len;
        loop {
            let from = self.hand.map_or(Unbounded, Excluded);
            for (&key, held) in self.keys.range_mut((from, Unbounded)) {
                self.hand = Some(key);
                let last = passed + len >= most;
                passed += 1;
                let is_new = inserted.wrapping_sub(held.since) <= new && !last;
                if held.count > 0 {
                    held.count -= 1;
                } else if !is_new && eligible(key) {
                    self.keys.remove(&key);
                    return Some(key);
                }
                if passed == most {
                    return None;
                }
            }
            if len == 0 {
                return None;
            }
            self.hand = None;
        }
    }

    fn contains(&self, key: K) -> bool {
        self.keys.contains_key(&key)
    }

    fn len(&self) -> usize {
        self.keys.len()
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    /// An estimate: the tree's nodes, three quarters full.
    fn memory_bytes(&self) -> usize {
        self.keys.len() * (size_of::<K>() + size_of::<Held>()) * 4 / 3
    }
}
