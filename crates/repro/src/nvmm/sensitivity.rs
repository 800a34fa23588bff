//! Sensitivity study of the NVMM paper: one assumption at a time is set to the ends of its plausible
//! range.
//!
//! 1. The study repeats only the runs behind missed claims: the sweeps at the latencies of claims, the
//!    means with available flash, the Filebench personalities and the dd runs that have published
//!    numbers, the software-overhead table, and power at 8 GB.
//! 2. Most parameters apply to all machines. The others apply to one or two experiments and leave the
//!    rest unchanged.
//! 3. Streams of the technology comparison use a smaller file here, so its means differ slightly from
//!    those that claims are judged on.

use std::sync::Arc;

use deepram_media::Registry;
use deepram_sim::paging::PagingOptions;

use super::filebench::SyncReach;
use super::latency_sweep::LatencySweep;
use super::machine::{MachineConfig, StartState};
use super::programs::LINE_COPY;
use super::technology::Mean;
use super::{filebench, overhead, power, prefetch, technology};
use crate::error::ReproError;
use crate::experiment::{Experiment, Outcome, Settings};
use crate::sensitivity::{ParameterChange, ParameterRow, Study, parameters};

/// GUPS takes longer to simulate; all of its missed claims are at 75 µs.
const GUPS_US: [f64; 1] = [75.0];
const MMAP_US: [f64; 3] = [75.0, 150.0, 750.0];

/// The parameters. A key that begins with a preset's kind overrides that preset; one that begins with an experiment's
/// name applies to that experiment alone.
const PARAMETERS: &[ParameterRow] = parameters! {
    "blocking": "false", "false", "true"; "whether a load waits for the one before";
        "the paper's NVMM stalls on a miss";
    "processor.misses": "4", "10", "16"; "outstanding misses per core"; "from small cores to the newest";
    "processor.cores": "1", "6, sweeps 16", "6"; "cores"; "MARSSx86 runs any number; threads that share cores";
    "start": "filled", "clean", "data"; "what DRAM holds of GUPS' table and MMAP's file at first";
        "the threads fill the table in the run and leave it dirty; the first part, clean";
    "kernel": "3.4", "3.4", "6"; "Linux of the SSD system: swap clusters and fault-around";
        "the paper's swap token, of Linux up to 3.4; the kernel of today";
    "queue": "32", "32", "1024"; "commands that the SSD takes at once";
        "AHCI in Experimental Setup; NVM Express in the description of SSDs";
    "gap": "2", "5", "50"; "instructions between references of GUPS and MMAP";
        "a bare loop; library calls for random numbers";
    "work": "0.5", "1", "8"; "factor on the instructions between references of the other programs";
        "better compilers; system calls and file-system code, 128 instructions per line of dd";
    "each": "false", "false", "true"; "whether each thread of GUPS and MMAP makes all accesses";
        "the paper counts accesses of the benchmark; of each thread";
    "data": "608MiB", "768MiB", "1536MiB"; "size of the table or file";
        "what MMAP's published gain by prefetching alone would give; double";
    "nvmm.stripe": "1", "16", "16"; "planes that hold a page's segments";
        "one block per page, as the page table allows";
    "critical_first": "false", "false", "true"; "whether a missing line arrives before the rest of its block";
        "the paper forwards it once the block has been received; many caches do not wait";
    "mmap.data": "256MiB", "768MiB", "768MiB"; "size of MMAP's file, for 512 MiB of DRAM";
        "the draft's, which fits and is not in DRAM at first; the paper's file is larger than DRAM";
    "program": "200us", "1200us", "1200us"; "MLC program time";
        "SLC's in the setup table; filebench has 750us otherwise";
    "nvmm.channels": "4", "16", "32"; "flash channels of NVMM"; "as many as a DIMM holds; double";
    "segment": "4KiB", "4KiB", "16KiB"; "size of a cache block and a flash read"; "the paper's 4 to 16 KB";
    "write_back_above": "0.02", "0.1", "1"; "dirty share above which blocks are written back early";
        "nearly always; never";
    "packages": "1", "16", "16"; "packages on each of the 16 channels, of NVMM and the SSD";
        "16 packages of two planes in all, as HybridSim's ini/nvdimm.ini has them";
    "ssd.channels": "4", "16", "32"; "channels of the SSD"; "a small SSD; double";
    "software.wait_on_core": "false", "true", "true"; "whether the software's wait occupies its core";
        "software time is that of kernel instructions; a thread that waits asleep";
    "software.wait": "29.85us", "59.7us", "119.4us"; "wait in the software with MLC"; "half and double";
    "software.extra_page": "0.3us", "0.6us", "6us"; "software time of each further page of a request";
        "half; file-system code and a copy, as for a first page";
    "readahead": "0", "32", "64"; "maximum pages that Linux reads ahead or around a fault"; "none; double";
    "technology.mean": "geometric", "of means", "of ratios"; "mean over workloads";
        "the paper averages bars that are normalised to all-DRAM; geometric mean, or mean of ratios";
    "technology.prefetch": "0", "1", "16"; "blocks that NVMM prefetches in the technology comparison";
        "the paper says both 0 and 1";
    "technology.resident": "false", "true", "true"; "whether a program's new memory is in NVMM's cache";
        "a cache that begins empty reads it from flash at the first touch";
    "filebench.threads": "one", "its own", "its own"; "threads of Filebench"; "the draft gives no number";
    "filebench.sync": "neither", "both", "SSD"; "systems on which fsync makes data durable";
        "it takes no time; to a file system, NVMM is memory that needs no flush";
    "filebench.prefetch": "0", "0", "16"; "blocks that NVMM prefetches under Filebench";
        "the draft says none for its figure";
    "overhead.others": "0", "0", "15"; "other threads that fault at the same time";
        "a system is never fully idle";
    "overhead.read_around": "false", "false", "true"; "whether a fault reads the pages around it, too";
        "Linux does so unless told that accesses are random";
    "power.interval": "5ns", "10ns", "100ns"; "interval between requests of 64 B";
        "double the bandwidth; a tenth";
    "power.read": "0.5", "0.7", "0.95"; "share of reads"; "as many writes; hardly any writes";
    "power.theta": "0.8", "0.99", "1.2"; "skew of block popularity (Zipf)"; "flatter; steeper";
};

/// Metric and title of each value in the study's chart: one or two for each experiment with missed
/// claims, as many as a chart can distinguish. The study computes more metrics for claims.
const HEADLINES: &[(&str, &str)] = &[
    ("nvmm_over_ssd.mean", "Mean speedup of NVMM over the SSD system"),
    ("dram_over_nvmm.mean", "Mean speedup of all-DRAM over NVMM"),
    ("gups.speedup.t1.75us", "GUPS speedup, one thread"),
    ("gups.speedup.t16.75us", "GUPS speedup, sixteen threads"),
    ("mmap.speedup.t1.75us", "MMAP speedup, one thread"),
    ("mmap.speedup.t16.75us", "MMAP speedup, sixteen threads"),
    ("oltp.speedup", "OLTP speedup"),
    ("nvmm_over_dram.8gb.power", "Power of NVMM relative to all-DRAM, 8 GB"),
];

/// All settings that the study can change.
#[derive(Debug, Clone)]
pub(super) struct Assumptions {
    base: MachineConfig,
    technology: technology::Variant,
    files: filebench::Variant,
    overhead: overhead::Variant,
    load: power::RequestLoad,
    /// Size of MMAP's file in bytes; `None`: as for all data.
    mmap: Option<u64>,
    /// Instructions per line of dd.
    line_copy: u32,
}

impl Study for Assumptions {
    const HEADLINES: &'static [(&'static str, &'static str)] = HEADLINES;
    const PARAMETERS: &'static [ParameterRow] = PARAMETERS;

    fn base(_settings: &Settings) -> Self {
        Self {
            base: MachineConfig::default(),
            technology: technology::Variant::default(),
            files: filebench::Variant::default(),
            overhead: overhead::Variant::default(),
            load: power::RequestLoad::default(),
            mmap: None,
            line_copy: LINE_COPY,
        }
    }

    fn experiment(self, settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
        let Self { base, technology, files, overhead, load, mmap, line_copy } = self;
        let mut runs = LatencySweep::Gups.runs(settings, registry, &base, &GUPS_US)?;
        let data = mmap.unwrap_or(base.data);
        let file = MachineConfig { data, ..base.clone() };
        runs.extend(LatencySweep::Mmap.runs(settings, registry, &file, &MMAP_US)?);
        runs.extend(technology::study_runs(settings, registry, &base, technology)?);
        runs.extend(filebench::study_runs(settings, registry, &base, files)?);
        runs.extend(prefetch::study_runs(settings, registry, &base, line_copy)?);
        runs.extend(overhead::runs(settings, registry, overhead)?);
        runs.extend(power::study_runs(settings, registry, &base, load)?);
        let models = power::models(registry, &base)?;
        let settings = *settings;
        Ok(Experiment::new("sensitivity", "Sensitivity", "", runs, move |finished| {
            let mut outcome = Outcome::default();
            LatencySweep::Gups.metrics(finished, &GUPS_US, &mut outcome)?;
            LatencySweep::Mmap.metrics(finished, &MMAP_US, &mut outcome)?;
            technology::study_metrics(finished, technology, &mut outcome)?;
            filebench::study_metrics(finished, &mut outcome)?;
            prefetch::study_metrics(&settings, finished, &mut outcome)?;
            overhead::metrics(finished, &mut outcome)?;
            power::study_metrics(finished, &models, &base, &mut outcome)?;
            Ok(outcome)
        }))
    }

    fn apply(&mut self, change: ParameterChange<'_>) -> Result<(), ReproError> {
        let ParameterChange { key, value } = change;
        let base = &mut self.base;
        match key.split_once('.') {
            Some(("processor", key)) => base.processor.push(format!("{key}={value}")),
            Some(("nvmm", key)) => base.flash.push(format!("{key}={value}")),
            Some(("ssd", key)) => base.drive.push(format!("{key}={value}")),
            Some(("software", _)) => base.drive.push(format!("{key}={value}")),
            Some(("mmap", "data")) => self.mmap = Some(change.bytes()?),
            Some(("technology", "mean")) => {
                self.technology.mean = match value {
                    "geometric" => Mean::Geometric,
                    "of ratios" => Mean::OfRatios,
                    _ => return Err(change.unsupported()),
                };
            }
            Some(("technology", "prefetch")) => self.technology.prefetch = change.count()?,
            Some(("technology", "resident")) => self.technology.resident = change.flag()?,
            Some(("filebench", "threads")) => self.files.one = value == "one",
            Some(("filebench", "sync")) => {
                self.files.sync = match value {
                    "neither" => SyncReach::Neither,
                    "SSD" => SyncReach::Ssd,
                    _ => return Err(change.unsupported()),
                };
            }
            Some(("filebench", "prefetch")) => self.files.prefetch = change.count()?,
            Some(("overhead", "others")) => self.overhead.others = change.count()?,
            Some(("overhead", "read_around")) => self.overhead.read_around = change.flag()?,
            Some(("power", "interval")) => self.load.interval_ns = change.picoseconds()? / 1000,
            Some(("power", "read")) => self.load.read = change.number()?,
            Some(("power", "theta")) => self.load.theta = change.number()?,
            Some(_) => return Err(change.unsupported()),
            None => match key {
                "blocking" => base.blocking = change.flag()?,
                "each" => base.each = change.flag()?,
                "gap" => base.gap = change.count()?,
                "work" => {
                    let times = change.number()?;
                    self.technology.work = times;
                    self.line_copy = (f64::from(LINE_COPY) * times) as u32;
                    self.files.line_copy = self.line_copy;
                }
                "data" => base.data = change.bytes()?,
                "start" => {
                    base.start = match value {
                        "filled" => StartState::Filled,
                        "data" => StartState::Data,
                        _ => return Err(change.unsupported()),
                    };
                }
                "packages" => {
                    base.flash.push(format!("packages_per_channel={value}"));
                    base.drive.push(format!("packages_per_channel={value}"));
                    base.drive.push(format!("raw_capacity={}GiB", 64 * u64::from(change.count()?)));
                }
                "queue" => base.paging.queue = u64::from(change.count()?),
                "kernel" => {
                    base.paging = match value {
                        "6" => PagingOptions { queue: base.paging.queue, ..PagingOptions::default() },
                        _ => return Err(change.unsupported()),
                    };
                }
                "critical_first" => base.nvmm.critical_first = change.flag()?,
                "segment" => {
                    base.flash.push(format!("segment={value}"));
                    base.flash.push(format!("nand.page={value}"));
                }
                "program" => {
                    base.flash.push(format!("nand.program={value}"));
                    base.drive.push(format!("nand.program={value}"));
                }
                "write_back_above" => base.nvmm.write_back_above = change.number()?,
                "readahead" => base.paging.readahead_most = change.count()?,
                _ => return Err(change.unsupported()),
            },
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sensitivity::{ChangedEnd, changed_ends};

    #[test]
    fn every_end_of_a_range_changes_runs_but_not_all_of_them() {
        let (base, ends) = changed_ends::<Assumptions>();
        // The choice of mean does not change any run.
        for ChangedEnd { text, changed, .. } in ends.into_iter().filter(|end| end.key != "technology.mean") {
            let same = base.len() - changed.len();
            assert!(same > 0 && same < base.len(), "{text}: {same} of {} are the same", base.len());
        }
    }

    #[test]
    fn each_mean_of_ratios_follows_its_definition() {
        let (over, under) = ([4.0, 1.0], [1.0, 4.0]);
        let of = |mean: Mean| mean.ratio(&over, &under);
        assert!((of(Mean::Geometric) - 1.0).abs() < 1e-12);
        assert!((of(Mean::OfMeans) - 1.0).abs() < 1e-12);
        assert!((of(Mean::OfRatios) - 2.125).abs() < 1e-12);
    }
}
