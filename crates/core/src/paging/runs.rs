//! Joins pages into runs that one system call changes: each call that protects memory interrupts every processor that runs
//! the program, and costs about as much as walking some dozens of page-table entries.

use alloc::vec::Vec;
use core::ops::Range;

/// Largest number of pages between two dirty ones that the pager of `deepram run` protects together (ADR 20).
pub const SWAP_GAP: usize = 128;
/// The same for segments of the pool.
pub const POOL_GAP: usize = 63;

/// Joins ascending numbers into runs (first, last). Two numbers are in one run if at most `gap` others lie between them,
/// and `may_join` allows these to be in the run, if there are any.
pub fn join_runs(
    sorted: impl IntoIterator<Item = usize>,
    gap: usize,
    mut may_join: impl FnMut(Range<usize>) -> bool,
) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for number in sorted {
        match runs.last_mut() {
            Some((_, last))
                if number - *last <= gap + 1 && (number - *last <= 1 || may_join(*last + 1..number)) =>
            {
                *last = number;
            }
            _ => runs.push((number, number)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn runs_contain_all_numbers_and_in_between_only_what_may_be_joined(
            numbers in proptest::collection::btree_set(0usize..300, 0..60),
            forbidden in proptest::collection::btree_set(0usize..300, 0..20),
            gap in 0usize..40,
        ) {
            let forbidden: BTreeSet<usize> = forbidden.difference(&numbers).copied().collect();
            let runs = join_runs(numbers.iter().copied(), gap, |mut between| {
                assert!(!between.is_empty());
                between.all(|number| !forbidden.contains(&number))
            });
            let within: Vec<usize> = runs.iter().flat_map(|(first, last)| *first..=*last).collect();
            prop_assert!(within.windows(2).all(|pair| pair[0] < pair[1]), "runs ascend and do not overlap");
            prop_assert!(numbers.iter().all(|number| within.binary_search(number).is_ok()));
            prop_assert!(within.iter().all(|number| !forbidden.contains(number)));
            for (a, b) in numbers.iter().zip(numbers.iter().skip(1)) {
                let joined = runs.iter().any(|(first, last)| first <= a && b <= last);
                let may = b - a - 1 <= gap && (a + 1..*b).all(|number| !forbidden.contains(&number));
                prop_assert_eq!(joined, may, "{} and {}", a, b);
            }
        }
    }
}
