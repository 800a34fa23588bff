//! The server with a disk cache: times and energies against closed forms, counts against core's cache run
//! by itself, conservation, wear.

use deepram_core::disk_cache::{Cause, FlashReads, NoErrors, PhysicalPage, ReadErrors, ReadOutcome, Step};
use deepram_core::reliability::{Density, FlashPage};
use deepram_media::{Bytes, DiskCacheServer, NandOp, Picos, Registry};
use deepram_sim::disk_cache::{CacheCounts, DiskCacheDevice, WearingFlash, untimed_cache};
use deepram_sim::host::{Device, HostOptions, HostResult, drive};
use deepram_sim::{RunOptions, RunResult, SimError, System, SystemConfig, run};
use deepram_trace::workload::Rng;
use deepram_trace::{Op, Request};
use proptest::prelude::*;

const PAGE: u64 = 2048;
/// Time between requests that leaves the device idle: 100 ms.
const IDLE: u64 = 100_000_000_000;
/// Figures of a small server without periodic passes: 16 pages of DRAM, 8 blocks of flash.
const SMALL: [&str; 5] =
    ["dram_cache=32KiB", "flash=2MiB", "write_back_period=0s", "flush_period=0s", "network=1000GB/s"];

fn server(preset: &str, set: &[&str]) -> DiskCacheServer {
    Registry::builtin().unwrap().get_with(&format!("server.{preset}"), set).unwrap()
}

fn small(set: &[&str]) -> DiskCacheServer {
    let all: Vec<&str> = SMALL.iter().chain(set).copied().collect();
    server("flash-256m-1g", &all)
}

fn at(time_ps: Option<u64>, op: Op, offset: u64, len: u64) -> Request {
    Request { time_ps, device: 0, offset, len, op }
}

/// A request of a page each 100 ms.
fn paced(requests: &[(Op, u64)]) -> Vec<Request> {
    let paced = requests.iter().zip(0..);
    paced.map(|(&(op, page), index)| at(Some(index * IDLE), op, page * PAGE, PAGE)).collect()
}

fn ran(
    server: &DiskCacheServer,
    requests: Vec<Request>,
    options: &HostOptions,
) -> (HostResult, DiskCacheDevice) {
    let mut device = DiskCacheDevice::new(server, 1).unwrap();
    let host = drive(&mut device, requests.into_iter().map(Ok), options).unwrap();
    device.check().unwrap();
    (host, device)
}

/// The time of the last request of a paced run, in picoseconds.
fn last_time(server: &DiskCacheServer, requests: &[(Op, u64)]) -> u64 {
    let mut options = HostOptions { warm_up: requests.len() as u64 - 1, ..HostOptions::default() };
    options.barrier = false;
    let (host, _) = ran(server, paced(requests), &options);
    (host.response.max_ns * 1e3).round() as u64
}

/// DRAM time of a page on idle DRAM, measured by a hit.
fn dram_time(server: &DiskCacheServer) -> u64 {
    last_time(server, &[(Op::Read, 1), (Op::Read, 1)])
}

#[test]
fn idle_reads_take_the_times_of_dram_of_flash_with_its_decoder_and_of_the_disk() {
    let base = small(&["errors.base=none"]);
    let hit = dram_time(&base);
    // 32 bursts of 64 B at 5.3 GB/s, and a row to open.
    assert!((300_000..900_000).contains(&hit), "{hit}");
    let near =
        |found: u64, expected: u64| assert!(found.abs_diff(expected) < 200_000, "{found}, not {expected}");
    near(last_time(&base, &[(Op::Read, 7)]), base.disk.random(Bytes(PAGE), false).0 + hit);
    // Sixteen further pages push page 0 out of DRAM.
    let mut requests: Vec<(Op, u64)> = (0..17).map(|page| (Op::Read, 10 * page)).collect();
    requests.push((Op::Read, 0));
    for (set, strength, nand) in [
        (vec![], 1, &base.mlc),
        (vec!["controller=fixed", "strength=7"], 7, &base.mlc),
        (vec!["controller=fixed", "strength=12", "density=slc"], 12, &base.slc),
    ] {
        let server = small(&[&["errors.base=none"], set.as_slice()].concat());
        let flash = nand.idle_latency(NandOp::Read, 1).0 + server.ecc.decode(Bytes(PAGE), strength).0;
        near(last_time(&server, &requests), flash + hit);
    }
    // Without the code's latency the difference of strengths is that of the decoding times alone.
    let proportional = small(&["errors.base=none", "ecc.base=flash-cache-proportional"]);
    near(last_time(&proportional, &requests), base.mlc.idle_latency(NandOp::Read, 1).0 + 33_300_000 + hit);
    // Software and network.
    let slow = small(&["errors.base=none", "software=40us", "network=1MB/s"]);
    near(last_time(&slow, &[(Op::Read, 1), (Op::Read, 1)]), 40_000_000 + hit + 2_048_000_000);
}

#[test]
fn a_sequential_read_of_the_disk_needs_no_seek_and_a_partial_write_reads_its_page() {
    let base = small(&[]);
    let hit = dram_time(&base);
    let sequential = last_time(&base, &[(Op::Read, 7), (Op::Read, 8)]);
    assert!(sequential.abs_diff(base.disk.sequential(Bytes(PAGE)).0 + hit) < 200_000, "{sequential}");
    let (host, device) = ran(&base, vec![at(None, Op::Write, 100, 50)], &HostOptions::default());
    assert_eq!((device.cache_counts().fetches, device.cache_counts().misses), (1, 1));
    assert!((host.write.mean_ns * 1e3) as u64 > base.disk.random(Bytes(PAGE), false).0);
    let (_, device) = ran(&base, vec![at(None, Op::Write, 0, PAGE)], &HostOptions::default());
    assert_eq!((device.cache_counts().fetches, device.cache_counts().misses), (0, 0));
}

#[test]
fn a_standby_disk_starts_first() {
    let set = ["standby=true", "standby_after=10ms", "spin_up=2s"];
    let (running, stopped) = (small(&[]), small(&set));
    let requests = [(Op::Read, 0), (Op::Read, 500)];
    assert_eq!(last_time(&stopped, &requests), last_time(&running, &requests) + 2_000_000_000_000);
    let (_, device) = ran(&stopped, paced(&requests), &HostOptions::default());
    assert_eq!(device.report(Picos(1)).disk_spin_ups, 1);
}

fn result(server_set: &[&str], preset: &str, requests: Vec<Request>) -> RunResult {
    let config = SystemConfig {
        preset: preset.into(),
        overrides: server_set.iter().map(|set| (*set).to_owned()).collect(),
        ..SystemConfig::new(System::DiskCache)
    };
    let requests = requests.into_iter().map(Ok::<_, SimError>);
    run(&Registry::builtin().unwrap(), &config, requests, &RunOptions::default()).unwrap()
}

#[test]
fn energy_is_operations_times_theirs_plus_power_times_the_span() {
    let set: Vec<&str> = SMALL.iter().copied().chain(["errors.base=none"]).collect();
    // 18 misses and one hit of flash.
    let mut requests: Vec<(Op, u64)> = (0..18).map(|page| (Op::Read, 10 * page)).collect();
    requests.push((Op::Read, 0));
    let result = result(&set, "flash-256m-1g", paced(&requests));
    let server = server("flash-256m-1g", &set);
    let ps = result.simulated_time_ns * 1e3;
    let part = |name: &str| {
        let part = result.energy.iter().find(|part| part.component == name).unwrap();
        (part.dynamic_nj * 1e3, part.static_nj * 1e3)
    };
    let near = |(found, rest): (f64, f64), expected: (f64, f64)| {
        assert!((found - expected.0).abs() <= 1e-9 * expected.0.max(1.0), "{found} {expected:?}");
        assert!((rest - expected.1).abs() <= 1e-9 * expected.1.max(1.0), "{rest} {expected:?}");
    };
    near(part("flash read"), (server.mlc.energy(NandOp::Read).0, 0.0));
    near(part("flash program"), (18.0 * server.mlc.energy(NandOp::Program).0, 0.0));
    near(part("flash erase"), (0.0, 0.0));
    near(part("flash standby"), (0.0, 4.0 * server.mlc.standby_power().0 * ps));
    let disk = &server.disk;
    let (seek, rest) = (disk.position(false).0 as f64, disk.sequential(Bytes(PAGE)).0 as f64);
    // The first request is at the head's place at no time; all of them seek.
    let access = 18.0 * (disk.seek.0 * seek + disk.operating.0 * rest);
    near(part("disk"), (access, disk.idle.0 * (ps - 18.0 * (seek + rest))));
    let counters = &result.counters;
    let watts = |key: &str| counters[key].as_f64().unwrap();
    assert!((watts("disk_access_power_w") - access / ps).abs() < 1e-9);
    let all: f64 = result.energy.iter().map(|part| part.dynamic_nj + part.static_nj).sum();
    let power = watts("memory_power_w") + watts("disk_power_w");
    assert!((power - all * 1e3 / ps).abs() < 1e-9 * power, "{power}");
    // 19 pages of payload.
    let rate = watts("network_bytes_per_s");
    assert!((rate - 19.0 * 2048.0 / (ps * 1e-12)).abs() < 1e-3, "{rate}");
    // DRAM reads 64 B bursts: one hit of flash reads none, 18 fills read 32 each.
    let dram = result.dram.unwrap();
    assert_eq!((dram.read_bursts, dram.write_bursts), (18 * 32, 19 * 32));
}

#[test]
fn the_work_behind_the_last_request_is_not_counted() {
    // 2000 dirty pages far from each other: a pass over them takes the disk 9 seconds.
    let mut set: Vec<&str> = SMALL[..2].to_vec();
    set.extend(["write_back_period=10ms", "flush_period=1s", "errors.base=none"]);
    let requests = (0..2000).map(|page| at(None, Op::Write, 10 * page * PAGE, PAGE)).collect();
    let result = result(&set, "flash-256m-1g", requests);
    let disk = &server("flash-256m-1g", &set).disk;
    let seconds = result.simulated_time_ns * 1e-9;
    let part = result.energy.iter().find(|part| part.component == "disk").unwrap();
    let joules = (part.dynamic_nj + part.static_nj) * 1e-9;
    // The disk takes no more than its greatest power over the run, but for the request under way at the end.
    assert!(joules <= disk.seek.0 * (seconds + 0.01), "{joules} J in {seconds} s");
}

#[test]
fn a_server_without_flash_sends_misses_and_dirty_pages_to_the_disk() {
    let set = ["dram_cache=8KiB", "write_back_period=1s"];
    let requests: Vec<Request> = {
        let mut requests = paced(&[0, 1, 2, 3, 4, 0, 4].map(|page| (Op::Write, page)));
        requests.push(at(Some(30 * IDLE), Op::Read, 4 * PAGE, PAGE));
        requests
    };
    let base = server("dram-512m", &set);
    let (host, device) = ran(&base, requests.clone(), &HostOptions::default());
    let did = device.cache_counts();
    assert_eq!((did.page_writes, did.write_hits, did.misses), (7, 1, 0));
    // Two pages left DRAM dirty; a pass wrote the other four before the last request.
    assert_eq!((did.direct_writes, did.write_backs, host.counts.programs()), (6, 0, 0));
    assert!(!device.report(host.time).flash_dead && device.report(host.time).disk_pages_written == 6);
    let result = result(&set, "dram-512m", requests);
    assert!(result.energy.iter().all(|part| !part.component.starts_with("flash")));
}

/// A random closed-loop workload of whole pages.
fn workload(seed: u64, count: u64, span: u64, reads: f64) -> Vec<Request> {
    let mut random = Rng::new(seed, "workload");
    let page = |random: &mut Rng| {
        let near = random.chance(0.5);
        random.below(if near { span.div_ceil(8) } else { span })
    };
    (0..count)
        .map(|_| {
            let op = if random.chance(reads) { Op::Read } else { Op::Write };
            at(None, op, page(&mut random) * PAGE, PAGE)
        })
        .collect()
}

/// The counts of core's cache, run by itself on a workload of pages.
fn untimed(server: &DiskCacheServer, requests: &[Request]) -> [u64; 9] {
    let mut cache = untimed_cache(server).unwrap();
    let (mut steps, mut counts) = (Vec::new(), [0; 9]);
    for request in requests {
        let page = (request.offset / PAGE) as u32;
        if request.op == Op::Read {
            let level = match cache.read(page, &mut NoErrors, &mut steps) {
                ReadOutcome::Dram => 0,
                ReadOutcome::Flash(_) => 1,
                ReadOutcome::Disk { .. } => 2,
            };
            counts[level] += 1;
        } else {
            counts[3] += u64::from(cache.write(page, &mut NoErrors, &mut steps));
        }
        cache.reclaim(&mut NoErrors, &mut steps);
        for step in steps.drain(..) {
            match step {
                Step::Program { cause: Cause::Fill, .. } => counts[4] += 1,
                Step::Program { .. } => counts[5] += 1,
                Step::Move { .. } => counts[6] += 1,
                Step::Erase(_) => counts[7] += 1,
                Step::Flush { .. } => counts[8] += 1,
                _ => {}
            }
        }
    }
    counts
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn in_time_the_cache_hits_and_moves_as_it_does_by_itself(
        seed in any::<u64>(),
        unified in any::<bool>(),
        all in any::<bool>(),
        reads in 0.2f64..0.9,
        share in 0.2f64..0.7,
        threads in 1u32..5,
        dies in 1u64..5,
    ) {
        let sets = [
            format!("regions={}", if unified { "unified" } else { "split" }),
            format!("reclaim={}", if all { "all" } else { "greedy" }),
            format!("write_share={share}"),
            format!("dies={dies}"),
        ];
        let mut set: Vec<&str> = sets.iter().map(String::as_str).collect();
        set.push("errors.base=none");
        let server = small(&set);
        let requests = workload(seed, 4_000, 2_500, reads);
        let expected = untimed(&server, &requests);
        let options = HostOptions { threads, ..HostOptions::default() };
        let (host, device) = ran(&server, requests, &options);
        let did = device.cache_counts();
        let moves = host.counts.move_programs;
        let found = [
            did.dram_hits, did.flash_hits, did.misses, did.write_hits, did.fills, did.write_backs, moves,
            host.counts.erases, did.flushes,
        ];
        prop_assert_eq!(found, expected);
        prop_assert_eq!(host.completed, 4_000);
        // Flash cannot be busier than all of its dies.
        let busy = device.cache_counts().flash_busy_ps;
        prop_assert!(busy > 0 && did.reclaim_busy_ps <= busy);
    }

    #[test]
    fn worn_flash_keeps_the_books_to_its_end(
        seed in any::<u64>(),
        fixed in any::<bool>(),
        by_page in any::<bool>(),
        transient in any::<bool>(),
        scale in prop::sample::select(vec!["100", "3000", "30000"]),
    ) {
        let scale = format!("wear_scale={scale}");
        let mut set = vec![scale.as_str(), "write_back_period=1ms", "flush_period=20ms", "hot_limit=8", "write_share=40%"];
        if fixed {
            set.push("controller=fixed");
        }
        if by_page {
            set.push("retirement=page");
        }
        if transient {
            set.push("errors.transient=0.0001");
        }
        let server = small(&set);
        let options = HostOptions { threads: 2, ..HostOptions::default() };
        let (host, device) = ran(&server, workload(seed, 3_000, 1_500, 0.5), &options);
        prop_assert_eq!(host.completed, 3_000);
        let did = device.cache_counts();
        prop_assert!(did.lost <= did.uncorrectable);
        if fixed {
            prop_assert_eq!((did.strengthened, did.faults_to_slc, did.hot_to_slc), (0, 0, 0));
        }
        if transient {
            prop_assert!(did.uncorrectable + did.second_reads > 0);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_one_other_flash() {
    let set = ["dram_cache=32KiB", "flash=2MiB", "wear_scale=2000"];
    let json = |seed| {
        let config = SystemConfig {
            overrides: set.map(str::to_owned).to_vec(),
            ..SystemConfig::new(System::DiskCache)
        };
        let options = RunOptions { seed, ..RunOptions::default() };
        let requests = workload(5, 3_000, 1_500, 0.5).into_iter().map(Ok::<_, SimError>);
        run(&Registry::builtin().unwrap(), &config, requests, &options).unwrap().to_json().unwrap()
    };
    assert_eq!(json(1), json(1));
    assert_ne!(json(1), json(2));
}

#[test]
fn writes_wait_when_too_many_pages_are_on_their_way_to_flash() {
    let requests = || (0..400).map(|page| at(None, Op::Write, page * PAGE, PAGE)).collect::<Vec<_>>();
    let options = HostOptions { threads: 4, ..HostOptions::default() };
    let short = small(&["write_back_queue=4", "errors.base=none"]);
    let (host, device) = ran(&short, requests(), &options);
    let waits: CacheCounts = device.cache_counts();
    assert!(waits.waits > 300, "{}", waits.waits);
    // Four dies program a page in 900 us and more: the writes cannot go faster than that.
    let least = (400 - 16 - 8) as f64 / 4.0 * short.mlc.program.0 as f64 / 1e3;
    assert!(host.time_ns > least, "{} {least}", host.time_ns);
    let (fast, device) = ran(&small(&["write_back_queue=1000"]), requests(), &options);
    assert_eq!(device.cache_counts().waits, 0);
    assert!(fast.time_ns < least / 100.0);
}

#[test]
fn a_flush_of_the_host_waits_until_flash_has_all_dirty_pages() {
    let base = small(&["errors.base=none"]);
    let flush = at(Some(IDLE), Op::Flush, 0, 0);
    let mut requests: Vec<Request> = (0..4).map(|page| at(Some(0), Op::Write, page * PAGE, PAGE)).collect();
    requests.push(flush);
    let (host, device) = ran(&base, requests, &HostOptions::default());
    assert_eq!((device.cache_counts().write_backs, device.cache().dirty_in_dram()), (4, 0));
    // Four pages of one block, one after the other on a die.
    let program = base.mlc.interleaved_time(NandOp::Program, 4).0;
    let found = (host.response.max_ns * 1e3).round() as u64;
    assert!(found.abs_diff(program) < 2_000_000, "{found}, not {program}");
}

/// Reads a page of the flash at so many cycles.
fn read(flash: &mut WearingFlash, page: u32, density: Density, cycles: u32) -> ReadErrors {
    flash.read(PhysicalPage { page: FlashPage(page), block: 0, density, strength: 1 }, cycles)
}

#[test]
fn pages_wear_as_the_model_of_bit_errors_expects_and_as_every_controller_sees_them() {
    let server = small(&["errors.transient=0", "errors.retention_day=0", "errors.read_disturb=0"]);
    let pages = (server.blocks() * server.mlc.pages_per_block) as u32;
    let seed = 3;
    for (density, nand) in [(Density::Mlc, &server.mlc), (Density::Slc, &server.slc)] {
        let model = server.errors.of_pages(nand.endurance, PAGE * 8);
        let mut flash = WearingFlash::new(&server, seed);
        let mut again = WearingFlash::new(&server, seed);
        let mut before = vec![0; pages as usize];
        for share in [0.5, 1.0, 1.5, 2.0] {
            let cycles = (nand.endurance as f64 * share) as u32;
            let mut sum = 0.0;
            for page in 0..pages {
                let found = read(&mut flash, page, density, cycles);
                assert_eq!(found.errors, found.consistent);
                assert!(found.consistent >= before[page as usize], "seed {seed}");
                before[page as usize] = found.consistent;
                sum += f64::from(found.consistent);
            }
            // The mean over the factors of pages: quantiles in the middle of 1000 equal shares.
            let factors = server.errors.page_factors();
            let expected = (0..1000)
                .map(|share| {
                    model.expected_hard(cycles.into(), factors.quantile((f64::from(share) + 0.5) / 1000.0))
                })
                .sum::<f64>()
                / 1000.0;
            let mean = sum / f64::from(pages);
            let error = (3.0 * expected / f64::from(pages)).sqrt() * 3.0 + 0.02 * expected;
            assert!((mean - expected).abs() < error, "seed {seed}, {density:?}: {mean}, not {expected}");
        }
        // Another controller reads other pages first and sees the same bits.
        for page in (0..pages).rev() {
            let cycles = (nand.endurance as f64 * 2.0) as u32;
            assert_eq!(read(&mut again, page, density, cycles).consistent, before[page as usize]);
        }
    }
}

#[test]
fn single_level_cells_have_fewer_failed_bits_than_the_same_cells_with_two_bits() {
    let server = small(&[]);
    let mut flash = WearingFlash::new(&server, 1);
    let cycles = 4 * server.mlc.endurance as u32;
    let mlc = read(&mut flash, 0, Density::Mlc, cycles).consistent;
    let slc = read(&mut flash, 0, Density::Slc, cycles).consistent;
    assert!(mlc > 12 && slc == 0, "{mlc} {slc}");
}

#[test]
fn figures_that_do_not_fit_together_are_refused() {
    let registry = Registry::builtin().unwrap();
    for (set, word) in [
        ("dram_cache=1GiB", "at most the DRAM"),
        ("write_share=0", "write_share"),
        ("ecc.strongest=40", "does not fit into the spare bytes"),
        ("density=tlc", "slc or mlc"),
        ("mlc.pages_per_block=100", "twice as many"),
        ("network=0B/s", "at least 1 B/s"),
        ("controler=fixed", "controller"),
    ] {
        let error =
            registry.get_with::<DiskCacheServer>("server.flash-256m-1g", &[set]).unwrap_err().to_string();
        assert!(error.contains(word), "{set}: {error}");
    }
    let tiny = DiskCacheDevice::new(&small(&["flash=1MiB"]), 1).err().unwrap().to_string();
    assert!(tiny.contains("it needs 5 blocks"), "{tiny}");
}
