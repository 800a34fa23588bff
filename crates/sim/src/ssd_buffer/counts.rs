//! Counters of the buffer, and the lifetime of its memories.

use deepram_media::{Bandwidth, Bytes, lifetime_seconds};
use serde::Serialize;

use super::volatile_data::AtRisk;
use crate::result::counts;

counts! {
    /// Events of the buffer, in pages.
    pub struct BufferCounts {
        /// Pages that the host wrote, whole or in part.
        pub page_writes: u64,
        /// Writes of a page in DRAM.
        pub write_hits_dram: u64,
        /// Writes of a page in PCM.
        pub write_hits_pcm: u64,
        /// Writes that brought a page into DRAM.
        pub fills_dram: u64,
        /// Writes that brought a page into PCM.
        pub fills_pcm: u64,
        /// Writes that went to flash because their page was cold or the PCM was closed.
        pub bypasses: u64,
        /// Pages moved from PCM to DRAM.
        pub promotions: u64,
        /// Pages moved from DRAM to PCM.
        pub demotions: u64,
        /// Victims of DRAM written to flash.
        pub destages_dram: u64,
        /// Victims of PCM written to flash.
        pub destages_pcm: u64,
        /// Destaged pages of which only some sectors were valid.
        pub partial_destages: u64,
        /// Pages whose rest was read from flash when the host wrote a part of them.
        pub fetches: u64,
        /// Clean victims, which cost no flash write.
        pub clean_evictions: u64,
        /// Pages read from flash and written there again, to write whole erase blocks.
        pub padding: u64,
        /// Pages that the host read, whole or in part.
        pub page_reads: u64,
        /// Reads served by DRAM.
        pub read_hits_dram: u64,
        /// Reads served by PCM.
        pub read_hits_pcm: u64,
        /// Reads served by a memory and by flash.
        pub read_hits_partial: u64,
        /// Reads that brought a page into DRAM.
        pub read_fills: u64,
        /// Reads served by the destage queue.
        pub read_hits_queue: u64,
        /// Writes that waited for room in the destage queue.
        pub waits_for_queue: u64,
        /// Pages written to PCM: the wear of the PCM.
        pub pcm_page_writes: u64,
        /// Periods of the thresholds that ended.
        pub periods: u64,
        /// Periods that ended with a closed PCM.
        pub periods_closed: u64,
        /// Sum of the hotness thresholds at the ends of the periods.
        pub hotness_sum: u64,
        /// Sum of the coolness thresholds at the ends of the periods.
        pub coolness_sum: u64,
    }
}

/// Time until a memory is worn out at the run's rate of writes, with perfect wear levelling. `None`
/// without writes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Lifetime {
    /// PCM: size x endurance over the rate of page writes to it.
    pub pcm_hours: Option<f64>,
    /// Flash: raw capacity x endurance over the rate of programs.
    pub flash_hours: Option<f64>,
    /// The shorter of the two.
    pub hours: Option<f64>,
}

impl Lifetime {
    /// Each memory as size, endurance and bytes written over `seconds`.
    pub(super) fn new(pcm: (Bytes, u64, u64), flash: (Bytes, u64, u64), seconds: f64) -> Self {
        let hours = |(size, endurance, written): (Bytes, u64, u64)| {
            (written > 0 && seconds > 0.0).then(|| {
                let rate = Bandwidth(written as f64 / seconds);
                lifetime_seconds(size, endurance, rate, 1.0, 1.0) / 3600.0
            })
        };
        let (pcm_hours, flash_hours) = (hours(pcm), hours(flash));
        let shorter = |one: f64, other: f64| one.min(other);
        let both = pcm_hours.zip(flash_hours).map(|(one, other)| shorter(one, other));
        Self { pcm_hours, flash_hours, hours: both.or(pcm_hours).or(flash_hours) }
    }
}

/// What a run of the buffer reports in addition to its counters.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BufferReport {
    /// Hotness threshold at the end.
    pub hotness: u8,
    /// Coolness threshold at the end.
    pub coolness: u8,
    /// The PCM was closed at the end.
    pub closed: bool,
    /// Actual less expected SSD writes of all periods.
    pub write_disparity: f64,
    /// Writes that the PCM endures for each write that the SSD endures.
    pub endurance_ratio: f64,
    /// Dirty bytes in the DRAM partition and in the destage queue over time.
    pub at_risk: AtRisk,
    /// Dirty bytes in PCM at the end, which a power cut leaves.
    pub pcm_dirty_bytes: u64,
    /// Share of the time in which DRAM was busy.
    pub dram_busy: f64,
    /// Share of the time in which PCM was busy.
    pub pcm_busy: f64,
    /// Lifetime.
    pub lifetime: Lifetime,
}
