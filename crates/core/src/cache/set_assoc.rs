//! A set-associative cache as hardware has one: a key may lie in any way of one set, and the least
//! recently used way of the set leaves (NVMM, Architecture: the DRAM cache).
//!
//! 1. The set of a key is the key modulo the number of sets. A frame is `set x ways + way`.
//! 2. `order` holds the ways of a set that were ever used, newest first, each once; the others follow
//!    by number. So nothing must be written for sets that are never used, and their memory is not
//!    touched.
//! 3. A frame emptied by [`SetAssociative::remove`] is its set's oldest.

use alloc::vec;
use alloc::vec::Vec;

/// Keys of frames, and who leaves; see the module.
#[derive(Debug, Clone)]
pub struct SetAssociative {
    sets: u32,
    ways: u16,
    /// The frame's key plus one; 0 if it is empty.
    tags: Vec<u32>,
    order: Vec<u8>,
    /// Ways of each set that are in `order`.
    known: Vec<u16>,
    len: usize,
}

/// The frame that a key is to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// The frame.
    pub frame: usize,
    /// Whose it is so far; `None` if it is empty.
    pub held: Option<u32>,
}

impl SetAssociative {
    /// An empty cache of `sets` sets of `ways` ways; none of both, and ways above 256, are moved into
    /// the range.
    #[must_use]
    pub fn new(sets: u32, ways: u16) -> Self {
        let (sets, ways) = (sets.max(1), ways.clamp(1, 256));
        let frames = sets as usize * usize::from(ways);
        Self {
            sets,
            ways,
            tags: vec![0; frames],
            order: vec![0; frames],
            known: vec![0; sets as usize],
            len: 0,
        }
    }

    /// Frames.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.tags.len()
    }

    /// Frames that hold a key.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if no frame holds a key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Ways of a set.
    #[must_use]
    pub fn ways(&self) -> u16 {
        self.ways
    }

    /// The set of a key.
    #[must_use]
    #[inline]
    pub fn set_of(&self, key: u32) -> u32 {
        key % self.sets
    }

    fn first(&self, set: u32) -> usize {
        set as usize * usize::from(self.ways)
    }

    /// The frame that holds a key (not the largest `u32`, which is no key).
    #[must_use]
    #[inline]
    pub fn find(&self, key: u32) -> Option<usize> {
        let set = self.set_of(key);
        let first = self.first(set);
        let tag = key.wrapping_add(1);
        let known = usize::from(self.known[set as usize]);
        self.tags[first..first + known]
            .iter()
            .position(|&held| held == tag && tag != 0)
            .map(|way| first + way)
    }

    /// The key in a frame.
    #[must_use]
    pub fn key(&self, frame: usize) -> Option<u32> {
        self.tags.get(frame).and_then(|tag| tag.checked_sub(1))
    }

    /// How recently the frame was used in its set: 0 for the newest.
    #[must_use]
    pub fn age(&self, frame: usize) -> usize {
        let (set, way) = self.split(frame);
        let first = self.first(set);
        let known = usize::from(self.known[set as usize]);
        self.order[first..first + known].iter().position(|&w| w == way).unwrap_or(known)
    }

    fn split(&self, frame: usize) -> (u32, u8) {
        let ways = usize::from(self.ways);
        ((frame / ways) as u32, (frame % ways) as u8)
    }

    /// Says that a frame was used.
    #[inline]
    pub fn touch(&mut self, frame: usize) {
        let (set, way) = self.split(frame);
        let first = self.first(set);
        let known = usize::from(self.known[set as usize]);
        let order = &mut self.order[first..first + known];
        if let Some(at) = order.iter().position(|&w| w == way) {
            order.copy_within(..at, 1);
            order[0] = way;
        }
    }

    /// The frame that a key not held should take: an empty one of its set if there is any, else the
    /// least recently used one for which `eligible` is true. Nothing changes before
    /// [`SetAssociative::insert`].
    #[must_use]
    pub fn room(&self, key: u32, mut eligible: impl FnMut(usize) -> bool) -> Option<Room> {
        let set = self.set_of(key);
        let first = self.first(set);
        let known = usize::from(self.known[set as usize]);
        let frames = self.order[first..first + known].iter().rev().map(|&way| first + usize::from(way));
        let oldest = frames.clone().next().filter(|&frame| self.tags[frame] == 0);
        if let Some(frame) = oldest {
            return Some(Room { frame, held: None });
        }
        if known < usize::from(self.ways) {
            return Some(Room { frame: first + known, held: None });
        }
        frames.into_iter().find(|&frame| eligible(frame)).map(|frame| Room { frame, held: self.key(frame) })
    }

    /// Puts a key into a frame of its set that [`SetAssociative::room`] named, as the newest; whoever
    /// was there has left.
    pub fn insert(&mut self, key: u32, frame: usize) {
        let (set, way) = self.split(frame);
        debug_assert!(
            set == self.set_of(key) && key != u32::MAX,
            "key {key} does not belong in frame {frame}"
        );
        let first = self.first(set);
        let known = &mut self.known[set as usize];
        // Frames come into use by number.
        if usize::from(way) == usize::from(*known) {
            self.order[first + usize::from(way)] = way;
            *known += 1;
        }
        self.len += usize::from(self.tags[frame] == 0);
        self.tags[frame] = key.wrapping_add(1);
        self.touch(frame);
    }

    /// Empties a frame.
    pub fn remove(&mut self, frame: usize) {
        let (set, way) = self.split(frame);
        let first = self.first(set);
        let known = usize::from(self.known[set as usize]);
        let order = &mut self.order[first..first + known];
        let Some(at) = order.iter().position(|&w| w == way) else { return };
        order.copy_within(at + 1.., at);
        order[known - 1] = way;
        self.len -= usize::from(self.tags[frame] != 0);
        self.tags[frame] = 0;
    }

    /// Frames that hold a key, with it, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        (0..self.sets).flat_map(move |set| {
            let first = self.first(set);
            let known = usize::from(self.known[set as usize]);
            (first..first + known).filter_map(|frame| self.key(frame).map(|key| (frame, key)))
        })
    }

    /// Bytes of memory held (of address space: what was never used is not touched).
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.tags.capacity() * 4 + self.order.capacity() + self.known.capacity() * 2
    }
}
