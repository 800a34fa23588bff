//! The choice for a target: the cheapest hierarchy that keeps all goals, and the shortfalls of the cheaper
//! ones.

use serde::Serialize;

use super::goal::{Goals, Shortfall};
use super::{Estimate, Figures};

/// Cheaper neighbours of the chosen hierarchy that are simulated with the whole trace.
pub const CHEAPER_NEIGHBOURS: usize = 3;

/// The choice among hierarchies; positions are those of the list that was chosen from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Choice {
    /// The cheapest hierarchy that keeps all goals; of equally cheap ones the one with the lowest mean
    /// latency.
    pub chosen: Option<usize>,
    /// The hierarchies that cost less, the next cheaper one first, each with the goals that it misses. All
    /// hierarchies, those that miss their worst goal by the least first, if none keeps all goals.
    pub rejected: Vec<Rejected>,
}

/// A hierarchy that misses goals.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rejected {
    /// Its position.
    pub point: usize,
    /// The goals that it misses; at least one.
    pub missed: Vec<Shortfall>,
}

impl Rejected {
    /// The factor of the worst shortfall.
    fn worst(&self) -> f64 {
        self.missed.iter().map(Shortfall::factor).fold(1.0, f64::max)
    }
}

/// Chooses the cheapest of the hierarchies with these figures that keeps all `goals`.
#[must_use]
pub fn choose(figures: &[Figures], goals: &Goals) -> Choice {
    let mut missed: Vec<Rejected> =
        figures.iter().enumerate().map(|(point, f)| Rejected { point, missed: goals.missed(f) }).collect();
    let price = |at: usize| figures[at].usd;
    let chosen = missed.iter().filter(|r| r.missed.is_empty()).map(|r| r.point).min_by(|&a, &b| {
        price(a).total_cmp(&price(b)).then(figures[a].mean_ns.total_cmp(&figures[b].mean_ns))
    });
    match chosen {
        // A cheaper hierarchy that kept the goals would have been chosen.
        Some(chosen) => {
            missed.retain(|r| price(r.point) < price(chosen));
            missed.sort_by(|a, b| price(b.point).total_cmp(&price(a.point)));
        }
        None => missed.sort_by(|a, b| a.worst().total_cmp(&b.worst())),
    }
    Choice { chosen, rejected: missed }
}

impl Choice {
    /// The positions that the choice rests on: the chosen hierarchy, its [`CHEAPER_NEIGHBOURS`], and the
    /// next dearer one; without a choice the hierarchies that are nearest to the goals.
    fn neighbourhood(&self, figures: &[Figures]) -> Vec<usize> {
        let mut points: Vec<usize> =
            self.rejected.iter().take(CHEAPER_NEIGHBOURS).map(|r| r.point).chain(self.chosen).collect();
        if let Some(chosen) = self.chosen {
            let dearer = (0..figures.len()).filter(|&at| figures[at].usd > figures[chosen].usd);
            points.extend(dearer.min_by(|&a, &b| figures[a].usd.total_cmp(&figures[b].usd)));
        }
        points
    }
}

/// Chooses among estimates, and replaces those that the choice rests on by exact figures, until the choice
/// rests on exact figures alone: the chosen hierarchy keeps the goals and its cheaper neighbours miss some,
/// both exactly. `measure` returns the exact figures of the hierarchies at these positions.
///
/// # Errors
/// The first error of `measure`.
pub fn settle<E>(
    estimates: &mut [Estimate],
    goals: &Goals,
    mut measure: impl FnMut(&[usize]) -> Result<Vec<Figures>, E>,
) -> Result<Choice, E> {
    loop {
        let figures: Vec<Figures> = estimates.iter().map(|e| *e.figures()).collect();
        let choice = choose(&figures, goals);
        let mut inexact = choice.neighbourhood(&figures);
        inexact.retain(|&at| estimates[at].whole.is_none());
        if inexact.is_empty() {
            return Ok(choice);
        }
        for (&at, exact) in inexact.iter().zip(measure(&inexact)?) {
            estimates[at].whole = Some(exact);
        }
    }
}
