//! What all policies on lists have in common; a policy adds its [`Rules`].

use super::nodes::Nodes;
use super::{Access, Key, Replacement};

/// The decisions that make a policy. Keys are in slots, slots in lists (see [`Nodes`]).
pub trait Rules {
    /// What the policy knows about a key that comes (the default: nothing).
    type Past: Copy + Default;

    /// True if the policy remembers keys that have left, in lists 2 and 3.
    const REMEMBERS: bool = false;

    /// The rules for this capacity.
    fn new(capacity: usize) -> Self;

    /// Keys for which to expect memory: held and remembered.
    fn expected(capacity: usize) -> usize {
        capacity
    }

    /// A key that is held is used.
    fn hit<K: Key>(&mut self, nodes: &mut Nodes<K>, slot: u32);

    /// A key that is remembered, in this slot, comes back: forgets it, and says what was known.
    fn recall<K: Key>(&mut self, nodes: &mut Nodes<K>, slot: u32) -> Self::Past {
        nodes.take(slot);
        Self::Past::default()
    }

    /// Chooses a key that is eligible to make room for one with this past, and lets it go.
    fn evict<K: Key>(
        &mut self,
        nodes: &mut Nodes<K>,
        past: Self::Past,
        eligible: impl FnMut(K) -> bool,
    ) -> Option<K>;

    /// A key comes that is neither held nor remembered any more.
    fn admit<K: Key>(&mut self, nodes: &mut Nodes<K>, past: Self::Past, key: K) {
        let _ = past;
        nodes.push(0, key);
    }

    /// The key in this slot is about to be taken out.
    fn leave<K: Key>(&mut self, nodes: &Nodes<K>, slot: u32) {
        let _ = (nodes, slot);
    }
}

/// A policy on lists, made by its rules.
#[derive(Debug, Clone)]
pub struct Listed<R, K = u64> {
    nodes: Nodes<K>,
    rules: R,
    capacity: usize,
}

impl<R: Rules, K: Key> Listed<R, K> {
    /// A cache of `capacity` keys (0 counts as 1). Memory is taken as keys come.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        Self { nodes: Nodes::new(R::expected(capacity)), rules: R::new(capacity), capacity }
    }

    /// The slot of a key that is held.
    #[inline]
    fn held(&self, key: K) -> Option<u32> {
        self.nodes.find(key).filter(|slot| !R::REMEMBERS || self.nodes.list(*slot) < 2)
    }

    /// Whether the key is held, which counts as a use; if not, what is known about it.
    #[inline]
    fn meet(&mut self, key: K) -> Result<(), R::Past> {
        match self.nodes.find(key) {
            Some(slot) if !R::REMEMBERS || self.nodes.list(slot) < 2 => {
                self.rules.hit(&mut self.nodes, slot);
                Ok(())
            }
            Some(slot) => Err(self.rules.recall(&mut self.nodes, slot)),
            None => Err(R::Past::default()),
        }
    }
}

impl<R: Rules, K: Key> Replacement<K> for Listed<R, K> {
    fn insert(&mut self, key: K) {
        if let Err(past) = self.meet(key) {
            self.rules.admit(&mut self.nodes, past, key);
        }
    }

    fn touch(&mut self, key: K) {
        if let Some(slot) = self.held(key) {
            self.rules.hit(&mut self.nodes, slot);
        }
    }

    fn remove(&mut self, key: K) {
        if let Some(slot) = self.nodes.find(key) {
            self.rules.leave(&self.nodes, slot);
            self.nodes.take(slot);
        }
    }

    fn victim(&mut self, eligible: &mut dyn FnMut(K) -> bool) -> Option<K> {
        self.rules.evict(&mut self.nodes, R::Past::default(), eligible)
    }

    fn contains(&self, key: K) -> bool {
        self.held(key).is_some()
    }

    fn len(&self) -> usize {
        self.nodes.len(0) + self.nodes.len(1)
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.nodes.memory_bytes()
    }

    #[inline]
    fn access(&mut self, key: K) -> Access<K> {
        let Err(past) = self.meet(key) else {
            return Access::Hit;
        };
        let full = self.len() >= self.capacity;
        let evicted = if full { self.rules.evict(&mut self.nodes, past, |_| true) } else { None };
        self.rules.admit(&mut self.nodes, past, key);
        Access::Miss { evicted }
    }
}
