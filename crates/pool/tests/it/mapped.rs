//! Mapped access on a real file: ordinary loads and stores by several threads, concurrent with syncs.

use std::fs::File;
use std::os::unix::fs::FileExt;

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use deepram_pool::{Addr, CreateOptions, Lifetime, Mapping, OpenOptions, Permissions, Pool, PoolError};

use crate::scratch::{MIB, Scratch, mappable, mix};

const PAGE: u64 = 1 << 16;

#[test]
fn stores_through_pointers_are_there_after_reopening_at_the_same_address() {
    if !mappable() {
        return;
    }
    let scratch = Scratch::new(&CreateOptions::new(64 * MIB));
    let pool = scratch.open(16 * MIB);
    let addr = pool.alloc(48 * MIB, Lifetime::Permanent).unwrap();
    let table = pool.words(addr, (48 * MIB / 8) as usize).unwrap();
    for (n, word) in (0..).zip(&*table) {
        word.store(mix(n), Relaxed);
    }
    let at = table.as_ptr() as usize;
    assert_eq!(pool.address_of(table[9000..].as_ptr().cast()), Some(addr.offset_by(72_000).unwrap()));
    pool.sync().unwrap();
    drop(table);
    pool.close().unwrap();
    let pool = scratch.open(16 * MIB);
    let table = pool.words(addr, (48 * MIB / 8) as usize).unwrap();
    assert_eq!(table.as_ptr() as usize, at);
    for (n, word) in (0..).zip(&*table) {
        assert_eq!(word.load(Relaxed), mix(n), "word {n}");
    }
    let stats = pool.stats();
    // Each segment is read at least once, by a fault or by readahead.
    assert!(stats.fills >= 48 * MIB / 4096, "{stats:?}");
    assert!(stats.dram_bytes <= stats.budget_bytes, "{stats:?}");
}

#[test]
fn a_sync_captures_one_moment_for_all_threads() {
    if !mappable() {
        return;
    }
    // Each thread counts up through words on different pages, in a fixed order. In a state of a single
    // moment, a later word never exceeds an earlier one, and an earlier word is ahead by at most one step.
    const STEPS: usize = 64;
    let scratch = Scratch::new(&CreateOptions::new(64 * MIB));
    let pool = scratch.open(24 * MIB);
    let len = STEPS as u64 * PAGE;
    let lanes: Vec<Addr> = (0..3).map(|_| pool.alloc(len, Lifetime::Permanent).unwrap()).collect();
    let stop = AtomicBool::new(false);
    let mut tokens = Vec::new();
    std::thread::scope(|scope| {
        for &lane in &lanes {
            let (pool, stop) = (&pool, &stop);
            scope.spawn(move || {
                let table = pool.words(lane, (len / 8) as usize).unwrap();
                for round in 1.. {
                    for step in 0..STEPS {
                        table[step * (PAGE as usize / 8) + step].store(round, SeqCst);
                    }
                    if stop.load(Relaxed) {
                        break;
                    }
                }
            });
        }
        for _ in 0..40 {
            tokens.push(pool.sync().unwrap());
        }
        stop.store(true, Relaxed);
    });
    let mut advanced = 0;
    for &token in tokens.iter().rev().take(7) {
        for &lane in &lanes {
            let values: Vec<u64> = (0..STEPS as u64)
                .map(|step| {
                    let mut word = [0; 8];
                    pool.read_at(token, lane.offset_by(step * PAGE + step * 8).unwrap(), &mut word).unwrap();
                    u64::from_le_bytes(word)
                })
                .collect();
            advanced = advanced.max(values[0]);
            assert!(values.windows(2).all(|w| w[0] >= w[1]), "out of order at token {token}: {values:?}");
            assert!(values[0] - values[STEPS - 1] <= 1, "torn apart at token {token}: {values:?}");
        }
    }
    assert!(advanced > 1, "the threads must have made progress");
}

#[test]
fn threads_fault_write_and_sync_at_once_and_every_word_is_right() {
    if !mappable() {
        return;
    }
    let scratch = Scratch::new(&CreateOptions::new(128 * MIB));
    let pool = scratch.open(24 * MIB);
    let len = 96 * MIB;
    let addr = pool.alloc(len, Lifetime::Permanent).unwrap();
    let table = pool.words(addr, (len / 8) as usize).unwrap();
    const THREADS: u64 = 4;
    const UPDATES: u64 = 30_000;
    let updates = |thread: u64| {
        (0..UPDATES).map(move |n| (mix(thread << 32 | n) as usize % (96 << 17), mix(n ^ thread)))
    };
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (table, done) = (&table, &done);
            scope.spawn(move || {
                for (at, value) in updates(thread) {
                    table[at].fetch_xor(value, Relaxed);
                }
                done.fetch_add(1, Relaxed);
            });
        }
        while done.load(Relaxed) < THREADS {
            pool.sync().unwrap();
            let stats = pool.stats();
            assert!(stats.dram_bytes <= stats.budget_bytes, "{stats:?}");
        }
    });
    for thread in 0..THREADS {
        for (at, value) in updates(thread) {
            table[at].fetch_xor(value, Relaxed);
        }
    }
    assert_eq!(table.iter().filter(|w| w.load(Relaxed) != 0).count(), 0);
    pool.sync().unwrap();
    assert!(pool.check(&mut |_, _| {}).unwrap().is_sound());
}

#[test]
fn system_calls_may_be_given_memory_that_is_not_resident() {
    if !mappable() {
        return;
    }
    let scratch = Scratch::new(&CreateOptions::new(32 * MIB));
    let data: Vec<u8> = (0..4 * MIB).map(|n| mix(n) as u8).collect();
    let file = File::create_new(scratch.dir.path().join("data")).unwrap();
    file.write_all_at(&data, 0).unwrap();
    let file = File::open(scratch.dir.path().join("data")).unwrap();
    let pool = scratch.open(16 * MIB);
    let addr = pool.alloc(4 * MIB, Lifetime::Permanent).unwrap();
    let pointer = pool.pointer(addr, 4 * MIB).unwrap();
    // SAFETY: the range is allocated and 4 MiB long, and no other code uses it.
    let memory = unsafe { std::slice::from_raw_parts_mut(pointer, 4 << 20) };
    file.read_exact_at(memory, 0).unwrap();
    pool.sync().unwrap();
    pool.close().unwrap();
    let pool = scratch.open(16 * MIB);
    let copy = File::create_new(scratch.dir.path().join("copy")).unwrap();
    let pointer = pool.pointer(addr, 4 * MIB).unwrap();
    // SAFETY: as above; the pool was reopened at the same address.
    copy.write_all_at(unsafe { std::slice::from_raw_parts(pointer, 4 << 20) }, 0).unwrap();
    assert_eq!(std::fs::read(scratch.dir.path().join("copy")).unwrap(), data);
}

#[test]
fn rollback_changes_what_pointers_see() {
    if !mappable() {
        return;
    }
    let scratch = Scratch::new(&CreateOptions::new(32 * MIB));
    let pool = scratch.open(16 * MIB);
    let addr = pool.alloc(8 * MIB, Lifetime::Permanent).unwrap();
    let table = pool.words(addr, (8 * MIB / 8) as usize).unwrap();
    table.iter().for_each(|w| w.store(1, Relaxed));
    let first = pool.sync().unwrap();
    table.iter().step_by(1000).for_each(|w| w.store(2, Relaxed));
    pool.sync().unwrap();
    table.iter().step_by(777).for_each(|w| w.store(3, Relaxed));
    pool.rollback(first).unwrap();
    assert!(table.iter().all(|w| w.load(Relaxed) == 1));
    table[5].store(9, Relaxed);
    pool.sync().unwrap();
    drop(table);
    pool.abandon().unwrap();
    let pool = scratch.open(16 * MIB);
    let table = pool.words(addr, (8 * MIB / 8) as usize).unwrap();
    assert_eq!(table.iter().map(|w| w.load(Relaxed)).sum::<u64>(), table.len() as u64 + 8);
}

/// Runs a part of this test program in a child process. Returns the signal that ended it, if any.
fn signal_of(part: &str, path: &std::path::Path) -> Option<i32> {
    use std::os::unix::process::ExitStatusExt;
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "mapped::child_of_the_signal_tests", "--nocapture", "--test-threads=1"])
        .env("DEEPRAM_TEST_PART", part)
        .env("DEEPRAM_TEST_POOL", path)
        .stderr(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    status.signal()
}

#[test]
fn child_of_the_signal_tests() {
    let Some(part) = std::env::var_os("DEEPRAM_TEST_PART") else { return };
    let path = std::env::var_os("DEEPRAM_TEST_POOL").unwrap();
    let pool = Pool::open(&[path], &OpenOptions::new(16 * MIB)).unwrap();
    let addr = pool.root("data").unwrap().addr;
    let table = pool.words(addr, (PAGE / 8) as usize).unwrap();
    match part.to_str().unwrap() {
        "store read-only" => {
            let permissions = Permissions { read: true, write: false, lifetime: Lifetime::Permanent };
            pool.setperms(addr, PAGE, permissions).unwrap();
            assert_eq!(table[0].load(Relaxed), 7);
            table[0].store(1, Relaxed);
        }
        "store read-only after reopening" => {
            let permissions = Permissions { read: true, write: false, lifetime: Lifetime::Permanent };
            pool.setperms(addr, PAGE, permissions).unwrap();
            pool.close().unwrap();
            drop(table);
            let pool =
                Pool::open(&[std::env::var_os("DEEPRAM_TEST_POOL").unwrap()], &OpenOptions::new(16 * MIB));
            let pool = pool.unwrap();
            let table = pool.words(addr, (PAGE / 8) as usize).unwrap();
            assert_eq!(table[0].load(Relaxed), 7);
            table[0].store(1, Relaxed);
        }
        "load freed" => {
            pool.free(addr, PAGE).unwrap();
            std::hint::black_box(table[0].load(Relaxed));
        }
        "load closed" => {
            pool.close().unwrap();
            std::hint::black_box(table[0].load(Relaxed));
        }
        "load damaged" => {
            std::hint::black_box(table[0].load(Relaxed));
        }
        other => panic!("no such part: {other}"),
    }
}

#[test]
fn accesses_that_cannot_be_served_raise_a_signal_and_never_give_wrong_data() {
    if !mappable() {
        return;
    }
    let make = || {
        let scratch = Scratch::new(&CreateOptions::new(MIB));
        let pool = scratch.open(16 * MIB);
        let addr = pool.alloc(PAGE, Lifetime::Permanent).unwrap();
        pool.set_root("data", addr, PAGE).unwrap();
        let pattern: Vec<u8> = (0..PAGE / 8).flat_map(|_| 7_u64.to_le_bytes()).collect();
        pool.write(addr, &pattern).unwrap();
        pool.close().unwrap();
        scratch
    };
    for part in ["store read-only", "store read-only after reopening", "load freed", "load closed"] {
        assert_eq!(signal_of(part, &make().path()), Some(libc::SIGSEGV), "{part}");
    }
    let scratch = make();
    // Flip a bit in every copy of the pattern: the segments themselves.
    let file = File::options().read(true).write(true).open(scratch.path()).unwrap();
    let mut bytes = std::fs::read(scratch.path()).unwrap();
    let mut flipped = 0;
    for segment in bytes.chunks_exact_mut(4096) {
        if segment.chunks_exact(8).all(|w| w == 7_u64.to_le_bytes()) {
            segment[100] ^= 4;
            flipped += 1;
        }
    }
    assert!(flipped >= 16);
    file.write_all_at(&bytes, 0).unwrap();
    assert_eq!(signal_of("load damaged", &scratch.path()), Some(libc::SIGBUS));
    let pool = Pool::open(&[scratch.path()], &OpenOptions::new(16 * MIB).mapping(Mapping::Off)).unwrap();
    let addr = pool.root("data").unwrap().addr;
    let error = pool.read(addr, &mut [0; 8]).unwrap_err();
    assert!(matches!(error, PoolError::Damaged { page: 1, .. }), "{error}");
}
