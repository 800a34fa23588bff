//! A set of page numbers, as bits.

use std::ops::Range;

/// The set. Memory grows with the largest number.
#[derive(Debug, Default)]
pub(super) struct PageSet {
    words: Vec<u64>,
}

impl PageSet {
    /// Adds a page. Returns whether it is new.
    pub(super) fn insert(&mut self, page: u64) -> bool {
        let at = (page / 64) as usize;
        if at >= self.words.len() {
            self.words.resize(at + 1, 0);
        }
        let (bit, word) = (1 << (page % 64), &mut self.words[at]);
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    pub(super) fn contains(&self, page: u64) -> bool {
        self.words.get((page / 64) as usize).is_some_and(|word| word >> (page % 64) & 1 == 1)
    }

    /// Removes a page. Returns whether it was there.
    pub(super) fn remove(&mut self, page: u64) -> bool {
        let found = self.contains(page);
        if found {
            self.words[(page / 64) as usize] &= !(1 << (page % 64));
        }
        found
    }

    /// The first page of the set that is at least `from`.
    pub(super) fn next(&self, from: u64) -> Option<u64> {
        let mut at = (from / 64) as usize;
        let mut word = self.words.get(at)? & u64::MAX << (from % 64);
        while word == 0 {
            at += 1;
            word = *self.words.get(at)?;
        }
        Some(at as u64 * 64 + u64::from(word.trailing_zeros()))
    }

    /// The pages of a range that are in the set, in order.
    pub(super) fn within(&self, range: Range<u64>) -> Vec<u64> {
        let mut found = Vec::new();
        let mut from = range.start;
        while let Some(page) = self.next(from).filter(|page| *page < range.end) {
            found.push(page);
            from = page + 1;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn the_set_of_bits_is_a_set(
            steps in prop::collection::vec((0u64..300, any::<bool>()), 0..200),
            range in (0u64..320, 0u64..320),
        ) {
            let (mut set, mut model) = (PageSet::default(), BTreeSet::new());
            for (page, add) in steps {
                if add {
                    prop_assert_eq!(set.insert(page), model.insert(page));
                } else {
                    prop_assert_eq!(set.remove(page), model.remove(&page));
                }
                prop_assert_eq!(set.contains(page), model.contains(&page));
            }
            prop_assert_eq!(set.next(range.0), model.range(range.0..).next().copied());
            let expected: Vec<u64> = model.iter().copied().filter(|page| (range.0..range.1).contains(page)).collect();
            prop_assert_eq!(set.within(range.0..range.1), expected);
        }
    }
}
