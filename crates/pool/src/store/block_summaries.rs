//! Block summaries: the page, segment and checksum of each slot of a block. Reads are checked against them, and
//! reclamation uses them to find the owner of a slot.

use crate::format::batch::SlotRecord;

/// The slot records of the blocks in memory. The records of a closed block can be read again from the block's own
/// batch headers, so the least recently used ones may be evicted.
pub(super) struct BlockSummaries {
    blocks: Vec<Option<BlockSummary>>,
    slots_per_block: usize,
    known: usize,
    limit: usize,
    hand: usize,
}

struct BlockSummary {
    records: Box<[Option<SlotRecord>]>,
    /// The block is being filled. Its records cannot be evicted, because no complete copy exists elsewhere.
    open: bool,
    used: bool,
}

impl BlockSummaries {
    /// Makes an empty set that keeps about `limit_bytes` of summaries; open blocks always stay.
    pub(super) fn new(blocks: u32, slots_per_block: u16, limit_bytes: usize) -> Self {
        let mut summaries = Self {
            blocks: Vec::new(),
            slots_per_block: usize::from(slots_per_block),
            known: 0,
            limit: 0,
            hand: 0,
        };
        summaries.blocks.resize_with(blocks as usize, || None);
        summaries.set_limit(limit_bytes);
        summaries
    }

    pub(super) fn set_limit(&mut self, limit_bytes: usize) {
        self.limit = (limit_bytes / self.bytes_each()).max(8);
    }

    fn bytes_each(&self) -> usize {
        self.slots_per_block * size_of::<Option<SlotRecord>>()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<Option<BlockSummary>>() + self.known * self.bytes_each()
    }

    /// Starts the summary of a block that is opened for writing.
    pub(super) fn open(&mut self, block: u32) {
        self.put(block, vec![None; self.slots_per_block].into_boxed_slice(), true);
    }

    /// Adds the records of a closed block that were read back.
    pub(super) fn install(&mut self, block: u32, records: Box<[Option<SlotRecord>]>) {
        if self.blocks[block as usize].is_none() {
            self.put(block, records, false);
        }
    }

    fn put(&mut self, block: u32, records: Box<[Option<SlotRecord>]>, open: bool) {
        self.make_room();
        if self.blocks[block as usize].replace(BlockSummary { records, open, used: true }).is_none() {
            self.known += 1;
        }
    }

    pub(super) fn close(&mut self, block: u32) {
        if let Some(summary) = &mut self.blocks[block as usize] {
            summary.open = false;
        }
    }

    pub(super) fn forget(&mut self, block: u32) {
        if self.blocks[block as usize].take().is_some() {
            self.known -= 1;
        }
    }

    pub(super) fn set(&mut self, block: u32, index: u16, record: SlotRecord) {
        if let Some(summary) = &mut self.blocks[block as usize] {
            summary.records[usize::from(index)] = Some(record);
        }
    }

    pub(super) fn knows(&self, block: u32) -> bool {
        self.blocks[block as usize].is_some()
    }

    /// Returns the record of a slot; `None` if the block's records must be read first, or the slot has no record.
    pub(super) fn get(&mut self, block: u32, index: u16) -> Option<SlotRecord> {
        let summary = self.blocks[block as usize].as_mut()?;
        summary.used = true;
        summary.records[usize::from(index)]
    }

    /// Returns all records of a block in memory, with their slots.
    pub(super) fn records(&self, block: u32) -> Vec<(u16, SlotRecord)> {
        let Some(summary) = &self.blocks[block as usize] else { return Vec::new() };
        summary
            .records
            .iter()
            .enumerate()
            .filter_map(|(index, record)| record.map(|record| (index as u16, record)))
            .collect()
    }

    /// Evicts summaries of closed blocks by CLOCK (second chance).
    fn make_room(&mut self) {
        let mut looked = 0;
        while self.known >= self.limit && looked < 2 * self.blocks.len() {
            let at = self.hand;
            self.hand = (self.hand + 1) % self.blocks.len();
            looked += 1;
            let Some(summary) = &mut self.blocks[at] else { continue };
            if summary.open || std::mem::take(&mut summary.used) {
                continue;
            }
            self.blocks[at] = None;
            self.known -= 1;
        }
    }
}
