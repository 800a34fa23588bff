//! Errors of [`super::Blocks`].

use core::fmt;

use super::BlockState;
use crate::units::BlockId;

/// The reason for refusing a change of a block. A refused change changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlocksError {
    /// More blocks than block numbers.
    TooMany {
        /// Number of blocks given.
        blocks: usize,
    },
    /// The block does not exist.
    NoSuchBlock {
        /// The requested block.
        block: BlockId,
        /// Number of blocks that exist.
        blocks: u32,
    },
    /// The block's state does not allow the change.
    WrongState {
        /// The block.
        block: BlockId,
        /// Its state.
        state: BlockState,
        /// The states that allow the change.
        expected: &'static str,
    },
    /// The change would break `live <= used <= slots`.
    WrongCount {
        /// The block.
        block: BlockId,
        /// Live slots after the change.
        live: i32,
        /// Used slots after the change.
        used: u16,
        /// The largest allowed number of used slots: all slots of the block, or 0 in a free block.
        limit: u16,
    },
    /// The block still holds live data.
    StillLive {
        /// The block.
        block: BlockId,
        /// Its live slots.
        live: u16,
    },
    /// The block has no slot with this index.
    NoSuchSlot {
        /// The block.
        block: BlockId,
        /// The requested index.
        index: u16,
        /// Slots of a block.
        slots: u16,
    },
}

impl fmt::Display for BlocksError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TooMany { blocks } => {
                write!(f, "{blocks} blocks are too many: a volume has at most {}", u32::MAX)
            }
            Self::NoSuchBlock { block, blocks } => {
                write!(f, "there is no block {}: the volume has blocks 0 to below {blocks}", block.0)
            }
            Self::WrongState { block, state, expected } => {
                write!(f, "block {} is {state:?}: it must be {expected}", block.0)
            }
            Self::WrongCount { block, live, used, limit } => write!(
                f,
                "block {} would have {live} live of {used} used slots: it must be 0 <= live <= used <= {limit}",
                block.0
            ),
            Self::StillLive { block, live } => {
                write!(f, "block {} still has {live} live slots: move them away first", block.0)
            }
            Self::NoSuchSlot { block, index, slots } => {
                write!(f, "block {} has no slot {index}: its slots are 0 to below {slots}", block.0)
            }
        }
    }
}

impl core::error::Error for BlocksError {}
