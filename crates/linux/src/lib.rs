//! Memory by address: what deepram asks of the processor and of the kernel beyond loads and stores.
//!
//! [`flush`] writes cache lines back to persistent memory, [`dirty`] finds the pages that were stored to, and
//! [`userfault`] has the calls on a userfaultfd that all its users share. [`slow_memory`] measures this machine's memory and
//! what a program does with it, and [`step`] executes a program's instructions one by one for that; both are for x86-64 only.

pub mod dirty;
pub mod flush;
#[cfg(target_arch = "x86_64")]
pub mod slow_memory;
#[cfg(target_arch = "x86_64")]
pub mod step;
pub mod userfault;
