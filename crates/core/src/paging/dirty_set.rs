//! The set of the pool's dirty segments, and the order in which they are written back: that of their addresses, so that
//! neighbouring segments are written together, one call write-protects many of them, and they become neighbours on flash.
//! The set is a bitmap of two levels; the upper level marks the nonzero words of the lower level.

use alloc::vec;
use alloc::vec::Vec;
use core::mem::size_of;
use core::ops::Range;

/// A set of segments, by number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirtySet {
    words: Vec<u64>,
    /// One bit for each nonzero word of the lower level.
    summary: Vec<u64>,
    len: usize,
}

impl DirtySet {
    /// Makes an empty set for `segments` segments.
    #[must_use]
    pub fn new(segments: usize) -> Self {
        let words = segments.div_ceil(64);
        Self { words: vec![0; words], summary: vec![0; words.div_ceil(64)], len: 0 }
    }

    /// Adds a segment, which may be in the set already.
    pub fn insert(&mut self, index: u32) {
        let (word, bit) = split(index as usize);
        self.len += usize::from(self.words[word] & bit == 0);
        self.words[word] |= bit;
        let (of, bit) = split(word);
        self.summary[of] |= bit;
    }

    /// Removes a segment, which need not be in the set.
    pub fn remove(&mut self, index: u32) {
        let (word, bit) = split(index as usize);
        self.len -= usize::from(self.words[word] & bit != 0);
        self.words[word] &= !bit;
        if self.words[word] == 0 {
            let (of, bit) = split(word);
            self.summary[of] &= !bit;
        }
    }

    /// Number of segments in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the first segment of the set at or after `from`.
    #[must_use]
    pub fn next(&self, from: u32) -> Option<u32> {
        let word = from as usize / 64;
        let here = self.words.get(word)? & (u64::MAX << (from % 64));
        if here != 0 {
            return Some((word * 64) as u32 + here.trailing_zeros());
        }
        let next = word + 1;
        let first = self.summary.get(next / 64)? & (u64::MAX << (next % 64));
        let others = self.summary[next / 64 + 1..].iter().copied();
        let (n, bits) =
            (next / 64..).zip(core::iter::once(first).chain(others)).find(|(_, bits)| *bits != 0)?;
        let word = n * 64 + bits.trailing_zeros() as usize;
        Some((word * 64) as u32 + self.words[word].trailing_zeros())
    }

    /// Iterates over the set in order of addresses.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let mut from = 0;
        core::iter::from_fn(move || {
            let index = self.next(from)?;
            from = index + 1;
            Some(index)
        })
    }

    /// Takes up to `n` segments of `range` for which `wanted` holds; returns them in ascending order. The segments at and
    /// behind the `cursor` come first, then those before it; the cursor moves behind the last one taken. So all segments are
    /// written in turn, and none stays dirty because others become dirty again and again.
    pub fn take(
        &mut self,
        cursor: &mut u32,
        range: Range<u32>,
        n: usize,
        mut wanted: impl FnMut(u32) -> bool,
    ) -> Vec<u32> {
        let mut taken = Vec::with_capacity(n.min(self.len));
        let hand = (*cursor).clamp(range.start, range.end);
        for part in [hand..range.end, range.start..hand] {
            let mut at = part.start;
            while taken.len() < n {
                let Some(index) = self.next(at).filter(|index| *index < part.end) else { break };
                at = index + 1;
                if wanted(index) {
                    self.remove(index);
                    *cursor = at;
                    taken.push(index);
                }
            }
        }
        taken.sort_unstable();
        taken
    }

    /// Bytes of the bitmap.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        (self.words.len() + self.summary.len()) * size_of::<u64>()
    }
}

/// Returns the word that holds a bit, and the mask of the bit.
fn split(index: usize) -> (usize, u64) {
    (index / 64, 1 << (index % 64))
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compares the bitmap with a tree set; the sizes lie around the word boundaries of both levels.
        #[test]
        fn it_is_a_set_in_order(
            segments in prop_oneof![1usize..200, 4000usize..4200, 8000usize..20_000],
            steps in proptest::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..200),
        ) {
            let (mut set, mut model) = (DirtySet::new(segments), BTreeSet::new());
            for (add, which) in steps {
                let index = which.index(segments) as u32;
                if add {
                    set.insert(index);
                    model.insert(index);
                } else {
                    set.remove(index);
                    model.remove(&index);
                }
                let from = which.index(segments + 1) as u32;
                prop_assert_eq!(set.next(from), model.range(from..).next().copied());
                prop_assert_eq!(set.len(), model.len());
            }
            prop_assert!(set.iter().eq(model.iter().copied()));
            for index in model {
                set.remove(index);
            }
            prop_assert_eq!(set.next(0), None);
        }

        /// Compares the cursor with a list of the wanted segments from the cursor on and round to it.
        #[test]
        fn segments_are_taken_in_turn_from_the_cursor_on(
            dirty in proptest::collection::btree_set(0u32..300, 0..100),
            (first, len) in (0u32..200, 1u32..150),
            start in 0u32..300,
            takes in proptest::collection::vec(0usize..40, 1..6),
            odd in 0u32..2,
        ) {
            let range = first..first + len;
            let mut set = DirtySet::new(350);
            dirty.iter().for_each(|index| set.insert(*index));
            let wanted = |index: u32| index % 2 == odd;
            let of_range = dirty.iter().copied().filter(|index| range.contains(index) && wanted(*index));
            let mut model: Vec<u32> = of_range.collect();
            let mut cursor = start;
            for n in takes {
                let mut turn = model.clone();
                turn.rotate_left(model.partition_point(|index| *index < cursor));
                turn.truncate(n);
                let next = turn.last().map_or(cursor, |last| last + 1);
                turn.sort_unstable();
                let before = set.len();
                prop_assert_eq!(&set.take(&mut cursor, range.clone(), n, wanted), &turn);
                prop_assert_eq!((cursor, set.len()), (next, before - turn.len()));
                model.retain(|index| !turn.contains(index));
            }
            prop_assert!(set.iter().all(|index| dirty.contains(&index)));
        }
    }
}
