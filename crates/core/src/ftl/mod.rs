//! The decisions of a flash translation layer (FTL): which block to write next, which to reclaim, and
//! when to level wear; and a plain drive's page-level L2P map with its mapping cache.
//!
//! The versions of a page are the page table's (NVMM, Page Table Organization); [`crate::volume`] joins
//! it with the blocks.

pub mod blocks;
mod error;
pub mod mapping_cache;
pub mod page_map;
pub mod victim;

pub use blocks::{BlockInfo, BlockState, Blocks, BlocksError};
pub use mapping_cache::{MappingCache, MappingLookup};
pub use page_map::PageMap;
pub use victim::{CostBenefit, Greedy, GreedyOfRandom, TieBreak, VictimPolicy, any_block};
