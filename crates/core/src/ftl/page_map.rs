//! Page-level mapping of a plain drive: logical page to whatever tells where it is. Without
//! versions, unlike [`crate::page_table`], and with a number for every page of a large drive.
//!
//! Memory follows what is mapped: the directory holds one number for eight pages, and leaves of
//! eight pages exist where something is mapped. A million pages strewn over half a terabyte take
//! 100 MB, not half a gigabyte. A map that is known to fill up needs no directory.

use alloc::vec;
use alloc::vec::Vec;

const LEAF: usize = 8;

/// Logical page to an entry of type `E`.
#[derive(Debug, Clone)]
pub struct PageMap<E> {
    /// Leaf number plus one; 0 where there is none. Empty if leaves are in order and complete.
    directory: Vec<u32>,
    leaves: Vec<[E; LEAF]>,
    /// The place in the directory of each leaf, so that a walk need not pass what is not mapped.
    /// Empty if the directory is.
    places: Vec<u32>,
    pages: u64,
    none: E,
}

impl<E: Copy + PartialEq> PageMap<E> {
    /// `pages` pages, all mapped to `none`. Grows with what is mapped.
    #[must_use]
    pub fn sparse(pages: u32, none: E) -> Self {
        let directory = vec![0; (pages as usize).div_ceil(LEAF)];
        Self { directory, leaves: Vec::new(), places: Vec::new(), pages: pages.into(), none }
    }

    /// `pages` pages, all mapped to `none`, in memory for all of them.
    #[must_use]
    pub fn full(pages: u32, none: E) -> Self {
        let leaves = vec![[none; LEAF]; (pages as usize).div_ceil(LEAF)];
        Self { directory: Vec::new(), leaves, places: Vec::new(), pages: pages.into(), none }
    }

    /// Logical pages there are.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.pages
    }

    fn leaf(&self, logical: u32) -> Option<usize> {
        let number = logical as usize / LEAF;
        if self.directory.is_empty() {
            return Some(number);
        }
        (*self.directory.get(number)? as usize).checked_sub(1)
    }

    /// The page's entry; `none` if it is not mapped, or there is no such page.
    #[inline]
    #[must_use]
    pub fn get(&self, logical: u32) -> E {
        match self.leaf(logical).and_then(|leaf| self.leaves.get(leaf)) {
            Some(leaf) => leaf[logical as usize % LEAF],
            None => self.none,
        }
    }

    /// Brings the page's entry into the processor's caches, for a caller who knows that he will need
    /// it soon: nothing waits for it now.
    #[inline]
    pub fn foresee(&self, logical: u32) {
        core::hint::black_box(self.get(logical));
    }

    /// Maps the page and returns the entry that it had. Nothing happens if there is no such page.
    #[inline]
    pub fn set(&mut self, logical: u32, entry: E) -> E {
        let leaf = match self.leaf(logical) {
            Some(leaf) => leaf,
            None => {
                if entry == self.none || u64::from(logical) >= self.pages {
                    return self.none;
                }
                self.leaves.push([self.none; LEAF]);
                self.places.push(logical / LEAF as u32);
                self.directory[logical as usize / LEAF] = self.leaves.len() as u32;
                self.leaves.len() - 1
            }
        };
        match self.leaves.get_mut(leaf) {
            Some(leaf) => core::mem::replace(&mut leaf[logical as usize % LEAF], entry),
            None => self.none,
        }
    }

    /// All mapped pages, in the order in which their leaves came.
    pub fn iter(&self) -> impl Iterator<Item = (u32, E)> + '_ {
        (0..).zip(&self.leaves).flat_map(move |(number, leaf)| {
            let place = self.places.get(number as usize).copied().unwrap_or(number);
            let mapped = (0..).zip(leaf).filter(|(_, entry)| **entry != self.none);
            mapped.map(move |(index, entry)| (place * LEAF as u32 + index, *entry))
        })
    }

    /// Bytes of memory held; of the directory what is addressed, touched or not.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.directory.capacity() * size_of::<u32>()
            + self.leaves.capacity() * size_of::<[E; LEAF]>()
            + self.places.capacity() * size_of::<u32>()
    }
}
