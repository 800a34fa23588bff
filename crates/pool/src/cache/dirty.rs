//! The set of dirty segments, ordered by address: neighbouring segments are written together, one call write-protects
//! many of them, and they become neighbours on flash. The set is a bitmap of two levels; the upper level marks the
//! nonzero words of the lower level.

use super::Index;

/// A set of segments.
#[derive(Debug)]
pub(super) struct DirtySet {
    words: Vec<u64>,
    /// One bit for each nonzero word of the lower level.
    summary: Vec<u64>,
    len: usize,
}

impl DirtySet {
    /// Makes an empty set for `segments` segments.
    pub(super) fn new(segments: usize) -> Self {
        let words = segments.div_ceil(64);
        Self { words: vec![0; words], summary: vec![0; words.div_ceil(64)], len: 0 }
    }

    pub(super) fn insert(&mut self, index: Index) {
        let (word, bit) = split(index as usize);
        self.len += usize::from(self.words[word] & bit == 0);
        self.words[word] |= bit;
        let (of, bit) = split(word);
        self.summary[of] |= bit;
    }

    pub(super) fn remove(&mut self, index: Index) {
        let (word, bit) = split(index as usize);
        self.len -= usize::from(self.words[word] & bit != 0);
        self.words[word] &= !bit;
        if self.words[word] == 0 {
            let (of, bit) = split(word);
            self.summary[of] &= !bit;
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the first segment of the set at or after `from`.
    pub(super) fn next(&self, from: Index) -> Option<Index> {
        let word = from as usize / 64;
        let here = self.words.get(word)? & (u64::MAX << (from % 64));
        if here != 0 {
            return Some((word * 64) as Index + here.trailing_zeros());
        }
        let next = word + 1;
        let first = self.summary.get(next / 64)? & (u64::MAX << (next % 64));
        let others = self.summary[next / 64 + 1..].iter().copied();
        let (n, bits) =
            (next / 64..).zip(std::iter::once(first).chain(others)).find(|(_, bits)| *bits != 0)?;
        let word = n * 64 + bits.trailing_zeros() as usize;
        Some((word * 64) as Index + self.words[word].trailing_zeros())
    }

    /// Iterates over the set in order of addresses.
    pub(super) fn iter(&self) -> impl Iterator<Item = Index> + '_ {
        let mut from = 0;
        std::iter::from_fn(move || {
            let index = self.next(from)?;
            from = index + 1;
            Some(index)
        })
    }

    pub(super) fn memory_bytes(&self) -> usize {
        (self.words.len() + self.summary.len()) * size_of::<u64>()
    }
}

/// Returns the word that holds a bit, and the mask of the bit.
fn split(index: usize) -> (usize, u64) {
    (index / 64, 1 << (index % 64))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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
                let index = which.index(segments) as Index;
                if add {
                    set.insert(index);
                    model.insert(index);
                } else {
                    set.remove(index);
                    model.remove(&index);
                }
                let from = which.index(segments + 1) as Index;
                prop_assert_eq!(set.next(from), model.range(from..).next().copied());
                prop_assert_eq!(set.len(), model.len());
            }
            prop_assert!(set.iter().eq(model.iter().copied()));
            for index in model {
                set.remove(index);
            }
            prop_assert_eq!(set.next(0), None);
        }
    }
}
