//! Older tokens beside the live memory, differences between tokens, and addresses kept out of use.

use std::sync::atomic::Ordering::Relaxed;

use deepram_core::Epoch;
use deepram_pool::{CreateOptions, Lifetime, Mapping, OpenOptions, Pool, PoolError};
use tempfile::TempDir;

const PAGE: u64 = 64 << 10;
const VIEW: u64 = 1 << 20;

fn pool() -> (TempDir, Pool) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("older.pool");
    Pool::create(&[&path], &CreateOptions::new(16 << 20)).unwrap();
    let pool = Pool::open(&[&path], &OpenOptions::new(16 << 20).mapping(Mapping::UserOnly)).unwrap();
    (folder, pool)
}

/// Reads a word of a view.
fn word(view: &deepram_pool::TokenView, addr: deepram_core::Addr, number: usize) -> u64 {
    let pointer = view.pointer(addr.offset_by(8 * number as u64).unwrap(), 8).unwrap();
    // SAFETY: `pointer` is that of 8 allocated bytes of the view, aligned, which nobody changes.
    unsafe { pointer.cast::<u64>().read_volatile() }
}

#[test]
fn a_view_shows_each_token_while_the_live_memory_changes() {
    let (_folder, pool) = pool();
    let count = 512 << 10;
    let addr = pool.alloc(8 * count as u64, Lifetime::Permanent).unwrap();
    let words = pool.words(addr, count).unwrap();
    let tokens: Vec<Epoch> = (1..4)
        .map(|round| {
            words.iter().enumerate().for_each(|(n, word)| word.store(round * 1_000_000 + n as u64, Relaxed));
            pool.sync().unwrap()
        })
        .collect();
    words.iter().for_each(|word| word.store(0, Relaxed));
    for (round, &token) in (1..).zip(&tokens) {
        // Less DRAM than the view has memory: segments leave and come back.
        let view = pool.view_at(token, VIEW, Mapping::UserOnly).unwrap();
        assert_eq!(view.token(), token);
        for number in (0..count).chain((0..count).step_by(4097)) {
            assert_eq!(word(&view, addr, number), round * 1_000_000 + number as u64);
        }
        assert!(view.take_errors().is_empty());
    }
    assert_eq!(words[5].load(Relaxed), 0);
}

#[test]
fn a_view_of_several_threads_reads_the_same() {
    let (_folder, pool) = pool();
    let count = 256 << 10;
    let addr = pool.alloc(8 * count as u64, Lifetime::Permanent).unwrap();
    let words = pool.words(addr, count).unwrap();
    words.iter().enumerate().for_each(|(n, word)| word.store(n as u64, Relaxed));
    let token = pool.sync().unwrap();
    let view = pool.view_at(token, VIEW, Mapping::UserOnly).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let view = &view;
            scope.spawn(move || {
                for n in 0..40_000 {
                    let number = (n * 7919 + thread * 31) % count;
                    assert_eq!(word(view, addr, number), number as u64);
                }
            });
        }
        words.iter().for_each(|word| word.store(1, Relaxed));
        pool.sync().unwrap();
    });
}

#[test]
fn a_view_has_only_what_was_allocated_and_only_tokens_that_are_kept() {
    let (_folder, pool) = pool();
    let early = pool.sync().unwrap();
    let addr = pool.alloc(PAGE, Lifetime::Permanent).unwrap();
    let late = pool.sync().unwrap();
    let view = pool.view_at(early, VIEW, Mapping::UserOnly).unwrap();
    assert!(matches!(view.pointer(addr, 8), Err(PoolError::NotAllocated { .. })));
    assert!(pool.view_at(late, VIEW, Mapping::UserOnly).unwrap().pointer(addr, PAGE).is_ok());
    assert!(matches!(pool.view_at(Epoch(99), VIEW, Mapping::UserOnly), Err(PoolError::Token { .. })));
    assert!(matches!(
        pool.view_at(late, 4096, Mapping::UserOnly),
        Err(PoolError::Option { option: "dram", .. })
    ));
    let off = pool.view_at(late, VIEW, Mapping::Off);
    assert!(matches!(off, Err(PoolError::Option { option: "mapping", .. })));
}

#[test]
fn changes_between_tokens_are_those_of_the_segments_that_were_written() {
    let (_folder, pool) = pool();
    let addr = pool.alloc(4 * PAGE, Lifetime::Permanent).unwrap();
    let at = |offset| addr.offset_by(offset).unwrap();
    let a = pool.sync().unwrap();
    pool.write(at(5), b"x").unwrap();
    pool.write(at(PAGE - 1), b"yz").unwrap();
    let b = pool.sync().unwrap();
    pool.write(at(2 * PAGE + 4096), b"w").unwrap();
    let c = pool.sync().unwrap();
    pool.write(at(4 * PAGE - 1), b"v").unwrap();
    let changed = |from, to, start, len| pool.changed_between(from, to, at(start), len).unwrap();
    let whole = 4 * PAGE;
    let first = vec![0..4096, PAGE - 4096..PAGE + 4096];
    assert_eq!(changed(a, Some(b), 0, whole), first);
    assert_eq!(changed(b, Some(a), 0, whole), first);
    assert_eq!(changed(b, Some(c), 0, whole), vec![2 * PAGE + 4096..2 * PAGE + 8192]);
    assert_eq!(changed(c, None, 0, whole), vec![4 * PAGE - 4096..4 * PAGE]);
    assert_eq!(changed(a, None, 0, whole).len(), 4);
    assert_eq!(changed(a, Some(b), 100, PAGE), vec![0..3996, PAGE - 4196..PAGE]);
    assert_eq!(changed(c, Some(c), 0, whole), vec![]);
    // What was written back without a sync is different too.
    pool.evict_range(addr, whole).unwrap();
    assert_eq!(changed(c, None, 0, whole), vec![4 * PAGE - 4096..4 * PAGE]);
    assert!(matches!(pool.changed_between(a, Some(Epoch(99)), addr, 1), Err(PoolError::Token { .. })));
}

#[test]
fn a_freed_range_can_be_taken_again_at_its_address() {
    let (_folder, pool) = pool();
    let before = pool.sync().unwrap();
    let addr = pool.alloc(3 * PAGE, Lifetime::Permanent).unwrap();
    pool.write(addr, b"old").unwrap();
    let after = pool.sync().unwrap();
    assert!(!pool.any_allocated_at(before, addr, 3 * PAGE).unwrap());
    assert!(pool.any_allocated_at(after, addr, 1).unwrap());
    pool.rollback(before).unwrap();
    pool.alloc_at(addr, 3 * PAGE, Lifetime::Temporary).unwrap();
    let mut bytes = [9; 3];
    pool.read(addr, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 3]);
    let other = pool.alloc(PAGE, Lifetime::Temporary).unwrap();
    assert!(other.page() < addr.page() || other.page().0 >= addr.page().0 + 3);
    let taken = pool.alloc_at(addr.offset_by(2 * PAGE).unwrap(), 2 * PAGE, Lifetime::Temporary);
    assert!(matches!(taken, Err(PoolError::Option { option: "address", .. })));
    let askew = pool.alloc_at(addr.offset_by(8).unwrap(), 8, Lifetime::Temporary);
    assert!(matches!(askew, Err(PoolError::Option { option: "address", .. })));
    let beyond = deepram_core::Addr::new(0, 255, 0).unwrap();
    assert!(matches!(
        pool.alloc_at(beyond, 16 << 20, Lifetime::Temporary),
        Err(PoolError::NotAllocated { .. })
    ));
}
