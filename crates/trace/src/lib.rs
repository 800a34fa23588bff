//! Sources of a simulation's requests: recorded traces and generated workloads.
//!
//! - [`TraceReader`] reads block, memory and object traces in [many formats](Format), plain or
//!   compressed with gzip or zstd, one record at a time in constant memory.
//! - [`TraceWriter`] writes several of these formats, among them deepram's [own
//!   format](deepram_format).
//! - [`Summary`] characterises a trace; [`convert()`] translates one format into another.
//! - [`workload`] generates streams of requests and memory references from a text such as
//!   `zipf:theta=0.99,span=1GiB` and a seed, identical on every machine.
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
//! All of them exchange [`Item`]s. The crate never reads a clock. It reads files only in
//! [`TraceReader::open`] and in graph workloads with an edge list.

#![forbid(unsafe_code)]

mod columns;
mod error;
mod input_stream;
mod record;
mod text_fields;

pub mod characterize;
pub mod deepram_format;
pub mod format;
pub mod workload;

mod convert;
mod summary;
mod writer;

pub use columns::Columns;
pub use convert::{Converted, convert};
pub use deepram_core::units::{Bytes, PS_PER_MS, PS_PER_NS, PS_PER_S, PS_PER_US};
pub use error::{TraceError, TracePosition};
pub use format::{FORMATS, Format, FormatInfo, ReadOptions, ReaderStats, TraceReader};
pub use input_stream::{Compression, MAX_LINE_BYTES};
pub use record::{Item, MemRef, MemoryAccess, ObjectPlacement, ObjectRef, Op, Request};
pub use summary::{FOOTPRINT_PAGE, OpStats, Ranges, Summary};
pub use workload::Workload;
pub use writer::{TraceWriter, WriteOptions};
