//! Solid-state drives.

mod buffer;
pub(crate) mod element;
mod operation;
mod options;
mod parallel;
mod place;
mod planes;
mod precondition;
mod reclaim;
pub(crate) mod serial;
mod targets;

pub use options::{Precondition, SsdOptions};
pub use parallel::{ParallelEvent, ParallelSsd};
pub use serial::{SerialEvent, SerialSsd};
