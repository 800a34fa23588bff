//! Counters and fault times of the paging system.

use serde::Serialize;

use crate::result::counts;

counts! {
    /// Faults, pages and commands so far.
    pub struct PagingCounts {
        /// Accesses completed.
        pub accesses: u64,
        /// Faults whose page had to be read from the drive.
        pub major_faults: u64,
        /// Faults whose page was already being read.
        pub waiting_faults: u64,
        /// Faults whose page was in memory but not mapped.
        pub minor_faults: u64,
        /// First writes to pages that were mapped and clean.
        pub protection_faults: u64,
        /// First touches of anonymous pages, which are filled with zeros.
        pub zero_faults: u64,
        /// Faults whose page was evicted before it could be mapped.
        pub repeated_faults: u64,
        /// Faults that waited for a write-back before they got a frame.
        pub direct_reclaims: u64,
        /// Writes that waited because dirty pages exceeded the limit.
        pub throttled: u64,
        /// Read commands.
        pub read_commands: u64,
        /// Pages read.
        pub pages_read: u64,
        /// Pages read ahead.
        pub readahead_pages: u64,
        /// Pages read ahead and used.
        pub readahead_used: u64,
        /// Pages read ahead and evicted unused.
        pub readahead_wasted: u64,
        /// Times a clean page became dirty.
        pub dirtied: u64,
        /// Write-back commands.
        pub write_commands: u64,
        /// Pages written back.
        pub pages_written: u64,
        /// Pages written back for eviction.
        pub reclaim_writes: u64,
        /// Pages brought into memory, zero-filled ones included.
        pub brought_in: u64,
        /// Pages evicted.
        pub evicted: u64,
        /// Sum over the major faults of the time from the submission of the command until the page was
        /// in memory, in picoseconds.
        pub hardware_ps: u64,
    }
}

/// Mean and standard deviation of a time, in picoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Moments {
    /// Number of samples.
    pub count: u64,
    /// Mean.
    pub mean_ps: f64,
    /// Standard deviation.
    pub deviation_ps: f64,
}

/// Times of major faults.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct FaultTimes {
    /// From the fault to the return to the program, without waits for a core.
    pub total: Moments,
    /// From the submission of the command until the page was in memory.
    pub hardware: Moments,
    /// Total less hardware.
    pub software: Moments,
}

/// Running mean and squared deviation (Welford's method).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RunningMoments {
    count: u64,
    mean: f64,
    squares: f64,
}

impl RunningMoments {
    pub(super) fn add(&mut self, value: u64) {
        self.count += 1;
        let value = value as f64;
        let from = value - self.mean;
        self.mean += from / self.count as f64;
        self.squares += from * (value - self.mean);
    }

    pub(super) fn moments(&self) -> Moments {
        let variance = if self.count > 1 { self.squares / (self.count - 1) as f64 } else { 0.0 };
        Moments { count: self.count, mean_ps: self.mean, deviation_ps: variance.sqrt() }
    }
}
