//! Sensitivity study of the two case studies of persistence: one assumption at a time is set to the ends
//! of its plausible range.

use std::sync::Arc;

use deepram_media::Registry;

use super::{database, filesystem};
use crate::error::ReproError;
use crate::experiment::{Experiment, Outcome, Settings};
use crate::sensitivity::{ParameterChange, ParameterRow, Study, parameters};

/// The parameters. Keys with `fs.` apply to file systems alone, with `db.` to databases alone.
const PARAMETERS: &[ParameterRow] = parameters! {
    "page_writes": "1", "1", "32"; "concurrent page writes of a request";
        "Linux submits the blocks of a journal transaction together";
    "page_write": "16us", "20us", "20us"; "latency of a durable page write";
        "the Z-SSD of section 3.3; flash of section 5.6";
    "flushed": "buffer", "flash", "flash"; "persistence point of the baselines' pages";
        "their drive's memory may be battery-backed, too";
    "nand.program": "16us", "246us", "1200us"; "flash program time";
        "the Z-SSD's write latency, section 3.3; a part that programs one page at once";
    "fs.fence": "once", "once", "each"; "write-verify reads per change written by line";
        "one behind each structure";
    "fs.batch": "1", "1", "16"; "changes made durable together"; "a journal transaction holds many";
    "fs.dirs": "100", "4000", "4000"; "directories, whose metadata occupy the drive's memory";
        "all metadata fit";
    "fs.journal": "512KiB", "1MiB", "16MiB"; "size of the journal"; "half; sixteen times";
    "fs.atime": "relative", "strict", "strict"; "whether a read updates a file's access time";
        "Linux mounts with relative updates";
    "fs.btrfs": "log", "commit", "commit"; "what BtrFS writes without fsync"; "as if each change were an fsync";
    "db.logging": "own", "central", "central"; "logs of the baselines"; "Figure 14 shows both";
    "db.work": "1us", "10us", "40us"; "processor time before an access"; "almost none; four times";
    "db.lock": "0.2us", "1us", "10us"; "time that the central log's lock is held";
        "only a copy; a contended lock";
    "db.dram": "24MiB", "48MiB", "384MiB"; "size of DRAM for 384 MiB of data"; "half; all data fit";
    "db.log": "4MiB", "64MiB", "64MiB"; "size of the log"; "it fits into the drive's memory";
    "db.threshold": "1", "7", "7"; "maximum promotion threshold, accesses"; "promote at the second access";
};

const HEADLINES: &[(&str, &str)] = &[
    ("ext4.create.speedup", "EXT4, create, speedup"),
    ("xfs.create.speedup", "XFS, create, speedup"),
    ("btrfs.create.speedup", "BtrFS, create, speedup"),
    ("webserver.speedup.most", "Webserver, greatest speedup"),
    ("varmail.lifetime.most", "Varmail, greatest lifetime ratio"),
    ("unified.tpcc.speedup", "TPC-C, speedup"),
    ("unified.tpcb.speedup", "TPC-B, speedup"),
    ("unified.tatp.speedup", "TATP, speedup"),
];

/// All settings that the study can change.
#[derive(Debug, Clone, Default)]
pub(super) struct Assumptions {
    files: filesystem::Variant,
    clients: database::Variant,
}

impl Study for Assumptions {
    const HEADLINES: &'static [(&'static str, &'static str)] = HEADLINES;
    const PARAMETERS: &'static [ParameterRow] = PARAMETERS;

    fn base(_settings: &Settings) -> Self {
        Self::default()
    }

    fn apply(&mut self, change: ParameterChange<'_>) -> Result<(), ReproError> {
        let ParameterChange { key, value } = change;
        let known = |values: &[&'static str]| {
            values.iter().find(|known| **known == value).copied().ok_or_else(|| change.unsupported())
        };
        let files = &mut self.files;
        let clients = &mut self.clients;
        match key {
            "page_writes" | "page_write" | "flushed" | "nand.program" => {
                files.machine.push(format!("{key}={value}"));
                clients.machine.push(format!("{key}={value}"));
            }
            "fs.batch" | "fs.atime" | "fs.btrfs" => {
                files.workload.push(format!("{}={value}", &key[3..]));
            }
            "fs.fence" => files.fence = known(&["each"])?,
            "fs.dirs" => files.directories = change.count()?.into(),
            "fs.journal" => files.journal = known(&["512KiB", "16MiB"])?,
            "db.logging" => clients.own = known(&["own"])? == "own",
            "db.work" => clients.work_ps = change.picoseconds()?,
            "db.lock" => clients.lock_ps = change.picoseconds()?,
            "db.dram" => clients.dram = change.bytes()?,
            "db.log" => clients.log = known(&["4MiB"])?,
            "db.threshold" => clients.machine.push(format!("max_threshold={value}")),
            _ => return Err(change.unsupported()),
        }
        Ok(())
    }

    fn experiment(self, settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
        let mut runs = filesystem::study_runs(settings, registry, &self.files)?;
        runs.extend(database::study_runs(settings, registry, &self.clients)?);
        Ok(Experiment::new("sensitivity", "Sensitivity", "", runs, |finished| {
            let mut outcome = Outcome::default();
            filesystem::metrics(finished, &mut outcome)?;
            database::study_metrics(finished, &mut outcome)?;
            Ok(outcome)
        }))
    }
}
