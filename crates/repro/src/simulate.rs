//! Wraps a simulator run as a run of an experiment.

use std::sync::Arc;

use deepram_media::Registry;
use deepram_sim::{RunOptions, SimError, SystemConfig, requests};
use deepram_trace::{ObjectPlacement, Request, TraceError, Workload};
use serde_json::json;

use crate::error::ReproError;
use crate::simulation_run::{Metrics, SimulationRun};

/// Name of the procedure, part of the digest.
const SIMULATE: &str = "simulate";

/// Placement of objects from traces without addresses. Generated workloads contain no objects.
const OBJECTS: ObjectPlacement = ObjectPlacement { slot_bytes: 4096, slots: 1 << 20 };

/// The error that a workload's text is invalid.
pub(crate) fn workload_error(why: &dyn std::fmt::Display) -> SimError {
    config_error("workload", why)
}

fn config_error(key: &str, why: &dyn std::fmt::Display) -> SimError {
    SimError::Config { key: key.into(), why: why.to_string() }
}

/// A simulation of a system under a generated workload.
///
/// Its metrics are all numbers of the simulator's JSON result by their path:
/// `throughput_requests_per_s`, `latency.mean_ns`, `energy.flash read.dynamic_nj`.
///
/// # Errors
/// The preset or the workload cannot be resolved.
pub fn workload(
    name: &str,
    registry: &Arc<Registry>,
    config: SystemConfig,
    spec: &str,
    options: RunOptions,
) -> Result<SimulationRun, ReproError> {
    let wrong = |source: SimError| ReproError::Config { what: name.into(), source: Box::new(source) };
    let full =
        Workload::new(spec, options.seed).map_err(|error| wrong(workload_error(&error)))?.spec().to_string();
    let identity = identity(name, registry, &config, &full, &options)?;
    let (registry, spec) = (Arc::clone(registry), spec.to_owned());
    Ok(build(name, identity, registry, config, options, move |seed| {
        let items =
            Workload::new(&spec, seed).map_err(|error| workload_error(&error))?.map(Ok::<_, TraceError>);
        let requests = requests(items, OBJECTS);
        Ok(Box::new(requests) as Box<dyn Iterator<Item = _>>)
    }))
}

/// A simulation of a system under the requests of `stream`. `what` identifies the requests, parameters
/// included, and enters the digest.
///
/// # Errors
/// The preset cannot be resolved.
pub fn stream<S, I>(
    name: &str,
    registry: &Arc<Registry>,
    config: SystemConfig,
    what: &str,
    options: RunOptions,
    stream: S,
) -> Result<SimulationRun, ReproError>
where
    S: Fn() -> I + Send + Sync + 'static,
    I: Iterator<Item = Request> + 'static,
{
    let identity = identity(name, registry, &config, what, &options)?;
    Ok(build(name, identity, Arc::clone(registry), config, options, move |_| {
        Ok(Box::new(stream().map(Ok)) as Box<dyn Iterator<Item = _>>)
    }))
}

/// Everything that the metrics depend on, for the digest.
fn identity(
    name: &str,
    registry: &Registry,
    config: &SystemConfig,
    workload: &str,
    options: &RunOptions,
) -> Result<serde_json::Value, ReproError> {
    let wrong = |source: SimError| ReproError::Config { what: name.into(), source: Box::new(source) };
    let host = serde_json::to_value(&options.host).map_err(|error| wrong(config_error("host", &error)))?;
    Ok(json!({
        "presets": config.digests(registry).map_err(wrong)?,
        // The `Debug` form covers every option of the system.
        "options": format!("{config:?}"),
        "host": host,
        "workload": workload,
        "seed": options.seed,
    }))
}

type Requests = Box<dyn Iterator<Item = Result<Request, SimError>>>;

fn build<F>(
    name: &str,
    identity: serde_json::Value,
    registry: Arc<Registry>,
    config: SystemConfig,
    options: RunOptions,
    requests: F,
) -> SimulationRun
where
    F: Fn(u64) -> Result<Requests, SimError> + Send + Sync + 'static,
{
    let run = name.to_owned();
    SimulationRun::new(name, SIMULATE, identity, move || {
        let failed = |source: SimError| ReproError::Simulation { run: run.clone(), source: Box::new(source) };
        let requests = requests(options.seed).map_err(failed)?;
        let result = deepram_sim::run(&registry, &config, requests, &options).map_err(failed)?;
        if result.requests == 0 {
            return Err(ReproError::Run { run: run.clone(), why: "no request was measured".into() });
        }
        let value = serde_json::to_value(&result)
            .map_err(|error| ReproError::Run { run: run.clone(), why: error.to_string() })?;
        // The host's response times repeat the latency at the head of the result.
        Ok(Metrics::of_json(&value, &["config", "seed", "intervals", "response"]))
    })
}
