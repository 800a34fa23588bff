//! Tests of memory that enters and leaves as huge pages, against a shadow copy.

use super::tests::{Memory, managed, pager, unmap};
use super::tests_forks::{fork, wait_for};
use super::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const DRAM: u64 = 64 << 20;
const DATA: usize = 256 << 20;
const PAGES: usize = DATA / PAGE;

/// A pager with stages; `None`, with a message, where the kernel does not support them.
fn staged(change: impl FnOnce(&mut PagerOptions)) -> Option<Pager> {
    let pager = pager(DRAM, change)?;
    if !pager.inner.stages.any() {
        eprintln!("skipped: this kernel does not move huge pages (Linux 6.18), or the system gives none");
        return None;
    }
    Some(pager)
}

/// The word of a page that these tests use.
fn word(page: usize) -> usize {
    page * 512 + page % 512
}

/// Waits until no stage holds a page.
fn rest(pager: &Pager) {
    for _ in 0..1000 {
        if pager.inner.stages.frames() == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("stages hold {} frames", pager.inner.stages.frames());
}

#[test]
fn memory_used_in_order_moves_as_huge_pages() {
    for policy in PagerPolicy::ALL {
        let Some(pager) = staged(|options| options.policy = policy) else { return };
        let memory = managed(&pager, DATA);
        (0..PAGES).for_each(|page| memory.set(word(page), page as u64));
        let filled = pager.stats();
        for round in 0..2 {
            for page in 0..PAGES {
                assert_eq!(
                    memory.get(word(page)),
                    page as u64,
                    "{} round {round} page {page}",
                    policy.name()
                );
            }
        }
        let read = pager.stats();
        let chunks = (DATA >> 21) as u64;
        assert!(filled.huge_pages > chunks / 2, "{} of {chunks}: {filled:?}", filled.huge_pages);
        assert!(
            read.huge_pages - filled.huge_pages > chunks,
            "{} of {}",
            read.huge_pages - filled.huge_pages,
            2 * chunks
        );
        assert!(read.dram_bytes <= DRAM + (1 << 20), "{read:?}");
        // Pages that were not stored to since they were read are not written again.
        assert!(read.written_back_pages <= PAGES as u64 + PAGES as u64 / 8, "{read:?}");
        rest(&pager);
        unmap(&pager, &memory);
        assert_eq!(pager.inner.frames.paged(), 0, "{}", policy.name());
    }
}

#[test]
fn huge_pages_take_no_frames_that_other_processes_still_have() {
    let dram = 2 * DRAM;
    let budget = SharedBudget::create(dram).unwrap();
    let shared = |options: &mut PagerOptions| (options.dram, options.shared_budget) = (dram, Some(budget));
    let Some(pager) = staged(shared) else { return };
    let frames = (dram / PAGE as u64) as usize;
    let other = Frames::new(frames, Some(budget));
    other.charge(frames - 100);
    let memory = managed(&pager, DATA);
    // Half of the budget is this process's part, but it is not free.
    let fill = |range: std::ops::Range<usize>| range.for_each(|page| memory.set(word(page), page as u64));
    fill(0..frames / 4);
    assert_eq!(pager.stats().huge_pages, 0);
    drop(other);
    fill(frames / 4..frames);
    assert!(pager.stats().huge_pages > 4, "{:?}", pager.stats());
    rest(&pager);
}

/// Performs random operations of a program, and checks the values read.
struct Player<'a> {
    pager: &'a Pager,
    memory: Memory,
    shadow: Vec<u64>,
    random: ChaCha8Rng,
    seed: u64,
    step: u64,
}

impl Player<'_> {
    /// A random range of at most `most` pages.
    fn range(&mut self, most: usize) -> std::ops::Range<usize> {
        let first = self.random.random_range(0..PAGES);
        first..(first + self.random.random_range(1..=most)).min(PAGES)
    }

    fn bytes(&self, pages: &std::ops::Range<usize>) -> (usize, usize) {
        (self.memory.start + pages.start * PAGE, pages.len() * PAGE)
    }

    fn check(&self, page: usize) {
        let (seed, step) = (self.seed, self.step);
        assert_eq!(self.memory.get(word(page)), self.shadow[page], "seed {seed} step {step} page {page}");
    }

    fn store(&mut self, page: usize) {
        self.shadow[page] = self.step << 20 | page as u64;
        self.memory.set(word(page), self.shadow[page]);
    }

    fn play(&mut self) {
        self.step += 1;
        match self.random.random_range(0..100) {
            0..25 => self.range(30_000).for_each(|page| self.store(page)),
            25..55 => self.range(30_000).for_each(|page| self.check(page)),
            55..60 => self.range(6000).for_each(|page| {
                self.check(page);
                self.store(page);
            }),
            60..85 => {
                for _ in 0..200 {
                    let page = self.random.random_range(0..PAGES);
                    self.check(page);
                    if self.random.random() {
                        self.store(page);
                    }
                }
            }
            85..88 => {
                let pages = self.range(2000);
                let (start, len) = self.bytes(&pages);
                self.pager.drop_contents(start, len);
                self.shadow[pages].fill(0);
            }
            88..91 => {
                let pages = self.range(2000);
                let (start, len) = self.bytes(&pages);
                self.pager.evict_range(start, len);
            }
            91..94 => {
                let pages = self.range(600);
                let (start, len) = self.bytes(&pages);
                self.pager.pin(start, len, true);
                pages.for_each(|page| self.check(page));
                self.pager.pin(start, len, false);
            }
            94..96 => self.hide_for_a_while(),
            96..98 => {
                let pages = self.range(2000);
                let (start, len) = self.bytes(&pages);
                self.pager.will_need(start, len);
            }
            98 => self.pager.set_dram(self.random.random_range(DRAM / 2..DRAM * 2)),
            _ => self.go_elsewhere(),
        }
    }

    fn hide_for_a_while(&mut self) {
        let pages = self.range(2000);
        let (start, len) = self.bytes(&pages);
        for prot in [libc::PROT_NONE, libc::PROT_READ | libc::PROT_WRITE] {
            let changed = self.pager.set_unreadable(start, len, prot == libc::PROT_NONE, || {
                // SAFETY: the test's own memory.
                unsafe { libc::mprotect(std::ptr::with_exposed_provenance_mut(start), len, prot) }
            });
            assert_eq!(changed, 0);
            let outside = (0..PAGES).filter(|page| !pages.contains(page));
            outside.step_by(7).for_each(|page| self.check(page));
        }
    }

    /// Moves to another address, with a random alignment to huge pages.
    fn go_elsewhere(&mut self) {
        let new = Memory::new(DATA + (4 << 20));
        let to = new.start + self.random.random_range(0..512) * PAGE;
        let moved = self.pager.remap(self.memory.start, (DATA, DATA), None, || {
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            let from = std::ptr::with_exposed_provenance_mut(self.memory.start);
            // SAFETY: both are the test's own mappings.
            let moved = unsafe { libc::mremap(from, DATA, DATA, flags, to as *mut libc::c_void) };
            (moved != libc::MAP_FAILED).then_some(to)
        });
        assert_eq!(moved, Some(to));
        self.memory.start = to;
    }
}

#[test]
fn random_operations_agree_with_a_shadow_copy() {
    for seed in 0..3 {
        let Some(pager) = staged(|_| {}) else { return };
        let memory = managed(&pager, DATA);
        let random = ChaCha8Rng::seed_from_u64(seed);
        let mut player = Player { pager: &pager, memory, shadow: vec![0; PAGES], random, seed, step: 0 };
        (0..120).for_each(|_| player.play());
        (0..PAGES).for_each(|page| player.check(page));
        assert!(pager.stats().huge_pages > 5, "seed {seed}: {} huge pages", pager.stats().huge_pages);
        rest(&pager);
        unmap(&pager, &player.memory);
        assert_eq!(pager.inner.frames.paged(), 0, "seed {seed}");
    }
}

/// Whether a page is in memory.
fn is_there(address: usize) -> bool {
    let mut there = 0u8;
    // SAFETY: a byte for one page.
    let result = unsafe { libc::mincore(address as *mut libc::c_void, PAGE, &raw mut there) };
    result == 0 && there & 1 == 1
}

#[test]
fn stores_while_a_huge_page_comes_are_kept() {
    let Some(pager) = staged(|_| {}) else { return };
    let memory = managed(&pager, DATA);
    (0..PAGES).for_each(|page| memory.set(page * 512, page as u64));
    pager.inner.test_delays.store(true, Ordering::Relaxed);
    let (done, at) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut shadow = std::thread::scope(|scope| {
        let storing = scope.spawn(|| {
            let mut shadow = vec![0; PAGES];
            // Stores to one page of every chunk as soon as it is in memory: often before it is protected.
            while !done.load(Ordering::Relaxed) {
                let page = at.load(Ordering::Relaxed) / 512 * 512 + 300;
                if page < PAGES && shadow[page] == 0 && is_there(memory.start + page * PAGE) {
                    memory.set(page * 512 + 1, 77);
                    shadow[page] = 77;
                }
            }
            shadow
        });
        for page in 0..PAGES {
            at.store(page, Ordering::Relaxed);
            assert_eq!(memory.get(page * 512), page as u64, "page {page}");
        }
        done.store(true, Ordering::Relaxed);
        storing.join().unwrap()
    });
    pager.inner.test_delays.store(false, Ordering::Relaxed);
    assert!(shadow.iter().filter(|word| **word > 0).count() > 10, "few were stored to");
    // All pages leave and come back, twice.
    for round in 0..2 {
        for (page, value) in shadow.iter().enumerate() {
            assert_eq!(memory.get(page * 512 + 1), *value, "round {round} page {page}");
        }
        (1..PAGES).step_by(512).for_each(|page| {
            shadow[page] = 5;
            memory.set(page * 512 + 1, 5);
        });
    }
    unmap(&pager, &memory);
}

#[test]
fn a_full_swap_file_loses_no_huge_page() {
    let Some(pager) = staged(|options| options.store_limit = 128 << 20) else { return };
    let memory = managed(&pager, DATA);
    for round in 1..3 {
        (0..PAGES).for_each(|page| memory.set(word(page), page as u64 * round));
        for page in 0..PAGES {
            assert_eq!(memory.get(word(page)), page as u64 * round, "round {round} page {page}");
        }
    }
    assert!(pager.stats().io_errors > 0 && pager.stats().huge_pages > 0);
    unmap(&pager, &memory);
}

#[test]
fn forked_processes_share_huge_pages_until_they_store() {
    let Some(pager) = staged(|_| {}) else { return };
    let memory = managed(&pager, DATA);
    (0..PAGES).for_each(|page| memory.set(word(page), page as u64));
    // Some pages are clean, some dirty, some staged.
    (0..PAGES / 3).for_each(|page| assert_eq!(memory.get(word(page)), page as u64));
    let child = fork(&pager, |own| {
        assert!((0..PAGES).all(|page| memory.get(word(page)) == page as u64), "wrong");
        (0..PAGES).for_each(|page| memory.set(word(page), 1));
        assert!((0..PAGES).all(|page| memory.get(word(page)) == 1), "wrong after stores");
        assert!(own.stats().huge_pages > 0, "no huge pages");
    });
    for value in [2, 3] {
        (0..PAGES).for_each(|page| memory.set(word(page), value));
        assert!((0..PAGES).all(|page| memory.get(word(page)) == value));
    }
    wait_for(child);
    let used = pager.inner.frames.used();
    assert!(used * PAGE <= DRAM as usize, "{used} frames");
    rest(&pager);
    unmap(&pager, &memory);
    assert_eq!(pager.inner.frames.paged(), 0);
}

#[test]
fn advice_about_huge_pages_is_followed() {
    let Some(pager) = staged(|_| {}) else { return };
    let memory = managed(&pager, DATA);
    // Out of order, one page of each chunk: without advice that brings 4 KiB pages.
    let chunks = [5, 2, 4, 1, 3];
    let touch = |from: usize, wanted: bool| {
        for chunk in chunks {
            let before = pager.stats().huge_pages;
            let first = (memory.start.next_multiple_of(2 << 20) - memory.start) / PAGE;
            memory.set(word(first + (from + chunk) * 512 + 77), 1);
            // The counter changes a moment after the thread continues, when the stage is free for the next chunk too.
            (0..5000).take_while(|_| wanted && pager.stats().huge_pages == before).for_each(|_| {
                std::thread::sleep(Duration::from_millis(1));
            });
        }
        pager.stats().huge_pages
    };
    let always = pager.inner.stages.always();
    let plainly = touch(0, always);
    assert_eq!(plainly, if always { chunks.len() as u64 } else { 0 });
    pager.prefer_huge(memory.start, memory.len, true);
    assert_eq!(touch(10, true) - plainly, chunks.len() as u64);
    pager.prefer_huge(memory.start, memory.len, false);
    let before = pager.stats().huge_pages;
    (PAGES / 2..PAGES).for_each(|page| memory.set(word(page), 1));
    assert_eq!(pager.stats().huge_pages, before);
    unmap(&pager, &memory);
}

#[test]
fn memory_that_cannot_be_moved_stays_within_the_budget() {
    let Some(pager) = staged(|_| {}) else { return };
    let memory = managed(&pager, DATA);
    (0..PAGES).for_each(|page| memory.set(word(page), page as u64));
    // Only memory that can be stored to can be moved.
    // SAFETY: the test's own memory.
    let result = unsafe { libc::mprotect(memory.start as *mut libc::c_void, DATA, libc::PROT_READ) };
    assert_eq!(result, 0);
    for page in (0..PAGES).chain(0..PAGES) {
        assert_eq!(memory.get(word(page)), page as u64);
        if page % 512 == 0 {
            let used = pager.stats().dram_bytes;
            assert!(used <= DRAM + (1 << 20), "{used} bytes at page {page}");
        }
    }
    rest(&pager);
    unmap(&pager, &memory);
    assert_eq!(pager.inner.frames.paged(), 0);
}
