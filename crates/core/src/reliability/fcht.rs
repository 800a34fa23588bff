//! The FlashCache hash table (FCHT): the flash page of a disk page (flash disk cache, section 3.1).

use alloc::vec;
use alloc::vec::Vec;

use super::FlashPage;
use crate::cache::hash_index::{HashIndex, hash};

/// No disk page.
const NONE: u32 = u32::MAX;

/// The table: a hash index from disk pages to flash pages, and the disk page of each flash page.
#[derive(Debug, Clone)]
pub struct FlashCacheHashTable {
    index: HashIndex,
    keys: Vec<u32>,
    len: u32,
}

impl FlashCacheHashTable {
    /// An empty table for `pages` flash pages.
    #[must_use]
    pub fn new(pages: u32) -> Self {
        Self { index: HashIndex::new(pages.max(1) as usize), keys: vec![NONE; pages as usize], len: 0 }
    }

    /// The flash page that holds a disk page.
    #[must_use]
    #[inline]
    pub fn find(&self, key: u32) -> Option<FlashPage> {
        self.index.find(hash(key.into()), |slot| self.keys[slot as usize] == key).map(FlashPage)
    }

    /// The disk page in a flash page.
    #[must_use]
    #[inline]
    pub fn key(&self, page: FlashPage) -> Option<u32> {
        self.keys.get(page.0 as usize).copied().filter(|key| *key != NONE)
    }

    /// Enters a disk page, other than 2^32 - 1, that the table does not hold, in a flash page that is empty.
    pub fn insert(&mut self, key: u32, page: FlashPage) {
        self.keys[page.0 as usize] = key;
        self.index.insert(hash(key.into()), page.0);
        self.len += 1;
    }

    /// Removes the disk page in a flash page, and returns it.
    pub fn remove(&mut self, page: FlashPage) -> Option<u32> {
        let key = self.key(page)?;
        self.index.remove(hash(key.into()), page.0);
        self.keys[page.0 as usize] = NONE;
        self.len -= 1;
        Some(key)
    }

    /// Number of disk pages in flash.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// True if no disk page is in flash.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Memory of the table, bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.index.memory_bytes() + self.keys.capacity() * size_of::<u32>()
    }
}
