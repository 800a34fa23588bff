//! Threads that free memory and change its permissions while others read and write it by call: each call
//! succeeds or returns an error, and none ends in a signal; no byte of freed memory reappears, and syncs keep
//! working.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use crate::scratch::{MIB, Scratch, mappable};
use deepram_pool::{
    Addr, CreateOptions, Lifetime, Mapping, OpenOptions, Permissions, Pool, PoolError, Result,
};
use deepram_testkit::seeds;
use rand::{Rng, RngExt};

const PAGE: u64 = 1 << 16;
const PAGES: u64 = 4;
const CHILD: &str = "DEEPRAM_TEST_RACES";

/// Errors that a call may meet when its memory is freed or loses a right.
fn is_expected(error: &PoolError) -> bool {
    matches!(error, PoolError::NotAllocated { .. } | PoolError::Permission { .. })
}

fn allow<T>(result: Result<T>, what: &str) {
    if let Err(error) = result {
        assert!(is_expected(&error), "{what}: {error}");
    }
}

/// One call of any kind, at any of the pages.
fn access(pool: &Pool, first: Addr, rng: &mut impl Rng) {
    let at = rng.random_range(0..PAGES * PAGE - 9000);
    let addr = first.offset_by(at).unwrap();
    let mut bytes = [rng.random(); 8192];
    let len = [8, 100, 4096, 8192][rng.random_range(0..4)];
    match rng.random_range(0..6) {
        0 => allow(pool.read(addr, &mut bytes[..len]), "read"),
        1 => allow(pool.load(addr, &mut bytes[..len]), "load"),
        2 => allow(pool.gather(&[addr, first], 8, &mut bytes[..16]), "gather"),
        3 => allow(pool.scatter(&[addr, first], 8, &bytes[..16]), "scatter"),
        4 => allow(pool.evict_range(first, PAGES * PAGE), "evict_range"),
        _ => allow(pool.write(addr, &bytes[..len]), "write"),
    }
}

/// Reallocates a page, changes its permissions, or syncs.
fn change(pool: &Pool, first: Addr, rng: &mut impl Rng) {
    let addr = first.offset_by(rng.random_range(0..PAGES) * PAGE).unwrap();
    match rng.random_range(0..8) {
        0..3 => {
            allow(pool.free(addr, PAGE), "free");
            // Usually allocates the same page again.
            allow(pool.alloc(PAGE, Lifetime::Permanent), "alloc");
        }
        3..7 => {
            let permissions =
                Permissions { read: rng.random(), write: rng.random(), lifetime: Lifetime::Permanent };
            allow(pool.setperms(addr, PAGE, permissions), "setperms");
        }
        _ => {
            pool.sync().unwrap();
        }
    }
}

fn fight(pool: &Pool, seed: u64, changes: u64) {
    let first = pool.alloc(PAGES * PAGE, Lifetime::Permanent).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 1..4 {
            let over = &over;
            scope.spawn(move || {
                let mut rng = seeds::rng(seed * 100 + thread);
                while !over.load(SeqCst) {
                    access(pool, first, &mut rng);
                }
            });
        }
        let mut rng = seeds::rng(seed * 100);
        (0..changes).for_each(|_| change(pool, first, &mut rng));
        over.store(true, SeqCst);
    });
    pool.sync().unwrap_or_else(|error| panic!("seed {seed}: the last sync: {error}"));
    let report = pool.check(&mut |_, _| {}).unwrap();
    assert!(report.is_sound(), "seed {seed}: {report:?}");
}

/// The part of the tests below that may end in a signal.
#[test]
fn child_that_frees_and_hides_what_it_accesses() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    for seed in 0..8 {
        let scratch = Scratch::new(&CreateOptions::new(MIB));
        let pool = scratch.open(16 * MIB);
        fight(&pool, seed, 400);
        pool.close().unwrap();
    }
}

#[test]
fn calls_on_mapped_memory_that_is_freed_or_hidden_get_errors_and_no_signal() {
    if !mappable() {
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "races::child_that_frees_and_hides_what_it_accesses", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "signal {:?}: {text}", output.status.signal());
}

#[test]
fn what_is_freed_while_others_write_it_lets_syncs_go_on() {
    for seed in 0..8 {
        let scratch = Scratch::new(&CreateOptions::new(MIB));
        let options = OpenOptions::new(16 * MIB).mapping(Mapping::Off);
        let pool = Pool::open(&[scratch.path()], &options).unwrap();
        fight(&pool, seed, 400);
        pool.close().unwrap();
    }
}

/// Frees a page repeatedly while two threads write to it, and calls `then` when both writers are idle.
fn freed_while_written(rounds: u64, then: impl Fn(&Pool, u64)) {
    let scratch = Scratch::new(&CreateOptions::new(MIB));
    let options = OpenOptions::new(16 * MIB).mapping(Mapping::Off);
    let pool = Pool::open(&[scratch.path()], &options).unwrap();
    let (target, writing, over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(SeqCst) {
                    if target.load(SeqCst) == 0 {
                        std::thread::yield_now();
                        continue;
                    }
                    writing.fetch_add(1, SeqCst);
                    // Loaded again, now that the main thread waits for this thread.
                    match target.load(SeqCst) {
                        0 => {}
                        addr => allow(pool.write(Addr::from_raw(addr), &[0xEE; 16 << 10]), "write"),
                    }
                    writing.fetch_sub(1, SeqCst);
                }
            });
        }
        // Ends the threads even if this thread panics.
        let _over = OnDrop(&over);
        for round in 0..rounds {
            let addr = pool.alloc(PAGE, Lifetime::Permanent).unwrap();
            target.store(addr.raw(), SeqCst);
            (0..round % 7).for_each(|_| std::thread::yield_now());
            pool.free(addr, PAGE).unwrap();
            target.store(0, SeqCst);
            while writing.load(SeqCst) > 0 {
                std::thread::yield_now();
            }
            then(&pool, round);
        }
    });
}

struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn memory_allocated_anew_holds_zeros_whatever_was_being_written_when_it_was_freed() {
    freed_while_written(2000, |pool, round| {
        let addr = pool.alloc(PAGE, Lifetime::Permanent).unwrap();
        let mut bytes = vec![0; PAGE as usize];
        pool.read(addr, &mut bytes).unwrap();
        let wrong = bytes.iter().position(|byte| *byte != 0);
        assert_eq!(wrong, None, "round {round}: this byte of new memory is not zero");
        pool.free(addr, PAGE).unwrap();
    });
}

#[test]
fn a_sync_after_memory_was_freed_while_it_was_written_succeeds() {
    freed_while_written(500, |pool, round| {
        pool.sync().unwrap_or_else(|error| panic!("round {round}: {error}"));
    });
}

#[test]
fn a_region_is_never_temporary_and_keeps_the_permissions_that_were_set_while_it_was_made() {
    let scratch = Scratch::new(&CreateOptions::new(MIB));
    let options = OpenOptions::new(16 * MIB).mapping(Mapping::Off);
    let pool = Pool::open(&[scratch.path()], &options).unwrap();
    for round in 0..100_u64 {
        let addr = pool.alloc(PAGE, Lifetime::Permanent).unwrap();
        let set = Permissions {
            read: true,
            write: round % 2 == 0,
            lifetime: if round % 4 < 2 { Lifetime::Temporary } else { Lifetime::Permanent },
        };
        let frees = round % 8 == 7;
        let (made, changed) = std::thread::scope(|scope| {
            let made = scope.spawn(|| pool.create_pmem_region(addr, PAGE));
            let changed = scope.spawn(|| {
                (0..round % 13).for_each(|_| std::thread::yield_now());
                if frees { pool.free(addr, PAGE) } else { pool.setperms(addr, PAGE, set) }
            });
            (made.join().unwrap(), changed.join().unwrap())
        });
        for error in made.as_ref().err().into_iter().chain(changed.as_ref().err()) {
            let of_the_other =
                matches!(error, PoolError::PersistRegion { .. } | PoolError::NotAllocated { .. });
            assert!(of_the_other, "round {round}: {error}");
        }
        if frees {
            let now = pool.permissions(addr);
            assert!(
                matches!(now, Err(PoolError::NotAllocated { .. })),
                "round {round}: freed, and is {now:?}"
            );
            continue;
        }
        let (now, region) = (pool.permissions(addr).unwrap(), pool.is_pmem_region(addr).unwrap());
        assert!(!region || now.lifetime == Lifetime::Permanent, "round {round}: a region is temporary");
        assert_eq!(region, made.is_ok(), "round {round}: {made:?}");
        let want = if changed.is_ok() { set } else { Permissions::read_write(Lifetime::Permanent) };
        assert_eq!(now, want, "round {round}");
        pool.free(addr, PAGE).unwrap();
    }
}

#[test]
fn what_may_not_be_read_is_not_read_as_a_token_saw_it_either() {
    let scratch = Scratch::new(&CreateOptions::new(MIB));
    let options = OpenOptions::new(16 * MIB).mapping(Mapping::Off);
    let pool = Pool::open(&[scratch.path()], &options).unwrap();
    let addr = pool.alloc(PAGE, Lifetime::Permanent).unwrap();
    let before = pool.history().unwrap().last().unwrap().token;
    pool.write(addr, b"secret").unwrap();
    let token = pool.sync().unwrap();
    let mut bytes = [0; 6];
    let mut read = |token| pool.read_at(token, addr, &mut bytes).map(|()| bytes);
    assert_eq!(read(token).unwrap(), *b"secret");
    assert!(matches!(read(before), Err(PoolError::NotAllocated { .. })));
    let hidden = Permissions { read: false, write: false, lifetime: Lifetime::Permanent };
    pool.setperms(addr, PAGE, hidden).unwrap();
    assert!(matches!(read(token), Err(PoolError::Permission { .. })));
    let hidden_at = pool.sync().unwrap();
    pool.free(addr, PAGE).unwrap();
    // The page is freed: reads use the permissions that each token recorded.
    assert_eq!(read(token).unwrap(), *b"secret");
    assert!(matches!(read(hidden_at), Err(PoolError::Permission { .. })));
}
