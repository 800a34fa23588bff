//! Runs of simulated systems.

use std::path::PathBuf;

use deepram_core::units::Picos;
use deepram_media::{Processor, Registry};
use deepram_sim::processor::{
    ProcessorOptions, ThreadReferences, memory_references, warm_up_first, workload_threads,
};
use deepram_sim::settings::settings_table;
use deepram_sim::ssd::Precondition;
use deepram_sim::{RunOptions, SimError, System, SystemConfig, requests, run, run_threads};
use deepram_trace::ObjectPlacement;
use deepram_trace::workload::{help, title};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::named;
use crate::records::{Interrupts, Source};

/// Slots of 4 KiB over which the objects of an object trace are spread.
const OBJECTS: ObjectPlacement = ObjectPlacement { slot_bytes: 4096, slots: 1 << 20 };

/// Options of a run, as `deepram.sim.run` passes them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Options {
    preset: String,
    config: Option<PathBuf>,
    set: Vec<String>,
    seed: u64,
    threads: u32,
    depth: u32,
    think: String,
    closed: bool,
    requests: u64,
    warm_up: u64,
    wrap: bool,
    dram: Option<u64>,
    precondition: Option<String>,
    filled: f64,
    interval: Option<String>,
    processor: Option<String>,
    cores: Option<u32>,
    gap: u32,
    name: String,
}

fn time(option: &str, text: &str) -> PyResult<Picos> {
    text.parse().map_err(|error| {
        PyValueError::new_err(format!("{option}: {error}; give a time such as \"10us\" or \"1.5ms\""))
    })
}

impl Options {
    fn config(&self, system: System) -> PyResult<SystemConfig> {
        let mut config = SystemConfig::new(system);
        config.preset.clone_from(&self.preset);
        config.overrides.clone_from(&self.set);
        if let Some(dram) = self.dram {
            use deepram_core::Bytes;
            let has_cache = system.access_mode().is_some()
                || matches!(system, System::Nvmm | System::SsdPaging | System::Pool);
            if !has_cache {
                return Err(PyValueError::new_err(format!(
                    "dram: {} has no DRAM of its own to size; it is for nvmm, ssd-paging, flatflash, unified-mmap, \
                     traditional-stack and pool",
                    system.name()
                )));
            }
            (config.nvmm.cache, config.paging.memory) = (Bytes(dram), Bytes(dram));
            (config.pool.dram, config.flat.memory) = (Bytes(dram), Bytes(dram));
        }
        if let Some(state) = &self.precondition {
            if !matches!(system, System::Ssd | System::SsdBuffer | System::SsdPaging) {
                return Err(PyValueError::new_err(format!(
                    "precondition: it is for ssd, ssd-buffer and ssd-paging; the system is {}",
                    system.name()
                )));
            }
            config.ssd.precondition = match state.as_str() {
                "empty" => Precondition::Empty,
                "sequential" => Precondition::Sequential(self.filled),
                "steady" => Precondition::Steady(self.filled),
                other => {
                    return Err(PyValueError::new_err(format!(
                        "precondition: {other:?} is unknown; give \"empty\", \"sequential\" or \"steady\""
                    )));
                }
            };
        }
        Ok(config)
    }

    fn run_options(&self) -> PyResult<RunOptions> {
        let mut options =
            RunOptions { seed: self.seed, workload: title(&self.name), ..RunOptions::default() };
        options.host.threads = self.threads;
        options.host.per_thread = self.depth;
        options.host.think = time("think", &self.think)?;
        options.host.closed = self.closed;
        options.host.requests = self.requests;
        options.host.warm_up = self.warm_up;
        options.host.wrap = self.wrap;
        options.host.interval =
            self.interval.as_ref().map(|text| time("interval", text)).transpose()?.unwrap_or_default();
        Ok(options)
    }

    fn registry(&self, py: Python<'_>) -> PyResult<Registry> {
        let wrong = |error: &dyn std::fmt::Display| named(py, "SimError", error.to_string());
        let mut registry = Registry::builtin().map_err(|error| wrong(&error))?;
        if let Some(file) = &self.config {
            let text = std::fs::read_to_string(file)?;
            registry.add(&file.display().to_string(), &text).map_err(|error| wrong(&error))?;
        }
        Ok(registry)
    }
}

/// Simulates a system and returns its result as JSON and as a table for people.
#[pyfunction]
pub(crate) fn simulate(
    py: Python<'_>,
    system: &str,
    source: Source,
    options: Options,
) -> PyResult<(String, String)> {
    let wrong = |error: SimError| named(py, "SimError", error.to_string());
    let system = System::parse(system).map_err(wrong)?;
    let (config, mut run_options) = (options.config(system)?, options.run_options()?);
    let registry = options.registry(py)?;
    let mut interrupts = Interrupts::default();
    let result = if let Some(preset) = &options.processor {
        let wrong_preset = |error: &dyn std::fmt::Display| named(py, "SimError", error.to_string());
        let preset: Processor =
            registry.get(&format!("processor.{preset}")).map_err(|error| wrong_preset(&error))?;
        let mut processor = ProcessorOptions::new(&preset).map_err(wrong)?;
        processor.cores = options.cores.unwrap_or(processor.cores);
        processor.wrap = options.wrap;
        if options.threads > 1 && !matches!(source, Source::Workload(_)) {
            return Err(PyValueError::new_err(
                "threads: a trace has one thread; more are for generated workloads",
            ));
        }
        let items = match &source {
            Source::Workload(spec) => {
                run_options.workload =
                    format!("{}, {} threads, gap {}", title(spec), options.threads, options.gap);
                None
            }
            source => Some(source.items(py, options.seed, options.requests)?),
        };
        py.detach(|| {
            let threads = match (&source, items) {
                (Source::Workload(spec), _) => {
                    workload_threads(spec, options.seed, options.threads, options.gap)?
                }
                (_, items) => {
                    let items = items.into_iter().flatten();
                    let references: ThreadReferences<'_> =
                        Box::new(memory_references(items, options.gap, OBJECTS));
                    vec![references]
                }
            };
            let threads = warm_up_first(threads, options.warm_up);
            run_threads(&registry, &config, threads, &processor, &run_options)
        })
    } else {
        let items = source.items(py, options.seed, options.requests)?;
        let interrupts = &mut interrupts;
        py.detach(|| {
            let records = requests(items, OBJECTS).take_while(|_| interrupts.go_on());
            run(&registry, &config, records, &run_options)
        })
    };
    let result = interrupts.or(result.map_err(wrong))?;
    let json = result.to_json().map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok((json, result.to_table()))
}

/// Returns the keys of `set` for a system, as text with units and meanings.
#[pyfunction]
pub(crate) fn system_settings(py: Python<'_>, system: &str) -> PyResult<String> {
    let system = System::parse(system).map_err(|error| named(py, "SimError", error.to_string()))?;
    Ok(settings_table(system))
}

/// Returns the names of the systems.
#[pyfunction]
pub(crate) fn systems() -> Vec<&'static str> {
    System::ALL.iter().map(|system| system.name()).collect()
}

/// Returns the list of workloads with their keys, as text.
#[pyfunction]
pub(crate) fn workload_help() -> String {
    help()
}
