//! What a simulation may choose beside the preset of a drive.

use serde::Serialize;

/// The state of a drive before the run.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precondition {
    /// Nothing is written.
    #[default]
    Empty,
    /// This share of the logical pages is written once, in order.
    Sequential(f64),
    /// This share of the logical pages, chosen at random, lies in blocks as long uniform random writing
    /// and reclamation would have left them.
    Steady(f64),
}

/// Options of a drive that are not in its preset.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SsdOptions {
    /// Reads may suspend programs, if the part can.
    pub suspend_programs: bool,
    /// Reads may suspend erases, if the part can.
    pub suspend_erases: bool,
    /// Host operations that wait at a die at most, behind one queue of the translation layer whose head
    /// holds up the others; 0 for no limit.
    pub die_queue: u32,
    /// Commands go before data that wait in registers.
    pub commands_first: bool,
    /// Reclamation goes before the host always, not only where a plane has nearly no free block.
    pub reclaim_first: bool,
    /// Bytes of an entry in the mapping cache, where it differs from that on flash; 0 if it does not.
    pub mapping_cache_entry: u64,
    /// Blocks of a plane reclaimed at once.
    pub reclaim_at_once: u32,
    /// Free blocks of a plane below which host writes to it wait.
    pub write_reserve: u32,
    /// The write buffer keeps a page that is written twice within this time, in picoseconds, until it needs
    /// the room; 0 to send every page to flash at once.
    pub buffer_hot_window_ps: u64,
    /// A read of a page never written reads flash, as if it had been written before the run.
    pub reads_assume_written: bool,
    /// Blocks that have been erased as often as they endure are retired.
    pub wear_out: bool,
    /// Share of blocks bad from the factory.
    pub bad_blocks: f64,
    /// The state before the run.
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
            mapping_cache_entry: 0,
            reclaim_at_once: 1,
            write_reserve: 2,
            buffer_hot_window_ps: 0,
            reads_assume_written: true,
            wear_out: false,
            bad_blocks: 0.0,
            precondition: Precondition::Empty,
        }
    }
}
