//! The model of the pager of `deepram run` in virtual time: closed forms, conservation laws over random workloads, and the
//! real pager's counts. These are the same wherever nothing depends on time.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use deepram_core::units::{Bytes, Picos};
use deepram_media::{MeasuredFile, Registry};
use deepram_pager::PagerOptions;
use deepram_peers::{Memory, Paged};
use deepram_sim::host::{HostOptions, HostResult, drive};
use deepram_sim::pool_model::PoolModelOptions;
use deepram_sim::swap_model::SwapModel;
use deepram_trace::workload::Rng;
use deepram_trace::{Op, Request};
use proptest::prelude::*;

const PAGE: u64 = 4096;

fn file() -> MeasuredFile {
    Registry::builtin().unwrap().get("virtual-ssd").unwrap()
}

fn options(pages: u64, frames: u64) -> PoolModelOptions {
    PoolModelOptions { data: Bytes(pages * PAGE), dram: Bytes(frames * PAGE), ..PoolModelOptions::swap() }
}

fn run(model: &mut SwapModel, accesses: &[(u64, Op)], depth: u32) -> HostResult {
    let host = HostOptions { per_thread: depth, ..HostOptions::default() };
    let requests = accesses
        .iter()
        .map(|(page, op)| Ok(Request { time_ps: None, device: 0, offset: page * PAGE + 8, len: 8, op: *op }));
    drive(model, requests, &host).unwrap()
}

#[test]
fn each_kind_of_fault_takes_its_software_and_a_miss_the_device_too() {
    let (file, options) = (file(), options(4096, 2048));
    let mut model = SwapModel::new(&file, &options).unwrap();
    let read = file.latency(false, Bytes(PAGE)).0;
    let (fresh, hit) = (options.fresh.0, options.hit.0);
    assert_eq!(run(&mut model, &[(5, Op::Write), (5, Op::Read)], 1).time.0, fresh + 2 * hit);
    // Memory that is filled in order comes in larger steps: the third fault brings in two pages.
    let filled = run(&mut model, &[(6, Op::Write), (7, Op::Write), (8, Op::Write)], 1).time.0;
    assert_eq!(filled, 2 * fresh + options.install.0 + 3 * hit);
    model.evict_range(5 * PAGE, PAGE);
    let miss = options.fault.0 + read + hit;
    assert_eq!(run(&mut model, &[(5, Op::Read), (5, Op::Read)], 1).time.0, miss + hit);
    assert_eq!(run(&mut model, &[(5, Op::Write), (5, Op::Write)], 1).time.0, 2 * hit);
    let counts = model.swap_counts();
    assert_eq!((counts.faults_fresh, counts.faults_major, counts.faults_write_protected), (3, 1, 0));
}

#[test]
fn a_clean_page_is_written_again_only_if_it_was_stored_to() {
    let mut model = SwapModel::new(&file(), &options(4096, 2048)).unwrap();
    let mut written = |accesses: &[Op]| {
        let before = model.swap_counts().written_back_pages;
        run(&mut model, &accesses.iter().map(|op| (5, *op)).collect::<Vec<_>>(), 1);
        model.evict_range(5 * PAGE, PAGE);
        model.swap_counts().written_back_pages - before
    };
    assert_eq!([written(&[Op::Write]), written(&[Op::Read, Op::Read])], [1, 0]);
    assert_eq!([written(&[Op::Read, Op::Write]), written(&[Op::Read]), written(&[Op::Write])], [1, 0, 1]);
}

#[test]
fn a_scan_is_read_ahead_and_a_random_walk_is_not() {
    let mut model = SwapModel::new(&file(), &options(16_384, 4096)).unwrap();
    let scan: Vec<_> = (0..16_384).map(|page| (page, Op::Read)).collect();
    let fill: Vec<_> = (0..16_384).map(|page| (page, Op::Write)).collect();
    run(&mut model, &fill, 1);
    let filled = model.swap_counts();
    run(&mut model, &scan, 1);
    let scanned = model.swap_counts().since(&filled);
    assert!(scanned.faults_major < 300, "{scanned:?}");
    let mut random = Rng::new(1, "test");
    let mut walk = |accesses: u64| {
        let walk: Vec<_> = (0..accesses).map(|_| (random.below(16_384), Op::Read)).collect();
        let before = model.swap_counts();
        run(&mut model, &walk, 1);
        model.swap_counts().since(&before)
    };
    // In each of four or five regions, three rounds of probes show that neighbours are not used.
    let learning = walk(20_000);
    assert!(learning.readahead_pages < 5 * 176 + 20_000 / 32 + 100, "{learning:?}");
    let walked = walk(5000);
    assert!(walked.readahead_pages < 200 && walked.faults_major > 3000, "{walked:?}");
}

/// Pages of a huge page.
const CHUNK: u64 = 512;

/// Accesses to all pages of these chunks, in order.
fn stream(chunks: std::ops::Range<u64>, op: Op) -> Vec<(u64, Op)> {
    (chunks.start * CHUNK..chunks.end * CHUNK).map(|page| (page, op)).collect()
}

#[test]
fn a_stream_that_fills_memory_and_one_that_reads_it_have_one_fault_for_each_huge_page() {
    let (file, chunks) = (file(), 200);
    for (budget, off) in [(64, false), (64, true), (31, false)] {
        let options = PoolModelOptions {
            hit: Picos(0),
            fault: Picos(0),
            install: Picos(0),
            stage: Picos(0),
            evict: Picos(0),
            huge_pages: !off,
            ..options(chunks * CHUNK, budget * CHUNK)
        };
        let mut model = SwapModel::new(&file, &options).unwrap();
        run(&mut model, &stream(0..chunks, Op::Write), 1);
        let filled = model.swap_counts();
        run(&mut model, &stream(0..chunks, Op::Read), 1);
        let read = model.swap_counts().since(&filled);
        // A budget of fewer than 32 chunks has no stages.
        if off || budget < 32 {
            assert!(
                filled.huge_pages + read.huge_pages == 0 && filled.faults_fresh > 2 * chunks,
                "{filled:?}"
            );
            continue;
        }
        // Until the first chunk is filled, pages come in smaller steps.
        assert!(filled.huge_pages >= chunks - 3 && filled.faults_fresh < chunks + 60, "{filled:?}");
        assert!(read.faults_major - read.huge_pages < 60 && read.huge_pages > chunks / 2, "{read:?}");
        // No page is read twice, and each was written once.
        assert!(read.bytes_read <= chunks * CHUNK * PAGE, "{read:?}");
        assert!(filled.written_back_pages + read.written_back_pages <= chunks * CHUNK, "{read:?}");
        // The next scans have only clean pages to evict.
        let after = |scans: usize| {
            let mut model = SwapModel::new(&file, &options).unwrap();
            let scans = (0..scans).flat_map(|_| stream(0..chunks, Op::Read));
            let accesses: Vec<_> = stream(0..chunks, Op::Write).into_iter().chain(scans).collect();
            let time = run(&mut model, &accesses, 1).time.0;
            (time, model.swap_counts().bytes_read)
        };
        let ((before, read), (time, all)) = (after(2), after(4));
        let interval = file.completion_interval(false, Bytes(CHUNK * PAGE)).0 as f64;
        let device = (all - read) as f64 / (CHUNK * PAGE) as f64 * interval;
        let share = device / (time - before) as f64;
        assert!((0.9..=1.05).contains(&share), "{share}");
    }
}

#[test]
fn a_first_store_near_the_start_of_a_clean_huge_page_makes_all_of_it_dirty_and_another_divides_it() {
    let (file, chunks) = (file(), 100);
    let options = options(chunks * CHUNK, 64 * CHUNK);
    let (protect, hit) = (options.protect.0, options.hit.0);
    for (first, others) in [(7, 0), (8, 3)] {
        let mut model = SwapModel::new(&file, &options).unwrap();
        run(&mut model, &stream(0..chunks, Op::Write), 1);
        run(&mut model, &stream(0..30, Op::Read), 1);
        let before = model.swap_counts();
        // A stream may still be using it: it has not been dropped behind the stream.
        let at = 28 * CHUNK;
        let stores = [first, 0, 100, 511, 100].map(|page| (at + page, Op::Write));
        let time = run(&mut model, &stores, 1).time.0;
        assert_eq!(time, (1 + others) * protect + 5 * hit, "first store to page {first}");
        assert_eq!(model.swap_counts().since(&before).faults_write_protected, 1 + others);
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let file = file();
    for (wrong, text) in [
        (options(4096, 5), "20 KiB is too little: use at least 4 MiB"),
        (PoolModelOptions { segment: Bytes(8192), ..options(4096, 2000) }, "pages of 4 KiB"),
        (PoolModelOptions { data: Bytes(u64::MAX), ..options(1, 2000) }, "data"),
    ] {
        let error = SwapModel::new(&file, &wrong).err().unwrap().to_string();
        assert!(error.contains(text), "{error}");
    }
}

proptest! {
    /// The driver checks the model's books at the end of every run: frames, slots and the policy's keys.
    #[test]
    fn its_books_balance(
        seed in any::<u64>(),
        frames in 1024u64..3000,
        depth in 1u32..9,
        stores in 0u64..11,
        streams in 0u64..11,
    ) {
        let mut random = Rng::new(seed, "test");
        let pages = 5000;
        let mut at = 0;
        let accesses: Vec<_> = (0..20_000)
            .map(|_| {
                at = if random.below(10) < streams { (at + 1) % pages } else { random.below(pages) };
                (at, if random.below(10) < stores { Op::Write } else { Op::Read })
            })
            .collect();
        let mut model = SwapModel::new(&file(), &options(pages, frames)).unwrap();
        let measured = run(&mut model, &accesses, depth);
        prop_assert_eq!(measured.completed, 20_000);
        let counts = model.swap_counts();
        prop_assert_eq!(counts.accesses, 20_000);
        prop_assert!(counts.evicted_dirty_pages == counts.written_back_pages);
        prop_assert!(counts.bytes_read / PAGE == counts.faults_major + counts.readahead_pages);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// As above, in enough DRAM for huge pages.
    #[test]
    fn its_books_balance_with_huge_pages(
        seed in any::<u64>(),
        budget in 32u64..70,
        depth in 1u32..9,
        stores in 0u64..5,
        address in 0u64..600,
    ) {
        let (mut random, chunks) = (Rng::new(seed, "test"), 100);
        let pages = chunks * CHUNK;
        let mut accesses = stream(0..random.below(chunks), Op::Write);
        while accesses.len() < 150_000 {
            let op = if random.below(4) < stores { Op::Write } else { Op::Read };
            let (first, length) = (random.below(pages), random.below(20 * CHUNK));
            match random.below(3) {
                0 => accesses.extend((0..200).map(|_| (random.below(pages), op))),
                1 => accesses.extend((first..pages.min(first + length)).map(|page| (page, op))),
                // A stream that stores to one page in 97.
                _ => accesses.extend((first..pages.min(first + length)).map(|page| {
                    (page, if page % 97 == 0 { op } else { Op::Read })
                })),
            }
        }
        let options = PoolModelOptions { address: Bytes(address * PAGE), ..options(pages, budget * CHUNK) };
        let mut model = SwapModel::new(&file(), &options).unwrap();
        let measured = run(&mut model, &accesses, depth);
        prop_assert_eq!(measured.completed, accesses.len() as u64);
        let counts = model.swap_counts();
        prop_assert!(counts.huge_pages > 0);
        prop_assert_eq!(counts.evicted_dirty_pages, counts.written_back_pages);
        prop_assert!(counts.bytes_read / PAGE <= counts.faults_major + counts.readahead_pages);
    }
}

/// The real pager, if this machine allows one.
fn paged(pages: u64, dram: u64, folder: &Path) -> Option<Paged> {
    let mut options = PagerOptions::new(dram, folder);
    options.huge_pages = false;
    match Paged::new((pages * PAGE) as usize, options) {
        Ok(paged) => Some(paged),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            eprintln!("skipped: userfaultfd may not be used here ({error})");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The next value to store.
static STORES: AtomicU64 = AtomicU64::new(1);

fn touch(paged: &Paged, page: u64, op: Op) {
    let word = &paged.words()[(page * PAGE / 8) as usize];
    match op {
        // A store of the value that is there leaves the page clean.
        Op::Write => word.store(STORES.fetch_add(1, Relaxed), Relaxed),
        _ => drop(std::hint::black_box(word.load(Relaxed))),
    }
}

/// The counts that both have, by name.
fn counts_of(model: &SwapModel) -> Vec<(&'static str, u64)> {
    let counts = model.swap_counts();
    vec![
        ("faults_fresh", counts.faults_fresh),
        ("faults_major", counts.faults_major),
        ("victim_buffer_hits", counts.victim_buffer_hits),
        ("faults_write_protected", counts.faults_write_protected),
        ("readahead_pages", counts.readahead_pages),
        ("readahead_windows", counts.readahead_windows),
        ("readahead_windows_used", counts.readahead_windows_used),
        ("readahead_windows_wasted", counts.readahead_windows_wasted),
        ("evicted_pages", counts.evicted_pages),
        ("evicted_dirty_pages", counts.evicted_dirty_pages),
        ("written_back_pages", counts.written_back_pages),
        ("eviction_stalls", counts.eviction_stalls),
        ("reads", counts.reads),
        ("bytes_read", counts.bytes_read),
        ("writes", counts.writes),
    ]
}

fn counts_of_pager(paged: &Paged, names: &[(&'static str, u64)]) -> Vec<(&'static str, u64)> {
    let entries = paged.pager().stats().entries();
    let count = |name: &str| entries.iter().find(|(other, ..)| *other == name).expect("a counter").1;
    names.iter().map(|(name, _)| (*name, count(name))).collect()
}

/// One step of a program: an access, or a hint that a range of pages is cold.
#[derive(Debug, Clone, Copy)]
enum Step {
    Access(u64, Op),
    Cold(u64, u64),
}

/// Steps with random accesses, streams of several strides, blocks whose pages are used together, and cold ranges.
fn steps(seed: u64, pages: u64, count: usize) -> Vec<Step> {
    let mut random = Rng::new(seed, "steps");
    let mut all = Vec::new();
    while all.len() < count {
        let start = random.below(pages);
        let op = |random: &mut Rng| if random.below(3) == 0 { Op::Write } else { Op::Read };
        match random.below(8) {
            0 | 1 => all.extend((0..20).map(|_| Step::Access(random.below(pages), op(&mut random)))),
            2 | 3 => {
                let (stride, length) = (1 + random.below(3), 10 + random.below(300));
                let (kind, up) = (op(&mut random), random.below(3) > 0);
                let next = |n| if up { Some(start + n * stride) } else { start.checked_sub(n * stride) };
                let stream = (0..length).map_while(next).take_while(|page| *page < pages);
                all.extend(stream.map(|page| Step::Access(page, kind)));
            }
            4 => {
                let block = start / 8 * 8;
                all.extend(
                    [3, 6, 1, 5, 0, 7, 2, 4].map(|n| Step::Access((block + n).min(pages - 1), Op::Read)),
                );
            }
            5 => all.push(Step::Cold(0, pages)),
            _ => all.push(Step::Cold(start, (1 + random.below(600)).min(pages - start))),
        }
    }
    all
}

/// The simulated pager and the real one take the same steps, one after the other, in so much DRAM that no evictor runs at a
/// time of its own. After each step all counts are equal, as soon as the real pager has read what it reads ahead.
#[test]
fn counts_are_those_of_the_real_pager_where_nothing_depends_on_time() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (pages, dram) = (6000, 64 << 20);
    for seed in 0..4 {
        let Some(paged) = paged(pages, dram, folder.path()) else { return };
        let start = paged.words().as_ptr().addr();
        let options = PoolModelOptions {
            address: Bytes(start as u64),
            dram: Bytes(dram),
            huge_pages: false,
            ..options(pages, 0)
        };
        let mut model = SwapModel::new(&file(), &options).unwrap();
        for (n, step) in steps(seed, pages, 4000).into_iter().enumerate() {
            match step {
                Step::Access(page, op) => {
                    touch(&paged, page, op);
                    run(&mut model, &[(page, op)], 1);
                }
                Step::Cold(first, count) => {
                    paged.pager().evict_range(start + (first * PAGE) as usize, (count * PAGE) as usize);
                    model.evict_range(first * PAGE, count * PAGE);
                }
            }
            let expected = counts_of(&model);
            let begun = Instant::now();
            while counts_of_pager(&paged, &expected) != expected {
                let found = counts_of_pager(&paged, &expected);
                assert!(
                    begun.elapsed() < Duration::from_secs(5),
                    "seed {seed} step {n} {step:?}\nsimulated {expected:?}\nreal {found:?}"
                );
                std::thread::yield_now();
            }
            // Changes of the address space wait until no page is on its way into memory. A range without a page changes nothing.
            paged.pager().prefer_huge(start, 0, false);
        }
        std::thread::sleep(Duration::from_millis(20));
        let expected = counts_of(&model);
        assert_eq!(expected, counts_of_pager(&paged, &expected), "seed {seed}: at the end");
        let used = |name: &str| expected.iter().any(|(of, count)| *of == name && *count > 0);
        for name in ["victim_buffer_hits", "evicted_dirty_pages", "readahead_windows_used", "faults_major"] {
            assert!(used(name), "seed {seed}: the steps have no {name}: {expected:?}");
        }
    }
}

/// With evictors at work, counts depend on when they run. They differ little.
#[test]
fn misses_are_nearly_those_of_the_real_pager_where_evictors_run() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (pages, dram) = (16_384, 16 << 20);
    for (writes, skewed) in [(0, false), (3, false), (3, true)] {
        let Some(paged) = paged(pages, dram, folder.path()) else { return };
        let options = PoolModelOptions {
            address: Bytes(paged.words().as_ptr().addr() as u64),
            dram: Bytes(dram),
            ..options(pages, 0)
        };
        let mut model = SwapModel::new(&file(), &options).unwrap();
        let fill: Vec<_> = (0..pages).map(|page| (page, Op::Write)).collect();
        let mut random = Rng::new(7, "test");
        let mut walk = |count: usize| -> Vec<(u64, Op)> {
            let page = |random: &mut Rng| {
                let page = random.below(pages);
                if skewed && random.below(2) == 0 { page * 7919 % 1000 } else { page }
            };
            (0..count)
                .map(|_| (page(&mut random), if random.below(10) < writes { Op::Write } else { Op::Read }))
                .collect()
        };
        let (warm_up, measured) = (walk(40_000), walk(40_000));
        let mut before = Vec::new();
        for part in [&fill, &warm_up, &measured] {
            let names = counts_of(&model);
            before = counts_of_pager(&paged, &names).into_iter().zip(names).collect();
            part.iter().for_each(|(page, op)| touch(&paged, *page, *op));
            run(&mut model, part, 1);
        }
        let expected = counts_of(&model);
        let real = counts_of_pager(&paged, &expected);
        for (n, (name, count)) in expected.iter().enumerate() {
            let (real, count) = ((real[n].1 - before[n].0.1) as f64, (count - before[n].1.1) as f64);
            eprintln!("writes {writes} skewed {skewed} {name}: simulated {count} real {real}");
            if ["faults_major", "evicted_pages", "reads"].contains(name) {
                assert!(
                    (count - real).abs() < 0.05 * real.max(1000.0),
                    "{name}: simulated {count}, real {real}"
                );
            }
        }
    }
}
