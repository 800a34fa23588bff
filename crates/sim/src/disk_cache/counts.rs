//! Counters and report of a disk cache.

use serde::Serialize;

use crate::result::counts;

counts! {
    /// Events of the cache, in pages unless stated otherwise.
    pub struct CacheCounts {
        /// Pages that requests read, whole or in part.
        pub page_reads: u64,
        /// Reads that DRAM satisfied.
        pub dram_hits: u64,
        /// Reads that flash satisfied.
        pub flash_hits: u64,
        /// Reads that the disk satisfied.
        pub misses: u64,
        /// Pages that requests wrote, whole or in part.
        pub page_writes: u64,
        /// Writes of pages that were in DRAM.
        pub write_hits: u64,
        /// Pages that were read because only a part of them was written.
        pub fetches: u64,
        /// Reads of flash that had not been programmed yet, and came from the controller's buffer.
        pub buffered_reads: u64,
        /// Pages programmed after a read of the disk.
        pub fills: u64,
        /// Pages of DRAM programmed.
        pub write_backs: u64,
        /// Pages of flash written to the disk.
        pub flushes: u64,
        /// Pages of DRAM written to the disk without flash.
        pub direct_writes: u64,
        /// Requests that waited for the write-back queue.
        pub waits: u64,
        /// Blocks reclaimed.
        pub reclaimed_blocks: u64,
        /// Pages that reclamation moved.
        pub reclaim_moves: u64,
        /// Array, bus and decoding time of reclamation, picoseconds.
        pub reclaim_busy_ps: u64,
        /// Array, bus and decoding time of all operations of flash, picoseconds.
        pub flash_busy_ps: u64,
        /// Blocks of the read region, or of unified flash, that were evicted.
        pub evicted_read_blocks: u64,
        /// Blocks of the write region that were evicted.
        pub evicted_write_blocks: u64,
        /// Pages that left the cache with evicted blocks.
        pub evicted_pages: u64,
        /// Pages that left the cache for want of a place.
        pub dropped_pages: u64,
        /// Second reads that tell consistent faults from transient errors.
        pub second_reads: u64,
        /// Stronger codes.
        pub strengthened: u64,
        /// Cells that became single-level because of faults.
        pub faults_to_slc: u64,
        /// Cells that became single-level for hot pages.
        pub hot_to_slc: u64,
        /// Pages that moved because they were hot.
        pub hot_moves: u64,
        /// Pages that moved because of faults.
        pub fault_moves: u64,
        /// Pages that moved because blocks changed places.
        pub wear_moves: u64,
        /// Pairs of blocks that changed places.
        pub wear_swaps: u64,
        /// Cells that left service.
        pub retired_cells: u64,
        /// Blocks that left service.
        pub retired_blocks: u64,
        /// Reads that the code could not correct.
        pub uncorrectable: u64,
        /// Dirty pages whose data were lost.
        pub lost: u64,
        /// Reads of pages in single-level cells.
        pub slc_reads: u64,
        /// Programs of single-level cells.
        pub slc_programs: u64,
        /// Erases of blocks whose cells are all single-level.
        pub slc_erases: u64,
    }
}

/// What a run reports in addition to its counters.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CacheReport {
    /// Reads that flash missed, as a share of the reads that DRAM missed.
    pub flash_miss_rate: f64,
    /// Share of the flash's busy time that reclamation takes.
    pub reclaim_share: f64,
    /// Payload of requests a second.
    pub network_bytes_per_s: f64,
    /// Mean power of DRAM and flash, watts.
    pub memory_power_w: f64,
    /// Mean power of the disk, idle time included, watts.
    pub disk_power_w: f64,
    /// Mean power of the disk's seeks and transfers alone, watts.
    pub disk_access_power_w: f64,
    /// Disk requests, reads and writes.
    pub disk_reads: u64,
    /// Write requests of the disk.
    pub disk_writes: u64,
    /// Pages that these wrote.
    pub disk_pages_written: u64,
    /// Disk requests without a seek.
    pub disk_sequential: u64,
    /// Starts of the disk from standby.
    pub disk_spin_ups: u64,
    /// Share of the time in which the disk was busy.
    pub disk_busy: f64,
    /// Pages that flash holds.
    pub flash_pages: u64,
    /// Pages that flash could hold at its present density.
    pub flash_capacity_pages: u64,
    /// Memory of the four tables, bytes.
    pub table_bytes: u64,
    /// The flash is out of service.
    pub flash_dead: bool,
    /// Mean bits that a code of a page corrects.
    pub mean_strength: f64,
    /// Share of the cells that are single-level.
    pub slc_share: f64,
    /// Mean time of a read that flash satisfied, nanoseconds.
    pub flash_read_ns: f64,
    /// Mean time of a read that the disk satisfied, nanoseconds.
    pub disk_read_ns: f64,
}
