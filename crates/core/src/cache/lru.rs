//! LRU: the key that has not been used for longest leaves.

use super::Key;
use super::listed::{Listed, Rules};
use super::nodes::Nodes;

/// The LRU policy; see the module.
pub type Lru<K = u64> = Listed<LruRules, K>;

/// The decisions of [`Lru`]. List 0: all keys, by their last use.
#[derive(Debug, Clone)]
pub struct LruRules;

impl Rules for LruRules {
    type Past = ();

    fn new(_: usize) -> Self {
        Self
    }

    #[inline]
    fn hit<K: Key>(&mut self, nodes: &mut Nodes<K>, slot: u32) {
        nodes.renew(slot, 0);
    }

    #[inline]
    fn evict<K: Key>(&mut self, nodes: &mut Nodes<K>, (): (), eligible: impl FnMut(K) -> bool) -> Option<K> {
        nodes.take_oldest(0, eligible)
    }
}
