//! The performance goals and their sources, and the rates of other simulators. Goals are set from measurements of peers, made
//! on a 2-core virtual machine with ext4 on one virtual SSD.

use super::super::{flush_peers, msync};

/// The bound that a goal sets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Bound {
    AtMost(f64),
    AtLeast(f64),
    /// Lower and upper bound.
    Within(f64, f64),
}

/// The column that a goal bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    Ours,
    Ratio,
}

/// One goal.
#[derive(Debug, Clone, Copy)]
pub(super) struct Goal {
    pub(super) id: &'static str,
    pub(super) column: Column,
    pub(super) bound: Bound,
    /// Unit of the bound, as shown: `ms`, `× swap`.
    pub(super) unit: &'static str,
    pub(super) source: &'static str,
}

const fn goal(
    id: &'static str,
    column: Column,
    bound: Bound,
    unit: &'static str,
    source: &'static str,
) -> Goal {
    Goal { id, column, bound, unit, source }
}

use Bound::{AtLeast, AtMost, Within};
use Column::{Ours, Ratio};

/// All goals.
pub(super) const GOALS: &[Goal] = &[
    goal(
        "sync",
        Ours,
        AtMost(12.0),
        "ms",
        "WP_ASYNC, PAGEMAP_SCAN and one sequential log take 13.7 ms, without crash safety",
    ),
    goal(
        "sync-over-write",
        Ratio,
        AtMost(2.0),
        "× direct write",
        "one sequential write of the dirty bytes bounds any checkpoint",
    ),
    goal(
        "written",
        Ratio,
        AtMost(1.05),
        "× dirty bytes",
        "msync of a plain mapping writes 98 × the dirty bytes",
    ),
    goal(
        "sync-few",
        Ours,
        AtMost(0.3),
        "ms",
        "msync of a MADV_RANDOM mapping takes 0.9 ms; a page table scan alone takes 1.3 ms",
    ),
    goal(
        "longest-stop",
        Ours,
        AtMost(1.5),
        "ms",
        "WP_ASYNC with PAGEMAP_SCAN stops writers for 5.5 ms, fork for 43 ms",
    ),
    goal("rollback", Ours, AtMost(10.0), "ms", "a rollback reads no more than a sync writes"),
    goal("reads-1", Ratio, AtLeast(1.4), "× swap", "swap 21.6 k/s; miss ratio × device time allows 48 k/s"),
    goal("reads-4", Ratio, AtLeast(1.25), "× swap", "swap 40.8 k/s; miss ratio × device time allows 68 k/s"),
    goal(
        "updates-1",
        Ratio,
        AtLeast(1.8),
        "× swap",
        "swap 19.2 k/s; sequential write-back need not delay reads",
    ),
    goal(
        "updates-4",
        Ratio,
        AtLeast(1.6),
        "× swap",
        "swap 26.9 k/s; sequential write-back need not delay reads",
    ),
    goal(
        "updates-tail",
        Ratio,
        AtMost(0.333),
        "× swap",
        "a fault waits for one device read; swap also waits for write-back",
    ),
    goal(
        "zipf-1",
        Ratio,
        AtLeast(1.6),
        "× swap",
        "swap 137 k/s with 14.4 % misses; the frequency-optimal policy has 10.7 %",
    ),
    goal(
        "zipf-4",
        Ratio,
        AtLeast(1.7),
        "× swap",
        "swap 232 k/s with 14.4 % misses; the frequency-optimal policy has 10.7 %",
    ),
    goal("scan", Ratio, AtLeast(1.0), "× mmap", "readahead of a plain mapping, without a hint"),
    goal("scan-device", Ratio, AtLeast(0.95), "× device", "1 MiB direct reads bound any scan"),
    goal(
        "gather",
        Ratio,
        AtLeast(3.0),
        "× plain loop",
        "a batch announces 1,024 reads, a loop makes one at a time",
    ),
    goal(
        "gather-device",
        Ratio,
        AtLeast(0.85),
        "× device",
        "4 KiB direct reads at queue depth 32 bound any gather",
    ),
    goal(
        "fault-service",
        Ours,
        AtMost(9.0),
        "µs",
        "SIGBUS and UFFDIO_CONTINUE in the faulting thread take 8.2 µs",
    ),
    goal(
        "fault-service-zram",
        Ours,
        AtMost(6.0),
        "µs",
        "SIGBUS and UFFDIO_COPY in the faulting thread take 5.0 µs",
    ),
    goal(
        "processor-time",
        Ours,
        AtMost(20.0),
        "µs",
        "swap 15 µs and mmap-random 16 µs on an SSD; the pager had 76 µs",
    ),
    goal(
        "in-dram",
        Ratio,
        AtLeast(0.97),
        "× plain memory",
        "an access to a resident page has no software in its path",
    ),
    goal("persist-1", Ratio, AtLeast(0.95), "× O_DSYNC 4 KiB", "a persist makes one durable write"),
    goal("persist-bytes", Ours, AtMost(600.0), "B", "an O_DSYNC write of 512 B brings 580 B to the device"),
    goal(
        "persist-4",
        Ratio,
        AtLeast(1.5),
        "× O_DSYNC 512 B",
        "group commit shares one durable write among threads",
    ),
    goal(
        "persist-16",
        Ratio,
        AtLeast(4.0),
        "× O_DSYNC 512 B",
        "group commit shares one durable write among threads",
    ),
    goal(
        "persist-async",
        Ours,
        AtLeast(500.0),
        "k/s",
        "64 or more commits in flight share each durable write",
    ),
    goal("cache-lru", Ours, AtLeast(25.0), "M/s", "libCacheSim 0.3.5: 4.9 M/s"),
    goal("cache-fifo", Ours, AtLeast(25.0), "M/s", "libCacheSim 0.3.5: 4.8 M/s"),
    goal("cache-sieve", Ours, AtLeast(25.0), "M/s", "libCacheSim 0.3.5: 6.6 M/s"),
    goal("cache-s3fifo", Ours, AtLeast(12.0), "M/s", "libCacheSim 0.3.5: 2.6 M/s"),
    goal("cache-counts", Ratio, AtLeast(1.0), "of all counts", "equal policies miss equally often"),
    goal("disksim", Ours, AtLeast(2.0), "M/s", "20 × DiskSim 4.0"),
    goal("mqsim-def-writes", Ours, AtLeast(2.0), "M/s", "75 × MQSim"),
    goal("mqsim-def-reads", Ours, AtLeast(3.0), "M/s", "30 × MQSim"),
    goal("mqsim-s8", Ours, AtLeast(2.0), "M/s", "14 × MQSim"),
    goal("predict", Ratio, Within(0.9, 1.1), "× measured", "the simulator decides by the code that runs"),
    goal(
        "ablate",
        Ratio,
        AtLeast(1.1),
        "× with it",
        "a heuristic earns its place by a tenth of the time of one program",
    ),
    goal("ecc-rate", Ours, AtLeast(3.0), "GB/s", "8 to 12 times the code of the Linux kernel"),
    goal("ecc-errors", Ratio, AtLeast(5.0), "× bchlib", "the Linux kernel's decoder: 120 MB/s at t = 12"),
    goal(
        "ecc-portable",
        Ratio,
        AtLeast(1.0),
        "× bchlib",
        "no processor is slower than with the Linux kernel's code",
    ),
    goal(
        "characterize",
        Ours,
        AtLeast(10.0),
        "M/s",
        "libCacheSim simulates one cache of 1,000 pages at 18 M/s",
    ),
    goal("characterize-counts", Ratio, AtLeast(1.0), "of all counts", "an LRU cache has one miss count"),
    goal(
        "pmem-bare",
        Ratio,
        AtLeast(flush_peers::OVER_BARE),
        "× bare instructions",
        "a persist adds no copy and no call to the kernel",
    ),
    goal(
        "pmem-libpmem",
        Ratio,
        AtLeast(flush_peers::OVER_LIBPMEM),
        "× libpmem",
        "PMDK's library, with the same instructions",
    ),
    goal(
        "msync-flat",
        Ours,
        AtMost(msync::FLAT),
        "× over all sizes",
        "a flush of one dirty page does not depend on the clean ones",
    ),
];

/// The goal of this id. Every id is a constant of this module's callers; a test checks that all of them exist.
pub(super) fn find(id: &str) -> Option<&'static Goal> {
    GOALS.iter().find(|goal| goal.id == id)
}

/// A case of the simulator: the peer and its rate, requests per second, and the goal.
#[derive(Debug, Clone, Copy)]
pub(super) struct SimulatorCase {
    pub(super) case: &'static str,
    pub(super) peer: &'static str,
    pub(super) peer_per_s: f64,
    pub(super) goal: Option<&'static str>,
}

const fn case(
    case: &'static str,
    peer: &'static str,
    peer_per_s: f64,
    goal: Option<&'static str>,
) -> SimulatorCase {
    SimulatorCase { case, peer, peer_per_s, goal }
}

/// Rates of MQSim (7ec40e3, -O3) and of DiskSim 4.0 with the SSD extension, set-up excluded, one thread.
pub(super) const SIMULATOR_CASES: &[SimulatorCase] = &[
    case("disksim 5M random writes", "DiskSim", 0.101e6, Some("disksim")),
    case("mqsim def 200k 4 KiB writes", "MQSim", 0.028e6, Some("mqsim-def-writes")),
    case("mqsim def 200k 8 KiB reads", "MQSim", 0.103e6, Some("mqsim-def-reads")),
    case("mqsim def 1M 4 KiB writes", "MQSim", 0.027e6, Some("mqsim-def-writes")),
    case("mqsim def 1M 8 KiB, 70% reads", "MQSim", 0.032e6, None),
    case("mqsim s8 300k 8 KiB writes", "MQSim", 0.146e6, Some("mqsim-s8")),
];
