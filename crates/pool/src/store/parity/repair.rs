//! Rebuilds damaged slots for readers, and rewrites them in place in the background.

use deepram_core::BlockId;
use deepram_core::ftl::BlockState;

use super::super::{Log, Result, Store};
use crate::format::codec::crc32c;
use crate::stats::add;
use deepram_linux::buffer::AlignedBuf;
use deepram_linux::lock::lock;

/// Most slots that wait to be rewritten; a slot beyond them is rewritten after it has been read again.
const MOST_QUEUED: usize = 4096;

impl Store {
    /// Rebuilds a slot, a whole segment, into `out` such that `accept` returns true for its bytes; `false` if that is
    /// not possible. The slot is rewritten in the background.
    pub(in crate::store) fn rebuild_slot(
        &self,
        slot: u64,
        out: &mut [u8],
        accept: &dyn Fn(&[u8]) -> bool,
    ) -> bool {
        let Some(stripes) = self.stripes() else { return false };
        let block = (slot / u64::from(self.geometry.slots_per_block)) as u32;
        let sequence = self.lock_tables().volume.blocks().info(BlockId(block)).sequence;
        if !stripes.rebuild_slot(slot, sequence, out, accept) {
            return false;
        }
        let mut repairs = lock(&self.repairs);
        if repairs.len() < MOST_QUEUED && repairs.insert(slot, sequence).is_none() {
            let (device, offset) = (self.device.name(), self.geometry.offset(slot));
            tracing::warn!(device, offset, "a damaged segment was rebuilt from parity");
        }
        drop(repairs);
        add(&self.counters.segments_rebuilt, 1);
        true
    }

    /// Returns the number of damaged slots that have been rebuilt for a reader and are not rewritten yet.
    pub(in crate::store) fn repairs_waiting(&self) -> u64 {
        lock(&self.repairs).len() as u64
    }

    /// Rewrites the damaged slots that have been rebuilt for readers.
    pub(in crate::store) fn repair_queued(&self, log: &mut Log) -> Result<()> {
        let Some(stripes) = self.stripes() else { return Ok(()) };
        while let Some((slot, sequence)) = { lock(&self.repairs).pop_first() } {
            let slots = u64::from(self.geometry.slots_per_block);
            let (block, within) = ((slot / slots) as u32, (slot % slots) as u16);
            // The log is locked, so the block cannot be reused meanwhile.
            let info = self.lock_tables().volume.blocks().info(BlockId(block));
            let in_use = !matches!(info.state, BlockState::Free | BlockState::Retired);
            // Parity in doubt is computed anew first, which repairs the slot too.
            if !in_use || info.sequence != sequence || log.parity.pending.contains_key(&block) {
                continue;
            }
            let mut bytes = AlignedBuf::zeroed(self.geometry.segment_bytes());
            let indexes = stripes.indexes(block, Some(sequence));
            let Some(index) = indexes.first().filter(|index| within < index.covered) else { continue };
            let intact = self.device.read(self.geometry.offset(slot), &mut bytes).is_ok()
                && crc32c(&bytes) == index.slots[usize::from(within)];
            if !intact && stripes.rebuild(&indexes, within, &mut bytes) {
                self.rewrite_rebuilt(slot, &bytes)?;
            }
        }
        Ok(())
    }

    /// Rewrites a damaged slot with its rebuilt bytes.
    pub(super) fn rewrite_rebuilt(&self, slot: u64, bytes: &[u8]) -> Result<()> {
        self.rewrite_slot(slot, bytes)?;
        add(&self.counters.segments_repaired, 1);
        Ok(())
    }
}
