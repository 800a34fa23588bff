//! The root record: the state of a controller at a checkpoint, except table chunks and segments. Byte layout:
//! `docs/reference/pool-format.md`, section "Root record".

use deepram_core::ftl::{BlockInfo, BlockState};
use deepram_core::{ChunkId, Epoch, Retention, Stamp, TokenInfo, VolumeSnapshot};

use super::batch::NextBlock;
use super::codec::{FormatError, Reader, Writer};
use crate::store::{ChunkLocation, Head, RecordPosition, RingRoot};

const WHAT: &str = "root record";

/// The content of a root record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RootRecord {
    pub(crate) snapshot: VolumeSnapshot,
    pub(crate) retention: Retention,
    /// Worn slots, as block and slot in the block.
    pub(crate) bad: Vec<(u32, u16)>,
    pub(crate) directory: Vec<(ChunkId, ChunkLocation)>,
    pub(crate) temporary: Vec<u32>,
    /// Number of the first batch that is not part of the checkpoint.
    pub(crate) seq: u64,
    pub(crate) block_sequence: u64,
    /// Position at which each stream goes on.
    pub(crate) heads: Vec<Option<Head>>,
    /// Position of the next table chunk: block and slot.
    pub(crate) meta: Option<(u32, u16)>,
    /// The line log, if there is one.
    pub(crate) ring: Option<RingRoot>,
}

impl RootRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        let s = &self.snapshot;
        w.u64(self.seq);
        w.u64(self.block_sequence);
        w.u64(s.open.0);
        w.u32(s.open_stamp.0);
        w.u64(s.open_segments);
        match self.retention {
            Retention::KeepLast(n) => {
                w.u8(0);
                w.u64(u64::from(n));
            }
            Retention::Segments(n) => {
                w.u8(1);
                w.u64(n);
            }
        }
        w.count(s.tokens.len());
        for (token, changed) in s.tokens.iter().zip(&s.changed) {
            w.u64(token.epoch.0);
            w.u32(token.stamp.0);
            w.u64(token.wall_ns);
            w.u32(token.pages_changed);
            w.u64(token.segments_written);
            numbers(&mut w, changed);
        }
        numbers(&mut w, &s.open_changed);
        numbers(&mut w, &s.to_prune);
        w.count(s.blocks.len());
        for block in &s.blocks {
            let (state, stream) = match block.state {
                BlockState::Free => (0, 0),
                BlockState::Open(stream) => (1, stream),
                BlockState::Closed => (2, 0),
                BlockState::Meta => (3, 0),
                BlockState::Sealed => (4, 0),
                BlockState::Retired => (5, 0),
            };
            w.u8(state);
            w.u8(stream);
            w.u16(block.used);
            w.u16(block.live);
            w.u32(block.uses);
            w.u64(block.sequence);
        }
        w.count(s.allocated.len());
        for word in &s.allocated {
            w.u64(*word);
        }
        w.count(s.upper_counts.len());
        for count in &s.upper_counts {
            w.u16(*count);
        }
        w.count(self.bad.len());
        for (block, index) in &self.bad {
            w.u32(*block);
            w.u16(*index);
        }
        w.count(self.directory.len());
        for (chunk, home) in &self.directory {
            w.u32(chunk.0);
            w.u64(home.slot);
            w.u32(home.crc);
        }
        numbers(&mut w, &self.temporary);
        w.count(self.heads.len());
        for head in &self.heads {
            match head {
                None => w.u8(0),
                Some(head) => {
                    w.u8(1);
                    w.u32(head.block);
                    w.u16(head.index);
                    w.u64(head.sequence);
                    w.u32(head.next.block);
                    w.u64(head.next.sequence);
                }
            }
        }
        match self.meta {
            None => w.u8(0),
            Some((block, index)) => {
                w.u8(1);
                w.u32(block);
                w.u16(index);
            }
        }
        match &self.ring {
            None => w.u8(0),
            Some(ring) => {
                w.u8(1);
                numbers(&mut w, &ring.blocks);
                w.u64(ring.start.number);
                w.u64(ring.start.at);
                w.u64(ring.retired);
                w.u64(ring.end);
            }
        }
        w.0
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut r = Reader::new(WHAT, bytes);
        let seq = r.u64()?;
        let block_sequence = r.u64()?;
        let open = Epoch(r.u64()?);
        let open_stamp = Stamp(r.u32()?);
        let open_segments = r.u64()?;
        let retention = match r.u8()? {
            0 => {
                let n = r.u64()?;
                Retention::KeepLast(u32::try_from(n).map_err(|_| r.field("tokens kept", n, "below 2^32"))?)
            }
            1 => Retention::Segments(r.u64()?),
            other => return Err(r.field("retention", u64::from(other), "0 or 1")),
        };
        let mut tokens = Vec::new();
        let mut changed = Vec::new();
        for _ in 0..r.count(36)? {
            tokens.push(TokenInfo {
                epoch: Epoch(r.u64()?),
                stamp: Stamp(r.u32()?),
                wall_ns: r.u64()?,
                pages_changed: r.u32()?,
                segments_written: r.u64()?,
            });
            changed.push(read_numbers(&mut r)?);
        }
        let open_changed = read_numbers(&mut r)?;
        let to_prune = read_numbers(&mut r)?;
        let mut blocks = Vec::new();
        for _ in 0..r.count(18)? {
            let (state, stream) = (r.u8()?, r.u8()?);
            let state = match state {
                0 => BlockState::Free,
                1 => BlockState::Open(stream),
                2 => BlockState::Closed,
                3 => BlockState::Meta,
                4 => BlockState::Sealed,
                5 => BlockState::Retired,
                other => return Err(r.field("block state", u64::from(other), "0 to 5")),
            };
            blocks.push(BlockInfo {
                state,
                used: r.u16()?,
                live: r.u16()?,
                uses: r.u32()?,
                sequence: r.u64()?,
            });
        }
        let allocated = (0..r.count(8)?).map(|_| r.u64()).collect::<Result<_, _>>()?;
        let upper_counts = (0..r.count(2)?).map(|_| r.u16()).collect::<Result<_, _>>()?;
        let bad = (0..r.count(6)?).map(|_| Ok((r.u32()?, r.u16()?))).collect::<Result<_, _>>()?;
        let directory = (0..r.count(16)?)
            .map(|_| Ok((ChunkId(r.u32()?), ChunkLocation { slot: r.u64()?, crc: r.u32()? })))
            .collect::<Result<_, _>>()?;
        let temporary = read_numbers(&mut r)?;
        let mut heads = Vec::new();
        for _ in 0..r.count(1)? {
            heads.push(match r.u8()? {
                0 => None,
                _ => Some(Head {
                    block: r.u32()?,
                    index: r.u16()?,
                    sequence: r.u64()?,
                    next: NextBlock { block: r.u32()?, sequence: r.u64()? },
                }),
            });
        }
        let meta = match r.u8()? {
            0 => None,
            _ => Some((r.u32()?, r.u16()?)),
        };
        let ring = match r.u8()? {
            0 => None,
            _ => Some(RingRoot {
                blocks: read_numbers(&mut r)?,
                start: RecordPosition { number: r.u64()?, at: r.u64()? },
                retired: r.u64()?,
                end: r.u64()?,
            }),
        };
        Ok(Self {
            snapshot: VolumeSnapshot {
                open,
                open_stamp,
                tokens,
                changed,
                open_changed,
                open_segments,
                to_prune,
                blocks,
                allocated,
                upper_counts,
            },
            retention,
            bad,
            directory,
            temporary,
            seq,
            block_sequence,
            heads,
            meta,
            ring,
        })
    }
}

fn numbers(w: &mut Writer, numbers: &[u32]) {
    w.count(numbers.len());
    for number in numbers {
        w.u32(*number);
    }
}

fn read_numbers(r: &mut Reader<'_>) -> Result<Vec<u32>, FormatError> {
    (0..r.count(4)?).map(|_| r.u32()).collect()
}
