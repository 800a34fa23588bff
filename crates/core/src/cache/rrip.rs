//! A set-associative cache whose ways age by re-reference interval prediction, with a count of hits for each
//! page (FlatFlash, section 3.4: the SSD-Cache; A. Jaleel et al., "High Performance Cache Replacement Using
//! Re-Reference Interval Prediction", ISCA 2010: static RRIP).
//!
//! 1. The set of a key is the key modulo the number of sets. A frame is `set x ways + way`.
//! 2. Each frame has a predicted interval of a few bits. A key comes in with the largest but one: it is
//!    expected back later than what has been hit, earlier than what is about to leave.
//! 3. A hit makes the interval 0 ([`HitPriority::Hit`]), or one less ([`HitPriority::Frequency`]).
//! 4. Who leaves is the first way with the largest interval; if there is none, all ways of the set age
//!    together until there is one.
//! 5. The count says nothing about who leaves. It begins at 0 with each key, and is the caller's.

use alloc::vec;
use alloc::vec::Vec;

use super::set_assoc::Room;

/// What a hit does to the predicted interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HitPriority {
    /// It becomes 0: used once since it came, and soon again.
    #[default]
    Hit,
    /// It becomes one less: only what is used often reaches 0.
    Frequency,
}

/// Keys of frames, their intervals and counts; see the module.
#[derive(Debug, Clone)]
pub struct Rrip {
    sets: u32,
    ways: u16,
    /// The largest interval.
    most: u8,
    priority: HitPriority,
    /// The frame's key plus one; 0 if it is empty.
    tags: Vec<u32>,
    intervals: Vec<u8>,
    counts: Vec<u8>,
    len: usize,
}

impl Rrip {
    /// An empty cache of `sets` sets of `ways` ways with intervals of `bits` bits. None of sets or ways, and
    /// bits outside 1 to 8, are moved into the range.
    #[must_use]
    pub fn new(sets: u32, ways: u16, bits: u8, priority: HitPriority) -> Self {
        let (sets, ways) = (sets.max(1), ways.max(1));
        let frames = sets as usize * usize::from(ways);
        let most = u8::MAX >> (8 - bits.clamp(1, 8));
        let (tags, intervals, counts) = (vec![0; frames], vec![0; frames], vec![0; frames]);
        Self { sets, ways, most, priority, tags, intervals, counts, len: 0 }
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

    fn first(&self, key: u32) -> usize {
        (key % self.sets) as usize * usize::from(self.ways)
    }

    /// The frame that holds a key (not the largest `u32`, which is no key).
    #[must_use]
    #[inline]
    pub fn find(&self, key: u32) -> Option<usize> {
        let first = self.first(key);
        let tag = key.wrapping_add(1);
        let set = &self.tags[first..first + usize::from(self.ways)];
        set.iter().position(|&held| held == tag && tag != 0).map(|way| first + way)
    }

    /// The key in a frame.
    #[must_use]
    pub fn key(&self, frame: usize) -> Option<u32> {
        self.tags.get(frame).and_then(|tag| tag.checked_sub(1))
    }

    /// The predicted interval of a frame; 0 if there is no such frame.
    #[must_use]
    pub fn interval(&self, frame: usize) -> u8 {
        self.intervals.get(frame).copied().unwrap_or(0)
    }

    /// The page's count of hits; 0 if there is no such frame.
    #[must_use]
    pub fn count(&self, frame: usize) -> u8 {
        self.counts.get(frame).copied().unwrap_or(0)
    }

    /// The page's count of hits, for who counts.
    pub fn count_mut(&mut self, frame: usize) -> Option<&mut u8> {
        self.counts.get_mut(frame)
    }

    /// Says that a frame was hit.
    #[inline]
    pub fn touch(&mut self, frame: usize) {
        if let Some(interval) = self.intervals.get_mut(frame) {
            *interval = match self.priority {
                HitPriority::Hit => 0,
                HitPriority::Frequency => interval.saturating_sub(1),
            };
        }
    }

    /// The frame that a key not held should take: an empty one of its set if there is any, else the one
    /// that is to leave, of those for which `eligible` is true; the others of the set have then aged. `None`
    /// if no frame is eligible; then nothing has changed.
    #[must_use]
    pub fn room(&mut self, key: u32, mut eligible: impl FnMut(usize) -> bool) -> Option<Room> {
        let first = self.first(key);
        let frames = first..first + usize::from(self.ways);
        if let Some(frame) = frames.clone().find(|&frame| self.tags[frame] == 0) {
            return Some(Room { frame, held: None });
        }
        let mut oldest: Option<(u8, usize)> = None;
        for frame in frames.clone().filter(|&frame| eligible(frame)) {
            if oldest.is_none_or(|(interval, _)| self.intervals[frame] > interval) {
                oldest = Some((self.intervals[frame], frame));
            }
        }
        let (interval, frame) = oldest?;
        let aging = self.most - interval;
        for interval in &mut self.intervals[frames] {
            *interval = interval.saturating_add(aging).min(self.most);
        }
        Some(Room { frame, held: self.key(frame) })
    }

    /// Puts a key into a frame of its set that [`Rrip::room`] named, with a count of 0; whoever was there has
    /// left.
    pub fn insert(&mut self, key: u32, frame: usize) {
        debug_assert!(
            (self.first(key)..self.first(key) + usize::from(self.ways)).contains(&frame) && key != u32::MAX,
            "key {key} does not belong in frame {frame}"
        );
        self.len += usize::from(self.tags[frame] == 0);
        self.tags[frame] = key.wrapping_add(1);
        self.intervals[frame] = self.most - 1;
        self.counts[frame] = 0;
    }

    /// Empties a frame.
    pub fn remove(&mut self, frame: usize) {
        if let Some(tag) = self.tags.get_mut(frame) {
            self.len -= usize::from(*tag != 0);
            *tag = 0;
            (self.intervals[frame], self.counts[frame]) = (0, 0);
        }
    }

    /// Frames that hold a key, with it, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        (0..).zip(&self.tags).filter_map(|(frame, tag)| Some((frame, tag.checked_sub(1)?)))
    }

    /// Bytes of memory held.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.tags.capacity() * 4 + self.intervals.capacity() + self.counts.capacity()
    }
}
