//! What a flash translation layer decides about whole blocks: which to write next, which to
//! reclaim, and when the wear has grown uneven; and the page-level mapping of a plain drive with its
//! cache. Where a page's versions lie is the page table's matter (NVMM, Page Table Organization); it
//! is joined with the blocks in [`crate::volume`].

pub mod blocks;
mod error;
pub mod mapping_cache;
pub mod page_map;
pub mod victim;

pub use blocks::{BlockInfo, Blocks, BlocksError, State};
pub use mapping_cache::{Found, MappingCache};
pub use page_map::PageMap;
pub use victim::{CostBenefit, Greedy, GreedyOfRandom, Ties, VictimPolicy, any_block};
