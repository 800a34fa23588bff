//! Refused changes of blocks.

use core::fmt;

use super::State;
use crate::units::BlockId;

/// Why a change of a block was refused; nothing has been changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlocksError {
    /// More blocks than a block number can tell apart.
    TooMany {
        /// How many were given.
        blocks: usize,
    },
    /// There is no such block.
    NoSuchBlock {
        /// The block asked for.
        block: BlockId,
        /// How many there are.
        blocks: u32,
    },
    /// The block's state does not allow it.
    WrongState {
        /// The block.
        block: BlockId,
        /// Its state.
        state: State,
        /// The states that would do.
        expected: &'static str,
    },
    /// The counts would break `live <= used <= slots`.
    WrongCount {
        /// The block.
        block: BlockId,
        /// Live slots it would have.
        live: i32,
        /// Used slots it would have.
        used: u16,
        /// The most it may use: its slots, or 0 in a free block.
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
        /// The index asked for.
        index: u16,
        /// Slots of a block.
        slots: u16,
    },
}

impl fmt::Display for BlocksError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TooMany { blocks } => {
                write!(f, "{blocks} blocks are too many: at most {} can be numbered", u32::MAX)
            }
            Self::NoSuchBlock { block, blocks } => {
                write!(f, "there is no block {}: a volume of {blocks} has 0 to below {blocks}", block.0)
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
