//! Replacement policies: each chooses the victim that leaves a full cache. One file a policy, behind one
//! trait, [`Replacement`].
//!
//! | policy | effect of a hit | victim | ghost entries |
//! |---|---|---|---|
//! | [`Fifo`] | none | the oldest key | none |
//! | [`Lru`] | the key becomes the newest | the oldest key | none |
//! | [`Clock`] | sets the reference bit | the oldest key with a clear bit; the hand clears set bits | none |
//! | [`Clock2`] | increments a count, up to 3 | the oldest key with a count of 0; the hand decrements the others | none |
//! | [`Gclock`] | increments a count, up to 16 | as [`Clock2`] | none |
//! | [`AddressOrderClock`] | increments a count, up to 16 | as [`Clock2`], but in address order, and not a new key | none |
//! | [`Sieve`] | sets the reference bit | as [`Clock`], but a key that is spared keeps its position | none |
//! | [`S3Fifo`] | increments a count, up to 3 | mostly the oldest key of a small queue of new keys | 0.9 of the capacity |
//! | [`Arc`] | the key moves to the list of keys used twice | the oldest key of one of two lists of adaptive length | the capacity |
//!
//! A ghost entry remembers the key of a page that was evicted.
//!
//! Every policy but [`Clock`] and [`AddressOrderClock`] uses one table of keys and lists ([`KeyLists`]);
//! the policy's own file holds only its decisions ([`ListPolicy`]). [`SetAssociative`] and [`Rrip`] are
//! set-associative caches, as hardware builds them.

pub(crate) mod hash_index;
mod tag_array;

pub mod address_order_clock;
pub mod arc;
pub mod clock;
pub mod fifo;
pub mod gclock;
pub mod key_lists;
pub mod list_cache;
pub mod lru;
pub mod policy;
pub mod rrip;
pub mod s3fifo;
pub mod set_assoc;
pub mod sieve;

pub use address_order_clock::AddressOrderClock;
pub use arc::Arc;
pub use clock::Clock;
pub use fifo::Fifo;
pub use gclock::{Clock2, Gclock};
pub use key_lists::KeyLists;
pub use list_cache::{ListCache, ListPolicy};
pub use lru::Lru;
pub use policy::{Policy, UnknownPolicy};
pub use rrip::{HitPriority, Rrip};
pub use s3fifo::S3Fifo;
pub use set_assoc::SetAssociative;
pub use sieve::Sieve;
pub use tag_array::FillTarget;

/// The number of a page or frame: `u32` for frames and densely numbered pages, `u64` for any address.
pub trait Key: Copy + Eq + Default + Into<u64> {}

impl<K: Copy + Eq + Default + Into<u64>> Key for K {}

/// The outcome of [`Replacement::access`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessOutcome<K> {
    /// The key was in the cache.
    Hit,
    /// The key was not in the cache and has been inserted.
    Miss {
        /// The victim that was evicted, if the cache was full.
        evicted: Option<K>,
    },
}

/// A set of keys (page or frame numbers) that chooses which key to evict next.
///
/// Two ways of driving a policy exist, and they may be mixed:
///
/// - A simulated cache calls [`Replacement::access`], which keeps the set at its capacity.
/// - A cache whose pages may be pinned reports each page that enters ([`Replacement::insert`]), is used
///   ([`Replacement::touch`]) or is removed for another reason ([`Replacement::remove`]), and calls
///   [`Replacement::victim`] when it needs space. `victim` removes the key that it returns; `insert`
///   never evicts.
///
/// Policies are deterministic. A policy holds at most 2^32 - 8 keys, ghost entries included.
pub trait Replacement<K = u32> {
    /// Inserts a key that has not been used yet. Inserting a resident key counts as
    /// [`Replacement::touch`].
    fn insert(&mut self, key: K);

    /// Records a use of the key. Does nothing if the key is not resident.
    fn touch(&mut self, key: K);

    /// Removes the key and its ghost entry. Does nothing if the policy knows neither.
    fn remove(&mut self, key: K);

    /// Chooses a victim for which `eligible` is true (not pinned, for example), removes and returns it;
    /// `None` if no key is eligible.
    fn victim(&mut self, eligible: &mut dyn FnMut(K) -> bool) -> Option<K>;

    /// True if the key is resident.
    fn contains(&self, key: K) -> bool;

    /// Number of resident keys.
    fn len(&self) -> usize;

    /// The largest number of resident keys that [`Replacement::access`] allows.
    fn capacity(&self) -> usize;

    /// Memory of the policy's tables, in bytes.
    fn memory_bytes(&self) -> usize;

    /// True if no key is resident.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Uses a key. On a miss the key is inserted, and a full cache evicts a victim first.
    fn access(&mut self, key: K) -> AccessOutcome<K>
    where
        K: Key,
    {
        if self.contains(key) {
            self.touch(key);
            return AccessOutcome::Hit;
        }
        let full = self.len() >= self.capacity();
        let evicted = if full { self.victim(&mut |_| true) } else { None };
        self.insert(key);
        AccessOutcome::Miss { evicted }
    }

    /// Uses the keys in order; returns the number of misses.
    fn access_all(&mut self, keys: &[K]) -> u64
    where
        K: Key,
    {
        keys.iter().map(|key| u64::from(self.access(*key) != AccessOutcome::Hit)).sum()
    }
}
