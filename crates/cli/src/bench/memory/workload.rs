//! The workloads, and the verification of every value that they read.
//!
//! The low bits of a word count its updates; the other bits are a function of its index. Every access can therefore
//! detect a word that was lost, that is older than the fill, or that belongs to another index. At the end the update
//! counts of a sample of words are compared with the counts that the same random numbers give again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use deepram_peers::{ByCall, Memory};
use deepram_trace::workload::{Permutation, Rng, Zipf, mix64};
use serde::{Deserialize, Serialize};

/// Low bits of a word that count its updates.
const COUNT_BITS: u32 = 24;
/// Words in a 4 KiB page.
const PAGE_WORDS: u64 = 512;
/// Pages of a row.
const ROW_PAGES: u64 = 4;
/// Skew of the Zipf accesses, as in YCSB.
const THETA: f64 = 0.99;
/// Elements in one gather.
pub(super) const BATCH: usize = 1024;
/// Approximate number of updates whose words are compared at the end.
const SAMPLE: u64 = 4096;

/// Access patterns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::bench) enum Workload {
    /// Uniform read-modify-writes of 8 bytes.
    Updates,
    /// Uniform reads of 8 bytes.
    Reads,
    /// Zipf-distributed reads of pages in shuffled order.
    Zipf,
    /// Uniform reads of rows of [`ROW_PAGES`] pages: one word of each page.
    Rows,
    /// Sequential reads in steps of a page.
    Scan,
    /// Uniform reads in batches of [`BATCH`] whose indices are known in advance.
    Gather,
}

impl Workload {
    /// Title of the table of results.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Updates => "GUPS: uniform read-modify-writes of 8 bytes",
            Self::Reads => "GUPS, reads only: uniform reads of 8 bytes",
            Self::Zipf => "Zipf 0.99 reads of 8 bytes, pages shuffled",
            Self::Rows => "rows of 16 KiB in random order",
            Self::Scan => "sequential reads in steps of 4 KiB",
            Self::Gather => "gathers of 1,024 random elements of 8 bytes",
        }
    }
}

/// The value that the fill gives a word.
pub(super) fn initial_value(word: u64) -> u64 {
    mix64(word) << COUNT_BITS
}

/// Whether a word can hold `found` after any number of updates.
fn is_valid(word: u64, found: u64) -> bool {
    (found ^ initial_value(word)) >> COUNT_BITS == 0
}

/// The accesses of one thread.
pub(super) trait AccessStream {
    /// Makes one access, or one batch of them, and returns the number of wrong words.
    fn step(&mut self) -> u64;
}

/// The random numbers of a thread, equal at every call.
fn thread_rng(seed: u64, thread: u32) -> Rng {
    Rng::new(seed.wrapping_add(u64::from(thread)), "bench memory")
}

/// Words that are loaded one at a time.
pub(super) trait LoadWords {
    fn count(&self) -> u64;

    /// Loads a word and checks its value.
    fn is_valid(&self, word: u64) -> bool;
}

impl LoadWords for &[AtomicU64] {
    #[inline]
    fn count(&self) -> u64 {
        self.len() as u64
    }

    #[inline]
    fn is_valid(&self, word: u64) -> bool {
        is_valid(word, self[word as usize].load(Relaxed))
    }
}

impl LoadWords for &ByCall {
    #[inline]
    fn count(&self) -> u64 {
        self.words().len() as u64
    }

    #[inline]
    fn is_valid(&self, word: u64) -> bool {
        match self.load(word) {
            Ok(found) => is_valid(word, found),
            Err(error) => {
                eprintln!("{error}");
                false
            }
        }
    }
}

/// Uniform reads.
pub(super) struct Uniform<L> {
    words: L,
    rng: Rng,
}

impl<L: LoadWords> Uniform<L> {
    pub(super) fn new(words: L, seed: u64, thread: u32) -> Self {
        Self { words, rng: thread_rng(seed, thread) }
    }
}

impl<L: LoadWords> AccessStream for Uniform<L> {
    #[inline]
    fn step(&mut self) -> u64 {
        let at = self.rng.below(self.words.count());
        u64::from(!self.words.is_valid(at))
    }
}

/// Reads of the pages of rows, each row in order, rows in random order.
pub(super) struct Rows<L> {
    words: L,
    rng: Rng,
}

impl<L: LoadWords> Rows<L> {
    pub(super) fn new(words: L, seed: u64, thread: u32) -> Self {
        Self { words, rng: thread_rng(seed, thread) }
    }
}

impl<L: LoadWords> AccessStream for Rows<L> {
    fn step(&mut self) -> u64 {
        let row_words = ROW_PAGES * PAGE_WORDS;
        let first = self.rng.below(self.words.count() / row_words) * row_words;
        (0..ROW_PAGES).map(|page| u64::from(!self.words.is_valid(first + page * PAGE_WORDS))).sum()
    }
}

/// Uniform read-modify-writes.
pub(super) struct Updates<'a> {
    words: &'a [AtomicU64],
    rng: Rng,
}

impl<'a> Updates<'a> {
    pub(super) fn new(words: &'a [AtomicU64], seed: u64, thread: u32) -> Self {
        Self { words, rng: thread_rng(seed, thread) }
    }
}

impl AccessStream for Updates<'_> {
    #[inline]
    fn step(&mut self) -> u64 {
        let at = self.rng.below(self.words.len() as u64);
        u64::from(!is_valid(at, self.words[at as usize].fetch_add(1, Relaxed)))
    }
}

/// Zipf-distributed reads of pages in shuffled order.
pub(super) struct Skewed<L> {
    words: L,
    rng: Rng,
    zipf: Zipf,
    page_order: Permutation,
}

impl<L: LoadWords> Skewed<L> {
    pub(super) fn new(words: L, seed: u64, thread: u32) -> Self {
        let pages = words.count() / PAGE_WORDS;
        let (zipf, page_order) = (Zipf::new(pages, THETA), Permutation::new(pages, seed));
        Self { words, rng: thread_rng(seed, thread), zipf, page_order }
    }
}

impl<L: LoadWords> AccessStream for Skewed<L> {
    #[inline]
    fn step(&mut self) -> u64 {
        let page = self.page_order.at(self.zipf.sample(&mut self.rng));
        let at = page * PAGE_WORDS + self.rng.below(PAGE_WORDS);
        u64::from(!self.words.is_valid(at))
    }
}

/// Sequential reads. Each thread repeats its own part of the pages.
pub(super) struct Scan<L> {
    words: L,
    /// First page of the part.
    first: u64,
    end: u64,
    next: u64,
}

impl<L: LoadWords> Scan<L> {
    pub(super) fn new(words: L, thread: u32, threads: u32) -> Self {
        let pages = words.count() / PAGE_WORDS;
        let border = |thread: u32| pages * u64::from(thread) / u64::from(threads);
        let (first, end) = (border(thread), border(thread + 1));
        Self { words, first, end, next: first }
    }
}

impl<L: LoadWords> AccessStream for Scan<L> {
    #[inline]
    fn step(&mut self) -> u64 {
        let at = self.next * PAGE_WORDS;
        self.next += 1;
        if self.next == self.end {
            self.next = self.first;
        }
        u64::from(!self.words.is_valid(at))
    }
}

/// Batches of uniform reads.
pub(super) struct Gather<'a> {
    memory: &'a dyn Memory,
    words: u64,
    rng: Rng,
    hints: bool,
    batch: Vec<usize>,
    found: Vec<u64>,
}

impl<'a> Gather<'a> {
    pub(super) fn new(memory: &'a dyn Memory, seed: u64, thread: u32, hints: bool) -> Self {
        let (words, rng) = (memory.words().len() as u64, thread_rng(seed, thread));
        Self { memory, words, rng, hints, batch: Vec::with_capacity(BATCH), found: vec![0; BATCH] }
    }
}

impl AccessStream for Gather<'_> {
    fn step(&mut self) -> u64 {
        self.batch.clear();
        self.batch.extend((0..BATCH).map(|_| self.rng.below(self.words) as usize));
        if let Err(error) = self.memory.gather(&self.batch, &mut self.found, self.hints) {
            eprintln!("{error}");
            return BATCH as u64;
        }
        self.batch.iter().zip(&self.found).filter(|(at, found)| !is_valid(**at as u64, **found)).count()
            as u64
    }
}

/// Compares a sample of updated words with their expected update counts. `made` has the number of updates of each thread.
/// Returns the number of words compared and the number of wrong words.
pub(super) fn compare_updates(words: &[AtomicU64], seed: u64, made: &[u64]) -> (u64, u64) {
    let len = words.len() as u64;
    let every = (made.iter().sum::<u64>() / SAMPLE).max(1);
    let mut counts = HashMap::new();
    for (thread, made) in (0..).zip(made) {
        let mut rng = thread_rng(seed, thread);
        for _ in 0..*made {
            let at = rng.below(len);
            // The sample takes all updates of a word or none of them.
            if mix64(at ^ seed).is_multiple_of(every) {
                *counts.entry(at).or_insert(0u64) += 1;
            }
        }
    }
    // In order of addresses, so that the device reads sequentially.
    let mut counts: Vec<(u64, u64)> = counts.into_iter().collect();
    counts.sort_unstable();
    let right = |(at, count): &(u64, u64)| {
        words[*at as usize].load(Relaxed) == initial_value(*at).wrapping_add(*count)
    };
    let wrong = counts.iter().filter(|entry| !right(entry)).count();
    (counts.len() as u64, wrong as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use deepram_peers::Anonymous;

    const WORDS: usize = 64 * PAGE_WORDS as usize;

    fn filled() -> Anonymous {
        let memory = Anonymous::new(WORDS * 8).unwrap();
        memory.fill(initial_value).unwrap();
        memory
    }

    fn wrong(mut stream: impl AccessStream, steps: usize) -> u64 {
        (0..steps).map(|_| stream.step()).sum()
    }

    #[test]
    fn a_wrong_word_is_found_by_every_workload() {
        let memory = filled();
        let words = memory.words();
        let all = |expected: bool| {
            let found = [
                wrong(Uniform::new(words, 1, 0), 1000),
                wrong(Updates::new(words, 1, 0), 1000),
                wrong(Skewed::new(words, 1, 0), 1000),
                wrong(Scan::new(words, 1, 2), 1000),
                wrong(Gather::new(&memory, 1, 0, true), 2),
            ];
            assert!(found.iter().all(|wrong| (*wrong > 0) == expected), "{found:?}");
        };
        all(false);
        // Each word gets the value of the next one.
        (0..).zip(words).for_each(|(n, word)| word.store(initial_value(n + 1), Relaxed));
        all(true);
    }

    #[test]
    fn lost_updates_are_found() {
        let memory = filled();
        let words = memory.words();
        let made = [20_000, 10_000];
        for (thread, made) in (0..).zip(made) {
            assert_eq!(wrong(Updates::new(words, 7, thread), made as usize), 0);
        }
        let (compared, bad) = compare_updates(words, 7, &made);
        assert!(compared > 1000 && bad == 0, "{compared} compared, {bad} wrong");
        assert!(compare_updates(words, 7, &[20_000, 9_000]).1 > 0, "updates that were not made");
        words.iter().for_each(|word| word.store(word.load(Relaxed) >> COUNT_BITS << COUNT_BITS, Relaxed));
        assert_eq!(compare_updates(words, 7, &made).1, compared);
    }

    #[test]
    fn a_scan_reads_each_page_of_its_part_once_a_round() {
        let memory = filled();
        let mut pages: Vec<u64> = Vec::new();
        for thread in 0..3 {
            let mut scan = Scan::new(memory.words(), thread, 3);
            for _ in scan.first..scan.end {
                pages.push(scan.next);
                scan.step();
            }
            assert_eq!(scan.next, scan.first);
        }
        assert_eq!(pages, (0..64).collect::<Vec<_>>());
    }
}
