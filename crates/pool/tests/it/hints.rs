//! Readahead, hints of future use (`will_need`, `evict_range`, `pin`) and changes of the budget, with both
//! fault-serving modes (`faulting.rs`).

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::filled::{SEGMENT, WORDS, expected, filled, ways, word_of};
use crate::scratch::{MIB, mappable, mix};
use deepram_pool::{Addr, FaultOptions, Lifetime, Mapping, OpenOptions, Pool, PoolError};

#[test]
fn a_scan_is_read_ahead_and_random_use_is_not() {
    if !mappable() {
        return;
    }
    for faults in ways() {
        let options = OpenOptions::new(24 * MIB).faults(faults);
        let bytes = 64 * MIB;
        let segments = bytes / SEGMENT;
        let (_scratch, pool, _, table) = filled(bytes, &options);
        // Random use: hardly any unused segment is read ahead. Fault-around tries one neighbour at every 32nd miss.
        for n in 0..3000 {
            let segment = mix(n) % segments;
            assert_eq!(word_of(&table, segment), expected(segment));
        }
        let random = pool.stats();
        assert!(random.readahead_segments * 25 < random.faults_missing, "{random:?}");
        // A handler counts a latency after the faulting thread has gone on.
        let served = || pool.fault_latency().iter().map(|(_, faults)| faults).sum::<u64>();
        until("the latency of the last fault", || served() >= pool.stats().faults_missing);
        assert!(pool.fault_latency().is_sorted_by_key(|(end, _)| *end), "{:?}", pool.fault_latency());
        // Sequential use: in order, in strides, and backwards.
        for stride in [1, 3, -1_i64] {
            let before = pool.stats();
            let count = segments / stride.unsigned_abs();
            for n in 0..count {
                let segment = if stride > 0 { n * stride.unsigned_abs() } else { count - 1 - n };
                assert_eq!(word_of(&table, segment), expected(segment));
            }
            let stats = pool.stats();
            let (faults, ahead) = (
                stats.faults_missing - before.faults_missing,
                stats.readahead_segments - before.readahead_segments,
            );
            // A thread that is faster than the device faults on segments that are still being read.
            assert!(ahead > count / 2, "stride {stride}: {ahead} of {count} read ahead, {faults} faults");
            assert!(ahead < count * 5 / 4, "stride {stride}: {ahead} read ahead for {count} uses");
        }
        assert!(pool.stats().dram_bytes <= pool.stats().budget_bytes, "{:?}", pool.stats());
        drop(table);
        pool.close().unwrap();
    }
}

#[test]
fn a_run_that_ends_reads_no_further_and_none_is_followed_where_that_is_off() {
    if !mappable() {
        return;
    }
    for ahead in [true, false] {
        let options =
            OpenOptions::new(32 * MIB).faults(FaultOptions { readahead: ahead, ..FaultOptions::default() });
        let (_scratch, pool, _, table) = filled(16 * MIB, &options);
        // Short sequential runs, far apart: each opens at most one window, of eight segments.
        for run in 0..30 {
            (0..3).for_each(|n| assert_eq!(word_of(&table, run * 130 + n), expected(run * 130 + n)));
        }
        std::thread::sleep(Duration::from_millis(50));
        let stats = pool.stats();
        assert!(stats.readahead_windows <= 30 && stats.readahead_segments <= 30 * 8, "{stats:?}");
        assert_eq!(stats.readahead_windows > 0, ahead);
        assert!(ahead || stats.readahead_segments == 0, "{stats:?}");
        drop(table);
        pool.close().unwrap();
    }
}

#[test]
fn neighbours_come_with_a_missed_segment_where_they_are_used() {
    if !mappable() {
        return;
    }
    for (faults, around) in ways().into_iter().flat_map(|faults| [(faults.clone(), true), (faults, false)]) {
        let options = OpenOptions::new(24 * MIB).faults(FaultOptions { fault_around: around, ..faults });
        let (_scratch, pool, _, table) = filled(64 * MIB, &options);
        let mut seed = 0;
        let mut random = |below: u64| {
            seed += 1;
            mix(seed) % below
        };
        // Blocks of eight segments in no order, and no order within a block either: no stream.
        let mut visit = |blocks: usize| {
            let before = pool.stats().faults_missing;
            for _ in 0..blocks {
                let block = random(64 * MIB / SEGMENT / 8);
                let turn = random(8);
                for n in [0, 5, 2, 7, 4, 1, 6, 3] {
                    let segment = block * 8 + (n ^ turn);
                    assert_eq!(word_of(&table, segment), expected(segment));
                }
            }
            pool.stats().faults_missing - before
        };
        visit(2_000);
        let missing = visit(1_000);
        // Two thirds of the segments are absent. A block is read only while frames are free.
        assert_eq!(missing < 4_000, around, "{missing} faults on 8,000 segments");
        drop(table);
        pool.close().unwrap();
    }
}

/// Waits for a condition that background threads bring about.
fn until(what: &str, done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(30), "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn what_is_announced_comes_what_is_cold_leaves_and_what_is_pinned_stays() {
    if !mappable() {
        return;
    }
    for faults in ways() {
        let options = OpenOptions::new(24 * MIB).faults(FaultOptions { readahead: false, ..faults });
        let (_scratch, pool, first, table) = filled(64 * MIB, &options);
        let part = |from: u64| first.offset_by(from * SEGMENT).unwrap();
        let faults_of = |segments: std::ops::Range<u64>| {
            let before = pool.stats().faults_missing;
            segments.for_each(|n| assert_eq!(word_of(&table, n), expected(n)));
            pool.stats().faults_missing - before
        };
        // `will_need` by range, and `will_need_pages` for single segments.
        pool.will_need(part(100), 200 * SEGMENT).unwrap();
        let apart: Vec<Addr> = (0..100).map(|n| part(1000 + n * 7)).collect();
        pool.will_need_pages(&apart).unwrap();
        until("300 segments", || pool.stats().fills >= 300);
        assert_eq!(pool.stats().readahead_segments, 300);
        assert_eq!(faults_of(100..300), 0);
        let before = pool.stats().faults_missing;
        (0..100).for_each(|n| assert_eq!(word_of(&table, 1000 + n * 7), expected(1000 + n * 7)));
        assert_eq!(pool.stats().faults_missing, before);
        // `evict_range` loses no stored data.
        (100..150).for_each(|n| table[(n * WORDS + 9) as usize].store(n, Relaxed));
        let resident = pool.stats().resident_segments;
        pool.evict_range(part(100), 200 * SEGMENT).unwrap();
        assert_eq!(pool.stats().resident_segments, resident - 200);
        assert_eq!(pool.stats().dirty_segments, 0);
        assert_eq!(faults_of(100..300), 200);
        (100..150).for_each(|n| assert_eq!(table[(n * WORDS + 9) as usize].load(Relaxed), n));
        // A scan of far more data than the cache holds leaves pinned segments resident.
        pool.pin(part(0), 500 * SEGMENT, true).unwrap();
        until("500 segments", || faults_of(0..500) == 0);
        faults_of(500..64 * MIB / SEGMENT);
        assert_eq!(faults_of(0..500), 0);
        pool.evict_range(part(0), 500 * SEGMENT).unwrap();
        assert_eq!(faults_of(0..500), 0);
        pool.pin(part(0), 500 * SEGMENT, false).unwrap();
        pool.evict_range(part(0), 500 * SEGMENT).unwrap();
        assert_eq!(faults_of(0..500), 500);
        // Pinning beyond the budget, and hints for memory that is not allocated, are errors.
        let error = pool.pin(first, 64 * MIB, true).unwrap_err();
        assert!(matches!(error, PoolError::Option { option: "pin", .. }), "{error}");
        let beyond = first.offset_by(64 * MIB).unwrap();
        for result in [pool.will_need(beyond, 1), pool.evict_range(beyond, 1), pool.pin(beyond, 1, true)] {
            assert!(matches!(result, Err(PoolError::NotAllocated { .. })), "{result:?}");
        }
        // Freed memory is no longer pinned, even when its pages are allocated again.
        pool.pin(first, 2 * MIB, true).unwrap();
        drop(table);
        pool.free(first, 64 * MIB).unwrap();
        let again = pool.alloc(64 * MIB, Lifetime::Permanent).unwrap();
        assert_eq!(again, first);
        pool.pin(first.offset_by(2 * MIB).unwrap(), pool.stats().budget_bytes / 4, true).unwrap();
        pool.close().unwrap();
    }
}

#[test]
fn the_budget_holds_as_it_changes() {
    if !mappable() {
        return;
    }
    for faults in ways() {
        let (_scratch, pool, first, table) = filled(64 * MIB, &OpenOptions::new(40 * MIB).faults(faults));
        let holds = || {
            let stats = pool.stats();
            stats.dram_bytes <= stats.budget_bytes
        };
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (table, stop) = (&table, &stop);
                scope.spawn(move || {
                    for n in 0.. {
                        let segment = mix(n << 3 | thread) % (64 * MIB / SEGMENT);
                        if thread == 0 {
                            table[(segment * WORDS + 511) as usize].fetch_add(0, Relaxed);
                        }
                        assert_eq!(word_of(table, segment), expected(segment));
                        if stop.load(Relaxed) {
                            break;
                        }
                    }
                });
            }
            for dram in [16, 40, 20, 14, 60, 24].into_iter().chain([16; 3]) {
                pool.set_dram(dram * MIB).unwrap();
                assert_eq!(pool.stats().budget_bytes, dram * MIB);
                // Dirty segments are evicted after they are written.
                until("the new budget", holds);
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_millis(60) {
                    assert!(holds(), "{:?}", pool.stats());
                }
            }
            stop.store(true, Relaxed);
        });
        let used = pool.stats().dram_bytes;
        pool.set_dram(80 * MIB).unwrap();
        (0..64 * MIB / SEGMENT).for_each(|n| assert_eq!(word_of(&table, n), expected(n)));
        assert!(pool.stats().dram_bytes > used + 30 * MIB, "a larger budget must be used");
        let error = pool.set_dram(4 * MIB).unwrap_err();
        assert!(matches!(error, PoolError::Budget { .. }), "{error}");
        pool.pin(first, 20 * MIB, true).unwrap();
        let error = pool.set_dram(24 * MIB).unwrap_err();
        assert!(matches!(error, PoolError::Option { option: "dram", .. }), "{error}");
        assert_eq!(pool.stats().budget_bytes, 80 * MIB, "the refused budget must not take effect");
        drop(table);
        pool.close().unwrap();
    }
}

#[test]
fn a_pool_that_is_not_mapped_takes_hints_too() {
    if !mappable() {
        return;
    }
    let (scratch, pool, first, table) = filled(4 * MIB, &OpenOptions::new(32 * MIB));
    drop(table);
    pool.close().unwrap();
    let options = OpenOptions::new(32 * MIB).mapping(Mapping::Off);
    let pool = Pool::open(&[scratch.path()], &options).unwrap();
    pool.will_need(first, MIB).unwrap();
    assert_eq!(pool.stats().resident_segments, MIB / SEGMENT);
    pool.evict_range(first, MIB / 2).unwrap();
    assert_eq!(pool.stats().resident_segments, MIB / 2 / SEGMENT);
    let mut word = [0; 8];
    pool.read(first, &mut word).unwrap();
    assert_eq!(u64::from_ne_bytes(word), expected(0));
}
