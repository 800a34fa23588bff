//! Counters and histograms of a pager, and how they are shown to other processes: as one row of numbers.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::{AddressSpace, Inner, PAGE};

pub(super) use crate::stats::add;

/// Steps of the latencies' histogram for each doubling.
const STEPS: u32 = 4;
/// From 1 us to over an hour.
const LATENCIES: usize = 32 * STEPS as usize;
/// Reads under way: 1 to 63, and all above.
const DEPTHS: usize = 64;
/// Figures that are no running totals: they end with their process.
pub(super) const GAUGES: [(&str, &str); 5] = [
    ("managed_bytes", " Bytes managed."),
    ("dram_bytes", " Bytes of DRAM in use."),
    ("beside_bytes", " Bytes of these that are not paged."),
    ("budget_bytes", " Most bytes of DRAM that there may be."),
    ("store_bytes", " Bytes of the store's file."),
];
/// Running totals of a row: the counters, then the sum and the counts of each histogram.
pub(super) const TOTALS: usize = COUNTERS + 1 + LATENCIES + 1 + DEPTHS;
/// Numbers of a row: the totals, then the gauges.
pub(super) const SHOWN: usize = TOTALS + GAUGES.len();
/// What a pager shows.
pub(super) type Row = [u64; SHOWN];

macro_rules! counters {
    ($($(#[doc = $doc:expr])+ $name:ident,)+) => {
        /// Running totals.
        #[derive(Debug)]
        pub(super) struct Counters {
            $(pub(super) $name: AtomicU64,)+
            fault_ns: AtomicU64,
            latencies: [AtomicU64; LATENCIES],
            depth_sum: AtomicU64,
            depths: [AtomicU64; DEPTHS],
            /// Reads under way now.
            reading: AtomicU64,
        }

        const COUNTERS: usize = [$(stringify!($name)),+].len();

        /// Which numbers a row has, in which order: versions that differ in it do not understand each other.
        pub(super) const FINGERPRINT: u64 = fingerprint(concat!($(stringify!($name), " "),+));

        impl Default for Counters {
            fn default() -> Self {
                Self {
                    $($name: AtomicU64::new(0),)+
                    fault_ns: AtomicU64::new(0),
                    latencies: [const { AtomicU64::new(0) }; LATENCIES],
                    depth_sum: AtomicU64::new(0),
                    depths: [const { AtomicU64::new(0) }; DEPTHS],
                    reading: AtomicU64::new(0),
                }
            }
        }

        /// A reading of a pager's counters, or of several pagers' together.
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct PagerStats {
            $($(#[doc = $doc])+ pub $name: u64,)+
            /// Bytes managed.
            pub managed_bytes: u64,
            /// Bytes of DRAM in use: frames in memory and in the waiting room, tables, and what is beside them
            /// if the budget is for that too.
            pub dram_bytes: u64,
            /// Bytes of these that are not paged.
            pub beside_bytes: u64,
            /// Most of them that there may be.
            pub budget_bytes: u64,
            /// Bytes of the store's file.
            pub store_bytes: u64,
            /// Time from when a handler takes a fault to when its page is there: upper ends of intervals
            /// with how many faults lie in each; those without any are left out.
            pub fault_latency: Vec<(Duration, u64)>,
            /// All these times together.
            pub fault_time: Duration,
            /// Reads under way when one was submitted, itself included, with how often; 64 stands for all
            /// above 63 as well.
            pub queue_depth: Vec<(u64, u64)>,
            /// All these depths added, those above 64 as they were.
            pub queue_depth_sum: u64,
        }

        impl Counters {
            fn totals(&self) -> impl Iterator<Item = u64> {
                [$(&self.$name),+]
                    .into_iter()
                    .chain([&self.fault_ns])
                    .chain(&self.latencies)
                    .chain([&self.depth_sum])
                    .chain(&self.depths)
                    .map(|total| total.load(Relaxed))
            }
        }

        impl PagerStats {
            /// The reading that a row, or the sum of several, tells.
            pub(super) fn of(row: &Row) -> Self {
                let [$($name),+] = *row.first_chunk().expect("a row begins with the counters");
                let (fault_ns, latencies) = (row[COUNTERS], &row[COUNTERS + 1..][..LATENCIES]);
                let at = COUNTERS + 1 + LATENCIES;
                let (queue_depth_sum, depths) = (row[at], &row[at + 1..][..DEPTHS]);
                let [managed_bytes, dram_bytes, beside_bytes, budget_bytes, store_bytes] =
                    *row.last_chunk().expect("a row ends with the gauges");
                let counted = |(n, count): (usize, &u64)| (*count > 0).then_some((n, *count));
                let latencies = latencies.iter().enumerate().filter_map(counted);
                let depths = depths.iter().enumerate().filter_map(counted);
                Self {
                    $($name,)+
                    managed_bytes,
                    dram_bytes,
                    beside_bytes,
                    budget_bytes,
                    store_bytes,
                    fault_latency: latencies.map(|(bucket, count)| (upper_end(bucket), count)).collect(),
                    fault_time: Duration::from_nanos(fault_ns),
                    queue_depth: depths.map(|(n, count)| (n as u64 + 1, count)).collect(),
                    queue_depth_sum,
                }
            }

            /// A reading of these gauges alone.
            pub(super) fn of_peaks(peaks: [u64; GAUGES.len()]) -> Self {
                let mut row = [0; SHOWN];
                row[TOTALS..].copy_from_slice(&peaks);
                Self::of(&row)
            }

            /// Every number with its name and what it is, in a fixed order.
            #[must_use]
            pub fn entries(&self) -> Vec<(&'static str, u64, &'static str)> {
                let gauges = [
                    self.managed_bytes,
                    self.dram_bytes,
                    self.beside_bytes,
                    self.budget_bytes,
                    self.store_bytes,
                ];
                let mut all = vec![$((stringify!($name), self.$name, concat!($($doc),+)),)+];
                all.extend(GAUGES.iter().zip(gauges).map(|((name, about), value)| (*name, value, *about)));
                all
            }
        }
    };
}

counters! {
    /// Faults on pages never stored to.
    faults_fresh,
    /// Faults on pages that had to be read.
    faults_read,
    /// Faults on pages that came back from the waiting room.
    faults_returned,
    /// First stores to clean pages.
    faults_stored,
    /// Pages read ahead of use.
    read_ahead,
    /// Windows read ahead whose first page was used.
    windows_used,
    /// Windows read ahead whose first page left the waiting room unused.
    windows_wasted,
    /// Windows read ahead.
    windows,
    /// Chunks of 2 MiB that came into memory as huge pages.
    huge,
    /// Pages that left memory.
    left,
    /// Of these, pages that were dirty.
    left_dirty,
    /// Of these, pages that were written to the store.
    written,
    /// Times that a fault had to make room itself.
    stalls,
    /// Reads from the store.
    reads,
    /// Bytes read from the store.
    bytes_read,
    /// Writes to the store.
    writes,
    /// Bytes written to the store, failed writes included.
    bytes_written,
    /// Transfers that failed.
    failures,
}

/// FNV-1a of the counters' names, and of how many of what a row has.
const fn fingerprint(names: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325 ^ (LATENCIES << 32 | DEPTHS << 16 | GAUGES.len()) as u64;
    let mut at = 0;
    while at < names.len() {
        hash = (hash ^ names.as_bytes()[at] as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    hash
}

impl Counters {
    /// Counts a fault's latency.
    pub(super) fn latency(&self, time: Duration) {
        add(&self.fault_ns, time.as_nanos() as u64);
        add(&self.latencies[bucket(time)], 1);
    }

    /// Counts a read that is submitted, with how many are then under way in this process.
    pub(super) fn read_begins(&self) {
        let depth = self.reading.fetch_add(1, Relaxed) + 1;
        add(&self.depth_sum, depth);
        add(&self.depths[(depth as usize).min(DEPTHS) - 1], 1);
    }

    /// Such a read has ended.
    pub(super) fn read_ends(&self) {
        self.reading.fetch_sub(1, Relaxed);
    }
}

/// The quarters of a doubling that a time exceeds 1 us by. Without `log2`, for which each process would load the library of
/// mathematics.
fn bucket(time: Duration) -> usize {
    const QUARTERS: [f64; STEPS as usize - 1] =
        [1.189_207_115_002_721, std::f64::consts::SQRT_2, 1.681_792_830_507_429];
    let us = (time.as_nanos() as f64 / 1e3).max(1.0);
    let doublings = us.to_bits() >> (f64::MANTISSA_DIGITS - 1);
    let fraction = us / f64::from_bits(doublings << (f64::MANTISSA_DIGITS - 1));
    let quarters = QUARTERS.iter().filter(|quarter| fraction >= **quarter).count();
    let doublings = doublings as usize - (f64::MAX_EXP as usize - 1);
    (doublings * STEPS as usize + quarters).min(LATENCIES - 1)
}

fn upper_end(bucket: usize) -> Duration {
    Duration::from_secs_f64((((bucket + 1) as f64) / f64::from(STEPS)).exp2() / 1e6)
}

impl PagerStats {
    /// The fault latency that a share of the faults does not exceed.
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
        PagerStats::of(&self.row(&self.gauges(&self.read())))
    }

    /// Shows the counters to those that share the budget, and writes out what is recorded: both are of the
    /// same moment.
    pub(super) fn show(&self) {
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
        let mut row = [0; SHOWN];
        let all = self.counters.totals().chain(gauges.iter().copied());
        row.iter_mut().zip(all).for_each(|(place, number)| *place = number);
        row
    }

    /// Bytes of all tables and buffers.
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
    fn a_latency_lies_in_its_bucket() {
        for us in [1u64, 2, 3, 7, 50, 51, 999, 123_456] {
            let time = Duration::from_micros(us);
            let n = bucket(time);
            assert!(time <= upper_end(n), "{us}");
            assert!(n == 0 || time >= upper_end(n - 1), "{us}");
        }
        for n in 0..LATENCIES - 1 {
            let end = upper_end(n);
            assert_eq!(bucket(end - Duration::from_nanos(1)), n);
            assert_eq!(bucket(end + Duration::from_nanos(1)), n + 1);
        }
        assert_eq!((bucket(Duration::ZERO), bucket(Duration::MAX)), (0, LATENCIES - 1));
        let stats = PagerStats {
            fault_latency: vec![(Duration::from_micros(10), 90), (Duration::from_micros(100), 10)],
            ..PagerStats::default()
        };
        assert_eq!(stats.latency_at(0.5), Some(Duration::from_micros(10)));
        assert_eq!(stats.latency_at(0.99), Some(Duration::from_micros(100)));
        assert_eq!(PagerStats::default().latency_at(0.5), None);
    }

    #[test]
    fn a_row_tells_what_was_counted() {
        let counters = Counters::default();
        add(&counters.faults_fresh, 3);
        add(&counters.failures, 5);
        for us in [10, 10, 700] {
            counters.latency(Duration::from_micros(us));
        }
        (0..3).for_each(|_| counters.read_begins());
        counters.read_ends();
        (0..98).for_each(|_| counters.read_begins());
        let mut row = [0; SHOWN];
        let all = counters.totals().chain([1, 2, 3, 4, 5]);
        assert_eq!(row.iter_mut().zip(all).map(|(place, number)| *place = number).count(), SHOWN);
        let stats = PagerStats::of(&row);
        assert_eq!((stats.faults_fresh, stats.failures, stats.store_bytes), (3, 5, 5));
        assert_eq!(stats.fault_time, Duration::from_micros(720));
        assert_eq!(stats.fault_latency.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [2, 1]);
        assert_eq!((stats.queue_depth.len(), stats.queue_depth[2]), (64, (3, 2)), "3 twice");
        assert_eq!(stats.queue_depth.last(), Some(&(64, 37)), "64 to 100");
        assert_eq!(stats.queue_depth_sum, 100 * 101 / 2 + 3);
        assert_eq!(stats.entries().len(), COUNTERS + GAUGES.len());
    }
}
