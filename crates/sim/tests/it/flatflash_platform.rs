//! FlatFlash on the platform of its evaluation: page protection stands for the link.

use deepram_media::Bytes;
use deepram_sim::flatflash::{AccessMode, FlatCounts, FlatMemory, FlatOptions};
use deepram_sim::host::{HostOptions, drive};
use deepram_trace::workload::Rng;
use deepram_trace::{Op, Request};

use crate::flatflash::{counts, dram_bounds, last, load, options, preset, request, store};

/// Longer than all of a test, and shorter than any access to the drive.
const ONE: &str = "platform_epoch=1000s";
const EACH: &str = "platform_epoch=1us";

/// Asserts that the last of the requests takes `expected` nanoseconds and an access to DRAM.
fn takes(epoch: &str, cache: bool, all: &[Request], expected: f64, what: &str) {
    let preset = preset(&["max_threshold=255", epoch]);
    let (least, most) = dram_bounds(&preset);
    let found = last(&preset, AccessMode::Promote, &options(cache), all);
    // Histograms keep three digits.
    let slack = expected * 2e-3 + 0.6;
    assert!(
        (expected + least - slack..=expected + most + slack).contains(&found),
        "{what}: {found} ns, not {expected} and {least} to {most}"
    );
}

#[test]
fn within_an_epoch_the_first_access_alone_takes_the_drives_time() {
    for (cache, hit) in [(false, 0.0), (true, 15.4)] {
        takes(ONE, cache, &[load(5)], hit + 700.0 + 20_000.0 + 4_800.0, "from flash");
        takes(ONE, cache, &[load(5), load(6)], hit, "the page is open");
        takes(EACH, cache, &[load(5), load(6)], hit + 700.0 + 4_800.0, "in the next epoch");
    }
    takes(ONE, false, &[store(5)], 700.0 + 20_000.0 + 600.0, "a store, which waits for its page");
    takes(ONE, false, &[load(5), store(6)], 0.0, "a store to an open page");
}

#[test]
fn a_line_in_the_processors_cache_raises_an_exception_in_each_epoch_too() {
    let time = |epoch: &str| {
        let preset = preset(&["max_threshold=255", epoch]);
        last(&preset, AccessMode::Promote, &options(true), &[load(5), load(5)])
    };
    assert!((time(ONE) - 15.4).abs() < 1.0, "{}", time(ONE));
    let expected = 15.4 + 700.0 + 4_800.0;
    assert!((time(EACH) - expected).abs() < expected * 3e-3, "{}", time(EACH));
}

#[test]
fn an_epochs_accesses_to_a_page_count_once() {
    let all: Vec<Request> = (0..20).map(load).collect();
    let of = |epoch: &str, all: &[Request]| -> FlatCounts {
        counts(AccessMode::Promote, &options(false), &[epoch], all).flat_counts()
    };
    let one = of(ONE, &all);
    assert_eq!((one.exceptions, one.line_reads, one.promotions), (1, 1, 0));
    let six = of(EACH, &all[..6]);
    assert_eq!((six.exceptions, six.line_reads, six.promotions), (6, 6, 0));
    let seven = of(EACH, &all[..7]);
    assert_eq!((seven.exceptions, seven.line_reads, seven.promotions), (7, 7, 1));
    let hardware = of("platform_epoch=0us", &all[..6]);
    assert_eq!((hardware.exceptions, hardware.line_reads), (0, 6));
}

#[test]
fn every_load_is_what_was_stored_last_in_any_epoch() {
    for seed in 0..6 {
        for (epoch, cache) in
            [(EACH, true), ("platform_epoch=300us", true), ("platform_epoch=300us", false), (ONE, true)]
        {
            let preset = preset(&[epoch, "max_threshold=2"]);
            let options = FlatOptions { memory: Bytes(64 << 10), ..options(cache) };
            let mut memory = FlatMemory::new(&preset, AccessMode::Promote, &options, seed).unwrap();
            let mut random = Rng::new(seed, "requests");
            let all: Vec<Request> = (0..4000)
                .map(|_| {
                    let op = if random.below(2) == 0 { Op::Read } else { Op::Write };
                    let len = if random.below(2) == 0 { 64 } else { 8 };
                    request(op, random.below(48 * 64) * 64, len)
                })
                .collect();
            let host = HostOptions { threads: 3, ..HostOptions::default() };
            drive(&mut memory, all.into_iter().map(Ok), &host).unwrap_or_else(|error| {
                panic!("seed {seed}, {epoch}, cache {cache}: {error}");
            });
            let counts = memory.flat_counts();
            assert!(counts.exceptions > 0 && counts.demotions > 0, "seed {seed}, {epoch}: {counts:?}");
        }
    }
}
