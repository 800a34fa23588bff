//! Any bytes as parameters and codeword give a result or an error, never a panic: the function of the fuzz target.

use proptest::prelude::*;

#[path = "../../../../fuzz/ecc.rs"]
mod ecc;

#[test]
fn the_sample_that_is_mutated_is_sound() {
    for (target, run) in ecc::TARGETS {
        run(&ecc::sample(target));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn noise_is_decoded_or_refused(
        t in 0..70_u8, m in 0..18_u8, data_len in 0..600_u16, rest in prop::collection::vec(any::<u8>(), 0..700)
    ) {
        let mut input = vec![t, m];
        input.extend(data_len.to_le_bytes());
        input.extend(rest);
        ecc::ecc(&input);
    }

    #[test]
    fn short_inputs_never_panic(input in prop::collection::vec(any::<u8>(), 0..60)) {
        ecc::ecc(&input);
    }
}
