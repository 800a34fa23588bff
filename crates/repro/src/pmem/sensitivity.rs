//! What the paper leaves open: parameters of the sensitivity study, their values and ranges.

use std::sync::Arc;

use deepram_media::Registry;

use super::{filebench, memcached, mongo, tpcc};
use crate::error::ReproError;
use crate::experiment::{Experiment, Outcome, Settings};
use crate::sensitivity::{ParameterChange, ParameterRow, Study, parameters};

const PARAMETERS: &[ParameterRow] = parameters! {
    "all.copy": "4GB/s", "8GB/s", "16GB/s"; "rate at which a core moves cached bytes"; "half; double";
    "all.overlap": "5", "10", "20"; "missing lines that a core fetches at once"; "half; double";
    "all.call": "500ns", "1us", "2us"; "time of a system call"; "half; double";
    "all.clflush": "50ns", "100ns", "200ns"; "time of a clflush"; "half; double";
    "all.nt_line": "2500ps", "5ns", "10ns"; "core time of a line by non-temporal stores"; "half; double";
    "all.bandwidth": "25.6GB/s", "51.2GB/s", "102.4GB/s"; "bandwidth of persistent memory at full rate"; "half; double";
    "all.cache": "10MiB", "40MiB", "40MiB"; "caches"; "a quarter";
    "filebench.program": "1us", "5us", "20us"; "processor time before each request on a file"; "a fifth; four times";
    "filebench.metadata_lines": "1", "4", "16"; "lines of metadata of a changing call on pmfs"; "a quarter; four times";
    "filebench.metadata_barriers": "1", "2", "4"; "barriers of such a call"; "half; double";
    "filebench.page_lookup": "50ns", "200ns", "800ns"; "time for a page of a file system with pages"; "a quarter; four times";
    "filebench.tmpfs_copies": "1", "1", "2"; "copies of the data on tmpfs"; "the authors' belief";
    "mongo.program": "20us", "100us", "500us"; "processor time of an operation"; "a fifth; five times";
    "mongo.sync": "64MiB", "64MiB", "160MiB"; "bytes that an fsync covers"; "all mapped files";
    "mongo.walk": "500ps", "2ns", "10ns"; "time to look at a dirty bit"; "a quarter; five times";
    "mongo.page": "4KiB", "4KiB", "2MiB"; "page with a dirty bit"; "huge pages";
    "mongo.threads": "1", "1", "16"; "clients"; "one on each core";
    "mongo.disk.seek_write": "2ms", "9500us", "9500us"; "seek of the disk"; "near files";
    "tpcc.program": "2us", "10us", "40us"; "processor time before an access to a row"; "a fifth; four times";
    "tpcc.pool": "128MiB", "1GiB", "4GiB"; "buffer pool"; "MySQL's default; four times";
    "tpcc.page_cache": "8GiB", "16GiB", "16GiB"; "page cache of ext4"; "the paper's DRAM";
    "tpcc.commit_blocks": "1", "2", "8"; "blocks of a journal commit"; "half; four times";
    "tpcc.clients": "16", "100", "100"; "clients"; "one on each core";
    "memcached.program": "1us", "5us", "20us"; "processor time before each access, of two in an operation"; "a fifth; four times";
    "memcached.keys": "100000", "1000000", "4000000"; "keys that exist"; "a tenth; four times";
    "memcached.threads": "1", "4", "16"; "threads of the server"; "one; one on each core";
};

/// Metric and title of each value in the study's chart.
const HEADLINES: &[(&str, &str)] = &[
    ("varmail.pm-lat.change_percent", "Varmail, PM-Lat to PDRAM"),
    ("fileserver.nvmm.over_dram_percent", "FileServer, NVMM over DRAM"),
    ("ycsb-a.nvmm-opt.over.nvmm-raw", "FSYNC_SAFE A, NVMM-Opt over NVMM-Raw"),
    ("ycsb-a.nvmm-raw.over.ext4-ssd", "FSYNC_SAFE A, NVMM-Raw over SSD"),
    ("tpcc.nvmm-opt.over.ext4-ssd", "TPC-C, NVMM over SSD"),
    ("tpcc.nvmm-opt.over.ext4-disk", "TPC-C, NVMM over disk"),
    ("opt.over_dram_percent", "TPC-C, NVMM over DRAM"),
    ("always.opt.over_raw_percent", "TPC-C, gain of SPF"),
    ("1-6.loss_percent", "Memcached 1:6, loss of NVMM-Raw"),
    ("1-30.loss_percent", "Memcached 1:30, loss of NVMM-Raw"),
];

/// All settings that the study can change.
#[derive(Debug, Clone)]
pub(super) struct Assumptions {
    /// Divisor of the requests of each run.
    pub(super) shorter: u64,
    /// Settings of all runs, and of those of a part.
    pub(super) all: Vec<String>,
    pub(super) filebench: Vec<String>,
    pub(super) mongo: Vec<String>,
    pub(super) tpcc: Vec<String>,
    pub(super) memcached: Vec<String>,
    /// Processor time before a request: on a file, of an operation, of a record of a scan, of an access to a row, of an
    /// access of memcached.
    pub(super) file_program: String,
    pub(super) mongo_program: String,
    pub(super) scan_program: String,
    pub(super) access_program: String,
    pub(super) cache_program: String,
    pub(super) mongo_threads: u32,
    pub(super) cache_threads: u32,
    /// Clients of TPC-C; `None` for the paper's number.
    pub(super) clients: Option<u32>,
    /// Keys of memcached.
    pub(super) keys: u64,
}

impl Study for Assumptions {
    const HEADLINES: &'static [(&'static str, &'static str)] = HEADLINES;
    const PARAMETERS: &'static [ParameterRow] = PARAMETERS;

    fn base(settings: &Settings) -> Self {
        Self {
            shorter: 1,
            all: Vec::new(),
            filebench: Vec::new(),
            mongo: Vec::new(),
            tpcc: Vec::new(),
            memcached: Vec::new(),
            file_program: "5us".into(),
            mongo_program: "100us".into(),
            scan_program: "10us".into(),
            access_program: "10us".into(),
            cache_program: "5us".into(),
            mongo_threads: 1,
            cache_threads: 4,
            clients: None,
            keys: settings.pick(1_000_000, 200_000),
        }
    }

    fn apply(&mut self, change: ParameterChange<'_>) -> Result<(), ReproError> {
        let ParameterChange { key, value } = change;
        let (part, name) = key.split_once('.').ok_or_else(|| change.unsupported())?;
        let set = format!("{name}={value}");
        match (part, name) {
            ("filebench", "program") => self.file_program = value.into(),
            ("mongo", "program") => self.mongo_program = value.into(),
            ("tpcc", "program") => self.access_program = value.into(),
            ("memcached", "program") => self.cache_program = value.into(),
            ("mongo", "threads") => self.mongo_threads = change.count()?,
            ("memcached", "threads") => self.cache_threads = change.count()?,
            ("memcached", "keys") => self.keys = change.count()?.into(),
            ("tpcc", "clients") => self.clients = Some(change.count()?),
            ("all", _) => self.all.push(set),
            ("filebench", _) => self.filebench.push(set),
            ("mongo", _) => self.mongo.push(set),
            ("tpcc", _) => self.tpcc.push(set),
            ("memcached", _) => self.memcached.push(set),
            _ => return Err(change.unsupported()),
        }
        Ok(())
    }

    fn experiment(mut self, settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
        self.shorter = settings.pick(8, 4);
        let mut runs = filebench::runs(&self, &["pdram", "pm-lat", "nvmm-raw", "tmpfs"], settings, registry)?;
        let presets = ["nvmm-raw", "nvmm-wof", "nvmm-opt", "ext4-ssd", "ext4-disk"];
        runs.extend(mongo::runs(&self, ("", "fsync-safe"), (&["ycsb-a"], &presets), settings, registry)?);
        runs.extend(tpcc::runs(&self, &tpcc::CLAIMED, settings, registry)?);
        runs.extend(memcached::runs(&self, &["nvmm-raw", "tmpfs"], settings, registry)?);
        Ok(Experiment::new("sensitivity", "Sensitivity", "", runs, |finished| {
            let mut outcome = Outcome::default();
            filebench::metrics(finished, &mut outcome)?;
            mongo::study_metrics(finished, &mut outcome)?;
            tpcc::metrics(finished, &mut outcome)?;
            memcached::metrics(finished, &mut outcome)?;
            Ok(outcome)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sensitivity::{check_parts, check_refused};

    #[test]
    fn every_end_of_a_range_changes_runs_of_its_part_and_no_others() {
        check_parts::<Assumptions>(|name| match name.split('.').next().unwrap() {
            "fileserver" | "webserver" | "varmail" => "filebench",
            "ycsb-a" => "mongo",
            "tpcc" => "tpcc",
            _ => "memcached",
        });
    }

    #[test]
    fn an_unknown_parameter_or_value_is_an_error() {
        check_refused::<Assumptions>(&[
            ("nothing", "1"),
            ("mongo.threads", "few"),
            ("other.key", "1"),
            ("tpcc.nothing", "1"),
        ]);
    }
}
