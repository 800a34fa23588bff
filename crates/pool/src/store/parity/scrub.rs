//! Scrubbing: reads every slot in use and all parity, and repairs what is damaged.

use deepram_core::BlockId;
use deepram_core::ftl::BlockState;

use super::super::check::Report;
use super::super::{Log, Result, Store};
use super::{ALL_FINAL, ParityIndex, Stripes};
use crate::device::SECTOR;
use crate::format::codec::crc32c;
use crate::stats::add;
use deepram_linux::buffer::AlignedBuf;
use deepram_linux::lock::lock;

/// Bytes read at once.
const CHUNK_BYTES: usize = 1 << 20;

/// The result of a scrub.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// The state after the repairs: what is still damaged, if anything.
    pub check: Report,
    /// Slots read and compared with the checksums of their parity: segments, batch headers and tables, also those that
    /// no token needs any more.
    pub slots: u64,
    /// Damaged slots that were rebuilt and rewritten.
    pub repaired: u64,
    /// Damaged slots that could not be rebuilt. Those with data that a token needs are in `check` too.
    pub lost: u64,
    /// Blocks whose parity was damaged or missing and was written anew.
    pub parity_rewritten: u64,
}

impl Store {
    /// Prepares a scrub: completes the parity of all blocks, and checks the tables and the line log.
    pub(crate) fn begin_scrub(&self, log: &mut Log, report: &mut ScrubReport) -> Result<()> {
        if self.geometry.redundancy.is_some() {
            // A checkpoint completes the parity of every block.
            self.checkpoint(log)?;
        }
        self.check_tables(log, &mut report.check)
    }

    /// Checks a block and repairs what is damaged in it.
    pub(crate) fn scrub_block(&self, log: &mut Log, block: u32, report: &mut ScrubReport) -> Result<()> {
        let verified = match self.stripes() {
            Some(stripes) => self.scrub_stripes(log, &stripes, block, report)?,
            None => None,
        };
        self.check_block(block, &mut report.check, &mut 0, verified.as_deref())
    }

    /// Ends a scrub.
    pub(crate) fn end_scrub(&self, log: &mut Log) -> Result<()> {
        self.repair_queued(log)?;
        self.flush_device(log)
    }

    /// Repairs the stripes of a block. Returns the checksum of every slot that is intact now.
    fn scrub_stripes(
        &self,
        log: &mut Log,
        stripes: &Stripes,
        block: u32,
        report: &mut ScrubReport,
    ) -> Result<Option<Vec<Option<u32>>>> {
        let info = self.lock_tables().volume.blocks().info(BlockId(block));
        let is_ring = log.ring.as_ref().is_some_and(|ring| ring.blocks.contains(&block));
        let used = self.used_slots(log, block);
        let out_of_use = matches!(info.state, BlockState::Free | BlockState::Retired);
        if used == 0 || out_of_use || is_ring || log.parity.pending.contains_key(&block) {
            return Ok(None);
        }
        let mut indexes = stripes.indexes(block, Some(info.sequence));
        if indexes.first().is_none_or(|index| index.covered != used) {
            report.parity_rewritten += 1;
            self.flush_log(log)?;
            self.protect_block(log, block, Some(ALL_FINAL))?;
            indexes = stripes.indexes(block, Some(info.sequence));
        }
        let Some(index) = indexes.first().filter(|index| index.covered == used) else { return Ok(None) };
        let mut verified: Vec<Option<u32>> = index.slots.iter().copied().map(Some).collect();
        verified.truncate(usize::from(used));
        let lost_before = report.lost;
        for slot in self.mismatches(stripes, index)? {
            let mut bytes = AlignedBuf::zeroed(self.geometry.segment_bytes());
            let at = u64::from(block) * u64::from(self.geometry.slots_per_block) + u64::from(slot);
            if stripes.rebuild(&indexes, slot, &mut bytes) {
                self.rewrite_rebuilt(at, &bytes)?;
                lock(&self.repairs).remove(&at);
                report.repaired += 1;
            } else {
                report.lost += 1;
                verified[usize::from(slot)] = None;
            }
        }
        report.slots += u64::from(index.covered);
        let lost = report.lost > lost_before;
        if lost || !self.parity_is_intact(stripes, index) {
            report.parity_rewritten += 1;
            self.protect_block(log, block, Some(ALL_FINAL))?;
        }
        Ok(Some(verified))
    }

    /// Returns the covered slots whose bytes differ from those that the parity covers.
    fn mismatches(&self, stripes: &Stripes, index: &ParityIndex) -> Result<Vec<u16>> {
        let segment = self.geometry.segment_bytes();
        let each = (CHUNK_BYTES / segment) as u16;
        let mut buffer = AlignedBuf::zeroed(usize::from(each) * segment);
        let mut damaged = Vec::new();
        for first in (0..index.covered).step_by(usize::from(each)) {
            let count = each.min(index.covered - first);
            let bytes = &mut buffer[..usize::from(count) * segment];
            let at_once = self.device.read(stripes.slot_offset(index.block, first), bytes);
            add(&self.counters.bytes_read, bytes.len() as u64);
            for (slot, bytes) in (first..).zip(bytes.chunks_exact_mut(segment)) {
                let read = at_once.is_ok()
                    || self.device.read(stripes.slot_offset(index.block, slot), bytes).is_ok();
                if !read || crc32c(bytes) != index.slots[usize::from(slot)] {
                    damaged.push(slot);
                }
            }
        }
        Ok(damaged)
    }

    /// Returns whether every parity column holds the index and the parity that the index describes.
    pub(super) fn parity_is_intact(&self, stripes: &Stripes, index: &ParityIndex) -> bool {
        let segment = self.geometry.segment_bytes();
        let filled = stripes.redundancy.rows(self.geometry.slots_per_block).min(index.covered);
        (0..stripes.redundancy.parity()).all(|column| {
            let copy = stripes.read_index(index.block, column, index.number % 2);
            let mut parity = AlignedBuf::zeroed(usize::from(filled) * segment);
            let read = self.device.read(self.geometry.parity_offset(index.block, column, 0), &mut parity);
            add(&self.counters.bytes_read, parity.len() as u64);
            let is_row = |(row, bytes): (u16, &[u8])| {
                let crcs = bytes.chunks_exact(SECTOR).map(crc32c);
                crcs.eq(index.parity_of(&self.geometry, column, row).iter().copied())
            };
            copy.as_ref() == Some(index)
                && read.is_ok()
                && (0..filled).zip(parity.chunks_exact(segment)).all(is_row)
        })
    }
}
