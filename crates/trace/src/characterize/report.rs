//! The characterisation of a trace as data.

use serde::Serialize;

use super::address_map::AddressDistribution;
use super::distributions::Distribution;
use super::hit_ratio::DistanceHistogram;
use super::spatial::{SpatialCounts, SpatialSetting};
use super::traffic::{OverTime, Traffic};
use super::working_set::WorkingSet;

/// A trace's characterisation: [`super::Characterizer::finish`].
#[derive(Clone, Debug, Serialize)]
pub struct Characterization {
    /// Size of a page, in bytes.
    pub page_bytes: u64,
    /// Records of all kinds.
    pub records: u64,
    /// Reads and writes.
    pub all: Traffic,
    /// Reads, loads and instruction fetches.
    pub read: Traffic,
    /// Writes and stores.
    pub write: Traffic,
    /// Share of writes among the requests; `None` without requests.
    pub write_share: Option<f64>,
    /// Discards (trim, delete), which are no requests.
    pub trims: u64,
    /// Flushes, which are no requests.
    pub flushes: u64,
    /// Reads and writes of 0 bytes, which touch no page and are no requests.
    pub empty: u64,
    /// Times of the requests; `None` in a trace without times.
    pub times: Option<Times>,
    /// Sample of pages from which unique pages, hit ratios, policies and working sets are estimated; `None` if they are
    /// exact.
    pub sample: Option<SampleReport>,
    /// Spatial classes, one entry for each setting; empty for accesses to objects, which have no addresses.
    pub spatial: Vec<SpatialReport>,
    /// Hit ratio of an LRU cache by its capacity, ascending.
    pub lru: Vec<HitRatios>,
    /// As [`Characterization::lru`], of a stack that only writes move; empty unless it was asked for.
    pub lru_of_writes: Vec<HitRatios>,
    /// Smallest LRU cache for each of four hit ratios; empty in sampled mode.
    pub capacity_for_hit_ratio: Vec<CapacityForHitRatio>,
    /// Hit ratios of the simulated policies, by policy and ascending capacity, and of the optimal replacement.
    pub policies: Vec<PolicyHitRatios>,
    /// Working sets by window length, ascending.
    pub working_sets: Vec<WorkingSet>,
    /// Accesses over the address space in five phases.
    pub addresses: AddressDistribution,
    /// Read/write mix over time.
    pub over_time: OverTime,
    /// Unit of the width of its bins: `ps`, or `requests` in a trace without times.
    pub over_time_unit: &'static str,
    /// Request sizes in bytes.
    pub sizes: Sizes,
    /// Times between consecutive requests, in picoseconds; `None` with fewer than two times.
    pub interarrival_ps: Option<Distribution>,
    /// All stack distances, for hit ratios of any capacity; `None` in sampled mode.
    #[serde(skip)]
    pub distances: Option<DistanceHistogram>,
    /// As [`Characterization::distances`], of a stack that only writes move.
    #[serde(skip)]
    pub distances_of_writes: Option<DistanceHistogram>,
}

/// Times of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Times {
    /// Earliest time, in picoseconds.
    pub first_ps: u64,
    /// Latest time, in picoseconds.
    pub last_ps: u64,
    /// Requests with a time.
    pub timed: u64,
    /// Requests with an earlier time than the request before; they have no inter-arrival time.
    pub out_of_order: u64,
    /// Requests a second between the earliest and the latest time; `None` if these are equal.
    pub requests_per_s: Option<f64>,
}

/// Request sizes by operation, in bytes; `None` without such requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sizes {
    /// Of reads and writes.
    pub all: Option<Distribution>,
    /// Of reads.
    pub read: Option<Distribution>,
    /// Of writes.
    pub write: Option<Distribution>,
}

/// The sample behind estimated figures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SampleReport {
    /// Share of the pages in the sample at the end.
    pub rate: f64,
    /// Pages in the sample at the end.
    pub pages: u64,
}

/// Spatial classes under one setting.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SpatialReport {
    /// The setting.
    #[serde(flatten)]
    pub setting: SpatialSetting,
    /// Requests of each class: overlapped, sequential, strided, random.
    pub counts: SpatialCounts,
    /// Shares of the classes among all requests; `None` without requests. The same for reads and writes follows.
    pub all: Option<[f64; 4]>,
    /// Among reads.
    pub read: Option<[f64; 4]>,
    /// Among writes.
    pub write: Option<[f64; 4]>,
}

/// Hit ratios of a cache over all accesses; `None` without such accesses.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct HitRatios {
    /// Capacity, in pages.
    pub capacity_pages: u64,
    /// Capacity, in bytes.
    pub capacity_bytes: u128,
    /// Of reads and writes.
    pub all: Option<f64>,
    /// Of reads.
    pub read: Option<f64>,
    /// Of writes.
    pub write: Option<f64>,
    /// Of reads and writes but the first access to each page; `None` in sampled mode.
    pub all_rereferences: Option<f64>,
    /// Of writes but those that are the first access to their page; `None` in sampled mode.
    pub write_rereferences: Option<f64>,
    /// Standard error of `all`; `None` if it is exact.
    pub standard_error: Option<f64>,
}

/// The smallest LRU cache with a hit ratio, in pages; `None` if no cache reaches it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CapacityForHitRatio {
    /// The hit ratio.
    pub hit_ratio: f64,
    /// For reads and writes, over all accesses.
    pub all: Option<u64>,
    /// For writes, over all writes.
    pub write: Option<u64>,
    /// For reads and writes, without first accesses.
    pub all_rereferences: Option<u64>,
    /// For writes, without first accesses.
    pub write_rereferences: Option<u64>,
    /// For writes in a cache that only writes enter; `None` unless it was asked for.
    pub write_only_cache: Option<u64>,
}

/// Hit ratios over all accesses of a simulated cache, or of the optimal replacement ([`super::OPTIMUM`]); `None` without such
/// accesses.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PolicyHitRatios {
    /// Name of the policy.
    pub policy: &'static str,
    /// Capacity, in pages.
    pub capacity_pages: u64,
    /// Capacity, in bytes.
    pub capacity_bytes: u128,
    /// Misses; in sampled mode those of the sample, in a cache made smaller by the sampling rate.
    pub misses: u64,
    /// Of reads and writes.
    pub all: Option<f64>,
    /// Of reads.
    pub read: Option<f64>,
    /// Of writes.
    pub write: Option<f64>,
}
