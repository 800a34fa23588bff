//! Plain stand-ins for the eight traces: generated requests with the published counts, shares, mean sizes, unique data
//! and spans (Table III, section VI-C).
//!
//! A request is hot (a page of a fixed set, by a Zipf distribution), fresh (the next pages without accesses so far, as
//! long as the trace has fewer unique pages than planned for this point), or cold (any page that fresh requests have
//! reached). Arrivals are a Poisson process. The hot sets are assumed: 4,000 pages of the five traces with much
//! temporal locality, and few requests to them in the others. Nothing else of the traces' locality is reproduced: the
//! experiments `locality`, `working-set` and `hit-ratio` show how far the stand-ins are from it.

use deepram_trace::workload::{Exponential, Permutation, Rng, Zipf};
use deepram_trace::{Op, PS_PER_S, Request};

/// The collections of traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Group {
    /// Servers of Microsoft Research Cambridge.
    Msrc,
    /// Microsoft Enterprise.
    Mse,
    /// OLTP of financial institutions.
    Financial,
}

/// A trace of Table III, with the stand-in's assumptions.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) trace: &'static str,
    pub(super) group: Group,
    pub(super) requests: u64,
    /// Share of writes.
    pub(super) write_share: f64,
    /// Mean size of a read, bytes.
    pub(super) read_bytes: f64,
    /// Mean size of a write, bytes.
    pub(super) write_bytes: f64,
    /// Unique data in GB of 10^6 KB, whole pages of 8 KB.
    unique_gb: f64,
    /// Time from the first to the last request, seconds. Of the Financial traces the paper says "a few hours".
    span_s: f64,
    /// Share of hot requests, assumed.
    hot: f64,
}

const WEEK: f64 = 7.0 * 86_400.0;
/// Assumed for the Financial traces.
const HALF_DAY: f64 = 43_200.0;

/// Requests, share of writes, KB a read, KB a write, unique GB, span, hot share.
type Row = (&'static str, Group, u64, f64, f64, f64, f64, f64, f64);

const fn target(
    (trace, group, requests, write_share, read_kb, write_kb, unique_gb, span_s, hot): Row,
) -> Target {
    let (read_bytes, write_bytes) = (read_kb * 1024.0, write_kb * 1024.0);
    Target { trace, group, requests, write_share, read_bytes, write_bytes, unique_gb, span_s, hot }
}

/// The traces, in the order of Table III.
pub(super) static TARGETS: [Target; 8] = [
    target(("rsrch", Group::Msrc, 1_433_655, 0.9068, 11.18, 8.93, 0.414, WEEK, 0.9)),
    target(("stg", Group::Msrc, 2_196_861, 0.3625, 60.97, 8.07, 85.778, WEEK, 0.1)),
    target(("ts", Group::Msrc, 1_801_734, 0.8242, 14.01, 8.20, 1.050, WEEK, 0.9)),
    target(("wdev", Group::Msrc, 1_143_261, 0.7992, 12.87, 8.40, 0.588, WEEK, 0.9)),
    target(("tpcc", Group::Mse, 484_649, 0.3640, 8.19, 8.84, 4.331, 361.0, 0.1)),
    target(("tpce", Group::Mse, 1_345_380, 0.0574, 8.19, 9.77, 13.951, 609.0, 0.1)),
    target(("fin1", Group::Financial, 5_334_987, 0.7684, 2.30, 3.82, 0.569, HALF_DAY, 0.9)),
    target(("fin2", Group::Financial, 3_699_195, 0.1765, 2.33, 2.99, 0.481, HALF_DAY, 0.9)),
];

impl Target {
    /// Unique pages of 8 KB.
    pub(super) fn unique_pages(&self) -> u64 {
        (self.unique_gb * 1e6 / 8.0).round() as u64
    }
}

const SECTOR: u64 = 512;
/// Sectors of a page.
const PAGE: u64 = 16;
/// Hot pages.
const HOT: u64 = 4_000;
/// Exponent of the hot pages' Zipf distribution.
const THETA: f64 = 0.9;
/// Longest time between two requests, in mean times.
const LONGEST: f64 = 50.0;
/// Pages that lie together on the device.
const EXTENT: u64 = 64;

/// The requests of a stand-in.
pub(super) struct StandIn {
    target: &'static Target,
    made: u64,
    time_ps: f64,
    hot: Zipf,
    /// Times between two requests, in [`LONGEST`] mean times.
    gaps: Exponential,
    /// Place of each extent on the device.
    extents: Permutation,
    /// The next page of a fresh request; pages are numbered, the hot ones first.
    fresh: u64,
    accessed: Vec<bool>,
    unique: u64,
    rng: Rng,
}

impl StandIn {
    pub(super) fn new(target: &'static Target, seed: u64) -> Self {
        let pages = HOT + target.unique_pages() + 2 * EXTENT;
        Self {
            target,
            made: 0,
            time_ps: 0.0,
            hot: Zipf::new(HOT, THETA),
            gaps: Exponential::new(LONGEST),
            // Half of the extents stay empty, so that the data are spread.
            extents: Permutation::new(2 * pages / EXTENT, seed),
            fresh: HOT,
            accessed: vec![false; pages as usize],
            unique: 0,
            rng: Rng::new(seed, target.trace),
        }
    }

    /// The sectors of a request: the whole numbers next to the mean, in the shares that give the mean.
    fn sectors(&mut self, mean_bytes: f64) -> u64 {
        let mean = mean_bytes / SECTOR as f64;
        mean as u64 + u64::from(self.rng.chance(mean.fract()))
    }

    /// The first page of a request of `pages` pages.
    fn place(&mut self, pages: u64) -> u64 {
        let end = self.accessed.len() as u64 - pages;
        let planned =
            self.target.unique_pages() as f64 * (self.made + 1) as f64 / self.target.requests as f64;
        if self.rng.chance(self.target.hot) {
            self.hot.sample(&mut self.rng)
        } else if (self.unique as f64) < planned && self.fresh <= end {
            self.fresh += pages;
            self.fresh - pages
        } else {
            self.rng.below(self.fresh.min(end) + 1)
        }
    }
}

impl Iterator for StandIn {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let target = self.target;
        if self.made == target.requests {
            return None;
        }
        let write = self.rng.chance(target.write_share);
        let sectors = self.sectors(if write { target.write_bytes } else { target.read_bytes }).max(1);
        let within = self.rng.below(PAGE);
        let pages = (within + sectors).div_ceil(PAGE);
        // A request stays within an extent.
        let first = self.place(pages);
        let first = first.min(first / EXTENT * EXTENT + EXTENT - pages);
        for page in first..first + pages {
            let accessed = &mut self.accessed[page as usize];
            self.unique += u64::from(!std::mem::replace(accessed, true));
        }
        let page = self.extents.at(first / EXTENT) * EXTENT + first % EXTENT;
        let time = self.time_ps as u64;
        let mean_ps = target.span_s / target.requests as f64 * PS_PER_S as f64;
        self.time_ps += self.gaps.sample(&mut self.rng) * LONGEST * mean_ps;
        self.made += 1;
        Some(Request {
            time_ps: Some(time),
            device: 0,
            offset: (page * PAGE + within) * SECTOR,
            len: sectors * SECTOR,
            op: if write { Op::Write } else { Op::Read },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stand_in_has_the_published_counts_sizes_span_and_is_the_same_for_a_seed() {
        for target in [&TARGETS[0], &TARGETS[4]] {
            let (mut writes, mut requests, mut bytes, mut last) = (0u64, 0u64, [0u64; 2], 0);
            for request in StandIn::new(target, 7) {
                let write = request.op == Op::Write;
                requests += 1;
                writes += u64::from(write);
                bytes[usize::from(write)] += request.len;
                last = request.time_ps.unwrap().max(last);
            }
            assert_eq!(requests, target.requests);
            let near = |found: f64, expected: f64| {
                assert!(
                    (found / expected - 1.0).abs() < 0.01,
                    "{}: {found} {expected} (seed 7)",
                    target.trace
                );
            };
            near(writes as f64 / requests as f64, target.write_share);
            near(bytes[0] as f64 / (requests - writes) as f64, target.read_bytes);
            near(bytes[1] as f64 / writes as f64, target.write_bytes);
            near(last as f64 / PS_PER_S as f64, target.span_s);
            let head = |seed| StandIn::new(target, seed).take(100).collect::<Vec<_>>();
            assert!(head(7) == head(7) && head(7) != head(8));
        }
    }
}
