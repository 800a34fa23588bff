//! TPC-C on a database with a buffer pool and a central log (Figure 11).

use std::sync::Arc;

use deepram_media::{Picos, Registry};
use deepram_sim::clients::ClientOptions;
use deepram_sim::{RunOptions, run_clients};
use deepram_trace::Workload;
use serde_json::json;

use super::sensitivity::Assumptions;
use super::{MEDIA, TABLE_IV, config, ratio_chart, ratios};
use crate::error::ReproError;
use crate::experiment::{Experiment, FinishedRuns, Outcome, Settings};
use crate::simulate::workload_error;
use crate::simulation_run::{Metrics, SimulationRun};

const PROCEDURE: &str = "pmem tpcc";
const NAME: &str = "tpcc";
/// nvmm-opt and nvmm-raw with flushes of unmapped files, too.
const ALWAYS: [(&str, &str); 2] = [("always-raw", "nvmm-raw"), ("always-opt", "nvmm-opt")];
/// Clients.
const CLIENTS: u32 = 100;

/// The runs of these presets.
pub(super) fn runs(
    study: &Assumptions,
    presets: &[&str],
    settings: &Settings,
    registry: &Arc<Registry>,
) -> Result<Vec<SimulationRun>, ReproError> {
    let (warehouses, stored) = settings.pick((100, "9.5GB"), (2, "190MB"));
    let divisor = settings.pick(1, 20) * study.shorter;
    let (warm_up, transactions) = (4_000 / divisor, 8_000 / divisor);
    let spec = format!("tpcc:warehouses={warehouses},page=16KiB,log=10MiB");
    let mut runs = Vec::new();
    for preset in presets {
        // DRAM is larger than the paper's 8 GB, which does not hold the data on tmpfs.
        let mut set: Vec<String> =
            ["mapped=0B", "pool=1GiB", "page_cache=16GiB", "warm=true"].map(String::from).into();
        set.push(format!("stored={stored}"));
        set.push(format!("program={}", study.access_program));
        set.extend(study.tpcc.iter().chain(&study.all).cloned());
        let always = ALWAYS.iter().find(|(name, _)| name == preset);
        if always.is_some() {
            set.push("fsync_flush=always".into());
        }
        let system = config(always.map_or(preset, |(_, own)| own), &set);
        let name = format!("{NAME}.{preset}");
        let wrong = |source| ReproError::Config { what: name.clone(), source: Box::new(source) };
        let digests = system.digests(registry).map_err(wrong)?;
        let seed = settings.seed;
        let clients = ClientOptions {
            clients: study.clients.unwrap_or(CLIENTS),
            work: Picos(1),
            warm_up,
            transactions,
            ..ClientOptions::default()
        };
        let identity = json!({
            "presets": digests, "system": format!("{system:?}"), "clients": format!("{clients:?}"), "workload": spec, "seed": seed,
        });
        let (registry, spec) = (Arc::clone(registry), spec.clone());
        let run = name.clone();
        runs.push(SimulationRun::new(name, PROCEDURE, identity, move || {
            let failed = |source| ReproError::Simulation { run: run.clone(), source: Box::new(source) };
            let source = Workload::new(&spec, seed).map_err(|error| failed(workload_error(&error)))?;
            let options = RunOptions { seed, ..RunOptions::default() };
            let result = run_clients(&registry, &system, source, &clients, &options).map_err(failed)?;
            let value = serde_json::to_value(&result)
                .map_err(|error| ReproError::Run { run: run.clone(), why: error.to_string() })?;
            Ok(Metrics::of_json(&value, &["config", "seed", "intervals", "response"]))
        }));
    }
    Ok(runs)
}

/// The metrics of claims.
pub(super) fn metrics(finished: &FinishedRuns<'_>, outcome: &mut Outcome) -> Result<(), ReproError> {
    for base in ["ext4-ssd", "ext4-disk", "tmpfs"] {
        ratios(finished, outcome, (NAME, &["nvmm-opt"], base))?;
    }
    ratios(finished, outcome, (NAME, &["always-opt"], "always-raw"))?;
    let of = |key: &str| 100.0 * (outcome.metrics.0[key] - 1.0);
    let (dram, gain) = (of("tpcc.nvmm-opt.over.tmpfs"), of("tpcc.always-opt.over.always-raw"));
    outcome.metrics.set("opt.over_dram_percent", dram);
    outcome.metrics.set("always.opt.over_raw_percent", gain);
    Ok(())
}

/// The presets of the claims.
pub(super) const CLAIMED: [&str; 6] =
    ["nvmm-opt", "ext4-ssd", "ext4-disk", "tmpfs", "always-raw", "always-opt"];

/// Builds the experiment.
pub(super) fn experiment(
    study: &Assumptions,
    settings: &Settings,
    registry: &Arc<Registry>,
) -> Result<Experiment, ReproError> {
    let presets = [&TABLE_IV[..], &MEDIA, &ALWAYS.map(|(name, _)| name)].concat();
    let runs = runs(study, &presets, settings, registry)?;
    let about = "100 warehouses and 100 clients on 16 cores. The buffer pool has 1 GiB, the page cache 16 GiB. Files are accessed by \
                 calls, so that an fsync on persistent memory flushes no line; in always-raw and always-opt it flushes those of the \
                 log that were written.";
    Ok(Experiment::new("tpcc", "TPC-C (Figure 11)", about, runs, move |finished| {
        let mut outcome = Outcome::default();
        metrics(finished, &mut outcome)?;
        ratios(finished, &mut outcome, (NAME, &TABLE_IV, "pdram"))?;
        ratios(finished, &mut outcome, (NAME, &presets, "tmpfs"))?;
        let of = |key: &str| outcome.metrics.0[&format!("tpcc.{key}.over.pdram")];
        let effects = [1.0 - of("pm-lat"), of("pm-lat") - of("pm-bw")].map(|loss| 100.0 * loss);
        outcome.metrics.set("latency.loss_percent", effects[0]);
        outcome.metrics.set("bandwidth.loss_percent", effects[1]);
        ratio_chart(&mut outcome, "TPC-C", &[NAME], &presets, ("tmpfs", true));
        Ok(outcome)
    }))
}
