//! S3-FIFO: three queues, each left in the order in which it was entered. A newcomer enters the
//! small one (a tenth of the capacity). Who leaves that one and was used twice moves to the main
//! queue; who was not is evicted, and remembered in the ghost queue (nine tenths of the capacity).
//! A key that comes back while remembered enters the main queue at once. There, a key at the end
//! is evicted if it was not used, and otherwise begins anew with one use less (of at most three).
//! The small queue gives up keys unless it is empty or the main queue is longer than its share.
//!
//! Until the first eviction a newcomer enters the main queue if the small one is full.
//!
//! J. Yang, Y. Zhang, Z. Qiu, Y. Yue, K. V. Rashmi, "FIFO Queues are All You Need for Cache
//! Eviction", SOSP 2023. The sizes, the threshold of two uses and the beginning are
//! libCacheSim's.

use super::Key;
use super::listed::{Listed, Rules};
use super::nodes::Nodes;

/// The S3-FIFO policy; see the module.
pub type S3Fifo<K = u64> = Listed<S3FifoRules, K>;

const SMALL: u32 = 0;
const MAIN: u32 = 1;
const GHOST: u32 = 2;

/// Uses in the small queue that take a key to the main one.
const PROMOTED: u8 = 2;
/// Uses that count.
const MOST: u8 = 3;

/// The decisions of [`S3Fifo`]. List 0: the small queue, 1: the main one, 2: the ghosts.
#[derive(Debug, Clone)]
pub struct S3FifoRules {
    small: usize,
    main: usize,
    ghosts: usize,
    evicting: bool,
}

impl S3FifoRules {
    fn evict_small<K: Key>(
        &mut self,
        nodes: &mut Nodes<K>,
        eligible: &mut impl FnMut(K) -> bool,
    ) -> Option<K> {
        let mut at = nodes.oldest(SMALL);
        while let Some(slot) = at {
            at = nodes.newer(slot, SMALL);
            if nodes.count(slot) >= PROMOTED {
                nodes.shift(slot, MAIN);
            } else if eligible(nodes.key(slot)) {
                if self.ghosts == 0 {
                    return Some(nodes.take(slot));
                }
                if nodes.len(GHOST) >= self.ghosts {
                    nodes.take_oldest(GHOST, |_| true);
                }
                nodes.shift(slot, GHOST);
                return Some(nodes.key(slot));
            }
        }
        None
    }

    fn evict_main<K: Key>(
        &mut self,
        nodes: &mut Nodes<K>,
        eligible: &mut impl FnMut(K) -> bool,
    ) -> Option<K> {
        // After MOST laps all counts are 0, and after one more every key has been asked about.
        for _ in 0..(usize::from(MOST) + 1) * nodes.len(MAIN) {
            let slot = nodes.oldest(MAIN)?;
            let count = nodes.count(slot);
            if count == 0 && eligible(nodes.key(slot)) {
                return Some(nodes.take(slot));
            }
            nodes.set_count(slot, count.saturating_sub(1));
            nodes.renew(slot, MAIN);
        }
        None
    }
}

impl Rules for S3FifoRules {
    /// True if the key is remembered.
    type Past = bool;

    const REMEMBERS: bool = true;

    fn new(capacity: usize) -> Self {
        let small = (capacity / 10).max(1);
        Self { small, main: capacity - small, ghosts: ghosts(capacity), evicting: false }
    }

    fn expected(capacity: usize) -> usize {
        capacity.saturating_add(ghosts(capacity))
    }

    #[inline]
    fn hit<K: Key>(&mut self, nodes: &mut Nodes<K>, slot: u32) {
        nodes.set_count(slot, MOST.min(nodes.count(slot) + 1));
    }

    #[inline]
    fn recall<K: Key>(&mut self, nodes: &mut Nodes<K>, slot: u32) -> bool {
        nodes.take(slot);
        true
    }

    fn evict<K: Key>(
        &mut self,
        nodes: &mut Nodes<K>,
        _: bool,
        mut eligible: impl FnMut(K) -> bool,
    ) -> Option<K> {
        self.evicting = true;
        if nodes.len(MAIN) <= self.main
            && let Some(key) = self.evict_small(nodes, &mut eligible)
        {
            return Some(key);
        }
        // A main queue that has grown beyond its share gives up a key, and so it does if the
        // small one had none to give; if it has none either, the small one may.
        self.evict_main(nodes, &mut eligible).or_else(|| self.evict_small(nodes, &mut eligible))
    }

    #[inline]
    fn admit<K: Key>(&mut self, nodes: &mut Nodes<K>, remembered: bool, key: K) {
        let overflow = !self.evicting && nodes.len(SMALL) >= self.small;
        nodes.push(if remembered || overflow { MAIN } else { SMALL }, key);
    }
}

/// How many keys are remembered: nine tenths of the capacity.
fn ghosts(capacity: usize) -> usize {
    capacity / 10 * 9 + capacity % 10 * 9 / 10
}
