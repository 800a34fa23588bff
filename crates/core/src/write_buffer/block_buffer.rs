//! The buffer of all policies that evict erase blocks: [`BlockBuffer`] groups the pages by block, a
//! [`BlockPolicy`] decides which block is the victim.
//!
//! A group is the pages of one block that are in the buffer. Each group has a slot of [`KeyLists`], whose keys
//! are block numbers, and two bits for each page of the block: in the buffer, and dirty.

use alloc::vec::Vec;

use super::{BufferAccess, Evicted, PageState, WriteBuffer, WriteBufferOptions};
use crate::cache::KeyLists;

/// The decisions of one policy. Slots are those of the groups in `blocks`; a slot is reused after its group
/// has left. List 0 holds all groups.
pub trait BlockPolicy {
    /// True if the policy's publication keeps pages that were read, and counts a read as a use.
    const KEEPS_READS: bool;

    /// The policy for a buffer with these options.
    fn new(options: &WriteBufferOptions) -> Self;

    /// True if a victim is written to flash as a whole block.
    fn pads(&self) -> bool {
        false
    }

    /// Records a use of the group, before a victim is chosen for the page that was used.
    fn used(&mut self, blocks: &mut KeyLists<u64>, slot: u32);

    /// Records that the group's number of pages has changed from `old` to `new`; one of them is 0 for a group
    /// that enters or leaves.
    fn resized(&mut self, slot: u32, old: u32, new: u32) {
        let _ = (slot, old, new);
    }

    /// Records that the page of this number within the block has been written.
    fn written(&mut self, blocks: &mut KeyLists<u64>, slot: u32, page: u32) {
        let _ = (blocks, slot, page);
    }

    /// The slot of the group to evict; `None` if there is none.
    fn victim(&self, blocks: &KeyLists<u64>) -> Option<u32>;

    /// Memory of the policy's own tables, in bytes.
    fn memory_bytes(&self) -> usize;
}

/// A write buffer that evicts erase blocks, with the policy `P`.
///
/// A use of a page is a use of its block before room is made for the page, so the block is the victim only if
/// the policy prefers it in spite of that. Then its other pages leave, and the page begins a new group.
#[derive(Debug, Clone)]
pub struct BlockBuffer<P> {
    blocks: KeyLists<u64>,
    policy: P,
    pages_per_block: u32,
    capacity: usize,
    keep_reads: bool,
    /// For each slot, the number of pages in its group.
    group_len: Vec<u32>,
    /// For each slot, a bit for each page of the block that is in the buffer.
    resident: Vec<u64>,
    /// For each slot, a bit for each dirty page of the block.
    dirty: Vec<u64>,
    len: usize,
    dirty_len: usize,
}

impl<P: BlockPolicy> BlockBuffer<P> {
    /// An empty buffer. Memory grows with the number of groups, which is at most the capacity.
    #[must_use]
    pub fn new(options: &WriteBufferOptions) -> Self {
        let capacity = options.capacity_pages.max(1);
        Self {
            blocks: KeyLists::new(capacity),
            policy: P::new(options),
            pages_per_block: options.pages_per_block.max(1),
            capacity,
            keep_reads: options.keep_reads.unwrap_or(P::KEEPS_READS),
            group_len: Vec::new(),
            resident: Vec::new(),
            dirty: Vec::new(),
            len: 0,
            dirty_len: 0,
        }
    }

    /// The block of a page, and the page's number within it.
    fn split(&self, page: u64) -> (u64, u32) {
        let pages = u64::from(self.pages_per_block);
        (page / pages, (page % pages) as u32)
    }

    /// Words of bits for each slot.
    fn words(&self) -> usize {
        self.pages_per_block.div_ceil(64) as usize
    }

    /// The word of a page's bits, and its bit.
    fn bit(&self, slot: u32, page: u32) -> (usize, u64) {
        (slot as usize * self.words() + (page / 64) as usize, 1 << (page % 64))
    }

    /// The bits of word `index` that stand for pages of a block.
    fn word_mask(&self, index: usize) -> u64 {
        let pages = u64::from(self.pages_per_block) - 64 * index as u64;
        if pages >= 64 { u64::MAX } else { (1 << pages) - 1 }
    }

    /// The state of a page of the group in `slot`.
    fn page_state(&self, slot: u32, page: u32) -> Option<PageState> {
        let (word, bit) = self.bit(slot, page);
        (self.resident[word] & bit != 0)
            .then(|| if self.dirty[word] & bit == 0 { PageState::Clean } else { PageState::Dirty })
    }

    /// The slot of the block's group, which is created if there is none.
    fn group(&mut self, block: u64) -> u32 {
        if let Some(slot) = self.blocks.find(block) {
            return slot;
        }
        let slot = self.blocks.push(0, block);
        let slots = slot as usize + 1;
        if self.group_len.len() < slots {
            self.group_len.resize(slots, 0);
            self.resident.resize(slots * self.words(), 0);
            self.dirty.resize(slots * self.words(), 0);
        }
        slot
    }

    fn resize(&mut self, slot: u32, new: u32) {
        let old = core::mem::replace(&mut self.group_len[slot as usize], new);
        self.policy.resized(slot, old, new);
        self.len = self.len + new as usize - old as usize;
        if new == 0 {
            self.blocks.remove(slot);
        }
    }

    fn access(&mut self, page: u64, write: bool, evicted: &mut Evicted) -> BufferAccess {
        let (block, offset) = self.split(page);
        let found = self.blocks.find(block);
        let state = found.and_then(|slot| self.page_state(slot, offset));
        if state.is_none() && !write && !self.keep_reads {
            return BufferAccess::Bypassed;
        }
        if let Some(slot) = found
            && (write || P::KEEPS_READS)
        {
            self.policy.used(&mut self.blocks, slot);
        }
        if state.is_none() && self.len == self.capacity {
            self.evict(evicted);
        }
        let slot = self.group(block);
        let (word, bit) = self.bit(slot, offset);
        if state.is_none() {
            self.resident[word] |= bit;
            self.resize(slot, self.group_len[slot as usize] + 1);
        }
        if write {
            self.dirty_len += usize::from(state != Some(PageState::Dirty));
            self.dirty[word] |= bit;
            self.policy.written(&mut self.blocks, slot, offset);
        }
        if state.is_some() { BufferAccess::Hit } else { BufferAccess::Filled }
    }
}

impl<P: BlockPolicy> WriteBuffer for BlockBuffer<P> {
    fn write(&mut self, page: u64, evicted: &mut Evicted) -> BufferAccess {
        self.access(page, true, evicted)
    }

    fn read(&mut self, page: u64, evicted: &mut Evicted) -> BufferAccess {
        self.access(page, false, evicted)
    }

    fn evict(&mut self, evicted: &mut Evicted) {
        let Some(slot) = self.policy.victim(&self.blocks) else { return };
        let first = self.blocks.key(slot) * u64::from(self.pages_per_block);
        let words = slot as usize * self.words()..(slot as usize + 1) * self.words();
        // A group without a dirty page needs no flash write, so no padding either.
        let pad = self.policy.pads() && self.dirty[words.clone()].iter().any(|word| *word != 0);
        for (index, word) in words.enumerate() {
            let resident = core::mem::take(&mut self.resident[word]);
            let dirty = core::mem::take(&mut self.dirty[word]);
            self.dirty_len -= dirty.count_ones() as usize;
            let mut leaving = if pad { self.word_mask(index) } else { resident };
            while leaving != 0 {
                let bit = leaving & leaving.wrapping_neg();
                leaving ^= bit;
                let offset = 64 * index as u64 + u64::from(bit.trailing_zeros());
                // The block of the largest page numbers can be cut off by their range.
                let Some(page) = first.checked_add(offset) else { break };
                let list = match (resident & bit != 0, pad || dirty & bit != 0) {
                    (true, true) => &mut evicted.writes,
                    (true, false) => &mut evicted.dropped,
                    (false, _) => &mut evicted.padding,
                };
                list.push(page);
            }
        }
        self.resize(slot, 0);
    }

    fn discard(&mut self, page: u64) -> Option<PageState> {
        let (block, offset) = self.split(page);
        let slot = self.blocks.find(block)?;
        let state = self.page_state(slot, offset)?;
        let (word, bit) = self.bit(slot, offset);
        self.resident[word] &= !bit;
        self.dirty[word] &= !bit;
        self.dirty_len -= usize::from(state == PageState::Dirty);
        self.resize(slot, self.group_len[slot as usize] - 1);
        Some(state)
    }

    fn state(&self, page: u64) -> Option<PageState> {
        let (block, offset) = self.split(page);
        self.blocks.find(block).and_then(|slot| self.page_state(slot, offset))
    }

    fn len(&self) -> usize {
        self.len
    }

    fn dirty_len(&self) -> usize {
        self.dirty_len
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn memory_bytes(&self) -> usize {
        let bits = 8 * (self.resident.capacity() + self.dirty.capacity());
        let groups = self.blocks.memory_bytes() + 4 * self.group_len.capacity() + bits;
        size_of::<Self>() + groups + self.policy.memory_bytes()
    }
}
