//! Solid-state drives.

mod buffer;
mod bus;
pub(crate) mod element;
mod map;
mod mapping;
mod options;
mod parallel;
mod place;
mod pool;
mod precondition;
mod reclaim;
pub(crate) mod serial;

pub use options::{Precondition, SsdOptions};
pub use parallel::{ParallelEvent, ParallelSsd};
pub use serial::{SerialEvent, SerialSsd};
