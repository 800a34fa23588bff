//! The Pareto front of vectors of figures of which less is better.

use std::cmp::Ordering;

/// Whether `a` is at least as good as `b` in every figure and better in one.
pub(crate) fn dominates(a: &[f64], b: &[f64]) -> bool {
    a.iter().zip(b).all(|(a, b)| a <= b) && a.iter().zip(b).any(|(a, b)| a < b)
}

/// The positions of the vectors that no others dominate, in order. Of equal vectors all are on the front.
pub(crate) fn front<V: AsRef<[f64]>>(vectors: &[V]) -> Vec<usize> {
    // Only a vector that comes earlier in this order can dominate a later one, and every dominated one
    // is dominated by a member of the front, because dominance is transitive.
    let mut order: Vec<usize> = (0..vectors.len()).collect();
    order.sort_by(|&a, &b| {
        let compared = vectors[a].as_ref().iter().zip(vectors[b].as_ref()).map(|(a, b)| a.total_cmp(b));
        compared.fold(Ordering::Equal, Ordering::then)
    });
    let mut front: Vec<usize> = Vec::new();
    for at in order {
        if !front.iter().any(|&other| dominates(vectors[other].as_ref(), vectors[at].as_ref())) {
            front.push(at);
        }
    }
    front.sort_unstable();
    front
}
