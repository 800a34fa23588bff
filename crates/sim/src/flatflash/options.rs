//! Options of the FlatFlash systems that are not part of their presets.

use deepram_core::units::Bytes;
use std::ops::Range;

use serde::Serialize;

/// The way in which the host accesses the drive's pages; it determines the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccessMode {
    /// FlatFlash: lines of the drive are loaded and stored; pages in use are promoted to DRAM.
    Promote,
    /// UnifiedMMap: each page is moved to DRAM at its first use; one table translates.
    Page,
    /// TraditionalStack: each page is moved to DRAM at its first use, behind an operating system's
    /// storage stack with one table per layer.
    Stack,
}

/// Options of `flatflash`, `unified-mmap` and `traditional-stack`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FlatOptions {
    /// DRAM for pages, bytes; 0 for the preset's whole DRAM.
    #[serde(rename = "memory_bytes", serialize_with = "crate::quantity::bytes")]
    pub memory: Bytes,
    /// Simulates the preset's processor cache in front of the memory. Off where a simulated processor
    /// has its own.
    pub cpu_cache: bool,
    /// Persistent regions, in bytes: their pages stay at the drive (`flatflash`), and a flush makes
    /// stores to them durable.
    pub regions: Vec<Range<u64>>,
    /// Tracks the version of each line and compares each load with the last store. Takes memory and
    /// time.
    pub verify: bool,
}

impl Default for FlatOptions {
    fn default() -> Self {
        Self { memory: Bytes(0), cpu_cache: true, regions: Vec::new(), verify: false }
    }
}
