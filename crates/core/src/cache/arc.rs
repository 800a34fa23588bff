//! ARC: list T1 holds the keys used once, T2 those used again, each in the order of last use. B1 and B2
//! hold ghost entries of the keys evicted from them. A miss on a key in B1 means that T1 is too short,
//! one in B2 that T2 is; the target length of T1 adapts to these misses.
//!
//! N. Megiddo, D. S. Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache", FAST 2003,
//! Figure 4, with a real-valued target as there. With capacity c, T1 and B1 together hold at most c
//! keys and all four lists at most 2c, as long as at most c keys are resident.
//!
//! Two differences from the paper. After a removal the cache can have free space where the paper's has
//! none; no key is evicted then. [`super::Replacement::victim`] does not know the key of the miss, so
//! the paper's tie break for keys of B2 applies in [`super::Replacement::access`] only.

use super::Key;
use super::key_lists::KeyLists;
use super::list_cache::{ListCache, ListPolicy};

/// A cache with ARC replacement; see the module.
pub type Arc<K = u64> = ListCache<ArcPolicy, K>;

const T1: u32 = 0;
const T2: u32 = 1;
const B1: u32 = 2;
const B2: u32 = 3;

/// The decisions of [`Arc`]. Lists: T1, T2, B1, B2.
#[derive(Debug, Clone)]
pub struct ArcPolicy {
    capacity: usize,
    /// Target length of T1: `p` in the paper.
    target: f64,
}

impl ArcPolicy {
    /// Turns the oldest eligible key of T1 or T2 into a ghost entry of B1 or B2: `REPLACE` in the paper.
    #[inline]
    fn make_ghost<K: Key>(
        lists: &mut KeyLists<K>,
        from: u32,
        eligible: &mut impl FnMut(K) -> bool,
    ) -> Option<K> {
        let mut at = lists.oldest(from);
        while let Some(slot) = at {
            let key = lists.key(slot);
            if eligible(key) {
                lists.move_to_list(slot, if from == T1 { B1 } else { B2 });
                return Some(key);
            }
            at = lists.newer(slot, from);
        }
        None
    }

    /// Drops a ghost entry if the lists would exceed their bounds with `incoming` more keys.
    #[inline]
    fn trim_ghosts<K: Key>(&self, lists: &mut KeyLists<K>, incoming: usize) {
        let once = lists.len(T1) + lists.len(B1) + incoming;
        if once > self.capacity {
            lists.remove_oldest(B1, |_| true);
        } else if once + lists.len(T2) + lists.len(B2) > self.capacity.saturating_mul(2) {
            lists.remove_oldest(B2, |_| true);
        }
    }
}

impl ListPolicy for ArcPolicy {
    /// The ghost list that had the key.
    type Ghost = Option<u32>;

    const HAS_GHOSTS: bool = true;

    fn new(capacity: usize) -> Self {
        Self { capacity, target: 0.0 }
    }

    fn expected_keys(capacity: usize) -> usize {
        // One more between the insertion of a key and the trimming of the ghosts.
        capacity.saturating_mul(2).saturating_add(1)
    }

    #[inline]
    fn hit<K: Key>(&mut self, lists: &mut KeyLists<K>, slot: u32) {
        if lists.list(slot) == T2 { lists.move_to_newest(slot, T2) } else { lists.move_to_list(slot, T2) }
    }

    #[inline]
    fn ghost_hit<K: Key>(&mut self, lists: &mut KeyLists<K>, slot: u32) -> Option<u32> {
        let (b1, b2) = (lists.len(B1) as f64, lists.len(B2) as f64);
        let list = lists.list(slot);
        self.target = if list == B1 {
            (self.target + (b2 / b1).max(1.0)).min(self.capacity as f64)
        } else {
            (self.target - (b1 / b2).max(1.0)).max(0.0)
        };
        lists.remove(slot);
        Some(list)
    }

    #[inline]
    fn evict<K: Key>(
        &mut self,
        lists: &mut KeyLists<K>,
        ghost: Option<u32>,
        mut eligible: impl FnMut(K) -> bool,
    ) -> Option<K> {
        let t1 = lists.len(T1) as f64;
        let first = if t1 > self.target || (ghost == Some(B2) && t1 == self.target) { T1 } else { T2 };
        let key = Self::make_ghost(lists, first, &mut eligible)
            .or_else(|| Self::make_ghost(lists, T1 + T2 - first, &mut eligible))?;
        // Bounds the ghost entries even if more keys than the capacity were inserted.
        self.trim_ghosts(lists, 0);
        Some(key)
    }

    #[inline]
    fn admit<K: Key>(&mut self, lists: &mut KeyLists<K>, ghost: Option<u32>, key: K) {
        if ghost.is_some() {
            lists.push(T2, key);
            return;
        }
        self.trim_ghosts(lists, 1);
        lists.push(T1, key);
    }
}
