//! BPLRU (block padding LRU), a buffer for writes only:
//!
//! 1. **Block-level LRU**: the victim is the erase block whose last write is longest ago.
//! 2. **Page padding**: the drive reads the block's other pages from flash and writes the whole block, which a
//!    drive that maps blocks does without a full merge. Off with `padding: false`.
//! 3. **LRU compensation**: a block that is written from its first page to its last, in order and without any
//!    other write to the block between, becomes the next victim: a stream will not write it again soon.
//!
//! A read does not change the order, and a page that is read does not enter the buffer.
//!
//! H. Kim, S. Ahn, "BPLRU: A Buffer Management Scheme for Improving Random Writes in Flash Storage", FAST 2008.
//! The publication does not say what a repeated write does to the sequence; here any write out of order ends it,
//! and a write to the first page begins a new one.

use alloc::vec::Vec;

use super::WriteBufferOptions;
use super::block_buffer::{BlockBuffer, BlockPolicy};
use crate::cache::KeyLists;

/// A write buffer with BPLRU replacement; see the module.
pub type Bplru = BlockBuffer<BplruBlocks>;

/// The decisions of [`Bplru`]. List 0: all groups, in the order of their last write, but for LRU compensation.
#[derive(Debug, Clone)]
pub struct BplruBlocks {
    pages_per_block: u32,
    padding: bool,
    /// For each slot, the number of pages that were written in order, from page 0 to the last write.
    sequence: Vec<u32>,
}

impl BlockPolicy for BplruBlocks {
    const KEEPS_READS: bool = false;

    fn new(options: &WriteBufferOptions) -> Self {
        let pages_per_block = options.pages_per_block.max(1);
        Self { pages_per_block, padding: options.padding, sequence: Vec::new() }
    }

    fn pads(&self) -> bool {
        self.padding
    }

    fn used(&mut self, blocks: &mut KeyLists<u64>, slot: u32) {
        blocks.move_to_newest(slot, 0);
    }

    fn resized(&mut self, slot: u32, old: u32, _: u32) {
        if self.sequence.len() <= slot as usize {
            self.sequence.resize(slot as usize + 1, 0);
        }
        if old == 0 {
            self.sequence[slot as usize] = 0;
        }
    }

    fn written(&mut self, blocks: &mut KeyLists<u64>, slot: u32, page: u32) {
        let sequence = &mut self.sequence[slot as usize];
        *sequence = if page == *sequence || page == 0 { page + 1 } else { 0 };
        if *sequence == self.pages_per_block {
            blocks.move_to_oldest(slot, 0);
        }
    }

    fn victim(&self, blocks: &KeyLists<u64>) -> Option<u32> {
        blocks.oldest(0)
    }

    fn memory_bytes(&self) -> usize {
        4 * self.sequence.capacity()
    }
}
