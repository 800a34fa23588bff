//! Tests of forked children: they see memory as it was at the fork, and copy pages that their parent still has.

use std::io::{PipeReader, PipeWriter, Read, Write};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::tests::{Memory, numbered, pager, unmap};
use super::tests_clean_pages::{PAGES, clean, evict, settled};
use super::*;
use deepram_linux::descriptors::OpenGuard;

/// Forks, and runs `body` in the child with the child's pager.
pub(super) fn fork(pager: &Pager, body: impl FnOnce(&Pager)) -> libc::pid_t {
    let fork = pager.prepare_fork().unwrap();
    // No other test holds this lock in the child.
    let opening = OpenGuard::acquire();
    // SAFETY: the child below calls what the pager and these tests define, and `_exit`.
    match unsafe { libc::fork() } {
        0 => {
            drop(opening);
            let run = || {
                let own = fork.child(&Spans::new(), &Spans::new()).expect("the child has a pager");
                body(&own);
                // Its threads end with the process.
                std::mem::forget(own);
            };
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(result.is_err())) }
        }
        child => {
            assert!(child > 0);
            fork.parent();
            child
        }
    }
}

pub(super) fn wait_for(child: libc::pid_t) {
    let mut status = 0;
    // SAFETY: waits for a child of this process.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child has failed; its message is above");
}

/// Lets the process at the other end go on.
fn signal(pipe: &mut PipeWriter) {
    pipe.write_all(&[1]).unwrap();
}

fn wait_for_signal(pipe: &mut PipeReader) {
    pipe.read_exact(&mut [0]).unwrap();
}

/// Pages that the process has copied from its parent, and reads that it has made.
fn copied_and_read(pager: &Pager) -> (u64, u64) {
    let stats = settled(pager);
    (stats.copied_from_parent, stats.reads)
}

/// To evict a page that the parent has too would free no frame.
#[test]
fn a_child_evicts_pages_that_it_has_alone_first() {
    const ALONE: usize = 50;
    let without_neighbours =
        |options: &mut PagerOptions| (options.readahead, options.huge_pages) = (false, false);
    let Some(pager) = pager(8 << 20, without_neighbours) else { return };
    let (memory, pages) = numbered(&pager, 2 << 20);
    let child = fork(&pager, |own| {
        let inner = &own.inner;
        let is_shared = |page: usize| inner.proc_files.is_shared(memory.start + page * PAGE);
        assert!((0..pages).all(is_shared));
        // Copies of its own.
        let alone: Vec<usize> = (0..pages).step_by(2).collect();
        alone.iter().for_each(|page| memory.set(page * 512, 100));
        assert!((0..pages).all(|page| is_shared(page) != alone.contains(&page)));
        let space = inner.read();
        let free = inner.frames.limit() - inner.frames.used();
        inner.evict_synchronously(&space, free + ALONE);
        let mut evicted = Vec::new();
        space.page_table.each_known(memory.start, memory.start + memory.len, |address, page| {
            evicted.extend(page.state.resident().is_none().then_some((address - memory.start) / PAGE));
        });
        assert!(evicted.len() >= ALONE, "{evicted:?}");
        assert!(evicted.iter().all(|page| alone.contains(page)), "{evicted:?}");
    });
    wait_for(child);
    unmap(&pager, &memory);
}

#[test]
fn a_child_sees_memory_as_at_the_fork() {
    let Some(pager) = pager(4 << 20, |_| {}) else { return };
    let (memory, pages) = numbered(&pager, 16 << 20);
    let child = fork(&pager, |_| {
        (0..pages).for_each(|page| assert_eq!(memory.get(page * 512), page as u64));
        (0..pages).for_each(|page| memory.set(page * 512, 1));
        (0..pages).for_each(|page| assert_eq!(memory.get(page * 512), 1, "page {page}"));
    });
    (0..pages).for_each(|page| memory.set(page * 512, 2));
    wait_for(child);
    assert!((0..pages).all(|page| memory.get(page * 512) == 2));
    unmap(&pager, &memory);
}

/// The child leaves clean pages to its parent, but not those that a store has changed before the fork.
#[test]
fn a_child_sees_the_stores_to_clean_pages() {
    let Some((pager, memory)) = clean(|_| {}) else { return };
    (0..PAGES).step_by(2).for_each(|page| memory.set(page * 512, 100));
    let expected = |page: usize| if page.is_multiple_of(2) { 100 } else { page as u64 };
    let child = fork(&pager, |own| {
        assert_eq!(own.inner.frames.paged(), PAGES / 2);
        (0..PAGES).for_each(|page| assert_eq!(memory.get(page * 512), expected(page)));
    });
    wait_for(child);
    assert!((0..PAGES).all(|page| memory.get(page * 512) == expected(page)));
    unmap(&pager, &memory);
}

#[test]
fn a_child_copies_pages_that_its_parent_has_in_memory() {
    let Some((pager, memory)) = clean(|_| {}) else { return };
    let child = fork(&pager, |own| {
        (0..PAGES).for_each(|page| assert_eq!(memory.get(page * 512), page as u64));
        assert_eq!(copied_and_read(own), (PAGES as u64, 0));
    });
    wait_for(child);
    unmap(&pager, &memory);
}

#[test]
fn a_child_may_no_longer_read_its_parent() {
    let Some((pager, memory)) = clean(|_| {}) else { return };
    let child = fork(&pager, |own| {
        own.close_parent_memory();
        (0..PAGES).for_each(|page| assert_eq!(memory.get(page * 512), page as u64));
        assert_eq!(copied_and_read(own), (0, PAGES as u64));
    });
    wait_for(child);
    unmap(&pager, &memory);
}

/// How many of the pages come ahead of their use depends on the speed of child and handlers.
#[test]
fn a_child_copies_pages_of_a_stream() {
    let Some((pager, memory)) = clean(|options| options.readahead = true) else { return };
    let child = fork(&pager, |own| {
        (0..PAGES).for_each(|page| assert_eq!(memory.get(page * 512), page as u64));
        assert_eq!(copied_and_read(own), (PAGES as u64, 0));
        assert!(own.stats().readahead_pages > 0, "{:?}", own.stats());
    });
    wait_for(child);
    unmap(&pager, &memory);
}

#[test]
fn a_child_copies_a_window_ahead_of_its_use() {
    let Some((pager, memory)) = clean(|options| options.readahead = true) else { return };
    let child = fork(&pager, |own| {
        own.will_need(memory.start, memory.len);
        while own.stats().copied_from_parent < PAGES as u64 {
            std::thread::yield_now();
        }
        (0..PAGES).for_each(|page| assert_eq!(memory.get(page * 512), page as u64));
        let stats = settled(own);
        assert_eq!((stats.copied_from_parent, stats.reads, stats.faults_major), (PAGES as u64, 0, 0));
    });
    wait_for(child);
    unmap(&pager, &memory);
}

#[test]
fn a_child_reads_pages_that_its_parent_has_changed_or_evicted() {
    let Some((pager, memory)) = clean(|_| {}) else { return };
    let (mut changed, mut change) = io::pipe().unwrap();
    let child = fork(&pager, |own| {
        wait_for_signal(&mut changed);
        (0..PAGES).for_each(|page| assert_eq!(memory.get(page * 512), page as u64));
        assert_eq!(copied_and_read(own), (PAGES as u64 / 2, PAGES as u64 / 2));
    });
    (0..PAGES / 4).for_each(|page| memory.set(page * 512 + 1, 1));
    pager.evict_range(memory.start + PAGES / 4 * PAGE, PAGES / 4 * PAGE);
    signal(&mut change);
    wait_for(child);
    unmap(&pager, &memory);
}

#[test]
fn a_child_copies_nothing_after_its_parent_has_ended() {
    let Some((pager, memory)) = clean(|_| {}) else { return };
    let (mut done, mut grandchild_is_done) = io::pipe().unwrap();
    let child = fork(&pager, |own| {
        let (mut ended, end) = io::pipe().unwrap();
        let mut end = Some(end);
        (0..PAGES).for_each(|page| memory.set(page * 512, page as u64 + 1));
        evict(own, &memory);
        (0..PAGES).for_each(|page| assert_eq!(memory.get(page * 512), page as u64 + 1));
        fork(own, |own| {
            drop(end.take());
            // The end of the file: the parent has ended.
            assert_eq!(ended.read(&mut [0]).unwrap(), 0);
            (0..PAGES).for_each(|page| assert_eq!(memory.get(page * 512), page as u64 + 1));
            assert_eq!(copied_and_read(own), (0, PAGES as u64));
            signal(&mut grandchild_is_done);
        });
        // Open until this process has ended.
        std::mem::forget(end);
    });
    wait_for(child);
    drop(grandchild_is_done);
    wait_for_signal(&mut done);
    unmap(&pager, &memory);
}

/// A page that the child has evicted is copied if the parent has the same bytes, and not if the child has changed it.
#[test]
fn a_child_copies_pages_that_it_has_evicted_itself() {
    let Some((pager, memory)) = clean(|_| {}) else { return };
    (0..PAGES).for_each(|page| memory.set(page * 512 + 1, 5));
    let child = fork(&pager, |own| {
        (0..PAGES / 2).for_each(|page| memory.set(page * 512 + 1, 6));
        evict(own, &memory);
        for page in 0..PAGES {
            let second = if page < PAGES / 2 { 6 } else { 5 };
            assert_eq!((memory.get(page * 512), memory.get(page * 512 + 1)), (page as u64, second));
        }
        assert_eq!(copied_and_read(own), (PAGES as u64 / 2, PAGES as u64 / 2));
    });
    wait_for(child);
    unmap(&pager, &memory);
}

/// Random stores and evictions, in which words often get a value back that they had before, in a process while its child does
/// the same. Each compares its memory with a copy of its own.
fn store_and_evict(
    pager: &Pager,
    memory: &Memory,
    shadow: &mut [u64],
    random: &mut ChaCha8Rng,
    steps: usize,
) {
    for _ in 0..steps {
        let page = random.random_range(0..PAGES);
        match random.random_range(0..8) {
            0 => {
                let count = random.random_range(1..=PAGES - page);
                pager.evict_range(memory.start + page * PAGE, count * PAGE);
            }
            1..4 => {
                shadow[page] = random.random_range(0..2);
                memory.set(page * 512, shadow[page]);
            }
            _ => assert_eq!(memory.get(page * 512), shadow[page], "page {page}"),
        }
    }
}

#[test]
fn three_generations_see_their_own_memory() {
    const STEPS: usize = 2000;
    for seed in 0..20 {
        eprintln!("seed {seed}");
        let Some((pager, memory)) = clean(|options| options.readahead = seed % 2 == 1) else { return };
        let mut shadow: Vec<u64> = (0..PAGES as u64).collect();
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        store_and_evict(&pager, &memory, &mut shadow, &mut random, STEPS);
        let mut of_child = shadow.clone();
        let child = fork(&pager, |own| {
            let mut random = ChaCha8Rng::seed_from_u64(seed + 100);
            store_and_evict(own, &memory, &mut of_child, &mut random, STEPS);
            let mut of_grandchild = of_child.clone();
            let grandchild = fork(own, |own| {
                let mut random = ChaCha8Rng::seed_from_u64(seed + 200);
                store_and_evict(own, &memory, &mut of_grandchild, &mut random, STEPS);
            });
            store_and_evict(own, &memory, &mut of_child, &mut random, STEPS);
            wait_for(grandchild);
        });
        store_and_evict(&pager, &memory, &mut shadow, &mut random, STEPS);
        wait_for(child);
        unmap(&pager, &memory);
    }
}
