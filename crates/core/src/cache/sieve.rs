//! SIEVE: a hand goes from the oldest key to the newest and then begins again. A key that was
//! used since the hand last passed it loses its mark and stays where it is; the first without
//! a mark leaves. New keys come in front, however far the hand is, so that what is new is looked
//! at soon after it came only if the hand is near.
//!
//! Y. Zhang, J. Yang, Y. Yue, Y. Vigfusson, K. V. Rashmi, "SIEVE is Simpler than LRU: an Efficient
//! Turn-Key Eviction Algorithm for Web Caches", NSDI 2024.

use super::Key;
use super::listed::{Listed, Rules};
use super::nodes::Nodes;

/// The SIEVE policy; see the module.
pub type Sieve<K = u64> = Listed<SieveRules, K>;

/// The decisions of [`Sieve`]. List 0: all keys, by their arrival; a count of 1 is the mark.
#[derive(Debug, Clone)]
pub struct SieveRules {
    /// The slot that the hand looks at next; list 0's sentinel: begin with the oldest.
    hand: u32,
}

impl Rules for SieveRules {
    type Past = ();

    fn new(_: usize) -> Self {
        Self { hand: 0 }
    }

    #[inline]
    fn hit<K: Key>(&mut self, nodes: &mut Nodes<K>, slot: u32) {
        nodes.set_count(slot, 1);
    }

    #[inline]
    fn evict<K: Key>(
        &mut self,
        nodes: &mut Nodes<K>,
        (): (),
        mut eligible: impl FnMut(K) -> bool,
    ) -> Option<K> {
        let oldest = nodes.oldest(0)?;
        // After a lap no mark is left, after two every key has been asked about.
        for _ in 0..2 * nodes.len(0) {
            let slot = if self.hand == 0 { oldest } else { self.hand };
            self.hand = nodes.newer(slot, 0).unwrap_or(0);
            if nodes.count(slot) > 0 {
                nodes.set_count(slot, 0);
            } else if eligible(nodes.key(slot)) {
                return Some(nodes.take(slot));
            }
        }
        None
    }

    fn leave<K: Key>(&mut self, nodes: &Nodes<K>, slot: u32) {
        if self.hand == slot {
            self.hand = nodes.newer(slot, 0).unwrap_or(0);
        }
    }
}
