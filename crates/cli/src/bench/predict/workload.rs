//! The access patterns that are predicted: the same accesses for the real memory and for the simulated one.

use clap::ValueEnum;
use deepram_trace::workload::{Permutation, Rng, Zipf, mix64};
use deepram_trace::{Op, Request};

use super::PAGE;

/// Words of a page.
const PAGE_WORDS: u64 = PAGE / 8;
/// Skew of the Zipf accesses, as in YCSB.
const THETA: f64 = 0.99;

/// What is predicted: loops over an array, and two recorded programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Workload {
    /// Random loads
    Reads,
    /// Random updates
    Updates,
    /// Zipf-distributed loads of pages in shuffled order
    Zipf,
    /// A load of each page in turn
    Scan,
    /// SQLite: a table in memory is filled and indexed
    Sqlite,
    /// GNU sort of random lines
    Sort,
}

impl Workload {
    pub(super) const ARRAYS: [Self; 4] = [Self::Reads, Self::Updates, Self::Zipf, Self::Scan];
    pub(super) const PROGRAMS: [Self; 2] = [Self::Sqlite, Self::Sort];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Reads => "GUPS reads",
            Self::Updates => "GUPS updates",
            Self::Zipf => "Zipf reads",
            Self::Scan => "scan",
            Self::Sqlite => "SQLite load",
            Self::Sort => "GNU sort",
        }
    }

    pub(super) fn writes(self) -> bool {
        self == Self::Updates
    }

    /// Accesses of the warm-up, and of the measurement: twice the data for a scan, so that every page of the warm-up has left.
    pub(super) fn count(self, data: u64, accesses: u64) -> u64 {
        if self == Self::Scan { 2 * data / PAGE } else { accesses }
    }

    /// The words that are accessed, without end.
    pub(super) fn words(self, data: u64) -> impl Iterator<Item = u64> {
        let (words, pages) = (data / 8, data / PAGE);
        let zipf = (self == Self::Zipf).then(|| (Zipf::new(pages, THETA), Permutation::new(pages, 1)));
        let mut rng = Rng::new(1, "bench predict");
        (0..).map(move |n| match &zipf {
            Some((zipf, order)) => order.at(zipf.sample(&mut rng)) * PAGE_WORDS,
            None if self == Self::Scan => n % pages * PAGE_WORDS,
            None => mix64(n) % words,
        })
    }

    /// The same accesses as requests.
    pub(super) fn requests<E>(self, data: u64, count: u64) -> impl Iterator<Item = Result<Request, E>> {
        let op = if self.writes() { Op::Write } else { Op::Read };
        self.words(data).take(count as usize).map(move |word| Ok(request(word * 8, op)))
    }
}

/// A request of one word.
pub(super) fn request(offset: u64, op: Op) -> Request {
    Request { time_ps: None, device: 0, offset, len: 8, op }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_and_simulated_accesses_are_the_same_and_within_the_data() {
        let data = 64 * PAGE;
        for work in Workload::ARRAYS {
            let words: Vec<u64> = work.words(data).take(1000).collect();
            let requests: Vec<Request> = work.requests(data, 1000).map(Result::<_, ()>::unwrap).collect();
            assert!(
                words.iter().zip(&requests).all(|(word, request)| word * 8 == request.offset),
                "{work:?}"
            );
            assert!(words.iter().all(|word| word * 8 < data), "{work:?}");
            let pages: std::collections::BTreeSet<u64> = words.iter().map(|word| word / PAGE_WORDS).collect();
            assert_eq!(pages.len(), 64, "{work:?} accesses every page");
        }
    }
}
