//! Which page leaves the cache. A policy is one file behind one trait.

pub mod clock;

pub use clock::Clock;

/// A set of keys (page or frame numbers) that can say which to evict next.
///
/// The caller reports what comes ([`Replacement::insert`]), what is used
/// ([`Replacement::touch`]) and what goes for other reasons ([`Replacement::remove`]); what
/// [`Replacement::victim`] returns has gone already. Policies are deterministic.
pub trait Replacement {
    /// Adds a key as not used so far. A key already held counts as touched.
    fn insert(&mut self, key: u32);

    /// Says that the key was used. Nothing happens if it is not held.
    fn touch(&mut self, key: u32);

    /// Forgets the key. Nothing happens if it is not held.
    fn remove(&mut self, key: u32);

    /// Chooses a key for which `eligible` is true (not pinned, say), forgets it and returns it;
    /// `None` if there is none.
    fn victim(&mut self, eligible: &mut dyn FnMut(u32) -> bool) -> Option<u32>;

    /// Keys held.
    fn len(&self) -> usize;

    /// True if no key is held.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory held.
    fn memory_bytes(&self) -> usize;
}
