//! Device models of deepram: time, energy, wear and cost of memories, flash, disks and links.
//!
//! Every figure is data. A preset is a TOML table in `presets/` (embedded in the crate) or in a user's
//! file:
//!
//! ```toml
//! [nand.my-flash]
//! about = "a part of ours"
//! base = "slc"
//! read = { value = 30, unit = "us", condition = "85 C", source = "data sheet, table 12" }
//! ```
//!
//! Each figure has a value, a unit, an optional condition, and a source; a source that starts with
//! `assumed` marks an estimate. A preset may be based on another of its kind (`base`), and so may the
//! parts of an SSD (`[ssd.x.nand]`, `[ssd.x.link]`). Values are parsed exactly into whole picoseconds,
//! picojoules and bytes. An unknown key is an error that suggests the nearest valid key. A value that
//! follows from others may be stated; it is then checked.
//!
//! ```
//! use deepram_media::{NandOp, Nand, Picos, Registry};
//!
//! let registry = Registry::builtin()?;
//! let slc: Nand = registry.get_with("slc", &["read=30us"])?;
//! // 30 us in the array and 4 KiB over 8 bits at 400 MT/s.
//! assert_eq!(slc.idle_latency(NandOp::Read, 1), Picos(30_000_000 + 10_240_000));
//! # Ok::<(), deepram_media::MediaError>(())
//! ```
//!
//! The typed models ([`Dram`], [`Nand`], ...) have closed-form times, energies and capacities. They have
//! no state and no clock: the simulator models queues, registers in use and open rows.

#![forbid(unsafe_code)]

mod array;
mod bit_errors;
mod cost;
mod dimension;
mod disk;
mod disk_cache;
mod dram;
mod ecc;
mod energy;
mod error;
mod hierarchy;
mod kind;
mod link;
mod measured_file;
mod model;
mod nand;
mod normal;
mod nvmm;
mod parse;
mod pcm;
mod platform;
mod pmem;
mod processor;
mod registry;
mod resolved;
mod software;
mod ssd;
mod value;
mod wear;
mod write_buffer;

pub use array::{Array, Cells};
pub use bit_errors::{BitErrors, FailingBits, PageErrors, PageUse, poisson};
pub use cost::{cost, cost_effectiveness, total_cost};
pub use deepram_core::units::{Bytes, Picos};
pub use dimension::Dimension;
pub use disk::Disk;
pub use disk_cache::{DiskCacheServer, FlashController, FlashRegions, ReclaimedBlocks, RetiredUnit};
pub use dram::{Background, Dram, RowState};
pub use ecc::{DecodeLaw, Ecc};
pub use energy::{Energy, bit_energy, current_energy, power_energy, total_energy};
pub use error::{MediaError, SourceLocation};
pub use hierarchy::{FlushTarget, Hierarchy, HitPolicy, PromotionAlgorithm};
pub use kind::PresetKind;
pub use link::Link;
pub use measured_file::{MEASURED_DEPTH, MEASURED_SIZES, MeasuredFile};
pub use model::{InvalidFigure, KeySpec, Model};
pub use nand::{Cell, Nand, NandOp};
pub use normal::{Lognormal, normal_cdf, normal_quantile};
pub use nvmm::Nvmm;
pub use pcm::Pcm;
pub use platform::{DataStore, Durability, FlushedLines, FsyncFlush, LineFlush, Platform};
pub use pmem::{Pmem, WriteMethod};
pub use processor::Processor;
pub use registry::{PresetInfo, Registry};
pub use resolved::{Figure, FigureRow, ResolvedPreset};
pub use software::Software;
pub use ssd::{AllocationOrder, AllocationPool, ReclaimTiming, Ssd, VictimChoice};
pub use value::{
    Amperes, Bandwidth, Factor, Field, Fraction, Picojoules, PicojoulesPerBit, Price, Rpm, TransferRate,
    Value, Volts, Watts, WattsPerByte, Year,
};
pub use wear::{endurance_ratio, lifetime_seconds, ssd_writes, total_writes};
pub use write_buffer::{
    AccessCharge, BufferPolicy, BufferScheme, CoolnessRule, DestageRule, ExpectedRule, FilterRule,
    HotnessRule, KeptReads, MovedCounter, PartialWrite, PcmHit, PeriodUnit, PromotingWrite, TagRule,
    WriteBuffer,
};
