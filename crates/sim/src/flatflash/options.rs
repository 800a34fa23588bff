//! What a run may choose beside the preset.

use std::ops::Range;

use serde::Serialize;

/// Which system the parts make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccessMode {
    /// Lines of the drive are loaded and stored; pages that are used again are promoted.
    Promote,
    /// Each page is moved to DRAM when it is first used; one table translates.
    Page,
    /// The same, behind an operating system's storage stack and with a table for each layer.
    Stack,
}

/// Options that are not in the preset.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FlatOptions {
    /// Bytes of DRAM used for pages; 0 for all that the preset has.
    pub memory_bytes: u64,
    /// Whether the preset's processor cache is before the memory. Not so where a simulated processor brings its
    /// own.
    pub cpu_cache: bool,
    /// Bytes that persist: their pages stay at the drive (`flatflash`), and a flush makes what was stored to them
    /// durable.
    pub regions: Vec<Range<u64>>,
    /// Carries the version of each line along and compares each load with what was stored last. Takes memory
    /// and time.
    pub verify: bool,
}

impl Default for FlatOptions {
    fn default() -> Self {
        Self { memory_bytes: 0, cpu_cache: true, regions: Vec::new(), verify: false }
    }
}
