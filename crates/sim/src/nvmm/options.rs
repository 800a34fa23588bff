//! Options of a flash main memory that are not part of its preset.

use deepram_core::units::Bytes;
use serde::Serialize;

/// The prefetch policy of the DRAM cache. Prefetches go behind all other reads of the flash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Prefetch {
    /// None.
    #[default]
    None,
    /// The number of next blocks fetched on a miss (NVMM: 1 in the technology comparison, 16 in the
    /// latency sweeps).
    Next(u32),
    /// Stream buffers, each `depth` blocks ahead of its last used block. A miss outside all streams
    /// replaces the least recently used stream (10 x 4 in HybridSim).
    Streams {
        /// Number of streams.
        streams: u32,
        /// Blocks prefetched ahead in each stream.
        depth: u32,
    },
}

impl Prefetch {
    /// The stream buffers of HybridSim (jimstevens2001/HybridSim@695c34b, config.h).
    pub const STREAMS: Prefetch = Prefetch::Streams { streams: 10, depth: 4 };
}

/// Options of a flash main memory that are not in its preset.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NvmmOptions {
    /// Addressable bytes, in whole 64 KiB pages; 0 for the preset's capacity.
    #[serde(rename = "capacity_bytes", serialize_with = "crate::quantity::bytes")]
    pub capacity: Bytes,
    /// Size of the DRAM cache without its tags, bytes; 0 for as much as the DRAM holds together with the
    /// tags.
    #[serde(rename = "cache_bytes", serialize_with = "crate::quantity::bytes")]
    pub cache: Bytes,
    /// The prefetch policy.
    pub prefetch: Prefetch,
    /// Critical line first: a miss is answered as soon as its own lines have crossed the channel, which
    /// carries them first. If false, it is answered when the whole block has crossed, as in the paper
    /// ("once the data has been received") and in HybridSim (CRIT_LINE_FIRST 0).
    pub critical_first: bool,
    /// The LRU order is stored with the tags, so every access writes one burst of tags. If false, only
    /// changes of a block's state do.
    pub order_in_tags: bool,
    /// Share of the cache that may be dirty before cold dirty blocks are written back early, to idle
    /// planes, the longest dirty first; 1 to disable early write-back.
    pub write_back_above: f64,
    /// Share of a set's blocks, counted from the least recently used one, that is cold and so evicted
    /// next; at least one block. Assumed: the paper writes back "cold dirty pages preemptively" and
    /// gives no figure.
    pub write_back_cold: f64,
    /// Share of all planes that may be busy with early write-backs at once, which bounds the share of
    /// reads that find their plane busy with one. At least one page's blocks are written at once.
    /// Assumed, for the same reason.
    pub write_back_planes: f64,
    /// All pages were written before the run, so the first read of each page reads flash.
    pub populated: bool,
    /// The cache begins full: it holds the first blocks of the address space, clean (HybridSim:
    /// PREFILL_CACHE 1, PREFILL_CACHE_DIRTY 0).
    pub prefilled: bool,
    /// Tokens kept for rollback. Older tokens are dropped, oldest first, at a sync and when space runs
    /// out.
    pub tokens: u32,
    /// Blocks reclaimed at once.
    pub reclaim_at_once: u32,
    /// Difference in uses between the most and the least worn block beyond which wear levelling moves
    /// the least worn block's data; 0 to disable wear levelling.
    pub wear_spread: u32,
    /// Logarithmic standard deviation of the endurance of segments. When a block is erased, segments
    /// that have reached their endurance are marked bad. 0 if flash does not wear out.
    pub wear_deviation: f64,
    /// Share of segments that are bad from the factory, in blocks not written before the run.
    pub bad_share: f64,
    /// The maximum number of commands in the controller at once.
    pub queue: u64,
    /// Tracks the version of each line and checks every read; a wrong line is a violated conservation
    /// law. Takes time and memory.
    pub verify: bool,
}

impl Default for NvmmOptions {
    fn default() -> Self {
        Self {
            capacity: Bytes(0),
            cache: Bytes(0),
            prefetch: Prefetch::None,
            critical_first: false,
            order_in_tags: true,
            write_back_above: 0.1,
            write_back_cold: 0.125,
            write_back_planes: 0.125,
            populated: true,
            prefilled: false,
            tokens: 1,
            reclaim_at_once: 2,
            wear_spread: 100,
            wear_deviation: 0.0,
            bad_share: 0.0,
            queue: 256,
            verify: false,
        }
    }
}
