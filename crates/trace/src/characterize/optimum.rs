//! Misses of the optimal replacement (Belady's MIN): the page leaves whose next access is the farthest. No policy that brings
//! in each missed page has fewer.

use std::collections::BinaryHeap;

use super::policies::sampled_capacity;

/// Its name where policies have names.
pub const OPTIMUM: &str = "optimum";

/// All accesses, as later ones decide which page leaves.
pub(super) struct Optimum {
    /// Capacities of the caches, in pages, and the sampling rate.
    capacities: Vec<u64>,
    rate: f64,
    numbers: Vec<u32>,
    writes: Vec<bool>,
}

/// The next access of a page that is not accessed again.
const NEVER: usize = usize::MAX;

impl Optimum {
    /// No accesses yet, in caches of these capacities. On a sample of the pages, they are `rate` times as large.
    pub(super) fn new(capacities: Vec<u64>, rate: f64) -> Self {
        Self { capacities, rate, numbers: Vec::new(), writes: Vec::new() }
    }

    /// Appends accesses to pages, each with whether it is written.
    pub(super) fn access_all(&mut self, accesses: impl Iterator<Item = (u32, bool)>) {
        for (page, write) in accesses {
            self.numbers.push(page);
            self.writes.push(write);
        }
    }

    /// Reads and writes.
    pub(super) fn accesses(&self) -> [u64; 2] {
        let writes = self.writes.iter().filter(|write| **write).count() as u64;
        [self.writes.len() as u64 - writes, writes]
    }

    /// Reads and writes that miss, for each capacity.
    pub(super) fn misses(&self) -> Vec<(u64, [u64; 2])> {
        let pages = self.numbers.iter().max().map_or(0, |most| *most as usize + 1);
        let mut next = vec![NEVER; self.numbers.len()];
        let mut later = vec![NEVER; pages];
        for (at, page) in self.numbers.iter().enumerate().rev() {
            next[at] = std::mem::replace(&mut later[*page as usize], at);
        }
        let of = |capacity| self.misses_of(&next, pages, sampled_capacity(capacity, self.rate));
        self.capacities.iter().map(|capacity| (*capacity, of(*capacity))).collect()
    }

    fn misses_of(&self, next: &[usize], pages: usize, capacity: usize) -> [u64; 2] {
        let mut misses = [0; 2];
        // The next access of each page in the cache.
        let mut cached: Vec<Option<usize>> = vec![None; pages];
        let mut used = 0;
        // Next accesses of pages; an entry that the page's next access no longer equals is obsolete.
        let mut farthest = BinaryHeap::new();
        for ((page, write), next) in self.numbers.iter().zip(&self.writes).zip(next) {
            if cached[*page as usize].is_none() {
                misses[usize::from(*write)] += 1;
                used += 1;
                while used > capacity
                    && let Some((at, victim)) = farthest.pop()
                {
                    if cached[victim as usize] == Some(at) {
                        cached[victim as usize] = None;
                        used -= 1;
                    }
                }
            }
            cached[*page as usize] = Some(*next);
            farthest.push((*next, *page));
        }
        misses
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use deepram_core::cache::Policy;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn optimum(numbers: &[u32], capacities: &[u64]) -> Optimum {
        let mut optimum = Optimum::new(capacities.to_vec(), 1.0);
        optimum.access_all(numbers.iter().map(|page| (*page, page % 2 == 1)));
        optimum
    }

    /// The fewest misses over all choices of victims.
    fn fewest(numbers: &[u32], cached: &BTreeSet<u32>, capacity: usize) -> u64 {
        let Some((page, rest)) = numbers.split_first() else { return 0 };
        if cached.contains(page) {
            return fewest(rest, cached, capacity);
        }
        let with = |without: Option<u32>| {
            let kept = cached.iter().copied().filter(|page| Some(*page) != without);
            fewest(rest, &kept.chain([*page]).collect(), capacity)
        };
        let best = if cached.len() < capacity {
            with(None)
        } else {
            cached.iter().map(|victim| with(Some(*victim))).min().unwrap_or_default()
        };
        1 + best
    }

    proptest! {
        #[test]
        fn no_choice_of_victims_misses_less(numbers in proptest::collection::vec(0u32..5, 0..12), capacity in 1usize..4) {
            let (_, [reads, writes]) = optimum(&numbers, &[capacity as u64]).misses()[0];
            prop_assert_eq!(reads + writes, fewest(&numbers, &BTreeSet::new(), capacity));
        }

        #[test]
        fn no_policy_misses_less(numbers in proptest::collection::vec(0u32..50, 0..400), capacity in 1usize..40) {
            let (_, [reads, writes]) = optimum(&numbers, &[capacity as u64]).misses()[0];
            for policy in Policy::ALL {
                prop_assert!(reads + writes <= policy.build(capacity).access_all(&numbers), "{}", policy);
            }
        }
    }

    #[test]
    fn a_loop_over_one_page_too_many_misses_once_in_each_round_but_one() {
        // Of n + 1 pages in turn, the optimum keeps n - 1 and misses one access in n.
        let numbers: Vec<u32> = (0..400).map(|n| n % 5).collect();
        let optimum_of = optimum(&numbers, &[4, 5, 1]);
        let misses: Vec<u64> =
            optimum_of.misses().iter().map(|(_, [reads, writes])| reads + writes).collect();
        assert_eq!(misses, [4 + 99, 5, 400]);
        assert_eq!(optimum_of.accesses(), [240, 160]);
        assert_eq!(optimum(&[], &[3]).misses(), [(3, [0, 0])]);
    }
}
