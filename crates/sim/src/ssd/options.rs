//! Options of a drive that are not part of its preset.

use deepram_core::units::{Bytes, Picos};
use serde::Serialize;

/// The state of a drive before the run.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precondition {
    /// No page is written.
    #[default]
    Empty,
    /// This share of the logical pages is written once, in order.
    Sequential(f64),
    /// This share of the logical pages, chosen at random, lies in blocks as left by long uniform random
    /// writing and reclamation.
    Steady(f64),
}

/// Options of a drive.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SsdOptions {
    /// Reads suspend programs, if the part can.
    pub suspend_programs: bool,
    /// Reads suspend erases, if the part can.
    pub suspend_erases: bool,
    /// Maximum host operations queued at a die. Further operations wait in one queue of the translation
    /// layer, whose head blocks the others; 0 for no limit.
    pub die_queue: u32,
    /// Commands have priority over data that wait in registers.
    pub commands_first: bool,
    /// Reclamation always has priority over the host, not only where a plane has nearly no free block.
    pub reclaim_first: bool,
    /// Size of an entry in the mapping cache, bytes, if it differs from that on flash; 0 if it is the
    /// same.
    #[serde(serialize_with = "crate::quantity::bytes")]
    pub mapping_cache_entry: Bytes,
    /// Maximum blocks of a plane being reclaimed at once.
    pub reclaim_at_once: u32,
    /// Free blocks of a plane below which host writes to it wait.
    pub write_reserve: u32,
    /// Hot window of the write buffer, in picoseconds: a page written twice within it stays in the
    /// buffer until the room is needed; 0 to send every page to flash at once.
    #[serde(rename = "buffer_hot_window_ps", serialize_with = "crate::quantity::picos")]
    pub buffer_hot_window: Picos,
    /// A read of a page never written reads flash, as if the page had been written before the run.
    pub reads_assume_written: bool,
    /// The drive begins full: every logical page counts as written before the run. Its data occupy blocks,
    /// and a partial write of a page that the run has not written reads the rest of the page from flash. A
    /// precondition other than empty decides about the blocks instead.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub writes_assume_written: bool,
    /// Retires blocks that have reached their endurance.
    pub wear_out: bool,
    /// Share of blocks that are bad from the factory.
    pub bad_blocks: f64,
    /// The state of the drive before the run.
    pub precondition: Precondition,
}

impl Default for SsdOptions {
    fn default() -> Self {
        Self {
            suspend_programs: false,
            suspend_erases: false,
            die_queue: 0,
            commands_first: false,
            reclaim_first: false,
            mapping_cache_entry: Bytes(0),
            reclaim_at_once: 1,
            write_reserve: 2,
            buffer_hot_window: Picos(0),
            reads_assume_written: true,
            writes_assume_written: false,
            wear_out: false,
            bad_blocks: 0.0,
            precondition: Precondition::Empty,
        }
    }
}
