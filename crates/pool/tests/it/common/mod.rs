//! What the crash tests share: a world that says what a pool must hold, and the steps that drive
//! both.
//!
//! The pool's write-back thread works when it likes, so that two runs of one workload may differ in
//! the order of their device operations. Nothing here depends on that order: whatever was done is
//! recorded, and what must hold is derived from the record.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

pub mod rig;
pub mod step;
pub mod survive;
pub mod world;

use deepram_core::SegmentSize;

pub const MIB: u64 = 1 << 20;
pub const PAGE: u64 = 1 << 16;
pub const LINE: u64 = 64;
pub const SIZES: [SegmentSize; 3] = [SegmentSize::K4, SegmentSize::K8, SegmentSize::K16];
