//! Page faults in the mapped range, with many reads in flight (io_uring) and with one blocking read for each
//! handler thread: threads fault the same and different segments amid all other operations, checked against a
//! model; and errors. `hints.rs` tests readahead.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use crate::filled::{SEGMENT, WORDS, expected, filled, ways, word_of};
use crate::gate::Gated;
use crate::scratch::{MIB, Scratch, mappable, mix};
use deepram_pager::PagerPolicy;
use deepram_pool::device::Device;
use deepram_pool::{
    Addr, CreateOptions, FaultOptions, Lifetime, OpenOptions, Pool, PoolError, Retention, Words,
};
use deepram_testkit::{Failure, FaultyDevice, Op, seeds};
use rand::{Rng, RngExt};

// -- The model ---------------------------------------------------------------------------------

const THREADS: u64 = 4;
const SEGMENTS: u64 = 4096;
/// Words in use in each segment: one for each thread.
const USED: u64 = THREADS;

/// One thread's part of the model. Each word belongs to one thread, which knows its exact value; the other
/// threads know that it only grows, as no rollback runs meanwhile.
struct One<'p> {
    thread: u64,
    pool: &'p Pool,
    table: &'p Words,
    first: Addr,
    known: Vec<u64>,
}

impl One<'_> {
    fn at(&self, n: u64) -> &AtomicU64 {
        &self.table[(n / USED * WORDS + n % USED) as usize]
    }

    fn look(&mut self, n: u64) {
        let found = self.at(n).load(Relaxed);
        let known = &mut self.known[n as usize];
        if n % USED == self.thread {
            assert_eq!(found, *known, "word {n} of thread {}", self.thread);
        } else {
            assert!(found >= *known, "word {n} was {known} and is {found} now");
            *known = found;
        }
    }

    fn store(&mut self, segment: u64) {
        let n = segment * USED + self.thread;
        self.known[n as usize] += 1;
        self.at(n).store(self.known[n as usize], Relaxed);
    }

    fn step(&mut self, rng: &mut impl Rng) {
        let segment =
            if rng.random_bool(0.3) { rng.random_range(0..30) } else { rng.random_range(0..SEGMENTS) };
        let part = (self.first.offset_by(segment * SEGMENT).unwrap(), 40 * SEGMENT.min(SEGMENTS - segment));
        match rng.random_range(0..200) {
            0..100 => self.look(segment * USED + rng.random_range(0..USED)),
            100..180 => self.store(segment),
            180..186 => {
                let end = (segment + rng.random_range(1..60)).min(SEGMENTS);
                (segment..end).for_each(|segment| self.look(segment * USED + self.thread));
            }
            186 => self.pool.will_need(part.0, part.1).unwrap(),
            187 => self.pool.evict_range(part.0, part.1).unwrap(),
            188 => self.pool.pin(part.0, part.1, rng.random_bool(0.5)).unwrap_or_else(|error| {
                assert!(matches!(error, PoolError::Option { option: "pin", .. }), "{error}");
            }),
            189 => {
                // Memory that is allocated and freed, on any free pages.
                let len = rng.random_range(1..5) << 16;
                let addr = self.pool.alloc(len, Lifetime::Permanent).unwrap();
                let words = self.pool.words(addr, (len / 8) as usize).unwrap();
                assert!(words.iter().step_by(99).all(|word| word.load(Relaxed) == 0), "new memory is zero");
                words.iter().step_by(77).for_each(|word| word.store(7, Relaxed));
                drop(words);
                self.pool.free(addr, len).unwrap();
            }
            190 if rng.random_range(0..40) == 0 => drop(self.pool.sync().unwrap()),
            _ => {
                let n = segment * USED + self.thread;
                let mut bytes = [0; 8];
                let addr = self.first.offset_by(segment * SEGMENT + self.thread * 8).unwrap();
                self.pool.load(addr, &mut bytes).unwrap();
                assert_eq!(u64::from_ne_bytes(bytes), self.known[n as usize], "a load of word {n}");
            }
        }
    }
}

fn run(seed: u64, faults: FaultOptions, policy: PagerPolicy) {
    // Little flash: blocks are reclaimed and tokens given up during the run.
    let scratch = Scratch::new(&CreateOptions {
        retention: Retention::KeepLast(3),
        flash: Some(80 * MIB),
        ..CreateOptions::new(SEGMENTS * SEGMENT + 4 * MIB)
    });
    let options = OpenOptions { policy, ..OpenOptions::new(13 * MIB).faults(faults.clone()) };
    let pool = Pool::open(&[scratch.path()], &options).unwrap();
    let first = pool.alloc(SEGMENTS * SEGMENT, Lifetime::Permanent).unwrap();
    let table = pool.words(first, (SEGMENTS * WORDS) as usize).unwrap();
    let known = vec![0; (SEGMENTS * USED) as usize];
    let mut all: Vec<One> = (0..THREADS)
        .map(|thread| One { thread, pool: &pool, table: &table, first, known: known.clone() })
        .collect();
    let mut rngs: Vec<_> = (0..THREADS).map(|thread| seeds::rng(seed * 1000 + thread)).collect();
    for round in 0..5 {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(SeqCst) {
                    pool.compact(&mut |_, _| {}).unwrap();
                    let bytes = [12, 13, 14][mix(seed + round) as usize % 3] * MIB;
                    // Refused while more is pinned than the budget allows.
                    let _ = pool.set_dram(bytes);
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
            let workers: Vec<_> = all
                .iter_mut()
                .zip(&mut rngs)
                .map(|(one, rng)| scope.spawn(move || (0..2500).for_each(|_| one.step(rng))))
                .collect();
            let ended: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
            done.store(true, SeqCst);
            ended.into_iter().for_each(|ended| ended.unwrap());
        });
        // No thread uses the memory now. A store after a token is gone after a rollback to that token.
        let token = pool.sync().unwrap();
        for _ in 0..300 {
            let n = rngs[0].random_range(0..SEGMENTS * USED);
            all[0].at(n).store(u64::MAX, Relaxed);
        }
        pool.will_need(first, SEGMENTS * SEGMENT / 2).unwrap();
        pool.rollback(token).unwrap();
        for one in &mut all {
            (0..SEGMENTS).for_each(|segment| one.look(segment * USED + one.thread));
        }
    }
    drop(all);
    let stats = pool.stats();
    assert!(stats.evictions > 0 && stats.write_backs > 0 && stats.blocks_reclaimed > 0, "{stats:?}");
    assert!(pool.take_errors().is_empty());
    assert!(pool.check(&mut |_, _| {}).unwrap().is_sound());
    drop(table);
    pool.close().unwrap();
}

#[test]
fn threads_fault_while_syncs_rollbacks_frees_and_reclamation_go_on() {
    if mappable() {
        seeds::each(4, |seed| {
            run(
                seed,
                FaultOptions { pin_faulting_threads: seed % 2 == 0, ..FaultOptions::default() },
                PagerPolicy::default(),
            )
        });
    }
}

#[test]
fn so_they_do_with_a_handler_for_each_read() {
    if mappable() {
        seeds::each(2, |seed| {
            run(
                seed + 50,
                FaultOptions { io_uring: false, ..FaultOptions::default() },
                PagerPolicy::default(),
            )
        });
    }
}

#[test]
fn so_they_do_under_every_policy_and_with_one_handler() {
    if mappable() {
        for (seed, policy) in (100..).zip(PagerPolicy::ALL) {
            run(seed, FaultOptions { handlers: 1, ..FaultOptions::default() }, policy);
        }
    }
}

// -- One segment, many threads -----------------------------------------------------------------

/// Fails if a segment is read twice, or if a thread never resumes.
#[test]
fn threads_that_fault_one_segment_share_one_read_and_all_go_on() {
    if !mappable() {
        return;
    }
    for faults in ways() {
        let faults = FaultOptions { readahead: false, ..faults };
        let (_scratch, pool, _, table) = filled(8 * MIB, &OpenOptions::new(32 * MIB).faults(faults));
        let segments = 8 * MIB / SEGMENT;
        // The needed parts of the tables are read first.
        let order: Vec<u64> = (0..segments).map(|n| n * 997 % segments).collect();
        assert_eq!(word_of(&table, 0), expected(0));
        let before = pool.stats();
        let barrier = Barrier::new(8);
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (barrier, order, table) = (&barrier, &order, &table);
                scope.spawn(move || {
                    for (n, &segment) in order.iter().enumerate() {
                        barrier.wait();
                        if (n + thread) % 4 == 0 {
                            // A write fault may come first, last, or in between.
                            let at = (segment * WORDS) as usize + 64 + thread;
                            table[at].fetch_add(0, Relaxed);
                        } else {
                            assert_eq!(word_of(table, segment), expected(segment));
                        }
                    }
                });
            }
        });
        let stats = pool.stats();
        // Page 0 and the blocks' records are read as well, once each.
        assert_eq!(stats.fills - before.fills, segments - 1);
        let extra = stats.bytes_read - before.bytes_read - (segments - 1) * SEGMENT;
        assert!(extra < 100 * SEGMENT, "{extra} bytes more than the data were read");
        drop(table);
        pool.close().unwrap();
    }
}

// -- Changes during a read in flight --------------------------------------------------------------

/// Runs `change` after a handler has read the old bytes and before it installs them. Returns the value that
/// the fault delivered.
fn overtaken(change: impl Fn(&Pool, Addr, deepram_pool::Epoch)) -> u64 {
    overtaken_by(|_, _, table| assert_ne!(table[0].load(Relaxed), u64::MAX), change)
}

/// As [`overtaken`], for any kind of read: runs `read`, and `change` while the device holds the next
/// transfer.
fn overtaken_by(
    read: impl Fn(&Pool, Addr, &Words) + Sync,
    change: impl Fn(&Pool, Addr, deepram_pool::Epoch),
) -> u64 {
    let device = FaultyDevice::new(80 * MIB);
    let handle: Vec<Arc<dyn Device>> = vec![Arc::new(device.clone())];
    Pool::create_on(handle, &CreateOptions::new(8 * MIB)).unwrap();
    let gate = Gated::new(&device);
    let pool = Pool::open_on(vec![Arc::new(gate.clone())], &OpenOptions::new(32 * MIB)).unwrap();
    let first = pool.alloc(4 * MIB, Lifetime::Permanent).unwrap();
    let table = pool.words(first, (4 * MIB / 8) as usize).unwrap();
    table[0].store(1, Relaxed);
    table[(2 * MIB / 8) as usize].store(1, Relaxed);
    let token = pool.sync().unwrap();
    table[0].store(2, Relaxed);
    pool.sync().unwrap();
    pool.evict_range(first, 2 * MIB).unwrap();
    gate.armed.store(true, SeqCst);
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| read(&pool, first, &table));
        gate.until_held();
        change(&pool, first, token);
        gate.let_go();
        reading.join().unwrap();
    });
    table[0].load(Relaxed)
}

#[test]
fn a_fault_whose_contents_change_while_it_is_read_brings_the_new_ones() {
    if !mappable() {
        return;
    }
    assert_eq!(overtaken(|_, _, _| {}), 2);
    assert_eq!(overtaken(|pool, _, token| pool.rollback(token).unwrap()), 1);
    // Memory that was freed and allocated again reads as zeros.
    let fresh = overtaken(|pool, first, _| {
        pool.free(first, 1 << 16).unwrap();
        assert_eq!(pool.alloc(1 << 16, Lifetime::Permanent).unwrap(), first);
    });
    assert_eq!(fresh, 0);
    // Freeing another page has no effect on this read.
    let other = overtaken(|pool, first, _| {
        pool.free(first.offset_by(2 * MIB).unwrap(), 1 << 16).unwrap();
    });
    assert_eq!(other, 2);
}

#[test]
fn what_is_read_ahead_while_its_contents_change_is_read_again() {
    if !mappable() {
        return;
    }
    let announce = |pool: &Pool, first: Addr, _: &Words| pool.will_need(first, 1).unwrap();
    assert_eq!(overtaken_by(announce, |_, _, _| {}), 2);
    assert_eq!(overtaken_by(announce, |pool, _, token| pool.rollback(token).unwrap()), 1);
}

// -- Errors ------------------------------------------------------------------------------------

/// Returns whether the kernel can read a word of the pool. Where a load by the processor would raise SIGBUS,
/// the system call fails.
fn kernel_reads(table: &Words, segment: u64) -> bool {
    let (_reader, writer) = std::io::pipe().unwrap();
    let word = &table[(segment * WORDS) as usize];
    let file = File::from(std::os::fd::OwnedFd::from(writer));
    // SAFETY: a word of the pool, as bytes, which only the kernel reads and no thread stores to.
    let bytes = unsafe { std::slice::from_raw_parts(std::ptr::from_ref(word).cast::<u8>(), 8) };
    match std::io::Write::write(&mut &file, bytes) {
        Ok(n) => n == 8,
        Err(error) => {
            assert_eq!(error.raw_os_error(), Some(libc::EFAULT), "{error}");
            false
        }
    }
}

#[test]
fn damage_met_by_a_fault_is_told_and_never_data() {
    if !mappable() {
        return;
    }
    for faults in ways() {
        // A damaged segment by itself, and one in the middle of a readahead window.
        for scan in [false, true] {
            let options = OpenOptions::new(32 * MIB).faults(faults.clone());
            let (scratch, pool, first, table) = filled(4 * MIB, &options);
            drop(table);
            pool.close().unwrap();
            let damaged = 300;
            let wanted: Vec<u8> = (0..WORDS).flat_map(|n| mix(damaged * WORDS + n).to_ne_bytes()).collect();
            let bytes = std::fs::read(scratch.path()).unwrap();
            let places: Vec<u64> = (0..)
                .step_by(4096)
                .zip(bytes.chunks(4096))
                .filter(|(_, b)| *b == wanted)
                .map(|p| p.0)
                .collect();
            assert!(!places.is_empty());
            let file = File::options().write(true).open(scratch.path()).unwrap();
            places.iter().for_each(|at| file.write_all_at(&[wanted[5] ^ 8], at + 5).unwrap());
            let pool = Pool::open(&[scratch.path()], &options).unwrap();
            let table = pool.words(first, (4 * MIB / 8) as usize).unwrap();
            if scan {
                (0..damaged).for_each(|segment| assert_eq!(word_of(&table, segment), expected(segment)));
            }
            assert!(!kernel_reads(&table, damaged));
            let told = pool.take_errors();
            assert!(!told.is_empty());
            let address = first.offset_by(damaged * SEGMENT).unwrap();
            for error in told {
                assert!(matches!(error, PoolError::Damaged { address: at, .. } if at == address), "{error}");
            }
            assert_eq!(word_of(&table, damaged + 1), expected(damaged + 1));
            assert!(pool.stats().damaged_reads >= 1);
            // The segment is repaired: a call notices it, and pointers work from then on.
            places.iter().for_each(|at| file.write_all_at(&[wanted[5]], at + 5).unwrap());
            pool.read(address, &mut [0; 8]).unwrap();
            assert_eq!(word_of(&table, damaged), expected(damaged));
            drop(table);
            pool.close().unwrap();
        }
    }
}

#[test]
fn a_failing_read_of_a_fault_is_told_and_the_pool_goes_on() {
    if !mappable() {
        return;
    }
    // With io_uring: the file ends too early.
    let (scratch, pool, first, table) = filled(4 * MIB, &OpenOptions::new(32 * MIB));
    assert_eq!(word_of(&table, 0), expected(0));
    let bytes = std::fs::read(scratch.path()).unwrap();
    let file = File::options().write(true).open(scratch.path()).unwrap();
    file.set_len(4096).unwrap();
    assert!(!kernel_reads(&table, 700));
    let told = pool.take_errors();
    assert!(matches!(&told[..], [PoolError::Device { operation: "reading a segment", .. }]), "{told:?}");
    file.write_all_at(&bytes, 0).unwrap();
    pool.read(first.offset_by(700 * SEGMENT).unwrap(), &mut [0; 8]).unwrap();
    assert_eq!(word_of(&table, 700), expected(700));
    drop(table);
    pool.close().unwrap();

    // In a handler thread; and in a readahead window, whose errors are not reported.
    let device = FaultyDevice::new(80 * MIB);
    let handle = || -> Vec<Arc<dyn Device>> { vec![Arc::new(device.clone())] };
    Pool::create_on(handle(), &CreateOptions::new(8 * MIB)).unwrap();
    let pool = Pool::open_on(handle(), &OpenOptions::new(32 * MIB)).unwrap();
    let first = pool.alloc(4 * MIB, Lifetime::Permanent).unwrap();
    let table = pool.words(first, (4 * MIB / 8) as usize).unwrap();
    (0..).zip(&*table).for_each(|(n, word)| word.store(mix(n), Relaxed));
    pool.sync().unwrap();
    pool.evict_range(first, 4 * MIB).unwrap();
    device.fail_from(Op::Read, 1, Failure::EIO);
    assert!(!kernel_reads(&table, 700));
    assert_eq!(pool.take_errors().len(), 1);
    pool.will_need(first, MIB).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    device.heal();
    assert!(pool.take_errors().is_empty(), "no thread has used the announced segments");
    (0..256).for_each(|segment| assert_eq!(word_of(&table, segment), expected(segment)));
}
