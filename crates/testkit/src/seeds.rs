//! Seeds for randomized tests: few by default, one on request, printed when a test fails.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// The environment variable that selects a single seed.
pub const SEED_VARIABLE: &str = "DEEPRAM_SEED";

/// Returns seeds 0 to `count`-1, or only the one in `DEEPRAM_SEED` if that is set.
///
/// # Panics
/// If `DEEPRAM_SEED` is not a number from 0 to 2⁶⁴-1.
pub fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let (first, count) = match std::env::var_os(SEED_VARIABLE) {
        None => (0, count),
        Some(value) => {
            let seed = value.to_str().and_then(|text| text.parse().ok()).unwrap_or_else(|| {
                panic!("{SEED_VARIABLE} is {value:?}; it should be a number from 0 to {}", u64::MAX)
            });
            (seed, 1)
        }
    };
    (0..count).map(move |index| first + index)
}

/// Runs `test` with each of [`seeds`]`(count)`, and prints the seed if the test panics.
pub fn each(count: u64, mut test: impl FnMut(u64)) {
    for seed in seeds(count) {
        let _guard = SeedGuard::new(seed);
        test(seed);
    }
}

/// Returns the random generator of `seed`, the same on any machine.
pub fn rng(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

/// Prints `seed N: rerun with DEEPRAM_SEED=N` when a panic drops it.
#[derive(Debug)]
#[must_use = "a guard dropped at once guards nothing"]
pub struct SeedGuard {
    seed: u64,
    armed: bool,
}

impl SeedGuard {
    /// Guards the code that runs until the guard is dropped.
    pub fn new(seed: u64) -> Self {
        // A guard made while a panic unwinds would blame its seed for another failure.
        let armed = !std::thread::panicking();
        Self { seed, armed }
    }
}

impl Drop for SeedGuard {
    fn drop(&mut self) {
        if self.armed && std::thread::panicking() {
            let seed = self.seed;
            eprintln!("seed {seed}: rerun with {SEED_VARIABLE}={seed}");
        }
    }
}
