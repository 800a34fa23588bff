//! The pool's pager in virtual time: closed forms, and its laws over random workloads.

use deepram_core::units::Bytes;
use deepram_media::{MeasuredFile, Registry};
use deepram_sim::host::{HostOptions, Measured, drive};
use deepram_sim::pager::{Pager, PagerOptions};
use deepram_sim::rng::Stream;
use deepram_trace::{Op, Request};
use proptest::prelude::*;

fn file() -> MeasuredFile {
    Registry::builtin().unwrap().get("virtual-ssd").unwrap()
}

fn options(frames: u32) -> PagerOptions {
    PagerOptions {
        data: 4096 * 4096,
        segment: 4096,
        dram: u64::from(frames) * 4096,
        hit_ps: 100_000,
        fault_ps: 9_000_001,
        protect_ps: 5_000_000,
        flush_ps: 1_000_000,
    }
}

fn run(pager: &mut Pager, accesses: &[(u64, Op)], depth: u32) -> Measured {
    let host = HostOptions { per_thread: depth, ..HostOptions::default() };
    let requests = accesses.iter().map(|(segment, op)| {
        Ok(Request { time_ps: None, device: 0, offset: segment * 4096 + 8, len: 8, op: *op })
    });
    drive(pager, requests, &host).unwrap()
}

#[test]
fn a_miss_takes_software_and_device_a_hit_a_hit_and_a_first_store_a_protection_fault() {
    let (file, options) = (file(), options(1000));
    let mut pager = Pager::new(&file, &options).unwrap();
    let read = file.latency(false, Bytes(4096)).0;
    let measured =
        run(&mut pager, &[(5, Op::Read), (5, Op::Read), (5, Op::Write), (5, Op::Write), (6, Op::Write)], 1);
    let miss = options.fault_ps + read + options.hit_ps;
    // A segment that a store brings in is dirty from the start.
    assert_eq!(measured.time_ps, 2 * miss + 3 * options.hit_ps + options.protect_ps);
    assert_eq!((pager.pager_counts().missing, pager.pager_counts().protected), (2, 1));
}

#[test]
fn as_many_misses_overlap_as_the_device_works_on() {
    let (file, options) = (file(), options(4000));
    let width = file.parallelism(false, Bytes(4096)) as u32;
    let accesses: Vec<_> = (0..3200).map(|n| (n, Op::Read)).collect();
    let rate = |depth| {
        let mut pager = Pager::new(&file, &options).unwrap();
        run(&mut pager, &accesses, depth).requests_per_s
    };
    let alone = 1e12 / (options.fault_ps + file.latency(false, Bytes(4096)).0 + options.hit_ps) as f64;
    assert!((rate(1) / alone - 1.0).abs() < 1e-9);
    // Beyond the width only the device counts.
    let most = f64::from(width) / (file.latency(false, Bytes(4096)).0 as f64 * 1e-12);
    let share = rate(4 * width) / most;
    assert!((0.98..=1.0).contains(&share), "{share}");
}

#[test]
fn what_cannot_be_is_refused() {
    let file = file();
    for (wrong, text) in [
        (options(5), "20 KiB is too little: 256 KiB"),
        (PagerOptions { segment: 5000, ..options(100) }, "power of two"),
        (PagerOptions { data: u64::MAX, ..options(100) }, "data"),
    ] {
        let error = Pager::new(&file, &wrong).err().unwrap().to_string();
        assert!(error.contains(text), "{error}");
    }
}

proptest! {
    #[test]
    fn its_books_balance(seed in any::<u64>(), frames in 64u32..600, depth in 1u32..9, stores in 0u64..11) {
        let mut random = Stream::new(seed, "test");
        let accesses: Vec<_> = (0..6000)
            .map(|_| (random.below(1000), if random.below(10) < stores { Op::Write } else { Op::Read }))
            .collect();
        let mut pager = Pager::new(&file(), &options(frames)).unwrap();
        let measured = run(&mut pager, &accesses, depth);
        prop_assert_eq!(measured.completed, 6000);
        let counts = pager.pager_counts();
        prop_assert_eq!(counts.accesses, 6000);
        // Nothing is written that was not stored to.
        prop_assert!(stores > 0 || counts.written == 0);
        // The misses of a cache of that size cannot be fewer than the cold ones.
        prop_assert!(counts.missing + u64::from(frames) >= 1000);
    }
}
