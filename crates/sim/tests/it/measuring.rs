//! Counters, energy and hit ratios cover only the time after the warm-up.
//!
//! No access is under way when the warm-up ends: the last access of each half hits, long after the previous access. So the
//! figures of a run of both halves, minus those of a run of the first half, equal a run whose warm-up is the first half.

use std::collections::BTreeMap;

use deepram_media::{Bytes, Picos, Processor, Registry};
use deepram_sim::host::{HostOptions, drive};
use deepram_sim::processor::{ProcessorOptions, ThreadReferences, warm_up_first};
use deepram_sim::{RunOptions, RunResult, SimError, System, SystemConfig, run, run_threads};
use deepram_trace::workload::Rng;
use deepram_trace::{MemRef, MemoryAccess, Op, Request};
use serde_json::Value;

use crate::processor::fake::Fake;

const HALF: usize = 500;
const SEED: u64 = 11;
const SYSTEMS: [System; 4] = [System::Dram, System::Nvmm, System::Ssd, System::SsdPaging];

fn config(system: System) -> SystemConfig {
    let mut config = SystemConfig::new(system);
    if system == System::Nvmm {
        config.overrides = vec!["channel_energy=2pJ/bit".into()];
    }
    config.nvmm.capacity = Bytes(64 << 20);
    config.nvmm.cache = Bytes(1 << 20);
    config.paging.memory = Bytes(1 << 20);
    config
}

/// Returns offsets in 8 MiB, and whether each access writes. The last access of each half reads the previous offset again.
fn places() -> Vec<(u64, bool)> {
    let mut random = Rng::new(SEED, "places");
    let mut places: Vec<(u64, bool)> =
        (0..2 * HALF).map(|_| (random.below((8 << 20) / 64) * 64, random.below(10) < 3)).collect();
    for end in [HALF, 2 * HALF] {
        places[end - 1] = (places[end - 2].0, false);
    }
    places
}

fn by_requests(system: System, count: usize, warm_up: usize) -> RunResult {
    let host =
        HostOptions { warm_up: warm_up as u64, think: Picos(20_000_000_000), ..HostOptions::default() };
    let requests = places().into_iter().take(count).map(|(offset, write)| {
        let op = if write { Op::Write } else { Op::Read };
        Ok::<_, SimError>(Request { time_ps: None, device: 0, offset, len: 64, op })
    });
    let options = RunOptions { host, seed: SEED, ..RunOptions::default() };
    run(&Registry::builtin().unwrap(), &config(system), requests, &options).unwrap()
}

fn by_threads(system: System, count: usize, warm_up: usize) -> RunResult {
    let registry = Registry::builtin().unwrap();
    let preset: Processor = registry.get("processor.nvmm-host").unwrap();
    let mut processor = ProcessorOptions::new(&preset).unwrap();
    processor.blocking = true;
    let references = places().into_iter().take(count).map(|(addr, write)| {
        let access = if write { MemoryAccess::Store } else { MemoryAccess::Load };
        Ok::<_, SimError>(MemRef { gap: 200_000_000, addr, size: 8, access }.into())
    });
    let threads = warm_up_first(vec![Box::new(references) as ThreadReferences<'static>], warm_up as u64);
    let options = RunOptions { seed: SEED, ..RunOptions::default() };
    run_threads(&registry, &config(system), threads, &processor, &options).unwrap()
}

/// Returns every figure of a result that is additive over the halves.
fn sums(result: &RunResult) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for part in &result.energy {
        sums.insert(format!("{} dynamic", part.component), part.dynamic_nj);
    }
    for hit in &result.hit_ratios {
        sums.insert(format!("{} hits", hit.level), hit.hits as f64);
        sums.insert(format!("{} lookups", hit.level), hit.lookups as f64);
    }
    let mut add = |what: &str, value: Value| {
        for (name, value) in value.as_object().into_iter().flatten() {
            if let Some(number) = value.as_f64() {
                sums.insert(format!("{what} {name}"), number);
            }
        }
    };
    add("counter", Value::Object(result.counters.clone()));
    add("dram", serde_json::to_value(result.dram).unwrap());
    add("flash", serde_json::to_value(result.flash.as_ref().map(|flash| flash.by_cause)).unwrap());
    if let Some(times) = result.counters.get("fault_times") {
        sums.insert("faults timed".into(), times["total"]["count"].as_f64().unwrap());
    }
    sums
}

fn check_halves(name: &str, of: impl Fn(usize, usize) -> RunResult) {
    let (both, first, second) = (of(2 * HALF, 0), of(HALF, 0), of(2 * HALF, HALF));
    let (whole, before, after) = (sums(&both), sums(&first), sums(&second));
    assert_eq!(whole.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>(), "{name}");
    let mut moved = 0;
    for (what, all) in &whole {
        let (expected, found) = (all - before[what], after[what]);
        let near = (found - expected).abs() <= 1e-9 * all.abs();
        assert!(near, "{name}, seed {SEED}, {what}: {found} after the warm-up, not {all} - {}", before[what]);
        moved += u64::from(before[what] > 0.0 && expected > 0.0);
    }
    assert!(moved >= 4, "{name}: only {moved} figures differ between the halves");
    let fixed = |result: &RunResult| result.energy.iter().map(|part| part.static_nj).sum::<f64>();
    let power = |result: &RunResult| fixed(result) / result.simulated_time_ns;
    assert!((power(&second) / power(&both) - 1.0).abs() < 1e-9, "{name}: static energy follows time");
}

fn check_all_cold(name: &str, result: &RunResult) {
    for (what, found) in sums(result) {
        assert!(found == 0.0, "{name}: {what} is {found} though all was warm-up");
    }
    let sum: f64 = result.energy.iter().map(|part| part.static_nj).sum();
    assert_eq!(result.energy_total_nj, sum, "{name}");
}

#[test]
fn a_warm_up_of_requests_is_left_out_of_every_book() {
    for system in SYSTEMS {
        check_halves(system.name(), |count, warm_up| by_requests(system, count, warm_up));
    }
}

#[test]
fn a_warm_up_of_references_is_left_out_of_every_book() {
    for system in [System::Dram, System::Nvmm, System::SsdPaging] {
        check_halves(system.name(), |count, warm_up| by_threads(system, count, warm_up));
    }
}

#[test]
fn a_run_that_is_all_warm_up_takes_static_energy_alone() {
    for system in SYSTEMS {
        // The warm-up is as long as the run, and longer.
        for warm_up in [2 * HALF, 3 * HALF] {
            check_all_cold(system.name(), &by_requests(system, 2 * HALF, warm_up));
        }
    }
}

#[test]
fn at_a_barrier_no_thread_goes_on_before_the_last_request_of_the_warm_up_has_completed() {
    let sent = |barrier: bool| {
        let mut device = Fake { write: 1000, ..Fake::stalling(100) };
        // Three requests of warm-up, of which the first takes longest.
        let requests = [Op::Write, Op::Read, Op::Read, Op::Read, Op::Read]
            .map(|op| Ok::<_, SimError>(Request { time_ps: None, device: 0, offset: 0, len: 64, op }));
        let options = HostOptions { threads: 2, warm_up: 3, barrier, ..HostOptions::default() };
        let result = drive(&mut device, requests.into_iter(), &options).unwrap();
        (device.log.iter().map(|(time, _)| *time).collect::<Vec<u64>>(), result.time.0, result.measured)
    };
    assert_eq!(sent(true), (vec![0, 0, 100, 1000, 1000], 100, 2));
    assert_eq!(sent(false).0, [0, 0, 100, 200, 300]);
}
