//! The three systems under the threads of one processor, with one set of parameters for every claim.

use std::fmt;
use std::sync::Arc;

use deepram_media::{Bytes, Processor, Registry};
use deepram_sim::nvmm::{NvmmOptions, Prefetch};
use deepram_sim::paging::{Backing, PagingOptions};
use deepram_sim::processor::{ProcessorOptions, ThreadReferences};
use deepram_sim::{RunOptions, SimError, System, SystemConfig, run_threads};
use serde_json::json;

use crate::error::ReproError;
use crate::run::{Figures, Procedure, Run};

/// Raised when the simulated systems or the programs change.
const PROCEDURE: Procedure = Procedure { name: "nvmm machine", version: 2 };

/// The processor of all systems.
const PROCESSOR: &str = "processor.nvmm-host";

/// What all simulations share unless a study changes it.
#[derive(Debug, Clone)]
pub(super) struct Base {
    /// Bytes of DRAM in front of flash. The paper has 32 GB; what matters is its ratio to the data, which
    /// the paper does not give: it says that the data are larger.
    pub(super) dram: u64,
    /// Bytes of the table or file that does not fit: 256 MB is the one size that the text names (for the
    /// file of MMAP).
    pub(super) data: u64,
    /// Instructions from one reference to the next: HPCC's update is about ten instructions long, with a
    /// load and a store.
    pub(super) gap: u32,
    /// Figures of the processor set anew.
    pub(super) processor: Vec<String>,
    /// Figures of the flash main memory set anew.
    pub(super) flash: Vec<String>,
    /// Figures of the SSD system set anew; those of its DRAM begin with `memory.`, those of its operating
    /// system with `software.`.
    pub(super) drive: Vec<String>,
    /// Options of the flash main memory.
    pub(super) nvmm: NvmmOptions,
    /// Options of paging.
    pub(super) paging: PagingOptions,
    /// Every program has one load under way at a time.
    pub(super) blocking: bool,
}

impl Default for Base {
    fn default() -> Self {
        Self {
            dram: 64 << 20,
            data: 256 << 20,
            gap: 5,
            processor: Vec::new(),
            flash: Vec::new(),
            drive: Vec::new(),
            nvmm: NvmmOptions::default(),
            paging: PagingOptions::default(),
            blocking: false,
        }
    }
}

/// Which system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Machine {
    /// DRAM alone, with room for everything.
    Dram,
    /// Flash main memory, fetching so many blocks ahead.
    Nvmm(u32),
    /// An SSD behind paging.
    Ssd,
}

/// What flash, or stands in its place.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Technology {
    /// The flash main memory's preset.
    pub(super) nvmm: &'static str,
    /// The drive's.
    pub(super) drive: &'static str,
    /// The operating system's, as calibrated for the drive.
    pub(super) software: &'static str,
    /// Another array time of a read, in microseconds.
    pub(super) read_us: Option<f64>,
}

impl Technology {
    pub(super) const SLC: Self =
        Self { nvmm: "nvmm-slc", drive: "paging-slc", software: "linux-slc", read_us: None };
    /// MLC of the latency sweeps and of the software-overhead table.
    pub(super) const MLC_75: Self =
        Self { nvmm: "nvmm-mlc-75us", drive: "paging-mlc", software: "linux-mlc", read_us: None };

    /// Flash whose read takes so long: the software is that of the nearer of the two drives on which it is
    /// calibrated.
    pub(super) fn with_read(read_us: f64) -> Self {
        let near = if read_us < 50.0 { Self::SLC } else { Self::MLC_75 };
        Self { read_us: Some(read_us), ..near }
    }
}

/// The references of some threads, and how many of them come before the measured ones.
pub(super) struct Threads {
    pub(super) references: Vec<ThreadReferences<'static>>,
    pub(super) warm_up: u64,
}

type MakeThreads = dyn Fn() -> Result<Threads, SimError> + Send + Sync;

/// What the threads do.
#[derive(Clone)]
pub(super) struct Program {
    /// Everything that the references depend on.
    pub(super) text: String,
    /// Where its data are when they are not in memory.
    pub(super) backing: Backing,
    /// One load under way at a time.
    pub(super) blocking: bool,
    pub(super) threads: Arc<MakeThreads>,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// One simulation.
#[derive(Debug, Clone)]
pub(super) struct Setting {
    /// Unique in its experiment.
    pub(super) name: String,
    pub(super) machine: Machine,
    pub(super) technology: Technology,
    pub(super) program: Program,
    pub(super) base: Base,
    pub(super) seed: u64,
}

impl Setting {
    fn config(&self) -> SystemConfig {
        let base = &self.base;
        let read = self.technology.read_us.map(|us| format!("nand.read={us}us"));
        let mut config = SystemConfig::new(match self.machine {
            Machine::Dram => System::Dram,
            Machine::Nvmm(_) => System::Nvmm,
            Machine::Ssd => System::SsdPaging,
        });
        config.preset = match self.machine {
            Machine::Dram => "nvmm-host".into(),
            Machine::Nvmm(_) => self.technology.nvmm.into(),
            Machine::Ssd => self.technology.drive.into(),
        };
        config.memory = "nvmm-host".into();
        config.software = self.technology.software.into();
        config.overrides = match self.machine {
            Machine::Dram => Vec::new(),
            Machine::Nvmm(_) => read.into_iter().chain(base.flash.iter().cloned()).collect(),
            Machine::Ssd => read.into_iter().chain(base.drive.iter().cloned()).collect(),
        };
        // A machine's own options only: runs that differ in nothing else are one.
        match self.machine {
            Machine::Dram => {}
            Machine::Nvmm(blocks) => {
                config.nvmm = base.nvmm.clone();
                config.nvmm.cache = Bytes(base.dram);
                config.nvmm.prefetch = if blocks == 0 { Prefetch::None } else { Prefetch::Next(blocks) };
            }
            Machine::Ssd => {
                config.paging = base.paging.clone();
                config.paging.memory = Bytes(base.dram);
                config.paging.backing = self.program.backing;
            }
        }
        config
    }

    fn processor(&self, registry: &Registry) -> Result<(ProcessorOptions, String), SimError> {
        let overrides: Vec<&str> = self.base.processor.iter().map(String::as_str).collect();
        let sheet = registry.resolve_with(PROCESSOR, &overrides)?;
        let mut options = ProcessorOptions::new(&sheet.model::<Processor>()?)?;
        options.blocking = self.program.blocking || self.base.blocking;
        Ok((options, sheet.digest()))
    }

    /// The simulation as a run of an experiment. Its figures are all numbers of the simulator's result by
    /// their path in its JSON: `simulated_time_ns`, `energy.flash read.dynamic_nj`.
    pub(super) fn run(&self, registry: &Arc<Registry>) -> Result<Run, ReproError> {
        let name = self.name.clone();
        let wrong = |source: SimError| ReproError::Config { what: name.clone(), source: Box::new(source) };
        let (processor, processor_digest) = self.processor(registry).map_err(wrong)?;
        let config = self.config();
        let digests = config.digests(registry).map_err(wrong)?;
        let identity = json!({
            "config": format!("{config:?}"), "processor": format!("{processor:?}"),
            "processor_preset": processor_digest, "presets": digests,
            "program": self.program.text, "seed": self.seed,
        });
        let (setting, registry) = (self.clone(), Arc::clone(registry));
        Ok(Run::new(name.clone(), PROCEDURE, identity, move || {
            let failed =
                |source: SimError| ReproError::Simulation { run: name.clone(), source: Box::new(source) };
            let threads = (setting.program.threads)().map_err(failed)?;
            let processor = ProcessorOptions { warm_up: threads.warm_up, ..processor.clone() };
            let options = RunOptions { seed: setting.seed, workload: name.clone(), ..RunOptions::default() };
            let result = run_threads(&registry, &setting.config(), threads.references, &processor, &options)
                .map_err(failed)?;
            let value = serde_json::to_value(&result)
                .map_err(|error| ReproError::Run { run: name.clone(), why: error.to_string() })?;
            Ok(Figures::of_json(&value, &["config", "seed", "intervals", "host", "threads", "options"]))
        }))
    }
}
