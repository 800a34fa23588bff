//! What a simulation of a flash main memory may choose beside its preset.

use serde::Serialize;

/// Which blocks are fetched before anybody asks for them, into the DRAM cache and behind all other
/// reads of the flash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Prefetch {
    /// None.
    #[default]
    None,
    /// On a miss the next so many blocks (NVMM: 1 in the technology comparison, 16 in the latency sweeps).
    Next(u32),
    /// So many streams, each so many blocks ahead of the last one used; a miss outside all streams takes
    /// over the stream not used for longest (10 x 4 in HybridSim).
    Streams {
        /// Streams.
        streams: u32,
        /// Blocks ahead.
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
    /// Bytes that the host may address, in whole pages of 64 KiB; 0 for all that the preset has.
    pub capacity_bytes: u64,
    /// Bytes of the DRAM cache without its tags; 0 for as many as the DRAM holds beside the tags.
    pub cache_bytes: u64,
    /// What is fetched ahead.
    pub prefetch: Prefetch,
    /// A miss is answered as soon as its own lines have crossed the channel, which carries them first. If
    /// not, when the whole block has.
    pub critical_first: bool,
    /// The order of use is kept with the tags, so that every access writes one burst of them. If not, only
    /// changes of a block's state do.
    pub order_in_tags: bool,
    /// Cold dirty blocks are written back early, into planes that have nothing to do, the longest dirty
    /// first, as long as more than this share of the cache is dirty; 1 for never.
    pub write_back_above: f64,
    /// Share of a set's blocks, from the one not used for longest, that is cold: those leave next. One block
    /// at least. Assumed; the paper writes back "cold dirty pages preemptively" and gives no figure.
    pub write_back_cold: f64,
    /// Share of all planes that may be busy with early writes at once, and so of the reads that find their
    /// plane taken by one, at most. A page's blocks
    /// at least. Assumed, for the same reason.
    pub write_back_planes: f64,
    /// Every page was written before the run, so that each read of one for the first time reads flash.
    pub populated: bool,
    /// States kept for rollback; older ones are given up, oldest first, at a sync, and when space runs out.
    pub tokens: u32,
    /// Blocks reclaimed at once.
    pub reclaim_at_once: u32,
    /// Uses by which the most and the least worn block may differ before the data that sit in the least
    /// worn one are moved; 0 for any difference.
    pub wear_spread: u32,
    /// Logarithmic standard deviation of the endurance of segments: when a block is erased, those that have
    /// reached theirs are marked bad. 0 if flash does not wear out.
    pub wear_deviation: f64,
    /// Share of segments bad from the factory, in blocks that were not written before the run.
    pub bad_share: f64,
    /// Commands that the controller takes at once.
    pub queue: u64,
    /// Carry the version of each line along and compare: costs time and memory; a wrong line is a violated
    /// law.
    pub verify: bool,
}

impl Default for NvmmOptions {
    fn default() -> Self {
        Self {
            capacity_bytes: 0,
            cache_bytes: 0,
            prefetch: Prefetch::None,
            critical_first: true,
            order_in_tags: true,
            write_back_above: 0.1,
            write_back_cold: 0.125,
            write_back_planes: 0.125,
            populated: true,
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
