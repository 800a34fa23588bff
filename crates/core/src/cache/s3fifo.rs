//! S3-FIFO: three FIFO queues. A new key enters the small queue (a tenth of the capacity). At that
//! queue's end a key that was used twice moves to the main queue; any other key is evicted and enters
//! the ghost queue (nine tenths of the capacity). A miss on a ghost entry inserts the key into the main
//! queue. At the main queue's end a key with a count of 0 is evicted; any other key is inserted again
//! with a count one lower (counts go up to 3). Victims come from the small queue unless it is empty or
//! the main queue exceeds its share.
//!
//! Until the first eviction a new key enters the main queue if the small one is full.
//!
//! J. Yang, Y. Zhang, Z. Qiu, Y. Yue, K. V. Rashmi, "FIFO Queues are All You Need for Cache Eviction",
//! SOSP 2023. The queue sizes, the threshold of two uses and the rule before the first eviction are
//! libCacheSim's.

use super::Key;
use super::key_lists::KeyLists;
use super::list_cache::{ListCache, ListPolicy};

/// A cache with S3-FIFO replacement; see the module.
pub type S3Fifo<K = u64> = ListCache<S3FifoPolicy, K>;

const SMALL: u32 = 0;
const MAIN: u32 = 1;
const GHOST: u32 = 2;

/// Uses in the small queue that move a key to the main queue.
const PROMOTION_USES: u8 = 2;
/// The largest count.
const MAX_COUNT: u8 = 3;

/// The decisions of [`S3Fifo`]. List 0: the small queue, 1: the main queue, 2: the ghost queue.
#[derive(Debug, Clone)]
pub struct S3FifoPolicy {
    small: usize,
    main: usize,
    ghosts: usize,
    /// True from the first eviction on.
    evicting: bool,
}

impl S3FifoPolicy {
    fn evict_small<K: Key>(
        &mut self,
        lists: &mut KeyLists<K>,
        eligible: &mut impl FnMut(K) -> bool,
    ) -> Option<K> {
        let mut at = lists.oldest(SMALL);
        while let Some(slot) = at {
            at = lists.newer(slot, SMALL);
            if lists.count(slot) >= PROMOTION_USES {
                lists.move_to_list(slot, MAIN);
            } else if eligible(lists.key(slot)) {
                if self.ghosts == 0 {
                    return Some(lists.remove(slot));
                }
                if lists.len(GHOST) >= self.ghosts {
                    lists.remove_oldest(GHOST, |_| true);
                }
                lists.move_to_list(slot, GHOST);
                return Some(lists.key(slot));
            }
        }
        None
    }
}

impl ListPolicy for S3FifoPolicy {
    /// True if the key had a ghost entry.
    type Ghost = bool;

    const HAS_GHOSTS: bool = true;

    fn new(capacity: usize) -> Self {
        let small = (capacity / 10).max(1);
        Self { small, main: capacity - small, ghosts: ghost_capacity(capacity), evicting: false }
    }

    fn expected_keys(capacity: usize) -> usize {
        capacity.saturating_add(ghost_capacity(capacity))
    }

    #[inline]
    fn hit<K: Key>(&mut self, lists: &mut KeyLists<K>, slot: u32) {
        lists.increment(slot, MAX_COUNT);
    }

    #[inline]
    fn ghost_hit<K: Key>(&mut self, lists: &mut KeyLists<K>, slot: u32) -> bool {
        lists.remove(slot);
        true
    }

    fn evict<K: Key>(
        &mut self,
        lists: &mut KeyLists<K>,
        _: bool,
        mut eligible: impl FnMut(K) -> bool,
    ) -> Option<K> {
        self.evicting = true;
        if lists.len(MAIN) <= self.main
            && let Some(key) = self.evict_small(lists, &mut eligible)
        {
            return Some(key);
        }
        // The main queue gives the victim if it exceeds its share or the small queue has no eligible
        // key; if the main queue has none either, the small queue is tried.
        lists.evict_clock(MAIN, MAX_COUNT, &mut eligible).or_else(|| self.evict_small(lists, &mut eligible))
    }

    #[inline]
    fn admit<K: Key>(&mut self, lists: &mut KeyLists<K>, was_ghost: bool, key: K) {
        let overflow = !self.evicting && lists.len(SMALL) >= self.small;
        lists.push(if was_ghost || overflow { MAIN } else { SMALL }, key);
    }
}

/// Entries of the ghost queue: nine tenths of the capacity.
fn ghost_capacity(capacity: usize) -> usize {
    capacity / 10 * 9 + capacity % 10 * 9 / 10
}
