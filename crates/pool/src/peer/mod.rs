//! What deepram is measured against in the benches, and what those benches need of the kernel that takes
//! unsafe code: mappings, swap files. Not part of the interface.

mod checkpoint;
mod mapped;
mod memory;
mod swap;

pub use checkpoint::{DirectFile, MappedFile};
pub use memory::{Anonymous, ByCall, Memory, Paged, Pooled, SharedFile};
pub use swap::SwapFile;
