//! Counters and report of a server with persistent memory.

use serde::Serialize;

use crate::metrics::LatencySummary;
use crate::result::counts;

counts! {
    /// Events of the server.
    pub struct PmemCounts {
        /// Lines that accesses used.
        pub lines: u64,
        /// Lines that were not in the caches.
        pub missing_lines: u64,
        /// System calls.
        pub calls: u64,
        /// Page faults on mapped pages of a file on a drive.
        pub faults: u64,
        /// Flushes: msync and fsync.
        pub syncs: u64,
        /// Lines of the ranges that flushes wrote back, dirty or not, and of metadata.
        pub flushed_lines: u64,
        /// Those that were dirty in the caches.
        pub dirty_lines: u64,
        /// Lines that flushes read from memory.
        pub flush_loads: u64,
        /// Lines written by non-temporal stores, flushes excluded.
        pub nt_lines: u64,
        /// Write barriers.
        pub barriers: u64,
        /// Pages whose dirty bits flushes looked at.
        pub pages_examined: u64,
        /// Pages that they found dirty.
        pub pages_dirty: u64,
        /// Lines that DRAM transferred.
        pub dram_lines: u64,
        /// Lines that persistent memory transferred.
        pub pmem_lines: u64,
        /// Pages of the page cache, or of the buffer pool if there is one, that accesses used.
        pub page_lookups: u64,
        /// Those that were there.
        pub page_hits: u64,
        /// Journal commits.
        pub commits: u64,
        /// Requests that waited until fewer pages were dirty.
        pub throttled: u64,
        /// Blocks of 4 KiB read from the drive.
        pub blocks_read: u64,
        /// Blocks written to the drive, journal included.
        pub blocks_written: u64,
        /// Requests that the drive served.
        pub drive_requests: u64,
    }
}

/// Rates over the measured time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PmemReport {
    /// Share of time in which the queue of DRAM was not empty.
    pub dram_busy: f64,
    /// Share of time in which the queue of persistent memory was not empty.
    pub pmem_busy: f64,
    /// Bytes a second that persistent memory transferred.
    pub pmem_bytes_per_s: f64,
    /// Mean number of cores in use.
    pub cores_in_use: f64,
    /// Latency of requests that flush, from their begin on a core; in nanoseconds.
    pub sync: LatencySummary,
}
