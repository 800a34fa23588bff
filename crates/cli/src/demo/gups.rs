//! HPCC RandomAccess: a table of 2^n words, each initialised to its own index, and a pseudo-random
//! sequence. Each number of the sequence is xored into the word that its low bits select. The same
//! updates a second time restore the table; the benchmark verifies the table so, and so does the demo.
//!
//! HPCC allows one wrong word in a hundred, because its threads race. Here an update is one atomic
//! instruction, and no wrong word is allowed.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use deepram_trace::workload::{hpcc_starts, hpcc_step};

/// Updates between two reports of progress.
const STEP: u64 = 256;

/// The part of `from..to` for thread `n` of `threads`.
fn share(from: u64, to: u64, n: u32, threads: u32) -> (u64, u64) {
    let at = |n: u32| from + (u128::from(to - from) * u128::from(n) / u128::from(threads)) as u64;
    (at(n), at(n + 1))
}

/// Runs `work` on each thread's part of `from..to` and returns the results.
fn in_parallel<T: Send>(from: u64, to: u64, threads: u32, work: impl Fn(u64, u64) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = (0..threads)
            .map(|n| {
                let (from, to) = share(from, to, n, threads);
                scope.spawn(move || work(from, to))
            })
            .collect();
        running.into_iter().map(|thread| thread.join().expect("the work does not panic")).collect()
    })
}

/// Stores the index of each word in it.
pub(crate) fn fill(table: &[AtomicU64], threads: u32, done: &AtomicU64) {
    in_parallel(0, table.len() as u64, threads, |from, to| {
        for at in from..to {
            table[at as usize].store(at, Relaxed);
            if at % 4096 == 0 {
                done.fetch_add(4096, Relaxed);
            }
        }
    });
}

/// Makes updates `from..to` of the sequence.
pub(crate) fn update(table: &[AtomicU64], threads: u32, from: u64, to: u64, done: &AtomicU64) {
    let mask = table.len() as u64 - 1;
    in_parallel(from, to, threads, |mut from, to| {
        let mut value = hpcc_starts(from);
        while from < to {
            let step = STEP.min(to - from);
            for _ in 0..step {
                value = hpcc_step(value);
                table[(value & mask) as usize].fetch_xor(value, Relaxed);
            }
            done.fetch_add(step, Relaxed);
            from += step;
        }
    });
}

/// Counts the words that do not hold their own index.
pub(crate) fn wrong_words(table: &[AtomicU64], threads: u32) -> u64 {
    let wrong = in_parallel(0, table.len() as u64, threads, |from, to| {
        (from..to).filter(|&at| table[at as usize].load(Relaxed) != at).count() as u64
    });
    wrong.into_iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(words: u64) -> Vec<AtomicU64> {
        let table: Vec<AtomicU64> = (0..words).map(|_| AtomicU64::new(0)).collect();
        fill(&table, 3, &AtomicU64::new(0));
        table
    }

    #[test]
    fn the_sequence_can_be_entered_anywhere() {
        let mut walked = hpcc_starts(0);
        assert_eq!(walked, 1);
        for n in 1..2000 {
            walked = hpcc_step(walked);
            assert_eq!(hpcc_starts(n), walked, "after {n} updates");
        }
        let far = (0..100).fold(hpcc_starts(1 << 40), |value, _| hpcc_step(value));
        assert_eq!(hpcc_starts((1 << 40) + 100), far);
    }

    #[test]
    fn the_same_updates_restore_the_table_for_any_number_of_threads() {
        let table = table(1 << 12);
        let done = AtomicU64::new(0);
        update(&table, 4, 0, 40_000, &done);
        update(&table, 1, 40_000, 50_001, &done);
        assert_eq!(done.load(Relaxed), 50_001);
        assert!(wrong_words(&table, 2) > 3000, "nearly every word has changed");
        update(&table, 3, 0, 50_001, &done);
        assert_eq!(wrong_words(&table, 2), 0);
    }

    #[test]
    fn one_update_too_many_is_detected() {
        let table = table(1 << 10);
        let done = AtomicU64::new(0);
        update(&table, 2, 0, 1000, &done);
        update(&table, 2, 0, 1001, &done);
        assert_eq!(wrong_words(&table, 2), 1);
    }
}
