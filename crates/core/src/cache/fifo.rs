//! FIFO: evicts the key that was inserted first, whether or not it was used.

use super::Key;
use super::key_lists::KeyLists;
use super::list_cache::{ListCache, ListPolicy};

/// A cache with FIFO replacement; see the module.
pub type Fifo<K = u64> = ListCache<FifoPolicy, K>;

/// The decisions of [`Fifo`]. List 0: all keys, in the order of insertion.
#[derive(Debug, Clone)]
pub struct FifoPolicy;

impl ListPolicy for FifoPolicy {
    type Ghost = ();

    fn new(_: usize) -> Self {
        Self
    }

    #[inline]
    fn hit<K: Key>(&mut self, _: &mut KeyLists<K>, _: u32) {}

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
