//! The normal and the lognormal distribution: distribution function and quantiles.

use std::f64::consts::{LN_2, TAU};

/// Beyond this many deviations the continued fraction of the tail converges fast.
const TAIL: f64 = 3.0;
/// Terms of the continued fraction: enough for 14 digits from [`TAIL`] on.
const TAIL_TERMS: u32 = 60;
/// Steps of Newton's method; it has converged after about ten.
const STEPS: u32 = 60;

/// The density of the standard normal distribution.
fn density(z: f64) -> f64 {
    (-z * z / 2.0).exp() / TAU.sqrt()
}

/// The share of a standard normal distribution at or below `z`.
///
/// The series density(z) x (z + z^3/3 + z^5/15 + ...) near the middle, and the continued fraction of
/// Mills' ratio in the tails. The relative error is below 10^-12 from -35 on.
pub fn normal_cdf(z: f64) -> f64 {
    if z > TAIL {
        return 1.0 - normal_cdf(-z);
    }
    if z < -TAIL {
        let ratio = (1..=TAIL_TERMS).rev().fold(-z, |below, term| -z + f64::from(term) / below);
        return density(z) / ratio;
    }
    let (mut sum, mut term, mut odd) = (z, z, 1.0);
    while term.abs() > 1e-17 {
        odd += 2.0;
        term *= z * z / odd;
        sum += term;
    }
    0.5 + density(z) * sum
}

/// The value below which a share `p` of a standard normal distribution lies. Infinite for 0 and 1.
pub fn normal_quantile(p: f64) -> f64 {
    if p > 0.5 {
        return -normal_quantile(1.0 - p);
    }
    if p <= 0.0 {
        return f64::NEG_INFINITY;
    }
    // The logarithm of the distribution function is concave, and the start is at or below the solution,
    // so the steps of Newton's method rise towards it.
    let mut z = -(-2.0 * (p.ln() + LN_2)).max(0.0).sqrt();
    for _ in 0..STEPS {
        let below = normal_cdf(z);
        let step = (p / below).ln() * below / density(z);
        z += step;
        if step.abs() <= 1e-14 * z.abs().max(1.0) {
            break;
        }
    }
    z
}

/// A lognormal distribution: the logarithm is normal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lognormal {
    /// The median.
    pub median: f64,
    /// The standard deviation of the natural logarithm.
    pub log_deviation: f64,
}

impl Lognormal {
    /// The distribution of this mean whose standard deviation is `relative` times the mean.
    pub fn with_mean(mean: f64, relative: f64) -> Self {
        let variance = (relative * relative).ln_1p();
        Self { median: mean * (-variance / 2.0).exp(), log_deviation: variance.sqrt() }
    }

    /// The mean.
    pub fn mean(&self) -> f64 {
        self.median * (self.log_deviation.powi(2) / 2.0).exp()
    }

    /// The standard deviation.
    pub fn deviation(&self) -> f64 {
        self.mean() * self.log_deviation.powi(2).exp_m1().sqrt()
    }

    /// The value below which a share `p` lies.
    pub fn quantile(&self, p: f64) -> f64 {
        if self.log_deviation == 0.0 {
            return self.median;
        }
        self.median * (self.log_deviation * normal_quantile(p)).exp()
    }

    /// The share of the distribution at or below `value`.
    pub fn cdf(&self, value: f64) -> f64 {
        if self.log_deviation == 0.0 {
            return f64::from(u8::from(value >= self.median));
        }
        normal_cdf((value / self.median).ln() / self.log_deviation)
    }
}
