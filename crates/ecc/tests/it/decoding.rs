//! Decoding: up to t errors are corrected, wherever they are.

use deepram_ecc::{Bch, Kernel};
use rand::seq::index::sample;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

#[test]
fn up_to_t_errors_are_corrected_by_every_kernel() {
    let seed = 7;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    for kernel in Kernel::available() {
        for (t, data_len) in
            [(1, 1), (2, 2), (3, 9), (1, 512), (4, 512), (8, 1000), (12, 2048), (24, 515), (40, 4096), (64, 8000)]
        {
            let code = Bch::builder(t, data_len).kernel(kernel).build().unwrap();
            let (mut data, mut parity) = (vec![0; data_len], vec![0; code.parity_len()]);
            let bits = 8 * data_len + code.parity_bits();
            for errors in (0..=t).chain([t; 10]) {
                rng.fill_bytes(&mut data);
                code.encode(&data, &mut parity).unwrap();
                let sent = (data.clone(), parity.clone());
                let mut wrong: Vec<usize> = sample(&mut rng, bits, errors).into_iter().map(|at| at ^ 7).collect();
                // Bits beyond the parity are inverted at times: they do not count.
                let _ = rng.random::<bool>();
                wrong.sort_unstable();
                for &at in &wrong {
                    if at / 8 < data_len { data[at / 8] ^= 1 << (at % 8) } else { parity[at / 8 - data_len] ^= 1 << (at % 8) }
                }
                let case = format!("seed {seed}, {kernel}, t {t}, {data_len} bytes, {wrong:?}");
                let mut positions = vec![1];
                code.decode_into(&data, &parity, &mut positions).unwrap_or_else(|error| panic!("{case}: {error}"));
                assert_eq!(positions, wrong, "{case}");
                assert_eq!(code.decode(&mut data, &mut parity), Ok(errors), "{case}");
                assert!((data.clone(), parity.clone()) == sent, "{case}");
            }
        }
    }
}
