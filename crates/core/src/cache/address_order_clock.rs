//! CLOCK with counters (GCLOCK) whose hand moves in address order: through the keys from the lowest to
//! the highest, and then again. Consecutive victims are therefore neighbours in memory, so that one
//! system call write-protects, drops or writes many of them.
//!
//! A use increments a key's count, up to 16; the hand decrements it. The hand passes over the newest
//! eighth of the keys, because pages just read ahead have not had time to be used.
//!
//! Memory: an ordered tree, about 30 bytes a key.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use core::ops::Bound::{Excluded, Unbounded};

use super::{Key, Replacement};

/// The largest count.
const MAX_COUNT: u8 = 16;
/// One in this many keys, counted from the newest, is too new to be a victim.
const NEW_SHARE: usize = 8;

/// A cache with address-order CLOCK replacement; see the module.
#[derive(Debug, Clone)]
pub struct AddressOrderClock<K = u64> {
    capacity: usize,
    keys: BTreeMap<K, Resident>,
    /// The last key that the hand has passed.
    hand: Option<K>,
    /// Number of keys inserted so far, modulo 2^32.
    inserted: u32,
}

/// The state of a resident key.
#[derive(Debug, Clone, Copy)]
struct Resident {
    count: u8,
    /// Number of keys inserted before this one, modulo 2^32.
    inserted_at: u32,
}

impl Resident {
    fn touch(&mut self) {
        self.count = MAX_COUNT.min(self.count + 1);
    }
}

impl<K: Key + Ord> AddressOrderClock<K> {
    /// An empty set. [`Replacement::access`] keeps at most `capacity` keys in it.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { capacity, keys: BTreeMap::new(), hand: None, inserted: 0 }
    }
}

impl<K: Key + Ord> Replacement<K> for AddressOrderClock<K> {
    fn insert(&mut self, key: K) {
        match self.keys.entry(key) {
            Entry::Occupied(mut resident) => resident.get_mut().touch(),
            Entry::Vacant(vacant) => {
                vacant.insert(Resident { count: 0, inserted_at: self.inserted });
                self.inserted = self.inserted.wrapping_add(1);
            }
        }
    }

    fn touch(&mut self, key: K) {
        if let Some(resident) = self.keys.get_mut(&key) {
            resident.touch();
        }
    }

    fn remove(&mut self, key: K) {
        self.keys.remove(&key);
    }

    fn victim(&mut self, eligible: &mut dyn FnMut(K) -> bool) -> Option<K> {
        let (len, inserted) = (self.keys.len(), self.inserted);
        let new_keys = (len / NEW_SHARE) as u32;
        let mut passed = 0;
        // After MAX_COUNT laps all counts are 0. In the last lap no key is too new, and every key is
        // tested for eligibility.
        let last_pass = (usize::from(MAX_COUNT) + 1) * len;
        loop {
            let from = self.hand.map_or(Unbounded, Excluded);
            for (&key, resident) in self.keys.range_mut((from, Unbounded)) {
                self.hand = Some(key);
                let last_lap = passed + len >= last_pass;
                passed += 1;
                let is_new = inserted.wrapping_sub(resident.inserted_at) <= new_keys && !last_lap;
                if resident.count > 0 {
                    resident.count -= 1;
                } else if !is_new && eligible(key) {
                    self.keys.remove(&key);
                    return Some(key);
                }
                if passed == last_pass {
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

    /// An estimate: tree nodes that are three quarters full.
    fn memory_bytes(&self) -> usize {
        self.keys.len() * (size_of::<K>() + size_of::<Resident>()) * 4 / 3
    }
}
