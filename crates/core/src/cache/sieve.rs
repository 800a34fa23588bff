//! SIEVE: a hand moves from the oldest key to the newest and then begins again. It clears the reference
//! bit of each key that was used since its last pass, leaves that key where it is, and evicts the first
//! key whose bit is clear. New keys are inserted at the newest end, wherever the hand is; so the hand
//! reaches a new key soon only if it is already near that end.
//!
//! Y. Zhang, J. Yang, Y. Yue, Y. Vigfusson, K. V. Rashmi, "SIEVE is Simpler than LRU: an Efficient
//! Turn-Key Eviction Algorithm for Web Caches", NSDI 2024.

use super::Key;
use super::key_lists::KeyLists;
use super::list_cache::{ListCache, ListPolicy};

/// A cache with SIEVE replacement; see the module.
pub type Sieve<K = u64> = ListCache<SievePolicy, K>;

/// The decisions of [`Sieve`]. List 0: all keys, in the order of insertion; a count of 1 is the
/// reference bit.
#[derive(Debug, Clone)]
pub struct SievePolicy {
    /// The slot that the hand examines next; 0, list 0's sentinel, means the oldest.
    hand: u32,
}

impl ListPolicy for SievePolicy {
    type Ghost = ();

    fn new(_: usize) -> Self {
        Self { hand: 0 }
    }

    #[inline]
    fn hit<K: Key>(&mut self, lists: &mut KeyLists<K>, slot: u32) {
        lists.set_count(slot, 1);
    }

    #[inline]
    fn evict<K: Key>(
        &mut self,
        lists: &mut KeyLists<K>,
        (): (),
        mut eligible: impl FnMut(K) -> bool,
    ) -> Option<K> {
        let oldest = lists.oldest(0)?;
        // One lap clears every reference bit; the second one tests every key for eligibility.
        for _ in 0..2 * lists.len(0) {
            let slot = if self.hand == 0 { oldest } else { self.hand };
            self.hand = lists.newer(slot, 0).unwrap_or(0);
            if lists.count(slot) > 0 {
                lists.set_count(slot, 0);
            } else if eligible(lists.key(slot)) {
                return Some(lists.remove(slot));
            }
        }
        None
    }

    fn before_remove<K: Key>(&mut self, lists: &KeyLists<K>, slot: u32) {
        if self.hand == slot {
            self.hand = lists.newer(slot, 0).unwrap_or(0);
        }
    }
}
