//! SkyByte (Zhang et al., arXiv 2501.10682): a simulator of a CXL drive with a cache of DRAM, which re-implements
//! FlatFlash as a baseline. Its parameters are those of its source (platformxlab/skybte@ca5b86d), its
//! figures those of the outputs kept with its artifact (HieronZhang/SkyByte-Artifact@7754b5f).
//!
//! Its traces were not at hand, so that no run repeats its accesses. What can be compared is the time of an
//! access for a given rate of misses: the cost of a hit, and the waits for dies that program the pages
//! which leave the cache. Its baseline programs each page that leaves, dirty or not, so that all pages are
//! dirty here.

use deepram_trace::workload::Rng;
use deepram_trace::{Op, Request};

use super::{Access, Miss, PeerCase, PeerWorkload, PerRead, expected, expected_outside};

/// Accesses to the lines of a byte-addressable drive with a given rate of misses in its cache: a load and
/// a store of the same line in turn, on a page drawn uniformly. First each page is loaded and stored once,
/// so that the cache is full and dirty.
#[derive(Debug, Clone)]
pub struct LoadsAndStores {
    random: Rng,
    filling: u64,
    pages: u64,
    left: u64,
    stored: Option<u64>,
}

/// Pages of SkyByte's cache of 512 MiB.
const CACHED: u64 = 131_072;
/// Pairs between filling the cache and measuring.
const SETTLING: u64 = 20_000;

impl LoadsAndStores {
    /// Generates `pairs` measured pairs of which a share of `misses` of all accesses miss.
    #[must_use]
    pub fn new(pairs: u64, misses: f64, seed: u64) -> Self {
        // Only loads miss, and they are half of the accesses.
        let pages = (CACHED as f64 / (1.0 - 2.0 * misses)).round() as u64;
        let random = Rng::new(seed, "loads and stores");
        Self { random, filling: 0, pages, left: SETTLING + pairs, stored: None }
    }

    /// Requests before the measured ones.
    #[must_use]
    pub fn warm_up(&self) -> u64 {
        2 * (self.pages + SETTLING)
    }
}

impl Iterator for LoadsAndStores {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let (page, op) = match self.stored.take() {
            Some(page) => (page, Op::Write),
            None => {
                let page = if self.filling < self.pages {
                    self.filling += 1;
                    self.filling - 1
                } else {
                    self.left = self.left.checked_sub(1)?;
                    self.random.below(self.pages)
                };
                self.stored = Some(page);
                (page, Op::Read)
            }
        };
        Some(Request { time_ps: None, device: 0, offset: page * 4096, len: 64, op })
    }
}

/// In this run of SkyByte 18 % of the misses wait for a page that another core has already requested,
/// which shortens their mean. Of ours, none.
const SHARED_MISSES: &str = "18 % of its misses wait for a page that another core has requested before";

/// Eight cores without promotion ("Base-CSSD"): output/{ycsb,ycsbB,bc}-8-baseType3, the runs whose cores
/// wait for one access at a time. The rate of misses is theirs, flash pages read over accesses.
pub(super) const CASES: &[PeerCase] = &[
    PeerCase {
        name: "skybyte ycsb-a",
        preset: "skybyte",
        workload: PeerWorkload::LoadsAndStores(200_000, 161_846.0 / 9_321_772.0),
        figures: &[expected(Miss, 34.897, 0.1), expected(Access, 763.083, 0.1), expected(PerRead, 1.0, 0.02)],
    },
    PeerCase {
        name: "skybyte ycsb-b",
        preset: "skybyte",
        workload: PeerWorkload::LoadsAndStores(400_000, 180_037.0 / 20_148_178.0),
        figures: &[expected(Miss, 31.950, 0.1), expected(Access, 445.061, 0.1), expected(PerRead, 1.0, 0.02)],
    },
    PeerCase {
        name: "skybyte bc",
        preset: "skybyte",
        workload: PeerWorkload::LoadsAndStores(200_000, 65_995.0 / 2_451_563.0),
        figures: &[
            expected_outside(Miss, 33.373, 0.1, SHARED_MISSES),
            expected_outside(Access, 1251.054, 0.1, SHARED_MISSES),
            expected(PerRead, 1.0, 0.02),
        ],
    },
];
