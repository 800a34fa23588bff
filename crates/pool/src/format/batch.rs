//! A log batch: one header segment, then the segments it describes, in consecutive slots of one
//! block. The header is summary, table delta and checksum list at once; a commit is a batch with
//! [`Meta::Commit`] in it. Byte layout: `docs/internals/pool-format.md`, section "Log batch".

use super::codec::{FormatError, Reader, Writer, crc32c_without};

const MAGIC: u32 = u32::from_le_bytes(*b"DRB1");
const CRC_AT: usize = 4;
const WHAT: &str = "batch header";
/// Bytes before the records.
const FIXED: usize = 76;
/// Bytes of one slot record.
const RECORD: usize = 12;

/// What a slot of a batch holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotKind {
    /// Nothing.
    Pad = 0,
    /// A segment as its page was written.
    Data = 1,
    /// A segment that reclamation moved: its version keeps its stamp.
    Moved = 2,
}

/// One slot after the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlotRecord {
    pub(crate) kind: SlotKind,
    pub(crate) page: u32,
    pub(crate) segment: u8,
    /// 24 bits.
    pub(crate) stamp: u32,
    pub(crate) crc: u32,
}

impl SlotRecord {
    pub(crate) const PAD: Self = Self { kind: SlotKind::Pad, page: 0, segment: 0, stamp: 0, crc: 0 };
}

/// A change that is not a segment, in the order in which it took place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meta {
    /// Pages `first..first+count` got this status.
    Status { first: u32, count: u32, status: u8 },
    /// Pages were deleted.
    Delete { first: u32, count: u32 },
    /// A token was given up.
    Drop { token: u64 },
    /// The open epoch was closed, after everything else in this batch and before it.
    Commit { epoch: u64, wall_ns: u64 },
    /// State went back to `token`; the epoch that opened then.
    Rollback { token: u64, open: u64 },
    /// The commit in this batch has in it what the line log's groups up to this one say.
    Lines { group: u64 },
}

/// Where a stream goes on when its block is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NextBlock {
    pub(crate) block: u32,
    pub(crate) sequence: u64,
}

/// The header of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    /// First half of the pool's uuid and the controller: a copied block is not taken for ours.
    pub(crate) pool: u64,
    pub(crate) controller: u16,
    pub(crate) stream: u8,
    /// Position in the log, consecutive over all streams.
    pub(crate) seq: u64,
    pub(crate) block: u32,
    /// Slot of this header in the block.
    pub(crate) index: u16,
    /// Unique for every use of a block.
    pub(crate) block_sequence: u64,
    pub(crate) next: NextBlock,
    /// Batches up to this one were flushed before this one was written.
    pub(crate) flushed: u64,
    /// Generation of the pool header that counted when this was written.
    pub(crate) generation: u64,
    pub(crate) metas: Vec<Meta>,
    pub(crate) slots: Vec<SlotRecord>,
}

impl BatchHeader {
    /// Where a header's own checksum stands.
    pub(crate) const CRC_AT: usize = CRC_AT;

    /// Where the checksum of the `n`th slot after the header stands in it.
    pub(crate) fn checksum_at(&self, n: usize) -> usize {
        FIXED + self.metas.iter().map(|m| m.encoded_len()).sum::<usize>() + n * RECORD + RECORD - 4
    }

    /// Most slot records beside `metas` bytes of metadata in a header of `segment` bytes.
    pub(crate) fn capacity(segment: usize, metas: usize) -> usize {
        segment.saturating_sub(FIXED + metas) / RECORD
    }

    /// Most bytes of metadata in a header of `segment` bytes.
    pub(crate) fn meta_capacity(segment: usize) -> usize {
        segment - FIXED
    }

    /// Whether this batch makes what came before it a state to recover to.
    pub(crate) fn is_commit(&self) -> bool {
        self.metas.iter().any(|m| matches!(m, Meta::Commit { .. } | Meta::Rollback { .. }))
    }

    /// Fills `out`, one segment.
    pub(crate) fn encode(&self, out: &mut [u8]) {
        let mut w = Writer::default();
        w.u32(MAGIC);
        w.u32(0);
        w.u64(self.pool);
        w.u16(self.controller);
        w.u8(self.stream);
        w.u8(0);
        w.u64(self.seq);
        w.u32(self.block);
        w.u16(self.index);
        w.u16(u16::try_from(self.slots.len()).expect("fewer slots than a block has"));
        w.u64(self.block_sequence);
        w.u32(self.next.block);
        w.u64(self.next.sequence);
        w.u64(self.flushed);
        w.u64(self.generation);
        w.count(self.metas.len());
        debug_assert_eq!(w.0.len(), FIXED);
        for meta in &self.metas {
            meta.encode(&mut w);
        }
        for slot in &self.slots {
            w.u32(slot.page << 4 | u32::from(slot.segment));
            w.u32(slot.stamp << 8 | slot.kind as u32);
            w.u32(slot.crc);
        }
        assert!(w.0.len() <= out.len(), "the caller keeps to the capacity");
        out[..w.0.len()].copy_from_slice(&w.0);
        out[w.0.len()..].fill(0);
        let crc = crc32c_without(out, CRC_AT);
        out[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads a header from one segment.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut r = Reader::new(WHAT, bytes);
        let magic = r.u32()?;
        if magic != MAGIC {
            return Err(r.field("magic", u64::from(magic), "expected \"DRB1\""));
        }
        let stored = r.u32()?;
        let computed = crc32c_without(bytes, CRC_AT);
        if stored != computed {
            return Err(FormatError::Checksum { what: WHAT, stored, computed });
        }
        let pool = r.u64()?;
        let controller = r.u16()?;
        let stream = r.u8()?;
        r.u8()?;
        let seq = r.u64()?;
        let block = r.u32()?;
        let index = r.u16()?;
        let slots_len = usize::from(r.u16()?);
        let block_sequence = r.u64()?;
        let next = NextBlock { block: r.u32()?, sequence: r.u64()? };
        let flushed = r.u64()?;
        let generation = r.u64()?;
        let metas_len = r.count(1)?;
        let metas = (0..metas_len).map(|_| Meta::decode(&mut r)).collect::<Result<_, _>>()?;
        let mut slots = Vec::with_capacity(slots_len.min(bytes.len() / RECORD));
        for _ in 0..slots_len {
            let owner = r.u32()?;
            let stamp_kind = r.u32()?;
            let crc = r.u32()?;
            let kind = match stamp_kind & 0xFF {
                0 => SlotKind::Pad,
                1 => SlotKind::Data,
                2 => SlotKind::Moved,
                other => return Err(r.field("slot kind", u64::from(other), "0, 1 or 2")),
            };
            slots.push(SlotRecord {
                kind,
                page: owner >> 4,
                segment: (owner & 0xF) as u8,
                stamp: stamp_kind >> 8,
                crc,
            });
        }
        Ok(Self {
            pool,
            controller,
            stream,
            seq,
            block,
            index,
            block_sequence,
            next,
            flushed,
            generation,
            metas,
            slots,
        })
    }
}

impl Meta {
    /// Bytes that it takes in a header.
    pub(crate) fn encoded_len(self) -> usize {
        1 + match self {
            Self::Status { .. } => 9,
            Self::Delete { .. } | Self::Drop { .. } | Self::Lines { .. } => 8,
            Self::Commit { .. } | Self::Rollback { .. } => 16,
        }
    }

    fn encode(self, w: &mut Writer) {
        match self {
            Self::Status { first, count, status } => {
                w.u8(1);
                w.u32(first);
                w.u32(count);
                w.u8(status);
            }
            Self::Delete { first, count } => {
                w.u8(2);
                w.u32(first);
                w.u32(count);
            }
            Self::Drop { token } => {
                w.u8(3);
                w.u64(token);
            }
            Self::Commit { epoch, wall_ns } => {
                w.u8(4);
                w.u64(epoch);
                w.u64(wall_ns);
            }
            Self::Rollback { token, open } => {
                w.u8(5);
                w.u64(token);
                w.u64(open);
            }
            Self::Lines { group } => {
                w.u8(6);
                w.u64(group);
            }
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, FormatError> {
        Ok(match r.u8()? {
            1 => Self::Status { first: r.u32()?, count: r.u32()?, status: r.u8()? },
            2 => Self::Delete { first: r.u32()?, count: r.u32()? },
            3 => Self::Drop { token: r.u64()? },
            4 => Self::Commit { epoch: r.u64()?, wall_ns: r.u64()? },
            5 => Self::Rollback { token: r.u64()?, open: r.u64()? },
            6 => Self::Lines { group: r.u64()? },
            other => return Err(r.field("metadata kind", u64::from(other), "1 to 6")),
        })
    }
}
