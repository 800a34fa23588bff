//! Pages that move between a drive's memory and the host's DRAM while they are in use (FlatFlash, sections 3.3
//! and 3.4).
//!
//! | module | what it decides |
//! |---|---|
//! | [`look_aside`] | which copy of a line is the page's while the page moves |
//! | [`threshold`] | after how many uses a page moves |

pub mod look_aside;
pub mod threshold;

pub use look_aside::{Begin, InFlight, Inbound, LookAside, LookAsideError, Route};
pub use threshold::{Reset, Threshold, ThresholdOptions, Trigger};
