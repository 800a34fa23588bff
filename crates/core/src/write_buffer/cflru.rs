//! CFLRU (clean-first LRU): pages in the order of their last use; a window covers the oldest of them. The
//! victim is the oldest clean page of the window, which costs no flash write; if the window has no clean
//! page, the oldest page.
//!
//! S. Park, D. Jung, J. Kang, J. Kim, J. Lee, "CFLRU: A Replacement Algorithm for Flash Memory", CASES 2006.
//! The publication finds the window's size by experiment, once for each system or again and again while it
//! runs. Here it is an option; half of the capacity by default (assumed).

use super::WriteBufferOptions;
use super::page_buffer::{DIRTY, PageBuffer, PagePolicy};
use crate::cache::KeyLists;

/// A write buffer with clean-first LRU replacement; see the module.
pub type Cflru = PageBuffer<CflruPages>;

const WORKING: u32 = 0;
const WINDOW_CLEAN: u32 = 1;
const WINDOW_DIRTY: u32 = 2;

/// The decisions of [`Cflru`]. List 0: the pages outside the window, 1: the clean pages of the window, 2: its
/// dirty pages; each in the order of last use. A use moves a page out of the window, so a page of the window
/// stays clean or dirty. While the buffer is full, list 0 has all pages that the window has no room for.
#[derive(Debug, Clone)]
pub struct CflruPages {
    /// The largest number of pages outside the window.
    working: usize,
}

impl CflruPages {
    /// Moves the oldest pages outside the window into it until their number is right.
    fn fill_window(&self, pages: &mut KeyLists<u64>) {
        while pages.len(WORKING) > self.working
            && let Some(slot) = pages.oldest(WORKING)
        {
            let flags = pages.count(slot);
            pages.move_to_list(slot, if flags == DIRTY { WINDOW_DIRTY } else { WINDOW_CLEAN });
            pages.set_count(slot, flags);
        }
    }
}

impl PagePolicy for CflruPages {
    const KEEPS_READS: bool = true;

    fn new(capacity: usize, options: &WriteBufferOptions) -> Self {
        let window = options.clean_first_pages.unwrap_or(capacity.div_ceil(2));
        Self { working: capacity - window.min(capacity) }
    }

    fn admit(&mut self, pages: &mut KeyLists<u64>, page: u64, flags: u8) {
        let slot = pages.push(WORKING, page);
        pages.set_count(slot, flags);
        self.fill_window(pages);
    }

    fn hit(&mut self, pages: &mut KeyLists<u64>, slot: u32, flags: u8) {
        pages.move_to_list(slot, WORKING);
        pages.set_count(slot, flags);
        self.fill_window(pages);
    }

    fn victim(&mut self, pages: &mut KeyLists<u64>) -> Option<u32> {
        [WINDOW_CLEAN, WINDOW_DIRTY, WORKING].into_iter().find_map(|list| pages.oldest(list))
    }
}
