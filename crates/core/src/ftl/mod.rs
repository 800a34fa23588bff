//! What a flash translation layer decides about whole blocks: which to write next, which to
//! reclaim, and when the wear has grown uneven. Where a page's data lies is the page table's
//! matter (NVMM, Page Table Organization); the two are joined in [`crate::volume`].

pub mod blocks;
mod error;
pub mod victim;

pub use blocks::{BlockInfo, Blocks, BlocksError, State};
pub use victim::{CostBenefit, Greedy, VictimPolicy};
