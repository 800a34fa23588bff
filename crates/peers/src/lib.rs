//! The peers that benchmarks compare deepram with, and the kernel interfaces of those benchmarks that need unsafe
//! code: mappings, swap files and persistent memory. For `deepram bench` only.

mod checkpoint;
mod in_place;
mod mapped;
mod memory;
mod swap;

pub use checkpoint::{DirectFile, MappedFile};
pub use in_place::{Bare, InPlace, Libpmem, dirty};
pub use memory::{Anonymous, ByCall, Memory, Paged, Pooled, SharedFile};
pub use swap::SwapFile;
