//! RRIP against a plain implementation of its paper.

use deepram_core::cache::{HitPriority, Rrip};
use proptest::prelude::*;

/// A way: key, interval, count.
type Way = Option<(u32, u8, u8)>;

/// The policy as its paper describes it: ways are scanned in order, and aged one by one.
struct Plain {
    sets: Vec<Vec<Way>>,
    most: u8,
    priority: HitPriority,
}

impl Plain {
    fn way(&mut self, key: u32) -> Option<&mut (u32, u8, u8)> {
        let set = key as usize % self.sets.len();
        self.sets[set].iter_mut().flatten().find(|way| way.0 == key)
    }

    /// Returns the victim way: the first eligible way with the largest interval. All ways age until there is
    /// one.
    fn victim(&mut self, set: usize, eligible: impl Fn(u32) -> bool) -> Option<usize> {
        if !self.sets[set].iter().flatten().any(|way| eligible(way.0)) {
            return None;
        }
        loop {
            let most = self.most;
            let found =
                self.sets[set].iter().position(|way| way.is_some_and(|way| way.1 == most && eligible(way.0)));
            if found.is_some() {
                return found;
            }
            for way in self.sets[set].iter_mut().flatten() {
                way.1 = (way.1 + 1).min(most);
            }
        }
    }
}

proptest! {
    #[test]
    fn the_cache_does_what_ways_that_age_one_by_one_do(
        sets in 1u32..5,
        ways in 1u16..5,
        bits in 1u8..4,
        frequency in any::<bool>(),
        steps in prop::collection::vec((0u32..40, 0u8..20, 1u32..4), 0..600),
    ) {
        let priority = if frequency { HitPriority::Frequency } else { HitPriority::Hit };
        let mut cache = Rrip::new(sets, ways, bits, priority);
        let most = (1u8 << bits) - 1;
        let mut plain =
            Plain { sets: vec![vec![None; usize::from(ways)]; sets as usize], most, priority };
        for (key, action, of) in steps {
            let set = (key % sets) as usize;
            let frame = cache.find(key);
            prop_assert_eq!(frame.is_some(), plain.way(key).is_some());
            match (frame, action) {
                (Some(frame), 0) => {
                    cache.remove(frame);
                    let way = plain.sets[set].iter().position(|way| way.is_some_and(|way| way.0 == key));
                    plain.sets[set][way.unwrap()] = None;
                }
                (Some(frame), _) => {
                    cache.touch(frame);
                    *cache.count_mut(frame).unwrap() += 1;
                    let frequency = plain.priority == HitPriority::Frequency;
                    let way = plain.way(key).unwrap();
                    way.1 = if frequency { way.1.saturating_sub(1) } else { 0 };
                    way.2 += 1;
                    prop_assert_eq!((cache.rrpv(frame), cache.count(frame)), (way.1, way.2));
                }
                (None, _) => {
                    // Only keys that are multiples of this number may be evicted.
                    let eligible = |held: u32| held.is_multiple_of(of);
                    let keys: Vec<Option<u32>> = (0..cache.capacity()).map(|frame| cache.key(frame)).collect();
                    let target = cache.fill_target(key, |frame| keys[frame].is_some_and(eligible));
                    let empty = plain.sets[set].iter().position(Option::is_none);
                    let expected = empty.or_else(|| plain.victim(set, eligible));
                    let first = set * usize::from(ways);
                    prop_assert_eq!(target.map(|target| target.frame), expected.map(|way| first + way));
                    if let (Some(target), Some(way)) = (target, expected) {
                        prop_assert_eq!(target.victim, plain.sets[set][way].map(|way| way.0));
                        cache.insert(key, target.frame);
                        plain.sets[set][way] = Some((key, most - 1, 0));
                    }
                }
            }
            let held: Vec<(usize, u32)> = cache.iter().collect();
            let expected: Vec<(usize, u32)> = plain.sets.iter().flatten().enumerate()
                .filter_map(|(frame, way)| Some((frame, (*way)?.0))).collect();
            prop_assert_eq!(cache.len(), held.len());
            prop_assert_eq!(held, expected);
        }
    }
}

#[test]
fn a_scan_leaves_what_has_been_hit_in_place() {
    let mut cache = Rrip::new(1, 4, 2, HitPriority::Hit);
    let mut access = |key: u32| match cache.find(key) {
        Some(frame) => {
            cache.touch(frame);
            true
        }
        None => {
            let target = cache.fill_target(key, |_| true).unwrap();
            cache.insert(key, target.frame);
            false
        }
    };
    for key in [1, 2, 1, 2] {
        access(key);
    }
    for key in 10..16 {
        assert!(!access(key));
    }
    // LRU would have evicted both keys.
    assert!(access(1) && access(2));
}
