//! The requests of a stand-in.
//!
//! A request relates to one of the 64 requests before it (begins at the same page, behind it, or behind a gap), or begins
//! elsewhere. Elsewhere is fresh while the trace has fewer unique pages than planned for this point: the next pages of one
//! of many lanes, in turn, so that consecutive fresh requests are far apart. Otherwise it is hot (a page of a fixed region,
//! by a Zipf distribution) or cold (any page of a lane that fresh requests have passed). Relation and place are drawn
//! independently for reads and writes.
//!
//! Memory: a bit for each page of the lanes, about three times the unique pages.

use super::{Model, PublishedTrace};
use crate::record::{Op, Request};
use crate::workload::{Exponential, Permutation, Rng, Zipf, mix64};
use deepram_core::units::PS_PER_S;

const SECTOR: u64 = 512;
/// Sectors of a page.
const PAGE: u64 = 16;
/// Pages that lie together on the device. A request stays within an extent.
const EXTENT: u64 = 256;
/// Lanes of fresh pages: consecutive fresh requests are this many apart before they are neighbours.
const LANES: u64 = 256;
/// Pages of all lanes, in unique pages: gaps of strided requests stay without accesses.
const SPARE: u64 = 3;
/// Recent requests that a request may relate to: the paper's largest request order difference.
const RECENT: u64 = 64;
/// Longest time between two requests, in mean times.
const LONGEST: f64 = 50.0;

/// A recent request; pages are numbered, the hot ones first.
#[derive(Clone, Copy, Default)]
struct Recent {
    first: u64,
    /// The page behind the last.
    end: u64,
    write: bool,
    /// Whether a later request began behind this one.
    continued: bool,
}

/// The requests of a stand-in.
pub struct StandIn {
    trace: &'static PublishedTrace,
    model: Model,
    unique_target: u64,
    made: u64,
    time_ps: f64,
    /// Mean time between two requests; 0 without times.
    gap_ps: f64,
    /// Times between two requests, in [`LONGEST`] mean times.
    gaps: Exponential,
    hot: Zipf,
    /// Hot page of each rank.
    ranks: Permutation,
    /// Place of each extent on the device.
    extents: Permutation,
    /// Pages of the hot region, a whole number of extents.
    hot_end: u64,
    lane_pages: u64,
    /// First page of each lane without accesses.
    lanes: Vec<u64>,
    next_lane: u64,
    accessed: Vec<u64>,
    /// Unique pages of the hot region and of the lanes.
    unique: [u64; 2],
    recent: [Recent; RECENT as usize],
    rng: Rng,
}

impl StandIn {
    /// The stand-in for a trace with its fitted parameters.
    #[must_use]
    pub fn new(trace: &'static PublishedTrace, seed: u64) -> Self {
        Self::with_model(trace, trace.fitted().model, seed)
    }

    /// The stand-in for a trace with other parameters.
    #[must_use]
    pub fn with_model(trace: &'static PublishedTrace, model: Model, seed: u64) -> Self {
        let unique_target = trace.unique_pages();
        let hot_pages = model.hot_pages.max(1);
        let hot_end = hot_pages.next_multiple_of(EXTENT);
        let lane_pages = (SPARE * unique_target).div_ceil(LANES).next_multiple_of(EXTENT) + EXTENT;
        let pages = hot_end + LANES * lane_pages;
        let stand_in = Self {
            trace,
            model,
            unique_target,
            made: 0,
            time_ps: 0.0,
            gap_ps: 0.0,
            gaps: Exponential::new(LONGEST),
            hot: Zipf::new(hot_pages, model.theta),
            ranks: Permutation::new(hot_pages, seed),
            extents: Permutation::new(pages / EXTENT, seed ^ 1),
            hot_end,
            lane_pages,
            lanes: (0..LANES).map(|lane| hot_end + lane * lane_pages).collect(),
            next_lane: 0,
            accessed: vec![0; pages.div_ceil(64) as usize],
            unique: [0; 2],
            recent: [Recent::default(); RECENT as usize],
            rng: Rng::new(seed, trace.trace),
        };
        stand_in.lasting((trace.span_s * PS_PER_S as f64) as u64)
    }

    /// The same requests over another time, in picoseconds; 0 for requests without times.
    #[must_use]
    pub fn lasting(mut self, span_ps: u64) -> Self {
        self.gap_ps = span_ps as f64 / self.trace.requests.saturating_sub(1).max(1) as f64;
        self
    }

    /// Whether the trace has fewer unique pages than planned for this point. Hot pages are first accessed early, so the
    /// plan spreads only the others evenly.
    fn behind(&self) -> bool {
        let [hot, fresh] = self.unique;
        let planned = self.unique_target.saturating_sub(hot);
        fresh * self.trace.requests < planned * (self.made + 1)
    }

    /// First sector of a request within its first page: fixed, so that a page is written again from the same start.
    fn within(page: u64) -> u64 {
        mix64(page) % PAGE
    }

    /// Pages of a request that begins with this page.
    fn pages(page: u64, sectors: u64) -> u64 {
        (Self::within(page) + sectors).div_ceil(PAGE)
    }

    /// Whether a request of `pages` pages that begins with this page stays within an extent.
    fn fits(page: u64, pages: u64) -> bool {
        page % EXTENT + pages <= EXTENT
    }

    /// The lane of a page; `None` for a hot page.
    fn lane(&self, page: u64) -> Option<usize> {
        page.checked_sub(self.hot_end).map(|page| (page / self.lane_pages) as usize)
    }

    /// Place of a recent request: the one before, or an older one from a drawn place on. Those of the same direction are preferred and, if the
    /// new request begins behind it, those behind which no other has begun: a run goes on rather than repeats itself.
    fn recent(&mut self, write: bool, adjacent: f64, behind: bool) -> Option<usize> {
        let lags = self.made.min(RECENT);
        let at = |lag: u64| ((self.made - lag) % RECENT) as usize;
        if lags == 0 {
            return None;
        }
        if lags == 1 || self.rng.chance(adjacent) {
            return Some(at(1));
        }
        let drawn = self.rng.below(lags - 1);
        let older = |from: u64| at(2 + (drawn + from) % (lags - 1));
        let suits = |at: &usize| {
            let recent = &self.recent[*at];
            recent.write == write && !(behind && recent.continued)
        };
        Some((0..lags - 1).map(older).find(suits).unwrap_or_else(|| older(0)))
    }

    /// First page of a request that relates to a recent one; `None` for a request that begins elsewhere.
    fn related(&mut self, write: bool, sectors: u64) -> Option<u64> {
        let placement = if write { self.model.write } else { self.model.read };
        let mut draw = self.rng.unit();
        let gap = [placement.overlapped, placement.sequential, placement.near, placement.far];
        let class = gap.iter().position(|share| {
            draw -= share;
            draw < 0.0
        })?;
        let at = self.recent(write, placement.adjacent, class > 0)?;
        self.recent[at].continued |= class > 0;
        let recent = self.recent[at];
        let first = match class {
            0 => recent.first,
            1 => recent.end,
            2 => recent.end + self.rng.between(1, 2),
            _ => recent.end + self.rng.between(3, 16),
        };
        let same = class == 0 || first / EXTENT == (recent.end - 1) / EXTENT;
        (same && Self::fits(first, Self::pages(first, sectors))).then_some(first)
    }

    /// The next fresh pages of the next lane; `None` if all lanes are full.
    fn fresh(&mut self, sectors: u64) -> Option<u64> {
        for _ in 0..LANES {
            let lane = self.next_lane;
            self.next_lane = (lane + 1) % LANES;
            let mut first = self.lanes[lane as usize];
            if !Self::fits(first, Self::pages(first, sectors)) {
                first = first.next_multiple_of(EXTENT);
            }
            if first + Self::pages(first, sectors) <= self.hot_end + (lane + 1) * self.lane_pages {
                return Some(first);
            }
        }
        None
    }

    /// First page of a request that relates to no recent one.
    fn elsewhere(&mut self, write: bool, sectors: u64) -> u64 {
        if self.behind()
            && let Some(first) = self.fresh(sectors)
        {
            return first;
        }
        let hot = if write { self.model.write.hot } else { self.model.read.hot };
        if !self.rng.chance(hot) {
            let lane = self.rng.below(LANES);
            let start = self.hot_end + lane * self.lane_pages;
            let passed = self.lanes[lane as usize] - start;
            if passed > 0 {
                return start + self.rng.below(passed);
            }
        }
        self.ranks.at(self.hot.sample(&mut self.rng))
    }

    /// Marks the pages of a request as accessed.
    fn access(&mut self, first: u64, end: u64) {
        for page in first..end {
            let (word, bit) = ((page / 64) as usize, 1 << (page % 64));
            let is_new = self.accessed[word] & bit == 0;
            self.accessed[word] |= bit;
            self.unique[usize::from(page >= self.hot_end)] += u64::from(is_new);
        }
        if let Some(lane) = self.lane(first) {
            self.lanes[lane] = self.lanes[lane].max(end);
        }
    }

    /// Sectors of a request: the whole numbers next to the mean, in the shares that give the mean.
    fn sectors(&mut self, mean_bytes: f64) -> u64 {
        let mean = mean_bytes / SECTOR as f64;
        (mean as u64 + u64::from(self.rng.chance(mean.fract()))).max(1)
    }
}

impl Iterator for StandIn {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        if self.made == self.trace.requests {
            return None;
        }
        let write = self.rng.chance(self.trace.write_share);
        let sectors = self.sectors(if write { self.trace.write_bytes } else { self.trace.read_bytes });
        let first = match self.related(write, sectors) {
            Some(first) => first,
            None => self.elsewhere(write, sectors),
        };
        let (within, pages) = (Self::within(first), Self::pages(first, sectors));
        let first = if Self::fits(first, pages) { first } else { first / EXTENT * EXTENT + EXTENT - pages };
        let end = first + pages;
        self.access(first, end);
        self.recent[(self.made % RECENT) as usize] = Recent { first, end, write, continued: false };
        self.made += 1;
        let time = self.time_ps as u64;
        if self.gap_ps > 0.0 {
            self.time_ps += self.gaps.sample(&mut self.rng) * LONGEST * self.gap_ps;
        }
        let page = self.extents.at(first / EXTENT) * EXTENT + first % EXTENT;
        Some(Request {
            time_ps: (self.gap_ps > 0.0).then_some(time),
            device: 0,
            offset: (page * PAGE + within) * SECTOR,
            len: sectors * SECTOR,
            op: if write { Op::Write } else { Op::Read },
        })
    }
}
