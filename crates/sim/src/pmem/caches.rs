//! The processor's caches as one cache, with an index of its lines by page, so that a flush of a large range looks only at
//! pages of which some line may be cached.

use std::collections::BTreeMap;
use std::ops::Range;

use deepram_media::Bytes;

use crate::error::SimError;
use crate::processor::{LINE_BYTES, Llc};

/// Lines of an index page.
const PAGE_LINES: u64 = 64;
/// The first line of addresses that are in DRAM whatever the file system: the buffer pool's.
pub(super) const POOL_LINES: u64 = 1 << 48;

/// Outcome of a use of a range.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Touched {
    /// Lines that were not in the cache.
    pub(super) missing: u64,
    /// Dirty lines that they displaced, of data and of the buffer pool.
    pub(super) displaced: u64,
    pub(super) displaced_pool: u64,
}

/// Outcome of a flush of a range.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct FlushedLines {
    /// All lines of the range.
    pub(super) lines: u64,
    /// Those that were in the cache.
    pub(super) cached: u64,
    /// Those that were dirty.
    pub(super) dirty: u64,
}

/// The caches.
pub(super) struct Caches {
    /// `None` where a simulated processor has caches of its own.
    cache: Option<Llc>,
    /// For each page, the lines that have been inserted and not been removed since; some may have been displaced.
    inserted: BTreeMap<u64, u64>,
}

/// The lines that contain a byte of the range.
pub(super) fn lines_of(range: &Range<u64>) -> Range<u64> {
    if range.is_empty() {
        return 0..0;
    }
    range.start / LINE_BYTES..range.end.div_ceil(LINE_BYTES)
}

impl Caches {
    /// # Errors
    /// `bytes` is not a whole number of sets.
    pub(super) fn new(bytes: Bytes, ways: u64) -> Result<Self, SimError> {
        Ok(Self { cache: Llc::new(bytes.0, ways)?, inserted: BTreeMap::new() })
    }

    /// Loads or stores all lines.
    pub(super) fn touch(&mut self, lines: Range<u64>, store: bool) -> Touched {
        let mut touched = Touched::default();
        let Some(cache) = &mut self.cache else {
            touched.missing = lines.end - lines.start;
            return touched;
        };
        for line in lines {
            if cache.touch(line, store) {
                continue;
            }
            touched.missing += 1;
            *self.inserted.entry(line / PAGE_LINES).or_default() |= 1 << (line % PAGE_LINES);
            match cache.insert(line, store) {
                Some(victim) if victim >= POOL_LINES => touched.displaced_pool += 1,
                Some(_) => touched.displaced += 1,
                None => {}
            }
        }
        touched
    }

    /// Removes all lines, or only cleans them if `keep`.
    pub(super) fn flush(&mut self, lines: Range<u64>, keep: bool) -> FlushedLines {
        let mut flushed = FlushedLines { lines: lines.end - lines.start, ..FlushedLines::default() };
        let Some(cache) = &mut self.cache else { return flushed };
        if lines.is_empty() {
            return flushed;
        }
        let mut emptied = Vec::new();
        let pages = lines.start / PAGE_LINES..=(lines.end - 1) / PAGE_LINES;
        for (&page, mask) in self.inserted.range_mut(pages) {
            for bit in 0..PAGE_LINES {
                let line = page * PAGE_LINES + bit;
                if *mask & 1 << bit == 0 || !lines.contains(&line) {
                    continue;
                }
                if keep {
                    flushed.dirty += u64::from(cache.clean(line));
                    continue;
                }
                *mask &= !(1 << bit);
                if let Some(dirty) = cache.remove(line) {
                    flushed.cached += 1;
                    flushed.dirty += u64::from(dirty);
                }
            }
            if *mask == 0 {
                emptied.push(page);
            }
        }
        for page in emptied {
            self.inserted.remove(&page);
        }
        flushed
    }

    /// # Errors
    /// [`SimError::Conservation`].
    pub(super) fn check(&self) -> Result<(), SimError> {
        self.cache.as_ref().map_or(Ok(()), Llc::check)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Without displacement, the cache is the set of lines touched and not flushed since.
        #[test]
        fn a_flush_finds_exactly_the_lines_used_since_the_last_one(
            steps in prop::collection::vec((0u64..600, 1u64..200, 0u8..4), 0..60),
        ) {
            // 64 KiB in 1024 ways of one set: nothing is displaced.
            let mut caches = Caches::new(Bytes(1024 * 64), 1024).unwrap();
            let (mut cached, mut dirty) = (BTreeSet::new(), BTreeSet::new());
            for (first, count, action) in steps {
                let lines = first..first + count;
                match action {
                    0 | 1 => {
                        let missing = lines.clone().filter(|line| !cached.contains(line)).count() as u64;
                        cached.extend(lines.clone());
                        if action == 1 {
                            dirty.extend(lines.clone());
                        }
                        prop_assert_eq!(caches.touch(lines, action == 1), Touched { missing, ..Touched::default() });
                    }
                    _ => {
                        let keep = action == 3;
                        let gone = |set: &mut BTreeSet<u64>| lines.clone().filter(|line| set.remove(line)).count() as u64;
                        let written = gone(&mut dirty);
                        let found = if keep { 0 } else { gone(&mut cached) };
                        let expected = FlushedLines { lines: count, cached: found, dirty: written };
                        prop_assert_eq!(caches.flush(lines, keep), expected);
                    }
                }
                caches.check().unwrap();
            }
        }
    }

    #[test]
    fn lines_are_those_with_a_byte_of_the_range() {
        assert_eq!(lines_of(&(63..65)), 0..2);
        assert_eq!(lines_of(&(64..64)), 0..0);
        assert_eq!(lines_of(&(0..1)), 0..1);
    }
}
