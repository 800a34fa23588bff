//! Which page leaves the cache. A policy is one file behind one trait, [`Replacement`].
//!
//! | policy | a hit | who leaves | memory of the departed |
//! |---|---|---|---|
//! | [`Fifo`] | changes nothing | the oldest | none |
//! | [`Lru`] | makes the key the newest | the oldest | none |
//! | [`Clock`] | sets a bit | the oldest without the bit; others lose it and stay | none |
//! | [`Clock2`] | counts, up to 3 | the oldest with a count of 0; others lose one and stay | none |
//! | [`Gclock`] | counts, up to 16 | the same | none |
//! | [`Sweep`] | counts, up to 16 | the next by number with a count of 0 that is not new; others lose one and stay | none |
//! | [`Sieve`] | sets a bit | as CLOCK, but those who stay keep their place in the order of age | none |
//! | [`S3Fifo`] | counts, up to 3 | the oldest of a small queue of newcomers, mostly | 0.9 of the capacity |
//! | [`Arc`] | moves to the list of keys used twice | the oldest of one of two lists; how long each is adapts | the capacity |
//!
//! Every policy but [`Clock`] and [`Sweep`] stands on the same table of keys and lists (`nodes`), so that its
//! own file holds nothing but its decisions ([`Rules`]).

mod index;

pub mod arc;
pub mod clock;
pub mod fifo;
pub mod gclock;
pub mod listed;
pub mod lru;
pub mod nodes;
pub mod rrip;
pub mod s3fifo;
pub mod set_assoc;
pub mod sieve;
pub mod sweep;

pub use arc::Arc;
pub use clock::Clock;
pub use fifo::Fifo;
pub use gclock::{Clock2, Gclock};
pub use listed::{Listed, Rules};
pub use lru::Lru;
pub use rrip::{HitPriority, Rrip};
pub use s3fifo::S3Fifo;
pub use set_assoc::SetAssociative;
pub use sieve::Sieve;
pub use sweep::Sweep;

/// What identifies a page: `u32` for frames and densely numbered pages, `u64` for anything.
pub trait Key: Copy + Eq + Default + Into<u64> {}

impl<K: Copy + Eq + Default + Into<u64>> Key for K {}

/// What [`Replacement::access`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access<K> {
    /// The key was held.
    Hit,
    /// The key was not held and is now; `evicted` went to make room for it.
    Miss {
        /// Who left, if the cache was full.
        evicted: Option<K>,
    },
}

/// A set of keys (page or frame numbers) that can say which to evict next.
///
/// There are two ways to drive one, and they may be mixed. A simulated cache calls
/// [`Replacement::access`], which holds the set at its capacity. A cache whose pages may be pinned
/// reports what comes ([`Replacement::insert`]), what is used ([`Replacement::touch`]) and what
/// goes for other reasons ([`Replacement::remove`]), and asks for room
/// ([`Replacement::victim`]) when it wants it; what `victim` returns has gone already, and
/// `insert` never evicts.
///
/// Policies are deterministic. They hold at most 2^32 - 8 keys, those remembered after they left
/// included.
pub trait Replacement<K = u32> {
    /// Adds a key as not used so far. A key already held counts as touched.
    fn insert(&mut self, key: K);

    /// Says that the key was used. Nothing happens if it is not held.
    fn touch(&mut self, key: K);

    /// Forgets the key, also where a policy remembers keys that have left. Nothing happens if it
    /// is not known.
    fn remove(&mut self, key: K);

    /// Chooses a key for which `eligible` is true (not pinned, say), forgets it and returns it;
    /// `None` if there is none.
    fn victim(&mut self, eligible: &mut dyn FnMut(K) -> bool) -> Option<K>;

    /// True if the key is held.
    fn contains(&self, key: K) -> bool;

    /// Keys held.
    fn len(&self) -> usize;

    /// Keys that [`Replacement::access`] keeps at most.
    fn capacity(&self) -> usize;

    /// Bytes of memory held.
    fn memory_bytes(&self) -> usize;

    /// True if no key is held.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Uses a key, which is brought in if it is not held; in a full cache another leaves for it.
    fn access(&mut self, key: K) -> Access<K>
    where
        K: Key,
    {
        if self.contains(key) {
            self.touch(key);
            return Access::Hit;
        }
        let full = self.len() >= self.capacity();
        let evicted = if full { self.victim(&mut |_| true) } else { None };
        self.insert(key);
        Access::Miss { evicted }
    }

    /// Uses the keys in turn; how many were misses.
    fn access_all(&mut self, keys: &[K]) -> u64
    where
        K: Key,
    {
        keys.iter().map(|key| u64::from(self.access(*key) != Access::Hit)).sum()
    }
}
