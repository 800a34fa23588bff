//! The characterisation that the stand-ins are fitted to, and its loss.
//!
//! The loss is the sum, over all goals, of the squared difference between the measured and the wanted value in units of the
//! goal's tolerance. The example `fit_stand_ins` minimises it.

use super::{Collection, LRU_PAGES, PublishedTrace, StandIn, WRITE_LRU_PAGES};
use crate::characterize::{
    Characterization, CharacterizeError, CharacterizeOptions, Characterizer, Counted, Denominator,
    SpatialClass, Traffic,
};
use crate::record::Item;
use deepram_core::units::PS_PER_S;

/// Seed of the fit.
pub const SEED: u64 = 1;

/// A goal with its measured value.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// What is measured.
    pub what: String,
    /// Place in the paper, or `assumed`.
    pub basis: &'static str,
    /// The wanted value.
    pub goal: f64,
    /// Largest difference that counts as met, in the unit of the values.
    pub tolerance: f64,
    /// The measured value.
    pub value: f64,
}

/// Tolerance of random requests, in points.
const RANDOM: f64 = 1.5;
/// Tolerance of overlapped writes, whose goal is assumed.
const OVERLAPPED: f64 = 10.0;
/// Tolerances of the hit ratios of [`LRU_PAGES`]; only that of 10,000 pages is published.
const HIT_RATIO: [f64; 4] = [8.0, 5.0, 3.0, 6.0];
/// Tolerance of the hit ratio of writes.
const WRITE_HIT_RATIO: f64 = 8.0;

/// Tolerance of the counts of Table III, in per cent of the published value.
const TABLE_III: f64 = 1.0;

/// Characterises the first `most` requests of a stand-in (all if it has fewer), as the goals are defined: pages of 8 KiB,
/// requests compared with earlier ones of either direction, overlapped before sequential before strided.
///
/// # Errors
/// A request touches too many pages for a characterisation; none of a published trace does.
pub fn characterize(stand_in: StandIn, most: u64) -> Result<Characterization, CharacterizeError> {
    let mut characterizer = Characterizer::new(&CharacterizeOptions::default())?;
    for request in stand_in.take(usize::try_from(most).unwrap_or(usize::MAX)) {
        characterizer.add(&Item::Block(request))?;
    }
    characterizer.finish()
}

/// The measured values of all goals of a trace.
#[must_use]
pub fn locality(trace: &PublishedTrace, report: &Characterization) -> Vec<Measured> {
    let goals = &trace.goals;
    let mut found = Vec::new();
    let percent = |share: Option<f64>| 100.0 * share.unwrap_or(0.0);
    let figures = ["Figure 4, mean", "Figure 5, mean", "Figure 6, mean"];
    for ((spatial, [reads, writes]), basis) in report.spatial.iter().zip(goals.random).zip(figures) {
        for (name, shares, goal) in [("reads", spatial.read, reads), ("writes", spatial.write, writes)] {
            let what = format!("random {name}, {}, %", spatial.setting);
            let value = percent(shares.map(|shares| shares[SpatialClass::Random as usize]));
            found.push(Measured { what, basis, goal, tolerance: RANDOM, value });
        }
    }
    let farthest = report.spatial.last().and_then(|spatial| spatial.write);
    found.push(Measured {
        what: "overlapped writes, 16/64, %".into(),
        basis: "assumed",
        goal: goals.overlapped_writes,
        tolerance: OVERLAPPED,
        value: percent(farthest.map(|shares| shares[SpatialClass::Overlapped as usize])),
    });
    let hit_ratio = |pages, counted| {
        let distances = report.distances.as_ref();
        percent(distances.and_then(|all| all.hit_ratio(pages, counted, Denominator::AllAccesses)))
    };
    for ((pages, goal), tolerance) in LRU_PAGES.into_iter().zip(goals.hit_ratio).zip(HIT_RATIO) {
        if let Some(goal) = goal {
            let (what, value) = (format!("hit ratio, {pages} pages, %"), hit_ratio(pages, Counted::All));
            let basis = if pages == 10_000 { "section IV-B" } else { "assumed" };
            found.push(Measured { what, basis, goal, tolerance, value });
        }
    }
    if let Some(goal) = goals.write_hit_ratio {
        let what = format!("hit ratio of writes, {WRITE_LRU_PAGES} pages, %");
        let value = hit_ratio(WRITE_LRU_PAGES, Counted::Writes);
        found.push(Measured { what, basis: "section VI-B", goal, tolerance: WRITE_HIT_RATIO, value });
    }
    found
}

/// The measured values of Table III for a whole stand-in. The generator has them by construction, and no parameter is
/// fitted to them.
#[must_use]
pub fn table_iii(trace: &PublishedTrace, report: &Characterization) -> Vec<Measured> {
    let span = report.times.map_or(0.0, |times| (times.last_ps - times.first_ps) as f64 / PS_PER_S as f64);
    let bytes = |traffic: &Traffic| traffic.mean_bytes().unwrap_or(0.0);
    let spanned = if trace.collection == Collection::Financial { "assumed" } else { "section VI-C" };
    let rows = [
        ("requests", trace.requests as f64, report.all.requests as f64),
        ("writes, %", 100.0 * trace.write_share, 100.0 * report.write_share.unwrap_or(0.0)),
        ("bytes a read", trace.read_bytes, bytes(&report.read)),
        ("bytes a write", trace.write_bytes, bytes(&report.write)),
        ("unique pages", trace.unique_pages() as f64, report.all.unique_pages as f64),
        ("span, s", trace.span_s, span),
    ];
    let measured = rows.into_iter().map(|(what, goal, value)| {
        let basis = if what.starts_with("span") { spanned } else { "Table III" };
        Measured { what: what.into(), basis, goal, tolerance: goal * TABLE_III / 100.0, value }
    });
    measured.collect()
}

impl Measured {
    /// Whether the measured value is within the tolerance of the goal.
    #[must_use]
    pub fn is_met(&self) -> bool {
        (self.value - self.goal).abs() <= self.tolerance
    }
}

/// The loss: the sum of squared differences in units of the tolerances.
#[must_use]
pub fn loss(measured: &[Measured]) -> f64 {
    measured.iter().map(|one| ((one.value - one.goal) / one.tolerance).powi(2)).sum()
}
