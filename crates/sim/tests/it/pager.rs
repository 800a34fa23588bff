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
    let (file, options) = (file(), PoolModelOptions { fault_around: false, ..options(4000) });
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
fn neighbours_come_with_a_missed_segment_where_they_are_used() {
    // Rows of eight segments in an order that returns to each row after all others, and no order within a row: no stream.
    let mut random = Rng::new(1, "turns");
    let accesses: Vec<_> = (0..4000)
        .flat_map(|n: u64| {
            let turn = random.below(8);
            [0, 5, 2, 7, 4, 1, 6, 3].map(|segment| (n * 211 % 512 * 8 + (segment ^ turn), Op::Read))
        })
        .collect();
    let missing = |fault_around| {
        let options = PoolModelOptions { fault_around, ..options(1024) };
        let mut pager = PoolModel::new(&file(), &options).unwrap();
        run(&mut pager, &accesses, 1);
        pager.pool_counts().missing
    };
    // With fault-around, once a block has eight segments, the first one and the probe miss.
    let (alone, around) = (missing(false), missing(true));
    assert!(alone <= 32_000 && around >= 8_000 && 2 * around < alone, "{alone}, {around}");
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
    let before = pager.pool_counts();
    run(&mut pager, &scan, 1);
    let after = pager.pool_counts();
    let per_read = |segments: u64, reads: u64| segments as f64 / reads as f64;
    let scattered = per_read(
        after.readahead_segments - before.readahead_segments,
        after.reads - before.reads - (after.missing - before.missing),
    );
    let in_order = per_read(counts.readahead_segments, counts.reads - counts.missing);
    assert!(scattered < 0.8 * in_order, "{scattered} and {in_order} segments in a read");
}

/// Segments of a huge page.
const CHUNK: u64 = 512;

/// Options of a pool of `chunks` huge pages in DRAM for `budget` of them, whose software takes no time.
fn huge(chunks: u64, budget: u32) -> PoolModelOptions {
    PoolModelOptions {
        data: Bytes(chunks * CHUNK * 4096),
        hit: Picos(0),
        fault: Picos(0),
        protect: Picos(5_000_000),
        install: Picos(0),
        stage: Picos(0),
        ..options(budget * CHUNK as u32)
    }
}

#[test]
fn a_scan_has_one_miss_for_each_huge_page_and_reads_every_segment_once_at_the_rate_of_the_device() {
    let (file, chunks) = (file(), 200);
    let scan: Vec<_> = (0..chunks * CHUNK).map(|segment| (segment, Op::Read)).collect();
    let interval = file.completion_interval(false, Bytes(CHUNK * 4096)).0;
    for (budget, off) in [(64, false), (500, false), (64, true), (31, false)] {
        let options = PoolModelOptions { huge_pages: !off, ..huge(chunks, budget) };
        let mut pager = PoolModel::new(&file, &options).unwrap();
        let time = run(&mut pager, &scan, 1).time.0;
        let counts = pager.pool_counts();
        // A budget of fewer than 32 chunks has no stages.
        if off || budget < 32 {
            assert!(counts.huge_pages == 0 && counts.missing > chunks, "{counts:?}");
            continue;
        }
        // The first chunks arrive by readahead; then each is staged, and its first use is its only fault.
        assert!((chunks - 4..chunks).contains(&counts.huge_pages), "{counts:?}");
        let others = counts.missing - counts.huge_pages;
        assert!(others < 24, "{counts:?}");
        let read_ahead = counts.readahead_segments;
        assert!((chunks * CHUNK - others..=chunks * CHUNK).contains(&read_ahead), "{counts:?}");
        assert!(counts.reads < chunks + 200, "{counts:?}");
        let share = (chunks * interval) as f64 / time as f64;
        assert!((0.9..=1.01).contains(&share), "{share}");
        // All that fits is resident.
        if u64::from(budget) > chunks {
            run(&mut pager, &scan, 1);
            assert_eq!(pager.pool_counts().missing, counts.missing);
        }
    }
}

#[test]
fn the_first_use_of_a_staged_chunk_is_a_fault_and_a_store_to_a_huge_page_divides_it() {
    let file = file();
    let options = PoolModelOptions { hit: Picos(1_000_000), fault: Picos(9_000_000), ..huge(100, 64) };
    // Twenty chunks are in use, and those ahead arrive during the pause, which is too short for their stages to be stale.
    let scan = (0..20 * CHUNK).chain(std::iter::repeat_n(0, 30_000)).map(|segment| (segment, Op::Read));
    let after = |more: &[(u64, Op)]| {
        let mut pager = PoolModel::new(&file, &options).unwrap();
        let accesses: Vec<_> = scan.clone().chain(more.iter().copied()).collect();
        let time = run(&mut pager, &accesses, 1).time.0;
        let counts = pager.pool_counts();
        (time, counts.huge_pages, counts.missing, counts.first_stores)
    };
    let at = 20 * CHUNK;
    let (time, huge, missing, _) = after(&[]);
    let (hit, fault, protect) = (options.hit.0, options.fault.0, options.protect.0);
    let used = after(&[(at + 7, Op::Read), (at, Op::Read), (at + 511, Op::Read)]);
    assert_eq!(used, (time + fault + 3 * hit, huge + 1, missing + 1, 0));
    // Then segments are stored to one by one.
    let stored = after(&[(at + 8, Op::Write), (at + 8, Op::Write), (at + 9, Op::Write), (at, Op::Read)]);
    assert_eq!(stored, (time + fault + 2 * protect + 4 * hit, huge + 1, missing + 1, 2));
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

    /// The driver checks the model's books at the end of every run, and the model its budget at every fill.
    #[test]
    fn its_books_balance_with_huge_pages(
        seed in any::<u64>(),
        budget in 32u32..70,
        depth in 1u32..9,
        stores in 0u64..4,
        streams in 1u64..4,
    ) {
        let (mut random, chunks) = (Rng::new(seed, "test"), 80);
        let all = chunks * CHUNK;
        let mut at: Vec<u64> = (0..streams).map(|_| random.below(all)).collect();
        let mut accesses = Vec::new();
        while accesses.len() < 30_000 {
            let stream = random.below(streams + 1);
            let op = if random.below(4) < stores { Op::Write } else { Op::Read };
            let Some(at) = at.get_mut(stream as usize) else {
                accesses.extend((0..50).map(|_| (random.below(all), op)));
                continue;
            };
            if random.below(8) == 0 {
                *at = random.below(all);
            }
            let length = random.below(3 * CHUNK);
            // Streams that store, store seldom: others read their pages before.
            let kind = |n: u64| if n.is_multiple_of(97) { op } else { Op::Read };
            accesses.extend((0..length).map(|n| ((*at + n) % all, kind(n))));
            *at = (*at + length) % all;
        }
        let options = PoolModelOptions { hit: Picos(100_000), fault: Picos(9_000_000), ..huge(chunks, budget) };
        let mut pager = PoolModel::new(&file(), &options).unwrap();
        let measured = run(&mut pager, &accesses, depth);
        prop_assert_eq!(measured.completed, accesses.len() as u64);
        let counts = pager.pool_counts();
        prop_assert_eq!(counts.accesses, accesses.len() as u64);
        prop_assert!(stores > 0 || counts.written + counts.first_stores == 0);
        let read = counts.missing + counts.readahead_segments;
        prop_assert!(counts.evictions <= read && counts.huge_pages * CHUNK <= read);
    }
}
