//! Conservation laws of every run, over random configurations and workloads, and determinism.

use std::collections::HashMap;

use deepram_media::{Picos, Registry, Ssd};
use deepram_sim::host::{Device, Dispatch, HostOptions, drive};
use deepram_sim::ssd::{ParallelSsd, Precondition, SerialSsd, SsdOptions};
use deepram_sim::{RunOptions, SimError, System, SystemConfig, run};
use deepram_trace::workload::Rng;
use deepram_trace::{Op, Request};
use proptest::prelude::*;

/// Random requests, which come at their time or, if not `open`, one after the other.
pub(crate) fn workload(seed: u64, count: u64, capacity: u64, open: bool) -> Vec<Request> {
    let mut random = Rng::new(seed, "workload");
    let mut now = 0;
    (0..count)
        .map(|_| {
            now += random.below(400_000_000);
            let len = 512 * (1 + random.below(40));
            let offset = random.below((capacity - len) / 512) * 512;
            let op = match random.below(20) {
                0 => Op::Trim,
                1 => Op::Flush,
                2..=7 => Op::Read,
                _ => Op::Write,
            };
            Request { time_ps: open.then_some(now), device: 0, offset, len, op }
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn the_channel_machine_keeps_its_books_in_any_configuration(
        seed in any::<u64>(),
        channels in 1u64..4,
        ways in 1u64..3,
        dies in 1u64..4,
        units in 1u64..4,
        registers in 1u64..3,
        planes in 1u64..3,
        pages in 4u64..40,
        spare in 0.25f64..0.5,
        victim in prop::sample::select(vec!["greedy", "greedy-of-random", "cost-benefit"]),
        reclaim in prop::sample::select(vec!["foreground", "background"]),
        spread in prop::sample::select(vec!["cwdp", "cwpd", "cdwp", "cpwd", "wcdp", "pcwd"]),
        cached in any::<bool>(),
        buffered in any::<bool>(),
        copy_back in any::<bool>(),
        wear in any::<bool>(),
        suspend in any::<bool>(),
        first in any::<bool>(),
        urgent in any::<bool>(),
        hot in any::<bool>(),
        queue in 0u32..4,
        depth in 1u32..9,
        open in any::<bool>(),
    ) {
        let mut overrides = vec![
            format!("channels={channels}"), format!("packages_per_channel={ways}"), format!("nand.dies={dies}"),
            format!("nand.planes={planes}"), format!("nand.pages_per_block={pages}"),
            "nand.blocks_per_plane=24".to_owned(), format!("over_provisioning={spare}"),
            format!("victim={victim}"), format!("reclaim={reclaim}"), format!("spread={spread}"),
            "reclaim_below=0.15".to_owned(), format!("copy_back={copy_back}"),
            format!("static_wear_levelling={wear}"), "wear_delta=3".to_owned(),
            "nand.suspend_program=10us".to_owned(), format!("parallel_units={}", units.min(dies)),
            // Two registers require that each die works independently.
            format!("nand.registers={}", if units < dies { 1 } else { registers }),
        ];
        if cached {
            overrides.push("mapping_in_memory=false".into());
            overrides.push("mapping_cache=128B".into());
            overrides.push("mapping_entry=64B".into());
        }
        if buffered {
            overrides.push("data_cache=64KiB".into());
            overrides.push("write_cache=true".into());
        }
        let list: Vec<&str> = overrides.iter().map(String::as_str).collect();
        let ssd: Ssd = Registry::builtin().unwrap().get_with("mqsim-s8", &list).unwrap();
        let options = SsdOptions {
            suspend_programs: suspend, suspend_erases: suspend, commands_first: first, reclaim_first: urgent,
            buffer_hot_window: Picos(if hot { 100_000_000_000 } else { 0 }),
            die_queue: queue, write_reserve: 2, reads_assume_written: !open, ..SsdOptions::default()
        };
        let mut device = ParallelSsd::new(&ssd, &options, seed).unwrap();
        let requests = workload(seed, 1500, device.capacity().0, open);
        let host = HostOptions { per_thread: depth, ..HostOptions::default() };
        match drive(&mut device, requests.iter().copied().map(Ok), &host) {
            Ok(measured) => {
                prop_assert_eq!(measured.issued, 1500);
                prop_assert_eq!(measured.completed, 1500);
                let c = measured.counts;
                prop_assert_eq!(c.programs(), c.host_programs + c.move_programs + c.mapping_programs);
            }
            // A tiny plane may fill up when the mapping takes its share.
            Err(SimError::Full { .. }) => {}
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        }
    }

    #[test]
    fn the_element_machine_keeps_its_books_in_any_configuration(
        seed in any::<u64>(),
        channels in 1u64..4,
        planes in 1u64..5,
        pages in 3u64..20,
        stride in 1u64..4,
        units in any::<bool>(),
        summary in any::<bool>(),
        open in any::<bool>(),
        cyclic in any::<bool>(),
    ) {
        let mut overrides = vec![
            format!("channels={channels}"), format!("nand.planes={planes}"), format!("nand.pages_per_block={pages}"),
            "nand.blocks_per_plane=32".to_owned(), "over_provisioning=0.3".to_owned(), "reclaim_below=0.1".to_owned(),
            format!("stride={stride}"), format!("parallel_units={}", if units { planes } else { 1 }),
        ];
        if summary {
            overrides.push("block_summary=528B".into());
        }
        let list: Vec<&str> = overrides.iter().map(String::as_str).collect();
        let ssd: Ssd = Registry::builtin().unwrap().get_with("disksim-ssd", &list).unwrap();
        let mut device = SerialSsd::new(&ssd).unwrap();
        let requests = workload(seed, 3000, device.capacity().0 / 2, open);
        let dispatch = if cyclic { Dispatch::Cyclic } else { Dispatch::Fifo };
        let host = HostOptions { per_thread: 5, dispatch, ..HostOptions::default() };
        match drive(&mut device, requests.iter().copied().map(Ok), &host) {
            Ok(measured) => prop_assert_eq!((measured.issued, measured.completed), (3000, 3000)),
            // A tiny plane may fill up with live pages of other threads.
            Err(SimError::Full { .. }) => {}
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        }
    }
}

/// Preconditioning results in the requested state.
#[test]
fn preconditioning_maps_the_share_asked_for() {
    let ssd: Ssd = Registry::builtin().unwrap().get("mqsim-s8").unwrap();
    for (state, share) in [(Precondition::Sequential(0.5), 0.5), (Precondition::Steady(0.7), 0.7)] {
        let options = SsdOptions { precondition: state, ..SsdOptions::default() };
        let mut device = ParallelSsd::new(&ssd, &options, 3).unwrap();
        let pages = device.capacity().0 / ssd.nand.page.0;
        device.check().unwrap();
        let trim = Request { time_ps: None, device: 0, offset: 0, len: device.capacity().0, op: Op::Trim };
        let measured = drive(&mut device, [Ok(trim)].into_iter(), &HostOptions::default()).unwrap();
        assert_eq!(measured.counts.trimmed_pages, (pages as f64 * share) as u64);
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes_in_any_order_of_runs_and_another_seed_others() {
    let registry = Registry::builtin().unwrap();
    let json = |seed: u64, preset: &str| {
        let mut config = SystemConfig::new(System::Ssd);
        config.preset = preset.into();
        config.ssd.precondition = Precondition::Steady(0.5);
        config.overrides = vec!["victim=greedy-of-random".into()];
        let options = RunOptions {
            seed,
            workload: "test".into(),
            host: HostOptions { per_thread: 8, interval: Picos(1_000_000_000), ..HostOptions::default() },
        };
        let requests = workload(seed, 20_000, 4 << 30, false);
        let result = run(&registry, &config, requests.into_iter().map(Ok), &options).unwrap();
        (result.to_json().unwrap(), result.to_csv(), result.to_table())
    };
    let first = json(1, "mqsim-s8");
    let other = json(2, "mqsim-s8");
    assert_eq!(json(1, "mqsim-s8"), first);
    assert_ne!(first.0, other.0);
    for key in
        ["config_digest", "write_amplification", "p9999_ns", "energy_total_nj", "lifetime_years", "seed"]
    {
        assert!(first.0.contains(key), "{key}");
    }
}

/// Counts the distinct pages written and not trimmed, next to a device that checks its own pages' versions.
#[test]
fn every_completed_write_is_where_the_map_says() {
    // The device's own check compares each mapped page with the contents last written to its flash page. Here the
    // number of distinct pages ever written and not trimmed must equal the number of mapped pages.
    let ssd: Ssd = Registry::builtin()
        .unwrap()
        .get_with("mqsim-s8", &["nand.blocks_per_plane=32", "nand.pages_per_block=16", "raw_capacity=64MiB"])
        .unwrap();
    let options = SsdOptions { reads_assume_written: false, ..SsdOptions::default() };
    let mut device = ParallelSsd::new(&ssd, &options, 1).unwrap();
    let page = ssd.nand.page.0;
    let requests = workload(77, 20_000, device.capacity().0 * 3 / 4, false);
    let mut model: HashMap<u64, bool> = HashMap::new();
    for request in &requests {
        let (first, end) = (request.offset / page, (request.offset + request.len).div_ceil(page));
        match request.op {
            Op::Write => (first..end).for_each(|n| {
                model.insert(n, true);
            }),
            Op::Trim => {
                (request.offset.div_ceil(page)..(request.offset + request.len) / page).for_each(|n| {
                    model.remove(&n);
                })
            }
            _ => {}
        }
    }
    drive(&mut device, requests.into_iter().map(Ok), &HostOptions::default()).unwrap();
    let before = device.counts().trimmed_pages;
    let trim = Request { time_ps: None, device: 0, offset: 0, len: device.capacity().0, op: Op::Trim };
    drive(&mut device, [Ok(trim)].into_iter(), &HostOptions::default()).unwrap();
    assert_eq!(device.counts().trimmed_pages - before, model.len() as u64);
}

#[test]
fn memory_does_not_grow_with_the_number_of_requests() {
    let shape = ["nand.blocks_per_plane=64", "nand.pages_per_block=32", "raw_capacity=256MiB"];
    let ssd: Ssd = Registry::builtin().unwrap().get_with("mqsim-s8", &shape).unwrap();
    let options = SsdOptions { precondition: Precondition::Steady(0.7), ..SsdOptions::default() };
    let mut device = ParallelSsd::new(&ssd, &options, 1).unwrap();
    let pages = device.capacity().0 / ssd.nand.page.0;
    let host = HostOptions { per_thread: 16, ..HostOptions::default() };
    let mut run = |count: u64| {
        let mut random = Rng::new(count, "test");
        let requests = (0..count).map(|_| {
            let offset = random.below(pages * 7 / 10) * ssd.nand.page.0;
            Ok(Request { time_ps: None, device: 0, offset, len: ssd.nand.page.0, op: Op::Write })
        });
        drive(&mut device, requests, &host).unwrap();
        device.memory_bytes()
    };
    let settled = run(50_000);
    // Lists of a few dozen entries may still grow a little.
    let later = run(500_000);
    assert!(later < settled + 4096, "{later} after {settled}");
}
