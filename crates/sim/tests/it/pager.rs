//! The model of the pool's pager in virtual time: closed forms, and conservation laws over random workloads.

use deepram_core::units::Bytes;
use deepram_media::{MeasuredFile, Picos, Registry};
use deepram_sim::host::{HostOptions, HostResult, drive};
use deepram_sim::pool_model::{PoolModel, PoolModelOptions};
use deepram_trace::workload::Rng;
use deepram_trace::{Op, Request};
use proptest::prelude::*;

fn file() -> MeasuredFile {
    Registry::builtin().unwrap().get("virtual-ssd").unwrap()
}

fn options(frames: u32) -> PoolModelOptions {
    PoolModelOptions {
        data: Bytes(4096 * 4096),
        segment: Bytes(4096),
        dram: Bytes(u64::from(frames) * 4096),
        hit: Picos(100_000),
        fault: Picos(9_000_001),
        protect: Picos(5_000_000),
        flush: Picos(1_000_000),
        ..PoolModelOptions::default()
    }
}

fn run(pager: &mut PoolModel, accesses: &[(u64, Op)], depth: u32) -> HostResult {
    let host = HostOptions { per_thread: depth, ..HostOptions::default() };
    let requests = accesses.iter().map(|(segment, op)| {
        Ok(Request { time_ps: None, device: 0, offset: segment * 4096 + 8, len: 8, op: *op })
    });
    drive(pager, requests, &host).unwrap()
}

#[test]
fn a_miss_takes_software_and_device_a_hit_a_hit_and_a_first_store_a_protection_fault() {
    let (file, options) = (file(), options(1000));
    let mut pager = PoolModel::new(&file, &options).unwrap();
    let read = file.latency(false, Bytes(4096)).0;
    let measured =
        run(&mut pager, &[(5, Op::Read), (5, Op::Read), (5, Op::Write), (5, Op::Write), (6, Op::Write)], 1);
    let miss = options.fault.0 + read + options.hit.0;
    // A segment read in for a store is dirty from the start, without a write-protection fault.
    assert_eq!(measured.time.0, 2 * miss + 3 * options.hit.0 + options.protect.0);
    assert_eq!((pager.pool_counts().missing, pager.pool_counts().first_stores), (2, 1));
}

#[test]
fn as_many_misses_overlap_as_the_device_works_on() {
    let (file, options) = (file(), options(4000));
    let width = file.parallelism(false, Bytes(4096)) as u32;
    // In an order without streams, so that nothing is read ahead.
    let accesses: Vec<_> = (0..3200).map(|n| (n * 1387 % 4096, Op::Read)).collect();
    let rate = |depth| {
        let mut pager = PoolModel::new(&file, &options).unwrap();
        run(&mut pager, &accesses, depth).requests_per_s
    };
    let alone = 1e12 / (options.fault.0 + file.latency(false, Bytes(4096)).0 + options.hit.0) as f64;
    assert!((rate(1) / alone - 1.0).abs() < 1e-9);
    // With more threads than the device's width, only the device limits the rate.
    let most = 1e12 / file.completion_interval(false, Bytes(4096)).0 as f64;
    let share = rate(4 * width) / most;
    assert!((0.98..=1.0).contains(&share), "{share}");
}

#[test]
fn write_back_takes_dirty_segments_in_the_order_of_their_addresses_as_the_pool_does() {
    // One more than half of the frames: write-back starts, and takes 2048 of them.
    let dirty = 2201;
    for (segment, expected) in [(800, 1), (800 + 2047, 1), (800 + 2048, 0), (3000, 0)] {
        let mut pager = PoolModel::new(&file(), &options(2 * (dirty - 1))).unwrap();
        // In orders without streams, so that nothing is read ahead.
        let stores = (0..u64::from(dirty)).map(|n| (800 + n * 757 % u64::from(dirty), Op::Write));
        // Until the segments are written.
        let pause = (0..400).map(|n| (n * 277 % 797, Op::Read));
        let accesses: Vec<_> = stores.chain(pause).chain([(segment, Op::Write)]).collect();
        run(&mut pager, &accesses, 1);
        let counts = pager.pool_counts();
        assert_eq!((counts.written, counts.first_stores), (2048, expected), "segment {segment}");
    }
}

#[test]
fn a_scan_is_read_ahead_in_runs_of_neighbours_on_flash() {
    let file = file();
    // 4,096 segments in 2,048 frames.
    let mut pager = PoolModel::new(&file, &options(2048)).unwrap();
    let scan: Vec<_> = (0..4096).map(|segment| (segment, Op::Read)).collect();
    let measured = run(&mut pager, &scan, 1);
    let counts = pager.pool_counts();
    // A handler has room for runs of four segments.
    assert!(counts.missing < 200 && counts.readahead_segments > 4000 && counts.reads < 1200, "{counts:?}");
    // A miss for each segment would take the latency of a read each time.
    let alone = 4096 * file.latency(false, Bytes(4096)).0;
    assert!(measured.time.0 < alone / 2, "{} of {alone}", measured.time.0);
    // Written back in another order, the neighbours on flash are others: a scan then takes more reads.
    let stores: Vec<_> = (0..4096).map(|n| (n * 1387 % 4096, Op::Write)).collect();
    run(&mut pager, &stores, 1);
    let before = pager.pool_counts().reads;
    run(&mut pager, &scan, 1);
    assert!(pager.pool_counts().reads - before > counts.reads, "{:?}", pager.pool_counts());
}

#[test]
fn what_cannot_be_is_refused() {
    let file = file();
    for (wrong, text) in [
        (options(5), "20 KiB is too little: use at least 256 KiB"),
        (PoolModelOptions { segment: Bytes(5000), ..options(100) }, "power of two"),
        (PoolModelOptions { data: Bytes(u64::MAX), ..options(100) }, "data"),
    ] {
        let error = PoolModel::new(&file, &wrong).err().unwrap().to_string();
        assert!(error.contains(text), "{error}");
    }
}

proptest! {
    #[test]
    fn its_books_balance(seed in any::<u64>(), frames in 64u32..600, depth in 1u32..9, stores in 0u64..11) {
        let mut random = Rng::new(seed, "test");
        let accesses: Vec<_> = (0..6000)
            .map(|_| (random.below(1000), if random.below(10) < stores { Op::Write } else { Op::Read }))
            .collect();
        let mut pager = PoolModel::new(&file(), &options(frames)).unwrap();
        let measured = run(&mut pager, &accesses, depth);
        prop_assert_eq!(measured.completed, 6000);
        let counts = pager.pool_counts();
        prop_assert_eq!(counts.accesses, 6000);
        // Only dirty segments are written.
        prop_assert!(stores > 0 || counts.written == 0);
        // A cache of this size has at least the cold misses.
        prop_assert!(counts.missing + u64::from(frames) >= 1000);
    }
}
