//! Finds the checksums of a controller and the bytes that they cover; see [`crate::fuzzing`].

use std::ops::Range;

use super::checkpoint::slots;
use super::{Log, Result, Store};
use crate::error::PoolError;
use crate::format::batch::BatchHeader;
use crate::format::header::{HEADER_BYTES, HEADER_OFFSETS, PoolHeader};
use deepram_linux::buffer::AlignedBuf;

/// The structure that a checksum covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChecksumKind {
    /// A live segment.
    Data,
    /// The header of a batch with live segments.
    Batch,
    /// The header of a batch without live segments: needed only while it is part of the log to be replayed.
    EmptyBatch,
    /// A record of the line log.
    Line,
    /// A chunk of the page table.
    Chunk,
    /// The root record.
    Root,
    /// A copy of the pool header.
    Header,
}

/// Bytes of a device that a checksum covers, and the position of the checksum.
#[derive(Debug, Clone)]
pub struct ChecksumSite {
    /// The covered structure.
    pub kind: ChecksumKind,
    /// The covered byte ranges, in order.
    pub ranges: Vec<Range<usize>>,
    /// Total length of the covered bytes.
    pub len: usize,
    /// Offset of the checksum on the device, for every copy.
    pub checksum_at: Vec<usize>,
}

impl Store {
    /// Returns all checksums, innermost first.
    pub(crate) fn sites(&self) -> Result<Vec<ChecksumSite>> {
        let log = self.lock_log();
        let mut sites = Vec::new();
        for block in 0..self.geometry.blocks {
            self.sites_of_block(block, &mut sites)?;
        }
        self.sites_of_lines(&log, &mut sites)?;
        self.sites_of_tables(&log, &mut sites)?;
        sites.sort_by_key(|site| site.kind);
        Ok(sites)
    }

    fn slot_range(&self, slot: u64) -> Range<usize> {
        let start = self.geometry.offset(slot) as usize;
        start..start + self.geometry.segment_bytes()
    }

    fn sites_of_block(&self, block: u32, sites: &mut Vec<ChecksumSite>) -> Result<()> {
        let info = self.lock_tables().volume.blocks().info(deepram_core::BlockId(block));
        if info.live == 0 || self.lock_tables().volume.blocks().is_driver_owned(deepram_core::BlockId(block))
        {
            return Ok(());
        }
        self.load_summary(block)?;
        let live: Vec<u64> = self.live_slots_in(deepram_core::BlockId(block))?;
        let mut buffer = AlignedBuf::zeroed(self.geometry.segment_bytes());
        let first = u64::from(block) * u64::from(self.geometry.slots_per_block);
        let mut at = 0;
        while at < info.used {
            let header_range = self.slot_range(first + u64::from(at));
            self.read_slot(first + u64::from(at), &mut buffer)?;
            let damaged =
                |source| PoolError::DamagedPool { device: self.device.name(), what: "a batch", source };
            let batch = BatchHeader::decode(&buffer).map_err(damaged)?;
            let mut kind = ChecksumKind::EmptyBatch;
            for n in 0..batch.slots.len() {
                let slot = first + u64::from(at) + 1 + n as u64;
                if live.contains(&slot) {
                    kind = ChecksumKind::Batch;
                    let range = self.slot_range(slot);
                    let copies = BatchHeader::copies_at(header_range.len());
                    let checksum_at =
                        copies.map(|copy| header_range.start + copy + batch.checksum_at(n)).into();
                    sites.push(ChecksumSite {
                        kind: ChecksumKind::Data,
                        len: range.len(),
                        ranges: vec![range],
                        checksum_at,
                    });
                }
            }
            let copies = BatchHeader::copies_at(header_range.len());
            let len = header_range.len() / copies.len();
            sites.extend(copies.map(|copy| {
                let start = header_range.start + copy;
                let (ranges, checksum_at) =
                    (std::iter::once(start..start + len).collect(), vec![start + BatchHeader::CRC_AT]);
                ChecksumSite { kind, ranges, len, checksum_at }
            }));
            at += 1 + batch.slots.len() as u16;
        }
        Ok(())
    }

    fn sites_of_tables(&self, log: &Log, sites: &mut Vec<ChecksumSite>) -> Result<()> {
        let root_slots: Vec<u64> = slots(&log.root).collect();
        let segment = self.geometry.segment_bytes();
        let mut record = vec![0; root_slots.len() * segment];
        for (slot, bytes) in root_slots.iter().zip(record.chunks_exact_mut(segment)) {
            let mut buffer = AlignedBuf::zeroed(segment);
            self.read_slot(*slot, &mut buffer)?;
            bytes.copy_from_slice(&buffer);
        }
        let directory = self.lock_tables().directory.clone();
        for (chunk, location) in (0_u32..).zip(directory) {
            let Some(location) = location else { continue };
            // The directory's entry in the root record.
            let mut entry = chunk.to_le_bytes().to_vec();
            entry.extend(location.slot.to_le_bytes());
            entry.extend(location.crc.to_le_bytes());
            let Some(at) = record.windows(entry.len()).position(|bytes| bytes == entry) else { continue };
            let crc_at = at + entry.len() - 4;
            // An entry that spans two slots is left out.
            if crc_at / segment == (crc_at + 3) / segment {
                let checksum_at =
                    vec![self.slot_range(root_slots[crc_at / segment]).start + crc_at % segment];
                let start = self.slot_range(location.slot).start;
                let range = start..start + super::CHUNK_BYTES;
                let ranges = vec![range];
                sites.push(ChecksumSite {
                    kind: ChecksumKind::Chunk,
                    ranges,
                    len: super::CHUNK_BYTES,
                    checksum_at,
                });
            }
        }
        let mut header = AlignedBuf::zeroed(HEADER_BYTES);
        let mut copies = Vec::new();
        let mut len = 0;
        for offset in HEADER_OFFSETS {
            let read = self.device.read(offset, &mut header);
            read.map_err(|source| self.device_error("reading the pool header", source))?;
            let start = offset as usize;
            let (ranges, checksum_at) =
                (std::iter::once(start..start + HEADER_BYTES).collect(), vec![start + PoolHeader::CRC_AT]);
            sites.push(ChecksumSite { kind: ChecksumKind::Header, ranges, len: HEADER_BYTES, checksum_at });
            if let Some(root_len) = PoolHeader::root_len(&header, log.generation) {
                len = root_len as usize;
                copies.push(start + PoolHeader::ROOT_CRC_AT);
            }
        }
        let mut left = len;
        let ranges = root_slots.iter().map(|&slot| {
            let range = self.slot_range(slot);
            let part = left.min(segment);
            left -= part;
            range.start..range.start + part
        });
        let ranges = ranges.filter(|range| !range.is_empty()).collect();
        sites.push(ChecksumSite { kind: ChecksumKind::Root, ranges, len, checksum_at: copies });
        Ok(())
    }
}
