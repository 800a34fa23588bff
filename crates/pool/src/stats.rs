//! Counters that every part of a pool adds to.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($(#[doc = $doc:expr])+ $name:ident,)+) => {
        /// Running totals since the pool was opened.
        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub(crate) $name: AtomicU64,)+ }

        /// A reading of the pool's counters. Counts are since the pool was opened.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Stats {
            $($(#[doc = $doc])+ pub $name: u64,)+
            /// Segments resident in the DRAM cache now.
            pub resident_segments: u64,
            /// Of these, segments with stores that are not on flash.
            pub dirty_segments: u64,
            /// Segments in the device buffer now.
            pub buffered_segments: u64,
            /// Loads by call of a segment after which it is promoted, as of now; 0 where none is.
            pub promotion_threshold: u64,
            /// Bytes of DRAM in use: frames, tables and buffers.
            pub dram_bytes: u64,
            /// The budget that `dram_bytes` keeps to.
            pub budget_bytes: u64,
        }

        impl Counters {
            pub(crate) fn read(&self) -> Stats {
                Stats { $($name: self.$name.load(Relaxed),)+ ..Stats::default() }
            }
        }

        impl Stats {
            /// Every counter with its name, in a fixed order.
            #[must_use]
            pub fn entries(&self) -> Vec<(&'static str, u64)> {
                vec![
                    $((stringify!($name), self.$name),)+
                    ("resident_segments", self.resident_segments),
                    ("dirty_segments", self.dirty_segments),
                    ("buffered_segments", self.buffered_segments),
                    ("promotion_threshold", self.promotion_threshold),
                    ("dram_bytes", self.dram_bytes),
                    ("budget_bytes", self.budget_bytes),
                ]
            }
        }
    };
}

counters! {
    /// Faults on missing segments, taken through the mapped address.
    faults_missing,
    /// First stores into clean resident segments, taken through the mapped address.
    faults_write_protected,
    /// Segments brought into the DRAM cache.
    loads,
    /// Segments that loads by call read from the devices into the device buffer, not into the DRAM cache.
    cold_reads,
    /// Parts of loads by call that the device buffer served.
    buffer_hits,
    /// Segments that left the device buffer for others.
    buffer_evictions,
    /// Segments that moved from the device buffer into the DRAM cache because of their uses; counted in `loads`, too.
    promotions,
    /// Reads for loads by call that were repeated, as their segment changed or became resident meanwhile.
    stale_reads,
    /// Segments read before they were used: windows of runs, and what was announced.
    read_ahead,
    /// Windows of runs of misses that were read ahead.
    windows,
    /// Segments dropped from the DRAM cache.
    evictions,
    /// Segments written back before a sync asked for it.
    write_backs,
    /// Segments copied aside because they were stored to while a sync was writing them.
    staged_copies,
    /// Syncs that returned a token.
    syncs,
    /// Bytes read from the devices.
    bytes_read,
    /// Bytes written to the devices, all kinds together.
    bytes_written,
    /// Bytes of segments written for the user.
    bytes_user,
    /// Bytes of segments that reclamation moved.
    bytes_moved,
    /// Bytes of log headers, table chunks, root records and pool headers.
    bytes_tables,
    /// Bytes of the line log.
    bytes_lines,
    /// Lines made durable by persists.
    lines_persisted,
    /// Durable writes that took: groups of persists.
    line_records,
    /// Times that the line log was gathered to make room in it.
    line_gathers,
    /// Blocks reclaimed.
    blocks_reclaimed,
    /// Checkpoints written.
    checkpoints,
    /// Reads that failed their checksum.
    damaged_reads,
}

impl Stats {
    /// Bytes written to the devices per byte that the user's stores made it necessary to write;
    /// `None` before the first write.
    #[must_use]
    pub fn write_amplification(&self) -> Option<f64> {
        (self.bytes_user > 0).then(|| self.bytes_written as f64 / self.bytes_user as f64)
    }
}

/// Adds `n` to a counter.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Relaxed);
}
