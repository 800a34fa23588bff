//! Rejects options that a system does not have, and options that exclude each other.

use super::{DriveState, Simulation};
use crate::error::SimError;
use crate::run::System;

impl Simulation {
    /// Checks the options that the command line cannot check by itself.
    ///
    /// # Errors
    /// The system does not have an option that is given; a preset's key is set twice.
    pub fn check(&self) -> Result<(), SimError> {
        let (system, name) = (self.system, self.system.name());
        let drive = matches!(system, System::Ssd | System::SsdBuffer | System::SsdPaging);
        let paging = system == System::SsdPaging;
        let flat = system.access_mode().is_some();
        let cached = paging || flat || matches!(system, System::Nvmm | System::Pool);
        for (given, fits, option, why) in [
            (self.precondition.is_some(), drive, "--precondition", "is for ssd, ssd-buffer and ssd-paging"),
            (self.suspend, drive, "--suspend", "is for ssd, ssd-buffer and ssd-paging"),
            (
                self.dram.is_some(),
                cached,
                "--dram",
                "is for nvmm, ssd-paging, flatflash, unified-mmap, traditional-stack and pool",
            ),
            (
                !self.persist.is_empty(),
                flat,
                "--persist",
                "is for flatflash, unified-mmap and traditional-stack",
            ),
            (self.prefetch.is_some(), system == System::Nvmm, "--prefetch", "is for nvmm"),
            (self.memory.is_some(), paging, "--memory", "is for ssd-paging"),
            (self.software.is_some(), paging, "--software", "is for ssd-paging"),
            (
                self.drive.is_some(),
                matches!(system, System::SsdBuffer | System::Pmem),
                "--drive",
                "is for ssd-buffer and pmem",
            ),
            (self.swap, paging || system == System::Pool, "--swap", "is for ssd-paging and pool"),
            (
                self.processor.is_some(),
                !matches!(system, System::Ssd | System::SsdBuffer | System::DiskCache | System::Pool),
                "--processor",
                "is for memory systems, such as dram, nvmm, ssd-paging and flatflash",
            ),
        ] {
            if given && !fits {
                return Err(SimError::Options(format!("{option} {why}; the system is {name}")));
            }
        }
        if self.filled.is_some() && self.precondition == Some(DriveState::Empty) {
            return Err(SimError::Options("--filled is for --precondition sequential or steady".into()));
        }
        set_once(&self.set)
    }
}

/// Rejects a key that is set twice, because the intended value is unknown.
///
/// # Errors
/// Two of the overrides, `key=value` each, have the same key.
pub fn set_once(set: &[String]) -> Result<(), SimError> {
    let key = |text: &'_ str| text.split('=').next().unwrap_or("").trim().to_owned();
    let mut keys: Vec<String> = set.iter().map(|text| key(text)).collect();
    keys.sort();
    match keys.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(SimError::Options(format!("--set {}=..: the key is given twice", pair[0]))),
        None => Ok(()),
    }
}

/// An option, the options that exclude it, and the option that it needs (empty for none).
type Rule = (&'static str, &'static [&'static str], &'static str);

/// The rules between options by name: those that the command line declares to its parser.
const RULES: &[Rule] = &[
    ("workload", &["trace"], ""),
    ("format", &["workload"], ""),
    ("object-slots", &["workload"], ""),
    ("filled", &[], "precondition"),
    ("processor", &["depth", "think", "closed", "requests", "interval"], ""),
    ("cores", &[], "processor"),
    ("gap", &[], "processor"),
    ("clients", &["threads", "depth", "think", "closed", "interval", "processor", "wrap"], "workload"),
    ("logging", &[], "clients"),
    ("work", &[], "clients"),
    ("log-lock", &[], "clients"),
];

/// Checks options that are given by their names in [`super::OPTIONS`], in any order. Requests in memory count as `trace`.
///
/// # Errors
/// Two of them exclude each other, one needs another that is not given, or neither a workload nor a trace is given.
pub fn check_together(given: &[&str]) -> Result<(), SimError> {
    let has = |name: &str| given.contains(&name);
    for (option, excluded, needed) in RULES.iter().filter(|(option, ..)| has(option)) {
        if let Some(other) = excluded.iter().find(|other| has(other)) {
            return Err(SimError::Options(format!(
                "{option} and {other} exclude each other; give one of them"
            )));
        }
        if !needed.is_empty() && !has(needed) {
            return Err(SimError::Options(format!("{option} needs {needed}; give both or neither")));
        }
    }
    if !has("workload") && !has("trace") {
        return Err(SimError::Options("neither workload nor trace is given; give one of them".into()));
    }
    Ok(())
}
