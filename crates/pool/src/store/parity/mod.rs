//! Parity: protects the segments of a block, so that damage is repaired and not only detected (ADR 35).
//!
//! Parity is written after the slots that it covers are durable, and no sync waits for it: when a block is full, when
//! a checkpoint is written, and when the log has been idle for a second. The parity of a full block costs one write for
//! each row. Parity that is written earlier covers the prefix of the block up to there, and is extended later.
//!
//! A block's parity is described by an index with the block's sequence, the covered prefix, and the checksum of every
//! slot and of every parity segment. So no parity is used for other bytes than those it was computed from. Parity is
//! extended in place. The new index is durable before the parity changes, in the place of the index before the last
//! one: a power cut leaves each row's parity as either the old or the new index describes it, or one torn segment of
//! parity. Opening completes the parity of every block that the log has touched since the last checkpoint.

mod code;
mod protect;
mod repair;
mod scrub;
mod stripes;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::format::parity::ParityIndex;

pub use scrub::ScrubReport;
pub(super) use stripes::Stripes;

/// Time for which the log must be idle before the blocks being filled get parity.
const IDLE: Duration = Duration::from_secs(1);
/// Full blocks without parity above which a writer computes parity before it goes on.
const MOST_PENDING: usize = 4;

/// The state of the parity of a store.
#[derive(Default)]
pub(super) struct ParityState {
    /// Whether the pool has redundancy. Without it nothing is noted.
    enabled: bool,
    /// The indexes of the blocks that are being filled, as last written.
    open: BTreeMap<u32, ParityIndex>,
    /// Blocks to which no slots are added any more, and whose parity does not cover all of them yet.
    pending: BTreeMap<u32, Pending>,
    /// Number of the newest batch when parity was last written for all blocks.
    protected: u64,
    /// Number of the newest batch at the last call in the background, and the time since which it is the newest.
    idle: Option<(u64, Instant)>,
}

/// A block that waits for parity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pending {
    /// Sequence of the block's use.
    sequence: u64,
    /// If this is set, the parity is computed anew from all slots, because existing parity may cover slots that do not
    /// count. The bytes of the slots below this one are final, so the index knows their checksums.
    anew: Option<u16>,
}

/// Every slot of a block of segments: the log never writes a slot twice in one use of a block.
const ALL_FINAL: u16 = u16::MAX;

impl ParityState {
    pub(super) fn new(enabled: bool) -> Self {
        Self { enabled, ..Self::default() }
    }

    /// Notes that a block takes no more slots.
    pub(super) fn note_closed(&mut self, block: u32, sequence: u64) {
        if !self.enabled {
            return;
        }
        let closed = Pending { sequence, anew: None };
        let pending = self.pending.entry(block).or_insert(closed);
        if pending.sequence != sequence {
            *pending = closed;
        }
    }

    /// Notes that existing parity of a block may cover slots that do not count. For a block of tables, the bytes of the
    /// slots below `written` are final.
    pub(super) fn note_doubtful(&mut self, block: u32, sequence: u64, written: Option<u16>) {
        if !self.enabled {
            return;
        }
        self.open.remove(&block);
        let earlier = self.pending.get(&block).filter(|pending| pending.sequence == sequence);
        let earlier = earlier.and_then(|pending| pending.anew).unwrap_or(ALL_FINAL);
        let anew = Some(written.unwrap_or(ALL_FINAL).min(earlier));
        self.pending.insert(block, Pending { sequence, anew });
    }
}
