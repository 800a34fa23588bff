//! Reading segments, table chunks and the slot records of blocks. Every byte is checked before it is used.

use std::io;

use deepram_core::{ChunkId, Epoch, PageId, Status};

use super::{CHUNK_BYTES, Result, Store};
use crate::error::PoolError;
use crate::format::batch::{BatchHeader, SlotRecord};
use crate::format::codec::{FormatError, crc32c};
use crate::stats::add;
use deepram_linux::buffer::AlignedBuf;

/// Result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fetched {
    /// The segment's bytes are in the buffer.
    Data,
    /// The segment was never written and reads as zeros. The buffer is unchanged.
    Zero,
}

/// Location of the current version of a segment, for a caller that reads the device itself.
pub(crate) enum SlotLocation {
    /// The segment was never written and reads as zeros.
    Unwritten,
    /// The segment is in a slot.
    Slot {
        /// Number of the slot on the device.
        slot: u64,
        /// CRC of the slot's bytes.
        crc: u32,
    },
}

/// Location of a segment, as far as the tables in memory know.
enum TableLookup {
    Unwritten,
    Slot {
        slot: u64,
        stamp_epoch: Epoch,
        record: SlotRecord,
    },
    /// The slot records of this block must be read first.
    SummaryMissing(u32),
}

impl Store {
    /// Reads and checks the current version of a segment.
    pub(crate) fn fetch(&self, page: PageId, segment: u8, buffer: &mut [u8]) -> Result<Fetched> {
        self.fetch_with(page, segment, buffer, None)
    }

    /// Reads and checks the version of a segment that a token sees.
    pub(crate) fn fetch_at(
        &self,
        token: Epoch,
        page: PageId,
        segment: u8,
        buffer: &mut [u8],
    ) -> Result<Fetched> {
        self.fetch_with(page, segment, buffer, Some(token))
    }

    fn fetch_with(&self, page: PageId, segment: u8, buffer: &mut [u8], at: Option<Epoch>) -> Result<Fetched> {
        let (mut failed, mut rebuilt) = (None, None);
        loop {
            match self.locate(page, segment, at)? {
                TableLookup::Unwritten => return Ok(Fetched::Zero),
                TableLookup::SummaryMissing(block) => self.load_summary(block)?,
                TableLookup::Slot { slot, stamp_epoch, record } => {
                    let is_again = failed == Some(slot);
                    if is_again && (self.geometry.redundancy.is_none() || rebuilt == Some(slot)) {
                        return Err(self.damaged(page, segment, stamp_epoch, slot));
                    }
                    let intact = if is_again {
                        self.read_or_rebuild(slot, record.crc, buffer)?
                    } else {
                        self.read_intact(slot, record.crc, buffer)?
                    };
                    if intact {
                        return Ok(Fetched::Data);
                    }
                    // Reclamation may have moved the segment during the read; then its slot has changed. If not, the
                    // segment is damaged.
                    rebuilt = is_again.then_some(slot);
                    failed = Some(slot);
                }
            }
        }
    }

    /// Returns the location of the current version of a segment. Reclamation may move the segment before the caller
    /// has read it; [`Store::verify_read`] detects that.
    pub(crate) fn locate_slot(&self, page: PageId, segment: u8) -> Result<SlotLocation> {
        loop {
            match self.locate(page, segment, None)? {
                TableLookup::Unwritten => return Ok(SlotLocation::Unwritten),
                TableLookup::SummaryMissing(block) => self.load_summary(block)?,
                TableLookup::Slot { slot, record, .. } => {
                    return Ok(SlotLocation::Slot { slot, crc: record.crc });
                }
            }
        }
    }

    /// Returns whether the tables in memory say that a segment was never written.
    pub(crate) fn is_unwritten(&self, page: PageId, segment: u8) -> bool {
        matches!(self.locate(page, segment, None), Ok(TableLookup::Unwritten))
    }

    /// Checks the result of a read at a [`SlotLocation`]. On a mismatch, reads the segment at its new location if it
    /// was moved; otherwise it is damaged.
    pub(crate) fn verify_read(
        &self,
        page: PageId,
        segment: u8,
        crc: u32,
        read: io::Result<()>,
        bytes: &mut [u8],
    ) -> Result<Fetched> {
        if let Err(source) = read {
            if self.geometry.redundancy.is_none() {
                return Err(self.device_error("reading a segment", source));
            }
            return self.fetch(page, segment, bytes);
        }
        add(&self.counters.bytes_read, bytes.len() as u64);
        if crc32c(bytes) == crc { Ok(Fetched::Data) } else { self.fetch(page, segment, bytes) }
    }

    fn locate(&self, page: PageId, segment: u8, at: Option<Epoch>) -> Result<TableLookup> {
        let slots = u64::from(self.geometry.slots_per_block);
        let located = self.with_tables(|t| {
            let version = match at {
                None => t.volume.lookup(page, segment)?,
                Some(token) => t.volume.lookup_at(token, page, segment)?,
            };
            let Some(version) = version else { return Ok(Ok(TableLookup::Unwritten)) };
            let slot = version.slot.0;
            let (block, index) = ((slot / slots) as u32, (slot % slots) as u16);
            if !t.summaries.knows(block) {
                return Ok(Ok(TableLookup::SummaryMissing(block)));
            }
            let stamp_epoch = t.volume.epoch_of(version.stamp);
            let record = t.summaries.get(block, index);
            let Some(record) = record.filter(|r| r.page == page.0 && r.segment == segment) else {
                return Ok(Err((slot, stamp_epoch)));
            };
            Ok(Ok(TableLookup::Slot { slot, stamp_epoch, record }))
        })?;
        // The batch header that should describe the segment is damaged, so the segment's checksum is lost.
        located.map_err(|(slot, epoch)| self.damaged(page, segment, epoch, slot))
    }

    pub(super) fn damaged(&self, page: PageId, segment: u8, epoch: Epoch, slot: u64) -> PoolError {
        add(&self.counters.damaged_reads, 1);
        PoolError::Damaged {
            device: self.device.name(),
            address: self.address(page, segment),
            page: page.0,
            epoch,
            offset: self.geometry.offset(slot),
        }
    }

    /// Returns the current status of a page.
    pub(crate) fn status(&self, page: PageId) -> Result<Status> {
        if page.0 >= self.geometry.pages {
            return Ok(Status::default());
        }
        self.with_tables(|t| t.volume.status(page))
    }

    /// Returns the status of a page at a token.
    pub(crate) fn status_at(&self, token: Epoch, page: PageId) -> Result<Status> {
        if page.0 >= self.geometry.pages {
            return Ok(Status::default());
        }
        self.with_tables(|t| t.volume.status_at(token, page))
    }

    pub(super) fn read_slot(&self, slot: u64, buffer: &mut [u8]) -> Result<()> {
        self.device
            .read(self.geometry.offset(slot), buffer)
            .map_err(|source| self.device_error("reading a segment", source))?;
        add(&self.counters.bytes_read, buffer.len() as u64);
        Ok(())
    }

    /// Reads a slot and returns whether it has this checksum. With redundancy a slot that cannot be read counts as
    /// damaged.
    fn read_intact(&self, slot: u64, crc: u32, buffer: &mut [u8]) -> Result<bool> {
        match self.read_slot(slot, buffer) {
            Ok(()) => Ok(crc32c(buffer) == crc),
            Err(_) if self.geometry.redundancy.is_some() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads a slot, a whole segment. If it does not have this checksum, rebuilds it from parity. Returns whether the
    /// buffer holds its bytes now.
    ///
    /// # Errors
    /// The device's error, for a slot that cannot be rebuilt.
    pub(super) fn read_or_rebuild(&self, slot: u64, crc: u32, buffer: &mut [u8]) -> Result<bool> {
        let read = self.read_slot(slot, buffer);
        if read.is_ok() && crc32c(buffer) == crc {
            return Ok(true);
        }
        if self.rebuild_slot(slot, buffer, &|bytes| crc32c(bytes) == crc) {
            return Ok(true);
        }
        read.map(|()| false)
    }

    /// Reads a table chunk into the tables, unless another thread has done so meanwhile.
    pub(super) fn load_chunk(&self, chunk: ChunkId) -> Result<()> {
        let mut buffer = AlignedBuf::zeroed(self.geometry.segment_bytes());
        let mut failed = None;
        loop {
            let Some(location) = self.chunk_location(chunk) else {
                return Err(
                    self.inconsistent(format!("table chunk {} has no location on the device", chunk.0))
                );
            };
            let read = self.read_slot(location.slot, &mut buffer);
            let mut computed = crc32c(&buffer[..CHUNK_BYTES]);
            if read.is_err() || computed != location.crc {
                let accept = |bytes: &[u8]| crc32c(&bytes[..CHUNK_BYTES]) == location.crc;
                if self.rebuild_slot(location.slot, &mut buffer, &accept) {
                    computed = location.crc;
                } else {
                    read?;
                }
            }
            let mut tables = self.lock_tables();
            if tables.volume.is_loaded(chunk) {
                return Ok(());
            }
            if computed == location.crc {
                let bytes = buffer[..CHUNK_BYTES].try_into().expect("the length of a chunk");
                return tables
                    .volume
                    .load_chunk(chunk, bytes)
                    .map_err(|problem| self.inconsistent(format!("table chunk {}: {problem}", chunk.0)));
            }
            drop(tables);
            if failed == Some(location) {
                return Err(PoolError::DamagedPool {
                    device: self.device.name(),
                    what: "a chunk of the page table",
                    source: FormatError::Checksum { what: "table chunk", stored: location.crc, computed },
                });
            }
            failed = Some(location);
        }
    }

    /// Reads the slot records of a block from its batch headers.
    pub(super) fn load_summary(&self, block: u32) -> Result<()> {
        let (used, sequence) = {
            let tables = self.lock_tables();
            let info = tables.volume.blocks().info(deepram_core::BlockId(block));
            (info.used, info.sequence)
        };
        let records = self.read_records(block, used, sequence)?;
        let mut tables = self.lock_tables();
        let info = tables.volume.blocks().info(deepram_core::BlockId(block));
        if info.sequence == sequence {
            tables.summaries.install(block, records);
        }
        Ok(())
    }

    /// Returns the records in the batch headers of a block's first `used` slots.
    pub(super) fn read_records(
        &self,
        block: u32,
        used: u16,
        sequence: u64,
    ) -> Result<Box<[Option<SlotRecord>]>> {
        let mut records = vec![None; usize::from(self.geometry.slots_per_block)].into_boxed_slice();
        self.for_each_header(block, used, sequence, &mut |header, _| {
            let first = usize::from(header.index) + 1;
            for (to, record) in records[first..].iter_mut().zip(&header.slots) {
                *to = Some(*record);
            }
            Ok(())
        })?;
        Ok(records)
    }

    /// Visits the batch headers of a block's first `used` slots, with the bytes of each header's segment. Slots
    /// between batches are skipped: they belong to a batch whose write failed, or whose header is damaged in both
    /// copies. A live segment in such a batch is later found to have no record.
    pub(super) fn for_each_header(
        &self,
        block: u32,
        used: u16,
        sequence: u64,
        visit: &mut dyn FnMut(&BatchHeader, &mut AlignedBuf) -> Result<()>,
    ) -> Result<()> {
        let slots = self.geometry.slots_per_block;
        let mut buffer = AlignedBuf::zeroed(self.geometry.segment_bytes());
        let mut at = 0_u16;
        while at < used {
            let slot = u64::from(block) * u64::from(slots) + u64::from(at);
            let read = self.read_slot(slot, &mut buffer);
            let ours = |header: &BatchHeader| {
                let fits = usize::from(at) + 1 + header.slots.len() <= usize::from(slots);
                (header.pool, header.controller) == (self.uuid_prefix(), self.identity.controller)
                    && (header.block, header.index, header.block_sequence) == (block, at, sequence)
                    && fits
            };
            let decode = |bytes: &[u8]| BatchHeader::decode(bytes).ok().filter(ours);
            let mut header = if read.is_ok() { decode(&buffer) } else { None };
            if header.is_none() && self.rebuild_slot(slot, &mut buffer, &|bytes| decode(bytes).is_some()) {
                header = decode(&buffer);
            }
            let Some(header) = header else {
                read?;
                at += 1;
                continue;
            };
            visit(&header, &mut buffer)?;
            at += 1 + header.slots.len() as u16;
        }
        Ok(())
    }

    /// Reads and checks a segment at a known slot. The caller holds the log, so the segment cannot move.
    pub(super) fn read_known(&self, page: PageId, segment: u8, slot: u64, buffer: &mut [u8]) -> Result<()> {
        let slots = u64::from(self.geometry.slots_per_block);
        let (block, index) = ((slot / slots) as u32, (slot % slots) as u16);
        if !self.lock_tables().summaries.knows(block) {
            self.load_summary(block)?;
        }
        let record = self.lock_tables().summaries.get(block, index);
        if let Some(record) = record.filter(|r| r.page == page.0 && r.segment == segment)
            && self.read_or_rebuild(slot, record.crc, buffer)?
        {
            return Ok(());
        }
        Err(self.damaged(page, segment, self.open_epoch(), slot))
    }
}
