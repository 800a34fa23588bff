//! The cache that all list-based policies share: [`ListCache`] holds the keys in lists, a [`ListPolicy`]
//! decides which list a key enters, how a hit changes the lists, and which key is the victim.

use super::key_lists::KeyLists;
use super::{AccessOutcome, Key, Replacement};

/// The decisions of one replacement policy. Each key has a slot, and each slot is in one list (see
/// [`KeyLists`]).
///
/// Lists 0 and 1 hold the resident keys, lists 2 and 3 the ghost entries.
pub trait ListPolicy {
    /// The policy's knowledge about a key of a miss, taken from the key's ghost entry. The default value
    /// stands for a key without a ghost entry.
    type Ghost: Copy + Default;

    /// True if the policy keeps ghost entries.
    const HAS_GHOSTS: bool = false;

    /// The policy for a cache of `capacity` keys.
    fn new(capacity: usize) -> Self;

    /// The largest number of keys to provide memory for: resident keys and ghost entries.
    fn expected_keys(capacity: usize) -> usize {
        capacity
    }

    /// Updates the lists after a hit on the resident key in `slot`.
    fn hit<K: Key>(&mut self, lists: &mut KeyLists<K>, slot: u32);

    /// Removes the ghost entry in `slot` after a miss on its key; returns what the entry said.
    fn ghost_hit<K: Key>(&mut self, lists: &mut KeyLists<K>, slot: u32) -> Self::Ghost {
        lists.remove(slot);
        Self::Ghost::default()
    }

    /// Chooses and evicts an eligible victim. `ghost` describes the key that needs its space.
    fn evict<K: Key>(
        &mut self,
        lists: &mut KeyLists<K>,
        ghost: Self::Ghost,
        eligible: impl FnMut(K) -> bool,
    ) -> Option<K>;

    /// Inserts a key that is neither resident nor a ghost entry (any more).
    fn admit<K: Key>(&mut self, lists: &mut KeyLists<K>, ghost: Self::Ghost, key: K) {
        let _ = ghost;
        lists.push(0, key);
    }

    /// Prepares the policy for the removal of the key in `slot`.
    fn before_remove<K: Key>(&mut self, lists: &KeyLists<K>, slot: u32) {
        let _ = (lists, slot);
    }
}

/// A cache of keys in lists, with the replacement policy `P`.
#[derive(Debug, Clone)]
pub struct ListCache<P, K = u64> {
    lists: KeyLists<K>,
    policy: P,
    capacity: usize,
}

impl<P: ListPolicy, K: Key> ListCache<P, K> {
    /// An empty cache of `capacity` keys (0 counts as 1). Memory grows with the number of keys.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        Self { lists: KeyLists::new(P::expected_keys(capacity)), policy: P::new(capacity), capacity }
    }

    /// The slot of a resident key.
    #[inline]
    fn resident_slot(&self, key: K) -> Option<u32> {
        self.lists.find(key).filter(|slot| !P::HAS_GHOSTS || self.lists.list(*slot) < 2)
    }

    /// Records a hit on a resident key (`Ok`); on a miss, removes and returns the key's ghost entry.
    #[inline]
    fn hit_or_ghost(&mut self, key: K) -> Result<(), P::Ghost> {
        match self.lists.find(key) {
            Some(slot) if !P::HAS_GHOSTS || self.lists.list(slot) < 2 => {
                self.policy.hit(&mut self.lists, slot);
                Ok(())
            }
            Some(slot) => Err(self.policy.ghost_hit(&mut self.lists, slot)),
            None => Err(P::Ghost::default()),
        }
    }
}

impl<P: ListPolicy, K: Key> Replacement<K> for ListCache<P, K> {
    fn insert(&mut self, key: K) {
        if let Err(ghost) = self.hit_or_ghost(key) {
            self.policy.admit(&mut self.lists, ghost, key);
        }
    }

    fn touch(&mut self, key: K) {
        if let Some(slot) = self.resident_slot(key) {
            self.policy.hit(&mut self.lists, slot);
        }
    }

    fn remove(&mut self, key: K) {
        if let Some(slot) = self.lists.find(key) {
            self.policy.before_remove(&self.lists, slot);
            self.lists.remove(slot);
        }
    }

    fn victim(&mut self, eligible: &mut dyn FnMut(K) -> bool) -> Option<K> {
        self.policy.evict(&mut self.lists, P::Ghost::default(), eligible)
    }

    fn contains(&self, key: K) -> bool {
        self.resident_slot(key).is_some()
    }

    fn len(&self) -> usize {
        self.lists.len(0) + self.lists.len(1)
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.lists.memory_bytes()
    }

    #[inline]
    fn access(&mut self, key: K) -> AccessOutcome<K> {
        let Err(ghost) = self.hit_or_ghost(key) else {
            return AccessOutcome::Hit;
        };
        let full = self.len() >= self.capacity;
        let evicted = if full { self.policy.evict(&mut self.lists, ghost, |_| true) } else { None };
        self.policy.admit(&mut self.lists, ghost, key);
        AccessOutcome::Miss { evicted }
    }
}
