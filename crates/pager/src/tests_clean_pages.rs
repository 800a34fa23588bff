//! Tests of clean pages: stores to them are found by checksum as they leave (ADR 54).

use super::tests::{Memory, managed, pager, unmap};
use super::*;

pub(super) const PAGES: usize = 64;

/// A pager that reads nothing ahead, and managed memory of which each page begins with its number. All pages are clean.
pub(super) fn clean(change: impl FnOnce(&mut PagerOptions)) -> Option<(Pager, Memory)> {
    let pager = pager(8 << 20, |options| {
        (options.readahead, options.huge_pages) = (false, false);
        change(options);
    })?;
    let memory = managed(&pager, PAGES * PAGE);
    (0..PAGES).for_each(|page| memory.set(page * 512, page as u64));
    assert_eq!(evict(&pager, &memory), PAGES as u64);
    (0..PAGES).for_each(|page| assert_eq!(memory.get(page * 512), page as u64));
    Some((pager, memory))
}

/// The counters, as soon as no page is on its way into memory and no fault is being served.
pub(super) fn settled(pager: &Pager) -> PagerStats {
    drop(pager.inner.write());
    pager.stats()
}

/// Evicts all pages, as soon as none is on its way into memory. Returns how many of them were dirty.
pub(super) fn evict(pager: &Pager, memory: &Memory) -> u64 {
    let before = settled(pager).evicted_dirty_pages;
    pager.evict_range(memory.start, memory.len);
    let after = pager.stats();
    assert_eq!(after.written_back_pages, after.evicted_dirty_pages);
    after.evicted_dirty_pages - before
}

#[test]
fn clean_pages_are_written_only_if_a_store_has_changed_them() {
    let Some((pager, memory)) = clean(|_| {}) else { return };
    assert_eq!(evict(&pager, &memory), 0);
    (0..PAGES).for_each(|page| assert_eq!(memory.get(page * 512), page as u64));
    // The last word of five pages changes; five others keep theirs.
    (10..15).for_each(|page| memory.set(page * 512 + 511, 7));
    (20..25).for_each(|page| memory.set(page * 512, page as u64));
    assert_eq!(evict(&pager, &memory), 5);
    for page in 0..PAGES {
        let last = if (10..15).contains(&page) { 7 } else { 0 };
        assert_eq!((memory.get(page * 512), memory.get(page * 512 + 511)), (page as u64, last));
    }
    assert_eq!(evict(&pager, &memory), 0);
    // A store that brings its page back leaves it dirty, whatever it stores.
    memory.set(3 * 512, 3);
    assert_eq!(evict(&pager, &memory), 1);
    assert_eq!(settled(&pager).faults_write_protected, 0);
    unmap(&pager, &memory);
    assert_eq!(pager.inner.frames.paged(), 0);
}

#[test]
fn clean_pages_that_the_program_makes_unreadable_keep_its_stores() {
    let Some((pager, memory)) = clean(|_| {}) else { return };
    (0..8).for_each(|page| memory.set(page * 512 + 1, 9));
    let protect = |prot| {
        pager.set_unreadable(memory.start, memory.len, prot == libc::PROT_NONE, || {
            let at = std::ptr::with_exposed_provenance_mut(memory.start);
            // SAFETY: the test's own memory.
            unsafe { libc::mprotect(at, memory.len, prot) }
        })
    };
    assert_eq!(protect(libc::PROT_NONE), 0);
    assert_eq!(evict(&pager, &memory), 8);
    assert_eq!(protect(libc::PROT_READ | libc::PROT_WRITE), 0);
    for page in 0..PAGES {
        let second = if page < 8 { 9 } else { 0 };
        assert_eq!((memory.get(page * 512), memory.get(page * 512 + 1)), (page as u64, second));
    }
    unmap(&pager, &memory);
}

#[test]
fn clean_pages_are_protected_where_a_device_may_store_to_them() {
    let Some((pager, memory)) = clean(|_| {}) else { return };
    (0..8).for_each(|page| memory.set(page * 512 + 1, 9));
    if let Err(error) = pager.expect_direct_io() {
        eprintln!("skipped: {error}");
        return unmap(&pager, &memory);
    }
    // A page that could be stored to counts as dirty, as a device may be storing to it.
    assert_eq!(evict(&pager, &memory), PAGES as u64);
    for page in 0..PAGES {
        let second = if page < 8 { 9 } else { 0 };
        assert_eq!((memory.get(page * 512), memory.get(page * 512 + 1)), (page as u64, second));
    }
    memory.set(12 * 512, 0);
    assert_eq!(settled(&pager).faults_write_protected, 1);
    assert_eq!(evict(&pager, &memory), 1);
    assert_eq!(memory.get(12 * 512), 0);
    unmap(&pager, &memory);
}

#[test]
fn a_record_has_the_stores_to_clean_pages() {
    let Some((pager, memory)) = clean(|options| options.record_accesses = true) else { return };
    (0..5).for_each(|page| memory.set(page * 512, 1));
    assert_eq!(settled(&pager).faults_write_protected, 5);
    unmap(&pager, &memory);
}

/// Pages that were read ahead are dropped as they leave, unless a store has changed them.
#[test]
fn stores_to_pages_that_were_read_ahead_are_kept() {
    let Some(pager) = pager(8 << 20, |options| options.huge_pages = false) else { return };
    let memory = managed(&pager, 32 << 20);
    let pages = memory.len / PAGE;
    for round in 0..5 {
        for page in 0..pages {
            let seen = memory.get(page * 512);
            assert_eq!(seen, if page % 3 == 0 { round } else { 0 }, "round {round} page {page}");
            if page % 3 == 0 {
                memory.set(page * 512, round + 1);
            }
        }
    }
    let stats = pager.stats();
    assert!(stats.readahead_pages > 0, "{stats:?}");
    assert_eq!(stats.faults_write_protected, 0);
    unmap(&pager, &memory);
    assert_eq!(pager.inner.frames.paged(), 0);
}
