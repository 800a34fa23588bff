//! Solid-state drives: [`SerialSsd`], the model of DiskSim's SSD extension, and [`ParallelSsd`], a model
//! of channels, packages, dies and planes comparable with MQSim.

mod buffer;
pub(crate) mod command_pages;
pub(crate) mod element;
mod initial_data;
mod operation;
mod options;
mod parallel;
mod precondition;
mod reclaim;
pub(crate) mod serial;
mod translation;

pub use options::{Precondition, SsdOptions};
pub use parallel::{ParallelEvent, ParallelSsd};
pub use serial::{SerialEvent, SerialSsd};
