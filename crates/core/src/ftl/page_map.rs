//! The L2P map of a plain drive: from each logical page to its physical location. Unlike
//! [`crate::page_table`] it has no versions, and it covers every page of a large drive.
//!
//! Memory grows with the number of mapped pages: the directory holds one number for eight pages, and
//! leaves of eight pages exist only where a page is mapped. A million pages scattered over half a
//! terabyte take 100 MB, not half a gigabyte. A map that will fill up needs no directory.

use alloc::vec;
use alloc::vec::Vec;

const LEAF: usize = 8;

/// A map from logical pages to entries of type `E`.
#[derive(Debug, Clone)]
pub struct PageMap<E> {
    /// For each eight pages their leaf's number plus one, or 0 without a leaf. Empty in a full map.
    directory: Vec<u32>,
    leaves: Vec<[E; LEAF]>,
    /// For each leaf its index in the directory, so that an iteration visits leaves only. Empty in a
    /// full map.
    leaf_numbers: Vec<u32>,
    pages: u64,
    none: E,
}

impl<E: Copy + PartialEq> PageMap<E> {
    /// A map of `pages` pages, all with the entry `none`, which means unmapped. Memory grows with the
    /// number of mapped pages.
    #[must_use]
    pub fn sparse(pages: u32, none: E) -> Self {
        let directory = vec![0; (pages as usize).div_ceil(LEAF)];
        Self { directory, leaves: Vec::new(), leaf_numbers: Vec::new(), pages: pages.into(), none }
    }

    /// A map of `pages` pages, all with the entry `none`, with memory for all of them.
    #[must_use]
    pub fn full(pages: u32, none: E) -> Self {
        let leaves = vec![[none; LEAF]; (pages as usize).div_ceil(LEAF)];
        Self { directory: Vec::new(), leaves, leaf_numbers: Vec::new(), pages: pages.into(), none }
    }

    /// Number of logical pages.
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

    /// The page's entry; `none` if the page is unmapped or does not exist.
    #[inline]
    #[must_use]
    pub fn get(&self, logical: u32) -> E {
        match self.leaf(logical).and_then(|leaf| self.leaves.get(leaf)) {
            Some(leaf) => leaf[logical as usize % LEAF],
            None => self.none,
        }
    }

    /// Loads the page's entry into the processor's caches for a later [`PageMap::get`], without waiting
    /// for it.
    #[inline]
    pub fn prefetch(&self, logical: u32) {
        core::hint::black_box(self.get(logical));
    }

    /// Sets the page's entry and returns the old one. Does nothing if the page does not exist.
    #[inline]
    pub fn set(&mut self, logical: u32, entry: E) -> E {
        let leaf = match self.leaf(logical) {
            Some(leaf) => leaf,
            None => {
                if entry == self.none || u64::from(logical) >= self.pages {
                    return self.none;
                }
                self.leaves.push([self.none; LEAF]);
                self.leaf_numbers.push(logical / LEAF as u32);
                self.directory[logical as usize / LEAF] = self.leaves.len() as u32;
                self.leaves.len() - 1
            }
        };
        match self.leaves.get_mut(leaf) {
            Some(leaf) => core::mem::replace(&mut leaf[logical as usize % LEAF], entry),
            None => self.none,
        }
    }

    /// All mapped pages with their entries, in the order in which their leaves were created.
    pub fn iter(&self) -> impl Iterator<Item = (u32, E)> + '_ {
        (0..).zip(&self.leaves).flat_map(move |(number, leaf)| {
            let leaf_number = self.leaf_numbers.get(number as usize).copied().unwrap_or(number);
            let mapped = (0..).zip(leaf).filter(|(_, entry)| **entry != self.none);
            mapped.map(move |(index, entry)| (leaf_number * LEAF as u32 + index, *entry))
        })
    }

    /// Memory of the map, in bytes of address space; untouched parts of the directory count too.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.directory.capacity() * size_of::<u32>()
            + self.leaves.capacity() * size_of::<[E; LEAF]>()
            + self.leaf_numbers.capacity() * size_of::<u32>()
    }
}
