//! The table behind the list-based policies: each key has a slot, each slot is in one of four lists and
//! has a small count. Everything is in flat arrays; a use of a key allocates nothing.
//!
//! A list is circular and doubly linked through a sentinel: slot `n`, which has no key, is both ends of
//! list `n`. Lists 0 and 1 hold resident keys, 2 and 3 ghost entries. Following `next` leads from the
//! oldest key to the newest. Free slots are chained by `next` as well. Memory doubles as keys are added;
//! the doubling stops at the expected number of keys.
//!
//! Memory: a key takes 24 bytes in the index, 9 in the lists, and its own size.

use alloc::vec::Vec;

use super::Key;
use super::hash_index::{HashIndex, hash};

/// No slot: the end of the chain of free slots.
const NONE: u32 = u32::MAX;

/// Slots of an empty table.
const INITIAL_SLOTS: usize = 16;

const LISTS: usize = 4;

#[derive(Debug, Clone, Copy)]
struct Node<K> {
    key: K,
    /// The slot of the next older key in the list.
    prev: u32,
    /// The slot of the next newer key in the list.
    next: u32,
}

/// Keys in slots, and slots in lists; see the module.
#[derive(Debug, Clone)]
pub struct KeyLists<K> {
    index: HashIndex,
    nodes: Vec<Node<K>>,
    /// For each slot its list (low two bits) and its count.
    list_and_count: Vec<u8>,
    lens: [usize; LISTS],
    /// First slot of the chain of free slots.
    free: u32,
    /// Slots that fit before memory grows.
    allocated: usize,
    /// The number of slots at which doubling stops.
    expected: usize,
}

impl<K: Key> KeyLists<K> {
    /// Empty lists, for about `expected` keys in all.
    pub fn new(expected: usize) -> Self {
        let expected = expected.saturating_add(LISTS);
        let allocated = INITIAL_SLOTS.min(expected);
        let mut nodes = Vec::with_capacity(allocated);
        let mut list_and_count = Vec::with_capacity(allocated);
        for list in 0..LISTS as u32 {
            nodes.push(Node { key: K::default(), prev: list, next: list });
            list_and_count.push(0);
        }
        let index = HashIndex::new(allocated);
        Self { index, nodes, list_and_count, lens: [0; LISTS], free: NONE, allocated, expected }
    }

    /// The slot of a key.
    #[inline]
    pub fn find(&self, key: K) -> Option<u32> {
        self.index.find(hash(key.into()), |slot| self.nodes[slot as usize].key == key)
    }

    /// The key in a slot.
    #[inline]
    pub fn key(&self, slot: u32) -> K {
        self.nodes[slot as usize].key
    }

    /// Number of keys in the list.
    #[inline]
    pub fn len(&self, list: u32) -> usize {
        self.lens[list as usize]
    }

    /// The list of the slot.
    #[inline]
    pub fn list(&self, slot: u32) -> u32 {
        u32::from(self.list_and_count[slot as usize] & 3)
    }

    /// The slot's count, 0 when its key is pushed.
    #[inline]
    pub fn count(&self, slot: u32) -> u8 {
        self.list_and_count[slot as usize] >> 2
    }

    /// Sets the slot's count, at most 63.
    #[inline]
    pub fn set_count(&mut self, slot: u32, count: u8) {
        let mark = &mut self.list_and_count[slot as usize];
        *mark = *mark & 3 | count << 2;
    }

    /// Increments the slot's count, up to `max`.
    #[inline]
    pub fn increment(&mut self, slot: u32, max: u8) {
        self.set_count(slot, max.min(self.count(slot) + 1));
    }

    /// The slot of the oldest key of a list.
    #[inline]
    pub fn oldest(&self, list: u32) -> Option<u32> {
        self.newer(list, list)
    }

    /// The slot of the next newer key in the list; for the list's sentinel, the oldest key.
    #[inline]
    pub fn newer(&self, slot: u32, list: u32) -> Option<u32> {
        let next = self.nodes[slot as usize].next;
        (next != list).then_some(next)
    }

    /// Inserts a key that is in no list as the newest of `list`, with a count of 0; returns its slot.
    #[inline]
    pub fn push(&mut self, list: u32, key: K) -> u32 {
        let slot = if self.free == NONE { self.new_slot() } else { self.free };
        let node = &mut self.nodes[slot as usize];
        self.free = node.next;
        node.key = key;
        self.list_and_count[slot as usize] = list as u8;
        self.lens[list as usize] += 1;
        self.index.insert(hash(key.into()), slot);
        self.link(slot, list);
        slot
    }

    /// Makes a slot of `list` the newest of that list.
    #[inline]
    pub fn move_to_newest(&mut self, slot: u32, list: u32) {
        self.unlink(slot);
        self.link(slot, list);
    }

    /// Makes a slot of `list` the oldest of that list.
    #[inline]
    pub fn move_to_oldest(&mut self, slot: u32, list: u32) {
        self.unlink(slot);
        let oldest = self.nodes[list as usize].next;
        self.nodes[oldest as usize].prev = slot;
        self.nodes[list as usize].next = slot;
        let node = &mut self.nodes[slot as usize];
        (node.prev, node.next) = (list, oldest);
    }

    /// Makes the slot the newest of another list, with a count of 0.
    #[inline]
    pub fn move_to_list(&mut self, slot: u32, list: u32) {
        self.lens[self.list(slot) as usize] -= 1;
        self.lens[list as usize] += 1;
        self.list_and_count[slot as usize] = list as u8;
        self.move_to_newest(slot, list);
    }

    /// Removes the key in the slot and returns it.
    #[inline]
    pub fn remove(&mut self, slot: u32) -> K {
        self.unlink(slot);
        self.lens[self.list(slot) as usize] -= 1;
        let node = &mut self.nodes[slot as usize];
        node.next = self.free;
        self.free = slot;
        let key = node.key;
        self.index.remove(hash(key.into()), slot);
        key
    }

    /// Removes the oldest key of a list for which `eligible` is true, and returns it.
    #[inline]
    pub fn remove_oldest(&mut self, list: u32, mut eligible: impl FnMut(K) -> bool) -> Option<K> {
        let mut slot = self.oldest(list)?;
        while !eligible(self.key(slot)) {
            slot = self.newer(slot, list)?;
        }
        Some(self.remove(slot))
    }

    /// Evicts by a CLOCK hand over a list whose counts are at most `max`: removes and returns the oldest
    /// eligible key with a count of 0. The hand decrements the count of every key that it passes and
    /// makes that key the newest.
    #[inline]
    pub fn evict_clock(&mut self, list: u32, max: u8, mut eligible: impl FnMut(K) -> bool) -> Option<K> {
        // After `max` laps all counts are 0; one more lap tests every key for eligibility.
        for _ in 0..(usize::from(max) + 1) * self.len(list) {
            let slot = self.oldest(list)?;
            let count = self.count(slot);
            if count == 0 && eligible(self.key(slot)) {
                return Some(self.remove(slot));
            }
            self.set_count(slot, count.saturating_sub(1));
            self.move_to_newest(slot, list);
        }
        None
    }

    #[inline]
    fn link(&mut self, slot: u32, list: u32) {
        let newest = self.nodes[list as usize].prev;
        self.nodes[newest as usize].next = slot;
        self.nodes[list as usize].prev = slot;
        let node = &mut self.nodes[slot as usize];
        (node.prev, node.next) = (newest, list);
    }

    #[inline]
    fn unlink(&mut self, slot: u32) {
        let Node { prev, next, .. } = self.nodes[slot as usize];
        self.nodes[prev as usize].next = next;
        self.nodes[next as usize].prev = prev;
    }

    /// A free slot beyond those in use so far.
    #[cold]
    fn new_slot(&mut self) -> u32 {
        let slot = self.nodes.len();
        if slot == self.allocated {
            let mut allocated = self.allocated * 2;
            if self.allocated < self.expected {
                allocated = allocated.min(self.expected);
            }
            self.nodes.reserve_exact(allocated - slot);
            self.list_and_count.reserve_exact(allocated - slot);
            self.index.resize(allocated);
            self.allocated = allocated;
        }
        self.nodes.push(Node { key: K::default(), prev: NONE, next: NONE });
        self.list_and_count.push(0);
        slot as u32
    }

    /// Memory of the tables, without the struct itself, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let lists = size_of::<Node<K>>() * self.nodes.capacity() + self.list_and_count.capacity();
        lists + self.index.memory_bytes()
    }
}
