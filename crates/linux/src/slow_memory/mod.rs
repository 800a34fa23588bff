//! What the emulation of slower memory must know: the figures of this machine's memory ([`Machine`]), and the time and the
//! transfers of windows of a program's instructions ([`Sampler`]). What follows from them is decided by
//! [`deepram_core::emulation`].
//!
//! A window is measured as the program executes it: before each instruction the lines that it touches for the first time are
//! loaded, and the loads timed. So the caches are those of the machine, as the program has filled them.

mod measure;
mod probe;
mod sampler;

pub use measure::{Machine, MeasureError};
pub use sampler::Sampler;
