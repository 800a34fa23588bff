//! Memory that was never written: a fault brings in several segments where a page of them was touched before it.

use std::sync::atomic::Ordering::Relaxed;

use crate::filled::{SEGMENT, WORDS, ways};
use crate::scratch::{MIB, Scratch, mappable, mix};
use deepram_pool::{CreateOptions, Lifetime, OpenOptions, Pool};

const SEGMENTS: u64 = 16 * MIB / SEGMENT;

#[test]
fn memory_that_is_filled_in_order_needs_few_faults_and_memory_that_is_not_gets_no_neighbours() {
    if !mappable() {
        return;
    }
    for faults in ways() {
        let scratch = Scratch::new(&CreateOptions::new(64 * MIB));
        let options = OpenOptions::new(24 * MIB).faults(faults);
        let pool = Pool::open(&[scratch.path()], &options).unwrap();
        let first = pool.alloc(3 * SEGMENTS * SEGMENT, Lifetime::Permanent).unwrap();
        let table = pool.words(first, (3 * SEGMENTS * WORDS) as usize).unwrap();
        let word = |segment: u64| &table[(segment * WORDS + segment % WORDS) as usize];
        let missing = || pool.stats().faults_missing;

        // In order.
        (0..SEGMENTS).for_each(|n| word(n).store(mix(n) | 1, Relaxed));
        assert!(missing() < SEGMENTS / 12, "{} faults for {SEGMENTS} segments", missing());
        assert_eq!(pool.stats().readahead_windows, 0);
        pool.sync().unwrap();
        let written = pool.stats().bytes_user;
        assert!(written < (SEGMENTS + 16) * SEGMENT, "{written} bytes");

        // Every third segment: none is written that was not stored to.
        let before = missing();
        (0..SEGMENTS / 3).for_each(|n| word(SEGMENTS + 20 + 3 * n).store(n + 1, Relaxed));
        assert_eq!(missing() - before, SEGMENTS / 3);
        pool.sync().unwrap();
        assert_eq!(pool.stats().bytes_user - written, SEGMENTS / 3 * SEGMENT);

        // A run that is shorter than a page of 16 segments gets no neighbours either.
        let (before, written) = (missing(), pool.stats().bytes_user);
        (0..15).for_each(|n| word(2 * SEGMENTS + 100 + n).store(1, Relaxed));
        pool.sync().unwrap();
        assert_eq!((missing() - before, pool.stats().bytes_user - written), (15, 15 * SEGMENT));
        (0..15).for_each(|n| word(2 * SEGMENTS + 100 + n).store(0, Relaxed));

        // Loads: the budget holds, and nothing becomes dirty.
        let before = missing();
        assert!((2 * SEGMENTS + 20..3 * SEGMENTS).all(|n| word(n).load(Relaxed) == 0));
        assert!(missing() - before < SEGMENTS / 12, "{} faults", missing() - before);
        let stats = pool.stats();
        assert_eq!(stats.dirty_segments, 15);
        assert!(stats.dram_bytes <= stats.budget_bytes, "{stats:?}");

        drop(table);
        pool.close().unwrap();
        let pool = scratch.open(24 * MIB);
        let table = pool.words(first, (3 * SEGMENTS * WORDS) as usize).unwrap();
        let expected = |segment: u64| match segment {
            n if n < SEGMENTS => mix(n) | 1,
            n if n >= SEGMENTS + 20 && (n - SEGMENTS - 20).is_multiple_of(3) && n < 2 * SEGMENTS + 19 => {
                (n - SEGMENTS - 20) / 3 + 1
            }
            _ => 0,
        };
        for segment in 0..3 * SEGMENTS {
            let at = (segment * WORDS + segment % WORDS) as usize;
            assert_eq!(table[at].load(Relaxed), expected(segment), "segment {segment}");
        }
    }
}
