//! Checking and compacting a controller.

use deepram_core::ftl::BlockState;
use deepram_core::{Addr, BlockId, ChunkId, Epoch, PageId, Slot};

use super::{Log, Result, Store};
use crate::error::PoolError;
use crate::format::batch::{BatchHeader, SlotKind};
use deepram_linux::buffer::AlignedBuf;

/// A compaction leaves blocks alone whose live share is above this.
const COMPACT_SHARE: f64 = 0.9;

/// A segment whose bytes differ from those that were written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedSegment {
    /// Name of the device.
    pub device: String,
    /// Address of the segment in the pool.
    pub address: Addr,
    /// The epoch in which the segment was written.
    pub epoch: Epoch,
    /// Offset on the device, in bytes.
    pub offset: u64,
}

/// The result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Segments read and compared with their checksums.
    pub segments: u64,
    /// Records of the line log read and compared with their checksums.
    pub records: u64,
    /// Segments that failed their checksum.
    pub damaged: Vec<DamagedSegment>,
    /// Damaged structures, and structures that contradict each other.
    pub problems: Vec<String>,
    /// Batch headers with one damaged copy and one intact copy. No data is lost.
    pub damaged_copies: u64,
    /// Damaged segments, batch headers and tables that parity can rebuild. No data is lost.
    pub repairable: u64,
}

impl Report {
    /// Returns whether the check found neither damaged segments nor problems.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.damaged.is_empty() && self.problems.is_empty()
    }
}

impl Store {
    /// Loads every table chunk, checks the consistency of the tables, and reads every live segment.
    pub(crate) fn check(
        &self,
        log: &mut Log,
        report: &mut Report,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        self.check_tables(log, report)?;
        let total = self.lock_tables().volume.blocks().live_slots();
        let mut done = 0;
        for block in 0..self.geometry.blocks {
            self.check_block(block, report, &mut done, None)?;
            progress(done, total);
        }
        report.repairable += self.repairs_waiting();
        Ok(())
    }

    /// Checks the consistency of the tables, and the line log.
    pub(super) fn check_tables(&self, log: &mut Log, report: &mut Report) -> Result<()> {
        let chunks: Vec<ChunkId> = self.lock_tables().volume.table().unloaded().collect();
        let mut tables_whole = true;
        for chunk in chunks {
            if let Err(error) = self.load_chunk(chunk) {
                self.return_device_error(&error)?;
                report.problems.push(error.to_string());
                tables_whole = false;
            }
        }
        if tables_whole {
            let problems = self.with_tables(|t| t.volume.check())?;
            let device = self.device.name();
            report.problems.extend(problems.into_iter().map(|p| format!("{device}: {p}")));
        }
        self.check_lines(log, report)
    }

    fn return_device_error(&self, error: &PoolError) -> Result<()> {
        match error {
            PoolError::Device { operation, source, .. } => {
                Err(self.device_error(operation, std::io::Error::new(source.kind(), source.to_string())))
            }
            _ => Ok(()),
        }
    }

    /// Reads and checks the live segments of a block. `verified` has, by slot, the checksums of slots that have just
    /// been read and need not be read again.
    pub(super) fn check_block(
        &self,
        block: u32,
        report: &mut Report,
        done: &mut u64,
        verified: Option<&[Option<u32>]>,
    ) -> Result<()> {
        let info = self.lock_tables().volume.blocks().info(BlockId(block));
        if info.live == 0 || !matches!(info.state, BlockState::Open(_) | BlockState::Closed) {
            return Ok(());
        }
        if !self.lock_tables().summaries.knows(block)
            && let Err(error) = self.load_summary(block)
        {
            self.return_device_error(&error)?;
            report.problems.push(error.to_string());
            return Ok(());
        }
        self.for_each_header(block, info.used, info.sequence, &mut |_, bytes| {
            report.damaged_copies += u64::from(!BatchHeader::has_both_copies(bytes));
            Ok(())
        })?;
        let records = self.lock_tables().summaries.records(block);
        let mut buffer = AlignedBuf::zeroed(self.geometry.segment_bytes());
        let first = u64::from(block) * u64::from(self.geometry.slots_per_block);
        let mut confirmed = 0;
        let mut unknown = false;
        for (index, record) in records {
            let slot = first + u64::from(index);
            let page = PageId(record.page);
            if record.kind == SlotKind::Pad {
                continue;
            }
            let stamp = match self.with_tables(|t| t.volume.is_live(page, record.segment, Slot(slot))) {
                Ok(Some(stamp)) => stamp,
                Ok(None) => continue,
                // The chunk is damaged, and the report already says so.
                Err(error) => {
                    self.return_device_error(&error)?;
                    unknown = true;
                    continue;
                }
            };
            confirmed += 1;
            report.segments += 1;
            *done += 1;
            let known = verified.and_then(|crcs| crcs.get(usize::from(index)).copied().flatten());
            if known == Some(record.crc) {
                continue;
            }
            if !self.read_or_rebuild(slot, record.crc, &mut buffer)? {
                report.damaged.push(DamagedSegment {
                    device: self.device.name(),
                    address: self.address(page, record.segment),
                    epoch: self.lock_tables().volume.epoch_of(stamp),
                    offset: self.geometry.offset(slot),
                });
            }
        }
        let live = usize::from(info.live);
        if confirmed != live && !unknown {
            report.problems.push(self.records_missing(block, confirmed, live).to_string());
        }
        Ok(())
    }

    /// Rewrites, in place, the batch headers of which one copy is damaged. Returns their number.
    pub(crate) fn repair_headers(&self) -> Result<u64> {
        let mut repaired = 0;
        for block in 0..self.geometry.blocks {
            let info = self.lock_tables().volume.blocks().info(BlockId(block));
            if info.live == 0 || !matches!(info.state, BlockState::Open(_) | BlockState::Closed) {
                continue;
            }
            self.for_each_header(block, info.used, info.sequence, &mut |header, bytes| {
                if !BatchHeader::has_both_copies(bytes) {
                    header.encode(bytes);
                    let first = u64::from(block) * u64::from(self.geometry.slots_per_block);
                    self.rewrite_slot(first + u64::from(header.index), bytes)?;
                    repaired += 1;
                }
                Ok(())
            })?;
        }
        Ok(repaired)
    }

    /// Empties blocks, in the order of their live share, until the others are nearly full. Returns the number of
    /// blocks that became free.
    pub(crate) fn compact(&self, log: &mut Log, progress: &mut dyn FnMut(u64, u64)) -> Result<u64> {
        let chunks: Vec<ChunkId> = self.lock_tables().volume.table().unloaded().collect();
        for chunk in chunks {
            self.load_chunk(chunk)?;
        }
        while self.prune(4096)? {}
        let before = self.lock_tables().volume.blocks().free();
        let mut emptied = 0;
        let most = u64::from(self.geometry.blocks);
        while self.min_live_share() < COMPACT_SHARE
            && emptied < most
            && self.can_move(log)?
            && self.reclaim_one(log)?
        {
            emptied += 1;
            progress(emptied, most);
            if self.lock_tables().volume.blocks().dead() >= 16 {
                self.checkpoint(log)?;
            }
        }
        self.checkpoint(log)?;
        let after = self.lock_tables().volume.blocks().free();
        Ok(u64::from(after.saturating_sub(before)))
    }
}
