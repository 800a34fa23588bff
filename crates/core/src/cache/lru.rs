//! LRU: evicts the key whose last use is longest ago.

use super::Key;
use super::key_lists::KeyLists;
use super::list_cache::{ListCache, ListPolicy};

/// A cache with LRU replacement; see the module.
pub type Lru<K = u64> = ListCache<LruPolicy, K>;

/// The decisions of [`Lru`]. List 0: all keys, in the order of their last use.
#[derive(Debug, Clone)]
pub struct LruPolicy;

impl ListPolicy for LruPolicy {
    type Ghost = ();

    fn new(_: usize) -> Self {
        Self
    }

    #[inline]
    fn hit<K: Key>(&mut self, lists: &mut KeyLists<K>, slot: u32) {
        lists.move_to_newest(slot, 0);
    }

    #[inline]
    fn evict<K: Key>(
        &mut self,
        lists: &mut KeyLists<K>,
        (): (),
        eligible: impl FnMut(K) -> bool,
    ) -> Option<K> {
        lists.remove_oldest(0, eligible)
    }
}
