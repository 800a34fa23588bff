//! The pool header: two copies, written in turn. The valid copy with the higher generation counts. Byte layout:
//! `docs/reference/pool-format.md`, section "Header".

use deepram_core::{Redundancy, SegmentSize};
use uuid::Uuid;

use super::codec::{FormatError, Reader, Writer, crc32c_without};
use super::parity::ParityIndex;
use crate::device::ALIGN;

/// The newest format version that this code reads and writes: that of pools with redundancy.
pub const VERSION: u32 = 4;
/// The format version of pools without redundancy.
const VERSION_WITHOUT_REDUNDANCY: u32 = 3;

/// Size of one header copy, in bytes.
pub(crate) const HEADER_BYTES: usize = ALIGN;
/// Offsets of the two copies, chosen to lie in different erase units of any likely device.
pub(crate) const HEADER_OFFSETS: [u64; 2] = [0, 512 * 1024];
/// Offset of the first block, in bytes.
pub(crate) const FIRST_BLOCK: u64 = 1024 * 1024;

/// The first bytes of a header copy.
pub(crate) const MAGIC: [u8; 8] = *b"DEEPRAM\0";
const CRC_AT: usize = 12;
const ROOT_CRC_AT: usize = 76;
const MAX_EXTENTS: usize = 240;
/// Offset of the counts of written bytes and of the limits, after the last extent.
const ENDURANCE_AT: usize = 4032;
/// Offset of the numbers of data and parity columns.
const REDUNDANCY_AT: usize = 4072;
/// Upper bound of every counter: no real pool reaches it, so a larger value is damage, and sums cannot overflow.
pub(crate) const COUNTERS_END: u64 = 1 << 62;
const WHAT: &str = "pool header";

/// A range of consecutive slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) slot: u64,
    pub(crate) slots: u32,
}

/// The fixed properties of one controller's device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) segment: SegmentSize,
    /// Virtual pages of 64 KiB.
    pub(crate) pages: u32,
    /// Table entries for older versions.
    pub(crate) upper: u32,
    pub(crate) blocks: u32,
    /// Slots of a block; with redundancy, those of its data columns.
    pub(crate) slots_per_block: u16,
    pub(crate) redundancy: Option<Redundancy>,
}

impl Geometry {
    pub(crate) fn segment_bytes(&self) -> usize {
        self.segment.bytes() as usize
    }

    pub(crate) fn block_bytes(&self) -> u64 {
        u64::from(self.slots_per_block) * self.segment_bytes() as u64
    }

    /// Returns the distance of two blocks on the device, in bytes: the size of a block with its parity columns.
    pub(crate) fn block_stride(&self) -> u64 {
        let columns = self.redundancy.map_or(0, |redundancy| u64::from(redundancy.parity()));
        self.block_bytes() + columns * self.parity_column_bytes()
    }

    /// Returns the size of device that the geometry needs, in bytes.
    pub(crate) fn device_bytes(&self) -> u64 {
        u64::from(self.blocks).saturating_mul(self.block_stride()).saturating_add(FIRST_BLOCK)
    }

    /// Returns the offset of a slot on the device, in bytes.
    pub(crate) fn offset(&self, slot: u64) -> u64 {
        let (segment, slots) = (self.segment_bytes() as u64, u64::from(self.slots_per_block));
        match self.redundancy {
            None => FIRST_BLOCK + slot * segment,
            Some(_) => FIRST_BLOCK + slot / slots * self.block_stride() + slot % slots * segment,
        }
    }

    /// Returns the size of a copy of a block's parity index in whole segments, in bytes; 0 without redundancy.
    pub(crate) fn parity_index_bytes(&self) -> usize {
        let (slots, segment) = (self.slots_per_block, self.segment_bytes());
        let bytes = self.redundancy.map_or(0, |redundancy| ParityIndex::bytes(redundancy, slots, segment));
        bytes.next_multiple_of(self.segment_bytes())
    }

    /// Returns the size of a parity column, in bytes: two copies of the index, and the parity of each row.
    fn parity_column_bytes(&self) -> u64 {
        let rows = self.redundancy.map_or(0, |redundancy| redundancy.rows(self.slots_per_block));
        2 * self.parity_index_bytes() as u64 + u64::from(rows) * self.segment_bytes() as u64
    }

    /// Returns the offset of a copy, 0 or 1, of a block's index in a parity column.
    pub(crate) fn parity_index_offset(&self, block: u32, column: u8, copy: u32) -> u64 {
        FIRST_BLOCK
            + u64::from(block) * self.block_stride()
            + self.block_bytes()
            + u64::from(column) * self.parity_column_bytes()
            + u64::from(copy) * self.parity_index_bytes() as u64
    }

    /// Returns the offset of the parity of a row in a parity column.
    pub(crate) fn parity_offset(&self, block: u32, column: u8, row: u16) -> u64 {
        self.parity_index_offset(block, column, 2) + u64::from(row) * self.segment_bytes() as u64
    }
}

/// Bytes written to a device over the life of its controller. All zeros: not counted, because an earlier build made
/// the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct WearCounts {
    /// Bytes written to the device.
    pub(crate) written: u64,
    /// Bytes of segments written for the user.
    pub(crate) user: u64,
    /// Time at which the counts began, in nanoseconds since 1970.
    pub(crate) since_ns: u64,
}

/// The limits that the creator of a pool has set; 0: none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct WearLimits {
    /// Bytes that may be written to each device in its life (rated TBW).
    pub(crate) rated: u64,
    /// Bytes written to each device in a day, above which background writes wait.
    pub(crate) per_day: u64,
}

/// A header copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PoolHeader {
    pub(crate) generation: u64,
    pub(crate) uuid: Uuid,
    /// Number of this device's controller, and the number of controllers of the pool.
    pub(crate) controller: u16,
    pub(crate) controllers: u16,
    pub(crate) geometry: Geometry,
    /// Address at which the whole pool is mapped.
    pub(crate) base: u64,
    /// Number of openings for writing; makes block sequence numbers unique.
    pub(crate) incarnation: u32,
    /// The pool was closed in order.
    pub(crate) clean: bool,
    /// Location of the root record, its length in bytes and its checksum.
    pub(crate) root: Vec<Extent>,
    pub(crate) root_len: u64,
    pub(crate) root_crc: u32,
    pub(crate) wear: WearCounts,
    pub(crate) limits: WearLimits,
}

/// Result of reading a header copy.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    Header(Box<PoolHeader>),
    /// The bytes are not the header of a pool.
    Foreign,
    /// A later format version wrote the header.
    Future(u32),
    /// The header of a pool, but damaged.
    Damaged(FormatError),
}

impl PoolHeader {
    /// Offset of the checksum in a copy.
    pub(crate) const CRC_AT: usize = CRC_AT;
    /// Offset of the root record's checksum in a copy.
    pub(crate) const ROOT_CRC_AT: usize = ROOT_CRC_AT;

    /// Returns the length of the root record if these bytes are a copy of this generation.
    pub(crate) fn root_len(bytes: &[u8], generation: u64) -> Option<u64> {
        match Self::parse(bytes) {
            Parsed::Header(header) if header.generation == generation => Some(header.root_len),
            _ => None,
        }
    }

    /// Largest number of extents of a root record.
    pub(crate) const MAX_EXTENTS: usize = MAX_EXTENTS;

    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        assert!(self.root.len() <= MAX_EXTENTS, "checked when the root record was placed");
        let mut w = Writer::default();
        w.bytes(&MAGIC);
        let redundancy = self.geometry.redundancy;
        w.u32(redundancy.map_or(VERSION_WITHOUT_REDUNDANCY, |_| VERSION));
        w.u32(0);
        w.u64(self.generation);
        w.bytes(self.uuid.as_bytes());
        w.u16(self.controller);
        w.u16(self.controllers);
        w.u32(self.geometry.segment.bytes() as u32);
        w.u32(self.geometry.pages);
        w.u32(self.geometry.upper);
        w.u32(self.geometry.blocks);
        w.u16(self.geometry.slots_per_block);
        w.u16(u16::from(self.clean));
        w.u64(self.base);
        w.u32(self.incarnation);
        debug_assert_eq!(w.0.len(), ROOT_CRC_AT);
        w.u32(self.root_crc);
        w.u64(self.root_len);
        w.count(self.root.len());
        for extent in &self.root {
            w.u64(extent.slot);
            w.u32(extent.slots);
        }
        let mut bytes = [0; HEADER_BYTES];
        bytes[..w.0.len()].copy_from_slice(&w.0);
        let mut w = Writer::default();
        let (wear, limits) = (&self.wear, &self.limits);
        for number in [wear.written, wear.user, wear.since_ns, limits.rated, limits.per_day] {
            w.u64(number);
        }
        w.u8(redundancy.map_or(0, Redundancy::data));
        w.u8(redundancy.map_or(0, Redundancy::parity));
        bytes[ENDURANCE_AT..ENDURANCE_AT + w.0.len()].copy_from_slice(&w.0);
        let crc = crc32c_without(&bytes, CRC_AT);
        bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Parsed {
        if bytes.len() < HEADER_BYTES || bytes[..8] != MAGIC {
            return Parsed::Foreign;
        }
        let bytes = &bytes[..HEADER_BYTES];
        match Self::decode(bytes) {
            Ok(Ok(header)) => Parsed::Header(Box::new(header)),
            Ok(Err(version)) => Parsed::Future(version),
            Err(error) => Parsed::Damaged(error),
        }
    }

    /// Decodes the redundancy, which only headers of version 4 have.
    fn redundancy(version: u32, bytes: &[u8]) -> Result<Option<Redundancy>, FormatError> {
        if version == VERSION_WITHOUT_REDUNDANCY {
            return Ok(None);
        }
        let mut r = Reader::new(WHAT, &bytes[REDUNDANCY_AT..]);
        let (data, parity) = (r.u8()?, r.u8()?);
        let columns = Redundancy::new(data, parity).ok_or_else(|| {
            r.field("redundancy", u64::from(data) << 8 | u64::from(parity), "1 to 32 and 1 to 4 columns")
        })?;
        Ok(Some(columns))
    }

    /// Decodes a header. `Ok(Err(version))`: an intact header of another version.
    fn decode(bytes: &[u8]) -> Result<Result<Self, u32>, FormatError> {
        let mut r = Reader::new(WHAT, bytes);
        r.take(MAGIC.len())?;
        let version = r.u32()?;
        let stored = r.u32()?;
        let computed = crc32c_without(bytes, CRC_AT);
        if stored != computed {
            return Err(FormatError::Checksum { what: WHAT, stored, computed });
        }
        if version != VERSION && version != VERSION_WITHOUT_REDUNDANCY {
            return Ok(Err(version));
        }
        let generation = r.u64()?;
        if generation >= COUNTERS_END {
            return Err(r.field("generation", generation, "below 2^62"));
        }
        let uuid = Uuid::from_slice(r.take(16)?).expect("16 bytes");
        let controller = r.u16()?;
        let controllers = r.u16()?;
        if controllers == 0 || controller >= controllers {
            return Err(r.field(
                "controller",
                u64::from(controller),
                "a value below the number of controllers",
            ));
        }
        let segment = r.u32()?;
        let segment = SegmentSize::from_bytes(u64::from(segment))
            .ok_or_else(|| r.field("segment size", u64::from(segment), "4096, 8192 or 16384"))?;
        let geometry = Geometry {
            segment,
            pages: r.u32()?,
            upper: r.u32()?,
            blocks: r.u32()?,
            slots_per_block: r.u16()?,
            redundancy: Self::redundancy(version, bytes)?,
        };
        let columns = geometry.redundancy.map_or(1, |redundancy| u16::from(redundancy.data()));
        if !geometry.slots_per_block.is_multiple_of(columns) {
            let slots = u64::from(geometry.slots_per_block);
            return Err(r.field("slots per block", slots, "a multiple of the number of data columns"));
        }
        let flags = r.u16()?;
        if flags > 1 {
            return Err(r.field("flags", u64::from(flags), "0 or 1"));
        }
        let base = r.u64()?;
        let incarnation = r.u32()?;
        let root_crc = r.u32()?;
        let root_len = r.u64()?;
        let n = r.count(12)?;
        if n > MAX_EXTENTS {
            return Err(r.field("number of root extents", n as u64, "at most 240"));
        }
        let total = u64::from(geometry.blocks) * u64::from(geometry.slots_per_block);
        let mut room = 0_u64;
        let mut root = Vec::with_capacity(n);
        for _ in 0..n {
            let extent = Extent { slot: r.u64()?, slots: r.u32()? };
            let end = extent.slot.checked_add(u64::from(extent.slots));
            if end.is_none_or(|end| end > total) {
                return Err(r.field("root extent", extent.slot, "a slot of the device"));
            }
            room += u64::from(extent.slots) * segment.bytes();
            root.push(extent);
        }
        if root_len > room {
            return Err(r.field("root length", root_len, "at most the length of its extents"));
        }
        let mut r = Reader::new(WHAT, &bytes[ENDURANCE_AT..]);
        let wear = WearCounts { written: r.u64()?, user: r.u64()?, since_ns: r.u64()? };
        if wear.written >= COUNTERS_END || wear.user >= COUNTERS_END {
            let most = wear.written.max(wear.user);
            return Err(r.field("bytes written", most, "below 2^62"));
        }
        let limits = WearLimits { rated: r.u64()?, per_day: r.u64()? };
        Ok(Ok(Self {
            generation,
            uuid,
            controller,
            controllers,
            geometry,
            base,
            incarnation,
            clean: flags == 1,
            root,
            root_len,
            root_crc,
            wear,
            limits,
        }))
    }
}
