//! Accesses until all flash has failed, by controller (Figure 10). Without time.

use std::sync::Arc;

use deepram_media::{DiskCacheServer, Registry};
use deepram_sim::SimError;
use deepram_sim::disk_cache::{WearingFlash, untimed_cache};
use deepram_trace::{ObjectPlacement, Op, Workload};
use serde_json::json;

use super::{SERVER, server};
use crate::chart::Table;
use crate::error::ReproError;
use crate::experiment::{Experiment, Outcome, Settings};
use crate::number::plain;
use crate::simulate::workload_error;
use crate::simulation_run::{Metrics, SimulationRun};

const PROCEDURE: &str = "disk-cache lifetime";
/// Workloads: name and generator, over twice the flash.
const WORKLOADS: [(&str, &str); 5] = [
    ("uniform", "uniform:span=32MiB,read=0.5,size=2KiB"),
    ("exponential", "exponential:span=32MiB,read=0.5,size=2KiB"),
    ("zipf-0.8", "zipf:theta=0.8,span=32MiB,read=0.5,size=2KiB"),
    ("zipf-1.2", "zipf:theta=1.2,span=32MiB,read=0.5,size=2KiB"),
    ("zipf-1.2-reads", "zipf:theta=1.2,span=32MiB,read=0.8,size=2KiB"),
];
/// Controllers: name and settings. The first is the programmable one, the second the paper's comparison.
const CONTROLLERS: [(&str, &[&str]); 4] = [
    ("programmable", &[]),
    ("bch1", &["controller=fixed", "strength=1"]),
    ("bch12", &["controller=fixed", "strength=12"]),
    ("bch1-slc", &["controller=fixed", "strength=1", "density=slc"]),
];
/// Accesses between two passes over dirty pages of DRAM, and of flash.
const WRITE_BACK: u64 = 1 << 12;
const FLUSH: u64 = 1 << 16;
/// Accesses of one part of the workload; parts have seeds of their own.
const PART: u64 = 1 << 20;
/// No flash of these sizes lives longer.
const MOST: u64 = 1 << 34;

/// Runs a workload until the flash is dead.
fn live(server: &DiskCacheServer, workload: &str, seed: u64) -> Result<Metrics, SimError> {
    let mut cache = untimed_cache(server)?;
    let mut flash = WearingFlash::new(server, seed);
    let objects = ObjectPlacement { slot_bytes: 4096, slots: 1 << 20 };
    let mut steps = Vec::new();
    let (mut accesses, mut half) = (0u64, 0u64);
    let first = cache.flash().capacity_pages();
    let mut part = 0;
    while !cache.flash().is_dead() && accesses < MOST {
        part += 1;
        let items = Workload::new(&format!("{workload},count={PART}"), seed.wrapping_add(part))
            .map_err(|error| workload_error(&error))?;
        for item in items {
            let request = item.to_request(&objects);
            let page = (request.offset / server.mlc.page.0) as u32;
            accesses += 1;
            if request.op == Op::Write {
                cache.write(page, &mut flash, &mut steps);
            } else {
                cache.read(page, &mut flash, &mut steps);
            }
            if accesses.is_multiple_of(WRITE_BACK) {
                cache.write_back(u32::MAX, &mut flash, &mut steps);
                if half == 0 && cache.flash().capacity_pages() * 2 <= first {
                    half = accesses;
                }
            }
            if accesses.is_multiple_of(FLUSH) {
                cache.flush(u32::MAX, &mut flash, &mut steps);
            }
            cache.reclaim(&mut flash, &mut steps);
            steps.clear();
            if cache.flash().is_dead() {
                break;
            }
        }
    }
    let mut metrics = Metrics::new();
    metrics.set("accesses", accesses as f64);
    metrics.set("half_capacity_accesses", if half == 0 { accesses } else { half } as f64);
    Ok(metrics)
}

/// Builds the experiment.
pub(super) fn experiment(settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let scale = settings.pick("wear_scale=400", "wear_scale=2000");
    let seed = settings.seed;
    let mut runs = Vec::new();
    for (workload, spec) in WORKLOADS {
        for (controller, own) in CONTROLLERS {
            let base = ["flash=16MiB", "dram_cache=1MiB", "wear_difference=2", scale];
            let set: Vec<&str> = base.iter().chain(own).copied().collect();
            let server = server(registry, SERVER, &set)?;
            let config =
                json!({ "set": set, "server": format!("{server:?}"), "workload": spec, "seed": seed });
            let name = format!("{workload}.{controller}");
            let run = name.clone();
            runs.push(SimulationRun::new(name, PROCEDURE, config, move || {
                live(&server, spec, seed)
                    .map_err(|source| ReproError::Simulation { run: run.clone(), source: Box::new(source) })
            }));
        }
    }
    let about = "Accesses to a cache of 1 MiB of DRAM and 16 MiB of flash until too few blocks are left. Cells wear 400 times \
                 as fast as rated. All controllers see the same accesses and the same cells.";
    Ok(Experiment::new("lifetime", "Lifetime by controller (Figure 10)", about, runs, |finished| {
        let mut outcome = Outcome::default();
        let (mut rows, mut ratios) = (Vec::new(), Vec::new());
        for (workload, _) in WORKLOADS {
            let of = |controller: &str| finished.metric(&format!("{workload}.{controller}"), "accesses");
            let bch1 = of("bch1")?;
            ratios.push(of("programmable")? / bch1);
            let mut row = vec![workload.to_owned(), plain(bch1)];
            for (controller, _) in CONTROLLERS {
                let ratio = of(controller)? / bch1;
                outcome.metrics.set(format!("ratio.{workload}.{controller}"), ratio);
                row.push(plain(ratio));
            }
            row.push(plain(
                finished.metric(&format!("{workload}.programmable"), "half_capacity_accesses")?
                    / finished.metric(&format!("{workload}.bch1"), "half_capacity_accesses")?,
            ));
            rows.push(row);
        }
        let count = ratios.len() as f64;
        outcome.metrics.set("ratio.mean", ratios.iter().sum::<f64>() / count);
        outcome
            .metrics
            .set("ratio.geometric_mean", (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / count).exp());
        outcome
            .metrics
            .set("ratio.harmonic_mean", count / ratios.iter().map(|ratio| 1.0 / ratio).sum::<f64>());
        outcome.tables.push(Table {
            title: "Accesses until all flash has failed, over a code of one bit".into(),
            headings: [
                "workload",
                "one bit: accesses",
                "programmable",
                "one bit",
                "12 bits",
                "one bit, SLC",
                "programmable, half of the capacity",
            ]
            .map(String::from)
            .into(),
            rows,
        });
        Ok(outcome)
    }))
}
