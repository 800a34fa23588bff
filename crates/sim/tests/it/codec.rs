//! The outcomes of decoding that the simulated flash assumes, against the codec itself: bit errors of the model of worn
//! flash are planted into encoded pages, and the codec corrects those pages that the model says it corrects.

use std::collections::{BTreeMap, BTreeSet};

use deepram_core::disk_cache::{FlashReads, Note, PhysicalPage, ReadErrors, Step};
use deepram_core::reliability::{Density, FlashPage};
use deepram_ecc::{PageCodec, PageError};
use deepram_media::{DiskCacheServer, Registry};
use deepram_sim::disk_cache::{WearingFlash, untimed_cache};
use deepram_trace::workload::Rng;

/// Bytes of a page.
const PAGE: usize = 2048;

fn server(set: &[&str]) -> DiskCacheServer {
    Registry::builtin().unwrap().get_with("server.flash-256m-1g", set).unwrap()
}

/// Encoded pages whose bits are inverted as the model of bit errors says.
struct StoredPages {
    seed: u64,
    random: Rng,
    codecs: BTreeMap<u8, PageCodec>,
}

impl StoredPages {
    fn new(seed: u64) -> Self {
        Self { seed, random: Rng::new(seed, "stored pages"), codecs: BTreeMap::new() }
    }

    /// Stores random data in a page under a code of this strength, inverts as many bits as the read found wrong, and
    /// decodes. Consistent errors are in the same bits at each call. Returns whether the data came back.
    fn decodes(&mut self, page: PhysicalPage, found: ReadErrors) -> bool {
        let Self { seed, ref mut random, ref mut codecs } = *self;
        let strength = page.strength;
        let codec =
            codecs.entry(strength).or_insert_with(|| PageCodec::new(strength.into(), PAGE, 1).unwrap());
        let mut stored = vec![0; codec.stored_len()];
        for word in stored[..PAGE].chunks_exact_mut(8) {
            word.copy_from_slice(&random.bits().to_le_bytes());
        }
        codec.encode(&mut stored).unwrap();
        // The last byte of the parity may have bits that belong to no codeword.
        let code = codec.code();
        let bits = ((stored.len() - code.parity_len()) * 8 + code.parity_bits()) as u64;
        let mut worn = Rng::new(seed ^ (u64::from(page.page.0) << 32), "order of failing bits");
        let mut wrong = BTreeSet::new();
        while wrong.len() < found.consistent as usize {
            wrong.insert(worn.below(bits));
        }
        while wrong.len() < found.errors as usize {
            wrong.insert(random.below(bits));
        }
        let mut read = stored.clone();
        for bit in wrong {
            read[bit as usize / 8] ^= 0x80 >> (bit % 8);
        }
        let damaged = read.clone();
        let about = format!("seed {seed}, {page:?}, {found:?}");
        match codec.decode(&mut read) {
            Ok(corrected) => {
                assert_eq!(corrected, found.errors as usize, "{about}");
                assert!(read == stored, "{about}: other data");
                true
            }
            Err(PageError::Uncorrectable { .. } | PageError::Miscorrected { .. }) => {
                assert!(read == damaged, "{about}: a page that cannot be corrected was changed");
                false
            }
            Err(error) => panic!("{about}: {error}"),
        }
    }
}

#[test]
fn sampled_pages_decode_as_the_model_of_bit_errors_says_at_every_wear_and_strength() {
    const PAGES: u32 = 40;
    let seed = 11;
    // Enough transient errors for pages with both kinds.
    let server = server(&["flash=2MiB", "errors.transient=0.00005"]);
    let mut stored = StoredPages::new(seed);
    let (mut corrected, mut uncorrectable) = (0, 0);
    // Pages whose errors are just as many as the code corrects, and one more.
    let (mut full, mut beyond) = (0, 0);
    for (density, endurance) in [(Density::Mlc, server.mlc.endurance), (Density::Slc, server.slc.endurance)] {
        let mut flash = WearingFlash::new(&server, seed);
        for percent in [50, 75, 100, 125, 150, 200] {
            let cycles = u32::try_from(endurance * percent / 100).unwrap();
            let mut outcomes = BTreeSet::new();
            for strength in [1, 2, 4, 8, 12] {
                for number in 0..PAGES {
                    let number = number * 2;
                    let page =
                        PhysicalPage { page: FlashPage(number), block: number / 128, density, strength };
                    let found = flash.read(page, cycles);
                    let model = found.errors <= u32::from(strength);
                    assert_eq!(
                        stored.decodes(page, found),
                        model,
                        "seed {seed}, {percent} % of the endurance, {page:?}: {found:?}"
                    );
                    outcomes.insert(model);
                    *if model { &mut corrected } else { &mut uncorrectable } += 1;
                    full += u32::from(found.errors == u32::from(strength));
                    beyond += u32::from(found.errors == u32::from(strength) + 1);
                }
            }
            assert!(percent == 50 || outcomes.len() == 2, "seed {seed}: {percent} % has one outcome only");
        }
    }
    assert_eq!(corrected + uncorrectable, 2 * 6 * 5 * PAGES);
    assert!(corrected > 500 && uncorrectable > 500, "seed {seed}: {corrected}, {uncorrectable}");
    assert!(full > 50 && beyond > 50, "seed {seed}: {full} pages are full, {beyond} one bit beyond");
}

/// Worn flash each of whose reads with errors is decoded by the codec.
struct DecodedFlash {
    flash: WearingFlash,
    stored: StoredPages,
    /// Reads with errors, and those that the codec could not correct.
    decoded: u64,
    failed: u64,
    strengths: BTreeSet<u8>,
}

impl FlashReads for DecodedFlash {
    fn read(&mut self, page: PhysicalPage, cycles: u32) -> ReadErrors {
        let found = self.flash.read(page, cycles);
        if found.errors > 0 {
            self.decoded += 1;
            self.failed += u64::from(!self.stored.decodes(page, found));
            self.strengths.insert(page.strength);
        }
        found
    }
}

#[test]
fn the_cache_takes_those_reads_for_uncorrectable_that_the_codec_cannot_correct() {
    let seed = 12;
    for (controller, strengths) in
        [(vec!["controller=programmable"], 5), (vec!["controller=fixed", "strength=4"], 1)]
    {
        let mut set = vec!["flash=4MiB", "dram_cache=64KiB", "wear_scale=800", "errors.transient=0.00002"];
        set.extend(&controller);
        let server = server(&set);
        let mut cache = untimed_cache(&server).unwrap();
        let mut flash = DecodedFlash {
            flash: WearingFlash::new(&server, seed),
            stored: StoredPages::new(seed),
            decoded: 0,
            failed: 0,
            strengths: BTreeSet::new(),
        };
        let mut random = Rng::new(seed, "requests");
        let (mut steps, mut uncorrectable) = (Vec::new(), 0);
        for _ in 0..400_000 {
            let page = random.below(2_500) as u32;
            if random.chance(0.5) {
                cache.write(page, &mut flash, &mut steps);
            } else {
                cache.read(page, &mut flash, &mut steps);
            }
            cache.reclaim(&mut flash, &mut steps);
            let failed = |step: &Step| matches!(step, Step::Note(Note::Uncorrectable));
            uncorrectable += steps.drain(..).filter(failed).count() as u64;
            if flash.decoded > 12_000 || cache.flash().is_dead() {
                break;
            }
        }
        let DecodedFlash { decoded, failed, strengths: seen, .. } = flash;
        assert_eq!(uncorrectable, failed, "seed {seed}, {controller:?}: {decoded} reads with errors");
        assert!(decoded > 1_000 && failed > 0, "seed {seed}, {controller:?}: {decoded}, {failed}");
        assert!(seen.len() >= strengths, "seed {seed}, {controller:?}: strengths {seen:?}");
    }
}
