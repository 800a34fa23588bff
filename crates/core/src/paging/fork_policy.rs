//! Which page of a process that has forked leaves memory next.
//!
//! A fork leaves parent and child with the same frames. A frame becomes free only when both have evicted its page, so pages
//! that only this process has leave first.

use alloc::boxed::Box;

use crate::cache::{Key, Replacement};

/// Pages from before the last fork that are tested for each victim.
const TESTED: usize = 4;
/// Shared pages leave too while the pages since the last fork are fewer than one part in this many of those before it.
const NEW_SHARE: usize = 16;

/// The pages of a process that are in memory, with those from before its last fork apart: other processes may have them too.
pub struct ForkPolicy<K> {
    /// `None` if there were none, or all have left.
    before: Option<Box<dyn Replacement<K> + Send>>,
    since: Box<dyn Replacement<K> + Send>,
}

impl<K: Key> ForkPolicy<K> {
    /// Takes over the pages of a process that has not forked.
    #[must_use]
    pub fn new(pages: Box<dyn Replacement<K> + Send>) -> Self {
        Self { before: None, since: pages }
    }

    /// Records a fork: other processes may have all pages from now on. `empty` holds those that come later.
    pub fn fork(&mut self, empty: Box<dyn Replacement<K> + Send>) {
        let mut pages = core::mem::replace(&mut self.since, empty);
        if let Some(mut fewer) = self.before.take() {
            if fewer.len() > pages.len() {
                core::mem::swap(&mut fewer, &mut pages);
            }
            while let Some(key) = fewer.victim(&mut |_| true) {
                pages.insert(key);
            }
        }
        self.before = Some(pages);
    }

    /// Inserts a page, as [`Replacement::insert`].
    pub fn insert(&mut self, key: K) {
        match &mut self.before {
            Some(before) if before.contains(key) => before.touch(key),
            _ => self.since.insert(key),
        }
    }

    /// Records a use of the page.
    pub fn touch(&mut self, key: K) {
        self.before.iter_mut().for_each(|before| before.touch(key));
        self.since.touch(key);
    }

    /// Removes the page.
    pub fn remove(&mut self, key: K) {
        self.before.iter_mut().for_each(|before| before.remove(key));
        self.since.remove(key);
    }

    /// True if the page is in memory.
    #[must_use]
    pub fn contains(&self, key: K) -> bool {
        self.since.contains(key) || self.before.as_ref().is_some_and(|before| before.contains(key))
    }

    /// Memory of the tables, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.since.memory_bytes() + self.before.as_ref().map_or(0, |before| before.memory_bytes())
    }

    /// Chooses a victim, removes and returns it: a page from before the fork that no other process has, or else one that came
    /// since. `is_shared` tells whether other processes have a page.
    pub fn victim(&mut self, is_shared: &mut dyn FnMut(K) -> bool) -> Option<K> {
        let Some(before) = &mut self.before else { return self.since.victim(&mut |_| true) };
        let (mut tested, mut shared) = (0, false);
        let candidate = before.victim(&mut |key| {
            tested += 1;
            shared = is_shared(key);
            !shared || tested == TESTED
        });
        // Fewer pages than are tested may be left, all shared.
        let Some(candidate) = candidate.or_else(|| before.victim(&mut |_| true)) else {
            self.before = None;
            return self.since.victim(&mut |_| true);
        };
        if shared
            && self.since.len() > before.len() / NEW_SHARE
            && let Some(newer) = self.since.victim(&mut |_| true)
        {
            before.insert(candidate);
            return Some(newer);
        }
        Some(candidate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paging::PagerPolicy;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn pages(policy: PagerPolicy, keys: impl IntoIterator<Item = u64>) -> Box<dyn Replacement<u64> + Send> {
        let mut pages = policy.build(1000);
        keys.into_iter().for_each(|key| pages.insert(key));
        pages
    }

    fn fifo() -> PagerPolicy {
        "fifo".parse().unwrap()
    }

    fn victims(policy: &mut ForkPolicy<u64>, count: usize, shared: impl Fn(u64) -> bool) -> Vec<u64> {
        (0..count).map_while(|_| policy.victim(&mut |key| shared(key))).collect()
    }

    #[test]
    fn pages_that_others_have_leave_after_the_process_own() {
        let mut policy = ForkPolicy::new(pages(fifo(), 0..32));
        assert_eq!(victims(&mut policy, 2, |_| panic!("nothing is shared before a fork")), [0, 1]);
        policy.fork(pages(fifo(), []));
        (100..108).for_each(|key| policy.insert(key));
        // Pages 3 and 4 are no longer shared; of the others, those since the fork leave first, but for a few.
        assert_eq!(victims(&mut policy, 2, |key| key > 4 || key == 2), [3, 4]);
        assert_eq!(victims(&mut policy, 7, |_| true), [100, 101, 102, 103, 104, 105, 106]);
        assert!(policy.contains(107));
        let shared = victims(&mut policy, 10, |_| true);
        assert!(shared.iter().all(|key| (2..32).contains(key)), "{shared:?}");
    }

    #[test]
    fn the_oldest_pages_leave_first_as_soon_as_none_is_shared() {
        let mut policy = ForkPolicy::new(pages(fifo(), 0..4));
        policy.fork(pages(fifo(), []));
        (4..8).for_each(|key| policy.insert(key));
        assert_eq!(victims(&mut policy, 9, |_| false), (0..8).collect::<Vec<_>>());
    }

    proptest! {
        /// Under each policy, and whatever is shared, the pages are those of a set: each leaves once, and only pages in memory do.
        #[test]
        fn no_page_is_lost_or_leaves_twice(
            policy in (0..PagerPolicy::ALL.len()).prop_map(|n| PagerPolicy::ALL[n]),
            steps in proptest::collection::vec((0u8..16, 0u64..64), 0..400),
        ) {
            let mut tested = ForkPolicy::new(pages(policy, []));
            let mut model = alloc::collections::BTreeSet::new();
            let shared = |key: u64| !key.is_multiple_of(3);
            for (step, key) in steps {
                match step {
                    0..8 => { tested.insert(key); model.insert(key); }
                    8..10 => tested.touch(key),
                    10..12 => { tested.remove(key); model.remove(&key); }
                    12 => tested.fork(pages(policy, [])),
                    _ => {
                        let victim = tested.victim(&mut |key| shared(key));
                        prop_assert_eq!(victim.is_some(), !model.is_empty());
                        prop_assert!(victim.is_none_or(|key| model.remove(&key)), "{:?}", victim);
                    }
                }
                prop_assert_eq!(tested.contains(key), model.contains(&key));
            }
            let rest = victims(&mut tested, 1000, shared);
            prop_assert_eq!(rest.len(), model.len());
            prop_assert!(rest.iter().all(|key| model.remove(key)));
        }
    }
}
