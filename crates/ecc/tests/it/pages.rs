//! Pages: the CRC finds what the code miscorrects.

use deepram_ecc::{Kernel, PageCodec, PageError};
use rand::seq::index::sample;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

#[test]
fn pages_of_several_codewords_correct_t_errors_in_each() {
    let seed = 3;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    for kernel in Kernel::available() {
        for (t, data_len, codewords) in
            [(8, 4096, 1), (12, 8192, 2), (4, 16384, 16), (2, 100, 7), (1, 10, 10)]
        {
            let codec = PageCodec::with_kernel(t, data_len, codewords, kernel).unwrap();
            let mut page = vec![0; codec.stored_len()];
            rng.fill_bytes(&mut page[..data_len]);
            codec.encode(&mut page).unwrap();
            let sent = page.clone();
            assert_eq!(codec.decode(&mut page), Ok(0));
            // t errors at the front of each codeword's data, whose places the lengths give.
            let protected = data_len + 4;
            let mut errors = 0;
            for number in 0..codewords {
                let (start, end) = (number * protected / codewords, (number + 1) * protected / codewords);
                for bit in sample(&mut rng, 8 * (end - start), t) {
                    page[start + bit / 8] ^= 1 << (bit % 8);
                    errors += 1;
                }
            }
            let case = format!("seed {seed}, {kernel}, t {t}, {data_len} bytes in {codewords}");
            assert_eq!(codec.decode(&mut page), Ok(errors), "{case}");
            assert!(page == sent, "{case}");
        }
    }
}

#[test]
fn an_uncorrectable_codeword_leaves_the_whole_page_as_it_was() {
    let codec = PageCodec::new(2, 2048, 4).unwrap();
    let mut page = vec![9; codec.stored_len()];
    codec.encode(&mut page).unwrap();
    // One error that can be corrected in the first codeword, many in the third.
    page[0] ^= 1;
    for byte in &mut page[1100..1150] {
        *byte ^= 0x55;
    }
    let received = page.clone();
    assert_eq!(codec.decode(&mut page), Err(PageError::Uncorrectable { codeword: 2, t: 2 }));
    assert!(page == received);
}

/// The number of trials: `DEEPRAM_ECC_TRIALS`, or 200,000.
fn trials() -> u64 {
    std::env::var("DEEPRAM_ECC_TRIALS").ok().map_or(200_000, |text| {
        text.parse().unwrap_or_else(|_| panic!("DEEPRAM_ECC_TRIALS is {text}; expected a number of trials"))
    })
}

#[test]
fn more_than_t_errors_never_pass() {
    let seed = 42;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    // Weak codes miscorrect often: with t = 1 and 64 bytes most triple errors look like one error.
    let codecs = [(1, 64, 1), (2, 64, 1), (3, 256, 2), (4, 512, 1)].map(|(t, data_len, codewords)| {
        let codec = PageCodec::new(t, data_len, codewords).unwrap();
        let mut page = vec![0; codec.stored_len()];
        rng.fill_bytes(&mut page[..data_len]);
        codec.encode(&mut page).unwrap();
        (codec, page)
    });
    let (mut uncorrectable, mut miscorrected) = (0, 0);
    for trial in 0..trials() {
        let (codec, sent) = &codecs[trial as usize % codecs.len()];
        let mut page = sent.clone();
        let bits = 8 * (codec.data_len() + 4);
        // From t + 1 errors to a page of noise; all in the data of the first codeword half of the time.
        let most = if rng.random_ratio(1, 8) { 8 * (codec.code().t() + 1) } else { codec.code().t() + 3 };
        let errors = rng.random_range(codec.code().t() + 1..=most) * codec.codewords();
        for bit in sample(&mut rng, bits, errors) {
            page[bit / 8] ^= 1 << (bit % 8);
        }
        let received = page.clone();
        match codec.decode(&mut page) {
            Ok(corrected) => {
                assert!(
                    page == *sent,
                    "seed {seed}, trial {trial}: {errors} errors passed as {corrected} corrections"
                );
                // Errors that spread over codewords can be few enough in each.
                assert!(codec.codewords() > 1, "seed {seed}, trial {trial}: corrected {errors} errors");
            }
            Err(error) => {
                assert!(page == received, "seed {seed}, trial {trial}: a refused page has changed");
                match error {
                    PageError::Uncorrectable { .. } => uncorrectable += 1,
                    PageError::Miscorrected { .. } => miscorrected += 1,
                    PageError::Length(error) => panic!("{error}"),
                }
            }
        }
    }
    // The trials would show nothing if the code miscorrected nothing.
    let share = trials() / 100;
    assert!(
        uncorrectable > share && miscorrected > share,
        "{uncorrectable} refused, {miscorrected} by the CRC"
    );
}
