//! Counters and latencies of a pager.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::{Inner, PAGE};

/// Steps of the histogram for each doubling.
const STEPS: u32 = 4;
/// From 1 us to over an hour.
const BUCKETS: usize = 32 * STEPS as usize;

macro_rules! counters {
    ($($(#[doc = $doc:expr])+ $name:ident,)+) => {
        /// Running totals.
        #[derive(Debug)]
        pub(super) struct Counters {
            $(pub(super) $name: AtomicU64,)+
            latencies: [AtomicU64; BUCKETS],
        }

        impl Default for Counters {
            fn default() -> Self {
                Self { $($name: AtomicU64::new(0),)+ latencies: [const { AtomicU64::new(0) }; BUCKETS] }
            }
        }

        /// A reading of a pager's counters.
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct PagerStats {
            $($(#[doc = $doc])+ pub $name: u64,)+
            /// Bytes managed.
            pub managed_bytes: u64,
            /// Bytes of DRAM in use: frames in memory and in the waiting room, and tables.
            pub dram_bytes: u64,
            /// Most of them that there may be.
            pub budget_bytes: u64,
            /// Bytes of the store's file.
            pub store_bytes: u64,
            /// Time from when a handler takes a fault to when its page is there: upper ends of intervals
            /// with how many faults lie in each.
            pub fault_latency: Vec<(Duration, u64)>,
        }

        impl Counters {
            pub(super) fn read(&self) -> PagerStats {
                let latencies = self.latencies.iter().enumerate().filter_map(|(bucket, count)| {
                    let count = count.load(Relaxed);
                    (count > 0).then(|| (upper_end(bucket), count))
                });
                PagerStats {
                    $($name: self.$name.load(Relaxed),)+
                    fault_latency: latencies.collect(),
                    ..PagerStats::default()
                }
            }
        }

        impl PagerStats {
            /// Every number with its name and what it is, in a fixed order.
            #[must_use]
            pub fn entries(&self) -> Vec<(&'static str, u64, &'static str)> {
                vec![
                    $((stringify!($name), self.$name, concat!($($doc),+)),)+
                    ("managed_bytes", self.managed_bytes, " Bytes managed."),
                    ("dram_bytes", self.dram_bytes, " Bytes of DRAM in use."),
                    ("budget_bytes", self.budget_bytes, " Most bytes of DRAM that there may be."),
                    ("store_bytes", self.store_bytes, " Bytes of the store's file."),
                ]
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
    /// Windows read ahead.
    windows,
    /// Pages that left memory.
    left,
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
    /// Transfers that failed.
    failures,
}

/// Adds to a counter.
pub(super) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Relaxed);
}

impl Counters {
    /// Counts a fault's latency.
    pub(super) fn latency(&self, time: Duration) {
        add(&self.latencies[bucket(time)], 1);
    }
}

fn bucket(time: Duration) -> usize {
    let us = time.as_nanos() as f64 / 1e3;
    ((us.max(1.0).log2() * f64::from(STEPS)) as usize).min(BUCKETS - 1)
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
        let ground = self.read();
        let tables = ground.layout.memory_bytes() + ground.store.memory_bytes();
        PagerStats {
            managed_bytes: ground.layout.bytes() as u64,
            dram_bytes: (self.frames.used() * PAGE + tables + self.policy_bytes()) as u64,
            budget_bytes: self.options.dram,
            store_bytes: ground.store.bytes(),
            ..self.counters.read()
        }
    }

    /// Bytes of the policy's and the room's tables.
    pub(super) fn policy_bytes(&self) -> usize {
        super::lock(&self.policy).memory_bytes() + super::lock(&self.room).memory_bytes()
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
        let stats = PagerStats {
            fault_latency: vec![(Duration::from_micros(10), 90), (Duration::from_micros(100), 10)],
            ..PagerStats::default()
        };
        assert_eq!(stats.latency_at(0.5), Some(Duration::from_micros(10)));
        assert_eq!(stats.latency_at(0.99), Some(Duration::from_micros(100)));
        assert_eq!(PagerStats::default().latency_at(0.5), None);
    }
}
