//! Statistics over results: crossover of two curves, arithmetic and geometric mean.

/// Finds where two curves cross: the first x at which `a`, greater before, is no longer greater than
/// `b`.
///
/// Interpolates linearly in the logarithms of the points, whose x values both curves share. `None`
/// without such a crossing, or if a coordinate is not positive.
#[must_use]
pub fn crossover(a: &[(f64, f64)], b: &[(f64, f64)]) -> Option<f64> {
    let lead = |n: usize| -> Option<(f64, f64)> {
        let (&(x, above), &(same, below)) = (a.get(n)?, b.get(n)?);
        (x == same && x > 0.0 && above > 0.0 && below > 0.0).then(|| (x.ln(), above.ln() - below.ln()))
    };
    (1..a.len().min(b.len())).find_map(|n| {
        let ((from, before), (to, after)) = (lead(n - 1)?, lead(n)?);
        (before > 0.0 && after <= 0.0).then(|| (from + (to - from) * before / (before - after)).exp())
    })
}

/// Arithmetic mean; `None` of an empty slice.
#[must_use]
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Geometric mean; `None` of an empty slice or if a value is not positive.
#[must_use]
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    let positive = !values.is_empty() && values.iter().all(|&value| value > 0.0);
    positive.then(|| (values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_cross_where_their_logarithms_do() {
        // 1/x against 1/10: at 10, half-way between 1 and 100 in logarithms.
        let falling = [(1.0, 1.0), (100.0, 0.01)];
        let flat = [(1.0, 0.1), (100.0, 0.1)];
        assert!((crossover(&falling, &flat).unwrap() - 10.0).abs() < 1e-9);
        assert_eq!(crossover(&flat, &falling), None, "a crossing counts only from above");
        assert_eq!(crossover(&falling, &[(1.0, 0.1), (50.0, 0.1)]), None, "not the same x");
        assert_eq!(crossover(&[(1.0, 2.0), (2.0, 1.0)], &[(1.0, 1.0), (2.0, 1.0)]), Some(2.0));
    }

    #[test]
    fn means_are_means() {
        assert_eq!(mean(&[1.0, 4.0]), Some(2.5));
        assert!((geometric_mean(&[1.0, 4.0]).unwrap() - 2.0).abs() < 1e-12);
        assert_eq!(geometric_mean(&[1.0, 0.0]), None);
        assert_eq!(mean(&[]), None);
    }
}
