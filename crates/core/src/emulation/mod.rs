//! Emulation of slower memory for a program that runs on DRAM, after the emulator of the NVMM application study
//! (section II): how long its threads must be stalled.
//!
//! The paper's emulator multiplies the cycles that a processor stalls for memory by `L_READ / L_DRAM`, in microcode, and
//! caps the transfers in the memory controller. Here the driver looks at windows of the program's instructions, one
//! instruction after the other, and measures the latency of each load. From these,
//!
//! - [`Dataflow`] estimates the time of the window on an out-of-order processor, with any latency of a miss;
//! - [`Transfers`] counts the lines that the window moves between the caches and memory;
//! - [`Estimate`] keeps the sums of the newest windows: the slowdown and the bytes per time;
//! - [`Debt`] is the stall that a thread owes, and [`BusClock`] the time at which the capped memory is free again.
//!
//! Times are in picoseconds.

mod dataflow;
mod throttle;
mod transfers;

pub use dataflow::{Core, Dataflow, Instruction, LineLoad, REGISTERS};
pub use throttle::{BusClock, Debt, Estimate, WindowCost};
pub use transfers::{Access, LINE_BYTES, Touch, Transfers};
