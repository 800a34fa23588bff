//! CCF-LRU (cold clean first LRU): a list of cold clean pages and a mixed list of all others. A page that is
//! read for the first time is cold and clean; a page that is written, or used again, enters the mixed list
//! as hot. The victim is the oldest cold clean page. Without one, the oldest page of the mixed list is the
//! victim if it is cold. If it is hot, it becomes cold and gets a second chance: a dirty page as the newest
//! of the mixed list, a clean page as the newest of the cold clean list; then the next oldest page of the
//! mixed list is examined. So cold clean pages leave first, then cold dirty, hot clean and hot dirty pages.
//!
//! Z. Li, P. Jin, X. Su, K. Cui, L. Yue, "CCF-LRU: A New Buffer Replacement Algorithm for Flash Memory", IEEE
//! Transactions on Consumer Electronics 55(3), 2009.

use super::WriteBufferOptions;
use super::page_buffer::{COLD, DIRTY, PageBuffer, PagePolicy};
use crate::cache::KeyLists;

/// A write buffer with CCF-LRU replacement; see the module.
pub type CcfLru = PageBuffer<CcfLruPages>;

const MIXED: u32 = 0;
const COLD_CLEAN: u32 = 1;

/// The decisions of [`CcfLru`]. List 0: the mixed list, 1: the cold clean pages.
#[derive(Debug, Clone)]
pub struct CcfLruPages;

impl PagePolicy for CcfLruPages {
    const KEEPS_READS: bool = true;

    fn new(_: usize, _: &WriteBufferOptions) -> Self {
        Self
    }

    fn admit(&mut self, pages: &mut KeyLists<u64>, page: u64, flags: u8) {
        let slot = pages.push(if flags == DIRTY { MIXED } else { COLD_CLEAN }, page);
        pages.set_count(slot, flags);
    }

    fn hit(&mut self, pages: &mut KeyLists<u64>, slot: u32, flags: u8) {
        pages.move_to_list(slot, MIXED);
        pages.set_count(slot, flags);
    }

    fn victim(&mut self, pages: &mut KeyLists<u64>) -> Option<u32> {
        if let Some(slot) = pages.oldest(COLD_CLEAN) {
            return Some(slot);
        }
        while let Some(slot) = pages.oldest(MIXED) {
            match pages.count(slot) {
                DIRTY => {
                    pages.move_to_newest(slot, MIXED);
                    pages.set_count(slot, DIRTY | COLD);
                }
                0 => pages.move_to_list(slot, COLD_CLEAN),
                _ => return Some(slot),
            }
        }
        // All pages were hot and clean.
        pages.oldest(COLD_CLEAN)
    }
}
