//! The peers that benchmarks compare deepram with, and the kernel interfaces of those benchmarks that need unsafe
//! code: mappings and swap files. Not part of the public interface.

mod checkpoint;
mod mapped;
mod memory;
mod swap;

pub use checkpoint::{DirectFile, MappedFile};
pub use memory::{Anonymous, ByCall, Memory, Paged, Pooled, SharedFile};
pub use swap::SwapFile;
