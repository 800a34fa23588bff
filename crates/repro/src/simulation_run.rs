//! A simulation identified by the digest of its resolved configuration, and the metrics it produces.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::error::ReproError;

/// SHA-256 of the sources that the metrics of a run depend on, in hexadecimal. It is part of every run's digest, so the
/// result of other code is never taken for that of this code. `build.rs` lists the sources.
pub const SOURCES: &str = env!("DEEPRAM_REPRO_SOURCES");

/// Metrics by name. A name ends with the unit of its value.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Metrics(pub BTreeMap<String, f64>);

impl Metrics {
    /// Creates an empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the metric `name`.
    pub fn set(&mut self, name: impl Into<String>, value: f64) {
        self.0.insert(name.into(), value);
    }

    /// Collects every number of a JSON value under its path, such as `latency.mean_ns`.
    ///
    /// A list element is named by its `component`, `level` or `name` field, otherwise by its index. Text
    /// and everything under a key in `skip` are left out.
    #[must_use]
    pub fn of_json(value: &Value, skip: &[&str]) -> Self {
        let mut metrics = Self::new();
        metrics.gather("", value, skip);
        metrics
    }

    fn gather(&mut self, path: &str, value: &Value, skip: &[&str]) {
        let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        match value {
            Value::Number(number) => {
                if let Some(number) = number.as_f64() {
                    self.set(path, number);
                }
            }
            Value::Object(fields) => {
                for (name, value) in fields.iter().filter(|(name, _)| !skip.contains(&name.as_str())) {
                    self.gather(&below(name), value, skip);
                }
            }
            Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    let name = ["component", "level", "name"]
                        .iter()
                        .find_map(|key| item.get(key)?.as_str())
                        .map_or_else(|| at.to_string(), str::to_owned);
                    self.gather(&below(&name), item, skip);
                }
            }
            Value::Null | Value::Bool(_) | Value::String(_) => {}
        }
    }
}

/// The function that carries out a run.
type Work = dyn Fn() -> Result<Metrics, ReproError> + Send + Sync;

/// A simulation to run.
///
/// Runs with equal digests are identical, even in different experiments, and are carried out once.
#[derive(Clone)]
pub struct SimulationRun {
    /// Name in its experiment.
    pub name: String,
    /// Name of the procedure that carries it out.
    pub procedure: &'static str,
    /// The whole resolved configuration.
    pub config: Value,
    /// SHA-256 of procedure, configuration and [`SOURCES`], in hexadecimal.
    pub digest: String,
    work: Arc<Work>,
}

impl fmt::Debug for SimulationRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulationRun")
            .field("name", &self.name)
            .field("digest", &self.digest)
            .finish_non_exhaustive()
    }
}

impl SimulationRun {
    /// Creates a run. `config` must contain everything that the metrics depend on.
    pub fn new<W>(name: impl Into<String>, procedure: &'static str, config: Value, work: W) -> Self
    where
        W: Fn() -> Result<Metrics, ReproError> + Send + Sync + 'static,
    {
        let mut hash = Sha256::new();
        // The text is canonical: the keys of a JSON object are sorted.
        let identity = serde_json::json!({
            "procedure": procedure, "config": config, "sources": SOURCES,
        });
        hash.update(identity.to_string());
        let digest = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Self { name: name.into(), procedure, config, digest, work: Arc::new(work) }
    }

    /// Carries out the run.
    ///
    /// # Errors
    /// The function's own error, or [`ReproError::Run`] if a metric is not finite.
    pub fn execute(&self) -> Result<Metrics, ReproError> {
        let metrics = (self.work)()?;
        match metrics.0.iter().find(|(_, value)| !value.is_finite()) {
            Some((name, value)) => Err(ReproError::Run {
                run: self.name.clone(),
                why: format!("metric {name} is {value}; metrics must be finite"),
            }),
            None => Ok(metrics),
        }
    }
}
