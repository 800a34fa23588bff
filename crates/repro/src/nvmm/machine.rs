//! The three systems under the threads of one processor, with one set of parameters for all claims.

use std::fmt;
use std::sync::Arc;

use deepram_media::{Bytes, Processor, Registry};
use deepram_sim::nvmm::{NvmmOptions, Prefetch};
use deepram_sim::paging::{Backing, PagingOptions};
use deepram_sim::processor::{ProcessorOptions, ThreadReferences};
use deepram_sim::{RunOptions, SimError, System, SystemConfig, run_threads};
use serde_json::json;

use crate::error::ReproError;
use crate::simulation_run::{Metrics, SimulationRun};

/// Name of the procedure, part of the digest.
const PROCEDURE: &str = "nvmm machine";

/// Preset of the processor of all systems, and its cores.
const PROCESSOR: &str = "processor.nvmm-host";
pub(super) const CORES: u32 = 6;

/// What DRAM holds of a table or file at first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StartState {
    /// Nothing: DRAM is full of other, clean data. The size of the table is calibrated on this.
    Clean,
    /// The first part, clean.
    Data,
    /// The part of the table that DRAM still holds after the program's threads have stored to all of it; of a file,
    /// nothing.
    Filled,
}

/// Settings that all simulations share unless the sensitivity study changes them.
#[derive(Debug, Clone)]
pub(super) struct MachineConfig {
    /// DRAM in front of flash, in bytes. The draft's simulations have 512 MB; its accesses are counted in
    /// absolute numbers, so the size is not scaled.
    pub(super) dram: u64,
    /// Size of the table or file, in bytes. Calibrated on one published number, GUPS' gain by
    /// prefetching: with n accesses that bring 17 blocks each into a table of d blocks, the gain is
    /// x / (1 - e^-x) with x = 17 n / d. For n = 5000, 3.7 / 3 gives 755 MB.
    pub(super) data: u64,
    /// What DRAM holds of the tables and files of GUPS and MMAP at first.
    pub(super) start: StartState,
    /// NVMM's cache begins full, so that a program's new memory is in it.
    pub(super) resident: bool,
    /// Instructions between references. An update of HPCC RandomAccess takes about ten instructions,
    /// with one load and one store.
    pub(super) gap: u32,
    /// Each thread of GUPS and MMAP makes all accesses; otherwise they share them.
    pub(super) each: bool,
    /// Preset overrides of the processor, `key=value`.
    pub(super) processor: Vec<String>,
    /// Preset overrides of the flash main memory.
    pub(super) flash: Vec<String>,
    /// Preset overrides of the SSD system; `memory.` begins those of its DRAM, `software.` those of its
    /// operating system.
    pub(super) drive: Vec<String>,
    /// Options of the flash main memory.
    pub(super) nvmm: NvmmOptions,
    /// Options of paging.
    pub(super) paging: PagingOptions,
    /// Every program has one outstanding load at a time.
    pub(super) blocking: bool,
}

impl Default for MachineConfig {
    fn default() -> Self {
        Self {
            dram: 512 << 20,
            data: 768 << 20,
            start: StartState::Clean,
            resident: true,
            gap: 5,
            each: false,
            processor: Vec::new(),
            flash: Vec::new(),
            drive: Vec::new(),
            nvmm: NvmmOptions::default(),
            // AHCI with native command queueing has 32 commands.
            paging: PagingOptions { queue: 32, ..PagingOptions::linux_3_4() },
            blocking: false,
        }
    }
}

impl MachineConfig {
    /// All capacities divided by `by`: DRAM, data, the last-level cache, the drive's data cache, NVMM's
    /// mapping cache. Times, queues and planes stay, as do the threads that use them.
    pub(super) fn scaled(mut self, by: u64) -> Self {
        if by > 1 {
            (self.dram, self.data) = (self.dram / by, self.data / by);
            // Before the overrides of the sensitivity study, which take precedence.
            self.processor.insert(0, format!("llc={}KiB", (8 << 10) / by));
            self.flash.insert(0, format!("mapping_entries={}", 4096 / by));
            self.drive.insert(0, format!("data_cache={}KiB", (64 << 10) / by));
        }
        self
    }

    /// A core for each thread. Inferred: the paper's threads stall on NVMM rather than switch, and yet
    /// become faster with their number.
    pub(super) fn with_cores(mut self, threads: u32) -> Self {
        if threads > CORES {
            self.processor.insert(0, format!("cores={threads}"));
        }
        self
    }
}

/// The simulated system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Machine {
    /// All-DRAM.
    Dram,
    /// Flash main memory, prefetching this many blocks.
    Nvmm(u32),
    /// An SSD behind paging.
    Ssd,
}

/// The flash, or the technology in its place.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Technology {
    /// Preset of the flash main memory.
    pub(super) nvmm: &'static str,
    /// Preset of the SSD.
    pub(super) drive: &'static str,
    /// Preset of the operating system, calibrated for the SSD.
    pub(super) software: &'static str,
    /// Array read time in microseconds, if not the preset's.
    pub(super) read_us: Option<f64>,
}

impl Technology {
    pub(super) const SLC: Self =
        Self { nvmm: "nvmm-slc", drive: "paging-slc", software: "linux-slc", read_us: None };
    /// MLC of the latency sweeps and the software-overhead table.
    pub(super) const MLC_75: Self =
        Self { nvmm: "nvmm-mlc-75us", drive: "paging-mlc", software: "linux-mlc", read_us: None };

    /// MLC with this read time; its program and erase times stay. The software is that of the calibrated
    /// drive with the nearer read time.
    pub(super) fn with_read(read_us: f64) -> Self {
        let near = if read_us < 50.0 { Self::SLC } else { Self::MLC_75 };
        Self { read_us: Some(read_us), software: near.software, ..Self::MLC_75 }
    }
}

/// The contents of the DRAM when a program begins. All of them are clean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InitialDram {
    /// Nothing that the program uses. (Clean data that it does not use make no difference.)
    Empty,
    /// NVMM's cache holds the first part of memory. An operating system has free memory.
    Memory,
    /// Data of this size exist, none of them in DRAM.
    Outside(u64),
    /// Data of this size exist; NVMM's cache, and the memory of the SSD system, hold the first of them.
    Data(u64),
}

type MakeThreads = dyn Fn() -> Result<Vec<ThreadReferences<'static>>, SimError> + Send + Sync;

/// A program: the references of its threads.
#[derive(Clone)]
pub(super) struct Program {
    /// Everything that the references depend on, for the digest.
    pub(super) text: String,
    /// Backing of the data outside DRAM.
    pub(super) backing: Backing,
    pub(super) initial: InitialDram,
    /// One outstanding load at a time.
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
pub(super) struct RunSpec {
    /// Name, unique in its experiment.
    pub(super) name: String,
    pub(super) machine: Machine,
    pub(super) technology: Technology,
    pub(super) program: Program,
    pub(super) base: MachineConfig,
    pub(super) seed: u64,
}

impl RunSpec {
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
        // Only the machine's own options: otherwise identical runs would get different digests.
        match self.machine {
            Machine::Dram => {}
            Machine::Nvmm(blocks) => {
                config.nvmm = base.nvmm.clone();
                config.nvmm.cache = Bytes(base.dram);
                config.nvmm.prefilled =
                    matches!(self.program.initial, InitialDram::Memory | InitialDram::Data(_));
                config.nvmm.prefetch = if blocks == 0 { Prefetch::None } else { Prefetch::Next(blocks) };
            }
            Machine::Ssd => {
                config.paging = base.paging.clone();
                config.paging.memory = Bytes(base.dram);
                config.paging.backing = self.program.backing;
                if let InitialDram::Data(bytes) | InitialDram::Outside(bytes) = self.program.initial {
                    config.paging.existing = Bytes(bytes);
                    config.paging.resident = self.program.initial == InitialDram::Data(bytes);
                }
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

    /// The run. Its metrics are all numbers of the simulator's JSON result by their path:
    /// `simulated_time_ns`, `energy.flash read.dynamic_nj`.
    pub(super) fn run(&self, registry: &Arc<Registry>) -> Result<SimulationRun, ReproError> {
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
        Ok(SimulationRun::new(name.clone(), PROCEDURE, identity, move || {
            let failed =
                |source: SimError| ReproError::Simulation { run: name.clone(), source: Box::new(source) };
            let threads = (setting.program.threads)().map_err(failed)?;
            let options = RunOptions { seed: setting.seed, workload: name.clone(), ..RunOptions::default() };
            let result =
                run_threads(&registry, &setting.config(), threads, &processor, &options).map_err(failed)?;
            let value = serde_json::to_value(&result)
                .map_err(|error| ReproError::Run { run: name.clone(), why: error.to_string() })?;
            Ok(Metrics::of_json(&value, &["config", "seed", "intervals", "host", "threads", "options"]))
        }))
    }
}
