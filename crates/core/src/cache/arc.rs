//! ARC: keys used once and keys used again are in two lists, each by last use, T1 and T2. Keys
//! that left them are remembered in B1 and B2. A key that comes back while B1 remembers it says
//! that T1 is too short, one in B2 that T2 is; the length aimed at for T1 follows.
//!
//! N. Megiddo, D. S. Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache", FAST 2003,
//! Figure 4, with the aim as a real number as there. With c the capacity, T1 and B1 together
//! hold at most c keys, all four lists at most 2c, as long as no more than c are held.
//!
//! Where keys are removed, the cache may have room while the paper's has none: nobody is evicted
//! then. [`super::Replacement::victim`] does not know who comes, so the paper's tie break for
//! keys of B2 takes place in [`super::Replacement::access`] alone.

use super::Key;
use super::listed::{Listed, Rules};
use super::nodes::Nodes;

/// The ARC policy; see the module.
pub type Arc<K = u64> = Listed<ArcRules, K>;

const T1: u32 = 0;
const T2: u32 = 1;
const B1: u32 = 2;
const B2: u32 = 3;

/// The decisions of [`Arc`]. Lists: T1, T2, B1, B2.
#[derive(Debug, Clone)]
pub struct ArcRules {
    capacity: usize,
    /// The length aimed at for T1.
    aim: f64,
}

impl ArcRules {
    /// Moves the oldest eligible of T1 or T2 to the list that remembers it.
    #[inline]
    fn demote<K: Key>(nodes: &mut Nodes<K>, from: u32, eligible: &mut impl FnMut(K) -> bool) -> Option<K> {
        let mut at = nodes.oldest(from);
        while let Some(slot) = at {
            let key = nodes.key(slot);
            if eligible(key) {
                nodes.shift(slot, if from == T1 { B1 } else { B2 });
                return Some(key);
            }
            at = nodes.newer(slot, from);
        }
        None
    }

    /// Makes what is remembered fit beside `coming` new keys.
    #[inline]
    fn forget<K: Key>(&self, nodes: &mut Nodes<K>, coming: usize) {
        let once = nodes.len(T1) + nodes.len(B1) + coming;
        if once > self.capacity {
            nodes.take_oldest(B1, |_| true);
        } else if once + nodes.len(T2) + nodes.len(B2) > self.capacity.saturating_mul(2) {
            nodes.take_oldest(B2, |_| true);
        }
    }
}

impl Rules for ArcRules {
    /// The list that remembers the key.
    type Past = Option<u32>;

    const REMEMBERS: bool = true;

    fn new(capacity: usize) -> Self {
        Self { capacity, aim: 0.0 }
    }

    fn expected(capacity: usize) -> usize {
        // One more while a key has come and what is remembered has not been cut yet.
        capacity.saturating_mul(2).saturating_add(1)
    }

    #[inline]
    fn hit<K: Key>(&mut self, nodes: &mut Nodes<K>, slot: u32) {
        if nodes.list(slot) == T2 { nodes.renew(slot, T2) } else { nodes.shift(slot, T2) }
    }

    #[inline]
    fn recall<K: Key>(&mut self, nodes: &mut Nodes<K>, slot: u32) -> Option<u32> {
        let (b1, b2) = (nodes.len(B1) as f64, nodes.len(B2) as f64);
        let list = nodes.list(slot);
        self.aim = if list == B1 {
            (self.aim + (b2 / b1).max(1.0)).min(self.capacity as f64)
        } else {
            (self.aim - (b1 / b2).max(1.0)).max(0.0)
        };
        nodes.take(slot);
        Some(list)
    }

    #[inline]
    fn evict<K: Key>(
        &mut self,
        nodes: &mut Nodes<K>,
        past: Option<u32>,
        mut eligible: impl FnMut(K) -> bool,
    ) -> Option<K> {
        let t1 = nodes.len(T1) as f64;
        let first = if t1 > self.aim || (past == Some(B2) && t1 == self.aim) { T1 } else { T2 };
        let key = Self::demote(nodes, first, &mut eligible)
            .or_else(|| Self::demote(nodes, T1 + T2 - first, &mut eligible))?;
        // Where more keys than the capacity were inserted, what is remembered stays bounded.
        self.forget(nodes, 0);
        Some(key)
    }

    #[inline]
    fn admit<K: Key>(&mut self, nodes: &mut Nodes<K>, past: Option<u32>, key: K) {
        if past.is_some() {
            nodes.push(T2, key);
            return;
        }
        self.forget(nodes, 1);
        nodes.push(T1, key);
    }
}
