//! A set-associative cache with re-reference interval prediction (RRIP) and a use count for each page
//! (FlatFlash, section 3.4: the SSD-Cache; A. Jaleel et al., "High Performance Cache Replacement Using
//! Re-Reference Interval Prediction", ISCA 2010: static RRIP).
//!
//! 1. The set of a key is the key modulo the number of sets. A frame's number is `set x ways + way`.
//! 2. Each frame has a re-reference prediction value (RRPV) of a few bits. A key is inserted with the
//!    largest value minus one: its next use is expected later than that of a key that was hit, earlier
//!    than that of a victim.
//! 3. A hit sets the RRPV to 0 ([`HitPriority::Hit`]) or decrements it ([`HitPriority::Frequency`]).
//! 4. The victim is the first way with the largest RRPV; if no way has it, the RRPVs of all ways of the
//!    set are incremented together until one does.
//! 5. The count (the paper's `pageCnt`) does not affect replacement. It starts at 0 with each key, and
//!    the caller updates it.

use alloc::vec;
use alloc::vec::Vec;

use super::tag_array::{FillTarget, TagArray};

/// The effect of a hit on the re-reference prediction value (RRPV).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HitPriority {
    /// The RRPV becomes 0: a page used once after its insertion is expected again soon.
    #[default]
    Hit,
    /// The RRPV is decremented: only a frequently used page reaches 0.
    Frequency,
}

/// The keys of all frames, their RRPVs and counts; see the module.
#[derive(Debug, Clone)]
pub struct Rrip {
    tags: TagArray,
    /// The largest RRPV.
    max_rrpv: u8,
    priority: HitPriority,
    rrpvs: Vec<u8>,
    counts: Vec<u8>,
}

impl Rrip {
    /// An empty cache of `sets` sets of `ways` ways with RRPVs of `bits` bits. `sets` and `ways` are at
    /// least 1 and `bits` 1 to 8; other values are clamped.
    #[must_use]
    pub fn new(sets: u32, ways: u16, bits: u8, priority: HitPriority) -> Self {
        let tags = TagArray::new(sets.max(1), ways.max(1));
        let max_rrpv = u8::MAX >> (8 - bits.clamp(1, 8));
        let (rrpvs, counts) = (vec![0; tags.capacity()], vec![0; tags.capacity()]);
        Self { tags, max_rrpv, priority, rrpvs, counts }
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

    /// The frame with a key. The largest `u32` is not a key.
    #[must_use]
    #[inline]
    pub fn find(&self, key: u32) -> Option<usize> {
        self.tags.find(key, usize::from(self.tags.ways()))
    }

    /// The key in a frame.
    #[must_use]
    pub fn key(&self, frame: usize) -> Option<u32> {
        self.tags.key(frame)
    }

    /// The re-reference prediction value of a frame; 0 if the frame does not exist.
    #[must_use]
    pub fn rrpv(&self, frame: usize) -> u8 {
        self.rrpvs.get(frame).copied().unwrap_or(0)
    }

    /// The use count of the frame's page; 0 if the frame does not exist.
    #[must_use]
    pub fn count(&self, frame: usize) -> u8 {
        self.counts.get(frame).copied().unwrap_or(0)
    }

    /// The use count of the frame's page, for the caller to update.
    pub fn count_mut(&mut self, frame: usize) -> Option<&mut u8> {
        self.counts.get_mut(frame)
    }

    /// Records a hit on a frame.
    #[inline]
    pub fn touch(&mut self, frame: usize) {
        if let Some(rrpv) = self.rrpvs.get_mut(frame) {
            *rrpv = match self.priority {
                HitPriority::Hit => 0,
                HitPriority::Frequency => rrpv.saturating_sub(1),
            };
        }
    }

    /// The frame to fill after a miss on `key`: an empty frame of its set if one exists, else the RRIP
    /// victim among the frames for which `eligible` is true; choosing a victim ages the whole set.
    /// `None` if no frame is eligible; then nothing has changed.
    #[must_use]
    pub fn fill_target(&mut self, key: u32, mut eligible: impl FnMut(usize) -> bool) -> Option<FillTarget> {
        let first = self.tags.first_frame(self.tags.set_of(key));
        let frames = first..first + usize::from(self.tags.ways());
        if let Some(frame) = frames.clone().find(|&frame| self.tags.is_free(frame)) {
            return Some(FillTarget { frame, victim: None });
        }
        let mut victim: Option<(u8, usize)> = None;
        for frame in frames.clone().filter(|&frame| eligible(frame)) {
            if victim.is_none_or(|(rrpv, _)| self.rrpvs[frame] > rrpv) {
                victim = Some((self.rrpvs[frame], frame));
            }
        }
        let (rrpv, frame) = victim?;
        let aging = self.max_rrpv - rrpv;
        for rrpv in &mut self.rrpvs[frames] {
            *rrpv = rrpv.saturating_add(aging).min(self.max_rrpv);
        }
        Some(FillTarget { frame, victim: self.key(frame) })
    }

    /// Puts a key into the frame that [`Rrip::fill_target`] named, with a count of 0. The key that was
    /// there is evicted.
    pub fn insert(&mut self, key: u32, frame: usize) {
        self.tags.insert(key, frame);
        self.rrpvs[frame] = self.max_rrpv - 1;
        self.counts[frame] = 0;
    }

    /// Empties a frame. Does nothing if the frame does not exist.
    pub fn remove(&mut self, frame: usize) {
        if frame < self.capacity() {
            self.tags.clear(frame);
            (self.rrpvs[frame], self.counts[frame]) = (0, 0);
        }
    }

    /// All frames with a key, by frame number.
    pub fn iter(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        self.tags.iter()
    }

    /// Memory of the tables, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.tags.memory_bytes() + self.rrpvs.capacity() + self.counts.capacity()
    }
}
