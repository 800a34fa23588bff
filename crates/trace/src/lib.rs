//! Where a simulation's requests come from: traces of real machines and generated workloads.
//!
//! - [`TraceReader`] reads block, memory and object traces in [many formats](Format), plain or
//!   compressed with gzip or zstd, one record at a time in constant memory;
//! - [`TraceWriter`] writes them, among others in a [compact format of our own](compact);
//! - [`Summary`] says what is in one, [`convert()`] turns one into another;
//! - [`workload`] generates request and reference streams from a text such as
//!   `zipf:theta=0.99,span=1GiB`, by seed, the same bytes on every machine.
//!
//! ```
//! use deepram_trace::{ReadOptions, Summary, TraceReader, Workload};
//!
//! let text = "0 0 303567 7 0\n26214000 1 240840 6 1\n";
//! let reader = TraceReader::new(text.as_bytes(), &ReadOptions::default())?;
//! assert_eq!(Summary::of(reader)?.records, 2);
//!
//! let workload = Workload::new("uniform:span=1MiB,count=10,arrival=poisson,rate=20k", 42)?;
//! assert_eq!(workload.count(), 10);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! All of them speak in [`Item`]s. Nothing here reads a clock; files are read only by
//! [`TraceReader::open`] and by the graph workloads when they are given an edge list.

#![forbid(unsafe_code)]

mod error;
mod input;
mod record;
mod text;

pub mod compact;
pub mod format;
pub mod workload;

mod convert;
mod info;
mod write;

pub use convert::{Converted, convert};
pub use deepram_core::units::{Bytes, PS_PER_MS, PS_PER_NS, PS_PER_S, PS_PER_US};
pub use error::{Place, TraceError};
pub use format::{FORMATS, Format, FormatInfo, ReadOptions, ReaderStats, TraceReader};
pub use info::{FOOTPRINT_PAGE, OpStats, Ranges, Summary};
pub use input::{Compression, MAX_LINE_BYTES};
pub use record::{Access, Item, MemRef, ObjectPlacement, ObjectRef, Op, Request};
pub use workload::Workload;
pub use write::{TraceWriter, WriteOptions};
