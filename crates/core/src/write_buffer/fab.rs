//! FAB (flash-aware buffer): the victim is the erase block with the most pages in the buffer; among several,
//! the one whose last use is longest ago. Its dirty pages are written, its clean pages dropped. So streams,
//! which fill whole blocks, leave soon, and flash is written in large pieces.
//!
//! H. Jo, J. Kang, S. Park, J. Kim, J. Lee, "FAB: Flash-Aware Buffer Management Policy for Portable Media
//! Players", IEEE Transactions on Consumer Electronics 52(2), 2006.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::WriteBufferOptions;
use super::block_buffer::{BlockBuffer, BlockPolicy};
use crate::cache::KeyLists;

/// A write buffer with FAB replacement; see the module.
pub type Fab = BlockBuffer<FabBlocks>;

/// The decisions of [`Fab`].
#[derive(Debug, Clone, Default)]
pub struct FabBlocks {
    /// The groups in the order in which they are evicted: number of pages, time of last use, slot.
    order: BTreeSet<(Reverse<u32>, u64, u32)>,
    /// For each slot, the number of pages and the time of last use of its group.
    groups: Vec<(u32, u64)>,
    /// The number of uses so far.
    clock: u64,
}

impl FabBlocks {
    fn set(&mut self, slot: u32, pages: u32, used: u64) {
        let (old_pages, old_used) = core::mem::replace(&mut self.groups[slot as usize], (pages, used));
        self.order.remove(&(Reverse(old_pages), old_used, slot));
        if pages > 0 {
            self.order.insert((Reverse(pages), used, slot));
        }
    }
}

impl BlockPolicy for FabBlocks {
    const KEEPS_READS: bool = true;

    fn new(_: &WriteBufferOptions) -> Self {
        Self::default()
    }

    fn used(&mut self, _: &mut KeyLists<u64>, slot: u32) {
        self.clock += 1;
        self.set(slot, self.groups[slot as usize].0, self.clock);
    }

    fn resized(&mut self, slot: u32, old: u32, new: u32) {
        if self.groups.len() <= slot as usize {
            self.groups.resize(slot as usize + 1, (0, 0));
        }
        if old == 0 {
            self.clock += 1;
            self.groups[slot as usize].1 = self.clock;
        }
        self.set(slot, new, self.groups[slot as usize].1);
    }

    fn victim(&self, _: &KeyLists<u64>) -> Option<u32> {
        self.order.first().map(|(.., slot)| *slot)
    }

    fn memory_bytes(&self) -> usize {
        // The nodes of the tree are at least half full.
        let entry = size_of::<(Reverse<u32>, u64, u32)>();
        2 * entry * self.order.len() + size_of::<(u32, u64)>() * self.groups.capacity()
    }
}
