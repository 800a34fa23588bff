//! What the results hang on: one assumption at a time goes to the ends of what is plausible.
//!
//! 1. The study runs again what is behind claims that are missed, and no more: the sweeps at the latencies of
//!    claims, the means with flash that is there to buy, the personalities and the dd with numbers, the
//!    software-overhead table, power of 8 GB.
//! 2. Most parameters are of all machines. The others are of one experiment or two and leave the rest alone.
//! 3. Streams of the technology comparison have a smaller file here, so its means differ a little from those
//!    that claims are judged on.

use std::sync::Arc;

use deepram_media::Registry;
use deepram_sim::SimError;

use super::machine::Base;
use super::programs::LINE_COPY;
use super::sweep::Sweep;
use super::technology::Mean;
use super::{filebench, overhead, power, prefetch, technology};
use crate::error::ReproError;
use crate::experiment::{Experiment, Outcome, Settings};
use crate::sensitivity::{Change, Sensitivity};

/// GUPS costs more to simulate; all that is missed of it is at 75 us.
const GUPS_US: [f64; 1] = [75.0];
const MMAP_US: [f64; 3] = [75.0, 150.0, 750.0];

/// Key, what it is, low end, base, high end, why these ends. What begins with a preset's kind is a figure of
/// that preset; what begins with an experiment's name is of that experiment alone.
const PARAMETERS: [[&str; 6]; 28] = [
    [
        "blocking",
        "loads wait for the one before",
        "false",
        "false",
        "true",
        "the paper's NVMM stalls on a miss",
    ],
    ["processor.misses", "misses of a core under way", "4", "10", "16", "from small cores to the newest"],
    ["processor.cores", "cores", "1", "6", "16", "MARSSx86 runs as many as it is told to"],
    [
        "gap",
        "instructions from one reference of GUPS and MMAP to the next",
        "2",
        "5",
        "50",
        "a bare loop; library calls for random numbers",
    ],
    [
        "work",
        "instructions from one reference of the other programs to the next, in the assumed ones",
        "0.5",
        "1",
        "8",
        "better compilers; system calls and the file system's code, 128 instructions a line of dd",
    ],
    ["data", "bytes of the table or file", "128MiB", "256MiB", "512MiB", "half and double"],
    [
        "nvmm.stripe",
        "planes that a page's segments lie in",
        "1",
        "16",
        "16",
        "one block for a page, as the page table allows",
    ],
    [
        "critical_first",
        "a missing line comes before the rest of its block",
        "false",
        "true",
        "true",
        "caches do either",
    ],
    [
        "mmap.data",
        "bytes of MMAP's file, for 64 MiB of DRAM",
        "64MiB",
        "256MiB",
        "256MiB",
        "it fits, as the draft's 256 MB do in 512 MB of DRAM; the paper's is larger",
    ],
    [
        "program",
        "time of a program with MLC",
        "200us",
        "1200us",
        "1200us",
        "SLC's of the setup's table; filebench has 750us otherwise",
    ],
    ["nvmm.channels", "flash channels of NVMM", "4", "16", "32", "a DIMM's worth; double"],
    [
        "segment",
        "bytes of a cache block and of a flash read",
        "4KiB",
        "4KiB",
        "16KiB",
        "the paper's 4 to 16 KB",
    ],
    [
        "write_back_above",
        "dirty share from which blocks are written early",
        "0.02",
        "0.1",
        "1",
        "nearly always; never",
    ],
    ["ssd.channels", "channels of the drive", "4", "16", "32", "a small drive; double"],
    [
        "software.wait_on_core",
        "the software's wait keeps its core",
        "false",
        "false",
        "true",
        "the table gives time, not whose it is",
    ],
    ["software.wait", "the software's wait with MLC", "29.85us", "59.7us", "119.4us", "half and double"],
    [
        "software.extra_page",
        "the system's own time for each further page of a request",
        "0.3us",
        "0.6us",
        "6us",
        "half; a file system's code and a copy as for a first page",
    ],
    ["readahead", "pages that Linux reads ahead or around a fault at most", "0", "32", "64", "none; double"],
    [
        "technology.mean",
        "how the ratios of workloads become one",
        "of means",
        "geometric",
        "of ratios",
        "the paper does not say which; arithmetic means of bars, or of ratios",
    ],
    ["technology.prefetch", "blocks that NVMM fetches ahead", "0", "1", "16", "the paper says both 0 and 1"],
    [
        "technology.populated",
        "a program's new memory is read from flash at the first touch",
        "false",
        "true",
        "true",
        "the page table may know that nobody wrote it",
    ],
    ["filebench.threads", "threads", "one", "its own", "its own", "the draft gives no number"],
    [
        "filebench.prefetch",
        "blocks that NVMM fetches ahead",
        "0",
        "0",
        "16",
        "the draft says none for this figure",
    ],
    ["overhead.others", "threads that fault beside the one", "0", "0", "15", "a system is never quite still"],
    [
        "overhead.read_around",
        "a fault has the pages around it read",
        "false",
        "false",
        "true",
        "Linux does, unless told that accesses are random",
    ],
    [
        "power.interval",
        "time from one request of 4 KiB to the next",
        "320ns",
        "640ns",
        "6400ns",
        "double the bandwidth; a tenth",
    ],
    ["power.read", "share of reads", "0.5", "0.7", "0.95", "as many writes; hardly any"],
    ["power.theta", "popularity of blocks (Zipf)", "0.8", "0.99", "1.2", "flatter; steeper"],
];

/// Figure and title: one or two of each experiment with claims that are missed, as many as a chart tells apart. The
/// study computes more, for claims.
const HEADLINES: [(&str, &str); 8] = [
    ("nvmm_over_ssd.mean", "NVMM over SSD, mean"),
    ("dram_over_nvmm.mean", "DRAM over NVMM, mean"),
    ("gups.speedup.t1.75us", "GUPS, one thread"),
    ("gups.speedup.t16.75us", "GUPS, sixteen threads"),
    ("mmap.speedup.t1.75us", "MMAP, one thread"),
    ("mmap.speedup.t16.75us", "MMAP, sixteen threads"),
    ("oltp.speedup", "OLTP"),
    ("nvmm_over_dram.8gb.power", "Power of 8 GB over DRAM's"),
];

/// All that may change.
#[derive(Debug, Clone)]
struct Assumptions {
    base: Base,
    technology: technology::Variant,
    files: filebench::Variant,
    overhead: overhead::Variant,
    load: power::Load,
    /// Bytes of MMAP's file, if not as many as all data.
    mmap: Option<u64>,
    /// Instructions for a line of dd.
    line_copy: u32,
}

/// The study.
pub(super) fn study(settings: &Settings, registry: &Arc<Registry>) -> Result<Sensitivity, ReproError> {
    Sensitivity::of_tables(&HEADLINES, &PARAMETERS, &|change| {
        let mut assumptions = Assumptions::default();
        if let Some(change) = change {
            assumptions.apply(change)?;
        }
        assumptions.experiment(settings, registry)
    })
}

impl Default for Assumptions {
    fn default() -> Self {
        Self {
            base: Base::default(),
            technology: technology::Variant::default(),
            files: filebench::Variant::default(),
            overhead: overhead::Variant::default(),
            load: power::Load::default(),
            mmap: None,
            line_copy: LINE_COPY,
        }
    }
}

impl Assumptions {
    fn experiment(self, settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
        let Self { base, technology, files, overhead, load, mmap, line_copy } = self;
        let mut runs = Sweep::Gups.runs(settings, registry, &base, &GUPS_US)?;
        let file = Base { data: mmap.unwrap_or(base.data), ..base.clone() };
        runs.extend(Sweep::Mmap.runs(settings, registry, &file, &MMAP_US)?);
        runs.extend(technology::study_runs(settings, registry, &base, technology)?);
        runs.extend(filebench::study_runs(settings, registry, &base, files)?);
        runs.extend(prefetch::study_runs(settings, registry, &base, line_copy)?);
        runs.extend(overhead::runs(settings, registry, overhead)?);
        runs.extend(power::study_runs(settings, registry, &base, load)?);
        let models = power::models(registry, &base)?;
        let settings = *settings;
        Ok(Experiment::new("sensitivity", "Sensitivity", "", runs, move |finished| {
            let mut outcome = Outcome::default();
            Sweep::Gups.figures(finished, &GUPS_US, &mut outcome)?;
            Sweep::Mmap.figures(finished, &MMAP_US, &mut outcome)?;
            technology::study_figures(finished, technology, &mut outcome)?;
            filebench::study_figures(finished, &mut outcome)?;
            prefetch::study_figures(&settings, finished, &mut outcome)?;
            overhead::figures(finished, &mut outcome)?;
            power::study_figures(finished, &models, &base, &mut outcome)?;
            Ok(outcome)
        }))
    }

    /// Sets what the change names.
    fn apply(&mut self, change: Change<'_>) -> Result<(), ReproError> {
        let Change { key, value } = change;
        let wrong = |why: String| ReproError::Config {
            what: "sensitivity".into(),
            source: Box::new(SimError::Config { key: key.into(), why }),
        };
        let number = || value.parse::<f64>().map_err(|_| wrong(format!("{value:?} is no number")));
        let count = || value.parse::<u32>().map_err(|_| wrong(format!("{value:?} is no count")));
        let flag = || value.parse::<bool>().map_err(|_| wrong(format!("{value:?} is not true or false")));
        let time = |unit: &str| {
            let digits = value.strip_suffix(unit).unwrap_or_default();
            digits.parse::<u32>().map_err(|_| wrong(format!("{value:?} is no whole number of {unit}")))
        };
        let bytes = || {
            let bytes = value.parse::<deepram_core::units::Bytes>();
            bytes.map(|bytes| bytes.0).map_err(|error| wrong(error.to_string()))
        };
        let unknown = || wrong(format!("the study does not know how to set it to {value:?}"));
        let base = &mut self.base;
        match key.split_once('.') {
            Some(("processor", figure)) => base.processor.push(format!("{figure}={value}")),
            Some(("nvmm", figure)) => base.flash.push(format!("{figure}={value}")),
            Some(("ssd", figure)) => base.drive.push(format!("{figure}={value}")),
            Some(("software", _)) => base.drive.push(format!("{key}={value}")),
            Some(("mmap", "data")) => self.mmap = Some(bytes()?),
            Some(("technology", "mean")) => {
                self.technology.mean = match value {
                    "of means" => Mean::OfMeans,
                    "of ratios" => Mean::OfRatios,
                    _ => return Err(unknown()),
                };
            }
            Some(("technology", "prefetch")) => self.technology.prefetch = count()?,
            Some(("technology", "populated")) => self.technology.populated = flag()?,
            Some(("filebench", "threads")) => self.files.one = value == "one",
            Some(("filebench", "prefetch")) => self.files.prefetch = count()?,
            Some(("overhead", "others")) => self.overhead.others = count()?,
            Some(("overhead", "read_around")) => self.overhead.read_around = flag()?,
            Some(("power", "interval")) => self.load.interval_ns = time("ns")?.into(),
            Some(("power", "read")) => self.load.read = number()?,
            Some(("power", "theta")) => self.load.theta = number()?,
            Some(_) => return Err(unknown()),
            None => match key {
                "blocking" => base.blocking = flag()?,
                "gap" => base.gap = count()?,
                "work" => {
                    let times = number()?;
                    self.technology.work = times;
                    self.line_copy = (f64::from(LINE_COPY) * times) as u32;
                    self.files.line_copy = self.line_copy;
                }
                "data" => base.data = bytes()?,
                "critical_first" => base.nvmm.critical_first = flag()?,
                "segment" => {
                    base.flash.push(format!("segment={value}"));
                    base.flash.push(format!("nand.page={value}"));
                }
                "program" => {
                    base.flash.push(format!("nand.program={value}"));
                    base.drive.push(format!("nand.program={value}"));
                }
                "write_back_above" => base.nvmm.write_back_above = number()?,
                "readahead" => base.paging.readahead_most = count()?,
                _ => return Err(unknown()),
            },
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digests(assumptions: Assumptions) -> Vec<String> {
        let registry = Arc::new(Registry::builtin().unwrap());
        let experiment = assumptions.experiment(&Settings { quick: true, seed: 1 }, &registry).unwrap();
        experiment.runs.into_iter().map(|run| run.digest).collect()
    }

    #[test]
    fn every_end_of_a_range_changes_runs_but_not_all_of_them() {
        let base = digests(Assumptions::default());
        // How ratios become one is no matter of runs.
        for [key, _, low, middle, high, _] in PARAMETERS.iter().filter(|row| row[0] != "technology.mean") {
            for value in [low, high].into_iter().filter(|value| *value != middle) {
                let mut assumptions = Assumptions::default();
                assumptions.apply(Change { key, value }).unwrap();
                let now = digests(assumptions);
                assert_eq!(now.len(), base.len(), "{key}={value}");
                let same = now.iter().zip(&base).filter(|(now, base)| now == base).count();
                assert!(
                    same > 0 && same < base.len(),
                    "{key}={value}: {same} of {} are the same",
                    base.len()
                );
            }
        }
    }

    #[test]
    fn means_of_ratios_are_what_they_say() {
        let (over, under) = ([4.0, 1.0], [1.0, 4.0]);
        let of = |mean: Mean| mean.ratio(&over, &under);
        assert!((of(Mean::Geometric) - 1.0).abs() < 1e-12);
        assert!((of(Mean::OfMeans) - 1.0).abs() < 1e-12);
        assert!((of(Mean::OfRatios) - 2.125).abs() < 1e-12);
    }
}
