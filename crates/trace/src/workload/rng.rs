//! Random streams: ChaCha with 8 rounds, seeded by (seed, component name). Each component has an
//! independent stream, and the same seed gives the same bytes on every machine.

use crate::text_fields::fnv1a;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng};

/// The random stream of a component.
#[derive(Clone, Debug)]
pub struct Rng(ChaCha8Rng);

impl Rng {
    /// Creates the stream of component `name` for this seed.
    pub fn new(seed: u64, name: &str) -> Rng {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..16].copy_from_slice(&fnv1a(name.as_bytes()).to_le_bytes());
        Rng(ChaCha8Rng::from_seed(key))
    }

    /// Returns 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a uniformly distributed number below `n` (Lemire's method); 0 if `n` is 0.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        let mut product = u128::from(self.bits()) * u128::from(n);
        if (product as u64) < n {
            let unfair = n.wrapping_neg() % n;
            while (product as u64) < unfair {
                product = u128::from(self.bits()) * u128::from(n);
            }
        }
        (product >> 64) as u64
    }

    /// Returns a uniformly distributed number from `low` to `high`, both included; `low` if `high`
    /// is smaller.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        match high.checked_sub(low) {
            Some(u64::MAX) => self.bits(),
            Some(width) => low + self.below(width + 1),
            None => low,
        }
    }

    /// Returns a uniformly distributed number in [0, 1), a multiple of 2^-53.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Returns true with probability `p`.
    #[inline]
    pub fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_and_seeds_have_streams_of_their_own() {
        let take = |seed, name| {
            let mut rng = Rng::new(seed, name);
            [rng.bits(), rng.bits(), rng.bits()]
        };
        assert_eq!(take(1, "a"), take(1, "a"));
        assert_ne!(take(1, "a"), take(1, "b"));
        assert_ne!(take(1, "a"), take(2, "a"));
    }

    #[test]
    fn draws_stay_in_range_at_the_edges() {
        let mut rng = Rng::new(7, "t");
        for _ in 0..1000 {
            assert_eq!(rng.below(1), 0);
            assert!(rng.below(3) < 3);
            assert!((5..=6).contains(&rng.between(5, 6)));
            assert!((0.0..1.0).contains(&rng.unit()));
        }
        assert_eq!(rng.below(0), 0);
        rng.between(0, u64::MAX);
    }
}
