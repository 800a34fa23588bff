//! Tests of the pager against a shadow copy.

use std::sync::atomic::Ordering::Relaxed;

use super::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Anonymous memory that belongs to the test.
pub(super) struct Memory {
    pub(super) start: usize,
    pub(super) len: usize,
}

impl Memory {
    pub(super) fn new(len: usize) -> Self {
        // SAFETY: a new anonymous mapping.
        let start = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        assert_ne!(start, libc::MAP_FAILED);
        Self { start: start as usize, len }
    }

    fn word(&self, n: usize) -> *mut u64 {
        assert!(n * 8 < self.len);
        std::ptr::with_exposed_provenance_mut(self.start + n * 8)
    }

    pub(super) fn get(&self, n: usize) -> u64 {
        // SAFETY: inside the mapping, to which no other code stores.
        unsafe { self.word(n).read_volatile() }
    }

    pub(super) fn set(&self, n: usize, value: u64) {
        // SAFETY: as above.
        unsafe { self.word(n).write_volatile(value) }
    }
}

pub(super) fn pager(dram: u64, change: impl FnOnce(&mut PagerOptions)) -> Option<Pager> {
    let mut options = PagerOptions::new(dram, std::env::temp_dir());
    options.pin_faulting_threads = true;
    change(&mut options);
    match Pager::new(options) {
        Ok(pager) => Some(pager),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            eprintln!("skipped: userfaultfd may not be used here ({error})");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

pub(super) fn managed(pager: &Pager, len: usize) -> Memory {
    let memory = Memory::new(len);
    // SAFETY: fresh memory, released before it is unmapped.
    unsafe { pager.manage(memory.start, len, true) }.unwrap();
    memory
}

/// Managed memory in which each page begins with its number. Returns it with the number of pages.
pub(super) fn numbered(pager: &Pager, len: usize) -> (Memory, usize) {
    let memory = managed(pager, len);
    let pages = len / PAGE;
    (0..pages).for_each(|page| memory.set(page * 512, page as u64));
    (memory, pages)
}

pub(super) fn unmap(pager: &Pager, memory: &Memory) {
    let unmapped = pager.release(memory.start, memory.len, || {
        // SAFETY: the test's own mapping, no longer used.
        let result = unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(memory.start), memory.len) };
        (result == 0).then_some(())
    });
    unmapped.expect("it is mapped");
}

#[test]
fn data_four_times_the_dram_keep_their_values() {
    for policy in PagerPolicy::ALL {
        let Some(pager) = pager(8 << 20, |options| options.policy = policy) else { return };
        let memory = managed(&pager, 32 << 20);
        let words = memory.len / 8;
        for n in 0..words {
            memory.set(n, n as u64 ^ 0x5555);
        }
        for n in (0..words).rev() {
            assert_eq!(memory.get(n), n as u64 ^ 0x5555, "{} word {n}", policy.name());
        }
        let stats = pager.stats();
        assert!(stats.written_back_pages > 4096 && stats.faults_major > 0, "{stats:?}");
        assert!(stats.dram_bytes <= (8 << 20) + (1 << 20), "{stats:?}");
        unmap(&pager, &memory);
        assert_eq!(pager.inner.frames.paged(), 0);
    }
}

#[test]
fn memory_that_is_no_longer_managed_keeps_its_contents() {
    let Some(pager) = pager(8 << 20, |_| {}) else { return };
    let memory = managed(&pager, 32 << 20);
    let words = memory.len / 8;
    // Fresh at the end; before that in the swap file, in the victim buffer, and in memory, of which some clean.
    let fresh = words - (1 << 20) / 8;
    let holds = |n: usize| if n < fresh { n as u64 ^ 0x5555 } else { 0 };
    (0..fresh).for_each(|n| memory.set(n, holds(n)));
    (0..words / 64).for_each(|n| assert_eq!(memory.get(n), holds(n)));
    let (middle, quarter) = (memory.start + memory.len / 2, memory.len / 4);
    for (start, len) in [(middle, quarter), (memory.start, memory.len)] {
        pager.stop_managing(start, len).expect("the kernel unregisters the range");
        assert!(!pager.manages_any(start, len));
        let (first, end) = ((start - memory.start) / 8, (start - memory.start + len) / 8);
        (first..end).for_each(|n| assert_eq!(memory.get(n), holds(n), "word {n}"));
    }
    assert_eq!(pager.inner.frames.paged(), 0);
    drop(pager);
    (0..words).for_each(|n| memory.set(n, n as u64));
}

#[test]
fn random_use_agrees_with_a_shadow_copy() {
    let seed = 7;
    let Some(pager) = pager(4 << 20, |_| {}) else { return };
    let memory = managed(&pager, 16 << 20);
    let words = memory.len / 8;
    let mut shadow = vec![0u64; words];
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    for step in 0..300_000u64 {
        let n = random.random_range(0..words);
        match random.random_range(0..100) {
            0..50 => assert_eq!(memory.get(n), shadow[n], "seed {seed} step {step} word {n}"),
            50..98 => {
                memory.set(n, step);
                shadow[n] = step;
            }
            98 => {
                let (first, pages) = (n * 8 / PAGE, random.random_range(1..40));
                let end = ((first + pages) * PAGE).min(memory.len);
                if random.random_range(0..20) == 0 {
                    pager.drop_contents(memory.start + first * PAGE, end - first * PAGE);
                    shadow[first * PAGE / 8..end / 8].fill(0);
                } else {
                    pager.evict_range(memory.start + first * PAGE, end - first * PAGE);
                }
            }
            _ => pager.will_need(memory.start + n * 8, 100 * PAGE),
        }
    }
    for (n, value) in shadow.iter().enumerate() {
        assert_eq!(memory.get(n), *value, "seed {seed} word {n}");
    }
    unmap(&pager, &memory);
    assert_eq!(pager.inner.frames.paged(), 0);
}

#[test]
fn a_thread_that_faults_alone_is_pinned_and_released() {
    let Some(pager) = pager(4 << 20, |_| {}) else { return };
    let allowed = crate::service::processors();
    if allowed.len() == 1 || allowed.len() > crate::service::MAX_PINNED_HANDLERS {
        eprintln!("skipped: no thread is pinned on {} processors", allowed.len());
        return;
    }
    let (memory, pages) = numbered(&pager, 16 << 20);
    let mut random = ChaCha8Rng::seed_from_u64(3);
    let mut pinned = 0;
    for _ in 0..10 * pages {
        let page = random.random_range(0..pages);
        assert_eq!(memory.get(page * 512), page as u64);
        let now = crate::service::processors();
        assert!(now == allowed || now.len() == 1, "{now:?} of {allowed:?}");
        pinned += usize::from(now.len() == 1);
    }
    assert!(pinned > pages, "pinned {pinned} times");
    let (mine, theirs) = pager.without_pinning(|| {
        let theirs = std::thread::spawn(crate::service::processors).join().unwrap();
        (crate::service::processors(), theirs)
    });
    assert_eq!((&mine, &theirs), (&allowed, &allowed));
    // Where the program pins the thread, it runs and is served.
    for home in allowed.iter().rev() {
        crate::service::pin_to_cpu(*home);
        for _ in 0..pages {
            let page = random.random_range(0..pages);
            assert_eq!(memory.get(page * 512), page as u64);
            assert_eq!(crate::service::processors(), [*home]);
        }
    }
    unmap(&pager, &memory);
}

#[test]
fn threads_that_mostly_wait_for_faults_share_a_processor_and_are_released() {
    let Some(pager) = pager(4 << 20, |_| {}) else { return };
    let allowed = crate::service::processors();
    if allowed.len() != 2 {
        eprintln!(
            "skipped: threads share a processor on two processors only, and there are {}",
            allowed.len()
        );
        return;
    }
    let (memory, pages) = numbered(&pager, 16 << 20);
    let together = std::sync::atomic::AtomicBool::new(false);
    let read = &|seed| {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        for _ in 0..100_000 {
            let page = random.random_range(0..pages);
            assert_eq!(memory.get(page * 512), page as u64, "seed {seed}");
            let now = crate::service::processors();
            assert!(now == allowed || now.len() == 1, "{now:?} of {allowed:?}");
            let shared = pager.inner.handler_group.get().and_then(|group| group.shared_processor());
            if together.load(Relaxed) || (shared.is_some() && now.len() == 1) {
                together.store(true, Relaxed);
                break;
            }
        }
        assert_eq!(pager.without_pinning(crate::service::processors), allowed);
    };
    std::thread::scope(|scope| {
        // A thread would inherit the affinity of this one, which is pinned since it filled the memory.
        pager.without_pinning(|| {
            for seed in 0..4 {
                scope.spawn(move || read(seed));
            }
        });
    });
    assert!(together.load(Relaxed));
    unmap(&pager, &memory);
}

#[test]
fn threads_use_the_same_memory_at_once() {
    let Some(pager) = pager(4 << 20, |_| {}) else { return };
    let memory = managed(&pager, 16 << 20);
    let words = memory.len / 8;
    std::thread::scope(|scope| {
        for thread in 0..4usize {
            let memory = &memory;
            scope.spawn(move || {
                let mut random = ChaCha8Rng::seed_from_u64(thread as u64);
                // Each thread has its own words of every page.
                let mut shadow = vec![0u64; words / 4];
                for step in 0..60_000u64 {
                    let n = random.random_range(0..words / 4);
                    if random.random() {
                        memory.set(n * 4 + thread, step);
                        shadow[n] = step;
                    } else {
                        assert_eq!(memory.get(n * 4 + thread), shadow[n], "thread {thread} step {step}");
                    }
                }
            });
        }
    });
    unmap(&pager, &memory);
}

#[test]
fn a_scan_is_read_ahead_and_random_use_is_not() {
    let Some(pager) = pager(8 << 20, |_| {}) else { return };
    let (memory, pages) = numbered(&pager, 64 << 20);
    let before = pager.stats();
    for page in 0..pages {
        assert_eq!(memory.get(page * 512), page as u64);
    }
    let scanned = pager.stats();
    let faults = scanned.faults_major - before.faults_major;
    assert!(faults < pages as u64 / 10, "{faults} of {pages} pages were read on demand");
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut use_pages = |count: usize| {
        let before = pager.stats();
        for _ in 0..count {
            let page = random.random_range(0..pages);
            assert_eq!(memory.get(page * 512), page as u64);
        }
        pager.stats().readahead_pages - before.readahead_pages
    };
    // In each of four or five regions, three rounds of probes show that neighbours are not used.
    let learning = use_pages(20_000);
    assert!(learning < 5 * 176 + 20_000 / 32 + 100, "{learning} pages were read ahead of random use");
    let ahead = use_pages(5_000);
    assert!(ahead < 200, "{ahead} pages were read ahead of random use");
    unmap(&pager, &memory);
}

#[test]
fn neighbours_come_with_a_missed_page_where_they_are_used() {
    let Some(pager) = pager(8 << 20, |_| {}) else { return };
    let (memory, pages) = numbered(&pager, 64 << 20);
    let mut random = ChaCha8Rng::seed_from_u64(1);
    // Blocks of eight pages in no order, and no order within a block either: no stream.
    let mut visit = |blocks: usize| {
        let before = pager.stats().faults_major;
        for _ in 0..blocks {
            let block = random.random_range(0..pages / 8);
            let turn = random.random_range(0..8);
            for n in [0, 5, 2, 7, 4, 1, 6, 3] {
                let page = block * 8 + (n ^ turn);
                assert_eq!(memory.get(page * 512), page as u64);
            }
        }
        pager.stats().faults_major - before
    };
    visit(2_000);
    let faults = visit(1_000);
    assert!(faults < 3_000, "{faults} of 8,000 pages were read on demand");
    unmap(&pager, &memory);
}

#[test]
fn pinned_pages_stay_and_unreadable_ones_leave() {
    let Some(pager) = pager(8 << 20, |_| {}) else { return };
    let (memory, pages) = numbered(&pager, 32 << 20);
    pager.pin(memory.start, 16 * PAGE, true);
    for page in 0..16 {
        memory.get(page * 512);
    }
    // The program makes these pages unreadable for a while.
    let protect = |prot| {
        pager.set_unreadable(memory.start + 32 * PAGE, 64 * PAGE, prot == libc::PROT_NONE, || {
            let at = std::ptr::with_exposed_provenance_mut(memory.start + 32 * PAGE);
            // SAFETY: the test's own memory.
            unsafe { libc::mprotect(at, 64 * PAGE, prot) }
        })
    };
    for page in 32..96 {
        memory.set(page * 512 + 1, page as u64);
    }
    assert_eq!(protect(libc::PROT_NONE), 0);
    for page in 96..pages {
        memory.set(page * 512, page as u64);
    }
    let before = pager.stats();
    for page in 0..16 {
        assert_eq!(memory.get(page * 512), page as u64);
    }
    let after = pager.stats();
    assert_eq!(
        (before.faults_major, before.victim_buffer_hits),
        (after.faults_major, after.victim_buffer_hits)
    );
    assert_eq!(protect(libc::PROT_READ | libc::PROT_WRITE), 0);
    for page in 32..96 {
        assert_eq!((memory.get(page * 512), memory.get(page * 512 + 1)), (page as u64, page as u64));
    }
    unmap(&pager, &memory);
}

#[test]
fn memory_that_is_filled_downwards_comes_in_larger_steps_too() {
    let Some(pager) = pager(16 << 20, |options| options.huge_pages = false) else { return };
    for downwards in [false, true] {
        let memory = managed(&pager, 8 << 20);
        let pages = memory.len / PAGE;
        let before = pager.stats().faults_fresh;
        for n in 0..pages {
            let page = if downwards { pages - 1 - n } else { n };
            assert_eq!(memory.get(page * 512), 0);
            memory.set(page * 512 + 1, page as u64);
        }
        // 1, 1, 2, 4 and so on to 64 pages, in each of at most 5 chunks.
        let faults = pager.stats().faults_fresh - before;
        assert!(faults <= 5 * 15, "{faults} faults on {pages} pages, downwards: {downwards}");
        (0..pages).for_each(|page| assert_eq!(memory.get(page * 512 + 1), page as u64));
        unmap(&pager, &memory);
    }
    assert_eq!(pager.inner.frames.paged(), 0);
}

#[test]
fn a_full_swap_file_loses_nothing() {
    let Some(pager) = pager(4 << 20, |options| options.store_limit = 16 << 20) else { return };
    let memory = managed(&pager, 32 << 20);
    let pages = memory.len / PAGE;
    for page in 0..pages {
        memory.set(page * 512, page as u64 + 1);
    }
    for page in 0..pages {
        assert_eq!(memory.get(page * 512), page as u64 + 1);
    }
    assert!(pager.stats().io_errors > 0);
    unmap(&pager, &memory);
}

#[test]
fn a_page_that_comes_back_while_a_full_swap_file_refuses_it_is_kept() {
    let Some(pager) = pager(4 << 20, |options| options.store_limit = 16 << 20) else { return };
    let memory = managed(&pager, 32 << 20);
    let pages = memory.len / PAGE;
    (0..pages).for_each(|page| memory.set(page * 512 + page % 512, page as u64 + 1));
    pager.inner.test_delays.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let memory = &memory;
            scope.spawn(move || {
                let mut random = ChaCha8Rng::seed_from_u64(seed);
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_secs(3) {
                    let page = random.random_range(0..pages);
                    let found = memory.get(page * 512 + page % 512);
                    assert_eq!(found, page as u64 + 1, "seed {seed} page {page}");
                }
            });
        }
    });
    pager.inner.test_delays.store(false, Ordering::Relaxed);
    for page in 0..pages {
        assert_eq!(memory.get(page * 512 + page % 512), page as u64 + 1, "page {page}");
    }
    assert!(pager.stats().io_errors > 0);
    unmap(&pager, &memory);
}

#[test]
fn memory_keeps_its_contents_where_it_is_moved_to() {
    let Some(pager) = pager(4 << 20, |_| {}) else { return };
    let (memory, pages) = numbered(&pager, 16 << 20);
    for page in 0..300 {
        memory.get(page * 512);
    }
    let new = Memory::new(memory.len);
    let moved = pager.remap(memory.start, (memory.len, memory.len), None, || {
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let (from, to) =
            (std::ptr::with_exposed_provenance_mut(memory.start), new.start as *mut libc::c_void);
        // SAFETY: both are the test's own mappings.
        let moved = unsafe { libc::mremap(from, memory.len, memory.len, flags, to) };
        (moved != libc::MAP_FAILED).then_some(new.start)
    });
    assert_eq!(moved, Some(new.start));
    assert!(!pager.manages(memory.start) && pager.manages(new.start));
    for page in 0..pages {
        assert_eq!(new.get(page * 512), page as u64);
        new.set(page * 512 + 1, 9);
    }
    for page in (0..pages).rev() {
        assert_eq!((new.get(page * 512), new.get(page * 512 + 1)), (page as u64, 9));
    }
    unmap(&pager, &new);
}

/// An evictor trims the victim buffer while it holds no other lock: a child forked then would wait for the buffer for
/// ever.
#[test]
fn a_fork_waits_for_the_thread_that_locks_the_victim_buffer() {
    let Some(pager) = pager(4 << 20, |_| {}) else { return };
    let released = AtomicBool::new(false);
    let (taken, is_taken) = mpsc::channel();
    std::thread::scope(|scope| {
        let (pager, released) = (&pager, &released);
        scope.spawn(move || {
            let buffer = pager.inner.victim_buffer();
            taken.send(()).unwrap();
            std::thread::sleep(Duration::from_millis(100));
            released.store(true, Ordering::Relaxed);
            drop(buffer);
        });
        is_taken.recv().unwrap();
        let fork = pager.prepare_fork().unwrap();
        assert!(released.load(Ordering::Relaxed), "the fork has begun while the victim buffer is locked");
        drop(fork);
    });
}

#[test]
fn a_fork_finds_its_room_free() {
    let budget = SharedBudget::create(8 << 20).unwrap();
    let Some(pager) = pager(8 << 20, |options| options.shared_budget = Some(budget)) else { return };
    let (memory, _) = numbered(&pager, 16 << 20);
    budget.set_fork_room(2 << 20);
    let fork = pager.prepare_fork().unwrap();
    let used = budget.read().used;
    assert!(used * PAGE as u64 <= 6 << 20, "{used} frames of 2048 are in use");
    drop(fork);
    unmap(&pager, &memory);
}
