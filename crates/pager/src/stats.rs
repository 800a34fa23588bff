//! Counters and histograms of a pager. A pager publishes them to the other budget members as one row of numbers.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use deepram_linux::sealed_memory::{fingerprint, label};

use super::service::{HistogramReading, Histograms};
use super::{AddressSpace, Inner, PAGE};

/// Adds `n` to a counter.
pub fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Relaxed);
}

/// Names and labels of the gauges: values of a process that lose their meaning when the process ends.
pub(super) const GAUGES: [(&str, &str); 5] = [
    ("paged_bytes", "Paged memory, bytes"),
    ("dram_bytes", "DRAM in use, bytes"),
    ("unpaged_bytes", "Unpaged memory in DRAM, bytes"),
    ("budget_bytes", "DRAM budget, bytes"),
    ("swap_file_bytes", "Swap files, bytes"),
];
/// Running totals in a row: the counters, then the sum and the bucket counts of each histogram.
pub(super) const TOTALS: usize = COUNTERS + HistogramReading::TOTALS;
/// Numbers in a row: the totals, then the gauges.
pub(super) const ROW_LEN: usize = TOTALS + GAUGES.len();
/// The numbers that a pager publishes.
pub(super) type Row = [u64; ROW_LEN];

macro_rules! counters {
    ($($(#[doc = $doc:expr])+ $name:ident,)+) => {
        /// Running totals of one pager.
        #[derive(Debug, Default)]
        pub(super) struct Counters {
            $(pub(super) $name: AtomicU64,)+
            pub(super) histograms: Histograms,
        }

        const COUNTERS: usize = [$(stringify!($name)),+].len();

        /// Identifies the layout of a row. Processes whose fingerprints differ cannot read the rows of each other.
        pub(super) const FINGERPRINT: u64 = fingerprint(concat!($(stringify!($name), " "),+), ROW_LEN);

        /// A reading of a pager's counters, or of several pagers' together.
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct PagerStats {
            $($(#[doc = $doc])+ pub $name: u64,)+
            /// Paged memory, bytes of address space.
            pub paged_bytes: u64,
            /// DRAM in use, bytes: frames that are mapped or in the victim buffer, tables, and unpaged memory where
            /// the budget covers it.
            pub dram_bytes: u64,
            /// Unpaged memory in DRAM, bytes; part of `dram_bytes`.
            pub unpaged_bytes: u64,
            /// DRAM budget, bytes. `dram_bytes` exceeds it for moments: unpaged memory and tables are charged ten times a second.
            pub budget_bytes: u64,
            /// Size of the swap file, bytes.
            pub swap_file_bytes: u64,
            /// Page fault latencies, from the moment a handler takes a fault until its page is mapped: the upper end
            /// of each histogram bucket and the faults in it. Empty buckets are left out.
            pub fault_latency: Vec<(Duration, u64)>,
            /// Sum of all page fault latencies.
            pub fault_time: Duration,
            /// Swap file reads in flight when a read was submitted, that read included, each with its count. Depth 64
            /// stands for every depth above 63.
            pub queue_depth: Vec<(u64, u64)>,
            /// Sum of all queue depths; depths above 64 count in full.
            pub queue_depth_sum: u64,
        }

        impl Counters {
            fn totals(&self) -> impl Iterator<Item = u64> {
                let counts = [$(&self.$name),+].into_iter().map(|total| total.load(Relaxed));
                counts.chain(self.histograms.totals())
            }
        }

        impl PagerStats {
            /// The reading that a row encodes; the row may be the sum of several rows.
            pub(super) fn from_row(row: &Row) -> Self {
                let [$($name),+] = *row.first_chunk().expect("a row begins with the counters");
                let HistogramReading { fault_latency, fault_time, queue_depth, queue_depth_sum } =
                    HistogramReading::of(&row[COUNTERS..TOTALS]);
                let [paged_bytes, dram_bytes, unpaged_bytes, budget_bytes, swap_file_bytes] =
                    *row.last_chunk().expect("a row ends with the gauges");
                Self {
                    $($name,)+
                    paged_bytes,
                    dram_bytes,
                    unpaged_bytes,
                    budget_bytes,
                    swap_file_bytes,
                    fault_latency,
                    fault_time,
                    queue_depth,
                    queue_depth_sum,
                }
            }

            /// A reading whose gauges are these peaks and whose counters are zero.
            pub(super) fn from_peaks(peaks: [u64; GAUGES.len()]) -> Self {
                let mut row = [0; ROW_LEN];
                row[TOTALS..].copy_from_slice(&peaks);
                Self::from_row(&row)
            }

            /// Every counter and gauge: name, value and label, in a fixed order.
            #[must_use]
            pub fn entries(&self) -> Vec<(&'static str, u64, &'static str)> {
                let gauges = [
                    self.paged_bytes,
                    self.dram_bytes,
                    self.unpaged_bytes,
                    self.budget_bytes,
                    self.swap_file_bytes,
                ];
                let mut all = vec![$((stringify!($name), self.$name, label(concat!($($doc),+))),)+];
                all.extend(GAUGES.iter().zip(gauges).map(|((name, label), value)| (*name, value, *label)));
                all
            }
        }
    };
}

counters! {
    /// Page faults on fresh pages (never written).
    faults_fresh,
    /// Major page faults (page read from the swap file).
    faults_major,
    /// Page faults served from the victim buffer.
    victim_buffer_hits,
    /// Write-protection faults (first write to a write-protected clean page).
    faults_write_protected,
    /// Pages read ahead.
    readahead_pages,
    /// Pages copied from the memory of the parent process instead of read.
    copied_from_parent,
    /// Readahead windows used.
    readahead_windows_used,
    /// Readahead windows evicted unused.
    readahead_windows_wasted,
    /// Readahead windows.
    readahead_windows,
    /// Huge pages (2 MiB) brought into DRAM.
    huge_pages,
    /// Pages evicted.
    evicted_pages,
    /// Dirty pages evicted.
    evicted_dirty_pages,
    /// Dirty pages written to the swap file.
    written_back_pages,
    /// Page faults that had to evict a page first.
    eviction_stalls,
    /// Reads from the swap file.
    reads,
    /// Read from the swap file, bytes.
    bytes_read,
    /// Writes to the swap file.
    writes,
    /// Written to the swap file, failed writes included, bytes.
    bytes_written,
    /// Failed swap file transfers.
    io_errors,
}

impl PagerStats {
    /// A quantile of the fault latency: `share` of the faults took no longer than this. `None` without faults.
    #[must_use]
    pub fn latency_at(&self, share: f64) -> Option<Duration> {
        let all: u64 = self.fault_latency.iter().map(|(_, count)| count).sum();
        let mut below = 0;
        self.fault_latency.iter().find_map(|(end, count)| {
            below += count;
            (below as f64 >= share * all as f64).then_some(*end)
        })
    }
}

impl Inner {
    pub(super) fn stats(&self) -> PagerStats {
        PagerStats::from_row(&self.row(&self.gauges(&self.read())))
    }

    /// Publishes the counters to the other budget members and writes out the recorded page faults. The recorder's lock is held
    /// meanwhile, so that both are of the same moment.
    pub(super) fn publish(&self) {
        let gauges = self.gauges(&self.read());
        let recorded = self.record.as_ref().map(super::fault_recorder::Recorder::flush);
        let row = self.row(&gauges);
        drop(recorded);
        self.frames.publish(&row);
    }

    fn gauges(&self, space: &AddressSpace) -> [u64; GAUGES.len()] {
        let dram = self.frames.used() * PAGE;
        let beside = self.frames.unpaged() * PAGE;
        let budget = self.dram.load(Relaxed);
        [space.page_table.bytes() as u64, dram as u64, beside as u64, budget as u64, space.swap_file.bytes()]
    }

    fn row(&self, gauges: &[u64]) -> Row {
        let mut row = [0; ROW_LEN];
        let all = self.counters.totals().chain(gauges.iter().copied());
        row.iter_mut().zip(all).for_each(|(cell, number)| *cell = number);
        row
    }

    /// DRAM that tables and buffers use, bytes.
    pub(super) fn table_bytes(&self, space: &AddressSpace) -> usize {
        let known = space.page_table.memory_bytes() + space.swap_file.memory_bytes();
        let buffers = self.buffers.load(Relaxed);
        known + buffers + super::lock(&self.policy).memory_bytes() + self.victim_buffer().memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_holds_every_count() {
        let counters = Counters::default();
        add(&counters.faults_fresh, 3);
        add(&counters.io_errors, 5);
        for us in [10, 10, 700] {
            counters.histograms.fault_served(Duration::from_micros(us));
        }
        (0..3).for_each(|_| counters.histograms.read_begins());
        counters.histograms.read_ends();
        (0..98).for_each(|_| counters.histograms.read_begins());
        let mut row = [0; ROW_LEN];
        let all = counters.totals().chain([1, 2, 3, 4, 5]);
        assert_eq!(row.iter_mut().zip(all).map(|(cell, number)| *cell = number).count(), ROW_LEN);
        let stats = PagerStats::from_row(&row);
        assert_eq!((stats.faults_fresh, stats.io_errors, stats.swap_file_bytes), (3, 5, 5));
        assert_eq!(stats.fault_time, Duration::from_micros(720));
        assert_eq!(stats.fault_latency.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [2, 1]);
        assert_eq!((stats.queue_depth.len(), stats.queue_depth[2]), (64, (3, 2)), "3 twice");
        assert_eq!(stats.queue_depth.last(), Some(&(64, 37)), "64 to 100");
        assert_eq!(stats.queue_depth_sum, 100 * 101 / 2 + 3);
        assert_eq!(stats.entries().len(), COUNTERS + GAUGES.len());
    }
}
