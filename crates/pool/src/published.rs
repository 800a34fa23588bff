//! The counters of an open pool, published to other processes: in a memory file, which `deepram top` finds, and, if an
//! option asks for it, over HTTP.
//!
//! The evictor stores the counters in the memory five times a second. The file belongs to that thread: it is gone when
//! the pool is closed or the process ends, and a forked child publishes nothing.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use deepram_linux::clock::monotonic_ns;
use deepram_linux::descriptors::OwnDescriptor;
use deepram_linux::sealed_memory::{SealedMemory, SealedView, Shared, lock_byte};
use deepram_metrics::{Derived, Form, Histogram, Kind, Metric, Statistics};
use deepram_pager::service::{HistogramReading, Histograms};
use std::os::fd::AsRawFd;

use crate::stats::{FINGERPRINT, GAUGES, Stats, VALUES};
use crate::store::Store;

/// Name of the memory file, as `/proc/PID/fd` shows it.
pub const POOL_MEMORY_NAME: &str = PoolMemory::NAME;
/// Time between two publications.
pub(crate) const INTERVAL: Duration = Duration::from_millis(200);
/// Longest list of files that is published, bytes.
const NAME_BYTES: usize = 2048;

/// Statistics of an open pool.
pub static POOL_STATISTICS: Kind = Kind {
    name_key: "pool",
    prefix: "deepram_pool",
    reads: "Reads of page fault handlers",
    metrics: || {
        let metric = |(name, _, label): (&'static str, u64, &'static str)| Metric {
            name,
            label,
            is_counter: !GAUGES.contains(&name),
        };
        Stats::default().entries().into_iter().map(metric).collect()
    },
    derived: |stats| {
        let label =
            "Write amplification (bytes written to the devices per byte of segments written for the user)";
        let value = stats.share("bytes_written", stats.value("bytes_user"));
        vec![Derived { name: "write_amplification", label, form: Form::Ratio, value }]
    },
    note: |_| None,
    hidden: |_| &[],
};

/// The numbers that are published: the values of `Stats`, then the totals of the histograms.
const ROW_LEN: usize = VALUES + HistogramReading::TOTALS;

/// The memory of an open pool.
#[derive(Debug)]
#[repr(C)]
struct PoolMemory {
    header: [AtomicU64; 3],
    began_ns: AtomicU64,
    /// The pool's files, by eight bytes each; zeros follow.
    name: [AtomicU64; NAME_BYTES / 8],
    row: [AtomicU64; ROW_LEN],
}

// SAFETY: a pool's memory consists of atomics.
unsafe impl Shared for PoolMemory {
    const NAME: &'static str = "deepram-pool";
    const HEADER: [u64; 3] = [u64::from_le_bytes(*b"deepramP"), FINGERPRINT, size_of::<Self>() as u64];
    const WHAT: &'static str = "the counters of an open pool";
    const CREATOR_BYTE: usize = 0;

    fn header(&self) -> &[AtomicU64; 3] {
        &self.header
    }
}

/// The files of a pool, by their absolute paths where they are files, as other processes name them.
pub(crate) fn name(stores: &[std::sync::Arc<Store>]) -> String {
    let absolute = |name: String| match std::path::absolute(&name) {
        Ok(path) if path.exists() => path.display().to_string(),
        _ => name,
    };
    stores.iter().map(|store| absolute(store.device().name())).collect::<Vec<_>>().join(", ")
}

/// The counters of this process's pool, as others see them.
pub(crate) struct Published {
    memory: SealedMemory<PoolMemory>,
    _file: OwnDescriptor,
}

impl Published {
    /// Makes a pool visible to other processes.
    ///
    /// # Errors
    /// The kernel refuses the memory.
    pub(crate) fn new(name: &str) -> io::Result<Self> {
        let (memory, file) = SealedMemory::<PoolMemory>::create(|memory| {
            memory.began_ns.store(monotonic_ns(), Relaxed);
            let words = name.as_bytes().chunks(8).map(|chunk| {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                u64::from_le_bytes(word)
            });
            memory.name.iter().zip(words).for_each(|(cell, word)| cell.store(word, Relaxed));
        })?;
        lock_byte(file.as_raw_fd(), PoolMemory::CREATOR_BYTE);
        Ok(Self { memory, _file: file.into() })
    }

    /// Stores the present values.
    pub(crate) fn publish(&self, stats: &Stats, histograms: &Histograms) {
        for (cell, value) in self.memory.row.iter().zip(row(stats, histograms)) {
            cell.store(value, Relaxed);
        }
    }
}

fn row(stats: &Stats, histograms: &Histograms) -> impl Iterator<Item = u64> {
    stats.values().into_iter().chain(histograms.totals())
}

/// Statistics of the pool that this process has open since this moment.
pub(crate) fn statistics(name: String, began_ns: u64, stats: &Stats, histograms: &Histograms) -> Statistics {
    let row: Vec<u64> = row(stats, histograms).collect();
    of_row(std::process::id(), name, began_ns, &row)
}

fn of_row(pid: u32, name: String, began_ns: u64, row: &[u64]) -> Statistics {
    let (values, totals) = row.split_at(VALUES);
    let histograms = HistogramReading::of(totals);
    let names = Stats::default().entries().into_iter().map(|(name, ..)| name.to_owned());
    let mut statistics = Statistics {
        kind: &POOL_STATISTICS,
        pid,
        name,
        time: Duration::from_nanos(monotonic_ns().saturating_sub(began_ns)),
        values: names.zip(values.iter().copied()).collect(),
        fault_latency: Histogram::of_times(histograms.fault_time, &histograms.fault_latency),
        queue_depth: Histogram {
            sum: histograms.queue_depth_sum,
            counts: histograms.queue_depth.into_iter().collect(),
        },
        processes: Vec::new(),
    };
    statistics.processes = vec![(pid, statistics.value("dram_bytes"))];
    statistics
}

/// A read-only view of the counters of a pool that another process has open.
#[derive(Debug)]
pub struct PoolView(SealedView<PoolMemory>);

impl PoolView {
    /// Opens the counters in this file, given by its path in `/proc/PID/fd`.
    ///
    /// # Errors
    /// The file cannot be opened and mapped, or does not hold the counters of a pool of this version.
    pub fn open(path: &Path) -> io::Result<Self> {
        SealedView::open(path).map(Self)
    }

    /// Reads the current values, as those of the process `pid`.
    #[must_use]
    pub fn read(&self, pid: u32) -> Statistics {
        let load = |cells: &[AtomicU64]| cells.iter().map(|cell| cell.load(Relaxed)).collect::<Vec<_>>();
        let name: Vec<u8> = load(&self.0.name).into_iter().flat_map(u64::to_le_bytes).collect();
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let name = String::from_utf8_lossy(name).into_owned();
        of_row(pid, name, self.0.began_ns.load(Relaxed), &load(&self.0.row))
    }

    /// The process that has the pool open, as long as it has; 0 if it has no number in this PID namespace. `None` in
    /// that process itself.
    #[must_use]
    pub fn opener(&self) -> Option<u32> {
        self.0.creator()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_shows_what_is_published() {
        let counters = crate::stats::Counters::default();
        crate::stats::add(&counters.syncs, 7);
        counters.histograms.fault_served(Duration::from_micros(10));
        let stats = Stats { dirty_segments: 3, dram_bytes: 9, ..counters.read() };
        let long = "/a path\u{e9}".repeat(1000);
        for name in ["/tmp/x", "", "12345678", &long] {
            let published = Published::new(name).unwrap();
            published.publish(&stats, &counters.histograms);
            let path = format!("/proc/self/fd/{}", published._file.as_raw_fd());
            let read = PoolView::open(path.as_ref()).unwrap().read(77);
            assert!(read.name == name || name.len() > NAME_BYTES && name.starts_with(&read.name[..2000]));
            assert_eq!((read.value("syncs"), read.value("dirty_segments")), (7, 3));
            assert_eq!((read.fault_latency.count(), read.processes), (1, vec![(77, 9)]));
        }
        assert_eq!(Stats::default().entries().len(), VALUES);
        let metrics = (POOL_STATISTICS.metrics)();
        assert_eq!(metrics.iter().filter(|metric| !metric.is_counter).count(), GAUGES.len());
    }
}
