//! Memory by address: what deepram asks of the processor and of the kernel beyond loads and stores.
//!
//! [`flush`] writes cache lines back to persistent memory, [`dirty`] finds the pages that were stored to, and
//! [`userfault`] has the calls on a userfaultfd that all its users share.

pub mod dirty;
pub mod flush;
pub mod userfault;
