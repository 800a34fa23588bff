//! The three systems of FlatFlash: closed forms of single accesses, promotion, persistence, and the value of every load
//! against the last store.

use deepram_media::{Bytes, Hierarchy, Picos, PresetKind, Registry};
use deepram_sim::flatflash::{AccessMode, FlatMemory, FlatOptions};
use deepram_sim::host::{HostOptions, HostResult, drive};
use deepram_sim::processor::{ProcessorOptions, workload_threads};
use deepram_sim::{RunOptions, RunResult, SimError, System, SystemConfig, requests, run, run_threads};
use deepram_trace::workload::Rng;
use deepram_trace::{ObjectPlacement, Op, Request, TraceError, Workload};
use proptest::prelude::*;

mod small;

pub(crate) use small::preset;

const WAYS: [AccessMode; 3] = [AccessMode::Promote, AccessMode::Page, AccessMode::Stack];
const SYSTEMS: [System; 3] = [System::FlatFlash, System::UnifiedMMap, System::TraditionalStack];

pub(crate) fn request(op: Op, offset: u64, len: u64) -> Request {
    Request { time_ps: None, device: 0, offset, len, op }
}

pub(crate) fn load(line: u64) -> Request {
    request(Op::Read, line * 64, 64)
}

pub(crate) fn store(line: u64) -> Request {
    request(Op::Write, line * 64, 64)
}

pub(crate) fn options(cpu_cache: bool) -> FlatOptions {
    FlatOptions { memory: Bytes(64 << 10), cpu_cache, verify: true, ..FlatOptions::default() }
}

fn drives(
    memory: &mut FlatMemory,
    all: &[Request],
    warm_up: u64,
    think_ps: u64,
) -> Result<HostResult, SimError> {
    let host = HostOptions { warm_up, think: Picos(think_ps), ..HostOptions::default() };
    drive(memory, all.iter().copied().map(Ok), &host)
}

/// Returns the response time, nanoseconds, of the last request. Each request comes a millisecond after the previous one.
pub(crate) fn last(preset: &Hierarchy, way: AccessMode, options: &FlatOptions, all: &[Request]) -> f64 {
    let mut memory = FlatMemory::new(preset, way, options, 1).unwrap();
    let measured = drives(&mut memory, all, all.len() as u64 - 1, 1_000_000_000).unwrap();
    assert_eq!(measured.measured, 1);
    measured.response.max_ns
}

fn near(found: f64, expected: f64, what: &str) {
    // Histograms keep three digits.
    assert!((found - expected).abs() <= expected * 2e-3 + 0.6, "{what}: {found} ns, not {expected}");
}

/// Returns bounds, nanoseconds, of a DRAM line on an idle bank: from a row hit to a row conflict during a refresh.
pub(crate) fn dram_bounds(preset: &Hierarchy) -> (f64, f64) {
    let dram = &preset.dram;
    let hit = dram.access(deepram_media::RowState::Hit, false).0 as f64 / 1e3;
    let conflict = dram.access(deepram_media::RowState::Conflict, false).0 as f64 / 1e3;
    (hit, conflict + dram.t_rfc.0 as f64 / 1e3)
}

#[test]
fn a_line_of_the_drive_takes_the_sum_of_the_papers_costs() {
    let preset = preset(&["max_threshold=255"]);
    for (cache, hit) in [(false, 0.0), (true, 15.4)] {
        let options = options(cache);
        let time = |all: &[Request]| last(&preset, AccessMode::Promote, &options, all);
        near(time(&[load(5)]), hit + 700.0 + 20_000.0 + 4_800.0, "from flash");
        near(time(&[load(5), load(6)]), hit + 4_800.0, "from the drive's memory");
        near(time(&[load(5), load(6), load(5)]), if cache { hit } else { 4_800.0 }, "again");
    }
    let uncached = options(false);
    let time = |all: &[Request]| last(&preset, AccessMode::Promote, &uncached, all);
    near(time(&[store(5)]), 700.0 + 600.0, "a posted store does not wait for flash");
    near(time(&[load(5), store(6)]), 600.0, "a posted store");
    // A store of a whole line to the processor's cache needs no fetch; a store of a part of a line does.
    let cached = options(true);
    near(last(&preset, AccessMode::Promote, &cached, &[store(5)]), 15.4 + 700.0, "a whole line stored");
    near(
        last(&preset, AccessMode::Promote, &cached, &[load(6), store(5)]),
        15.4,
        "a whole line stored, its page translated before",
    );
    let part = request(Op::Write, 5 * 64, 8);
    near(
        last(&preset, AccessMode::Promote, &cached, &[load(6), part]),
        15.4 + 4_800.0,
        "part of a line stored",
    );
}

#[test]
fn a_line_of_dram_takes_a_walk_at_most_beside_the_dram_itself() {
    let preset = preset(&["software.wait=0us"]);
    let (least, most) = dram_bounds(&preset);
    for way in WAYS {
        // Seven accesses promote the page; the eighth access is the first one to DRAM.
        let mut all: Vec<Request> = (0..8).map(load).collect();
        let walked = last(&preset, way, &options(false), &all);
        all.push(load(10));
        let held = last(&preset, way, &options(false), &all);
        assert!((least..=most).contains(&held), "{way:?}: {held} of {least} to {most}");
        if way == AccessMode::Promote {
            // The promotion has changed the page table entry, so the first access after it walks the page table. The
            // page is in DRAM, so this is not the walk that finds a page at the drive.
            let walk = preset.walk_dram.0 as f64 / 1e3;
            assert!(walk < 100.0);
            assert!((least + walk..=most + walk).contains(&walked), "{walked}");
        }
    }
}

#[test]
fn a_fault_takes_the_walk_flash_the_page_and_its_entry_and_in_the_stack_its_software_too() {
    let preset = preset(&["software.wait=0us"]);
    let (least, most) = dram_bounds(&preset);
    let unified = 700.0 + 20_000.0 + 12_100.0 + 1_400.0;
    let stack = unified + 2.0 * 700.0 + preset.software.path().0 as f64 / 1e3;
    for (way, fault) in [(AccessMode::Page, unified), (AccessMode::Stack, stack)] {
        let found = last(&preset, way, &options(false), &[load(5)]);
        assert!((fault + least - 1.0..=(fault + most) * 1.002).contains(&found), "{way:?}: {found}, {fault}");
    }
    // Page 0 has been evicted from the only frame, but the SSD-Cache still holds it, so the fault reads no flash.
    let one = FlatOptions { memory: Bytes(4096), ..options(false) };
    let found = last(&preset, AccessMode::Page, &one, &[load(0), load(64), load(1)]);
    let fault = unified - 20_000.0;
    assert!((fault + least - 1.0..=(fault + most) * 1.002).contains(&found), "{found}, {fault}");
}

#[test]
fn lines_on_their_way_to_the_drive_are_looked_up_and_those_of_dram_are_not() {
    let slow = preset(&["look_aside_lookup=1us"]);
    let time = |all: &[Request]| last(&slow, AccessMode::Promote, &options(false), all);
    near(time(&[load(5), load(6)]), 1_000.0 + 4_800.0, "a load");
    near(time(&[load(5), store(6)]), 1_000.0 + 600.0, "a store");
    let promoted: Vec<Request> = (0..9).map(load).collect();
    assert!(time(&promoted) < 1_000.0);
    assert!(last(&slow, AccessMode::Page, &options(false), &[load(0), load(64), load(65)]) < 1_000.0);
}

#[test]
fn a_page_that_moves_takes_its_lines_out_of_the_processors_cache() {
    // The first seven accesses use seven lines and store to two of them; the page is in DRAM at the eighth access.
    let mut all: Vec<Request> = (0..5).map(load).collect();
    all.extend([store(1), store(2), load(5), load(6)]);
    let preset = preset(&[]);
    let mut memory = FlatMemory::new(&preset, AccessMode::Promote, &options(true), 1).unwrap();
    all.extend([load(7), load(1)]);
    drives(&mut memory, &all, 0, 1_000_000_000).unwrap();
    let did = memory.flat_counts();
    assert_eq!((did.promotions, did.moved_lines, did.cpu_hits), (1, 7, 2), "{did:?}");
    // When the page is paged out, its lines leave the cache too, and their stores are written once, with the page.
    let one = FlatOptions { memory: Bytes(4096), ..options(true) };
    for way in [AccessMode::Page, AccessMode::Stack] {
        let mut memory = FlatMemory::new(&preset, way, &one, 1).unwrap();
        // The first store needs no fetch of its line, but still a fault for its page.
        drives(&mut memory, &[store(0), load(64), load(128), load(0)], 0, 1_000_000_000).unwrap();
        let did = memory.flat_counts();
        assert_eq!((did.faults, did.moved_lines, did.pages_to_drive), (4, 3, 1), "{way:?} {did:?}");
    }
}

#[test]
fn a_flush_takes_a_posted_store_for_each_line_and_a_read_behind_them() {
    let preset = preset(&[]);
    let persistent = FlatOptions { regions: std::iter::once(0..4096).collect(), ..options(true) };
    let flush = request(Op::Flush, 0, 0);
    let all = [load(0), store(3), store(4), flush];
    // The stores are posted one after the other; the read starts when the last store arrives.
    near(last(&preset, AccessMode::Promote, &persistent, &all), 600.0 + 600.0 + 4_800.0, "two lines");
    near(last(&preset, AccessMode::Promote, &persistent, &[load(0), flush]), 4_800.0, "nothing to flush");
    // The line is written back to DRAM, then the page to the drive.
    let (least, most) = dram_bounds(&preset);
    let page = last(&preset, AccessMode::Page, &persistent, &[load(0), store(3), flush]);
    // A durable page takes the drive's latency of a write, not the time of a promotion.
    assert!((20_000.0 + least - 1.0..=(20_000.0 + most) * 1.002).contains(&page), "a page: {page}");
    let elsewhere = [load(0), store(3 + 64), flush];
    near(last(&preset, AccessMode::Page, &persistent, &elsewhere), 0.0, "no page of the region");
}

pub(crate) fn counts(
    way: AccessMode,
    options: &FlatOptions,
    overrides: &[&str],
    all: &[Request],
) -> FlatMemory {
    let mut memory = FlatMemory::new(&preset(overrides), way, options, 1).unwrap();
    drives(&mut memory, all, 0, 1_000_000).unwrap();
    memory
}

#[test]
fn a_page_used_again_is_promoted_once_and_its_lines_come_from_dram_then() {
    let hot: Vec<Request> = (0..1000u64).map(|n| load(n * 7 % 64)).collect();
    let did = counts(AccessMode::Promote, &options(false), &[], &hot).flat_counts();
    assert_eq!((did.promotions, did.pages_to_host, did.faults), (1, 1, 0));
    // The drive serves the first seven accesses and those during the promotion.
    assert!((7..20).contains(&did.line_reads) && did.line_reads + did.dram_lines == 1000, "{did:?}");
    assert_eq!(did.inbound_lines, 64);
    // Pages accessed once are not promoted.
    let cold: Vec<Request> = (0..180).map(|page| load(page * 64)).collect();
    let did = counts(AccessMode::Promote, &options(false), &[], &cold).flat_counts();
    assert_eq!((did.promotions, did.line_reads), (0, 180));
    let did = counts(AccessMode::Page, &options(false), &[], &cold).flat_counts();
    assert_eq!((did.faults, did.pages_to_host), (180, 180));
}

#[test]
fn pages_of_a_persistent_region_are_never_promoted_and_do_not_count() {
    let region = 0..2 * 4096;
    let persistent = FlatOptions { regions: vec![region], ..options(false) };
    let hot: Vec<Request> = (0..2000u64).map(|n| store(n % 192)).collect();
    let memory = counts(AccessMode::Promote, &persistent, &[], &hot);
    let did = memory.flat_counts();
    // Only the third page lies outside the persistent region, so only it is promoted.
    assert_eq!((did.promotions, memory.threshold().1), (1, 0));
    assert!(did.line_writes > 1300, "{did:?}");
}

#[test]
fn stores_to_a_page_in_flight_go_to_dram_and_the_drives_lines_are_dropped() {
    let mut all: Vec<Request> = (0..7).map(load).collect();
    // During the promotion, the first lines of the page are being transferred, the last lines are not yet.
    all.extend((50..60).map(store));
    let mut memory =
        FlatMemory::new(&preset(&["promote=100us"]), AccessMode::Promote, &options(false), 1).unwrap();
    drives(&mut memory, &all, 0, 0).unwrap();
    let did = memory.flat_counts();
    assert_eq!(did.redirected_stores, 10, "{did:?}");
    // Five stores within 55 us, before their lines arrive, then loads until the promotion is complete.
    let mut all: Vec<Request> = (0..7).map(load).collect();
    all.extend((50..55).map(store));
    all.extend([load(50); 8]);
    let mut memory =
        FlatMemory::new(&preset(&["promote=100us"]), AccessMode::Promote, &options(false), 1).unwrap();
    drives(&mut memory, &all, 0, 10_000_000).unwrap();
    let did = memory.flat_counts();
    assert_eq!((did.redirected_stores, did.dropped_lines, did.inbound_lines), (5, 5, 59), "{did:?}");
}

#[test]
fn idle_dram_takes_pages_at_their_first_use_if_it_is_told_to() {
    // Each of 32 pages is accessed once, with gaps longer than a promotion; DRAM has 16 frames.
    let once: Vec<Request> = (0..32).map(|page| load(page * 64)).collect();
    for (fill, promotions) in [("fill_idle=false", 0), ("fill_idle=true", 16)] {
        let mut memory = FlatMemory::new(&preset(&[fill]), AccessMode::Promote, &options(false), 1).unwrap();
        drives(&mut memory, &once, 0, 1_000_000_000).unwrap();
        let did = memory.flat_counts();
        assert_eq!((did.promotions, did.demotions), (promotions, 0), "{fill}: {did:?}");
    }
}

#[test]
fn a_full_look_aside_buffer_defers_promotions() {
    let hot: Vec<Request> = (0..400u64).map(|n| load(n % 4 * 64 + n / 8)).collect();
    let did =
        counts(AccessMode::Promote, &options(false), &["look_aside=1", "promote=100us"], &hot).flat_counts();
    assert!(did.promotions_deferred > 0 && did.promotions == 4, "{did:?}");
    let did = counts(AccessMode::Promote, &options(false), &[], &hot).flat_counts();
    assert_eq!((did.promotions_deferred, did.promotions), (0, 4), "{did:?}");
}

#[test]
fn the_literal_algorithm_promotes_less_of_the_same() {
    let mut stream = Rng::new(1, "test");
    // A third of the accesses come while another page is being promoted; the literal algorithm does not count these.
    let all: Vec<Request> = (0..20_000).map(|_| load(stream.below(24) * 64 + stream.below(64))).collect();
    let tight = ["look_aside=1", "promote=100us"];
    let [decided, literal] = ["algorithm=decided", "algorithm=literal"].map(|algorithm| {
        let few = FlatOptions { memory: Bytes(8 * 4096), ..options(false) };
        counts(AccessMode::Promote, &few, &[tight[0], tight[1], algorithm], &all).flat_counts()
    });
    assert!(literal.promotions < decided.promotions, "{} and {}", literal.promotions, decided.promotions);
}

#[test]
fn writing_reclaims_blocks_collects_dirty_pages_and_tells_the_host_in_batches() {
    let mut stream = Rng::new(7, "test");
    let all: Vec<Request> = (0..20_000).map(|_| store(stream.below(192 * 64))).collect();
    for way in WAYS {
        let memory = counts(way, &options(false), &["look_aside=2"], &all);
        let did = memory.flat_counts();
        assert!(did.reclaims > 100 && did.destaged_by_reclaim > 0, "{way:?} {did:?}");
        assert!(memory.erased().map(u64::from).sum::<u64>() > 100);
        // In the stack the drive keeps the L2P map to itself, so the host gets no remap messages.
        assert_eq!(did.remap_batches > 0, way != AccessMode::Stack, "{way:?} {did:?}");
        assert!(did.remapped_pages >= did.remap_batches || way == AccessMode::Stack, "{did:?}");
    }
}

#[test]
fn a_drive_short_of_blocks_tells_early_so_that_no_place_in_use_is_erased() {
    let mut stream = Rng::new(8, "test");
    let all: Vec<Request> = (0..20_000).map(|_| store(stream.below(192 * 64))).collect();
    for way in [AccessMode::Promote, AccessMode::Page] {
        let did = counts(way, &options(false), &["remap_batch=100000"], &all).flat_counts();
        assert!(did.forced_batches > 10 && did.remap_batches == did.forced_batches, "{way:?} {did:?}");
    }
}

#[test]
fn the_tables_of_the_stack_take_memory_from_pages() {
    // The stack has two table entries of 64 B for each of the 192 pages: the tables take 6 of the 16 frames.
    let all: Vec<Request> = (0..4 * 192).map(|n| load(n % 192 * 64)).collect();
    let overrides = ["indirection_entry=64B"];
    let [page, stack] =
        [AccessMode::Page, AccessMode::Stack].map(|way| counts(way, &options(false), &overrides, &all));
    let left = |memory: &FlatMemory| {
        let did = memory.flat_counts();
        did.pages_to_host - did.demotions
    };
    assert_eq!((left(&page), left(&stack)), (16, 10));
}

#[derive(Debug, Clone, Copy)]
struct Step {
    op: u8,
    page: u64,
    line: u64,
    part: bool,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Half of the accesses go to a few pages.
    let page = prop_oneof![0..6u64, 0..192u64];
    let step = (0u8..40, page, 0..64u64, any::<bool>()).prop_map(|(op, page, line, part)| Step {
        op,
        page,
        line,
        part,
    });
    prop::collection::vec(step, 1..600)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn every_load_is_what_was_stored_last_wherever_the_page_has_been(
        steps in steps(),
        cpu_cache in any::<bool>(),
        frames in 1u64..20,
        look_aside in 1u64..5,
        threshold in 1u64..5,
        slow in any::<bool>(),
        frequency in any::<bool>(),
        persist in any::<bool>(),
        threads in 1u32..4,
    ) {
        let all: Vec<Request> = steps.iter().map(|step| {
            let offset = step.page * 4096 + step.line * 64;
            match step.op {
                0 => request(Op::Flush, 0, 0),
                1 => request(Op::Write, offset / 4096 * 4096, 4096),
                2..=19 if step.part => request(Op::Write, offset + 8, 8),
                2..=19 => store(offset / 64),
                _ => load(offset / 64),
            }
        }).collect();
        let look_aside = format!("look_aside={look_aside}");
        let threshold = format!("max_threshold={threshold}");
        let overrides = [
            look_aside.as_str(),
            threshold.as_str(),
            if slow { "promote=300us" } else { "promote=1us" },
            if frequency { "hit_policy=frequency" } else { "hit_policy=hit" },
        ];
        let preset = preset(&overrides);
        let regions = if persist { vec![4096..3 * 4096, 40 * 4096..50 * 4096] } else { Vec::new() };
        let options = FlatOptions { memory: Bytes(frames * 4096), cpu_cache, regions, verify: true };
        for way in WAYS {
            let mut memory = FlatMemory::new(&preset, way, &options, 1).unwrap();
            let host = HostOptions { threads, per_thread: 2, ..HostOptions::default() };
            let measured = drive(&mut memory, all.iter().copied().map(Ok), &host);
            prop_assert!(measured.is_ok(), "{:?}: {}", way, measured.unwrap_err());
            prop_assert_eq!(measured.unwrap().completed, all.len() as u64);
        }
    }
}

fn config(system: System) -> SystemConfig {
    let mut config = SystemConfig::new(system);
    config.preset = "p3700-32gib".into();
    config.flat.memory = Bytes(4 << 20);
    config
}

fn by_requests(system: System, workload: &str, seed: u64) -> RunResult {
    let registry = Registry::builtin().unwrap();
    let items = Workload::new(workload, seed).unwrap().map(Ok::<_, TraceError>);
    let objects = ObjectPlacement { slot_bytes: 0, slots: 0 };
    let options = RunOptions { seed, ..RunOptions::default() };
    run(&registry, &config(system), requests(items, objects), &options).unwrap()
}

#[test]
fn on_a_table_larger_than_dram_flatflash_moves_fewest_pages_and_is_fastest() {
    let results = SYSTEMS.map(|system| by_requests(system, "gups:table=64MiB,updates=20k", 1));
    let speed = results.each_ref().map(|result| result.throughput_requests_per_s);
    assert!(speed[0] > speed[1] && speed[1] > speed[2], "{speed:?}");
    let movements = results.each_ref().map(|result| result.counters["page_movements"].as_u64().unwrap());
    assert!(movements[0] < movements[1] && movements[1] <= movements[2], "{movements:?}");
    for result in &results {
        let levels: Vec<&str> = result.hit_ratios.iter().map(|hit| hit.level.as_str()).collect();
        assert_eq!(levels, ["cpu cache", "tlb", "host dram", "device buffer"]);
        assert!(result.flash.as_ref().unwrap().reads > 0 && result.latency.p99_ns > 0.0);
        assert!(result.cost.as_ref().unwrap().usd > 0.0);
        let count = |name: &str| result.counters[name].as_u64().unwrap();
        let buffer = result.hit_ratios[3].lookups - result.hit_ratios[3].hits - count("unread_pages");
        assert_eq!(buffer, result.flash.as_ref().unwrap().by_cause.host_reads);
        let bytes = count("pages_to_host") * 4096 + count("line_reads") * 64;
        assert_eq!(count("link_bytes_to_host"), bytes);
        let bytes = count("pages_to_drive") * 4096 + count("line_writes") * 64;
        assert_eq!(count("link_bytes_to_drive"), bytes);
    }
}

#[test]
fn every_preset_runs_as_each_of_the_three() {
    let registry = Registry::builtin().unwrap();
    let mut seen = 0;
    for entry in registry.list().iter().filter(|entry| entry.kind == PresetKind::Hierarchy) {
        for system in SYSTEMS {
            seen += 1;
            let config = SystemConfig { preset: entry.name.clone(), ..config(system) };
            let spread = (0..2000u64).map(|n| Ok(if n % 2 == 0 { load(n << 12) } else { store(n << 9) }));
            let result = run(&registry, &config, spread, &RunOptions::default()).unwrap();
            assert_eq!(result.requests, 2000, "{}", entry.name);
            assert!(result.energy_total_nj > 0.0 && result.to_table().contains(&entry.name));
        }
    }
    assert!(seen >= 9);
}

#[test]
fn the_same_seed_gives_the_same_bytes_by_requests_and_by_a_processor() {
    let registry = Registry::builtin().unwrap();
    let processor = ProcessorOptions::new(&registry.get("processor.nvmm-host").unwrap()).unwrap();
    let line = "zipf:span=64MiB,count=5k,size=64B,read=0.5";
    let by_threads = |system, seed| {
        let threads = workload_threads(line, seed, 2, 4).unwrap();
        let options = RunOptions { seed, ..RunOptions::default() };
        run_threads(&registry, &config(system), threads, &processor, &options).unwrap()
    };
    for system in SYSTEMS {
        let json = |seed| by_requests(system, line, seed).to_json().unwrap();
        assert_eq!(json(1), json(1), "{}", system.name());
        assert_ne!(json(1), json(2), "{}", system.name());
        let threads = |seed| by_threads(system, seed);
        assert_eq!(threads(1).to_json().unwrap(), threads(1).to_json().unwrap(), "{}", system.name());
        let result = threads(1);
        // The system's own cache is unused, since the processor front has its own.
        assert_eq!(result.hit_ratios[0].lookups, 0);
        assert!(result.processor.unwrap().ipc > 0.0);
    }
}

#[test]
fn what_cannot_be_is_an_error_that_says_what_would_be_right() {
    let registry = Registry::builtin().unwrap();
    let fail = |change: &dyn Fn(&mut SystemConfig)| {
        let mut config = config(System::FlatFlash);
        change(&mut config);
        let none = std::iter::empty::<Result<Request, SimError>>();
        run(&registry, &config, none, &RunOptions::default()).unwrap_err().to_string()
    };
    for (set, words) in [
        ("lokaside=3", "look_aside"),
        ("line_read=3", "unit"),
        ("algorithm=literally", "literal"),
        ("low_ratio=80%", "less than high_ratio"),
        ("nand.page=8KiB", "4 KiB"),
        ("over_provisioning=0.1%", "reserve_blocks"),
        ("tlb_ways=7", "divide"),
    ] {
        let error = fail(&|config| config.overrides = vec![set.into()]);
        assert!(error.contains(words), "{set}: {error}");
    }
    let error = fail(&|config| config.flat.memory = Bytes(1 << 40));
    assert!(error.contains("memory_bytes"), "{error}");
    let error = fail(&|config| config.flat.regions = std::iter::once(0..1 << 50).collect());
    assert!(error.contains("outside the memory of"), "{error}");
    assert!(System::parse("flat-flash").unwrap_err().to_string().contains("did you mean flatflash"));
}
