//! Filebench: throughput by configuration (Figure 6) and by medium (Figure 7).

use std::sync::Arc;

use deepram_media::Registry;

use super::sensitivity::Assumptions;
use super::{MEDIA, TABLE_IV, ratio_chart, ratios, workload};
use crate::error::ReproError;
use crate::experiment::{Experiment, FinishedRuns, Outcome, Settings};
use crate::simulation_run::SimulationRun;

/// Name, settings of the file set, threads, and requests of warm-up and measurement. FileServer is filebench's own; Varmail
/// and WebServer have more files than there, for the data sizes of Table III.
const PERSONALITIES: [(&str, &str, u32, (u64, u64)); 3] = [
    ("fileserver", "files=10000", 50, (3_000, 12_000)),
    ("webserver", "files=4096", 100, (20_000, 60_000)),
    ("varmail", "files=43000", 16, (20_000, 40_000)),
];
pub(super) const NAMES: [&str; 3] = ["fileserver", "webserver", "varmail"];
/// FileServer with the double copy that the authors assume of tmpfs.
const DOUBLE: &str = "tmpfs-2";

/// The runs of these presets.
pub(super) fn runs(
    study: &Assumptions,
    presets: &[&str],
    settings: &Settings,
    registry: &Arc<Registry>,
) -> Result<Vec<SimulationRun>, ReproError> {
    let mut runs = Vec::new();
    for (name, files, threads, (warm_up, measured)) in PERSONALITIES {
        let divisor = settings.pick(1, 20) * study.shorter;
        let (warm_up, measured) = (warm_up / divisor, measured / divisor);
        let count = warm_up + measured;
        let spec = format!("{name}:{files},threads={threads},count={count}");
        for preset in presets {
            let mut set = vec!["mapped=0B".to_owned(), format!("program={}", study.file_program)];
            set.extend(study.filebench.iter().chain(&study.all).cloned());
            let own = if *preset == DOUBLE {
                set.push("tmpfs_copies=2".into());
                "tmpfs"
            } else {
                preset
            };
            let run = format!("{name}.{preset}");
            runs.push(workload((settings, registry), &run, (own, &set), &spec, (threads, warm_up))?);
        }
    }
    Ok(runs)
}

/// The metrics of claims.
pub(super) fn metrics(finished: &FinishedRuns<'_>, outcome: &mut Outcome) -> Result<(), ReproError> {
    for name in NAMES {
        ratios(finished, outcome, (name, &["pm-lat"], "pdram"))?;
        ratios(finished, outcome, (name, &["nvmm-raw"], "tmpfs"))?;
        let of = |key: String| outcome.metrics.0.get(&key).map_or(0.0, |ratio| 100.0 * (ratio - 1.0));
        let changes = [of(format!("{name}.pm-lat.over.pdram")), of(format!("{name}.nvmm-raw.over.tmpfs"))];
        outcome.metrics.set(format!("{name}.pm-lat.change_percent"), changes[0]);
        outcome.metrics.set(format!("{name}.nvmm.over_dram_percent"), changes[1]);
    }
    Ok(())
}

/// Builds the experiment.
pub(super) fn experiment(
    study: &Assumptions,
    settings: &Settings,
    registry: &Arc<Registry>,
) -> Result<Experiment, ReproError> {
    let presets = [&TABLE_IV[..], &MEDIA, &[DOUBLE]].concat();
    let runs = runs(study, &presets, settings, registry)?;
    let about = "Files are accessed by system calls. All data are in memory or in the page cache when the run begins. tmpfs-2 makes \
                 each copy twice, as the authors believe of tmpfs.";
    Ok(Experiment::new("filebench", "Filebench (Figures 6 and 7)", about, runs, move |finished| {
        let mut outcome = Outcome::default();
        metrics(finished, &mut outcome)?;
        for name in NAMES {
            ratios(finished, &mut outcome, (name, &TABLE_IV, "pdram"))?;
            ratios(finished, &mut outcome, (name, &presets, "tmpfs"))?;
            ratios(finished, &mut outcome, (name, &["nvmm-raw", "nvmm-opt"], "ext4-ssd"))?;
            ratios(finished, &mut outcome, (name, &["nvmm-raw", "nvmm-opt"], "ext4-disk"))?;
            ratios(finished, &mut outcome, (name, &["nvmm-opt"], "nvmm-raw"))?;
            ratios(finished, &mut outcome, (name, &["nvmm-raw"], DOUBLE))?;
            let rates = TABLE_IV.map(|preset| outcome.metrics.0[&format!("{name}.{preset}.over.pdram")]);
            let change = rates.iter().map(|ratio| 100.0 * (ratio - 1.0).abs()).fold(0.0, f64::max);
            outcome.metrics.set(format!("{name}.largest_change_percent"), change);
        }
        ratio_chart(&mut outcome, "Filebench by configuration", &NAMES, &TABLE_IV, ("pdram", false));
        let media = ["nvmm-raw", "nvmm-opt", "ext4-ssd", "ext4-disk", "tmpfs"];
        ratio_chart(&mut outcome, "Filebench by medium", &NAMES, &media, ("tmpfs", false));
        Ok(outcome)
    }))
}
