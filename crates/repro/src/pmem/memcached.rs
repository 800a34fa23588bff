//! Memcached with its memory on persistent memory, under memtier's mixes (Figure 12).

use std::sync::Arc;

use deepram_media::Registry;
use deepram_sim::RunOptions;
use deepram_trace::workload::{Rng, mix64};
use deepram_trace::{Op, Request};

use super::sensitivity::Assumptions;
use super::{config, ratio_chart, ratios};
use crate::error::ReproError;
use crate::experiment::{Experiment, FinishedRuns, Outcome, Settings};
use crate::simulate;
use crate::simulation_run::SimulationRun;

/// Name of a mix, and its gets for each set.
const MIXES: [(&str, u64); 2] = [("1-6", 6), ("1-30", 30)];
const NAMES: [&str; 2] = ["1-6", "1-30"];
const PRESETS: [&str; 5] = ["pdram", "pm-lat", "pm-bw", "nvmm-raw", "tmpfs"];
/// Bytes of a bucket of the hash table, and of an item's slot: its header, key, and up to 500 bytes of data.
const BUCKET: u64 = 8;
const SLOT: u64 = 576;
const HEADER: u64 = 64;

/// The requests of a server: each operation loads a bucket, then loads or stores its item. An item has 10 to 500 bytes,
/// which depend on the key; keys are uniform.
fn operations(keys: u64, gets: u64, count: u64, seed: u64) -> impl Iterator<Item = Request> {
    let mut rng = Rng::new(seed, "memtier");
    (0..count).flat_map(move |_| {
        let key = rng.below(keys);
        let op = if rng.below(gets + 1) == 0 { Op::Write } else { Op::Read };
        let at = |op, offset, len| Request { time_ps: None, device: 0, offset, len, op };
        let hash = mix64(key);
        let items = (keys * BUCKET).next_multiple_of(4096);
        [at(Op::Read, hash % keys * BUCKET, BUCKET), at(op, items + key * SLOT, HEADER + 10 + hash % 491)]
    })
}

/// The runs of these presets.
pub(super) fn runs(
    study: &Assumptions,
    presets: &[&str],
    settings: &Settings,
    registry: &Arc<Registry>,
) -> Result<Vec<SimulationRun>, ReproError> {
    let keys = study.keys;
    let count = settings.pick(400_000, 4_000) / study.shorter;
    let mut runs = Vec::new();
    for (name, gets) in MIXES {
        for preset in presets {
            let mut set = vec![format!("program={}", study.cache_program)];
            set.extend(study.memcached.iter().chain(&study.all).cloned());
            let mut options = RunOptions { seed: settings.seed, ..RunOptions::default() };
            // The caches hold 40 MiB: two lines in five of 100,000 operations fill them.
            (options.host.threads, options.host.warm_up) = (study.cache_threads, count / 2);
            let what = format!("memtier: {keys} keys, 1 set to {gets} gets, {count} operations");
            let seed = settings.seed;
            let stream = move || operations(keys, gets, count, seed);
            runs.push(simulate::stream(
                &format!("{name}.{preset}"),
                registry,
                config(preset, &set),
                &what,
                options,
                stream,
            )?);
        }
    }
    Ok(runs)
}

/// The metrics of claims.
pub(super) fn metrics(finished: &FinishedRuns<'_>, outcome: &mut Outcome) -> Result<(), ReproError> {
    for name in NAMES {
        ratios(finished, outcome, (name, &["nvmm-raw"], "tmpfs"))?;
        let loss = 100.0 * (1.0 - outcome.metrics.0[&format!("{name}.nvmm-raw.over.tmpfs")]);
        outcome.metrics.set(format!("{name}.loss_percent"), loss);
    }
    Ok(())
}

/// Builds the experiment.
pub(super) fn experiment(
    study: &Assumptions,
    settings: &Settings,
    registry: &Arc<Registry>,
) -> Result<Experiment, ReproError> {
    let runs = runs(study, &PRESETS, settings, registry)?;
    let about = "Four threads of the server. One million keys exist; an operation loads a bucket of the hash table and then loads or \
                 stores an item. Nothing is flushed.";
    Ok(Experiment::new("memcached", "Memcached (Figure 12)", about, runs, |finished| {
        let mut outcome = Outcome::default();
        metrics(finished, &mut outcome)?;
        for name in NAMES {
            ratios(finished, &mut outcome, (name, &PRESETS, "tmpfs"))?;
            let of = |preset: &str| outcome.metrics.0[&format!("{name}.{preset}.over.tmpfs")];
            let (raw, bandwidth) = (of("nvmm-raw"), of("pm-bw"));
            outcome.metrics.set(format!("{name}.raw.over.pm-bw"), raw / bandwidth);
        }
        ratio_chart(&mut outcome, "Memcached", &NAMES, &PRESETS, ("tmpfs", false));
        Ok(outcome)
    }))
}
