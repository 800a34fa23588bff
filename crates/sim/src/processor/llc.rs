//! The last-level cache: a set-associative write-back cache of lines with LRU replacement.
//!
//! 1. A line is in at most one place, in the set that its number determines.
//! 2. The least recently used line of a full set is evicted.
//! 3. A line stored to since it was inserted is dirty; its eviction writes it back.

use crate::error::SimError;

/// Size of a line, bytes: the unit of the processor's reads and writes.
pub const LINE_BYTES: u64 = 64;

/// No line. Line numbers stay below 2^58, so that a tag is never this.
const EMPTY: u64 = u64::MAX;

/// A set-associative cache of line numbers.
#[derive(Debug, Clone)]
pub struct Llc {
    /// The tags set by set, most recently used first: line number x 2, plus 1 if dirty.
    tags: Vec<u64>,
    ways: usize,
    sets: u64,
    dirtied: u64,
    written_back: u64,
}

impl Llc {
    /// A cache of `bytes` in sets of `ways` lines; `None` if `bytes` is 0.
    ///
    /// # Errors
    /// `bytes` is not a whole number of sets.
    pub fn new(bytes: u64, ways: u64) -> Result<Option<Self>, SimError> {
        if bytes == 0 {
            return Ok(None);
        }
        if ways == 0 || ways > 1 << 10 || !bytes.is_multiple_of(ways * LINE_BYTES) || bytes > 1 << 36 {
            return Err(SimError::config(
                "llc",
                format!(
                    "{bytes} B in {ways} ways: must be whole sets of 1 to 1024 ways x 64 B, up to 64 GiB"
                ),
            ));
        }
        let sets = bytes / (ways * LINE_BYTES);
        let tags = vec![EMPTY; (sets * ways) as usize];
        Ok(Some(Self { tags, ways: ways as usize, sets, dirtied: 0, written_back: 0 }))
    }

    #[inline]
    fn set(&mut self, line: u64) -> &mut [u64] {
        let set = if self.sets.is_power_of_two() { line & (self.sets - 1) } else { line % self.sets };
        let first = set as usize * self.ways;
        &mut self.tags[first..first + self.ways]
    }

    /// Uses a line, for a store or a load. Returns false if the line is not in the cache.
    #[inline]
    pub fn touch(&mut self, line: u64, store: bool) -> bool {
        let set = self.set(line);
        let Some(at) = set.iter().position(|tag| tag >> 1 == line) else { return false };
        let tag = set[at];
        set.copy_within(..at, 1);
        set[0] = tag | u64::from(store);
        self.dirtied += u64::from(store && tag & 1 == 0);
        true
    }

    /// Inserts a line. Returns the evicted line if it must be written back.
    pub fn insert(&mut self, line: u64, dirty: bool) -> Option<u64> {
        if self.touch(line, dirty) {
            return None;
        }
        self.dirtied += u64::from(dirty);
        let set = self.set(line);
        let last = set.len() - 1;
        let victim = set[last];
        set.copy_within(..last, 1);
        set[0] = line << 1 | u64::from(dirty);
        if victim == EMPTY || victim & 1 == 0 {
            return None;
        }
        self.written_back += 1;
        Some(victim >> 1)
    }

    /// Cleans a line, which stays in the cache. Returns true if it was there and dirty, so that it must
    /// be written back.
    pub fn clean(&mut self, line: u64) -> bool {
        let dirty = line << 1 | 1;
        let Some(tag) = self.set(line).iter_mut().find(|tag| **tag == dirty) else { return false };
        *tag &= !1;
        self.written_back += 1;
        true
    }

    /// Cleans all lines, which stay in the cache. Returns those that were dirty, in the order of sets.
    pub fn clean_all(&mut self) -> Vec<u64> {
        let dirty = self.tags.iter_mut().filter(|tag| **tag != EMPTY && **tag & 1 == 1);
        let lines: Vec<u64> = dirty.map(|tag| std::mem::replace(tag, *tag & !1) >> 1).collect();
        self.written_back += lines.len() as u64;
        lines
    }

    /// Removes a line. Returns whether it must be written back; `None` if it was not in the cache.
    pub fn remove(&mut self, line: u64) -> Option<bool> {
        let set = self.set(line);
        let at = set.iter().position(|tag| *tag != EMPTY && *tag >> 1 == line)?;
        let dirty = set[at] & 1 == 1;
        set.copy_within(at + 1.., at);
        if let Some(last) = set.last_mut() {
            *last = EMPTY;
        }
        self.written_back += u64::from(dirty);
        Some(dirty)
    }

    /// Checks that every line that became dirty was written back or is still in the cache.
    ///
    /// # Errors
    /// [`SimError::Conservation`].
    pub fn check(&self) -> Result<(), SimError> {
        let dirty = self.tags.iter().filter(|tag| **tag != EMPTY && **tag & 1 == 1).count() as u64;
        if self.dirtied == self.written_back + dirty {
            return Ok(());
        }
        Err(SimError::Conservation {
            law: "every dirty line of the last-level cache is written back or still there",
            found: format!("{} dirtied, {} written back, {dirty} there", self.dirtied, self.written_back),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_cache_does_what_lists_of_lines_in_the_order_of_use_do(
            ways in 1u64..5,
            sets in 1u64..6,
            uses in prop::collection::vec((0u64..40, any::<bool>(), 0u8..10), 0..400),
        ) {
            let mut cache = Llc::new(ways * sets * LINE_BYTES, ways).unwrap().unwrap();
            let mut model: Vec<Vec<(u64, bool)>> = vec![Vec::new(); sets as usize];
            for (line, store, other) in uses {
                let set = &mut model[(line % sets) as usize];
                let found = set.iter().position(|entry| entry.0 == line);
                if other == 1 {
                    let taken = found.map(|at| set.remove(at).1);
                    prop_assert_eq!(cache.remove(line), taken);
                    cache.check().unwrap();
                    continue;
                }
                if other == 2 {
                    let dirty = model.iter_mut().flatten().filter(|entry| entry.1);
                    let mut expected: Vec<u64> = dirty
                        .map(|entry| {
                            entry.1 = false;
                            entry.0
                        })
                        .collect();
                    let mut found = cache.clean_all();
                    expected.sort_unstable();
                    found.sort_unstable();
                    prop_assert_eq!(found, expected);
                    cache.check().unwrap();
                    continue;
                }
                if other == 0 {
                    let dirty = found.is_some_and(|at| std::mem::take(&mut set[at].1));
                    prop_assert_eq!(cache.clean(line), dirty);
                    cache.check().unwrap();
                    continue;
                }
                prop_assert_eq!(cache.touch(line, store), found.is_some());
                let mut dirty = store;
                if let Some(at) = found {
                    dirty |= set.remove(at).1;
                } else {
                    let full = set.len() as u64 == ways;
                    let victim = if full { set.pop() } else { None };
                    let expected = victim.filter(|entry| entry.1).map(|entry| entry.0);
                    prop_assert_eq!(cache.insert(line, store), expected);
                }
                set.insert(0, (line, dirty));
                cache.check().unwrap();
            }
        }
    }

    #[test]
    fn a_cache_is_whole_sets_or_nothing() {
        assert!(Llc::new(0, 16).unwrap().is_none());
        assert!(Llc::new(1000, 16).unwrap_err().to_string().contains("whole sets"));
        assert!(Llc::new(1024, 0).is_err());
    }
}
