//! One point of a sweep: its simulation, its key, its outcome.

use std::fs::File;
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::PoisonError;

use deepram_trace::workload::{Spec, ValueKind};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::error::SweepError;
use super::key::Key;
use super::{PROGRAM, Sweep};
use crate::error::SimError;
use crate::run::System;
use crate::simulation::Simulation;

/// A point's simulation, with the input as the specification writes it: results name inputs so, wherever the folder is.
struct Described {
    simulation: Simulation,
    /// The input as written, and as the simulation has it.
    input: (String, String),
}

impl Sweep {
    /// The simulation of a point.
    fn described(&self, point: usize) -> Result<Result<Described, SimError>, SweepError> {
        let values = self.values(point)?;
        let varied = self.axes.iter().zip(values).map(|(axis, value)| (&axis.key, value));
        let fixed = self.fixed.iter().map(|(key, value)| (key, value.as_str()));
        let mut all: Vec<(&Key, &str)> = fixed.chain(varied).collect();
        // Keys of the workload are added to its text, which must be there first.
        all.sort_by_key(|(key, _)| !matches!(key, Key::Option("workload")));
        Ok(self.describe(&all))
    }

    fn describe(&self, all: &[(&Key, &str)]) -> Result<Described, SimError> {
        let mut simulation = Simulation::new(System::Dram);
        for (key, value) in all {
            key.apply(&mut simulation, value)?;
        }
        let mut input = (String::new(), String::new());
        if let Some(trace) = &mut simulation.trace {
            input.0 = trace.display().to_string();
            *trace = self.folder.join(&*trace);
            input.1 = trace.display().to_string();
        } else if let Some(text) = &mut simulation.workload {
            input.0.clone_from(text);
            for (key, path) in paths(text) {
                let moved = self.folder.join(&path);
                *text = text.replacen(&format!("{key}={path}"), &format!("{key}={}", moved.display()), 1);
            }
            input.1.clone_from(text);
        }
        Ok(Described { simulation, input })
    }

    /// The key of a point: a digest of the program, of the resolved configuration and of the contents of its input. Equal
    /// keys have equal outcomes.
    ///
    /// # Errors
    /// The sweep has no such point; an input file cannot be read.
    pub fn key(&self, point: usize) -> Result<String, SweepError> {
        let mut hash = Sha256::new();
        let mut add = |part: &str| {
            // The length keeps the bytes of one part apart from the next.
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        };
        add(PROGRAM);
        match self.described(point)? {
            Ok(Described { simulation, input }) => {
                // The written input counts, and its contents; the folder does not.
                add(&input.0);
                if let Some(trace) = &simulation.trace {
                    add(&self.digest(trace)?);
                } else if let Some(text) = &simulation.workload {
                    for (_, path) in paths(text) {
                        add(&self.digest(Path::new(&path))?);
                    }
                }
                match simulation.system_config().digests(&self.registry) {
                    Ok(digests) => digests.iter().for_each(|digest| add(digest)),
                    Err(error) => add(&error.to_string()),
                }
                add(&format!("{:?}", Simulation { workload: None, trace: None, ..simulation }));
            }
            Err(error) => add(&error.to_string()),
        }
        Ok(hex(&hash.finalize()))
    }

    /// The digest of a file's contents.
    fn digest(&self, path: &Path) -> Result<String, SweepError> {
        let mut known = self.inputs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(digest) = known.get(path) {
            return Ok(digest.clone());
        }
        let mut file = File::open(path).map_err(SweepError::io(path, "opening the input"))?;
        let mut hash = Sha256::new();
        let mut buffer = vec![0; 1 << 16];
        loop {
            match file.read(&mut buffer).map_err(SweepError::io(path, "reading the input"))? {
                0 => break,
                n => hash.update(&buffer[..n]),
            }
        }
        let digest = hex(&hash.finalize());
        known.insert(path.to_owned(), digest.clone());
        Ok(digest)
    }

    /// Computes a point. Returns one JSON object in one line: `{"status":"done","result":{..}}` with the simulation's
    /// result, or `{"status":"failed","error":".."}`. Equal points give equal bytes, on any machine.
    ///
    /// # Errors
    /// The sweep has no such point.
    pub fn outcome(&self, point: usize) -> Result<String, SweepError> {
        let described = self.described(point)?;
        let simulate = || -> Result<Value, String> {
            let Described { simulation, input: (written, used) } =
                described.map_err(|error| error.to_string())?;
            let as_written =
                |text: &str| if used == written { text.to_owned() } else { text.replace(&used, &written) };
            let result = simulation.run(&self.registry, &|_| true);
            let (mut result, _) = result.map_err(|error| as_written(&error.to_string()))?;
            result.workload = as_written(&result.workload);
            serde_json::to_value(&result).map_err(|error| error.to_string())
        };
        // A defect of the simulator that one configuration reveals costs that point, not the sweep.
        let result = catch_unwind(AssertUnwindSafe(simulate)).unwrap_or_else(|panic| {
            let message = panic.downcast_ref::<String>().map(String::as_str);
            let message = message.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            Err(format!("the simulator panicked ({message}); please report it with this configuration"))
        });
        let (status, name, value) = match result {
            Ok(value) => ("done", "result", value),
            Err(error) => ("failed", "error", Value::String(error)),
        };
        Ok(format!("{{\"status\":\"{status}\",\"{name}\":{value}}}"))
    }

    /// The line of a point in `results.jsonl`, without its end of line: the point's number, the values of the axes, and
    /// the outcome.
    ///
    /// # Errors
    /// The sweep has no such point.
    pub fn line(&self, point: usize, outcome: &str) -> Result<String, SweepError> {
        let mut axes = Map::new();
        for (axis, value) in self.axes.iter().zip(self.values(point)?) {
            axes.insert(axis.name(), value.into());
        }
        let rest = outcome.strip_prefix('{').unwrap_or(outcome);
        Ok(format!("{{\"point\":{point},\"axes\":{},{rest}", Value::Object(axes)))
    }
}

/// The keys of a workload whose values are paths of files, with the paths.
fn paths(text: &str) -> Vec<(&'static str, String)> {
    let Ok(spec) = text.parse::<Spec>() else { return Vec::new() };
    let is_path =
        |key: &str| spec.info().all_params().any(|p| p.name == key && matches!(p.kind, ValueKind::Path));
    spec.values()
        .filter(|(key, path)| !path.is_empty() && is_path(key))
        .map(|(key, path)| (key, path.to_owned()))
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
