//! Carries out a simulation.

use deepram_media::{Processor, Registry};
use deepram_trace::workload::title;
use deepram_trace::{ObjectPlacement, ReadOptions, TraceError, TraceReader, Workload};

use super::counting::RequestCounts;
use super::{DriveState, OBJECT_SLOTS, SLOT_BYTES, Simulation};
use crate::clients::ClientOptions;
use crate::error::SimError;
use crate::host::Stop;
use crate::paging::Backing;
use crate::pool_model::PoolModelOptions;
use crate::processor::{
    ProcessorOptions, ThreadReferences, memory_references, warm_up_first, workload_threads,
};
use crate::result::RunResult;
use crate::run::{RunOptions, SystemConfig, run, run_clients, run_threads};
use crate::ssd::Precondition;

impl Simulation {
    /// The configuration of the system.
    #[must_use]
    pub fn system_config(&self) -> SystemConfig {
        let mut config = SystemConfig::new(self.system);
        config.preset.clone_from(&self.preset);
        config.overrides.clone_from(&self.set);
        config.ssd.suspend_programs = self.suspend;
        config.ssd.suspend_erases = self.suspend;
        let dram = self.dram.unwrap_or_default();
        (config.nvmm.cache, config.paging.memory, config.pool.dram) = (dram, dram, dram);
        config.flat.memory = dram;
        config.flat.regions.clone_from(&self.persist);
        config.nvmm.prefetch = self.prefetch.unwrap_or_default();
        if self.swap {
            config.paging.backing = Backing::Swap;
            config.pool = PoolModelOptions { dram, ..PoolModelOptions::swap() };
        }
        for (given, name) in [
            (&self.memory, &mut config.memory),
            (&self.software, &mut config.software),
            (&self.drive, &mut config.drive),
        ] {
            if let Some(given) = given {
                name.clone_from(given);
            }
        }
        let filled = self.filled.unwrap_or(1.0);
        config.ssd.precondition = match self.precondition {
            None | Some(DriveState::Empty) => Precondition::Empty,
            Some(DriveState::Sequential) => Precondition::Sequential(filled),
            Some(DriveState::Steady) => Precondition::Steady(filled),
        };
        config
    }

    fn run_options(&self) -> RunOptions {
        let mut options = RunOptions { seed: self.seed, ..RunOptions::default() };
        options.host.threads = self.threads;
        options.host.per_thread = self.depth;
        options.host.think = self.think;
        options.host.closed = self.closed;
        options.host.requests = self.requests;
        options.host.warm_up = self.warm_up;
        options.host.wrap = self.wrap;
        options.host.stop = Stop::Drained;
        options.host.interval = self.interval.unwrap_or_default();
        options
    }

    fn objects(&self) -> ObjectPlacement {
        ObjectPlacement { slot_bytes: SLOT_BYTES, slots: self.object_slots.unwrap_or(OBJECT_SLOTS) }
    }

    fn reader(&self, trace: &std::path::Path) -> Result<TraceReader, SimError> {
        let options = ReadOptions { format: self.format, ..ReadOptions::default() };
        Ok(TraceReader::open(trace, &options)?)
    }

    /// Simulates, and returns the result with notes on unusual requests. `observe` is called now and then with the
    /// number of requests so far, and returns whether the simulation goes on.
    ///
    /// # Errors
    /// An option, a preset or the input is invalid; the input has no requests to measure; the device runs full;
    /// `observe` has ended the simulation.
    pub fn run(
        &self,
        registry: &Registry,
        observe: &dyn Fn(u64) -> bool,
    ) -> Result<(RunResult, Vec<String>), SimError> {
        self.check()?;
        let config = self.system_config();
        let mut options = self.run_options();
        if let Some(processor) = &self.processor {
            return Ok((self.on_processor(processor, registry, &config, &mut options)?, Vec::new()));
        }
        if let (Some(clients), Some(spec)) = (self.clients, &self.workload) {
            return Ok((self.by_clients(clients, spec, registry, &config, &mut options)?, Vec::new()));
        }
        let seen = RequestCounts::default();
        let result = match (&self.workload, &self.trace, &self.columns) {
            (Some(spec), ..) => {
                options.workload = title(spec);
                let workload = Workload::new(spec, self.seed)?;
                if !workload.ends() && self.requests == 0 {
                    let name = workload.spec().name();
                    return Err(SimError::Options(format!(
                        "{name} is endless: give count=N in the workload, or --requests N"
                    )));
                }
                let items = workload.map(Ok::<_, TraceError>);
                run(registry, &config, seen.counted(items, self.objects(), observe), &options)?
            }
            (None, Some(file), _) => {
                options.workload = file.display().to_string();
                let items = self.reader(file)?;
                run(registry, &config, seen.counted(items, self.objects(), observe), &options)?
            }
            (None, None, Some(columns)) => {
                options.workload = IN_MEMORY.into();
                let items = columns.items().map(Ok::<_, TraceError>);
                run(registry, &config, seen.counted(items, self.objects(), observe), &options)?
            }
            (None, None, None) => return Err(no_input()),
        };
        let notes = seen.check(&options.workload, self.warm_up, self.closed)?;
        Ok((result, notes))
    }

    /// Simulates references of a processor's threads.
    fn on_processor(
        &self,
        preset: &str,
        registry: &Registry,
        config: &SystemConfig,
        options: &mut RunOptions,
    ) -> Result<RunResult, SimError> {
        let preset: Processor = registry.get(&format!("processor.{preset}"))?;
        let mut processor = ProcessorOptions::new(&preset)?;
        processor.cores = self.cores.unwrap_or(processor.cores);
        processor.wrap = self.wrap;
        let one_thread = || match self.threads {
            0 | 1 => Ok(()),
            _ => {
                Err(SimError::Options("a trace has one thread; --threads is for generated workloads".into()))
            }
        };
        let threads = match (&self.workload, &self.trace, &self.columns) {
            (Some(spec), ..) => {
                options.workload = format!("{}, {} threads, gap {}", title(spec), self.threads, self.gap);
                workload_threads(spec, self.seed, self.threads, self.gap)?
            }
            (None, Some(file), _) => {
                one_thread()?;
                options.workload = file.display().to_string();
                let references: ThreadReferences<'_> =
                    Box::new(memory_references(self.reader(file)?, self.gap, self.objects()));
                vec![references]
            }
            (None, None, Some(columns)) => {
                one_thread()?;
                options.workload = IN_MEMORY.into();
                let items = columns.items().map(Ok::<_, TraceError>);
                let references: ThreadReferences<'_> =
                    Box::new(memory_references(items, self.gap, self.objects()));
                vec![references]
            }
            (None, None, None) => return Err(no_input()),
        };
        run_threads(registry, config, warm_up_first(threads, self.warm_up), &processor, options)
    }

    /// Simulates transactions of database clients.
    fn by_clients(
        &self,
        clients: u32,
        spec: &str,
        registry: &Registry,
        config: &SystemConfig,
        options: &mut RunOptions,
    ) -> Result<RunResult, SimError> {
        if self.requests == 0 {
            return Err(SimError::Options("--clients run without end: give --requests N".into()));
        }
        let clients = ClientOptions {
            clients,
            logging: self.logging,
            work: self.work,
            lock: self.log_lock,
            transactions: self.requests,
            warm_up: self.warm_up,
        };
        options.workload = spec.to_owned();
        run_clients(registry, config, Workload::new(spec, self.seed)?, &clients, options)
    }
}

/// The name of requests in memory in a result.
const IN_MEMORY: &str = "arrays";

fn no_input() -> SimError {
    SimError::Options("give --workload or --trace".into())
}
