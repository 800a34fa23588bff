//! The geometry of flash: the plane of each slot, and the placement of pages written before the run.
//!
//! A block is a stripe of `stripe` flash blocks, one in each plane of a group; its slots go to these
//! planes in turn. Block `b` is on group `b mod groups`. Before the run, page `p` lies whole in a block
//! of group `p mod groups`, so the table entries of such pages need not be stored: they are computed
//! when a chunk of the table is first used.

use deepram_core::page_table::{CHUNK_BYTES, CHUNK_ENTRIES};
use deepram_core::{BlockId, ChunkId, Entry, PageId, SegmentSize, Slot, Stamp, Status};
use deepram_media::Nvmm;

use crate::error::SimError;

/// The number of a segment in the address space: page x segments per page + segment.
pub(super) type SegmentKey = u32;

/// Geometry in slots.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub(super) size: SegmentSize,
    pub(super) pages: u32,
    pub(super) per_page: u32,
    pub(super) slots_per_block: u32,
    pub(super) stripe: u32,
    pub(super) groups: u32,
    pub(super) blocks: u32,
    /// The number of blocks, from block 0 on, that hold pages written before the run.
    pub(super) prefilled_blocks: u32,
}

/// The status of all pages, written before or during the run.
pub(super) fn status() -> Status {
    Status::new(true, true, true)
}

impl Layout {
    pub(super) fn new(nvmm: &Nvmm, capacity_bytes: u64, populated: bool) -> Result<Self, SimError> {
        let wrong = |key, why: String| Err(SimError::config(key, why));
        let nand = nvmm.package();
        let Some(size) = SegmentSize::from_bytes(nvmm.segment.0) else {
            return wrong("segment", "must be 4, 8 or 16 KiB".into());
        };
        let most = nvmm.host_bytes().0;
        let capacity = if capacity_bytes == 0 { most } else { capacity_bytes };
        if capacity > most || capacity < 1 << 16 {
            return wrong("capacity", format!("must be 64 KiB to the preset's {most} bytes"));
        }
        let pages = capacity >> 16;
        if pages > u64::from(deepram_core::addr::MAX_PAGES) || capacity / size.bytes() >= u64::from(u32::MAX)
        {
            return wrong("capacity", "a controller manages 2^28 pages and 2^32 - 2 segments at most".into());
        }
        let groups = nvmm.planes() / nvmm.stripe;
        let blocks = groups * nand.blocks_per_plane;
        let slots_per_block = nvmm.stripe * nand.pages_per_block;
        if blocks > u64::from(u32::MAX) || blocks * slots_per_block > 1 << 34 {
            return wrong("channels", "a controller manages 2^34 segments of flash at most".into());
        }
        let mut layout = Self {
            size,
            pages: pages as u32,
            per_page: u32::from(size.per_page()),
            slots_per_block: slots_per_block as u32,
            stripe: nvmm.stripe as u32,
            groups: groups as u32,
            blocks: blocks as u32,
            prefilled_blocks: 0,
        };
        if populated {
            let rows = layout.pages.div_ceil(layout.groups).div_ceil(layout.pages_per_block());
            layout.prefilled_blocks = rows * layout.groups;
        }
        if layout.prefilled_blocks > layout.blocks {
            return wrong("spare", "the pages do not fit into the blocks; use a larger share".into());
        }
        Ok(layout)
    }

    fn pages_per_block(&self) -> u32 {
        self.slots_per_block / self.per_page
    }

    pub(super) fn key(&self, page: PageId, segment: u8) -> SegmentKey {
        page.0 * self.per_page + u32::from(segment)
    }

    pub(super) fn split(&self, key: SegmentKey) -> (PageId, u8) {
        (PageId(key / self.per_page), (key % self.per_page) as u8)
    }

    pub(super) fn block(&self, slot: Slot) -> BlockId {
        BlockId((slot.0 / u64::from(self.slots_per_block)) as u32)
    }

    pub(super) fn slot(&self, block: BlockId, index: u32) -> Slot {
        Slot(u64::from(block.0) * u64::from(self.slots_per_block) + u64::from(index))
    }

    /// The plane of a slot.
    pub(super) fn plane(&self, slot: Slot) -> u32 {
        let index = (slot.0 % u64::from(self.slots_per_block)) as u32;
        self.block(slot).0 % self.groups * self.stripe + index % self.stripe
    }

    /// The planes of a block.
    pub(super) fn planes(&self, block: BlockId) -> std::ops::Range<u32> {
        let first = block.0 % self.groups * self.stripe;
        first..first + self.stripe
    }

    /// The first slot of a page written before the run.
    fn prefilled_slot(&self, page: u32) -> Slot {
        let (group, nth) = (page % self.groups, page / self.groups);
        let block = nth / self.pages_per_block() * self.groups + group;
        self.slot(BlockId(block), nth % self.pages_per_block() * self.per_page)
    }

    /// The segment that a slot held before the run.
    pub(super) fn prefilled_key(&self, block: BlockId, index: u32) -> Option<SegmentKey> {
        let nth = index / self.per_page;
        if block.0 >= self.prefilled_blocks || nth >= self.pages_per_block() {
            return None;
        }
        let nth = u64::from(block.0 / self.groups * self.pages_per_block() + nth);
        let page = nth * u64::from(self.groups) + u64::from(block.0 % self.groups);
        (page < u64::from(self.pages)).then(|| page as u32 * self.per_page + index % self.per_page)
    }

    /// The number of slots of a block that were written before the run.
    pub(super) fn prefilled_live(&self, block: BlockId) -> u32 {
        let first = u64::from(block.0 / self.groups) * u64::from(self.pages_per_block());
        let of_group = (u64::from(self.pages) + u64::from(self.groups - 1)
            - u64::from(block.0 % self.groups))
            / u64::from(self.groups);
        of_group.saturating_sub(first).min(u64::from(self.pages_per_block())) as u32 * self.per_page
    }

    /// A chunk of the page table as of the start of the run.
    pub(super) fn prefilled_chunk(&self, chunk: ChunkId) -> Box<[u8; CHUNK_BYTES]> {
        let mut bytes = Box::new([0; CHUNK_BYTES]);
        let first = chunk.0 * CHUNK_ENTRIES as u32;
        let vector = deepram_core::bit_vector::BitVector((1 << self.per_page) - 1);
        for (page, entry) in (first..self.pages).zip(bytes.chunks_exact_mut(16)) {
            let made = Entry::new(self.prefilled_slot(page), 0, vector, Stamp(0), status());
            entry.copy_from_slice(&made.to_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use deepram_media::Registry;

    #[test]
    fn every_page_has_a_place_of_its_own_before_the_run() {
        for set in [["stripe=1", "segment=4KiB"], ["stripe=4", "segment=8KiB"], ["stripe=2", "segment=16KiB"]]
        {
            let mut set = set.to_vec();
            set.extend(["channels=2", "packages_per_channel=1", "nand.blocks_per_plane=16", "spare=20%"]);
            set.extend(["nand.capacity=8MiB"]);
            let nvmm: Nvmm = Registry::builtin().unwrap().get_with("nvmm-slc", &set).unwrap();
            let layout = Layout::new(&nvmm, 0, true).unwrap();
            let mut seen = std::collections::BTreeSet::new();
            for page in 0..layout.pages {
                for segment in 0..layout.per_page {
                    let slot = Slot(layout.prefilled_slot(page).0 + u64::from(segment));
                    assert!(seen.insert(slot.0));
                    let index = (slot.0 % u64::from(layout.slots_per_block)) as u32;
                    let key = layout.prefilled_key(layout.block(slot), index);
                    assert_eq!(key, Some(layout.key(PageId(page), segment as u8)));
                    assert!(layout.planes(layout.block(slot)).contains(&layout.plane(slot)));
                }
            }
            let live: u32 = (0..layout.prefilled_blocks).map(|b| layout.prefilled_live(BlockId(b))).sum();
            assert_eq!(live, layout.pages * layout.per_page);
        }
    }
}
