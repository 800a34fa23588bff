//! Shared parts of the crash tests: a world that records the expected contents of a pool, and the steps that
//! change both pool and world.
//!
//! The timing of the pool's write-back thread varies, so two runs of one workload may differ in the order of
//! their device operations. The tests do not depend on that order: they record the operations that took
//! place, and derive the expected contents from the record.

#![allow(dead_code, unreachable_pub, reason = "each module of tests uses a part of it")]

pub mod rig;
pub mod step;
pub mod survive;
pub mod world;

use deepram_core::SegmentSize;

pub const MIB: u64 = 1 << 20;
pub const PAGE: u64 = 1 << 16;
pub const LINE: u64 = 64;
pub const SIZES: [SegmentSize; 3] = [SegmentSize::K4, SegmentSize::K8, SegmentSize::K16];
