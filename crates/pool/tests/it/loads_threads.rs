//! Threads that load and store the same segments through every interface, with a DRAM cache that holds a
//! sixth of the data and either a tiny device buffer or one in which segments stay for long, against a model.
//!
//! Each word belongs to one thread, which knows its exact value; the other threads know that it only grows
//! between rollbacks. Words of all threads share segments, so a store of one thread must be visible to a load
//! of another.

use std::sync::atomic::Ordering::Relaxed;

use crate::scratch::{MIB, Scratch, mappable};
use deepram_pool::{
    Addr, CreateOptions, Lifetime, LoadOptions, Mapping, OpenOptions, Pool, Retention, ThresholdOptions,
    Words,
};
use deepram_testkit::seeds;
use rand::{Rng, RngExt};

const SEGMENT: u64 = 4096;
const SEGMENTS: u64 = 4096;
const THREADS: u64 = 4;
/// Words in use in each segment, consecutive: two for each thread.
const WORDS: u64 = 2 * THREADS;
const ROUNDS: u64 = 6;
const STEPS: u64 = 1500;

/// One thread's part of the model.
struct One<'p> {
    thread: u64,
    pool: &'p Pool,
    words: Option<Words>,
    first: Addr,
    /// Number of frequently used segments.
    often: u64,
    /// By word: its value if the word is this thread's, else the greatest value seen there.
    known: Vec<u64>,
}

impl One<'_> {
    fn address(&self, n: u64) -> Addr {
        self.first.offset_by(n / WORDS * SEGMENT + n % WORDS * 8).unwrap()
    }

    fn check(&mut self, n: u64, found: u64, how: &str) {
        let known = &mut self.known[n as usize];
        if n % THREADS == self.thread {
            assert_eq!(found, *known, "{how}: word {n} of thread {}", self.thread);
        } else {
            assert!(found >= *known, "{how}: word {n} was {known} and is {found} now");
            *known = found;
        }
    }

    /// Picks a word, half of the time from the frequently used segments.
    fn any(&self, rng: &mut impl Rng) -> u64 {
        let segment = if rng.random_bool(0.5) {
            rng.random_range(0..self.often)
        } else {
            rng.random_range(0..SEGMENTS)
        };
        segment * WORDS + rng.random_range(0..WORDS)
    }

    fn own(&self, rng: &mut impl Rng) -> u64 {
        self.any(rng) / THREADS * THREADS + self.thread
    }

    fn word(&self, n: u64) -> Option<&std::sync::atomic::AtomicU64> {
        Some(&self.words.as_ref()?[(n / WORDS * SEGMENT / 8 + n % WORDS) as usize])
    }

    fn step(&mut self, rng: &mut impl Rng) {
        let mut bytes = [0; 8];
        let value = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap());
        match rng.random_range(0..20) {
            0..9 => {
                let n = self.any(rng);
                self.pool.load(self.address(n), &mut bytes).unwrap();
                self.check(n, value(&bytes), "load");
            }
            9..12 => {
                let n = self.own(rng);
                self.known[n as usize] += 1;
                let new = self.known[n as usize];
                match self.word(n).filter(|_| rng.random_bool(0.5)) {
                    Some(word) => word.store(new, Relaxed),
                    None => self.pool.store(self.address(n), &new.to_ne_bytes()).unwrap(),
                }
            }
            12..14 => {
                let n = self.any(rng);
                let found = match self.word(n) {
                    Some(word) => word.load(Relaxed),
                    None => {
                        self.pool.read(self.address(n), &mut bytes).unwrap();
                        value(&bytes)
                    }
                };
                self.check(n, found, "read");
            }
            14..18 => {
                let all: Vec<u64> = (0..rng.random_range(1..60)).map(|_| self.any(rng)).collect();
                let addresses: Vec<Addr> = all.iter().map(|&n| self.address(n)).collect();
                let mut found = vec![0; 8 * all.len()];
                self.pool.gather(&addresses, 8, &mut found).unwrap();
                for (n, found) in all.into_iter().zip(found.chunks(8)) {
                    self.check(n, value(found), "gather");
                }
            }
            18 => {
                let all: Vec<u64> = (0..rng.random_range(1..30)).map(|_| self.own(rng)).collect();
                let mut from = Vec::new();
                for &n in &all {
                    self.known[n as usize] += 1;
                    from.extend(self.known[n as usize].to_ne_bytes());
                }
                let addresses: Vec<Addr> = all.iter().map(|&n| self.address(n)).collect();
                self.pool.scatter(&addresses, 8, &from).unwrap();
            }
            _ if rng.random_range(0..30) == 0 => drop(self.pool.sync().unwrap()),
            _ => {}
        }
    }
}

fn run(seed: u64, mapping: Mapping) {
    // The threads sync more often than the default number of kept tokens.
    let retention = Retention::KeepLast(10_000);
    let scratch = Scratch::new(&CreateOptions {
        retention,
        flash: Some(256 * MIB),
        ..CreateOptions::new(SEGMENTS * SEGMENT + MIB)
    });
    let threshold = ThresholdOptions { max_threshold: 3, reset_epoch: 200, ..ThresholdOptions::default() };
    let (slots, often) = if seed.is_multiple_of(2) { (24, 40) } else { (400, 800) };
    let loads = LoadOptions { buffer: Some(slots * SEGMENT), promotion: Some(threshold), depth: 4 };
    let options = OpenOptions::new(12 * MIB).mapping(mapping).loads(loads);
    let pool = Pool::open(&[scratch.path()], &options).unwrap();
    let first = pool.alloc(SEGMENTS * SEGMENT, Lifetime::Permanent).unwrap();
    // Writes every segment, so that a cold segment is on the device.
    (0..SEGMENTS).for_each(|n| pool.write(first.offset_by(n * SEGMENT + 2048).unwrap(), &[1; 8]).unwrap());
    let mut token = pool.sync().unwrap();
    let words = pool.is_mapped().then(|| pool.words(first, (SEGMENTS * SEGMENT / 8) as usize).unwrap());
    let known = vec![0; (SEGMENTS * WORDS) as usize];
    let mut all: Vec<One> = (0..THREADS)
        .map(|thread| One { thread, pool: &pool, words: words.clone(), first, often, known: known.clone() })
        .collect();
    let mut rngs: Vec<_> = (0..THREADS).map(|thread| seeds::rng(seed * 1000 + thread)).collect();
    let mut then = vec![known; THREADS as usize];
    for round in 0..ROUNDS {
        std::thread::scope(|scope| {
            for (one, rng) in all.iter_mut().zip(&mut rngs) {
                scope.spawn(move || (0..STEPS).for_each(|_| one.step(rng)));
            }
        });
        // No thread uses the memory now.
        if (seed + round).is_multiple_of(3) {
            pool.rollback(token).unwrap();
            for (one, then) in all.iter_mut().zip(&then) {
                one.known.clone_from(then);
            }
        } else {
            token = pool.sync().unwrap();
            then = all.iter().map(|one| one.known.clone()).collect();
        }
    }
    for one in &mut all {
        for n in 0..SEGMENTS * WORDS {
            let mut bytes = [0; 8];
            pool.load(one.address(n), &mut bytes).unwrap();
            one.check(n, u64::from_ne_bytes(bytes), "at the end");
        }
    }
    drop(all);
    let stats = pool.stats();
    assert!(stats.promotions > 0 && stats.buffer_hits > 0 && stats.buffer_evictions > 0, "{stats:?}");
    assert!(stats.evictions > 0 && stats.write_backs > 0, "{stats:?}");
    assert!(stats.dram_bytes <= stats.budget_bytes, "{stats:?}");
    assert!(pool.take_errors().is_empty());
    assert!(pool.check(&mut |_, _| {}).unwrap().is_sound());
    drop(words);
    pool.close().unwrap();
}

#[test]
fn loads_see_what_stores_by_call_left() {
    seeds::each(4, |seed| run(seed, Mapping::Off));
}

#[test]
fn loads_see_what_stores_by_pointer_left() {
    if mappable() {
        seeds::each(4, |seed| run(seed, Mapping::Full));
    }
}
