//! Bit errors and error correction: distributions against closed forms and against pages drawn bit by bit.

use deepram_media::*;

fn errors(set: &[&str]) -> BitErrors {
    Registry::builtin().unwrap().get_with("errors.flash-cache", set).unwrap()
}

fn ecc(name: &str, set: &[&str]) -> Ecc {
    Registry::builtin().unwrap().get_with(&format!("ecc.{name}"), set).unwrap()
}

/// Uniform numbers of a seed (SplitMix64).
fn uniforms(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ mixed >> 31) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[test]
fn the_normal_distribution_has_its_published_values() {
    // Values of tables of the normal distribution with 15 digits.
    for (z, below) in [
        (0.0, 0.5),
        (1.0, 0.841_344_746_068_543),
        (1.959_963_984_540_054, 0.975),
        (-2.326_347_874_040_841, 0.01),
        (-3.090_232_306_167_814, 0.001),
        (-6.0, 9.865_876_450_376_98e-10),
        (-10.0, 7.619_853_024_160_527e-24),
    ] {
        assert!((normal_cdf(z) / below - 1.0).abs() < 1e-12, "{z}: {}", normal_cdf(z));
        assert!((normal_quantile(below) - z).abs() < 1e-10, "{below}: {}", normal_quantile(below));
    }
    assert_eq!((normal_quantile(0.0), normal_quantile(1.0)), (f64::NEG_INFINITY, f64::INFINITY));
    for step in 1..2000 {
        let p = f64::from(step) / 2000.0;
        assert!((normal_cdf(normal_quantile(p)) / p - 1.0).abs() < 1e-12, "{p}");
    }
}

#[test]
fn a_lognormal_distribution_has_the_mean_and_deviation_that_it_is_made_of() {
    for relative in [0.0, 0.05, 0.1, 0.2, 1.0] {
        let pages = Lognormal::with_mean(1e5, relative);
        assert!((pages.mean() / 1e5 - 1.0).abs() < 1e-12, "{relative}");
        assert!((pages.deviation() - 1e5 * relative).abs() < 1e-6, "{relative}: {}", pages.deviation());
        assert_eq!(pages.quantile(0.5), pages.median);
        for share in [0.001, 0.3, 0.9] {
            if relative > 0.0 {
                assert!((pages.cdf(pages.quantile(share)) / share - 1.0).abs() < 1e-10, "{relative} {share}");
            }
        }
    }
    let same = Lognormal::with_mean(7.0, 0.0);
    assert_eq!((same.quantile(0.01), same.cdf(6.9), same.cdf(7.0)), (7.0, 0.0, 1.0));
}

#[test]
fn drawn_page_factors_have_the_settable_deviation() {
    for (seed, set) in [(1, "5%"), (2, "10%"), (3, "20%")] {
        let factors = errors(&[&format!("page_deviation={set}")]).page_factors();
        let mut uniform = uniforms(seed);
        let drawn: Vec<f64> = (0..40_000).map(|_| factors.quantile(uniform())).collect();
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        let variance = drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / drawn.len() as f64;
        assert!((mean - 1.0).abs() < 4.0 * factors.deviation() / 200.0, "seed {seed}: mean {mean}");
        let ratio = variance.sqrt() / factors.deviation();
        assert!((ratio - 1.0).abs() < 0.03, "seed {seed}: deviation ratio {ratio}");
    }
}

#[test]
fn the_rated_code_ends_at_the_rated_endurance_and_stronger_codes_later() {
    for endurance in [10_000, 100_000] {
        let pages = errors(&[]).of_pages(endurance, 16_384);
        assert!((pages.cycles(1, 1.0) / endurance as f64 - 1.0).abs() < 1e-12);
        assert!((pages.cycles(1, 0.5) / endurance as f64 - 0.5).abs() < 1e-12);
        let lives: Vec<f64> = (1..=64).map(|strength| pages.cycles(strength, 1.0)).collect();
        assert!(lives.windows(2).all(|pair| pair[0] < pair[1]));
        // The closed form: the quantiles of order statistics 2 and 13 of 16384, 1.5 deviations a unit.
        let quantile = |order: f64| normal_quantile(order / 16_385.0);
        let expected = (1.5 * (quantile(13.0) - quantile(2.0))).exp();
        assert!((lives[11] / lives[0] / expected - 1.0).abs() < 1e-12, "{}", lives[11] / lives[0]);
        // One bit more fails in the expectation where the order statistic is: n (k / (n + 1)).
        let failed = pages.expected_hard(pages.cycles(5, 1.0), 1.0);
        assert!((failed - 6.0 * 16_384.0 / 16_385.0).abs() < 1e-9, "{failed}");
    }
}

#[test]
fn a_memory_tolerates_fewer_cycles_the_more_its_pages_differ() {
    for strength in [1, 4, 12] {
        let tolerated = ["0", "5%", "10%", "20%"].map(|deviation| {
            let model = errors(&[&format!("page_deviation={deviation}")]);
            model.of_pages(10_000, 16_384).tolerable_cycles(strength, 0.01)
        });
        assert!(tolerated.windows(2).all(|pair| pair[0] > pair[1]), "{strength}: {tolerated:?}");
        // 1 % of the pages are 2.326 deviations below the median.
        let log = (0.1f64 * 0.1).ln_1p();
        let expected = tolerated[0] * (-log / 2.0 - 2.326_347_874_040_841 * log.sqrt()).exp();
        assert!((tolerated[2] / expected - 1.0).abs() < 1e-10);
    }
}

#[test]
fn pages_drawn_bit_by_bit_have_the_expected_failed_bits() {
    let seed = 11;
    let mut uniform = uniforms(seed);
    let pages = errors(&["bit_deviation=1.2"]).of_pages(10_000, 512);
    let cycles = 30_000.0;
    let (mut failed, mut squares) = (0.0, 0.0);
    let count = 4_000;
    for _ in 0..count {
        let mut bits = pages.failing_bits();
        let shares = std::iter::from_fn(|| bits.next_share(uniform()));
        let here = shares.take_while(|share| pages.lifetime(*share, 0.8) <= cycles).count() as f64;
        failed += here;
        squares += here * here;
    }
    let n = f64::from(count);
    let (mean, expected) = (failed / n, pages.expected_hard(cycles, 0.8));
    let deviation = (squares / n - mean * mean).sqrt();
    // The bits are independent: the number is binomial.
    let binomial = (expected * (1.0 - expected / 512.0)).sqrt();
    assert!((mean - expected).abs() < 4.0 * binomial / n.sqrt(), "seed {seed}: {mean}, not {expected}");
    assert!((deviation / binomial - 1.0).abs() < 0.06, "seed {seed}: {deviation}, not {binomial}");
}

#[test]
fn all_bits_of_a_page_fail_in_order_and_none_twice() {
    let mut uniform = uniforms(5);
    let mut bits = errors(&[]).of_pages(1000, 64).failing_bits();
    let shares: Vec<f64> = std::iter::from_fn(|| bits.next_share(uniform())).collect();
    assert_eq!(shares.len(), 64);
    assert!(shares.windows(2).all(|pair| pair[0] <= pair[1]) && shares.iter().all(|share| *share <= 1.0));
}

#[test]
fn transient_errors_grow_with_wear_storage_and_reads_apart_from_hard_ones() {
    let set = [
        "transient=0.001",
        "retention_day=0.01",
        "retention_power=0.5",
        "read_disturb=0.0001",
        "wear_power=2",
    ];
    let pages = errors(&set).of_pages(1000, 1000);
    let of = |cycles, days, reads| pages.expected_transient(PageUse { cycles, days, reads });
    assert_eq!(of(0.0, 100.0, 1e6), 1.0);
    let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found} {expected}");
    near(of(1000.0, 4.0, 0.0), 1.0 + 1000.0 * 0.01 * 2.0);
    near(of(500.0, 0.0, 100.0), 1.0 + 1000.0 * 0.25 * 0.01);
    // No more than half of the bits are wrong, however long they were stored.
    near(of(1e6, 1e6, 1e6), 500.0);
    // Hard errors do not depend on storage and reads, and there are none without cycles.
    assert_eq!(pages.expected_hard(0.0, 1.0), 0.0);
}

#[test]
fn poisson_numbers_have_their_probabilities_mean_and_deviation() {
    let below = |mean: f64, count: u64| {
        let mut term = (-mean).exp();
        let mut sum = 0.0;
        for at in 0..=count {
            sum += term;
            term *= mean / (at + 1) as f64;
        }
        sum
    };
    for mean in [0.01, 1.0, 20.0] {
        for count in 0..10 {
            let edge = below(mean, count);
            if edge < 1.0 - 1e-9 {
                assert_eq!(poisson(mean, edge - 1e-12), count, "{mean}");
                assert_eq!(poisson(mean, edge + 1e-12), count + 1, "{mean}");
            }
        }
    }
    assert_eq!((poisson(0.0, 0.999), poisson(0.0, 0.0)), (0, 0));
    for (seed, mean) in [(1, 3.0), (2, 400.0)] {
        let mut uniform = uniforms(seed);
        let drawn: Vec<f64> = (0..20_000).map(|_| poisson(mean, uniform()) as f64).collect();
        let average = drawn.iter().sum::<f64>() / 20_000.0;
        let variance = drawn.iter().map(|x| (x - average).powi(2)).sum::<f64>() / 20_000.0;
        assert!((average / mean - 1.0).abs() < 0.02, "seed {seed}: {average}");
        assert!((variance / mean - 1.0).abs() < 0.05, "seed {seed}: {variance}");
    }
}

#[test]
fn decoding_times_follow_each_law() {
    let page = Bytes(2048);
    let affine = ecc("flash-cache", &[]);
    for (strength, ns) in [(1, 58_000), (12, 400_100), (15, 493_400), (50, 1_581_900)] {
        assert_eq!(affine.decode(page, strength), Picos(ns * 1000), "{strength}");
    }
    let proportional = ecc("flash-cache-proportional", &[]);
    for strength in [1, 3, 6] {
        let once = proportional.decode(page, strength).0;
        assert_eq!(proportional.decode(page, 2 * strength).0, 2 * once);
    }
    // Twice the strength takes nearly twice the time of the affine law as well.
    let ratio = affine.decode(page, 12).0 as f64 / affine.decode(page, 6).0 as f64;
    assert!((ratio - 1.87).abs() < 0.005, "{ratio}");
    // 2 KiB, 15 bits, 8 bits a cycle, 10 ns: 41 to 43 us.
    let hardware = ecc("flash-cache-hardware", &[]);
    assert_eq!(hardware.decode_cycles(page, 1), 2050 + 15 + 2050);
    assert_eq!(hardware.decode_cycles(page, 12), 2071 + 202 + 2050);
    assert_eq!(hardware.decode(page, 12), Picos(43_230_000));
    assert_eq!(hardware.encode_cycles(page, 12), 2048 + 23);
    let parallel = ecc("flash-cache-hardware", &["serial=false"]);
    assert_eq!(parallel.decode_cycles(page, 12), 2071 + 23 + 2050);
}

#[test]
fn the_spare_bytes_bound_the_strength() {
    let code = ecc("flash-cache", &["strongest=64"]);
    let page = Bytes(2048);
    // 32 x 15 bits are 60 bytes; the checksum has 4.
    assert_eq!((code.strongest_in(page, Bytes(64)), code.check_bytes(32)), (32, Bytes(64)));
    assert_eq!(code.check_bytes(50), Bytes(94 + 4));
    assert_eq!(code.strongest_in(page, Bytes(5)), 0);
    // A code word of 2^15 bits has no room for check bits.
    assert_eq!(code.strongest_in(Bytes(4096), Bytes(512)), 0);
    assert_eq!(ecc("flash-cache", &[]).strongest_in(page, Bytes(64)), 12);
}

#[test]
fn impossible_figures_are_refused() {
    let registry = Registry::builtin().unwrap();
    for (preset, set, word) in [
        ("errors.flash-cache", "bit_deviation=11", "bit_deviation"),
        ("errors.flash-cache", "page_deviation=1.5", "page_deviation"),
        ("errors.flash-cache", "wear_power=101", "wear_power"),
        ("ecc.flash-cache", "strongest=65", "strongest"),
        ("ecc.flash-cache", "field_bits=4", "field_bits"),
        ("ecc.flash-cache", "law=linear", "law"),
    ] {
        let error =
            registry.resolve_with(preset, &[set]).and_then(|sheet| sheet.rows()).unwrap_err().to_string();
        assert!(error.contains(word), "{set}: {error}");
    }
}
