//! The Pareto front: the hierarchies that no other one beats in every respect.

use super::Figures;
use crate::pareto;

/// Lifetimes above this count as equal, in years: no hardware is in use for longer.
const LONGEST_YEARS: f64 = 100.0;

/// The figures that are compared; less is better.
fn objectives(figures: &Figures) -> [f64; 5] {
    let years = figures.years.unwrap_or(LONGEST_YEARS).min(LONGEST_YEARS);
    [figures.mean_ns, figures.p99_ns, figures.energy_nj, -years, figures.usd]
}

/// Whether `a` is at least as good as `b` in every respect and better in one: mean and p99 latency, energy
/// of a request, lifetime (those above 100 years are equal), and price.
#[must_use]
pub fn dominates(a: &Figures, b: &Figures) -> bool {
    pareto::dominates(&objectives(a), &objectives(b))
}

/// The positions of the figures that no others dominate, in order. Of equal figures all are on the front.
#[must_use]
pub fn front(figures: &[Figures]) -> Vec<usize> {
    let objectives: Vec<[f64; 5]> = figures.iter().map(objectives).collect();
    pareto::front(&objectives)
}
