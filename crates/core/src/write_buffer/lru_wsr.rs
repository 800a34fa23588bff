//! LRU-WSR (LRU with write sequence reordering): LRU, but an old dirty page that is not marked cold is marked
//! and becomes the newest instead of being evicted. A use clears the mark. A clean page gets no second
//! chance.
//!
//! H. Jung, H. Shim, S. Park, S. Kang, J. Cha, "LRU-WSR: Integration of LRU and Writes Sequence Reordering
//! for Flash Memory", IEEE Transactions on Consumer Electronics 54(3), 2008.

use super::WriteBufferOptions;
use super::page_buffer::{COLD, DIRTY, PageBuffer, PagePolicy};
use crate::cache::KeyLists;

/// A write buffer with LRU-WSR replacement; see the module.
pub type LruWsr = PageBuffer<LruWsrPages>;

/// The decisions of [`LruWsr`]. List 0: all pages, in the order of their last use or second chance.
#[derive(Debug, Clone)]
pub struct LruWsrPages;

impl PagePolicy for LruWsrPages {
    const KEEPS_READS: bool = true;

    fn new(_: usize, _: &WriteBufferOptions) -> Self {
        Self
    }

    fn admit(&mut self, pages: &mut KeyLists<u64>, page: u64, flags: u8) {
        let slot = pages.push(0, page);
        pages.set_count(slot, flags);
    }

    fn hit(&mut self, pages: &mut KeyLists<u64>, slot: u32, flags: u8) {
        pages.move_to_newest(slot, 0);
        pages.set_count(slot, flags);
    }

    fn victim(&mut self, pages: &mut KeyLists<u64>) -> Option<u32> {
        loop {
            let slot = pages.oldest(0)?;
            if pages.count(slot) != DIRTY {
                return Some(slot);
            }
            // The page is spared once for each use, so the loop ends after one lap at most.
            pages.move_to_newest(slot, 0);
            pages.set_count(slot, DIRTY | COLD);
        }
    }
}
