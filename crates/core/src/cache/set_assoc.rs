//! A set-associative cache with LRU replacement, as hardware has it: a key may be in any way of one set,
//! and the victim is the least recently used way of that set (NVMM, Architecture: the DRAM cache).
//!
//! 1. The set of a key is the key modulo the number of sets. A frame's number is `set x ways + way`.
//! 2. `recency` lists the ways of a set that have been used at least once, each once, the most recent
//!    first. The other ways follow by number. A set that is never used is therefore never written, and
//!    its memory is not touched.
//! 3. A frame emptied by [`SetAssociative::remove`] becomes the least recently used of its set.

use alloc::vec;
use alloc::vec::Vec;

use super::tag_array::{FillTarget, TagArray};

/// The keys of all frames, and the LRU order of each set; see the module.
#[derive(Debug, Clone)]
pub struct SetAssociative {
    tags: TagArray,
    recency: Vec<u8>,
    /// For each set the number of ways in `recency`.
    used_ways: Vec<u16>,
}

impl SetAssociative {
    /// An empty cache of `sets` sets of `ways` ways. `sets` is at least 1 and `ways` 1 to 256; other
    /// values are clamped.
    #[must_use]
    pub fn new(sets: u32, ways: u16) -> Self {
        let tags = TagArray::new(sets.max(1), ways.clamp(1, 256));
        let (recency, used_ways) = (vec![0; tags.capacity()], vec![0; tags.sets() as usize]);
        Self { tags, recency, used_ways }
    }

    /// Number of frames.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.tags.capacity()
    }

    /// Number of frames with a key.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tags.len()
    }

    /// True if no frame has a key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of ways of a set.
    #[must_use]
    pub fn ways(&self) -> u16 {
        self.tags.ways()
    }

    /// The set of a key.
    #[must_use]
    #[inline]
    pub fn set_of(&self, key: u32) -> u32 {
        self.tags.set_of(key)
    }

    /// The first frame of a set, and the number of its ways that have been used.
    #[inline]
    fn used(&self, set: u32) -> (usize, usize) {
        (self.tags.first_frame(set), usize::from(self.used_ways[set as usize]))
    }

    /// The frame with a key. The largest `u32` is not a key.
    #[must_use]
    #[inline]
    pub fn find(&self, key: u32) -> Option<usize> {
        self.tags.find(key, usize::from(self.used_ways[self.set_of(key) as usize]))
    }

    /// The key in a frame.
    #[must_use]
    pub fn key(&self, frame: usize) -> Option<u32> {
        self.tags.key(frame)
    }

    /// The frame's position in the LRU order of its set: 0 for the most recently used.
    #[must_use]
    pub fn age(&self, frame: usize) -> usize {
        let (set, way) = self.tags.set_and_way(frame);
        let (first, used) = self.used(set);
        self.recency[first..first + used].iter().position(|&w| w == way).unwrap_or(used)
    }

    /// Records a use of a frame.
    #[inline]
    pub fn touch(&mut self, frame: usize) {
        let (set, way) = self.tags.set_and_way(frame);
        let (first, used) = self.used(set);
        let recency = &mut self.recency[first..first + used];
        if let Some(at) = recency.iter().position(|&w| w == way) {
            recency.copy_within(..at, 1);
            recency[0] = way;
        }
    }

    /// The frame to fill after a miss on `key`: an empty frame of its set if one exists, else the least
    /// recently used one for which `eligible` is true. Changes nothing; [`SetAssociative::insert`] does.
    #[must_use]
    pub fn fill_target(&self, key: u32, mut eligible: impl FnMut(usize) -> bool) -> Option<FillTarget> {
        let (first, used) = self.used(self.set_of(key));
        let mut oldest_first =
            self.recency[first..first + used].iter().rev().map(|&way| first + usize::from(way));
        let oldest = oldest_first.clone().next().filter(|&frame| self.tags.is_free(frame));
        if let Some(frame) = oldest {
            return Some(FillTarget { frame, victim: None });
        }
        if used < usize::from(self.ways()) {
            return Some(FillTarget { frame: first + used, victim: None });
        }
        oldest_first.find(|&frame| eligible(frame)).map(|frame| FillTarget { frame, victim: self.key(frame) })
    }

    /// Puts a key into the frame that [`SetAssociative::fill_target`] named, as the most recently used
    /// of its set. The key that was there is evicted.
    pub fn insert(&mut self, key: u32, frame: usize) {
        let (set, way) = self.tags.set_and_way(frame);
        let first = self.tags.first_frame(set);
        let used = &mut self.used_ways[set as usize];
        // The ways of a set come into use in the order of their numbers.
        if usize::from(way) == usize::from(*used) {
            self.recency[first + usize::from(way)] = way;
            *used += 1;
        }
        self.tags.insert(key, frame);
        self.touch(frame);
    }

    /// Empties a frame.
    pub fn remove(&mut self, frame: usize) {
        let (set, way) = self.tags.set_and_way(frame);
        let (first, used) = self.used(set);
        let recency = &mut self.recency[first..first + used];
        let Some(at) = recency.iter().position(|&w| w == way) else { return };
        recency.copy_within(at + 1.., at);
        recency[used - 1] = way;
        self.tags.clear(frame);
    }

    /// All frames with a key, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        (0..self.tags.sets()).flat_map(move |set| {
            let (first, used) = self.used(set);
            (first..first + used).filter_map(|frame| self.key(frame).map(|key| (frame, key)))
        })
    }

    /// Memory of the tables, in bytes of address space; memory of sets that were never used is not
    /// touched.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.tags.memory_bytes() + self.recency.capacity() + self.used_ways.capacity() * 2
    }
}
