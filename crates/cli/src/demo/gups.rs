//! HPCC RandomAccess: a table of 2^n words, each holding its own number, and a pseudo-random stream
//! whose every value is xored into the word that its low bits name. Doing the same updates again
//! undoes them: that is how the benchmark verifies, and so does the demo.
//!
//! HPCC allows one wrong word in a hundred, for its threads race. Here an update is one atomic
//! instruction, and no wrong word is allowed.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The stream's primitive polynomial is x^64 + x^2 + x + 1; these are its low terms.
const POLYNOMIAL: u64 = 7;
/// Updates between two reports of progress.
const STEP: u64 = 256;

/// The stream, from some place on. Its value after n updates is x^n modulo the polynomial.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream(u64);

impl Stream {
    /// The stream after `n` updates.
    pub(crate) fn after(n: u64) -> Self {
        let (mut power, mut square) = (1, 2);
        for bit in 0..64 {
            if n >> bit & 1 == 1 {
                power = product(power, square);
            }
            square = product(square, square);
        }
        Self(power)
    }

    fn next(&mut self) -> u64 {
        self.0 = times_x(self.0);
        self.0
    }
}

fn times_x(value: u64) -> u64 {
    value << 1 ^ if value >> 63 == 1 { POLYNOMIAL } else { 0 }
}

fn product(a: u64, b: u64) -> u64 {
    (0..64).rev().fold(0, |sum, bit| times_x(sum) ^ if b >> bit & 1 == 1 { a } else { 0 })
}

/// The part of `from..to` that thread `n` of `threads` does.
fn share(from: u64, to: u64, n: u32, threads: u32) -> (u64, u64) {
    let at = |n: u32| from + (u128::from(to - from) * u128::from(n) / u128::from(threads)) as u64;
    (at(n), at(n + 1))
}

/// Runs `work` on each thread's part of `from..to` and returns what they give.
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

/// Stores its own number in every word.
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

/// Does updates `from..to` of the stream.
pub(crate) fn update(table: &[AtomicU64], threads: u32, from: u64, to: u64, done: &AtomicU64) {
    let mask = table.len() as u64 - 1;
    in_parallel(from, to, threads, |mut from, to| {
        let mut stream = Stream::after(from);
        while from < to {
            let step = STEP.min(to - from);
            for _ in 0..step {
                let value = stream.next();
                table[(value & mask) as usize].fetch_xor(value, Relaxed);
            }
            done.fetch_add(step, Relaxed);
            from += step;
        }
    });
}

/// Counts the words that do not hold their own number.
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
    fn the_stream_can_be_entered_anywhere() {
        let mut walked = Stream::after(0);
        assert_eq!(walked.0, 1);
        for n in 1..2000 {
            walked.next();
            assert_eq!(Stream::after(n).0, walked.0, "after {n} updates");
        }
        let mut far = Stream::after(1 << 40);
        for _ in 0..100 {
            far.next();
        }
        assert_eq!(Stream::after((1 << 40) + 100).0, far.0);
    }

    #[test]
    fn the_same_updates_again_restore_the_table_whatever_the_threads() {
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
    fn one_update_too_many_is_seen() {
        let table = table(1 << 10);
        let done = AtomicU64::new(0);
        update(&table, 2, 0, 1000, &done);
        update(&table, 2, 0, 1001, &done);
        assert_eq!(wrong_words(&table, 2), 1);
    }
}
