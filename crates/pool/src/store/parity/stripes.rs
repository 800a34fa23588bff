//! Reads the parity of a device and rebuilds damaged slots from it.

use std::sync::Arc;

use deepram_core::Redundancy;

use super::code;
use crate::device::{Device, SECTOR};
use crate::format::codec::crc32c;
use crate::format::header::Geometry;
use crate::format::parity::ParityIndex;
use deepram_linux::buffer::AlignedBuf;

/// The parity of one controller's device.
pub(in crate::store) struct Stripes {
    pub(super) device: Arc<dyn Device>,
    pub(super) geometry: Geometry,
    pub(super) redundancy: Redundancy,
    /// First half of the pool's uuid.
    pub(super) pool: u64,
    pub(super) controller: u16,
}

impl Stripes {
    /// Returns the parity of a device; `None` if the pool has no redundancy.
    pub(in crate::store) fn new(
        device: &Arc<dyn Device>,
        geometry: &Geometry,
        pool: u64,
        controller: u16,
    ) -> Option<Self> {
        let redundancy = geometry.redundancy?;
        Some(Self { device: Arc::clone(device), geometry: *geometry, redundancy, pool, controller })
    }

    /// Returns the intact indexes of a block, the newest first. With a sequence, only those of this use of the block.
    pub(in crate::store) fn indexes(&self, block: u32, sequence: Option<u64>) -> Vec<ParityIndex> {
        let mut found: Vec<ParityIndex> = Vec::new();
        for column in 0..self.redundancy.parity() {
            for copy in 0..2 {
                let index = self.read_index(block, column, copy).filter(|index| {
                    sequence.is_none_or(|sequence| index.sequence == sequence) && !found.contains(index)
                });
                found.extend(index);
            }
        }
        found.sort_by_key(|index| std::cmp::Reverse((index.sequence, index.number)));
        found
    }

    /// Reads a copy of a block's index; `None` if it is damaged or belongs to another pool.
    pub(super) fn read_index(&self, block: u32, column: u8, copy: u32) -> Option<ParityIndex> {
        let mut buffer = AlignedBuf::zeroed(self.geometry.parity_index_bytes());
        self.device.read(self.geometry.parity_index_offset(block, column, copy), &mut buffer).ok()?;
        let index = ParityIndex::decode(&buffer, self.redundancy, &self.geometry).ok()?;
        let ours = (index.pool, index.controller, index.block) == (self.pool, self.controller, block);
        ours.then_some(index)
    }

    /// Reads a segment; `None` if the device cannot read it.
    fn read_segment(&self, offset: u64) -> Option<AlignedBuf> {
        let mut buffer = AlignedBuf::zeroed(self.geometry.segment_bytes());
        self.device.read(offset, &mut buffer).ok().map(|()| buffer)
    }

    /// Returns the offset of a slot of a block.
    pub(super) fn slot_offset(&self, block: u32, slot: u16) -> u64 {
        self.geometry.offset(u64::from(block) * u64::from(self.geometry.slots_per_block) + u64::from(slot))
    }

    /// Rebuilds a slot of a block into `out`. The indexes are those of one use of the block, the newest first: each
    /// sector of parity is used as the index describes that it matches. Returns `false` if the parity does not cover the
    /// slot, or too many segments of its stripe are damaged.
    pub(in crate::store) fn rebuild(&self, indexes: &[ParityIndex], slot: u16, out: &mut [u8]) -> bool {
        let Some(newest) = indexes.iter().find(|index| slot < index.covered) else { return false };
        let (block, crc) = (newest.block, newest.slots[usize::from(slot)]);
        let slots = self.geometry.slots_per_block;
        let rows = self.redundancy.rows(slots);
        let (row, wanted) = (slot % rows, usize::from(slot / rows));
        let members: Vec<Option<(AlignedBuf, u32)>> = self
            .redundancy
            .stripe(slots, row, slots)
            .map(|member| {
                let bytes = member
                    .filter(|member| *member != slot)
                    .and_then(|member| self.read_segment(self.slot_offset(block, member)))?;
                let crc = crc32c(&bytes);
                Some((bytes, crc))
            })
            .collect();
        let parity: Vec<Option<AlignedBuf>> = (0..self.redundancy.parity())
            .map(|column| self.read_segment(self.geometry.parity_offset(block, column, row)))
            .collect();
        let zeros = [0; SECTOR];
        let sectors = out.len() / SECTOR;
        let rebuilt = (0..sectors).all(|sector| {
            let within = sector * SECTOR..(sector + 1) * SECTOR;
            indexes.iter().filter(|index| slot < index.covered).any(|index| {
                // A slot that is not covered counts as zeros.
                let stripe = self.redundancy.stripe(slots, row, index.covered).zip(&members);
                let columns: Vec<Option<&[u8]>> = stripe
                    .map(|(member, read)| {
                        let Some(member) = member else { return Some(&zeros[..]) };
                        let read = read.as_ref().filter(|(_, crc)| *crc == index.slots[usize::from(member)]);
                        read.map(|(bytes, _)| &bytes[within.clone()])
                    })
                    .collect();
                let parity: Vec<Option<&[u8]>> = (0..)
                    .zip(&parity)
                    .map(|(column, read)| {
                        let bytes = &read.as_ref()?[within.clone()];
                        let crc = index.parity_of(&self.geometry, column, row)[sector];
                        (crc32c(bytes) == crc).then_some(bytes)
                    })
                    .collect();
                code::rebuild(&columns, &parity, wanted, &mut out[within.clone()])
            })
        });
        rebuilt && crc32c(out) == crc
    }

    /// Rebuilds a slot of the device into `out` such that `accept` returns true for its bytes, from parity of this
    /// use of the block.
    pub(in crate::store) fn rebuild_slot(
        &self,
        slot: u64,
        sequence: u64,
        out: &mut [u8],
        accept: &dyn Fn(&[u8]) -> bool,
    ) -> bool {
        let slots = u64::from(self.geometry.slots_per_block);
        let (block, within) = ((slot / slots) as u32, (slot % slots) as u16);
        self.rebuild(&self.indexes(block, Some(sequence)), within, out) && accept(out)
    }

    /// Returns the bytes of a slot that is damaged according to the newest index of its block, if they can be rebuilt.
    pub(in crate::store) fn mend(&self, slot: u64) -> Option<AlignedBuf> {
        let slots = u64::from(self.geometry.slots_per_block);
        let (block, within) = ((slot / slots) as u32, (slot % slots) as u16);
        let mut indexes = self.indexes(block, None);
        let index = indexes.first().filter(|index| within < index.covered)?;
        let (sequence, crc) = (index.sequence, index.slots[usize::from(within)]);
        if self.read_segment(self.geometry.offset(slot)).is_some_and(|bytes| crc32c(&bytes) == crc) {
            return None;
        }
        indexes.retain(|index| index.sequence == sequence);
        let mut bytes = AlignedBuf::zeroed(self.geometry.segment_bytes());
        self.rebuild(&indexes, within, &mut bytes).then_some(bytes)
    }
}
