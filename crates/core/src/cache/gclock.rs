//! CLOCK with counters (generalised CLOCK, GCLOCK): a use counts, up to a limit. Whoever is oldest
//! leaves if its count is 0; otherwise it loses one and becomes the newest, as if the hand of a
//! clock had passed it.
//!
//! [`Clock2`] counts with two bits, as the CLOCK of libCacheSim with `n-bit-counter=2`. The one-bit
//! CLOCK that the pool runs, with fewer bytes a key, is [`super::Clock`].

use super::Key;
use super::listed::{Listed, Rules};
use super::nodes::Nodes;

/// Counts up to 3; see the module.
pub type Clock2<K = u64> = Listed<Counted<3>, K>;
/// Counts up to 16; see the module.
pub type Gclock<K = u64> = Listed<Counted<16>, K>;

/// The decisions of a CLOCK that counts up to `MOST`, at most 63. List 0: all keys, in the order in
/// which the hand comes to them.
#[derive(Debug, Clone)]
pub struct Counted<const MOST: u8>;

impl<const MOST: u8> Rules for Counted<MOST> {
    type Past = ();

    fn new(_: usize) -> Self {
        Self
    }

    #[inline]
    fn hit<K: Key>(&mut self, nodes: &mut Nodes<K>, slot: u32) {
        nodes.set_count(slot, MOST.min(nodes.count(slot) + 1));
    }

    #[inline]
    fn evict<K: Key>(
        &mut self,
        nodes: &mut Nodes<K>,
        (): (),
        mut eligible: impl FnMut(K) -> bool,
    ) -> Option<K> {
        // After MOST laps all counts are 0, and after one more every key has been asked about.
        for _ in 0..(usize::from(MOST) + 1) * nodes.len(0) {
            let slot = nodes.oldest(0)?;
            let count = nodes.count(slot);
            if count == 0 && eligible(nodes.key(slot)) {
                return Some(nodes.take(slot));
            }
            nodes.set_count(slot, count.saturating_sub(1));
            nodes.renew(slot, 0);
        }
        None
    }
}
