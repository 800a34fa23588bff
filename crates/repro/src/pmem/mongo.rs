//! YCSB on a database in mapped files: FSYNC_SAFE (Figures 8 and 9) and JOURNALED (Figure 10).

use std::sync::Arc;

use deepram_media::Registry;

use super::sensitivity::Assumptions;
use super::{MEDIA, TABLE_IV, ratio_chart, ratios, workload};
use crate::error::ReproError;
use crate::experiment::{Experiment, FinishedRuns, Outcome, Settings};
use crate::simulation_run::SimulationRun;

pub(super) const NAMES: [&str; 6] = ["ycsb-a", "ycsb-b", "ycsb-c", "ycsb-d", "ycsb-e", "ycsb-f"];
const SCANS: &str = "ycsb-e";
/// The media of Figures 9 and 10.
const COMPARED: [&str; 5] = ["nvmm-raw", "nvmm-opt", "ext4-ssd", "ext4-disk", "tmpfs"];
const WRITE_INTENSIVE: [&str; 2] = ["ycsb-a", "ycsb-f"];

/// The runs of workloads on presets with one durability. `prefix` stands before their names.
pub(super) fn runs(
    study: &Assumptions,
    (prefix, durability): (&str, &str),
    (names, presets): (&[&str], &[&str]),
    settings: &Settings,
    registry: &Arc<Registry>,
) -> Result<Vec<SimulationRun>, ReproError> {
    let mut runs = Vec::new();
    for name in names {
        // 1000 operations; a scan of E reads fifty records, and is 50 requests.
        let operations = settings.pick(1000, 60) / study.shorter.min(4);
        let count = if *name == SCANS { 50 * operations } else { operations };
        let program = if *name == SCANS { &study.scan_program } else { &study.mongo_program };
        let spec = format!(
            "{name}:records=1000,record=1000B{},count={count}",
            if *name == "ycsb-d" { ",request=latest" } else { "" }
        );
        for preset in presets {
            let mut set: Vec<String> = ["mapped=160MiB", "sync=64MiB"].map(String::from).into();
            set.extend([format!("durability={durability}"), format!("program={program}")]);
            set.extend(study.mongo.iter().chain(&study.all).cloned());
            let run = format!("{prefix}{name}.{preset}");
            runs.push(workload((settings, registry), &run, (preset, &set), &spec, (study.mongo_threads, 0))?);
        }
    }
    Ok(runs)
}

/// The metrics of claims in FSYNC_SAFE mode that the sensitivity study has.
pub(super) fn study_metrics(finished: &FinishedRuns<'_>, outcome: &mut Outcome) -> Result<(), ReproError> {
    ratios(finished, outcome, ("ycsb-a", &["nvmm-wof", "nvmm-opt"], "nvmm-raw"))?;
    ratios(finished, outcome, ("ycsb-a", &["nvmm-raw", "nvmm-opt"], "ext4-ssd"))?;
    ratios(finished, outcome, ("ycsb-a", &["nvmm-raw"], "ext4-disk"))
}

/// Builds the experiment of Figures 8 and 9.
pub(super) fn fsync_safe(
    study: &Assumptions,
    settings: &Settings,
    registry: &Arc<Registry>,
) -> Result<Experiment, ReproError> {
    let presets = [&TABLE_IV[..], &MEDIA].concat();
    let mut all = runs(study, ("", "fsync-safe"), (&NAMES, &presets), settings, registry)?;
    let mut larger = study.clone();
    larger.mongo.push("sync=160MiB".into());
    all.extend(runs(&larger, ("all-files.", "fsync-safe"), (&["ycsb-a"], &presets), settings, registry)?);
    let about = "One client. Each write ends with a flush of the first data file, 64 MiB; in all-files of all mapped files, 160 MiB. \
                 There is no journal.";
    Ok(Experiment::new(
        "fsync-safe",
        "YCSB in FSYNC_SAFE mode (Figures 8 and 9)",
        about,
        all,
        move |finished| {
            let mut outcome = Outcome::default();
            study_metrics(finished, &mut outcome)?;
            for name in NAMES.into_iter().chain(["all-files.ycsb-a"]) {
                ratios(finished, &mut outcome, (name, &TABLE_IV, "pdram"))?;
                ratios(finished, &mut outcome, (name, &presets, "tmpfs"))?;
                ratios(finished, &mut outcome, (name, &["nvmm-raw", "nvmm-opt", "nvmm-wof"], "ext4-ssd"))?;
                ratios(finished, &mut outcome, (name, &["nvmm-raw", "nvmm-opt", "nvmm-wof"], "ext4-disk"))?;
                ratios(finished, &mut outcome, (name, &["nvmm-wof", "nvmm-opt"], "nvmm-raw"))?;
            }
            for (over, what) in [("ext4-ssd", "ssd"), ("ext4-disk", "disk")] {
                let of =
                    |name: &str, preset: &str| outcome.metrics.0[&format!("{name}.{preset}.over.{over}")];
                let raw = WRITE_INTENSIVE.map(|name| of(name, "nvmm-raw")).into_iter().fold(0.0, f64::max);
                let opt = NAMES.map(|name| of(name, "nvmm-opt")).into_iter().fold(f64::INFINITY, f64::min);
                outcome.metrics.set(format!("write_intensive.raw.over.{what}.most"), raw);
                outcome.metrics.set(format!("opt.over.{what}.least"), opt);
            }
            let writing = NAMES.into_iter().filter(|name| *name != "ycsb-c");
            let gain = |preset: &str| {
                let of = |name: &str| outcome.metrics.0[&format!("{name}.{preset}.over.nvmm-raw")];
                writing.clone().map(of).fold(f64::INFINITY, f64::min)
            };
            let (wof, opt) = (gain("nvmm-wof"), gain("nvmm-opt"));
            outcome.metrics.set("wof.over.raw.least", wof);
            outcome.metrics.set("opt.over.raw.least", opt);
            ratio_chart(&mut outcome, "FSYNC_SAFE by configuration", &NAMES, &TABLE_IV, ("pdram", true));
            ratio_chart(&mut outcome, "FSYNC_SAFE by medium", &NAMES, &COMPARED, ("tmpfs", true));
            Ok(outcome)
        },
    ))
}

/// Builds the experiment of Figure 10.
pub(super) fn journaled(
    study: &Assumptions,
    settings: &Settings,
    registry: &Arc<Registry>,
) -> Result<Experiment, ReproError> {
    let mut all = runs(study, ("", "journaled"), (&NAMES, &COMPARED), settings, registry)?;
    let mut grouped = study.clone();
    grouped.mongo.push("group_commit=33ms".into());
    all.extend(runs(&grouped, ("grouped.", "journaled"), (&NAMES, &COMPARED), settings, registry)?);
    let about = "One client. A store waits until its record is written to the journal file; in grouped until the next group commit, \
                 each 33 ms.";
    Ok(Experiment::new("journaled", "YCSB in JOURNALED mode (Figure 10)", about, all, |finished| {
        let mut outcome = Outcome::default();
        for prefix in ["", "grouped."] {
            let names = NAMES.map(|name| format!("{prefix}{name}"));
            let mut changes = Vec::new();
            for name in &names {
                ratios(finished, &mut outcome, (name, &COMPARED, "tmpfs"))?;
                changes.push(100.0 * (outcome.metrics.0[&format!("{name}.nvmm-opt.over.tmpfs")] - 1.0));
            }
            outcome.metrics.set(
                format!("{prefix}opt.over_dram_percent.least"),
                changes.iter().copied().fold(f64::INFINITY, f64::min),
            );
            outcome.metrics.set(
                format!("{prefix}opt.over_dram_percent.most"),
                changes.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            );
            let ssd = outcome.metrics.0[&format!("{prefix}ycsb-a.nvmm-opt.over.tmpfs")]
                / outcome.metrics.0[&format!("{prefix}ycsb-a.ext4-ssd.over.tmpfs")];
            outcome.metrics.set(format!("{prefix}ycsb-a.opt.over.ssd"), ssd);
        }
        ratio_chart(&mut outcome, "JOURNALED by medium", &NAMES, &COMPARED, ("tmpfs", false));
        Ok(outcome)
    }))
}
