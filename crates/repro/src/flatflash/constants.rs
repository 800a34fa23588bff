//! Table 2: that the simulated machine takes for each step what the paper measured. A few requests each, of which the
//! last is measured, and differences of their times.

use std::sync::Arc;

use deepram_media::Registry;
use deepram_trace::{Op, Request};

use super::machine::{Base, GIB, Machine, Setting, load};
use crate::chart::Table;
use crate::error::ReproError;
use crate::experiment::{Experiment, Finished, Outcome, Settings};
use crate::number::plain;

/// Sets of the translations held: so many pages on, a page has the same set.
const TLB_SETS: u64 = 128;
const TLB_WAYS: u64 = 8;

/// A line of a page.
fn line(page: u64, line: u64) -> Request {
    load(page * 4096 + line * 64, 64)
}

/// Name, machine, figures set anew, requests.
type Case = (&'static str, Machine, &'static [&'static str], Vec<Request>);

fn cases() -> Vec<Case> {
    let store = Request { op: Op::Write, ..line(0, 1) };
    let mut forgotten = vec![line(0, 0)];
    forgotten.extend((1..=TLB_WAYS).map(|n| line(n * TLB_SETS, 0)));
    forgotten.push(line(0, 1));
    // DRAM has one frame: page 0 has left it, and is in the drive's memory.
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

/// The experiment.
pub(super) fn experiment(settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let mut runs = Vec::new();
    for (name, machine, anew, requests) in cases() {
        // Without the processor's cache, which would have the lines.
        let overrides = anew.iter().chain(&["cpu_cache=0B"]).map(|text| (*text).into()).collect();
        let base = Base { overrides, ..Base::default() };
        let setting = Setting {
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
    let about = "Latencies of the simulated machine in the cases that show one step of Table 2, alone or as the difference of \
                 two. The cycle of the look-aside buffer and the DRAM line are beneath the digits given.";
    Ok(Experiment::new("constants", "Costs of Table 2", about, runs, evaluate))
}

fn evaluate(finished: &Finished<'_>) -> Result<Outcome, ReproError> {
    let us = |name: &str| Ok::<_, ReproError>(finished.figure(name, "latency.mean_ns")? / 1e3);
    let (read, fault) = (us("read")?, us("fault")?);
    let walk = us("walk")? - read;
    let bare = us("fault without entry")?;
    let mut outcome = Outcome::default();
    let mut rows = Vec::new();
    for (name, what, paper, ours) in [
        ("read", "line read from the drive's memory", 4.8, read),
        ("write", "line written to it", 0.6, us("write")?),
        ("promote", "page to DRAM", 12.1, bare - walk - us("dram")?),
        ("entry", "page-table and TLB entry", 1.4, fault - bare),
        ("walk", "walk of the page table", 0.7, walk),
    ] {
        outcome.figures.set(format!("cost_us.{name}"), ours);
        rows.push(vec![what.into(), plain(paper), plain(ours)]);
    }
    let headings = ["", "paper, µs", "simulated, µs"].map(str::to_owned).to_vec();
    outcome.tables.push(Table { title: "Table 2".into(), headings, rows });
    Ok(outcome)
}
