//! The tags of a set-associative cache: the frames of each set and the key in each frame.
//!
//! The set of a key is the key modulo the number of sets. A frame's number is `set x ways + way`.

use alloc::vec;
use alloc::vec::Vec;

/// The frame that a fill uses, and the key that it evicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FillTarget {
    /// The frame.
    pub frame: usize,
    /// The key in the frame now; `None` if the frame is empty.
    pub victim: Option<u32>,
}

/// The key of each frame; see the module.
#[derive(Debug, Clone)]
pub(super) struct TagArray {
    sets: u32,
    ways: u16,
    /// The frame's key plus one; 0 if the frame is empty.
    tags: Vec<u32>,
    len: usize,
}

impl TagArray {
    /// `sets` sets of `ways` ways, all empty.
    pub(super) fn new(sets: u32, ways: u16) -> Self {
        Self { sets, ways, tags: vec![0; sets as usize * usize::from(ways)], len: 0 }
    }

    pub(super) fn sets(&self) -> u32 {
        self.sets
    }

    pub(super) fn ways(&self) -> u16 {
        self.ways
    }

    /// Number of frames.
    pub(super) fn capacity(&self) -> usize {
        self.tags.len()
    }

    /// Number of frames with a key.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn set_of(&self, key: u32) -> u32 {
        key % self.sets
    }

    /// The first frame of a set.
    #[inline]
    pub(super) fn first_frame(&self, set: u32) -> usize {
        set as usize * usize::from(self.ways)
    }

    /// The set and the way of a frame.
    #[inline]
    pub(super) fn set_and_way(&self, frame: usize) -> (u32, u8) {
        let ways = usize::from(self.ways);
        ((frame / ways) as u32, (frame % ways) as u8)
    }

    /// The frame with a key, among the first `ways` ways of its set. The largest `u32` is not a key.
    #[inline]
    pub(super) fn find(&self, key: u32, ways: usize) -> Option<usize> {
        let first = self.first_frame(self.set_of(key));
        let tag = key.wrapping_add(1);
        self.tags[first..first + ways]
            .iter()
            .position(|&other| other == tag && tag != 0)
            .map(|way| first + way)
    }

    /// The key in a frame.
    #[inline]
    pub(super) fn key(&self, frame: usize) -> Option<u32> {
        self.tags.get(frame).and_then(|tag| tag.checked_sub(1))
    }

    #[inline]
    pub(super) fn is_free(&self, frame: usize) -> bool {
        self.tags[frame] == 0
    }

    /// Puts a key into a frame of its set; the key that was there is evicted.
    #[inline]
    pub(super) fn insert(&mut self, key: u32, frame: usize) {
        debug_assert!(
            frame / usize::from(self.ways) == self.set_of(key) as usize && key != u32::MAX,
            "key {key} does not belong in frame {frame}"
        );
        self.len += usize::from(self.tags[frame] == 0);
        self.tags[frame] = key.wrapping_add(1);
    }

    /// Empties a frame.
    #[inline]
    pub(super) fn clear(&mut self, frame: usize) {
        self.len -= usize::from(self.tags[frame] != 0);
        self.tags[frame] = 0;
    }

    /// All frames with a key, by frame number.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        (0..).zip(&self.tags).filter_map(|(frame, tag)| Some((frame, tag.checked_sub(1)?)))
    }

    /// Memory of the tags, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.tags.capacity() * size_of::<u32>()
    }
}
