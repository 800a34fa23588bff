//! Tests of memory that arrives and leaves as huge pages, against a shadow copy.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use deepram_core::{Addr, Epoch, SegmentSize};
use deepram_testkit::seeds::{each, rng};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::{Lifetime, Pool};
use crate::error::PoolError;
use crate::options::{CreateOptions, OpenOptions};
use crate::region::WatchError;
use crate::view::Words;

const MIB: u64 = 1 << 20;
const DRAM: u64 = 64 * MIB;
const DATA: u64 = 160 * MIB;
/// Words of 4 KiB, the unit of all checks.
const STEP: u64 = 512;
const STEPS: u64 = DATA / 8 / STEP;
const CHUNK: u64 = 2 * MIB;

/// A pool with `DATA` bytes, of which word n is n, written and evicted; `None`, with a message, where there are no huge
/// pages.
struct World {
    _folder: tempfile::TempDir,
    pool: Pool,
    addr: Addr,
    words: Words,
    token: Epoch,
}

impl World {
    fn new(segment: SegmentSize) -> Option<Self> {
        let folder = tempfile::tempdir_in(std::env::temp_dir()).unwrap();
        let path = folder.path().join("pool");
        Pool::create(&[&path], &CreateOptions { segment, ..CreateOptions::new(DATA + 4 * MIB) }).unwrap();
        let pool = match Pool::open(&[&path], &OpenOptions::new(DRAM)) {
            Err(PoolError::Watch(WatchError::Unavailable { source })) => {
                eprintln!("skipped: userfaultfd is not available here ({source})");
                return None;
            }
            pool => pool.unwrap(),
        };
        if pool.owned().unwrap().cache.stagers() == 0 {
            eprintln!("skipped: this kernel does not move huge pages (Linux 6.18), or the system gives none");
            return None;
        }
        let addr = pool.alloc(DATA, Lifetime::Permanent).unwrap();
        let words = pool.words(addr, (DATA / 8) as usize).unwrap();
        (0..).zip(&*words).for_each(|(n, word)| word.store(n, Relaxed));
        let token = pool.sync().unwrap();
        pool.evict_range(addr, DATA).unwrap();
        Some(Self { _folder: folder, pool, addr, words, token })
    }

    /// The word of a step that is used.
    fn word(&self, step: u64) -> &AtomicU64 {
        &self.words[(step * STEP + step % STEP) as usize]
    }

    fn first(step: u64) -> u64 {
        step * STEP + step % STEP
    }

    fn scan(&self, steps: Range<u64>, expected: impl Fn(u64) -> u64) {
        steps.for_each(|step| assert_eq!(self.word(step).load(Relaxed), expected(step), "step {step}"));
    }

    fn keeps_the_budget(&self) {
        let stats = self.pool.stats();
        assert!(stats.dram_bytes <= stats.budget_bytes, "{stats:?}");
    }
}

#[test]
fn memory_that_is_read_in_order_moves_as_huge_pages() {
    for segment in [SegmentSize::K4, SegmentSize::K8, SegmentSize::K16] {
        let Some(world) = World::new(segment) else { return };
        let before = world.pool.stats();
        for _ in 0..2 {
            for part in 0..16 {
                world.scan(STEPS / 16 * part..STEPS / 16 * (part + 1), World::first);
                world.keeps_the_budget();
            }
        }
        let after = world.pool.stats();
        let (came, chunks) = (after.huge_pages - before.huge_pages, 2 * DATA / CHUNK);
        assert!(came > chunks / 2, "{segment:?}: {came} of {chunks}: {after:?}");
        assert_eq!(after.dirty_segments, 0, "{segment:?}: loads made segments dirty");
        assert_eq!(after.write_backs, before.write_backs, "{segment:?}: what was only read was written");
        world.pool.close().unwrap();
    }
}

/// A store that reaches a chunk after its move and before its protection causes no fault. Here the thread that moves the
/// chunk makes it.
#[test]
fn a_store_between_move_and_protection_is_kept() {
    let Some(world) = World::new(SegmentSize::K4) else { return };
    let cache = &world.pool.owned().unwrap().cache;
    let stored: Arc<std::sync::Mutex<Vec<u64>>> = Arc::default();
    let (base, list) = (cache.region.base().expose_provenance(), Arc::clone(&stored));
    let first = (world.words.as_ptr().addr() - base) as u64 / 8;
    let hook = move |offset: usize| {
        // One word of the chunk's third segment.
        let at = offset + 2 * 4096 + 64;
        // SAFETY: memory of the pool that is present and not yet protected.
        let word = unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(base + at)) };
        let number = at as u64 / 8 - first;
        word.store(!number, Relaxed);
        list.lock().unwrap().push(number);
    };
    assert!(cache.moved.set(Box::new(hook)).is_ok());
    let changed = |number: u64, list: &[u64]| if list.contains(&number) { !number } else { number };
    for _ in 0..2 {
        world.scan(0..STEPS, World::first);
        let list = stored.lock().unwrap().clone();
        assert!(!list.is_empty(), "no chunk was moved");
        for &number in &list {
            assert_eq!(world.words[number as usize].load(Relaxed), changed(number, &list));
        }
        world.keeps_the_budget();
    }
    world.pool.sync().unwrap();
    world.pool.evict_range(world.addr, DATA).unwrap();
    let list = stored.lock().unwrap().clone();
    for &number in &list {
        let at = world.addr.offset_by(number * 8).unwrap();
        let mut found = [0; 8];
        world.pool.read(at, &mut found).unwrap();
        assert_eq!(u64::from_ne_bytes(found), !number, "a store was lost");
    }
    world.pool.rollback(world.token).unwrap();
    world.scan(0..STEPS / 8, World::first);
    world.pool.close().unwrap();
}

#[test]
fn a_store_by_call_to_a_staged_chunk_cancels_its_staging() {
    let Some(world) = World::new(SegmentSize::K4) else { return };
    let cache = &world.pool.owned().unwrap().cache;
    world.scan(0..4 * CHUNK / 8 / STEP, World::first);
    let staged = cache.staged_chunks();
    assert!(!staged.is_empty(), "a scan stages the chunks behind it");
    let data = (world.words.as_ptr().addr() - cache.region.base().addr()) as u64;
    // The words of the scan among the first of each chunk.
    let steps: Vec<u64> =
        staged.iter().map(|chunk| (*chunk as u64 * CHUNK - data).div_ceil(8 * STEP) + 3).collect();
    for &step in &steps {
        let word = World::first(step);
        world.pool.write(world.addr.offset_by(word * 8).unwrap(), &(!word).to_ne_bytes()).unwrap();
        cache.check_chunks();
    }
    world.scan(0..STEPS, |step| if steps.contains(&step) { !World::first(step) } else { World::first(step) });
    world.keeps_the_budget();
    world.pool.close().unwrap();
}

/// Random operations of a program on memory of which much comes as huge pages, each followed by a check of the budget.
struct Player {
    world: World,
    /// The word of each step.
    shadow: Vec<u64>,
    /// The words at each token.
    tokens: BTreeMap<Epoch, Vec<u64>>,
    random: ChaCha8Rng,
    seed: u64,
    turn: u64,
}

impl Player {
    fn range(&mut self, most: u64) -> Range<u64> {
        let first = self.random.random_range(0..STEPS);
        first..(first + self.random.random_range(1..=most)).min(STEPS)
    }

    fn check(&self, step: u64) {
        let (seed, turn) = (self.seed, self.turn);
        let found = self.world.word(step).load(Relaxed);
        assert_eq!(found, self.shadow[step as usize], "seed {seed} turn {turn} step {step}");
    }

    fn store(&mut self, step: u64) {
        let value = self.turn << 32 | step;
        self.shadow[step as usize] = value;
        self.world.word(step).store(value, Relaxed);
    }

    /// The address and length of these steps.
    fn bytes(&self, steps: &Range<u64>) -> (Addr, u64) {
        (self.world.addr.offset_by(steps.start * STEP * 8).unwrap(), (steps.end - steps.start) * STEP * 8)
    }

    fn play(&mut self) {
        self.turn += 1;
        match self.random.random_range(0..100) {
            0..40 => self.range(12_000).for_each(|step| self.check(step)),
            40..50 => {
                let first = self.range(8_000);
                let second = self.range(8_000);
                std::thread::scope(|scope| {
                    let this = &*self;
                    scope.spawn(|| first.for_each(|step| this.check(step)));
                    second.for_each(|step| this.check(step));
                });
            }
            50..58 => self.range(3_000).for_each(|step| self.store(step)),
            58..70 => {
                for _ in 0..200 {
                    let step = self.random.random_range(0..STEPS);
                    self.check(step);
                    if self.random.random_range(0..3) == 0 {
                        self.store(step);
                    }
                }
            }
            70..76 => {
                let token = self.world.pool.sync().unwrap();
                self.tokens.insert(token, self.shadow.clone());
            }
            76..80 => {
                let known: Vec<Epoch> =
                    self.world.pool.history().unwrap().iter().map(|history| history.token).collect();
                self.tokens.retain(|token, _| known.contains(token));
                let at = self.random.random_range(0..self.tokens.len());
                let token = *self.tokens.keys().nth(at).unwrap();
                self.world.pool.rollback(token).unwrap();
                self.tokens.retain(|other, _| *other <= token);
                self.shadow.clone_from(&self.tokens[&token]);
            }
            80..86 => {
                let range = self.range(6_000);
                let (addr, len) = self.bytes(&range);
                self.world.pool.evict_range(addr, len).unwrap();
            }
            86..90 => {
                let range = self.range(2_000);
                let (addr, len) = self.bytes(&range);
                self.world.pool.pin(addr, len, true).unwrap();
                range.for_each(|step| self.check(step));
                self.world.pool.pin(addr, len, false).unwrap();
            }
            90..95 => {
                // Calls, to segments of which some are in huge pages or staged.
                let range = self.range(600);
                for step in range {
                    let (addr, _) = self.bytes(&(step..step + 1));
                    let at = addr.offset_by(step % STEP * 8).unwrap();
                    let mut found = [0; 8];
                    self.world.pool.read(at, &mut found).unwrap();
                    let expected = self.shadow[step as usize];
                    assert_eq!(u64::from_ne_bytes(found), expected, "seed {} turn {}", self.seed, self.turn);
                    if step % 7 == 0 {
                        let value = self.turn << 32 | step;
                        self.shadow[step as usize] = value;
                        self.world.pool.write(at, &value.to_ne_bytes()).unwrap();
                    }
                }
            }
            _ => {
                let dram = self.random.random_range(52..96) * MIB;
                self.world.pool.set_dram(dram).unwrap();
            }
        }
        self.world.pool.owned().unwrap().cache.check_chunks();
        // A smaller budget holds once dirty segments have been written.
        let over = || {
            let stats = self.world.pool.stats();
            stats.dram_bytes > stats.budget_bytes
        };
        for _ in 0..1000 {
            if !over() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(!over(), "seed {} turn {}: {:?}", self.seed, self.turn, self.world.pool.stats());
    }
}

#[test]
fn random_operations_over_huge_pages_lose_nothing_and_keep_the_budget() {
    each(3, |seed| {
        let Some(world) = World::new(SegmentSize::K4) else { return };
        let shadow: Vec<u64> = (0..STEPS).map(World::first).collect();
        let tokens = BTreeMap::from([(world.token, shadow.clone())]);
        let before = world.pool.stats().huge_pages;
        let random = rng(seed);
        let mut player = Player { world, shadow, tokens, random, seed, turn: 0 };
        for _ in 0..150 {
            player.play();
        }
        (0..STEPS).for_each(|step| player.check(step));
        let came = player.world.pool.stats().huge_pages - before;
        assert!(came > 50, "seed {seed}: only {came} huge pages came");
        player.world.pool.close().unwrap();
    });
}
