//! Counters of a pool.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use deepram_linux::sealed_memory::{fingerprint, label};
pub(crate) use deepram_pager::add;
use deepram_pager::service::Histograms;

macro_rules! counters {
    ($($(#[doc = $doc:expr])+ $name:ident,)+) => {
        /// Running totals since the pool was opened.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)+
            /// Fault latencies and queue depths of the handlers.
            pub(crate) histograms: Histograms,
        }

        /// A snapshot of a pool's counters. Counts are totals since the pool was opened.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Stats {
            $($(#[doc = $doc])+ pub $name: u64,)+
            /// Segments resident in the DRAM cache, now.
            pub resident_segments: u64,
            /// Resident segments with stores that are not yet on flash, now.
            pub dirty_segments: u64,
            /// Segments in the device buffer, now.
            pub buffered_segments: u64,
            /// Loads by call after which a segment is promoted, now; 0: segments are not promoted.
            pub promotion_threshold: u64,
            /// Frames in use, now: of segments, of a sync's copies, of the device buffer and of staged chunks.
            pub frames: u64,
            /// DRAM in use, bytes: frames, tables and buffers.
            pub dram_bytes: u64,
            /// DRAM budget, bytes.
            pub budget_bytes: u64,
        }

        impl Counters {
            pub(crate) fn read(&self) -> Stats {
                Stats { $($name: self.$name.load(Relaxed),)+ ..Stats::default() }
            }
        }

        /// Numbers in [`Stats`].
        pub(crate) const VALUES: usize = [$(stringify!($name)),+].len() + GAUGES.len();
        /// Identifies the order of the numbers.
        pub(crate) const FINGERPRINT: u64 = fingerprint(concat!($(stringify!($name), " "),+), VALUES);

        impl Stats {
            /// Returns every counter and gauge in a fixed order: name, value and label.
            #[must_use]
            pub fn entries(&self) -> Vec<(&'static str, u64, &'static str)> {
                let mut all = vec![$((stringify!($name), self.$name, label(concat!($($doc),+))),)+];
                let gauges = GAUGES.iter().zip(self.gauges());
                all.extend(gauges.map(|(name, (value, label))| (*name, value, label)));
                all
            }

            /// The values of the entries.
            pub(crate) fn values(&self) -> [u64; VALUES] {
                let mut all = [$(self.$name),+].into_iter().chain(self.gauges().map(|(value, _)| value));
                std::array::from_fn(|_| all.next().unwrap_or_default())
            }
        }
    };
}

/// Names of the gauges, in the order of [`Stats::entries`].
pub(crate) const GAUGES: [&str; 7] = [
    "resident_segments",
    "dirty_segments",
    "buffered_segments",
    "promotion_threshold",
    "frames",
    "dram_bytes",
    "budget_bytes",
];

impl Stats {
    /// Values and labels of the gauges.
    fn gauges(&self) -> [(u64, &'static str); GAUGES.len()] {
        [
            (self.resident_segments, "Segments resident in the DRAM cache, now"),
            (self.dirty_segments, "Resident segments with stores that are not yet on flash, now"),
            (self.buffered_segments, "Segments in the device buffer, now"),
            (
                self.promotion_threshold,
                "Loads by call after which a segment is promoted, now; 0: segments are not promoted",
            ),
            (
                self.frames,
                "Frames in use, now: of segments, of a sync's copies, of the device buffer and of staged chunks",
            ),
            (self.dram_bytes, "DRAM in use, bytes: frames, tables and buffers"),
            (self.budget_bytes, "DRAM budget, bytes"),
        ]
    }
}

counters! {
    /// Page faults on absent segments of the mapped memory.
    faults_missing,
    /// Page faults of the first store to a clean resident segment of the mapped memory.
    faults_write_protected,
    /// Segments brought into the DRAM cache.
    fills,
    /// Segments that loads by call read from the devices into the device buffer instead of the DRAM cache.
    cold_reads,
    /// Parts of loads by call that hit in the device buffer.
    buffer_hits,
    /// Segments evicted from the device buffer.
    buffer_evictions,
    /// Segments promoted from the device buffer into the DRAM cache; each also counts as a cache fill.
    promotions,
    /// Reads for loads by call that were repeated because their segment changed or became resident during the read.
    stale_reads,
    /// Segments read ahead: in readahead windows, and for `will_need`.
    readahead_segments,
    /// Readahead windows.
    readahead_windows,
    /// Chunks of 2 MiB that a stream brought into the DRAM cache as huge pages.
    huge_pages,
    /// Segments evicted from the DRAM cache.
    evictions,
    /// Segments written back in the background, before a sync.
    write_backs,
    /// Segments copied because a thread stored to them while a sync was writing them.
    staged_copies,
    /// Syncs that returned a token.
    syncs,
    /// Bytes read from the devices.
    bytes_read,
    /// Bytes written to the devices, in total.
    bytes_written,
    /// Bytes of segments written for the user.
    bytes_user,
    /// Bytes of segments that reclamation moved.
    bytes_moved,
    /// Bytes of batch headers, table chunks, root records and pool headers.
    bytes_tables,
    /// Bytes written to the line log.
    bytes_lines,
    /// Lines that persists made durable.
    lines_persisted,
    /// Records written to the line log, each in one durable write for a group of persists.
    line_records,
    /// Compactions of the line log.
    line_log_compactions,
    /// Blocks reclaimed.
    blocks_reclaimed,
    /// Checkpoints written.
    checkpoints,
    /// Reads that failed their checksum.
    damaged_reads,
    /// Bytes of parity and its indexes.
    bytes_parity,
    /// Blocks whose parity could not be written.
    parity_failures,
    /// Damaged segments that were rebuilt from parity for a reader.
    segments_rebuilt,
    /// Damaged segments, batch headers and tables that were rewritten with their rebuilt bytes.
    segments_repaired,
    /// Times at which the day's writes were used up, so that background writes had to wait.
    write_deferrals,
}

impl Stats {
    /// Returns the write amplification: bytes written to the devices for each byte of segments that was written for
    /// the user. `None` before the first write.
    #[must_use]
    pub fn write_amplification(&self) -> Option<f64> {
        (self.bytes_user > 0).then(|| self.bytes_written as f64 / self.bytes_user as f64)
    }
}
