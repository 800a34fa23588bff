//! A mapped pool viewed as words.

use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;

use deepram_pool::{CreateOptions, Lifetime, Mapping, OpenOptions, Permissions, Pool, PoolError};
use tempfile::TempDir;

fn pool() -> (TempDir, Pool) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path: PathBuf = folder.path().join("words.pool");
    Pool::create(&[&path], &CreateOptions::new(8 << 20)).unwrap();
    let pool = Pool::open(&[&path], &OpenOptions::new(16 << 20).mapping(Mapping::UserOnly)).unwrap();
    (folder, pool)
}

#[test]
fn words_are_shared_by_threads_and_synced_and_rolled_back() {
    let (_folder, pool) = pool();
    let addr = pool.alloc(1 << 20, Lifetime::Permanent).unwrap();
    let words = pool.words(addr, 1 << 17).unwrap();
    assert_eq!(words.len(), 1 << 17);
    let add = || {
        words.iter().step_by(100).for_each(|word| {
            word.fetch_add(1, Relaxed);
        })
    };
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(add);
        }
    });
    let token = pool.sync().unwrap();
    add();
    assert_eq!((words[0].load(Relaxed), words[1].load(Relaxed), words[100].load(Relaxed)), (5, 0, 5));
    pool.rollback(token).unwrap();
    assert_eq!(words.iter().map(|w| w.load(Relaxed)).sum::<u64>(), 4 * (1_u64 << 17).div_ceil(100));
    let mut bytes = [0; 8];
    pool.read(addr, &mut bytes).unwrap();
    assert_eq!(u64::from_ne_bytes(bytes), 4);
    pool.close().unwrap();
}

#[test]
fn a_write_to_a_part_of_a_word_leaves_the_rest_to_others() {
    let (_folder, pool) = pool();
    let addr = pool.alloc(1 << 16, Lifetime::Temporary).unwrap();
    let words = pool.words(addr, 2).unwrap();
    let rounds = 20_000;
    std::thread::scope(|s| {
        // A thread counts in the low half, while calls write the high half and the next word.
        s.spawn(|| {
            for _ in 0..rounds {
                words[0].fetch_add(1, Relaxed);
            }
        });
        for n in 0..rounds {
            pool.write(addr.offset_by(4).unwrap(), &[n as u8; 7]).unwrap();
        }
    });
    let last = u64::from((rounds - 1) as u8);
    assert_eq!(words[0].load(Relaxed) & 0xFFFF_FFFF, rounds);
    assert_eq!(words[0].load(Relaxed) >> 32, last * 0x0101_0101);
    assert_eq!(words[1].load(Relaxed), last * 0x01_0101);
    let mut back = [0; 7];
    pool.read(addr.offset_by(4).unwrap(), &mut back).unwrap();
    assert_eq!(back, [last as u8; 7]);
}

#[test]
fn words_outside_allocated_memory_or_askew_are_refused() {
    let (_folder, pool) = pool();
    let addr = pool.alloc(1 << 16, Lifetime::Temporary).unwrap();
    let askew = addr.offset_by(4).unwrap();
    assert!(matches!(pool.words(askew, 1), Err(PoolError::Option { option: "address", .. })));
    assert!(matches!(pool.words(addr, (1 << 13) + 1), Err(PoolError::NotAllocated { .. })));
    assert!(pool.words(addr, usize::MAX).is_err());
    pool.free(addr, 1 << 16).unwrap();
    assert!(matches!(pool.words(addr, 1), Err(PoolError::NotAllocated { .. })));
}

#[test]
fn what_was_stored_before_access_was_taken_away_is_synced() {
    let (_folder, pool) = pool();
    let addr = pool.alloc(1 << 16, Lifetime::Permanent).unwrap();
    let words = pool.words(addr, 1 << 13).unwrap();
    words[77].store(9, Relaxed);
    let hidden = Permissions { read: false, write: false, lifetime: Lifetime::Permanent };
    pool.setperms(addr, 1 << 16, hidden).unwrap();
    pool.sync().unwrap();
    assert!(matches!(pool.read(addr, &mut [0]), Err(PoolError::Permission { .. })));
    pool.setperms(addr, 1 << 16, Permissions::read_write(Lifetime::Permanent)).unwrap();
    assert_eq!(words[77].load(Relaxed), 9);
}

#[test]
fn a_closed_pool_says_so_to_other_handles() {
    let (_folder, pool) = pool();
    let addr = pool.alloc(1 << 16, Lifetime::Permanent).unwrap();
    pool.write(addr, &[1]).unwrap();
    let other = pool.clone();
    pool.close().unwrap();
    assert!(matches!(other.read(addr, &mut [0]), Err(PoolError::Closed)));
    assert!(matches!(other.write(addr, &[2]), Err(PoolError::Closed)));
    assert!(matches!(other.alloc(1, Lifetime::Permanent), Err(PoolError::Closed)));
    assert!(matches!(other.sync(), Err(PoolError::Closed)));
}

#[test]
fn a_pool_can_be_abandoned_while_it_is_being_written_back() {
    for _ in 0..20 {
        let (_folder, pool) = pool();
        let addr = pool.alloc(8 << 20, Lifetime::Permanent).unwrap();
        let words = pool.words(addr, 1 << 20).unwrap();
        // Dirties more than half of the frames, so that write-back starts.
        words.iter().step_by(512).for_each(|word| word.store(1, Relaxed));
        pool.abandon().unwrap();
    }
}
