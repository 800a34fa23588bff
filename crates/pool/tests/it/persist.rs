//! Persist regions and transaction logs: the guarantees of each call, with threads, crashes, damage and full
//! devices. `crash_enumerated.rs` enumerates crashes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::common::rig::{Shape, devices, handles};
use crate::common::survive::{assert_sound, images, is_power_cut};
use crate::common::{LINE, MIB, PAGE};
use deepram_core::SegmentSize;
use deepram_pool::log::TransactionLog;
use deepram_pool::{Addr, CreateOptions, Lifetime, Mapping, OpenOptions, Permissions, Pool, PoolError};
use deepram_testkit::{Crash, Failure, FaultyDevice, Op, seeds};
use rand::RngExt;

const DRAM: u64 = 32 * MIB;

fn open(device: &FaultyDevice) -> Pool {
    try_open(device).unwrap()
}

fn try_open(device: &FaultyDevice) -> deepram_pool::Result<Pool> {
    let options = OpenOptions::new(DRAM).mapping(Mapping::Off);
    Pool::open_on(handles(std::slice::from_ref(device)), &options)
}

/// A pool of `pages` pages with one persist region. It was closed since the region was made: an idle pool that was not
/// writes a batch after its newest commit, at a time of its own, which the tests that count writes would count.
fn region(pages: u64, pmem: u64) -> (FaultyDevice, Pool, Addr) {
    let device = FaultyDevice::new(128 * MIB);
    let options = CreateOptions { pmem, ..CreateOptions::new(pages * PAGE) };
    Pool::create_on(handles(std::slice::from_ref(&device)), &options).unwrap();
    let pool = open(&device);
    let addr = pool.alloc((pages - 1) * PAGE, Lifetime::Permanent).unwrap();
    pool.create_pmem_region(addr, (pages - 1) * PAGE).unwrap();
    pool.close().unwrap();
    let pool = open(&device);
    (device, pool, addr)
}

/// Returns the device as a power cut leaves it.
fn cut(device: &FaultyDevice, pool: Pool, crash: Crash) -> FaultyDevice {
    device.cut_power();
    drop(pool);
    devices(&images(std::slice::from_ref(device), crash)).remove(0)
}

fn read_u64(pool: &Pool, addr: Addr) -> u64 {
    let mut bytes = [0; 8];
    pool.read(addr, &mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}

#[test]
fn what_is_no_region_cannot_be_persisted_and_temporary_memory_cannot_be_one() {
    let (_, pool, addr) = region(4, 0);
    let other = pool.alloc(PAGE, Lifetime::Temporary).unwrap();
    let told = |error: PoolError, words: &str| assert!(error.to_string().contains(words), "{error}");
    told(pool.persist(other, 1).unwrap_err(), "create_pmem_region");
    told(pool.create_pmem_region(other, 1).unwrap_err(), "temporary");
    let temporary = Permissions::read_write(Lifetime::Temporary);
    told(pool.setperms(addr, 1, temporary).unwrap_err(), "remove_pmem_region");
    // A range that begins in the region and ends outside it: no line is persisted.
    let before = pool.stats().lines_persisted;
    told(pool.persist(addr, 4 * PAGE).unwrap_err(), "not part of a persist region");
    assert_eq!(pool.stats().lines_persisted, before);
    assert!(pool.is_pmem_region(addr).unwrap());
    pool.remove_pmem_region(addr, PAGE).unwrap();
    assert!(!pool.is_pmem_region(addr).unwrap());
    assert!(matches!(pool.persist(addr, 1), Err(PoolError::PersistRegion { .. })));
}

#[test]
fn permissions_of_a_region_change_and_it_stays_one() {
    let (_, pool, addr) = region(4, 0);
    let read_only = Permissions { write: false, ..Permissions::read_write(Lifetime::Permanent) };
    pool.setperms(addr, PAGE, read_only).unwrap();
    assert!(pool.is_pmem_region(addr).unwrap());
    pool.persist(addr, 64).unwrap();
}

#[test]
fn one_line_is_one_write_of_one_sector() {
    let (device, pool, addr) = region(4, 0);
    pool.write(addr, &[1; 64]).unwrap();
    device.reset_stats();
    pool.persist(addr.offset_by(3).unwrap(), 20).unwrap();
    let stats = device.stats();
    assert_eq!((stats.durable_writes, stats.writes, stats.written_bytes), (1, 1, 512));
    // A persist of two bytes on two lines, then one of zero bytes.
    pool.persist(addr.offset_by(63).unwrap(), 2).unwrap();
    assert_eq!(pool.stats().lines_persisted, 3);
    pool.persist(addr, 0).unwrap();
    assert_eq!(device.stats().writes, 2);
}

#[test]
fn of_a_range_only_the_lines_that_changed_are_written() {
    let (device, pool, addr) = region(4, 0);
    let lines = |pool: &Pool| pool.stats().lines_persisted;
    pool.write(addr, &[1; 8192]).unwrap();
    pool.persist(addr, 8192).unwrap();
    assert_eq!(lines(&pool), 128);
    // Persists one line by itself and a second one with the whole range: the first must not return to its
    // older contents.
    pool.write(addr.offset_by(640).unwrap(), &[2; 64]).unwrap();
    pool.persist(addr.offset_by(640).unwrap(), 64).unwrap();
    pool.write(addr.offset_by(640).unwrap(), &[1; 64]).unwrap();
    pool.write(addr.offset_by(4096).unwrap(), &[3]).unwrap();
    pool.persist(addr, 8192).unwrap();
    assert_eq!(lines(&pool), 131);
    pool.persist(addr, 8192).unwrap();
    assert_eq!(lines(&pool), 131);
    let after = cut(&device, pool, Crash::DropAll);
    let pool = open(&after);
    let mut found = [0; 8192];
    pool.read(addr, &mut found).unwrap();
    let mut expected = [1; 8192];
    expected[4096] = 3;
    assert!(found == expected);
    // A sync takes over the current memory contents, whatever was persisted before.
    pool.persist(addr, 8192).unwrap();
    pool.write(addr, &[4]).unwrap();
    pool.sync().unwrap();
    pool.write(addr, &[1]).unwrap();
    pool.persist(addr, 8192).unwrap();
    let again = cut(&after, pool, Crash::DropAll);
    open(&again).read(addr, &mut found).unwrap();
    assert!(found == expected);
}

#[test]
fn asynchronous_persists_share_a_write_and_one_wait_is_enough_for_all_before() {
    let (device, pool, addr) = region(4, 0);
    device.reset_stats();
    let all: Vec<_> = (0..64_u64)
        .map(|n| {
            let at = addr.offset_by(n * LINE).unwrap();
            pool.write(at, &n.to_le_bytes()).unwrap();
            pool.persist_async(at, 8).unwrap()
        })
        .collect();
    pool.wait(all[63]).unwrap();
    assert!(all.iter().all(|&persist| pool.is_durable(persist)));
    // The write-back thread may have written some of the lines before.
    assert!(device.stats().durable_writes < 8, "{:?}", device.stats());
    let after = cut(&device, pool, Crash::DropAll);
    let pool = open(&after);
    for n in 0..64 {
        assert_eq!(read_u64(&pool, addr.offset_by(n * LINE).unwrap()), n);
    }
}

/// Threads persist their own counters while another thread syncs a counter in the same line, until the power
/// is cut. Every value reported durable must survive, and no value may appear that was never stored.
#[test]
fn what_threads_were_told_is_there_after_a_power_cut() {
    seeds::each(40, |seed| {
        const THREADS: u64 = 4;
        let mut rng = seeds::rng(seed);
        let (device, pool, addr) = region(4, 0);
        device.crash_after(rng.random_range(20..600));
        let told: Vec<AtomicU64> = (0..THREADS).map(|_| AtomicU64::new(0)).collect();
        let stored: Vec<AtomicU64> = (0..THREADS).map(|_| AtomicU64::new(0)).collect();
        let (synced, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let apart = addr.offset_by(16).unwrap();
        std::thread::scope(|scope| {
            for n in 0..THREADS {
                let (pool, told, stored, over) = (&pool, &told[n as usize], &stored[n as usize], &over);
                scope.spawn(move || {
                    // Counters of neighbouring threads share a line, so a persist by one thread includes the
                    // other thread's stores.
                    let at = addr.offset_by(n * 32).unwrap();
                    for count in 1_u64.. {
                        stored.store(count, Relaxed);
                        if pool.write(at, &count.to_le_bytes()).is_err() || pool.persist(at, 8).is_err() {
                            break;
                        }
                        told.store(count, Relaxed);
                        if over.load(Relaxed) {
                            break;
                        }
                    }
                    over.store(true, Relaxed);
                });
            }
            scope.spawn(|| {
                for count in 1_u64.. {
                    // This thread does not persist its counter; another thread's persist of the line does.
                    let stored = pool.write(apart, &count.to_le_bytes());
                    if over.load(Relaxed) || stored.is_err() || pool.sync().is_err() {
                        break;
                    }
                    synced.store(count, Relaxed);
                }
            });
        });
        let after = cut(&device, pool, Crash::Random(seed));
        let pool = open(&after);
        for n in 0..THREADS {
            let found = read_u64(&pool, addr.offset_by(n * 32).unwrap());
            let (told, stored) = (told[n as usize].load(Relaxed), stored[n as usize].load(Relaxed));
            assert!(
                (told..=stored).contains(&found),
                "seed {seed}, thread {n}: {found}, reported durable {told}, stored {stored}"
            );
        }
        let (found, told) = (read_u64(&pool, apart), synced.load(Relaxed));
        assert!(found >= told, "seed {seed}: found {found}, but a sync returned for {told}");
        assert_sound(&pool, &format!("seed {seed}"));
    });
}

#[test]
fn more_lines_than_the_ring_holds_make_it_grow_and_are_all_there() {
    let (device, pool, addr) = region(66, 65 * PAGE);
    // Writes every line of 4 MiB, eight at a time, in a scattered order, twice.
    let lines = 65 * PAGE / LINE;
    for (round, n) in (0..2_u8).flat_map(|round| (0..lines / 8).map(move |n| (round, n))) {
        let at = addr.offset_by(n * 7919 % (lines / 8) * 8 * LINE).unwrap();
        pool.write(at, &[n as u8 | round; 8 * LINE as usize]).unwrap();
        pool.persist(at, 8 * LINE).unwrap();
    }
    assert!(pool.stats().line_log_compactions > 0, "{:?}", pool.stats());
    assert!(pool.info().unwrap().line_log.0 > 20 * MIB, "{}", pool.info().unwrap().line_log);
    let after = cut(&device, pool, Crash::DropAll);
    let pool = open(&after);
    for n in 0..lines / 8 {
        let at = addr.offset_by(n * 7919 % (lines / 8) * 8 * LINE).unwrap();
        let mut found = [0; 8 * LINE as usize];
        pool.read(at, &mut found).unwrap();
        assert!(found.iter().all(|&byte| byte == n as u8 | 1), "lines {n}");
    }
    assert_sound(&pool, "after growth");
    // A sync folds the lines into pages: the next opening has none to replay.
    pool.sync().unwrap();
    pool.close().unwrap();
    assert_sound(&open(&after), "after closing");
}

#[test]
fn a_line_log_that_cannot_grow_says_that_a_sync_is_due_and_goes_on_after_it() {
    let (_, pool, addr) = region(33, 0);
    let lines = 32 * PAGE / LINE;
    let mut refused = 0;
    for n in 0..lines / 8 {
        let at = addr.offset_by(n * 8 * LINE).unwrap();
        pool.write(at, &[7; 8 * LINE as usize]).unwrap();
        match pool.persist(at, 8 * LINE) {
            Ok(()) => {}
            Err(error @ PoolError::LineLogFull { .. }) => {
                assert!(error.to_string().contains("sync"), "{error}");
                refused += 1;
                pool.sync().unwrap();
                pool.persist(at, 8 * LINE).unwrap();
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refused > 0, "the ring held {lines} lines");
}

#[test]
fn a_write_that_fails_is_told_and_the_next_persist_makes_up_for_it() {
    let (device, pool, addr) = region(4, 0);
    pool.write(addr, &1_u64.to_le_bytes()).unwrap();
    device.fail_nth(Op::Write, 1, Failure::EIO);
    assert!(matches!(pool.persist(addr, 8), Err(PoolError::Device { .. })));
    pool.write(addr.offset_by(64).unwrap(), &2_u64.to_le_bytes()).unwrap();
    pool.persist(addr.offset_by(64).unwrap(), 8).unwrap();
    let after = cut(&device, pool, Crash::DropAll);
    let pool = open(&after);
    assert_eq!((read_u64(&pool, addr), read_u64(&pool, addr.offset_by(64).unwrap())), (1, 2));
}

#[test]
fn damage_to_any_record_of_the_line_log_is_an_error_and_never_a_loss_in_silence() {
    let (device, pool, addr) = region(4, 0);
    for n in 1..=5_u64 {
        pool.write(addr, &n.to_le_bytes()).unwrap();
        device.record_writes(true);
        pool.persist(addr, 8).unwrap();
    }
    let places = device.take_writes();
    device.record_writes(false);
    assert_eq!(places.len(), 5, "one write for each persist");
    let whole = cut(&device, pool, Crash::DropAll);
    for &(offset, len) in &places {
        for at in [0, 20, 60, len as u64 - 1] {
            let damaged = FaultyDevice::from_image(whole.durable_image());
            damaged.flip_bit(offset + at, 3);
            let error = try_open(&damaged).err().unwrap_or_else(|| panic!("byte {at} at {offset}: opened"));
            assert!(matches!(error, PoolError::LineLogDamaged { .. }), "{error}");
            assert!(error.to_string().contains("line log"), "{error}");
        }
    }
    assert_eq!(read_u64(&open(&whole), addr), 5);
}

#[test]
fn a_pool_that_moves_to_a_device_of_larger_sectors_goes_on_there() {
    let (device, pool, addr) = region(4, 0);
    pool.write(addr, &1_u64.to_le_bytes()).unwrap();
    pool.persist(addr, 8).unwrap();
    let moved = cut(&device, pool, Crash::DropAll);
    // The power cut hits each operation in turn.
    for op in 1.. {
        let device = FaultyDevice::from_image(moved.durable_image());
        device.set_granule(4096);
        device.crash_after(op);
        let mut told = 1;
        if let Ok(pool) = try_open(&device) {
            for n in 2..20_u64 {
                if pool.write(addr, &n.to_le_bytes()).and_then(|()| pool.persist(addr, 8)).is_err() {
                    break;
                }
                told = n;
            }
        }
        let was_cut = device.is_off();
        device.cut_power();
        let after = devices(&images(std::slice::from_ref(&device), Crash::KeepAll)).remove(0);
        let pool = try_open(&after).unwrap_or_else(|error| panic!("cut in operation {op}: {error}"));
        let found = read_u64(&pool, addr);
        assert!(found == told || found == told + 1, "cut in operation {op}: {found}, durable {told}");
        if !was_cut {
            return;
        }
    }
}

#[test]
fn a_closed_pool_writes_no_lines() {
    let (device, pool, addr) = region(4, 0);
    let other = pool.clone();
    pool.write(addr, &1_u64.to_le_bytes()).unwrap();
    // `persist_async` alone: the write-back thread may or may not write the line before the pool is
    // abandoned.
    let persist = pool.persist_async(addr, 8).unwrap();
    pool.abandon().unwrap();
    device.reset_stats();
    // A write that is under way when the pool is abandoned ends before the wait does.
    let written = other.wait(persist).is_ok();
    assert_eq!(other.is_durable(persist), written);
    assert!(matches!(other.persist(addr, 8), Err(PoolError::Closed)));
    assert!(other.create_pmem_region(addr, PAGE).is_err());
    assert_eq!(device.stats().writes, 0);
}

#[test]
fn a_rollback_that_fails_half_way_takes_no_later_persist_with_it() {
    let (device, pool, addr) = region(4, 0);
    let token = pool.sync().unwrap();
    let other = addr.offset_by(PAGE).unwrap();
    pool.write(addr, &1_u64.to_le_bytes()).unwrap();
    pool.persist(addr, 8).unwrap();
    // The rollback's commit reaches the device, but the write reports an error.
    device.short_write(1, 1 << 20);
    assert!(pool.rollback(token).is_err());
    assert_eq!(read_u64(&pool, addr), 1);
    pool.write(other, &2_u64.to_le_bytes()).unwrap();
    pool.persist(other, 8).unwrap();
    for crash in [Crash::KeepAll, Crash::DropAll] {
        let image = device.crash_image(crash);
        let pool = open(&FaultyDevice::from_image(image));
        assert_eq!((read_u64(&pool, addr), read_u64(&pool, other)), (1, 2), "{crash:?}");
    }
}

#[test]
fn a_hidden_page_whose_lines_are_replayed_can_be_synced() {
    let (device, pool, addr) = region(4, 0);
    let none = Permissions { read: false, write: false, lifetime: Lifetime::Permanent };
    let all = Permissions::read_write(Lifetime::Permanent);
    pool.setperms(addr, PAGE, none).unwrap();
    pool.sync().unwrap();
    pool.setperms(addr, PAGE, all).unwrap();
    pool.write(addr, &7_u64.to_le_bytes()).unwrap();
    pool.persist(addr, 8).unwrap();
    let after = cut(&device, pool, Crash::DropAll);
    // The page is hidden again, and one of its lines is in no token.
    let pool = match Pool::open_on(handles(std::slice::from_ref(&after)), &OpenOptions::new(DRAM)) {
        Err(PoolError::Watch(error)) => return eprintln!("skipped: no mapped pools here ({error})"),
        pool => pool.unwrap(),
    };
    pool.sync().unwrap();
    pool.setperms(addr, PAGE, all).unwrap();
    assert_eq!(read_u64(&pool, addr), 7);
}

#[test]
fn committed_transactions_are_found_whole_and_others_not_at_all() {
    for op in 1.. {
        let (device, pool, _) = region(2, 0);
        pool.abandon().unwrap();
        let pool = open(&device);
        pool.free(pool_page(), PAGE).unwrap();
        let log = TransactionLog::create(&pool, "log", PAGE).unwrap();
        device.crash_after(op);
        let mut committed = Vec::new();
        let mut begun = 0;
        for n in 0..20_u8 {
            let mut transaction = log.begin();
            // Transactions take from zero to several slots.
            for record in 0..n % 4 {
                transaction.append(&vec![n ^ record; usize::from(n) * 60]);
            }
            begun = n;
            if n == 10 && log.truncate(5).is_err() {
                break;
            }
            match transaction.commit() {
                Ok(sequence) => committed.push((sequence, n)),
                Err(error) => {
                    assert!(is_power_cut(&error), "{error}");
                    break;
                }
            }
        }
        let was_cut = device.is_off();
        drop(log);
        let after = cut(&device, pool, Crash::Random(op));
        let pool = open(&after);
        let log = TransactionLog::open(&pool, "log").unwrap();
        let found = log.committed().unwrap();
        for transaction in &found {
            let n = transaction.sequence as u8 - 1;
            assert!(n <= begun, "cut in operation {op}: transaction {n} was never begun");
            let expected: Vec<Vec<u8>> = (0..n % 4).map(|r| vec![n ^ r; usize::from(n) * 60]).collect();
            assert_eq!(transaction.records, expected, "cut in operation {op}, transaction {n}");
        }
        let low =
            if begun > 10 || (begun == 10 && found.first().is_none_or(|t| t.sequence >= 5)) { 5 } else { 1 };
        for &(sequence, _) in committed.iter().filter(|(sequence, _)| *sequence >= low) {
            let there = found.iter().any(|transaction| transaction.sequence == sequence);
            assert!(there, "cut in operation {op}: transaction {sequence} is lost");
        }
        // The log continues after its last sequence number.
        let next = log.begin().commit().unwrap();
        assert!(found.iter().all(|transaction| transaction.sequence < next));
        if !was_cut {
            return;
        }
    }
}

/// The first page that a pool gives out.
fn pool_page() -> Addr {
    Addr::new(0, 1, 0).unwrap()
}

#[test]
fn a_full_log_says_so_and_has_room_after_truncation() {
    let (_, pool, addr) = region(3, 0);
    pool.free(addr, 2 * PAGE).unwrap();
    let log = TransactionLog::create(&pool, "log", 4096).unwrap();
    let mut last = 0;
    let error = loop {
        let mut transaction = log.begin();
        transaction.append(&[9; 300]);
        match transaction.commit() {
            Ok(sequence) => last = sequence,
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("truncate"), "{error}");
    // Fifteen slots follow the header; each transaction takes two.
    assert_eq!(last, 7);
    log.truncate(last).unwrap();
    assert_eq!(log.committed().unwrap().len(), 1);
    let mut transaction = log.begin();
    transaction.append(&[9; 300]);
    assert_eq!(transaction.commit().unwrap(), last + 1);
    let taken = TransactionLog::create(&pool, "log", 4096).err().unwrap();
    assert!(taken.to_string().contains("root of this name"), "{taken}");
    let missing = TransactionLog::open(&pool, "none").err().unwrap();
    assert!(matches!(missing, PoolError::Root { .. }), "{missing}");
}

#[test]
fn a_damaged_slot_is_no_part_of_a_transaction() {
    let (_, pool, addr) = region(3, 0);
    pool.free(addr, 2 * PAGE).unwrap();
    let log = TransactionLog::create(&pool, "log", 4096).unwrap();
    for n in 0..3_u8 {
        let mut transaction = log.begin();
        transaction.append(&[n; 100]);
        transaction.commit().unwrap();
    }
    drop(log);
    let sequences = || {
        let log = TransactionLog::open(&pool, "log").unwrap();
        log.committed().unwrap().iter().map(|t| t.sequence).collect::<Vec<_>>()
    };
    assert_eq!(sequences(), [1, 2, 3]);
    // Damages, in the second slot behind the header: its checksum, its sequence, its bytes.
    let second = pool.root("log").unwrap().addr.offset_by(64 + 256).unwrap();
    for at in [0, 16, 24 + 4, 24 + 103] {
        let place = second.offset_by(at).unwrap();
        let mut byte = [0];
        pool.read(place, &mut byte).unwrap();
        pool.write(place, &[byte[0] ^ 64]).unwrap();
        assert_eq!(sequences(), [1, 3], "byte {at} is damaged");
        pool.write(place, &byte).unwrap();
    }
    assert_eq!(sequences(), [1, 2, 3]);
}

#[test]
fn threads_commit_independently_and_every_commit_is_found() {
    seeds::each(6, |seed| {
        let mut rng = seeds::rng(seed);
        let shape = Shape::small(SegmentSize::K4);
        let device = FaultyDevice::new(shape.device_bytes());
        Pool::create_on(handles(std::slice::from_ref(&device)), &shape.options()).unwrap();
        let pool = open(&device);
        let log = TransactionLog::create(&pool, "log", 4 * PAGE).unwrap();
        device.crash_after(rng.random_range(10..200));
        let told = std::sync::Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (log, told) = (&log, &told);
                scope.spawn(move || {
                    for n in 0..200_u64 {
                        let mut transaction = log.begin();
                        let record = [thread, n, thread ^ n].map(u64::to_le_bytes).concat();
                        transaction.append(&record);
                        transaction.append(&vec![thread as u8; (n * 37 % 500) as usize]);
                        let Ok(sequence) = transaction.commit() else { return };
                        told.lock().unwrap().push((sequence, record));
                    }
                });
            }
        });
        drop(log);
        let after = cut(&device, pool, Crash::Random(seed));
        let pool = open(&after);
        let found = TransactionLog::open(&pool, "log").unwrap().committed().unwrap();
        for (sequence, record) in told.into_inner().unwrap() {
            let transaction = found.iter().find(|t| t.sequence == sequence);
            let records = &transaction.unwrap_or_else(|| panic!("seed {seed}: {sequence} is lost")).records;
            assert_eq!(records[0], record, "seed {seed}");
        }
    });
}
