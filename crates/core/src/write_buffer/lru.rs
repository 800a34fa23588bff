//! LRU: evicts the page whose last use is longest ago. The policy with which the others are compared; with
//! its default option, the buffer of a drive that does not keep pages that were read.

use super::WriteBufferOptions;
use super::page_buffer::{PageBuffer, PagePolicy};
use crate::cache::KeyLists;

/// A write buffer with LRU replacement; see the module.
pub type Lru = PageBuffer<LruPages>;

/// The decisions of [`Lru`]. List 0: all pages, in the order of their last use.
#[derive(Debug, Clone)]
pub struct LruPages;

impl PagePolicy for LruPages {
    const KEEPS_READS: bool = false;

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
        pages.oldest(0)
    }
}
