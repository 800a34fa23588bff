//! The write buffer of DRAM and PCM in front of a drive: times and energies against closed forms, conservation, data at risk.

use deepram_media::{NandOp, Picos, Registry, Ssd, WriteBuffer};
use deepram_sim::host::{Device, HostOptions, HostResult, drive};
use deepram_sim::ssd::SsdOptions;
use deepram_sim::ssd_buffer::{AtRisk, BufferCounts, BufferedSsd};
use deepram_sim::{RunOptions, RunResult, SimError, System, SystemConfig, run};
use deepram_trace::{Op, Request};
use proptest::prelude::*;

use crate::conservation::workload;

const PAGE: u64 = 8192;
/// Time between requests that leaves the device idle: 10 ms.
const IDLE: u64 = 10_000_000_000;

fn at(time_ps: u64, op: Op, offset: u64, len: u64) -> Request {
    Request { time_ps: Some(time_ps), device: 0, offset, len, op }
}

/// A request each 10 ms: operation, first byte, length.
fn paced(requests: &[(Op, u64, u64)]) -> Vec<Request> {
    requests.iter().zip(0..).map(|(&(op, offset, len), index)| at(index * IDLE, op, offset, len)).collect()
}

struct Ran {
    host: HostResult,
    counts: BufferCounts,
    at_risk: AtRisk,
    preset: WriteBuffer,
    ssd: Ssd,
    device: BufferedSsd,
}

/// Runs requests on a buffer; `drive` are overrides of a small drive.
fn ran(preset: &str, set: &[&str], drive_set: &[&str], requests: Vec<Request>) -> Ran {
    let registry = Registry::builtin().unwrap();
    let preset: WriteBuffer = registry.get_with(&format!("buffer.{preset}"), set).unwrap();
    let mut small = vec!["nand.blocks_per_plane=64", "nand.capacity=2GiB", "raw_capacity=16GiB"];
    small.extend(drive_set);
    let ssd: Ssd = registry.get_with("ssd.hybrid-buffer", &small).unwrap();
    let options = SsdOptions { writes_assume_written: true, ..SsdOptions::default() };
    let mut device = BufferedSsd::new(&preset, &ssd, &options, 1).unwrap();
    let host = drive(&mut device, requests.into_iter().map(Ok), &HostOptions::default()).unwrap();
    let at_risk = device.report(host.time).at_risk;
    Ran { counts: device.buffer_counts(), at_risk, host, preset, ssd, device }
}

/// The mean response times of reads and writes, picoseconds.
fn means(ran: &Ran) -> (u64, u64) {
    ((ran.host.read.mean_ns * 1e3).round() as u64, (ran.host.write.mean_ns * 1e3).round() as u64)
}

#[test]
fn idle_accesses_take_the_times_of_table_v_and_of_flash() {
    let page = |op, number: u64| (op, number * PAGE, PAGE);
    let dram = ran("hybrid-42", &[], &[], paced(&[page(Op::Write, 1), page(Op::Read, 1)]));
    assert_eq!(means(&dram), (4_352_000, 4_352_000));
    // A page enters PCM; its second write makes it hot, because the first threshold is 1.
    let pcm = ran("hybrid-4-80", &[], &[], paced(&[page(Op::Write, 1), page(Op::Read, 1)]));
    assert_eq!(means(&pcm), (5_454_000, 48_983_000));
    let hot =
        ran("hybrid-4-80", &[], &[], paced(&[page(Op::Write, 1), page(Op::Write, 1), page(Op::Read, 1)]));
    assert_eq!(means(&hot), (3_749_000, (48_983_000 + 3_749_000) / 2));
    assert_eq!((hot.counts.promotions, hot.counts.pcm_page_writes), (1, 1));
    let first = ["promoting_write=pcm"];
    let late =
        ran("hybrid-4-80", &first, &[], paced(&[page(Op::Write, 1), page(Op::Write, 1), page(Op::Read, 1)]));
    assert_eq!(means(&late), (3_749_000, 48_983_000));
    // Reads do not allocate.
    let miss = ran("hybrid-42", &[], &[], paced(&[page(Op::Read, 1), page(Op::Read, 1)]));
    assert_eq!(means(&miss).0, miss.ssd.nand.idle_latency(NandOp::Read, 1).0);
    assert_eq!(miss.counts.read_hits_dram, 0);
    let levels = ran("hybrid-4-80", &["scheme=2l"], &[], paced(&[page(Op::Write, 1), page(Op::Read, 1)]));
    assert_eq!(means(&levels), (3_749_000, 3_749_000));
    let alone = ran("pcm-80", &[], &[], paced(&[page(Op::Write, 1), page(Op::Read, 1)]));
    assert_eq!(means(&alone), (5_454_000, 48_983_000));
}

#[test]
fn a_write_that_bypasses_the_buffer_waits_for_flash() {
    // PCM of no endurance: after the first period of 4 writes it is closed.
    let set = ["period=4", "pcm.endurance=1"];
    let requests: Vec<_> = (0..6).map(|page| (Op::Write, page * PAGE, PAGE)).collect();
    let ran = ran("hybrid-4-80", &set, &[], paced(&requests));
    assert_eq!((ran.counts.fills_pcm, ran.counts.bypasses, ran.counts.periods_closed), (4, 2, 1));
    let program = ran.ssd.nand.idle_latency(NandOp::Program, 1).0;
    assert_eq!((ran.host.write.max_ns * 1e3).round() as u64, program);
    assert_eq!(ran.host.counts.host_programs, 2);
}

#[test]
fn an_array_serves_one_page_after_the_other_and_both_arrays_work_at_once() {
    let ran =
        ran("hybrid-42", &[], &[], vec![at(0, Op::Write, 0, 3 * PAGE), at(0, Op::Write, 3 * PAGE, PAGE)]);
    assert_eq!((ran.host.write.max_ns * 1e3).round() as u64, 4 * 4_352_000);
}

#[test]
fn a_partial_access_is_charged_a_page_or_its_share() {
    let requests = || paced(&[(Op::Write, 0, 2048), (Op::Read, 0, 1024)]);
    let whole = ran("hybrid-42", &[], &[], requests());
    assert_eq!(means(&whole), (4_352_000, 4_352_000));
    let share = ran("hybrid-42", &["access_charge=sectors"], &[], requests());
    assert_eq!(means(&share), (544_000, 1_088_000));
}

#[test]
fn energy_is_table_v_times_the_accesses_plus_leakage_times_the_span() {
    let registry = Registry::builtin().unwrap();
    let requests = paced(&[
        (Op::Write, 0, PAGE),
        (Op::Write, PAGE, 512),
        (Op::Write, 0, PAGE),
        (Op::Read, 0, PAGE),
        (Op::Read, PAGE, 512),
    ]);
    let config = SystemConfig { preset: "hybrid-12-72".into(), ..SystemConfig::new(System::SsdBuffer) };
    let result =
        run(&registry, &config, requests.into_iter().map(Ok::<_, SimError>), &RunOptions::default()).unwrap();
    let seconds = result.simulated_time_ns * 1e-9;
    let part = |name: &str| result.energy.iter().find(|part| part.component == name).unwrap();
    let near = |found: f64, expected: f64| {
        assert!((found - expected).abs() < 1e-6 * expected.max(1.0), "{found} {expected}")
    };
    // Two fills of PCM; the third write goes to DRAM, and the page moves there; each memory is read once.
    near(part("buffer pcm").dynamic_nj, (2.0 * 11.049 + 2.0 * 0.042) * 1e3);
    near(part("buffer dram").dynamic_nj, (2.0 * 2.435 + 2.973) * 1e3);
    near(part("buffer pcm").static_nj, 38.325 * seconds * 1e6);
    near(part("buffer dram").static_nj, 74.239 * seconds * 1e6);
    near(part("buffer tags").static_nj, 21.0 * seconds * 1e6);
    let sum: f64 = result.energy.iter().map(|part| part.dynamic_nj + part.static_nj).sum();
    near(result.energy_total_nj, sum);
}

/// The energy of the buffer over an hour with two requests.
fn idle_hour(config: &str, tags: &str) -> f64 {
    let registry = Registry::builtin().unwrap();
    let config = SystemConfig {
        preset: format!("hybrid-{config}"),
        overrides: vec![format!("tags={tags}")],
        ..SystemConfig::new(System::SsdBuffer)
    };
    let requests = [at(0, Op::Write, 0, PAGE), at(3_600_000_000_000_000, Op::Write, 0, PAGE)];
    let result =
        run(&registry, &config, requests.into_iter().map(Ok::<_, SimError>), &RunOptions::default()).unwrap();
    let buffer = result.energy.iter().filter(|part| part.component.starts_with("buffer"));
    buffer.map(|part| part.dynamic_nj + part.static_nj).sum()
}

#[test]
fn leakage_alone_gives_the_savings_of_table_v_and_with_tags_those_of_the_text() {
    for (config, bare, step, linear) in [
        ("1-20", 83.7, 77.7, 80.9),
        ("2-40", 71.1, 66.0, 65.2),
        ("3-18", 69.9, 64.8, 68.2),
        ("12-72", 2.9, -6.95, -5.7),
    ] {
        for (tags, expected) in [("none", bare), ("step", step), ("linear", linear)] {
            let saving = 100.0 * (1.0 - idle_hour(config, tags) / idle_hour("42", tags));
            assert!((saving - expected).abs() < 0.05, "{config} {tags}: {saving}");
        }
    }
    // The text's 86 % of DRAM power: the DRAM of 1-20 and its tags against those of 42.
    let registry = Registry::builtin().unwrap();
    let power = |name: &str| {
        let preset: WriteBuffer = registry.get(name).unwrap();
        preset.dram.leakage.0 + preset.tag_power().0
    };
    let saving = 100.0 * (1.0 - power("buffer.hybrid-1-20") / power("buffer.hybrid-42"));
    assert!((saving - 86.0).abs() < 0.1, "{saving}");
}

#[test]
fn a_power_cut_loses_the_dirty_sectors_of_dram_and_of_the_destage_queue_only() {
    // Three pages in DRAM: 8192, 512 and 1024 bytes. The same sectors again add nothing.
    let requests = paced(&[
        (Op::Write, 0, PAGE),
        (Op::Write, PAGE, 512),
        (Op::Write, 2 * PAGE + 512, 1024),
        (Op::Write, PAGE, 512),
    ]);
    let dram = ran("hybrid-42", &[], &[], requests.clone());
    assert_eq!(dram.at_risk.max_bytes, 8192 + 512 + 1024);
    // 10 ms of 8192 B, 10 ms of 8704 B, 10 ms of 9728 B, and the time of the last write.
    assert!(
        (dram.at_risk.mean_bytes - (8192.0 + 8704.0 + 9728.0) / 3.0).abs() < 1.0,
        "{:?}",
        dram.at_risk.mean_bytes
    );
    let pcm = ran("pcm-80", &[], &[], requests);
    assert_eq!((pcm.at_risk.max_bytes, pcm.at_risk.mean_bytes), (0, 0.0));
    assert_eq!(pcm.device.report(Picos(1)).pcm_dirty_bytes, 8192 + 512 + 1024);
    // A victim of PCM is volatile while it waits for flash.
    let full =
        ran("pcm-80", &["pcm.size=8KiB"], &[], paced(&[(Op::Write, 0, PAGE), (Op::Write, PAGE, PAGE)]));
    assert_eq!((full.at_risk.max_bytes, full.counts.destages_pcm), (8192, 1));
}

#[test]
fn a_flush_completes_when_flash_has_every_page_of_dram() {
    let flushed = ran(
        "hybrid-42",
        &[],
        &[],
        paced(&[(Op::Write, 0, 40 * PAGE), (Op::Flush, 0, 0), (Op::Read, 0, PAGE)]),
    );
    assert_eq!((flushed.counts.destages_dram, flushed.host.counts.host_programs), (40, 40));
    assert_eq!(flushed.counts.read_hits_dram, 0);
    // The pages of DRAM retire to PCM in two levels.
    let levels =
        ran("hybrid-4-80", &["scheme=2l"], &[], paced(&[(Op::Write, 0, 40 * PAGE), (Op::Flush, 0, 0)]));
    assert_eq!((levels.counts.demotions, levels.host.counts.host_programs), (40, 0));
    assert_eq!(levels.at_risk.series_bytes.last().copied(), Some(40 * PAGE));
}

#[test]
fn a_partial_victim_reads_the_rest_of_its_page_from_flash_and_a_whole_one_does_not() {
    let small = ["dram.size=8KiB"];
    let partial = ran("hybrid-42", &small, &[], paced(&[(Op::Write, 512, 1024), (Op::Write, PAGE, PAGE)]));
    assert_eq!((partial.counts.partial_destages, partial.host.counts.merge_reads), (1, 1));
    let whole = ran("hybrid-42", &small, &[], paced(&[(Op::Write, 0, PAGE), (Op::Write, PAGE, PAGE)]));
    assert_eq!((whole.counts.partial_destages, whole.host.counts.merge_reads), (0, 0));
    // Fetched at once, the page is whole when it leaves; its write waits for flash.
    let fetch = ["dram.size=8KiB", "partial_write=fetch"];
    let fetched = ran("hybrid-42", &fetch, &[], paced(&[(Op::Write, 512, 1024), (Op::Write, PAGE, PAGE)]));
    assert_eq!((fetched.counts.fetches, fetched.host.counts.merge_reads), (1, 0));
    let read = fetched.ssd.nand.array_time(NandOp::Read).0 as f64 / 1e3;
    assert!(fetched.host.write.max_ns > read);
}

/// A drive of 8 planes with 12 blocks of 8 pages, half of which the host sees: 48 pages a plane.
const TINY: [&str; 11] = [
    "nand.blocks_per_plane=12",
    "nand.pages_per_block=8",
    "nand.dies=2",
    "nand.planes=2",
    "channels=2",
    "parallel_units=2",
    "over_provisioning=0.5",
    "reclaim_below=0.2",
    "nand.capacity=3MiB",
    "raw_capacity=6MiB",
    "reclaim=background",
];

#[test]
fn the_drive_begins_full_and_keeps_no_entry_for_a_page_that_the_run_does_not_write() {
    let all = |op| paced(&(0..384).map(|page| (op, page * PAGE, PAGE)).collect::<Vec<_>>());
    let read = ran("hybrid-42", &[], &TINY, all(Op::Read));
    let unused = ran("hybrid-42", &[], &TINY, Vec::new());
    assert_eq!(read.host.counts.host_reads, 384);
    assert_eq!(read.device.drive().memory_bytes(), unused.device.drive().memory_bytes());
    // Every page once: each plane rewrites its 6 blocks of initial data, and moves no page for that.
    let written = ran(
        "hybrid-42",
        &["dram.size=8KiB"],
        &TINY,
        [all(Op::Write), vec![at(500 * IDLE, Op::Flush, 0, 0)]].concat(),
    );
    let counts = written.host.counts;
    assert_eq!((counts.host_programs, counts.erases, counts.move_programs), (384, 48, 0));
    // Pages written again and again leave no more room than the reserve: it must be collected.
    let random = (0..3000u64).map(|n| (Op::Write, n * 7919 % 384 * PAGE, PAGE)).collect::<Vec<_>>();
    let again = ran("hybrid-42", &["dram.size=8KiB"], &TINY, paced(&random));
    assert!(again.host.counts.erases > 300, "{}", again.host.counts.erases);
}

#[test]
fn reads_are_served_by_the_part_of_the_page_in_the_buffer_and_by_the_destage_queue() {
    let partial = ran(
        "hybrid-42",
        &[],
        &[],
        paced(&[(Op::Write, 0, 1024), (Op::Read, 0, 2048), (Op::Read, 4096, 512)]),
    );
    assert_eq!((partial.counts.read_hits_partial, partial.host.counts.host_reads), (1, 2));
    let queued = vec![
        at(0, Op::Write, 0, PAGE),
        at(IDLE, Op::Write, PAGE, PAGE),
        at(IDLE + 100_000_000, Op::Read, 0, PAGE),
    ];
    let ran = ran("hybrid-42", &["dram.size=8KiB"], &[], queued);
    assert_eq!((ran.counts.read_hits_queue, ran.host.counts.host_reads), (1, 0));
}

#[test]
fn a_write_that_evicts_waits_while_the_destage_queue_is_full_and_a_hit_does_not() {
    let write = |time, page: u64| at(time, Op::Write, page * PAGE, PAGE);
    let requests =
        || vec![write(0, 0), write(IDLE, 1), write(IDLE + 50_000_000, 2), write(IDLE + 60_000_000, 1)];
    let small = ["dram.size=8KiB", "destage_queue=1"];
    let waits = ran("hybrid-42", &small, &[], requests());
    let program = waits.ssd.nand.idle_latency(NandOp::Program, 1).0;
    // Page 0 is read, then programmed; page 2 arrives 50 us after it and takes its place behind page 1.
    let expected = 4_352_000 + program - 50_000_000 + 2 * 4_352_000;
    assert_eq!((waits.host.write.max_ns * 1e3).round() as u64, expected);
    assert_eq!(waits.counts.waits_for_queue, 1);
    assert_eq!(waits.counts.write_hits_dram, 1);
    let room = ran("hybrid-42", &["dram.size=8KiB"], &[], requests());
    assert_eq!((room.host.write.max_ns * 1e3).round() as u64, 2 * 4_352_000);
    let synchronous = ran(
        "hybrid-42",
        &["dram.size=8KiB", "destage=synchronous"],
        &[],
        paced(&[(Op::Write, 0, PAGE), (Op::Write, PAGE, PAGE)]),
    );
    assert_eq!((synchronous.host.write.max_ns * 1e3).round() as u64, 4_352_000 + program);
}

#[test]
fn lifetime_is_size_times_endurance_over_the_rate_of_writes_and_the_shorter_one_counts() {
    let requests: Vec<_> = (0..200).map(|n| (Op::Write, n % 50 * PAGE, PAGE)).collect();
    let ran = ran("pcm-80", &["pcm.size=80KiB"], &[], paced(&requests));
    let report = ran.device.report(ran.host.time);
    let hours = ran.host.time.seconds() / 3600.0;
    let pcm = 10.0 * 1e7 / 200.0 * hours;
    let flash_pages = ran.ssd.raw_bytes().0 as f64 / PAGE as f64;
    let flash = flash_pages * 3000.0 / ran.host.counts.programs() as f64 * hours;
    let near = |found: Option<f64>, expected: f64| {
        assert!((found.unwrap() / expected - 1.0).abs() < 1e-9, "{found:?} {expected}")
    };
    near(report.lifetime.pcm_hours, pcm);
    near(report.lifetime.flash_hours, flash);
    near(report.lifetime.hours, pcm.min(flash));
    assert_eq!(ran.counts.pcm_page_writes, 200);
    assert_eq!(ran.preset.pcm.endurance, Some(10_000_000));
}

#[test]
fn wrong_presets_are_refused_with_the_reason() {
    let registry = Registry::builtin().unwrap();
    let error = |set: &[&str]| {
        let config = SystemConfig {
            overrides: set.iter().map(|text| (*text).to_owned()).collect(),
            ..SystemConfig::new(System::SsdBuffer)
        };
        let none = std::iter::empty::<Result<Request, SimError>>();
        run(&registry, &config, none, &RunOptions::default()).map(|_: RunResult| ()).unwrap_err().to_string()
    };
    for (set, expected) in [
        (&["scheme=dram-only"][..], "dram-only needs dram.size more than 0 and pcm.size 0"),
        (&["hot_threshold=9"], "must be 1 to 8"),
        (&["destage_queue=100000"], "must be 1 to 65536"),
        (&["drive.nand.raed=30us"], "did you mean `drive.nand.read`"),
        (&["promoting_wrte=pcm"], "did you mean `promoting_write`"),
        (&["dram.page=4KiB"], "dram.page and pcm.page must be equal"),
        (&["dram.page=4KiB", "pcm.page=4KiB"], "they must be equal"),
        (&["drive.write_cache=true", "drive.data_cache=1MiB"], "the drive's only one"),
        (&["dram.size=9000B"], "must be a whole number of pages"),
    ] {
        let text = error(set);
        assert!(text.contains(expected), "{set:?}: {text}");
    }
}

/// Performs 600 random requests, which come at their time or, if not `open`, one after the other, and holds the books of the buffer
/// and of the drive against each other.
fn keeps_its_books(set: &[&str], open: bool, seed: u64) {
    let registry = Registry::builtin().unwrap();
    let preset: WriteBuffer = registry.get_with("buffer.hybrid-4-80", set).unwrap();
    let reclaim = if open { "reclaim=foreground" } else { "reclaim=background" };
    let small: Vec<&str> = TINY[..10].iter().copied().chain([reclaim]).collect();
    let ssd: Ssd = registry.get_with("ssd.hybrid-buffer", &small).unwrap();
    let options = SsdOptions { writes_assume_written: true, ..SsdOptions::default() };
    let mut device = BufferedSsd::new(&preset, &ssd, &options, 1).unwrap();
    let requests = workload(seed, 600, device.capacity().0, open).into_iter().map(Ok);
    let options = HostOptions { per_thread: 4, ..HostOptions::default() };
    let host = drive(&mut device, requests, &options).unwrap();
    assert_eq!(host.measured, 600);
    device.check().unwrap();
}

#[test]
fn a_write_waits_for_programs_whose_blocks_can_be_reclaimed_only_afterwards() {
    // Padded blocks of a plane are programmed at once, so that none of its blocks can be reclaimed for a while.
    for (seed, pages, queue, partial, destage, keep) in [
        (27, 34, 6, "merge", "synchronous", "published"),
        (186, 16, 3, "fetch", "queued", "published"),
        (189, 37, 3, "fetch", "synchronous", "published"),
        (389, 33, 1, "merge", "synchronous", "never"),
        (612, 34, 4, "merge", "queued", "published"),
        (791, 39, 5, "fetch", "synchronous", "never"),
    ] {
        let set = [
            "scheme=dram-only",
            "pcm.size=0B",
            "policy=bplru",
            "padding=true",
            "period=4",
            &format!("dram.size={}B", pages * PAGE),
            &format!("destage_queue={queue}"),
            &format!("partial_write={partial}"),
            &format!("destage={destage}"),
            &format!("keep_reads={keep}"),
        ];
        keeps_its_books(&set, true, seed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn every_buffer_keeps_its_books_under_any_load(
        seed in any::<u64>(),
        scheme in prop::sample::select(vec!["dram-only", "dram-only", "dram-only", "pcm-only", "2l", "ts", "tp"]),
        (dram, pcm) in (1u64..40, 1u64..60),
        period in 4u64..64,
        hotness in prop::sample::select(vec!["adaptive", "scaled", "literal", "fixed"]),
        coolness in prop::sample::select(vec!["adaptive", "literal", "off"]),
        endurance in prop::sample::select(vec![1_000u64, 100_000_000, 100_000_000_000]),
        queue in 1u64..8,
        flags in any::<[bool; 7]>(),
        policy in prop::sample::select(vec!["lru", "cflru", "lru-wsr", "ccf-lru", "fab", "bplru"]),
        keep_reads in prop::sample::select(vec!["published", "always", "never"]),
        open in any::<bool>(),
    ) {
        let word = |flag: bool, yes: &'static str, no: &'static str| if flag { yes } else { no };
        let set = [
            format!("scheme={scheme}"),
            format!("dram.size={}B", if scheme == "pcm-only" { 0 } else { dram * PAGE }),
            format!("pcm.size={}B", if scheme == "dram-only" { 0 } else { pcm * PAGE }),
            format!("period={period}"), format!("hotness={hotness}"), format!("coolness={coolness}"),
            format!("pcm.endurance={endurance}"), format!("destage_queue={queue}"),
            format!("promoting_write={}", word(flags[0], "dram", "pcm")),
            format!("pcm_hit={}", word(flags[1], "in-place", "move")),
            format!("partial_write={}", word(flags[2], "merge", "fetch")),
            format!("destage={}", word(flags[3], "queued", "synchronous")),
            format!("access_charge={}", word(flags[4], "page", "sectors")),
            format!("period_of={}", word(flags[5], "writes", "accesses")),
            format!("policy={}", if scheme == "dram-only" { policy } else { "lru" }),
            format!("keep_reads={}", if scheme == "dram-only" { keep_reads } else { "published" }),
            format!("padding={}", flags[6]),
        ];
        keeps_its_books(&set.each_ref().map(String::as_str), open, seed);
    }
}
