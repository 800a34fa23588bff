//! Probability distributions. Exponentials and logarithms come from `libm`, whose results, unlike
//! those of the system's library, are identical on every machine.

use super::rng::Rng;
use crate::text_fields::mix64;

/// The generalised harmonic number: the sum of k^-theta for k from 1 to n.
///
/// Summed up to 1,000 and continued by the Euler-Maclaurin formula, with an error far below the
/// rounding error of a long sum. The cost does not depend on n.
pub fn zeta(n: u64, theta: f64) -> f64 {
    const DIRECT: u64 = 1000;
    let term = |k: f64| libm::pow(k, -theta);
    let head: f64 = (1..=n.min(DIRECT)).rev().map(|k| term(k as f64)).sum();
    if n <= DIRECT {
        return head;
    }
    // Sum from a to n, a = 1001: integral + (f(a) + f(n)) / 2 + (f'(n) - f'(a)) / 12
    // - (f'''(n) - f'''(a)) / 720.
    let (a, b) = ((DIRECT + 1) as f64, n as f64);
    let integral = integral(b, theta) - integral(a, theta);
    let slope = |x: f64| -theta * libm::pow(x, -theta - 1.0);
    let third = |x: f64| -theta * (theta + 1.0) * (theta + 2.0) * libm::pow(x, -theta - 3.0);
    head + integral + (term(a) + term(b)) / 2.0 + (slope(b) - slope(a)) / 12.0 - (third(b) - third(a)) / 720.0
}

/// Integral of x^-theta from 1 to x, accurate for theta near 1, too.
#[inline]
fn integral(x: f64, theta: f64) -> f64 {
    let log = libm::log(x);
    let scaled = (1.0 - theta) * log;
    if scaled.abs() < 1e-8 { log * (1.0 + scaled / 2.0) } else { libm::expm1(scaled) / (1.0 - theta) }
}

/// Inverse of [`integral`].
#[inline]
fn integral_inverse(y: f64, theta: f64) -> f64 {
    let scaled = ((1.0 - theta) * y).max(-1.0);
    let log =
        if scaled.abs() < 1e-8 { y * (1.0 - scaled / 2.0) } else { libm::log1p(scaled) / (1.0 - theta) };
    libm::exp(log)
}

/// Ranks below this are drawn from a table (256 KiB, which fits into a core's cache), several times
/// faster.
const TABLE_RANKS: u64 = 1 << 15;

/// Zipf distribution over ranks 0 to n-1, in which rank r has weight (r+1)^-theta, for any theta >=
/// 0, exact to 2^-32 of a rank's probability.
///
/// Popular ranks come from an alias table (Walker 1977, built as by Vose 1991). One of its outcomes
/// stands for all other ranks, which are drawn by rejection-inversion (Hörmann and Derflinger,
/// "Rejection-inversion to generate variates from monotone discrete distributions", ACM TOMACS
/// 6(3), 1996).
#[derive(Clone, Debug)]
pub struct Zipf {
    n: u64,
    theta: f64,
    zeta_n: f64,
    /// The popular ranks, and one outcome for the tail.
    table: Alias,
    /// Number of ranks in the table.
    kept: u64,
    /// Range of the tail's inversion.
    low: f64,
    high: f64,
    /// A rank within this distance of the drawn point is accepted without a further test.
    sure: f64,
}

impl Zipf {
    /// Creates a distribution over `n` ranks (at least 1).
    pub fn new(n: u64, theta: f64) -> Zipf {
        let n = n.max(1);
        let kept = n.min(TABLE_RANKS);
        let weight = |k: f64| libm::pow(k, -theta);
        let mut weights: Vec<f64> = (1..=kept).map(|k| weight(k as f64)).collect();
        let zeta_n = zeta(n, theta);
        if kept < n {
            weights.push(zeta_n - zeta(kept, theta));
        }
        // The first rank of the tail is number `first`, counted from 1.
        let first = (kept + 1) as f64;
        let start = integral(first + 1.5, theta) - weight(first + 1.0);
        Zipf {
            n,
            theta,
            zeta_n,
            table: Alias::new(&weights),
            kept,
            low: integral(first + 0.5, theta) - weight(first),
            high: integral(n as f64 + 0.5, theta),
            sure: first + 1.0 - integral_inverse(start, theta),
        }
    }

    /// Draws a rank.
    #[inline]
    pub fn sample(&self, rng: &mut Rng) -> u64 {
        let rank = self.table.sample(rng.bits());
        if rank < self.kept { rank } else { self.tail(rng) }
    }

    fn tail(&self, rng: &mut Rng) -> u64 {
        loop {
            let y = self.high + rng.unit() * (self.low - self.high);
            let x = integral_inverse(y, self.theta);
            let k = libm::round(x).clamp((TABLE_RANKS + 1) as f64, self.n as f64);
            if k - x <= self.sure || y >= integral(k + 0.5, self.theta) - libm::pow(k, -self.theta) {
                return (k as u64 - 1).min(self.n - 1);
            }
        }
    }

    /// Probability of a rank.
    pub fn probability(&self, rank: u64) -> f64 {
        if rank >= self.n { 0.0 } else { libm::pow((rank + 1) as f64, -self.theta) / self.zeta_n }
    }
}

/// An alias table: draws a column, then the column's own number or its alias.
#[derive(Clone, Debug)]
struct Alias {
    /// For each column: the share of its own number out of 2^32, and its alias.
    columns: Vec<(u32, u32)>,
}

impl Alias {
    /// Builds a table for fewer than 2^32 weights, none negative and at least one positive.
    fn new(weights: &[f64]) -> Alias {
        let mean = weights.iter().sum::<f64>() / weights.len() as f64;
        let mut share: Vec<f64> = weights.iter().map(|w| w / mean).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..share.len()).partition(|i| share[*i] < 1.0);
        // A column without an alias has itself as alias.
        let mut columns: Vec<(u32, u32)> = (0..share.len() as u32).map(|i| (0, i)).collect();
        while let (Some(s), Some(&l)) = (small.pop(), large.last()) {
            columns[s] = ((share[s] * 4_294_967_296.0) as u32, l as u32);
            share[l] -= 1.0 - share[s];
            if share[l] < 1.0 {
                large.pop();
                small.push(l);
            }
        }
        Alias { columns }
    }

    #[inline]
    fn sample(&self, bits: u64) -> u64 {
        // The high half of the product is the column, the low half the position in it.
        let product = u128::from(bits) * self.columns.len() as u128;
        let column = (product >> 64) as usize;
        let (own, alias) = self.columns[column];
        let is_own = ((product as u64 >> 32) as u32) < own;
        // Branch-free, because the outcome is unpredictable.
        let mask = u64::from(is_own).wrapping_neg();
        (column as u64 & mask) | (u64::from(alias) & !mask)
    }
}

/// Zipf distribution as approximated by Gray et al. ("Quickly generating billion-record synthetic
/// databases", SIGMOD 1994) and used by YCSB: exact for the first two ranks, close for the others,
/// only for theta below 1. Adding a rank takes constant time.
#[derive(Clone, Debug)]
pub struct GrayZipf {
    n: u64,
    theta: f64,
    zeta_n: f64,
    eta: f64,
    /// A draw times zeta below this is rank 0 or 1: 1 + 2^-theta.
    two: f64,
    alpha: f64,
}

impl GrayZipf {
    /// Creates a distribution over `n` ranks (at least 1) with `theta` in (0, 1).
    pub fn new(n: u64, theta: f64) -> GrayZipf {
        let n = n.max(1);
        let two = 1.0 + libm::pow(0.5, theta);
        let alpha = 1.0 / (1.0 - theta);
        let mut zipf = GrayZipf { n, theta, zeta_n: zeta(n, theta), eta: 0.0, two, alpha };
        zipf.set_eta();
        zipf
    }

    fn set_eta(&mut self) {
        let tail = libm::pow(2.0 / self.n as f64, 1.0 - self.theta);
        self.eta = (1.0 - tail) / (1.0 - self.two / self.zeta_n);
    }

    /// Adds a rank at the end.
    pub fn grow(&mut self) {
        self.n += 1;
        self.zeta_n += libm::pow(self.n as f64, -self.theta);
        self.set_eta();
    }

    /// Number of ranks.
    pub fn ranks(&self) -> u64 {
        self.n
    }

    /// Draws a rank.
    #[inline]
    pub fn sample(&self, rng: &mut Rng) -> u64 {
        let u = rng.unit();
        let uz = u * self.zeta_n;
        let rank = if uz < 1.0 {
            0
        } else if uz < self.two {
            1
        } else {
            let base = self.eta * u - self.eta + 1.0;
            (self.n as f64 * libm::exp(self.alpha * libm::log(base))) as u64
        };
        rank.min(self.n - 1)
    }
}

/// Exponential distribution truncated at 1: density proportional to e^(-lambda x) on [0, 1).
#[derive(Clone, Debug)]
pub struct Exponential {
    lambda: f64,
    mass: f64,
}

impl Exponential {
    /// Creates the distribution with rate `lambda`, which must be positive.
    pub fn new(lambda: f64) -> Exponential {
        Exponential { lambda, mass: -libm::expm1(-lambda) }
    }

    /// Draws a point of [0, 1).
    #[inline]
    pub fn sample(&self, rng: &mut Rng) -> f64 {
        let x = -libm::log1p(-rng.unit() * self.mass) / self.lambda;
        x.clamp(0.0, 1.0 - f64::EPSILON)
    }

    /// Probability of a point below `x`.
    pub fn below(&self, x: f64) -> f64 {
        -libm::expm1(-self.lambda * x.clamp(0.0, 1.0)) / self.mass
    }
}

/// A fixed permutation of the numbers below n, computed rather than stored.
#[derive(Clone, Debug)]
pub struct Permutation {
    n: u64,
    mask: u64,
    half: u32,
    keys: [u64; 3],
}

impl Permutation {
    /// Creates the permutation of the numbers below `n` (at least 1) that belongs to `key`.
    pub fn new(n: u64, key: u64) -> Permutation {
        let n = n.max(1);
        let bits = (64 - (n - 1).leading_zeros()).max(2);
        let mask = u64::MAX >> (64 - bits);
        let k = |i: u64| mix64(key.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        Permutation { n, mask, half: bits.div_ceil(2), keys: [k(1) | 1, k(2) | 1, k(3)] }
    }

    /// Image of `x`, which must be below n (otherwise it is reduced modulo n).
    #[inline]
    pub fn at(&self, x: u64) -> u64 {
        let mut x = if x < self.n { x } else { x % self.n };
        // Each step is a bijection of the numbers below a power of two. Repeating it until the
        // result is below n gives a bijection of the numbers below n.
        loop {
            x = x.wrapping_add(self.keys[2]).wrapping_mul(self.keys[0]) & self.mask;
            x ^= x >> self.half;
            x = x.wrapping_mul(self.keys[1]) & self.mask;
            x ^= x >> self.half;
            x = x.wrapping_mul(self.keys[0]) & self.mask;
            x ^= x >> self.half;
            if x < self.n {
                return x;
            }
        }
    }
}

/// The 64-bit FNV hash of a number's eight bytes, lowest first, as YCSB uses it to scramble keys.
pub(crate) fn fnv_u64(value: u64) -> u64 {
    crate::text_fields::fnv1a(&value.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pearson's statistic must stay below the mean plus six standard deviations of its
    /// chi-square distribution (about one false alarm in 10^8 at these degrees of freedom).
    pub(crate) fn assert_chi_square(counts: &[u64], probabilities: &[f64]) {
        let total: u64 = counts.iter().sum();
        let statistic: f64 = counts
            .iter()
            .zip(probabilities)
            .map(|(&c, &p)| (c as f64 - p * total as f64).powi(2) / (p * total as f64))
            .sum();
        let freedom = counts.len() as f64 - 1.0;
        assert!(
            statistic < freedom + 6.0 * (2.0 * freedom).sqrt(),
            "chi-square {statistic} at {freedom} degrees of freedom"
        );
    }

    #[test]
    fn zeta_equals_the_direct_sum_and_known_values() {
        for theta in [0.0, 0.5, 0.99, 1.0, 1.2, 2.0] {
            for n in [1u64, 2, 999, 1000, 1001, 5000, 300_000] {
                let direct: f64 = (1..=n).rev().map(|k| (k as f64).powf(-theta)).sum();
                assert!((zeta(n, theta) / direct - 1.0).abs() < 1e-12, "theta {theta} n {n}");
            }
        }
        // YCSB, ScrambledZipfianGenerator: the constant for 10^10 items at theta 0.99.
        assert!((zeta(10_000_000_000, 0.99) - 26.469_028_201_783_02).abs() < 1e-6);
        // The limit for theta 2 is pi^2 / 6.
        assert!((zeta(1 << 40, 2.0) - std::f64::consts::PI.powi(2) / 6.0).abs() < 1e-11);
    }

    #[test]
    fn zipf_ranks_have_their_probabilities_below_at_and_above_theta_one() {
        for theta in [0.0, 0.5, 0.99, 1.0, 1.01, 1.5, 3.0] {
            let zipf = Zipf::new(1000, theta);
            let mut rng = Rng::new(1, "zipf");
            let classes = [0u64, 1, 2, 3, 5, 9, 20, 50, 100, 300, 1000];
            let mut counts = vec![0; classes.len() - 1];
            for _ in 0..1_000_000 {
                let rank = zipf.sample(&mut rng);
                counts[classes.partition_point(|c| *c <= rank) - 1] += 1;
            }
            let p: Vec<f64> =
                classes.windows(2).map(|w| (w[0]..w[1]).map(|r| zipf.probability(r)).sum()).collect();
            let (counts, p): (Vec<u64>, Vec<f64>) =
                counts.iter().zip(p).filter(|(_, p)| p * 1e6 > 5.0).unzip();
            assert_chi_square(&counts, &p);
        }
    }

    #[test]
    fn ranks_beyond_the_table_have_their_probabilities_too() {
        for theta in [0.0, 0.7, 0.99, 1.0, 1.2] {
            let n = 1u64 << 20;
            let zipf = Zipf::new(n, theta);
            let mut rng = Rng::new(6, "zipf");
            let t = TABLE_RANKS;
            let classes = [0, 10, t / 2, t - 1, t, t + 1, t + 2, t + 50, t * 2, t * 3, t * 8, t * 12, n];
            let mut counts = vec![0u64; classes.len() - 1];
            let draws = 4_000_000u32;
            for _ in 0..draws {
                let rank = zipf.sample(&mut rng);
                counts[classes.partition_point(|c| *c <= rank) - 1] += 1;
            }
            let up_to = |r: u64| if r == 0 { 0.0 } else { zeta(r, theta) };
            let p = classes.windows(2).map(|w| (up_to(w[1]) - up_to(w[0])) / up_to(n));
            let kept = counts.iter().zip(p).filter(|(_, p)| p * f64::from(draws) > 5.0);
            let (counts, p): (Vec<u64>, Vec<f64>) = kept.unzip();
            assert_chi_square(&counts, &p);
        }
    }

    #[test]
    fn zipf_over_huge_and_tiny_ranges_stays_inside() {
        let mut rng = Rng::new(2, "zipf");
        for n in [1, 2, 3, u64::MAX] {
            for theta in [0.0, 0.99, 1.0, 2.5] {
                let zipf = Zipf::new(n, theta);
                assert!((0..1000).all(|_| zipf.sample(&mut rng) < n));
            }
        }
    }

    #[test]
    fn grays_approximation_is_exact_for_the_first_two_ranks_and_grows_exactly() {
        let mut grown = GrayZipf::new(500, 0.99);
        (0..500).for_each(|_| grown.grow());
        let fresh = GrayZipf::new(1000, 0.99);
        assert!((grown.zeta_n / fresh.zeta_n - 1.0).abs() < 1e-12);
        let mut rng = Rng::new(3, "gray");
        let mut counts = [0u64; 3];
        let draws = 1_000_000;
        for _ in 0..draws {
            counts[(fresh.sample(&mut rng) as usize).min(2)] += 1;
        }
        let first = 1.0 / fresh.zeta_n;
        let second = 0.5f64.powf(0.99) / fresh.zeta_n;
        assert_chi_square(&counts, &[first, second, 1.0 - first - second]);
    }

    #[test]
    fn the_cut_exponential_fills_its_buckets_in_proportion() {
        for lambda in [0.1, 1.0, 7.0, 30.0] {
            let e = Exponential::new(lambda);
            let mut rng = Rng::new(4, "exp");
            let mut counts = [0u64; 8];
            (0..400_000).for_each(|_| counts[(e.sample(&mut rng) * 8.0) as usize] += 1);
            let p: Vec<f64> =
                (0..8).map(|i| e.below((i + 1) as f64 / 8.0) - e.below(i as f64 / 8.0)).collect();
            let kept = p.iter().take_while(|p| **p * 400_000.0 > 5.0).count();
            let rest = 1.0 - p[..kept].iter().sum::<f64>();
            let mut counts_kept = counts[..kept].to_vec();
            let mut p_kept = p[..kept].to_vec();
            if rest > 1e-9 && kept < 8 {
                p_kept[kept - 1] += rest;
                counts_kept[kept - 1] += counts[kept..].iter().sum::<u64>();
            }
            assert_chi_square(&counts_kept, &p_kept);
        }
    }

    #[test]
    fn a_permutation_hits_every_number_once() {
        for n in [1u64, 2, 3, 5, 64, 100, 1000, 65_537] {
            let p = Permutation::new(n, 42);
            let mut seen = vec![false; n as usize];
            for x in 0..n {
                assert!(!std::mem::replace(&mut seen[p.at(x) as usize], true));
            }
        }
    }

    #[test]
    fn uniform_draws_fill_their_buckets_equally() {
        let mut rng = Rng::new(5, "uniform");
        let mut counts = [0u64; 100];
        (0..1_000_000).for_each(|_| counts[rng.below(100) as usize] += 1);
        assert_chi_square(&counts, &[0.01; 100]);
    }
}
