//! Runs of simulated systems.

use std::path::PathBuf;
use std::sync::Arc;

use deepram_media::Registry;
use deepram_sim::settings::settings_table;
use deepram_sim::simulation::{Simulation, check_together};
use deepram_sim::{SimError, System};
use deepram_trace::workload::help;
use pyo3::prelude::*;

use crate::error::{named, of_simulation};
use crate::records::{Interrupts, RawColumns, columns};

/// The outcome of a simulation: JSON, a table for people, notes on unusual requests.
type Simulated = (String, String, Vec<String>);

/// Simulates a system. `options` are those of `deepram_sim::simulation` by name.
#[pyfunction]
pub(crate) fn simulate(
    py: Python<'_>,
    system: &str,
    options: Vec<(String, String)>,
    set: Vec<String>,
    config: Option<PathBuf>,
    arrays: Option<RawColumns>,
) -> PyResult<Simulated> {
    let mut simulation = described(system, &options).map_err(|error| of_simulation(py, &error))?;
    simulation.set = set;
    let given = options.iter().map(|(name, _)| name.as_str());
    let given: Vec<&str> = given.chain(arrays.is_some().then_some("trace")).collect();
    check_together(&given).map_err(|error| of_simulation(py, &error))?;
    simulation.columns = arrays.map(|arrays| columns(py, &arrays)).transpose()?.map(Arc::new);
    let registry = registry(py, config)?;
    let interrupts = Interrupts::default();
    let result = py.detach(|| simulation.run(&registry, &|_requests| interrupts.go_on()));
    let (result, notes) = interrupts.or(result.map_err(|error| of_simulation(py, &error)))?;
    let json = result.to_json().map_err(|error| named(py, "SimError", error.to_string()))?;
    Ok((json, result.to_table(), notes))
}

fn described(system: &str, options: &[(String, String)]) -> Result<Simulation, SimError> {
    let mut simulation = Simulation::new(System::parse(system)?);
    for (name, value) in options {
        simulation.set_option(name, value)?;
    }
    Ok(simulation)
}

/// The presets of the library, and those of a file.
fn registry(py: Python<'_>, config: Option<PathBuf>) -> PyResult<Registry> {
    let mut registry = Registry::builtin().map_err(|error| of_simulation(py, &error.into()))?;
    if let Some(file) = config {
        let text = std::fs::read_to_string(&file)?;
        registry.add(&file.display().to_string(), &text).map_err(|error| of_simulation(py, &error.into()))?;
    }
    Ok(registry)
}

/// Returns the keys of `set` for a system, as text with units and meanings.
#[pyfunction]
pub(crate) fn system_settings(py: Python<'_>, system: &str) -> PyResult<String> {
    let system = System::parse(system).map_err(|error| of_simulation(py, &error))?;
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
