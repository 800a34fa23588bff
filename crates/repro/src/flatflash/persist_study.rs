//! What the two case studies hang on: one assumption at a time.

use std::sync::Arc;

use deepram_media::Registry;
use deepram_sim::SimError;

use super::{database, filesystem};
use crate::error::ReproError;
use crate::experiment::{Experiment, Outcome, Settings};
use crate::run::Run;
use crate::sensitivity::Change;

/// Key, what it is, low end, base, high end, why these ends. What begins with `fs` is of file systems alone, with `db`
/// of databases.
pub(super) const PARAMETERS: [[&str; 6]; 15] = [
    [
        "page_writes",
        "pages of a request on their way to the drive at once",
        "1",
        "1",
        "32",
        "Linux sends the blocks of a journal's transaction together",
    ],
    [
        "flushed",
        "where the paging systems' pages go that are durable",
        "buffer",
        "flash",
        "flash",
        "their drive's memory may have a battery too, and keep pages",
    ],
    [
        "nand.program",
        "time of a program",
        "300us",
        "1200us",
        "1200us",
        "planes of a die together; the drive's data sheet has more writes than 126 dies of one plane do",
    ],
    ["fs.fence", "flushes of a change by lines", "once", "each", "each", "a record of all in one place"],
    [
        "fs.batch",
        "changes that become durable together",
        "1",
        "1",
        "16",
        "a journal's transaction takes many",
    ],
    ["fs.dirs", "directories: metadata for the drive's memory", "100", "4000", "4000", "all fits"],
    ["fs.journal", "bytes of the journal", "512KiB", "1MiB", "16MiB", "half; sixteen times as many"],
    [
        "fs.atime",
        "whether reads change a file's time of access",
        "relative",
        "strict",
        "strict",
        "Linux mounts so",
    ],
    [
        "fs.btrfs",
        "what BtrFS writes but for fsync",
        "log",
        "commit",
        "commit",
        "as if each change were an fsync",
    ],
    ["db.logging", "logs of the baselines", "own", "central", "central", "the paper's figure has both"],
    [
        "db.work",
        "work of the processor before an access",
        "1us",
        "10us",
        "40us",
        "none to speak of; four times",
    ],
    [
        "db.lock",
        "time that the lock of one log is held",
        "0.2us",
        "1us",
        "10us",
        "a copy alone; a lock under contention",
    ],
    ["db.dram", "bytes of DRAM for 384 MiB", "24MiB", "48MiB", "384MiB", "half; all of it"],
    ["db.log", "bytes of the log", "4MiB", "64MiB", "64MiB", "fits into the drive's memory"],
    ["db.threshold", "uses before a page is promoted at most", "1", "7", "7", "each page at its second use"],
];

pub(super) const HEADLINES: [(&str, &str); 8] = [
    ("ext4.create.speedup", "EXT4, create"),
    ("xfs.create.speedup", "XFS, create"),
    ("btrfs.create.speedup", "BtrFS, create"),
    ("webserver.speedup.most", "Webserver, the most"),
    ("varmail.lifetime.most", "Varmail, lifetime"),
    ("unified.tpcc.speedup", "TPC-C"),
    ("unified.tpcb.speedup", "TPC-B"),
    ("unified.tatp.speedup", "TATP"),
];

/// All that may change.
#[derive(Debug, Clone, Default)]
pub(super) struct Assumptions {
    files: filesystem::Variant,
    clients: database::Variant,
}

impl Assumptions {
    /// Sets what the change names.
    ///
    /// # Errors
    /// The value is not one that the key takes.
    pub(super) fn apply(&mut self, change: Change<'_>) -> Result<(), ReproError> {
        let Change { key, value } = change;
        let wrong = |why: String| ReproError::Config {
            what: "sensitivity".into(),
            source: Box::new(SimError::Config { key: key.into(), why }),
        };
        let bytes = || {
            let bytes = value.parse::<deepram_core::units::Bytes>();
            bytes.map(|bytes| bytes.0).map_err(|error| wrong(error.to_string()))
        };
        let time = || {
            let time = value.parse::<deepram_core::units::Picos>();
            time.map(|time| time.0).map_err(|error| wrong(error.to_string()))
        };
        let known = |values: &[&'static str]| {
            let found = values.iter().find(|known| **known == value).copied();
            found.ok_or_else(|| wrong(format!("the study does not know {value:?}")))
        };
        let files = &mut self.files;
        let clients = &mut self.clients;
        match key {
            "page_writes" | "flushed" | "nand.program" => {
                files.machine.push(format!("{key}={value}"));
                clients.machine.push(format!("{key}={value}"));
            }
            "fs.fence" | "fs.batch" | "fs.atime" | "fs.btrfs" => {
                files.workload.push(format!("{}={value}", &key[3..]));
            }
            "fs.dirs" => {
                files.directories =
                    value.parse().map_err(|_| wrong(format!("{value:?} is no number of directories")))?;
            }
            "fs.journal" => files.journal = known(&["512KiB", "16MiB"])?,
            "db.logging" => clients.own = known(&["own"])? == "own",
            "db.work" => clients.work_ps = time()?,
            "db.lock" => clients.lock_ps = time()?,
            "db.dram" => clients.dram = bytes()?,
            "db.log" => clients.log = known(&["4MiB"])?,
            "db.threshold" => clients.machine.push(format!("max_threshold={value}")),
            _ => return Err(wrong("the study does not know it".into())),
        }
        Ok(())
    }

    /// The runs behind the claims.
    ///
    /// # Errors
    /// A configuration cannot be resolved.
    pub(super) fn runs(&self, settings: &Settings, registry: &Arc<Registry>) -> Result<Vec<Run>, ReproError> {
        let mut runs = filesystem::study_runs(settings, registry, &self.files)?;
        runs.extend(database::study_runs(settings, registry, &self.clients)?);
        Ok(runs)
    }
}

/// The runs, with this change if it is one of theirs.
pub(super) fn experiment(
    change: Option<Change<'_>>,
    settings: &Settings,
    registry: &Arc<Registry>,
) -> Result<Experiment, ReproError> {
    let mut assumptions = Assumptions::default();
    if let Some(change) = change.filter(|change| PARAMETERS.iter().any(|row| row[0] == change.key)) {
        assumptions.apply(change)?;
    }
    let runs = assumptions.runs(settings, registry)?;
    Ok(Experiment::new("sensitivity", "Sensitivity", "", runs, |finished| {
        let mut outcome = Outcome::default();
        filesystem::figures(finished, &mut outcome)?;
        database::study_figures(finished, &mut outcome)?;
        Ok(outcome)
    }))
}
