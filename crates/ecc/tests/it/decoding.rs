//! Decoding: up to t errors are corrected, wherever they are.

use deepram_ecc::{Bch, DecodeError, Kernel};
use proptest::prelude::*;
use rand::seq::index::sample;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{code, flip, positions};

#[test]
fn up_to_t_errors_are_corrected_by_every_kernel() {
    let seed = 7;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    for kernel in Kernel::available() {
        for (t, data_len) in [
            (1, 1),
            (2, 2),
            (3, 9),
            (1, 512),
            (4, 512),
            (8, 1000),
            (12, 2048),
            (16, 515),
            (17, 516),
            (40, 4096),
            (64, 8000),
        ] {
            let code = code(kernel, t, data_len);
            let (mut data, mut parity) = (vec![0; data_len], vec![0; code.parity_len()]);
            let all: Vec<usize> = positions(&code).collect();
            for errors in (0..=t).chain([t; 10]) {
                rng.fill_bytes(&mut data);
                code.encode(&data, &mut parity).unwrap();
                let sent = (data.clone(), parity.clone());
                let mut wrong: Vec<usize> =
                    sample(&mut rng, all.len(), errors).into_iter().map(|at| all[at]).collect();
                wrong.sort_unstable();
                wrong.iter().for_each(|&at| flip(&mut data, &mut parity, at));
                let case = format!("seed {seed}, {kernel}, t {t}, {data_len} bytes, {wrong:?}");
                let mut found = vec![1];
                code.decode_into(&data, &parity, &mut found)
                    .unwrap_or_else(|error| panic!("{case}: {error}"));
                assert_eq!(found, wrong, "{case}");
                assert_eq!(code.decode(&mut data, &mut parity), Ok(errors), "{case}");
                assert!((&data, &parity) == (&sent.0, &sent.1), "{case}");
            }
        }
    }
}

#[test]
fn every_kernel_gives_the_same_parity_for_every_length() {
    let seed = 11;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut data = vec![0; 8189];
    rng.fill_bytes(&mut data);
    for t in 1..=64 {
        for data_len in (1..=140).chain([511, 512, 513, 1024, 2047, 4096, 4100, 6000, 7777, 8063]) {
            let mut parities = Kernel::available().map(|kernel| {
                let code = Bch::builder(t, data_len).m(16).kernel(kernel).build().unwrap();
                let mut parity = vec![0; code.parity_len()];
                code.encode(&data[..data_len], &mut parity).unwrap();
                (kernel, parity)
            });
            // Building large tables takes long: not every length is tried with every strength.
            if data_len > 10 && (data_len + t) % 13 != 0 {
                continue;
            }
            let (_, first) = parities.next().unwrap();
            for (kernel, parity) in parities {
                assert_eq!(parity, first, "seed {seed}, {kernel}, t {t}, {data_len} bytes");
            }
        }
    }
}

#[test]
fn every_strength_and_field_corrects_bursts_at_both_ends() {
    for m in 5..=16 {
        for t in 1..=64 {
            let longest = ((1 << m) - 1_usize).saturating_sub(m as usize * t) / 8;
            let data_len = longest.min(40);
            if data_len == 0 {
                continue;
            }
            let code = Bch::builder(t, data_len).m(m).build().unwrap();
            let mut data: Vec<u8> = (0..data_len).map(|i| (i * 37 + t) as u8).collect();
            let mut parity = vec![0; code.parity_len()];
            code.encode(&data, &mut parity).unwrap();
            let (sent, all) = (data.clone(), positions(&code).collect::<Vec<_>>());
            for burst in [&all[..t], &all[all.len() - t..]] {
                burst.iter().for_each(|&at| flip(&mut data, &mut parity, at));
                assert_eq!(code.decode(&mut data, &mut parity), Ok(t), "m {m}, t {t}");
                assert!(data == sent, "m {m}, t {t}");
            }
        }
    }
}

#[test]
fn errors_that_a_weaker_code_takes_for_a_codeword_are_corrected() {
    // The first syndromes of such errors are all 0, so the locator's degree jumps.
    for kernel in Kernel::available() {
        for weaker in 2..=8 {
            let code = Bch::builder(64, 20).m(10).kernel(kernel).build().unwrap();
            let weak = Bch::builder(weaker, 20).m(10).kernel(kernel).build().unwrap();
            let mut tried = 0;
            for bit in 0..60 {
                let (mut word, mut parity) = (vec![0; 20], vec![0; weak.parity_len()]);
                word[19 - bit / 8] |= 1 << (bit % 8);
                weak.encode(&word, &mut parity).unwrap();
                let errors: Vec<usize> = positions(&weak)
                    .filter(|&at| {
                        let bytes = if at / 8 < 20 { word[at / 8] } else { parity[at / 8 - 20] };
                        bytes >> (at % 8) & 1 == 1
                    })
                    .collect();
                if errors.len() > 64 {
                    continue;
                }
                tried += 1;
                // The last bits of the weaker codeword are the last of the stronger one too.
                let (mut data, mut parity) = (vec![0; 20], vec![0; code.parity_len()]);
                let moved = code.parity_bits() - weak.parity_bits();
                for at in &errors {
                    flip(&mut data, &mut parity, ((at ^ 7) + moved) ^ 7);
                }
                let case = format!("{kernel}, t {weaker}, bit {bit}: {errors:?}");
                assert_eq!(code.decode(&mut data, &mut parity), Ok(errors.len()), "{case}");
                assert!(data.iter().chain(&parity).all(|&byte| byte == 0), "{case}");
            }
            assert!(tried > 0, "no light codeword with t {weaker}");
        }
    }
}

#[test]
fn bits_beyond_the_parity_do_not_count() {
    // 13 · 4 = 52 bits of parity in 7 bytes.
    for kernel in Kernel::available() {
        let code = code(kernel, 4, 512);
        let (mut data, mut parity) = ([3; 512], [0; 7]);
        code.encode(&data, &mut parity).unwrap();
        assert_eq!(parity[6] & 0x0F, 0);
        parity[6] |= 0x0F;
        assert_eq!(code.decode(&mut data, &mut parity), Ok(0), "{kernel}");
        data[9] ^= 4;
        assert_eq!(code.decode(&mut data, &mut parity), Ok(1), "{kernel}");
        assert_eq!(data, [3; 512], "{kernel}");
    }
}

#[test]
fn a_refused_codeword_is_unchanged_and_the_kernels_refuse_the_same() {
    let seed = 5;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let codes: Vec<Bch> = Kernel::available().map(|kernel| code(kernel, 6, 100)).collect();
    let all: Vec<usize> = positions(&codes[0]).collect();
    let mut refused = 0;
    for errors in (7..40).cycle().take(3000) {
        let (mut data, mut parity) = (vec![0; 100], vec![0; codes[0].parity_len()]);
        let wrong: Vec<usize> = sample(&mut rng, all.len(), errors).into_iter().map(|at| all[at]).collect();
        wrong.iter().for_each(|&at| flip(&mut data, &mut parity, at));
        let results: Vec<_> = codes
            .iter()
            .map(|code| {
                let (mut data, mut parity) = (data.clone(), parity.clone());
                let result = code.decode(&mut data, &mut parity);
                (result, data, parity)
            })
            .collect();
        for result in &results {
            assert_eq!(result, &results[0], "seed {seed}: {wrong:?}");
        }
        if results[0].0 == Err(DecodeError::Uncorrectable { t: 6 }) {
            refused += 1;
            assert!((&results[0].1, &results[0].2) == (&data, &parity), "seed {seed}: {wrong:?}");
        }
    }
    // A random word is within t errors of a codeword with a probability below 1 / t!.
    assert!(refused > 2950, "{refused} of 3000 refused");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn errors_are_corrected_in_codes_of_all_shapes(
        t in 1..=64_usize, data_len in 1..=700_usize, seed: u64, share in 0.0..=1.0,
        kernel in prop::sample::select(Kernel::available().collect::<Vec<_>>()),
    ) {
        let code = code(kernel, t, data_len);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (mut data, mut parity) = (vec![0; data_len], vec![0; code.parity_len()]);
        rng.fill_bytes(&mut data);
        code.encode(&data, &mut parity).unwrap();
        let sent = (data.clone(), parity.clone());
        let all: Vec<usize> = positions(&code).collect();
        let errors = (share * t as f64) as usize;
        for at in sample(&mut rng, all.len(), errors) {
            flip(&mut data, &mut parity, all[at]);
        }
        prop_assert_eq!(code.decode(&mut data, &mut parity), Ok(errors));
        prop_assert!((data, parity) == sent);
    }
}
