//! A simulation by name, with its configuration resolved, and the figures that it yields.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::error::ReproError;

/// Named figures; a unit stands in the name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Figures(pub BTreeMap<String, f64>);

impl Figures {
    /// No figure yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one.
    pub fn set(&mut self, name: impl Into<String>, value: f64) {
        self.0.insert(name.into(), value);
    }

    /// Every number in a JSON value, under its path: `latency.mean_ns`. Elements of a list are named by
    /// their `component`, `level` or `name`, else by their place; text and what stands under `skip` is
    /// left out.
    #[must_use]
    pub fn of_json(value: &Value, skip: &[&str]) -> Self {
        let mut figures = Self::new();
        figures.gather("", value, skip);
        figures
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

/// How figures come about; the version is raised whenever the same configuration would yield others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Procedure {
    /// Its name.
    pub name: &'static str,
    /// Its version.
    pub version: u32,
}

/// What does the work of a run.
type Work = dyn Fn() -> Result<Figures, ReproError> + Send + Sync;

/// A simulation that is to be run.
///
/// Runs with equal digests are the same run, whichever experiments they stand in: they are run once.
#[derive(Clone)]
pub struct Run {
    /// What its experiment calls it.
    pub name: String,
    /// How it is done.
    pub procedure: Procedure,
    /// The whole configuration, resolved.
    pub config: Value,
    /// SHA-256 of procedure, configuration and version of deepram.
    pub digest: String,
    work: Arc<Work>,
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("name", &self.name).field("digest", &self.digest).finish_non_exhaustive()
    }
}

impl Run {
    /// A run. `config` has to hold everything that its figures depend on.
    pub fn new<W>(name: impl Into<String>, procedure: Procedure, config: Value, work: W) -> Self
    where
        W: Fn() -> Result<Figures, ReproError> + Send + Sync + 'static,
    {
        let mut hash = Sha256::new();
        // The version of an object's text: keys of a JSON object are kept in order.
        let identity = serde_json::json!({
            "procedure": procedure, "config": config, "deepram": env!("CARGO_PKG_VERSION"),
        });
        hash.update(identity.to_string());
        let digest = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Self { name: name.into(), procedure, config, digest, work: Arc::new(work) }
    }

    /// Does it.
    ///
    /// # Errors
    /// The work's own, and [`ReproError::Run`] for a figure that is no number.
    pub fn execute(&self) -> Result<Figures, ReproError> {
        let figures = (self.work)()?;
        match figures.0.iter().find(|(_, value)| !value.is_finite()) {
            Some((name, value)) => Err(ReproError::Run {
                run: self.name.clone(),
                why: format!("figure {name} is {value}; figures are finite numbers"),
            }),
            None => Ok(figures),
        }
    }
}
