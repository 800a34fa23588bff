//! CLOCK with counters (generalised CLOCK, GCLOCK). A use increments a key's count, up to a limit. The
//! hand evicts the oldest key if its count is 0; otherwise it decrements the count and makes the key the
//! newest, as the hand of a clock passes it.
//!
//! [`Clock2`] has two-bit counts, as libCacheSim's CLOCK with `n-bit-counter=2`. The one-bit CLOCK of
//! the pool, which needs fewer bytes a key, is [`super::Clock`].

use super::Key;
use super::key_lists::KeyLists;
use super::list_cache::{ListCache, ListPolicy};

/// CLOCK with counts up to 3; see the module.
pub type Clock2<K = u64> = ListCache<CountingClock<3>, K>;
/// CLOCK with counts up to 16; see the module.
pub type Gclock<K = u64> = ListCache<CountingClock<16>, K>;

/// The decisions of a CLOCK with counts up to `MAX`, which is at most 63. List 0: all keys, in the order
/// in which the hand reaches them.
#[derive(Debug, Clone)]
pub struct CountingClock<const MAX: u8>;

impl<const MAX: u8> ListPolicy for CountingClock<MAX> {
    type Ghost = ();

    fn new(_: usize) -> Self {
        Self
    }

    #[inline]
    fn hit<K: Key>(&mut self, lists: &mut KeyLists<K>, slot: u32) {
        lists.increment(slot, MAX);
    }

    #[inline]
    fn evict<K: Key>(
        &mut self,
        lists: &mut KeyLists<K>,
        (): (),
        eligible: impl FnMut(K) -> bool,
    ) -> Option<K> {
        lists.evict_clock(0, MAX, eligible)
    }
}
