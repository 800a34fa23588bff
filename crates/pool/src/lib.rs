//! A deepram pool: journaled memory on a file or block device, larger than the DRAM that it uses. After a crash the
//! pool opens at the token of its last sync, and a program can roll it back to earlier tokens.
//!
//! ```no_run
//! use deepram_pool::{CreateOptions, Lifetime, OpenOptions, Pool};
//!
//! # fn main() -> deepram_pool::Result<()> {
//! Pool::create(&["data.pool"], &CreateOptions::new(4 << 30))?;
//! let pool = Pool::open(&["data.pool"], &OpenOptions::new(512 << 20))?;
//! let addr = pool.alloc(1 << 30, Lifetime::Permanent)?;
//! pool.set_root("table", addr, 1 << 30)?;
//!
//! let table = pool.pointer(addr, 1 << 30)?.cast::<u64>();
//! // SAFETY: 1 GiB was allocated at `table`, and no other thread uses it.
//! unsafe { table.add(7).write(42) };
//!
//! let token = pool.sync()?;
//! pool.write(addr, b"a mistake")?;
//! pool.rollback(token)?;
//! pool.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! Start at [`Pool`]. The architecture is described in `docs/explanation/architecture.md`, every byte on the device in
//! `docs/reference/pool-format.md`.

mod buffer_pool;
mod cache;
pub mod device;
mod endurance;
mod error;
mod format;
#[doc(hidden)]
pub mod fuzzing;
pub mod log;
mod memory_controller;
mod options;
mod pool;
mod process;
mod published;
mod region;
mod stats;
mod store;
mod view;

/// Controllers on byte-addressable memory.
pub mod memory {
    pub use deepram_core::persist::FlushCounts;
    pub use deepram_linux::flush::Method as FlushMethod;

    pub use crate::memory_controller::{
        MemoryController, MemoryInfo, MemoryKind, MemoryOptions, MemoryRegion, Processor, Selective,
    };
}

pub use deepram_core::migration::{EpochReset, PromotionTrigger, ThresholdOptions};
pub use deepram_core::{Addr, AddrError, Bytes, Epoch, Redundancy, Retention, SegmentSize};
pub use deepram_metrics::ListenAddress;
pub use endurance::Endurance;
pub use error::{PoolError, Result};
pub use format::{FormatError, VERSION as FORMAT_VERSION};
pub use options::{CreateOptions, FaultOptions, LoadOptions, Mapping, OpenOptions};
pub use pool::{
    History, Info, Inspection, Lifetime, MemoryFile, Permissions, Persist, Pool, Root, TokenView,
};
pub use process::ForkedChild;
pub use published::{POOL_MEMORY_NAME, POOL_STATISTICS, PoolView};
pub use region::WatchError;
pub use stats::Stats;
pub use store::{DamagedSegment, Report, ScrubReport};
pub use view::Words;
