//! The log batch: one header segment, followed by the segments it describes, in consecutive slots of one block. The
//! header is the block's summary, the table delta and the checksum list in one; a commit is a batch with
//! [`Meta::Commit`]. Byte layout: `docs/reference/pool-format.md`, section "Log batch".
//!
//! The header segment holds two copies of the header, one in each half, each with its own checksum, so that damage to
//! one sector leaves a valid copy. The header of a commit also holds the parity sector of the batch's segments, from
//! which recovery can rebuild one of their sectors (ADR 26).

use super::codec::{FormatError, Reader, Writer, crc32c, crc32c_without};
use crate::device::SECTOR;

const MAGIC: u32 = u32::from_le_bytes(*b"DRB1");
const CRC_AT: usize = 4;
const WHAT: &str = "batch header";
/// Size of a header before its records, in bytes.
const FIXED: usize = 76;
/// Size of a slot record, in bytes.
const RECORD: usize = 12;
/// Copies of the header in its segment.
const COPIES: usize = 2;
/// Bit of the flags byte: the copy ends with a parity sector.
const HAS_PARITY: u8 = 1;

/// XOR of all sectors of a batch's segments.
pub(crate) type Parity = Box<[u8; SECTOR]>;

/// Content of a slot in a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotKind {
    /// The slot is empty.
    Pad = 0,
    /// A segment written for the user.
    Data = 1,
    /// A segment that reclamation moved: its version keeps its stamp.
    Moved = 2,
}

/// Description of one slot after the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlotRecord {
    pub(crate) kind: SlotKind,
    pub(crate) page: u32,
    pub(crate) segment: u8,
    /// Stamp of the version, 24 bits.
    pub(crate) stamp: u32,
    pub(crate) crc: u32,
}

impl SlotRecord {
    pub(crate) const PAD: Self = Self { kind: SlotKind::Pad, page: 0, segment: 0, stamp: 0, crc: 0 };
}

/// A change other than a segment write, in the order in which the changes took place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meta {
    /// Pages `first..first+count` have this status now.
    Status { first: u32, count: u32, status: u8 },
    /// Pages `first..first+count` were deleted.
    Delete { first: u32, count: u32 },
    /// A token was given up.
    Drop { token: u64 },
    /// The open epoch was closed, after everything else in this batch and earlier batches.
    Commit { epoch: u64, wall_ns: u64 },
    /// The state returned to that of `token`, and epoch `open` began.
    Rollback { token: u64, open: u64 },
    /// The commit in this batch covers the groups of the line log up to this one.
    Lines { group: u64 },
}

/// The block in which a stream goes on when its current block is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NextBlock {
    pub(crate) block: u32,
    pub(crate) sequence: u64,
}

/// The header of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    /// First half of the pool's uuid. With the controller, it distinguishes a copied block from one of this pool.
    pub(crate) pool: u64,
    pub(crate) controller: u16,
    pub(crate) stream: u8,
    /// Number of the batch in the log, consecutive over all streams.
    pub(crate) seq: u64,
    pub(crate) block: u32,
    /// Slot of this header in the block.
    pub(crate) index: u16,
    /// Sequence number, unique for every use of a block.
    pub(crate) block_sequence: u64,
    pub(crate) next: NextBlock,
    /// Batches up to this one were flushed before this one was written.
    pub(crate) flushed: u64,
    /// Generation of the valid pool header when this batch was written.
    pub(crate) generation: u64,
    pub(crate) metas: Vec<Meta>,
    pub(crate) slots: Vec<SlotRecord>,
    /// Parity sector of the segments in a commit's batch.
    pub(crate) parity: Option<Parity>,
}

impl BatchHeader {
    /// Offset of the checksum in a copy of the header.
    pub(crate) const CRC_AT: usize = CRC_AT;

    /// Returns the offset, in a copy of the header, of the checksum of the `n`th slot after the header.
    pub(crate) fn checksum_at(&self, n: usize) -> usize {
        FIXED + self.metas.iter().map(|m| m.encoded_len()).sum::<usize>() + n * RECORD + RECORD - 4
    }

    /// Returns the largest number of slot records in a header, in addition to `metas` bytes of metadata, for segments
    /// of `segment` bytes. The header of a commit also holds a parity sector.
    pub(crate) fn capacity(segment: usize, metas: usize, commit: bool) -> usize {
        let parity = if commit { SECTOR } else { 0 };
        (segment / COPIES).saturating_sub(FIXED + parity + metas) / RECORD
    }

    /// Returns the largest size of the metadata in a commit's header of `segment` bytes.
    pub(crate) fn meta_capacity(segment: usize) -> usize {
        segment / COPIES - FIXED - SECTOR
    }

    /// Returns the offsets of the header copies in a header segment of `segment` bytes.
    pub(crate) fn copies_at(segment: usize) -> [usize; COPIES] {
        [0, segment / COPIES]
    }

    /// Returns whether recovery can return to the state at the end of this batch.
    pub(crate) fn is_commit(&self) -> bool {
        self.metas.iter().any(|m| matches!(m, Meta::Commit { .. } | Meta::Rollback { .. }))
    }

    /// Encodes the header into `out`, one segment.
    pub(crate) fn encode(&self, out: &mut [u8]) {
        let mut w = Writer::default();
        w.u32(MAGIC);
        w.u32(0);
        w.u64(self.pool);
        w.u16(self.controller);
        w.u8(self.stream);
        w.u8(if self.parity.is_some() { HAS_PARITY } else { 0 });
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
        let parity = self.parity.as_ref().map_or(&[][..], |parity| &parity[..]);
        let copy = out.len() / COPIES;
        assert!(w.0.len() + parity.len() <= copy, "the caller keeps to the capacity");
        w.0.resize(copy - parity.len(), 0);
        w.bytes(parity);
        let crc = crc32c_without(&w.0, CRC_AT);
        w.0[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        out.chunks_exact_mut(copy).for_each(|to| to.copy_from_slice(&w.0));
    }

    /// Decodes the header from its segment. If both copies are valid, the newer one counts: after a torn write, one
    /// copy can be from an earlier use of the slot.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let [first, second] =
            Self::copies_at(bytes.len()).map(|at| Self::decode_copy(&bytes[at..at + bytes.len() / COPIES]));
        match (first, second) {
            (Ok(first), Ok(second)) if second.age() > first.age() => Ok(second),
            (Ok(header), _) | (Err(_), Ok(header)) => Ok(header),
            (Err(error), Err(_)) => Err(error),
        }
    }

    /// Orders the headers that a slot has held, oldest first.
    fn age(&self) -> (u64, u64) {
        (self.block_sequence, self.seq)
    }

    /// Returns whether both copies in a header segment are equal. If not, one is damaged or was not written.
    pub(crate) fn has_both_copies(bytes: &[u8]) -> bool {
        let (first, second) = bytes.split_at(bytes.len() / COPIES);
        first == second
    }

    fn decode_copy(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut r = Reader::new(WHAT, bytes);
        let magic = r.u32()?;
        if magic != MAGIC {
            return Err(r.field("magic", u64::from(magic), "\"DRB1\""));
        }
        let stored = r.u32()?;
        let computed = crc32c_without(bytes, CRC_AT);
        if stored != computed {
            return Err(FormatError::Checksum { what: WHAT, stored, computed });
        }
        let pool = r.u64()?;
        let controller = r.u16()?;
        let stream = r.u8()?;
        let flags = r.u8()?;
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
        let parity = if flags & HAS_PARITY == 0 {
            None
        } else {
            let (_, parity) = bytes.split_last_chunk().ok_or_else(|| {
                r.field("flags", u64::from(flags), "no parity flag in a copy without a parity sector")
            })?;
            Some(Box::new(*parity))
        };
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
            parity,
        })
    }
}

/// Computes the parity sector of a batch's segments: the XOR of all their sectors.
pub(crate) fn parity(body: &[u8]) -> Parity {
    let mut parity = Box::new([0; SECTOR]);
    for sector in body.chunks_exact(SECTOR) {
        xor(&mut parity, sector);
    }
    parity
}

fn xor(into: &mut [u8; SECTOR], sector: &[u8]) {
    into.iter_mut().zip(sector).for_each(|(a, b)| *a ^= b);
}

/// Rebuilds one sector of the damaged segment from the parity sector. The segment has `len` bytes, begins at offset
/// `damaged` in `body`, and must get the checksum `crc`. Returns whether such a sector was found; if not, `body` is
/// unchanged.
pub(crate) fn rebuild(body: &mut [u8], damaged: usize, len: usize, crc: u32, expected: &Parity) -> bool {
    // The difference between a wrong sector and its correct contents, if only one sector is wrong.
    let mut difference = parity(body);
    xor(&mut difference, &expected[..]);
    let segment = &mut body[damaged..damaged + len];
    for at in (0..len).step_by(SECTOR) {
        let (mut rebuilt, before) = (*difference, at..at + SECTOR);
        xor(&mut rebuilt, &segment[before.clone()]);
        let original: [u8; SECTOR] = segment[before.clone()].try_into().expect("a sector");
        segment[before.clone()].copy_from_slice(&rebuilt);
        if crc32c(segment) == crc {
            return true;
        }
        segment[before].copy_from_slice(&original);
    }
    false
}

impl Meta {
    /// Returns the encoded size, in bytes.
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

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: usize = 4096;

    fn header(seq: u64, slots: usize, parity: Option<Parity>) -> BatchHeader {
        let record =
            |n| SlotRecord { kind: SlotKind::Data, page: 9, segment: n as u8 % 16, stamp: 7, crc: n as u32 };
        BatchHeader {
            pool: 1,
            controller: 2,
            stream: 0,
            seq,
            block: 3,
            index: 4,
            block_sequence: 5,
            next: NextBlock { block: 6, sequence: 7 },
            flushed: 8,
            generation: 9,
            metas: vec![Meta::Commit { epoch: 10, wall_ns: 11 }, Meta::Lines { group: 12 }],
            slots: (0..slots).map(record).collect(),
            parity,
        }
    }

    #[test]
    fn either_copy_serves_and_the_newer_one_counts() {
        let most = BatchHeader::capacity(SEGMENT, 26, true);
        let (new, old) = (header(20, most, Some(Box::new([0xA5; SECTOR]))), header(19, 3, None));
        let mut bytes = vec![0; SEGMENT];
        new.encode(&mut bytes);
        assert!(BatchHeader::has_both_copies(&bytes));
        for bit in 0..SEGMENT * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(BatchHeader::decode(&bytes).as_ref(), Ok(&new), "bit {bit}");
            assert!(!BatchHeader::has_both_copies(&bytes), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        // A torn write leaves one copy of each header.
        let mut before = vec![0; SEGMENT];
        old.encode(&mut before);
        for [first, second] in [[&bytes, &before], [&before, &bytes]] {
            let torn = [&first[..SEGMENT / 2], &second[SEGMENT / 2..]].concat();
            assert_eq!(BatchHeader::decode(&torn).as_ref(), Ok(&new));
        }
        bytes[100] ^= 1;
        bytes[SEGMENT - 1] ^= 1;
        assert!(BatchHeader::decode(&bytes).is_err());
    }

    #[test]
    fn one_wrong_sector_is_rebuilt_and_two_are_not() {
        let body: Vec<u8> = (0..3 * SEGMENT).map(|n| (n * n / 77) as u8).collect();
        let expected = parity(&body);
        for sector in 0..body.len() / SECTOR {
            let damaged = sector * SECTOR / SEGMENT * SEGMENT;
            let crc = crc32c(&body[damaged..damaged + SEGMENT]);
            let mut wrong = body.clone();
            wrong[sector * SECTOR..][..SECTOR].fill(0);
            assert!(rebuild(&mut wrong, damaged, SEGMENT, crc, &expected));
            assert_eq!(wrong, body, "sector {sector}");
            let other = (sector + 1) * SECTOR % body.len();
            wrong[sector * SECTOR..][..SECTOR].fill(0);
            wrong[other..][..SECTOR].fill(0);
            let before = wrong.clone();
            assert!(!rebuild(&mut wrong, damaged, SEGMENT, crc, &expected));
            assert_eq!(wrong, before, "sectors {sector} and the next");
        }
    }
}
