//! The Pareto front: the hierarchies that no other one beats in every respect.

use super::Figures;

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
    let (a, b) = (objectives(a), objectives(b));
    a.iter().zip(b).all(|(a, b)| *a <= b) && a.iter().zip(b).any(|(a, b)| *a < b)
}

/// The positions of the figures that no others dominate, in order. Of equal figures all are on the front.
#[must_use]
pub fn front(figures: &[Figures]) -> Vec<usize> {
    // Only a hierarchy that comes earlier in this order can dominate a later one, and every dominated one
    // is dominated by a member of the front, because dominance is transitive.
    let mut order: Vec<usize> = (0..figures.len()).collect();
    let key = |at: usize| objectives(&figures[at]);
    order.sort_by(|&a, &b| {
        let compared = key(a).into_iter().zip(key(b)).map(|(a, b)| a.total_cmp(&b));
        compared.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
    });
    let mut front: Vec<usize> = Vec::new();
    for at in order {
        if !front.iter().any(|&other| dominates(&figures[other], &figures[at])) {
            front.push(at);
        }
    }
    front.sort_unstable();
    front
}
