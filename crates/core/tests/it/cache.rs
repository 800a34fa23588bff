//! Every cache policy against a plain reference implementation, and against libCacheSim's counts.

use crate::cache_models::{Figure4, Model, PlainArc, PlainQueue, PlainS3Fifo, PlainSieve, PlainSweep, Rule};
use deepram_core::cache::{
    AccessOutcome, AddressOrderClock, Arc, Clock, Clock2, Fifo, Gclock, Key, Lru, Replacement, S3Fifo, Sieve,
};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    Access(u32),
    Insert(u32),
    Touch(u32),
    Remove(u32),
    /// Only keys that are multiples of this number may be evicted.
    Victim(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Half of the accesses go to a tenth of the keys, so that counts rise and ghost keys are used again.
    let key = || prop_oneof![0..12u32, 0..120u32];
    let step = prop_oneof![
        30 => key().prop_map(Step::Access),
        2 => key().prop_map(Step::Insert),
        4 => key().prop_map(Step::Touch),
        2 => key().prop_map(Step::Remove),
        2 => (1..5u32).prop_map(Step::Victim),
    ];
    prop::collection::vec(step, 0..800)
}

fn capacities() -> impl Strategy<Value = usize> {
    prop_oneof![1..12usize, 12..60usize]
}

/// Runs both policies; every answer and the sets of cached keys must be equal.
fn same<K: Key + std::fmt::Debug>(
    policy: &mut impl Replacement<K>,
    model: &mut impl Model,
    steps: &[Step],
    spread: impl Fn(u32) -> K,
) -> Result<(), TestCaseError> {
    for (n, step) in steps.iter().enumerate() {
        match *step {
            Step::Access(key) => {
                let expected = match model.access(key) {
                    None => AccessOutcome::Hit,
                    Some(evicted) => AccessOutcome::Miss { evicted: evicted.map(&spread) },
                };
                prop_assert_eq!(policy.access(spread(key)), expected, "step {} {:?}", n, step);
            }
            Step::Insert(key) => {
                policy.insert(spread(key));
                model.insert(key);
            }
            Step::Touch(key) => {
                policy.touch(spread(key));
                model.touch(key);
            }
            Step::Remove(key) => {
                policy.remove(spread(key));
                model.remove(key);
            }
            Step::Victim(of) => {
                let may: Vec<K> = (0..120).filter(|key| key % of == 0).map(&spread).collect();
                let gone = policy.victim(&mut |key| may.contains(&key));
                let expected = model.victim(&|key| key % of == 0).map(&spread);
                prop_assert_eq!(gone, expected, "step {} {:?}", n, step);
            }
        }
        prop_assert_eq!(policy.len(), model.held().len(), "step {} {:?}", n, step);
    }
    for key in 0..120 {
        prop_assert_eq!(policy.contains(spread(key)), model.held().contains(&key), "key {}", key);
    }
    Ok(())
}

/// Keys of 64 bits that share their low or high halves.
fn sparse(key: u32) -> u64 {
    u64::from(key % 7) << 61 | u64::from(key / 7) << 32
}

macro_rules! against_model {
    ($($name:ident: $policy:ident, $model:expr;)*) => { proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        $(
            #[test]
            fn $name(steps in steps(), capacity in capacities()) {
                let model: fn(usize) -> _ = $model;
                same(&mut $policy::<u32>::new(capacity), &mut model(capacity), &steps, |key| key)?;
                same(&mut $policy::<u64>::new(capacity), &mut model(capacity), &steps, sparse)?;
            }
        )*
    } };
}

against_model! {
    lru_evicts_what_the_plain_list_does: Lru, |c| PlainQueue::new(c, Rule::Lru);
    fifo_evicts_what_the_plain_list_does: Fifo, |c| PlainQueue::new(c, Rule::Fifo);
    clock2_evicts_what_the_plain_list_does: Clock2, |c| PlainQueue::new(c, Rule::Clock(3));
    gclock_evicts_what_the_plain_list_does: Gclock, |c| PlainQueue::new(c, Rule::Clock(16));
    sieve_evicts_what_the_plain_list_does: Sieve, PlainSieve::new;
    s3fifo_evicts_what_the_plain_queues_do: S3Fifo, PlainS3Fifo::new;
    arc_evicts_what_the_plain_lists_do: Arc, PlainArc::new;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn sweep_evicts_what_the_plain_list_does(steps in steps(), capacity in capacities()) {
        same(&mut AddressOrderClock::<u32>::new(capacity), &mut PlainSweep::new(capacity), &steps, |key| key)?;
        // `spread` keeps the keys in the order of their numbers.
        same(&mut AddressOrderClock::<u64>::new(capacity), &mut PlainSweep::new(capacity), &steps, |key| u64::from(key) << 33)?;
    }

    #[test]
    fn arc_does_what_figure_4_says(steps in steps(), capacity in capacities()) {
        // Figure 4 does not describe inserts beyond the capacity or evictions without need, so these steps
        // are left out.
        let mut steps = steps;
        steps.retain(|step| !matches!(step, Step::Insert(_) | Step::Victim(_)));
        same(&mut Arc::<u32>::new(capacity), &mut Figure4::new(capacity), &steps, |key| key)?;
    }
}

/// Numbers from 0 on with small ones frequent: the product of two uniform numbers below 128, with an
/// occasional scan. Integer arithmetic only, so that every language gives the same sequence.
fn sequence(count: usize) -> Vec<u32> {
    let mut state = 42u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut keys = Vec::with_capacity(count);
    while keys.len() < count {
        if random(500) == 0 {
            let start = random(1 << 16);
            keys.extend((start..start + 300).map(|key| key as u32));
        } else {
            keys.push((random(128) * random(128)) as u32);
        }
    }
    keys.truncate(count);
    keys
}

fn misses(mut policy: impl Replacement<u32>, keys: &[u32]) -> u64 {
    policy.access_all(keys)
}

#[test]
fn misses_on_a_fixed_sequence_are_as_many_as_libcachesim_counts() {
    // libCacheSim 0.3.5 from PyPI, unit sizes, its default parameters; Clock2 is its Clock with
    // n_bit_counter=2, Clock with 1. It runs S3-FIFO from 20 objects only.
    // Capacity: LRU, FIFO, CLOCK, 2-bit CLOCK, SIEVE, S3-FIFO, ARC.
    let golden = [
        (20, [198_708, 198_761, 198_649, 198_627, 196_794, 196_619, 196_881]),
        (100, [195_080, 195_369, 194_944, 194_851, 190_834, 190_786, 191_745]),
        (1000, [174_234, 175_584, 172_902, 172_025, 152_552, 150_672, 153_129]),
        (5000, [115_187, 126_355, 109_597, 104_058, 87_274, 86_372, 84_771]),
    ];
    let keys = sequence(200_000);
    for (capacity, expected) in golden {
        let ours = [
            misses(Lru::new(capacity), &keys),
            misses(Fifo::new(capacity), &keys),
            misses(Clock::new(capacity), &keys),
            misses(Clock2::new(capacity), &keys),
            misses(Sieve::new(capacity), &keys),
            misses(S3Fifo::new(capacity), &keys),
            misses(Arc::new(capacity), &keys),
        ];
        assert_eq!(ours, expected, "capacity {capacity}");
    }
}

#[test]
fn a_batch_counts_the_misses_of_its_accesses() {
    let keys = sequence(20_000);
    let mut policy = Sieve::<u32>::new(100);
    let mut one_by_one = 0;
    for key in &keys {
        one_by_one += u64::from(policy.access(*key) != AccessOutcome::Hit);
    }
    assert_eq!(misses(Sieve::new(100), &keys), one_by_one);
}

/// Limit, in bytes for each key of capacity, of the policy's memory with this number of keys known (cached or
/// remembered).
fn bounded(mut policy: impl Replacement<u64>, known: f64) {
    let capacity = policy.capacity();
    let limit = (known * capacity as f64 * 41.0) as usize + 1024;
    let mut missed = 0;
    for key in 0..10_000_000u64 {
        // A tenth of the keys are used again, so that all lists fill.
        let key = key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        missed += u64::from(policy.access(key) != AccessOutcome::Hit);
        if key.is_multiple_of(10) {
            policy.touch(key);
        }
    }
    assert_eq!((missed, policy.len()), (10_000_000, capacity));
    assert!(policy.memory_bytes() <= limit, "{} bytes of {limit}", policy.memory_bytes());
}

#[test]
fn memory_is_bounded_by_the_capacity_whatever_comes() {
    bounded(Lru::new(20_000), 1.0);
    bounded(Fifo::new(20_000), 1.0);
    bounded(Clock2::new(20_000), 1.0);
    bounded(Sieve::new(20_000), 1.0);
    bounded(S3Fifo::new(20_000), 1.9);
    bounded(Arc::new(20_000), 2.0);
}

#[test]
fn an_empty_cache_takes_no_memory_for_its_capacity_yet() {
    assert!(Lru::<u64>::new(usize::MAX).memory_bytes() < 2000);
    assert!(S3Fifo::<u64>::new(usize::MAX).memory_bytes() < 2000);
    assert!(Arc::<u64>::new(usize::MAX).memory_bytes() < 2000);
}

#[test]
fn a_capacity_of_0_counts_as_1() {
    let mut lru = Lru::<u32>::new(0);
    assert_eq!(lru.access(7), AccessOutcome::Miss { evicted: None });
    assert_eq!(lru.access(7), AccessOutcome::Hit);
    assert_eq!(lru.access(8), AccessOutcome::Miss { evicted: Some(7) });
}
