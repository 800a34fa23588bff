//! The three systems under the threads of one processor.

use std::sync::Arc;

use deepram_media::{Processor, Registry};
use deepram_sim::nvmm::Prefetch;
use deepram_sim::paging::Backing;
use deepram_sim::processor::{ProcessorOptions, References};
use deepram_sim::rng::Stream;
use deepram_sim::{RunOptions, SimError, System, SystemConfig, run_threads};
use deepram_trace::{Access, MemRef};
use serde_json::json;

use crate::error::ReproError;
use crate::run::{Figures, Procedure, Run};

/// Raised when the simulated systems or the threads below change.
const PROCEDURE: Procedure = Procedure { name: "nvmm machine", version: 1 };

/// Bytes of DRAM in front of flash; everything larger is four times that. The paper has 32 GB; what
/// matters for random accesses is the ratio, which it does not give.
pub(super) const DRAM: u64 = 16 << 20;
/// Bytes of the table or file.
pub(super) const DATA: u64 = 4 * DRAM;
/// Instructions from one reference to the next: HPCC's update is about ten instructions long, with a load
/// and a store.
const GAP: u32 = 5;

/// Which system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Machine {
    /// Flash main memory, fetching so many blocks ahead.
    Nvmm(u32),
    /// An SSD behind paging.
    Ssd,
}

/// What the threads do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Program {
    /// The threads store to all of a table once, then update random words: load, then store.
    Gups,
    /// Loads at random places of a mapped file that is not in memory at the beginning.
    Mmap,
}

/// One simulation.
#[derive(Debug, Clone)]
pub(super) struct Setting {
    pub(super) machine: Machine,
    pub(super) program: Program,
    pub(super) threads: u32,
    /// Array time of a read.
    pub(super) read_us: f64,
    /// Loads wait for the one before.
    pub(super) blocking: bool,
    /// Random accesses, of all threads.
    pub(super) accesses: u64,
    pub(super) seed: u64,
}

impl Setting {
    /// A name, unique in an experiment.
    pub(super) fn name(&self) -> String {
        let machine = match self.machine {
            Machine::Nvmm(0) => "nvmm".to_owned(),
            Machine::Nvmm(blocks) => format!("nvmm.prefetch{blocks}"),
            Machine::Ssd => "ssd".to_owned(),
        };
        let blocking = if self.blocking { ".blocking" } else { "" };
        format!("{machine}.t{}.{}us{blocking}", self.threads, self.read_us)
    }

    fn config(&self) -> SystemConfig {
        let mut config = SystemConfig::new(match self.machine {
            Machine::Nvmm(_) => System::Nvmm,
            Machine::Ssd => System::SsdPaging,
        });
        let slow = self.read_us >= 50.0;
        config.preset = match self.machine {
            Machine::Nvmm(_) => if slow { "nvmm-mlc-75us" } else { "nvmm-slc" }.into(),
            Machine::Ssd => if slow { "paging-mlc" } else { "paging-slc" }.into(),
        };
        config.software = if slow { "linux-mlc" } else { "linux-slc" }.into();
        config.overrides = vec![format!("nand.read={}us", self.read_us)];
        config.nvmm.cache_bytes = DRAM;
        config.paging.memory_bytes = DRAM;
        config.paging.backing = match self.program {
            Program::Gups => Backing::Swap,
            Program::Mmap => Backing::File,
        };
        if let Machine::Nvmm(blocks) = self.machine {
            config.nvmm.prefetch = if blocks == 0 { Prefetch::None } else { Prefetch::Next(blocks) };
        }
        config
    }

    /// The threads, and how many of their references come before the measured ones.
    fn threads(&self) -> (Vec<References<'static>>, u64) {
        let (count, program, seed) = (u64::from(self.threads), self.program, self.seed);
        let fill = if program == Program::Gups { DATA / 64 } else { 0 };
        let threads = (0..count).map(|number| {
            let lines = (fill * number / count)..(fill * (number + 1) / count);
            let filled = lines.map(|line| reference(line * 64, Access::Store));
            let mine = self.accesses / count + u64::from(number < self.accesses % count);
            let mut random = Stream::new(seed, &format!("thread {number}"));
            let accesses = (0..mine).flat_map(move |_| {
                let addr = random.below(DATA / 8) * 8;
                let store = (program == Program::Gups).then(|| reference(addr, Access::Store));
                std::iter::once(reference(addr, Access::Load)).chain(store)
            });
            Box::new(filled.chain(accesses).map(Ok::<_, SimError>)) as References<'static>
        });
        (threads.collect(), fill)
    }

    /// The simulation as a run of an experiment.
    pub(super) fn run(&self, registry: &Arc<Registry>) -> Result<Run, ReproError> {
        let name = self.name();
        let wrong = |source: SimError| ReproError::Config { what: self.name(), source: Box::new(source) };
        let preset: Processor = registry.get("processor.nvmm-host").map_err(|error| wrong(error.into()))?;
        let mut processor = ProcessorOptions::new(&preset).map_err(wrong)?;
        processor.blocking = self.blocking;
        processor.warm_up = self.threads().1;
        let config = self.config();
        let overrides: Vec<&str> = config.overrides.iter().map(String::as_str).collect();
        let kind = if config.system == System::Nvmm { "nvmm" } else { "ssd" };
        let sheet = registry
            .sheet_with(&format!("{kind}.{}", config.preset), &overrides)
            .map_err(|error| wrong(error.into()))?;
        let software = registry
            .sheet_with(&format!("software.{}", config.software), &[])
            .map_err(|error| wrong(error.into()))?;
        let identity = json!({
            "config": format!("{config:?}"), "processor": format!("{processor:?}"), "setting": format!("{self:?}"),
            "preset": sheet.digest(), "software": software.digest(), "data": DATA, "gap": GAP,
        });
        let (setting, registry) = (self.clone(), Arc::clone(registry));
        Ok(Run::new(name.clone(), PROCEDURE, identity, move || {
            let failed =
                |source: SimError| ReproError::Simulation { run: name.clone(), source: Box::new(source) };
            let options = RunOptions { seed: setting.seed, workload: name.clone(), ..RunOptions::default() };
            let result = run_threads(&registry, &setting.config(), setting.threads().0, &processor, &options)
                .map_err(failed)?;
            let value = serde_json::to_value(&result)
                .map_err(|error| ReproError::Run { run: name.clone(), why: error.to_string() })?;
            Ok(Figures::of_json(&value, &["config", "seed", "intervals", "host", "threads", "options"]))
        }))
    }
}

fn reference(addr: u64, access: Access) -> MemRef {
    MemRef { gap: GAP, addr, size: 8, access }
}
