//! FIFO: the key that came first leaves, whether it was used or not.

use super::Key;
use super::listed::{Listed, Rules};
use super::nodes::Nodes;

/// The FIFO policy; see the module.
pub type Fifo<K = u64> = Listed<FifoRules, K>;

/// The decisions of [`Fifo`]. List 0: all keys, by their arrival.
#[derive(Debug, Clone)]
pub struct FifoRules;

impl Rules for FifoRules {
    type Past = ();

    fn new(_: usize) -> Self {
        Self
    }

    #[inline]
    fn hit<K: Key>(&mut self, _: &mut Nodes<K>, _: u32) {}

    #[inline]
    fn evict<K: Key>(&mut self, nodes: &mut Nodes<K>, (): (), eligible: impl FnMut(K) -> bool) -> Option<K> {
        nodes.take_oldest(0, eligible)
    }
}
