//! Flushing of a range of byte-addressable persistent memory: which lines are written back, and which pages' dirty bits
//! are cleared (NVMM application study, sections II-C and III-C).
//!
//! [`RangeFlush`] is one such flush as a sequence of steps that the caller carries out in order. With
//! [`SyncMode::EveryLine`] it writes back every line of the range. With [`SyncMode::Selective`] (selective persistence
//! flushing, SPF) it writes back the lines of dirty pages only:
//!
//! | page of the range | dirty bit | lines written back |
//! |---|---|---|
//! | not dirty | | none |
//! | dirty, the range contains all of it | cleared **before** its lines are written back | all |
//! | dirty, the range contains a part of it | stays set: other lines of the page may be dirty | those of the range |
//!
//! The paper clears the bit after the write-back, which loses a store that falls between the two: its page is clean, its
//! line is in the cache alone. It applies the third row to ranges that are shorter than a page; here the row holds for the
//! first and the last page of any range that is not aligned, for the same reason.
//!
//! The driver must guarantee the following, or stores are lost:
//!
//! 1. A store sets its page's dirty bit before or together with its effect, and from the clearing on again (the processor's
//!    cached translations must not hide it).
//! 2. Looking at a dirty bit and clearing it is one atomic step for each page.
//! 3. A flush also writes back the pages that another flush has cleared and that are not yet durable: [`InFlight`].
//! 4. The barrier returns when all lines that this flush has written back are durable.
//!
//! `crates/core/tests/it/persist.rs` enumerates the interleavings of two threads, and those with one rule broken.

mod flush;
mod geometry;
mod in_flight;

pub use flush::{FlushCounts, FlushStep, RangeFlush};
pub use geometry::{Geometry, GeometryError};
pub use in_flight::{FlushId, InFlight};

/// The lines of a range that a flush writes back (`M_SYNC` of the paper).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SyncMode {
    /// All of them.
    #[default]
    EveryLine,
    /// Those of dirty pages.
    Selective,
}
