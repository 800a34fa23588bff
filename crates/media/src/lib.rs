//! Device models of deepram: what memories, flash, disks and links take in time, energy, wear and money.
//!
//! Every figure is data. A preset is a TOML table in `presets/` (embedded, so that nothing is needed at
//! run time) or in a user's file:
//!
//! ```toml
//! [nand.my-flash]
//! about = "a part of ours"
//! base = "slc"
//! read = { value = 30, unit = "us", condition = "85 C", source = "data sheet, table 12" }
//! ```
//!
//! Each figure has a value, a unit, sometimes a condition, and a source; a source that opens with
//! `assumed` marks an estimate. A preset may start from another of its kind (`base`) and an SSD is made
//! of parts (`[ssd.x.nand]`, `[ssd.x.link]`) that may do the same. Values are read exactly into whole
//! picoseconds, picojoules and bytes. Unknown keys are errors that name the nearest valid key; values
//! that follow from others may be stated and are then checked.
//!
//! ```
//! use deepram_media::{NandOp, Nand, Picos, Registry};
//!
//! let registry = Registry::builtin()?;
//! let slc: Nand = registry.get_with("slc", &["read=30us"])?;
//! // 30 us in the array and 4 KiB over 8 bits at 400 MT/s.
//! assert_eq!(slc.single(NandOp::Read, 1), Picos(30_000_000 + 10_240_000));
//! # Ok::<(), deepram_media::MediaError>(())
//! ```
//!
//! The typed forms ([`Dram`], [`Nand`], ...) carry the closed forms of their kind. Nothing here holds
//! state or knows a clock: queues, registers in use and open rows are the simulator's.

#![forbid(unsafe_code)]

mod array;
mod cost;
mod dimension;
mod disk;
mod dram;
mod energy;
mod error;
mod file;
mod hierarchy;
mod kind;
mod link;
mod load;
mod model;
mod nand;
mod nvmm;
mod pcm;
mod pmem;
mod processor;
mod registry;
mod sheet;
mod software;
mod ssd;
mod value;
mod wear;

pub use array::{Array, Cells};
pub use cost::{cost, cost_effectiveness, total_cost};
pub use deepram_core::units::{Bytes, Picos};
pub use dimension::Dimension;
pub use disk::Disk;
pub use dram::{Background, Dram, RowState};
pub use energy::{Energy, bit_energy, current_energy, power_energy, total};
pub use error::{MediaError, Place, nearest};
pub use file::{File, MEASURED_DEPTH, MEASURED_SIZES};
pub use hierarchy::{Algorithm, Flushed, Hierarchy, HitPolicy};
pub use kind::Kind;
pub use link::Link;
pub use model::{Fault, KeySpec, Model};
pub use nand::{Cell, Nand, NandOp};
pub use nvmm::Nvmm;
pub use pcm::Pcm;
pub use pmem::{Pmem, WriteMethod};
pub use processor::Processor;
pub use registry::{Entry, Registry};
pub use sheet::{Figure, Row, Sheet};
pub use software::Software;
pub use ssd::{AllocationPool, Reclaim, Spread, Ssd, Victim};
pub use value::{
    Amperes, Bandwidth, Field, Fraction, Picojoules, PicojoulesPerBit, Price, Rpm, TransferRate, Value,
    Volts, Watts, WattsPerByte, Year,
};
pub use wear::{endurance_ratio, lifetime_seconds, ssd_writes, total_writes};
