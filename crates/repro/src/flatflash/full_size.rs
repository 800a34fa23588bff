//! Compares scaled runs with runs at the paper's sizes. The tests take minutes and gigabytes, so they run
//! on request: `cargo test --release -p deepram-repro full_size -- --ignored --nocapture`.

use std::sync::Arc;

use deepram_media::Registry;

use super::machine::{MACHINES, RunContext};
use super::{filesystem, gups, latency};
use crate::error::ReproError;
use crate::experiment::Settings;
use crate::simulation_run::{Metrics, SimulationRun};

const SETTINGS: Settings = Settings { quick: false, seed: 1 };

/// Metrics of the runs by their names, carried out on two threads.
fn results(
    build: impl Fn(RunContext<'_>) -> Result<Vec<SimulationRun>, ReproError>,
) -> Vec<(String, Metrics)> {
    let registry = Arc::new(Registry::builtin().unwrap());
    let runs = build(RunContext::plain(&SETTINGS, &registry)).unwrap();
    let carry_out = |runs: &[SimulationRun]| -> Vec<(String, Metrics)> {
        runs.iter().map(|run| (run.name.clone(), run.execute().unwrap())).collect()
    };
    let (some, others) = runs.split_at(runs.len() / 2);
    std::thread::scope(|scope| {
        let some = scope.spawn(|| carry_out(some));
        let others = carry_out(others);
        [some.join().unwrap(), others].concat()
    })
}

/// Checks that the baselines' metric over FlatFlash's differs by at most `tolerance` between a scaled run
/// and one at full size. `name` gives a run's name from its machine's.
fn check(
    full: &[(String, Metrics)],
    scaled: &[(String, Metrics)],
    metric: &str,
    name: impl Fn(&str) -> String,
    tolerance: f64,
) {
    let of = |results: &[(String, Metrics)], machine: &str| {
        let (_, metrics) = results.iter().find(|(run, _)| *run == name(machine)).unwrap();
        metrics.0[metric]
    };
    for (machine, _) in &MACHINES[1..] {
        let ratio = |results| of(results, machine) / of(results, "flatflash");
        let (full, scaled) = (ratio(full), ratio(scaled));
        println!("{}: {full:.3} at full size, {scaled:.3} scaled", name(machine));
        assert!((scaled / full - 1.0).abs() <= tolerance, "{}: {full} and {scaled}", name(machine));
    }
}

#[test]
#[ignore = "minutes and gigabytes"]
fn scaled_latencies_are_those_at_full_size() {
    let at = |scale| results(move |context| latency::runs(context, latency::Extent::of_largest(scale)));
    let (full, scaled) = (at(1), at(latency::SCALE));
    for pattern in latency::PATTERNS {
        check(&full, &scaled, "latency.mean_ns", |machine| latency::largest(pattern, machine), 0.05);
    }
}

#[test]
#[ignore = "minutes and gigabytes"]
fn scaled_updates_take_the_time_of_those_at_full_size() {
    let at = |scale| results(move |context| gups::runs(context, gups::Extent::of_named(scale)));
    check(&at(1), &at(gups::SCALE), "simulated_time_ns", gups::named, 0.05);
}

#[test]
#[ignore = "minutes and gigabytes"]
fn scaled_file_creations_take_the_time_of_those_at_full_size() {
    let at = |variant: filesystem::Variant, amount| {
        results(|context| filesystem::creations(&SETTINGS, context.registry, &variant, amount))
    };
    // Both go through the journal equally often: a file system writes its structures back when the journal is full.
    let (warm_up, measured) = filesystem::amount(&SETTINGS);
    let amount = (filesystem::SCALE * warm_up, filesystem::SCALE * measured);
    let full = at(filesystem::Variant::full_size(), amount);
    let scaled = at(filesystem::Variant::default(), (warm_up, measured));
    for fs in filesystem::FILE_SYSTEMS {
        check(&full, &scaled, "simulated_time_ns", |machine| filesystem::name(machine, fs, "create"), 0.1);
    }
}
