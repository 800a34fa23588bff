//! The last-level cache: sets of lines in the order of their use, written back when they leave.
//!
//! 1. A line is in at most one place, in the set that its number gives.
//! 2. Of a full set, the line used longest ago leaves.
//! 3. A line that was stored to since it came in is dirty; it leaves with a write-back.

use crate::error::SimError;

/// Bytes of a line: what the processor reads and writes at once.
pub const LINE_BYTES: u64 = 64;

/// No line. Line numbers stay below 2^58, so that a tag is never this.
const EMPTY: u64 = u64::MAX;

/// A set-associative cache of line numbers.
#[derive(Debug, Clone)]
pub struct Llc {
    /// Set after set, in each the line used last first: number x 2, plus 1 if dirty.
    tags: Vec<u64>,
    ways: usize,
    sets: u64,
    dirtied: u64,
    written_back: u64,
}

impl Llc {
    /// A cache of `bytes` in sets of `ways` lines; `None` if it has no bytes.
    ///
    /// # Errors
    /// The bytes are no whole number of sets.
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

    /// Uses the line if it is there, for a store or a load. False if it is not.
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

    /// Puts the line in; the line that leaves, if it must be written back.
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

    /// Writes the line back if it is there and dirty; it stays. True if it was.
    pub fn clean(&mut self, line: u64) -> bool {
        let dirty = line << 1 | 1;
        let Some(tag) = self.set(line).iter_mut().find(|tag| **tag == dirty) else { return false };
        *tag &= !1;
        self.written_back += 1;
        true
    }

    /// Takes the line out if it is there: whether it must be written back.
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

    /// Every line that became dirty was written back or is still there.
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
