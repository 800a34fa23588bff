//! Random numbers, one stream a component: seeded from (run seed, component name), so that a draw in
//! one component never shifts the draws of another, and the same seed gives the same bytes anywhere.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng};

/// A component's random stream: ChaCha with 8 rounds.
#[derive(Debug, Clone)]
pub struct Stream(ChaCha8Rng);

impl Stream {
    /// The stream of the component called `name` in the run with this seed.
    #[must_use]
    pub fn new(seed: u64, name: &str) -> Self {
        // FNV-1a of the name, beside the seed, is the key.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..16].copy_from_slice(&hash.to_le_bytes());
        Self(ChaCha8Rng::from_seed(key))
    }

    /// A number below `n`, each with probability 1/n up to 2^-64 x n; 0 if `n` is 0.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// A number in [0, 1), a multiple of 2^-53.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_has_a_stream_of_its_own_for_each_seed() {
        let take = |seed, name| {
            let mut stream = Stream::new(seed, name);
            (0..4).map(|_| stream.below(1 << 40)).collect::<Vec<_>>()
        };
        assert_eq!(take(1, "reclaim"), take(1, "reclaim"));
        assert_ne!(take(1, "reclaim"), take(2, "reclaim"));
        assert_ne!(take(1, "reclaim"), take(1, "precondition"));
    }
}
