//! Checks Table 2: each step on the simulated machine takes as long as the paper measured. Each run has
//! a few requests, of which the last is measured; a step is a latency or the difference of two.

use std::sync::Arc;

use deepram_media::Registry;
use deepram_trace::{Op, Request};

use super::machine::{GIB, Machine, MachineConfig, RunSpec, load};
use crate::chart::Table;
use crate::error::ReproError;
use crate::experiment::{Experiment, FinishedRuns, Outcome, Settings};
use crate::number::plain;

/// Sets and ways of the TLB: pages that are `TLB_SETS` apart share a set.
const TLB_SETS: u64 = 128;
const TLB_WAYS: u64 = 8;

/// A load of one line of a page.
fn line(page: u64, line: u64) -> Request {
    load(page * 4096 + line * 64, 64)
}

/// Name, machine, preset overrides, requests.
type Case = (&'static str, Machine, &'static [&'static str], Vec<Request>);

fn cases() -> Vec<Case> {
    let store = Request { op: Op::Write, ..line(0, 1) };
    let mut forgotten = vec![line(0, 0)];
    forgotten.extend((1..=TLB_WAYS).map(|n| line(n * TLB_SETS, 0)));
    forgotten.push(line(0, 1));
    // DRAM has one frame, so page 0 has been evicted to the SSD-Cache (device buffer).
    let fault = vec![line(0, 0), line(1, 0), line(0, 1)];
    vec![
        ("read", Machine::FlatFlash, &[], vec![line(0, 0), line(0, 1)]),
        ("write", Machine::FlatFlash, &[], vec![line(0, 0), store]),
        ("walk", Machine::FlatFlash, &[], forgotten),
        ("dram", Machine::Unified, &[], vec![line(0, 0), line(0, 1)]),
        ("fault", Machine::Unified, &[], fault.clone()),
        ("fault without entry", Machine::Unified, &["pte_update=0us"], fault),
    ]
}

/// Builds the experiment.
pub(super) fn experiment(settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let mut runs = Vec::new();
    for (name, machine, overrides, requests) in cases() {
        // The processor's cache would serve these lines, so it is disabled.
        let overrides = overrides.iter().chain(&["cpu_cache=0B"]).map(|text| (*text).into()).collect();
        let base = MachineConfig { overrides, ..MachineConfig::default() };
        let setting = RunSpec {
            name: name.into(),
            machine,
            drive: 32 * GIB,
            dram: 4096,
            scale: 1,
            threads: 1,
            warm_up: requests.len() as u64 - 1,
            base: &base,
            seed: settings.seed,
        };
        let what = format!("{requests:?}");
        runs.push(setting.run(registry, &what, 0, move || requests.clone().into_iter())?);
    }
    let about = "Latencies of the simulated machine that isolate one step of Table 2, alone or as the \
                 difference of two. The cycle of the promotion look-aside buffer and the DRAM access are \
                 smaller than the digits given.";
    Ok(Experiment::new("constants", "Costs of Table 2", about, runs, evaluate))
}

fn evaluate(finished: &FinishedRuns<'_>) -> Result<Outcome, ReproError> {
    let us = |name: &str| Ok::<_, ReproError>(finished.metric(name, "latency.mean_ns")? / 1e3);
    let (read, fault) = (us("read")?, us("fault")?);
    let walk = us("walk")? - read;
    let bare = us("fault without entry")?;
    let mut outcome = Outcome::default();
    let mut rows = Vec::new();
    for (name, what, paper, ours) in [
        ("read", "read of a line from the drive's memory", 4.8, read),
        ("write", "write of a line to the drive's memory", 0.6, us("write")?),
        ("promote", "promotion of a page to DRAM", 12.1, bare - walk - us("dram")?),
        ("entry", "update of page-table and TLB entry", 1.4, fault - bare),
        ("walk", "page-table walk", 0.7, walk),
    ] {
        outcome.metrics.set(format!("cost_us.{name}"), ours);
        rows.push(vec![what.into(), plain(paper), plain(ours)]);
    }
    let headings = ["", "paper, µs", "simulated, µs"].map(str::to_owned).to_vec();
    outcome.tables.push(Table { title: "Table 2".into(), headings, rows });
    Ok(outcome)
}
