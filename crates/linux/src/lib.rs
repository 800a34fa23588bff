//! Memory by address: what deepram asks of the processor beyond loads and stores.
//!
//! [`flush`] writes cache lines back to persistent memory.

pub mod flush;
