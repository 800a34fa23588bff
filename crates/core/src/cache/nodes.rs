//! The ground that policies stand on: keys in slots, each slot in one of a few lists and with a
//! small count, all of it in flat arrays. No memory is taken per request.
//!
//! A list is circular and doubly linked, with a sentinel: list `n` begins and ends in slot `n`,
//! which holds no key. Lists 0 and 1 are of keys held, 2 and 3 of keys that have left. From the oldest to the newest one goes by `next`. What has been vacated
//! is chained by `next` too. Memory grows with what is held, in doublings that stop at the number
//! of keys expected.
//!
//! Memory: 24 bytes a key in the index, 9 in the lists, and the key.

use alloc::vec::Vec;

use super::Key;
use super::index::{Index, hash};

/// No slot: the end of the chain of vacant ones.
const NONE: u32 = u32::MAX;

/// Slots for which memory is taken at the beginning.
const FIRST: usize = 16;

const LISTS: usize = 4;

#[derive(Debug, Clone, Copy)]
struct Node<K> {
    key: K,
    /// The next older in the list.
    prev: u32,
    /// The next newer.
    next: u32,
}

/// Keys in slots, slots in lists; see the module.
#[derive(Debug, Clone)]
pub struct Nodes<K> {
    index: Index,
    nodes: Vec<Node<K>>,
    /// Of each slot, the list it is in (low two bits) and its count.
    marks: Vec<u8>,
    lens: [usize; LISTS],
    vacant: u32,
    /// Slots that fit before memory grows, and the number that growth stops at for a while.
    room: usize,
    expected: usize,
}

impl<K: Key> Nodes<K> {
    /// Empty lists, for about `expected` keys in all.
    pub fn new(expected: usize) -> Self {
        let expected = expected.saturating_add(LISTS);
        let room = FIRST.min(expected);
        let mut nodes = Vec::with_capacity(room);
        let mut marks = Vec::with_capacity(room);
        for list in 0..LISTS as u32 {
            nodes.push(Node { key: K::default(), prev: list, next: list });
            marks.push(0);
        }
        Self { index: Index::new(room), nodes, marks, lens: [0; LISTS], vacant: NONE, room, expected }
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

    /// Keys in the list.
    #[inline]
    pub fn len(&self, list: u32) -> usize {
        self.lens[list as usize]
    }

    /// The list that the slot is in.
    #[inline]
    pub fn list(&self, slot: u32) -> u32 {
        u32::from(self.marks[slot as usize] & 3)
    }

    /// The slot's count, 0 when its key comes.
    #[inline]
    pub fn count(&self, slot: u32) -> u8 {
        self.marks[slot as usize] >> 2
    }

    /// Sets the slot's count, at most 63.
    #[inline]
    pub fn set_count(&mut self, slot: u32, count: u8) {
        let mark = &mut self.marks[slot as usize];
        *mark = *mark & 3 | count << 2;
    }

    /// The oldest of a list.
    #[inline]
    pub fn oldest(&self, list: u32) -> Option<u32> {
        self.newer(list, list)
    }

    /// The next newer than the slot in its list; of the sentinel, the oldest.
    #[inline]
    pub fn newer(&self, slot: u32, list: u32) -> Option<u32> {
        let next = self.nodes[slot as usize].next;
        (next != list).then_some(next)
    }

    /// Puts a key that is not held into a list, as its newest and with a count of 0.
    #[inline]
    pub fn push(&mut self, list: u32, key: K) -> u32 {
        let slot = if self.vacant == NONE { self.new_slot() } else { self.vacant };
        let node = &mut self.nodes[slot as usize];
        self.vacant = node.next;
        node.key = key;
        self.marks[slot as usize] = list as u8;
        self.lens[list as usize] += 1;
        self.index.enter(hash(key.into()), slot);
        self.link(slot, list);
        slot
    }

    /// Makes the slot the newest of `list`, in which it is.
    #[inline]
    pub fn renew(&mut self, slot: u32, list: u32) {
        self.unlink(slot);
        self.link(slot, list);
    }

    /// Makes the slot the newest of another list, with a count of 0.
    #[inline]
    pub fn shift(&mut self, slot: u32, list: u32) {
        self.lens[self.list(slot) as usize] -= 1;
        self.lens[list as usize] += 1;
        self.marks[slot as usize] = list as u8;
        self.renew(slot, list);
    }

    /// Forgets the key in the slot, and returns it.
    #[inline]
    pub fn take(&mut self, slot: u32) -> K {
        self.unlink(slot);
        self.lens[self.list(slot) as usize] -= 1;
        let node = &mut self.nodes[slot as usize];
        node.next = self.vacant;
        self.vacant = slot;
        let key = node.key;
        self.index.leave(hash(key.into()), slot);
        key
    }

    /// Forgets the oldest key of a list for which `eligible` is true, and returns it.
    #[inline]
    pub fn take_oldest(&mut self, list: u32, mut eligible: impl FnMut(K) -> bool) -> Option<K> {
        let mut slot = self.oldest(list)?;
        while !eligible(self.key(slot)) {
            slot = self.newer(slot, list)?;
        }
        Some(self.take(slot))
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

    /// A slot that no key had so far, vacant.
    #[cold]
    fn new_slot(&mut self) -> u32 {
        let slot = self.nodes.len();
        if slot == self.room {
            let mut room = self.room * 2;
            if self.room < self.expected {
                room = room.min(self.expected);
            }
            self.nodes.reserve_exact(room - slot);
            self.marks.reserve_exact(room - slot);
            self.index.resize(room);
            self.room = room;
        }
        self.nodes.push(Node { key: K::default(), prev: NONE, next: NONE });
        self.marks.push(0);
        slot as u32
    }

    /// Bytes of memory beside the struct itself.
    pub fn memory_bytes(&self) -> usize {
        let lists = size_of::<Node<K>>() * self.nodes.capacity() + self.marks.capacity();
        lists + self.index.memory_bytes()
    }
}
