//! The parity index of a block: the slots that the block's parity covers, and the checksums of these slots and of the
//! parity. Byte layout: `docs/reference/pool-format.md`, section "Parity".

use deepram_core::redundancy::Redundancy;

use super::codec::{FormatError, Reader, Writer, crc32c_without};
use super::header::Geometry;
use crate::device::SECTOR;

const MAGIC: u32 = u32::from_le_bytes(*b"DRP1");
const CRC_AT: usize = 4;
/// Size of an index before its checksums, in bytes.
const FIXED: usize = 40;
const WHAT: &str = "parity index";

/// The parity index of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ParityIndex {
    /// First half of the pool's uuid.
    pub(crate) pool: u64,
    pub(crate) controller: u16,
    pub(crate) block: u32,
    /// Sequence of the block's use: an index of an earlier use never counts.
    pub(crate) sequence: u64,
    /// Number of this index in the use of the block, from 1; the higher one is the newer.
    pub(crate) number: u32,
    /// The parity covers the slots below this one.
    pub(crate) covered: u16,
    /// Checksum of each slot; 0 for a slot that is not covered.
    pub(crate) slots: Vec<u32>,
    /// Checksum of each sector of parity, row after row and column after column. A power cut can leave parity that is
    /// extended with sectors of two indexes.
    pub(crate) parity: Vec<u32>,
}

impl ParityIndex {
    /// Returns the size of an index of a block of `slots` segments of `segment` bytes, in bytes.
    pub(crate) fn bytes(redundancy: Redundancy, slots: u16, segment: usize) -> usize {
        FIXED + (usize::from(slots) + Self::sectors(redundancy, slots, segment)) * 4
    }

    /// Returns the number of sectors of parity of a block.
    pub(crate) fn sectors(redundancy: Redundancy, slots: u16, segment: usize) -> usize {
        usize::from(redundancy.rows(slots)) * usize::from(redundancy.parity()) * (segment / SECTOR)
    }

    /// Returns the checksums of the parity of a row in a parity column.
    pub(crate) fn parity_of(&self, geometry: &Geometry, column: u8, row: u16) -> &[u32] {
        let sectors = geometry.segment_bytes() / SECTOR;
        let rows = geometry.redundancy.map_or(0, |redundancy| redundancy.rows(geometry.slots_per_block));
        let first = (usize::from(column) * usize::from(rows) + usize::from(row)) * sectors;
        &self.parity[first..first + sectors]
    }

    /// Encodes the index into `out`, whole segments.
    pub(crate) fn encode(&self, redundancy: Redundancy, out: &mut [u8]) {
        let mut w = Writer::default();
        w.u32(MAGIC);
        w.u32(0);
        w.u64(self.pool);
        w.u16(self.controller);
        w.u8(redundancy.data());
        w.u8(redundancy.parity());
        w.u32(self.block);
        w.u64(self.sequence);
        w.u32(self.number);
        w.u16(self.covered);
        w.u16(0);
        debug_assert_eq!(w.0.len(), FIXED);
        for crc in self.slots.iter().chain(&self.parity) {
            w.u32(*crc);
        }
        w.0.resize(out.len(), 0);
        let crc = crc32c_without(&w.0, CRC_AT);
        w.0[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        out.copy_from_slice(&w.0);
    }

    /// Decodes an index of a block of this geometry.
    pub(crate) fn decode(
        bytes: &[u8],
        redundancy: Redundancy,
        geometry: &Geometry,
    ) -> Result<Self, FormatError> {
        let mut r = Reader::new(WHAT, bytes);
        let magic = r.u32()?;
        if magic != MAGIC {
            return Err(r.field("magic", u64::from(magic), "\"DRP1\""));
        }
        let stored = r.u32()?;
        let computed = crc32c_without(bytes, CRC_AT);
        if stored != computed {
            return Err(FormatError::Checksum { what: WHAT, stored, computed });
        }
        let (pool, controller) = (r.u64()?, r.u16()?);
        let (data, parity) = (r.u8()?, r.u8()?);
        if Redundancy::new(data, parity) != Some(redundancy) {
            return Err(r.field("columns", u64::from(data), "as in the pool header"));
        }
        let (block, sequence, number) = (r.u32()?, r.u64()?, r.u32()?);
        let (covered, _) = (r.u16()?, r.u16()?);
        let slots = geometry.slots_per_block;
        let sectors = Self::sectors(redundancy, slots, geometry.segment_bytes());
        if covered > slots {
            return Err(r.field("slots covered", u64::from(covered), "at most the slots of a block"));
        }
        let mut list = |n: usize| (0..n).map(|_| r.u32()).collect::<Result<Vec<_>, _>>();
        let slots = list(usize::from(slots))?;
        let parity = list(sectors)?;
        Ok(Self { pool, controller, block, sequence, number, covered, slots, parity })
    }
}
