//! From a parsed specification to the points of the grid.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

use deepram_core::suggest::nearest;
use deepram_media::Registry;
use deepram_trace::workload::Spec as WorkloadSpec;

use super::constraint::Constraint;
use super::error::SweepError;
use super::key::{Key, short};
use super::objectives::Objectives;
use super::quantity::Form;
use super::range::MAX_VALUES;
use super::spec::{At, Spec, Values};
use super::{Axis, MAX_POINTS, Sweep};
use crate::error::SimError;
use crate::run::System;
use crate::simulation::{check_together, set_once};

/// The values of the axes at a number of the whole grid, the first axis varying slowest.
pub(super) fn values(axes: &[Axis], number: usize) -> impl Iterator<Item = &str> {
    let mut size: usize = axes.iter().map(|axis| axis.values.len()).product();
    let mut rest = number;
    axes.iter().map(move |axis| {
        size /= axis.values.len();
        let at = rest / size;
        rest %= size;
        axis.values[at].as_str()
    })
}

/// Builds a sweep, and names the specification's file in errors.
struct Builder<'a> {
    file: &'a str,
}

/// The line that an error of the whole specification names.
const FIRST: usize = 1;

impl Builder<'_> {
    fn error(&self, line: usize, what: impl Into<String>) -> SweepError {
        SweepError::Spec { file: self.file.to_owned(), line, what: what.into() }
    }
}

/// Builds a sweep.
///
/// # Errors
/// [`SweepError::Spec`] for a parameter that does not exist, is given twice or has no valid value; presets that cannot
/// be loaded.
pub(super) fn build(file: &str, spec: Spec, folder: &Path) -> Result<Sweep, SweepError> {
    let builder = Builder { file };
    builder.distinct(&spec)?;
    let texts = |key: &str| -> Vec<(usize, String)> {
        let fixed = spec.fixed.iter().filter(|at| at.what.0 == Key::Option(option(key)));
        let fixed = fixed.map(|at| (at.line, at.what.1.clone()));
        let axes = spec.axes.iter().filter(|at| at.what.0 == Key::Option(option(key)));
        let axes = axes.flat_map(|at| match &at.what.1 {
            Values::List(values) => values.iter().map(|value| (at.line, value.clone())).collect(),
            Values::Range(_) => Vec::new(),
        });
        fixed.chain(axes).collect()
    };
    let systems = builder.systems(&texts("system"))?;
    let workloads = texts("workload");
    builder.workloads(&spec, &workloads)?;
    builder.keys(&spec, &systems)?;
    let workload = workloads.first().map(|(_, text)| text.as_str());
    let axes = builder.axes(spec.axes, workload)?;
    let mut fixed: Vec<(Key, String)> = spec.fixed.into_iter().map(|at| at.what).collect();
    // Keys of the workload are added to its text, which must be there first.
    fixed.sort_by_key(|(key, _)| !matches!(key, Key::Option("system" | "workload")));
    builder.together(&fixed, &axes)?;
    let points = builder.points(&fixed, &axes, &spec.constraints, workload)?;
    let mut registry = Registry::builtin().map_err(SimError::Media)?;
    if let Some(At { line, what: name }) = &spec.config {
        let path = folder.join(name);
        let text = std::fs::read_to_string(&path).map_err(|error| {
            builder.error(*line, format!("config: reading {} failed: {error}", path.display()))
        })?;
        registry.add(&path.display().to_string(), &text).map_err(SimError::Media)?;
    }
    let texts = |metrics: Vec<At<String>>| metrics.into_iter().map(|at| at.what).collect();
    Ok(Sweep {
        registry,
        folder: folder.to_owned(),
        fixed,
        axes,
        points,
        objectives: Objectives { minimize: texts(spec.minimize), maximize: texts(spec.maximize) },
        inputs: Mutex::new(BTreeMap::new()),
    })
}

/// The source of a parameter's value in a constraint.
enum Parameter<'a> {
    /// The same for all points.
    Fixed(&'a str, Form),
    /// That of an axis, by its position.
    Axis(usize),
}

/// The option's name with the lifetime of the list of options.
fn option(name: &str) -> &'static str {
    match Key::option(name) {
        Some(Key::Option(name)) => name,
        _ => "",
    }
}

impl Builder<'_> {
    /// Rejects a parameter that is given twice.
    fn distinct(&self, spec: &Spec) -> Result<(), SweepError> {
        let fixed = spec.fixed.iter().map(|at| (&at.what.0, at.line));
        let mut keys: Vec<(&Key, usize)> =
            fixed.chain(spec.axes.iter().map(|at| (&at.what.0, at.line))).collect();
        keys.sort();
        match keys.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => {
                let why = format!("`{}` is already given on line {}; keep one of them", pair[1].0, pair[0].1);
                Err(self.error(pair[1].1, why))
            }
            None => Ok(()),
        }
    }

    fn systems(&self, texts: &[(usize, String)]) -> Result<Vec<System>, SweepError> {
        if texts.is_empty() {
            return Err(
                self.error(FIRST, "`system` is missing; write system = \"ssd\", or an axis of systems")
            );
        }
        let parsed = texts
            .iter()
            .map(|(line, text)| System::parse(text).map_err(|error| self.error(*line, error.to_string())));
        parsed.collect()
    }

    /// Checks the texts of the workloads, and that each of them has the keys `workload.KEY`, given once.
    fn workloads(&self, spec: &Spec, texts: &[(usize, String)]) -> Result<(), SweepError> {
        let keys = spec.fixed.iter().map(|at| (at.line, &at.what.0));
        let keys: Vec<(usize, &str)> = keys
            .chain(spec.axes.iter().map(|at| (at.line, &at.what.0)))
            .filter_map(|(line, key)| match key {
                Key::Workload(key) => Some((line, key.as_str())),
                _ => None,
            })
            .collect();
        if let (Some((line, key)), []) = (keys.first(), texts) {
            return Err(self.error(*line, format!("`workload.{}` needs a workload", short(key))));
        }
        for (line, text) in texts {
            let parsed: WorkloadSpec = text.parse().map_err(|error| self.error(*line, format!("{error}")))?;
            let given: Vec<&str> = text
                .split_once(':')
                .map_or("", |(_, rest)| rest)
                .split(',')
                .filter_map(|part| part.split('=').next())
                .map(str::trim)
                .collect();
            for (line, key) in &keys {
                let names = || parsed.info().all_params().map(|param| param.name);
                if given.contains(key) {
                    let why = format!(
                        "`workload.{key}` is already in the workload {}; take it out there",
                        short(text)
                    );
                    return Err(self.error(*line, why));
                }
                if !names().any(|name| name == *key) {
                    let near = nearest(key, names())
                        .map_or_else(String::new, |near| format!("; did you mean `workload.{near}`?"));
                    let all: Vec<&str> = names().collect();
                    let why = format!(
                        "workload {} has no key `{}`{near} (its keys: {})",
                        parsed.name(),
                        short(key),
                        all.join(", ")
                    );
                    return Err(self.error(*line, why));
                }
            }
        }
        Ok(())
    }

    /// Checks the keys of presets against all systems of the sweep.
    fn keys(&self, spec: &Spec, systems: &[System]) -> Result<(), SweepError> {
        let keys = spec.fixed.iter().map(|at| (at.line, &at.what.0));
        for (line, key) in keys.chain(spec.axes.iter().map(|at| (at.line, &at.what.0))) {
            if let Key::Set(key) = key {
                for system in systems {
                    Key::check_set(key, *system).map_err(|why| self.error(line, why))?;
                }
            }
        }
        Ok(())
    }

    fn axes(&self, axes: Vec<At<(Key, Values)>>, workload: Option<&str>) -> Result<Vec<Axis>, SweepError> {
        let mut built: Vec<Axis> = Vec::new();
        for At { line, what: (key, values) } in axes {
            let form = key.form(workload);
            let values = match values {
                Values::List(values) => values,
                Values::Range(range) => {
                    range.values(form).map_err(|why| self.error(line, format!("axis `{key}`: {why}")))?
                }
            };
            if values.is_empty() {
                return Err(self.error(line, format!("axis `{key}` has no values; give one at least")));
            }
            let mut once: Vec<&String> = values.iter().collect();
            once.sort_unstable();
            if let Some(pair) = once.windows(2).find(|pair| pair[0] == pair[1]) {
                let why = format!("axis `{key}` has the value {} twice; keep one of them", short(pair[0]));
                return Err(self.error(line, why));
            }
            if values.len() > MAX_VALUES {
                let why = format!("axis `{key}` has more than {MAX_VALUES} values, the limit");
                return Err(self.error(line, why));
            }
            let size = built.iter().map(|axis: &Axis| axis.values.len()).product::<usize>();
            if size.saturating_mul(values.len()) > MAX_POINTS {
                let why = format!(
                    "axis `{key}` makes more than {MAX_POINTS} combinations, the limit; take fewer values, or split the sweep"
                );
                return Err(self.error(line, why));
            }
            built.push(Axis { key, form, values });
        }
        Ok(built)
    }

    /// Checks that the options fit together whatever their values.
    fn together(&self, fixed: &[(Key, String)], axes: &[Axis]) -> Result<(), SweepError> {
        let keys = fixed.iter().map(|(key, _)| key).chain(axes.iter().map(|axis| &axis.key));
        let mut options = Vec::new();
        let mut set = Vec::new();
        for key in keys {
            match key {
                Key::Option(name) => options.push(*name),
                Key::Set(key) => set.push(format!("{key}=")),
                Key::Workload(_) => {}
            }
        }
        let checked = check_together(&options).and_then(|()| set_once(&set));
        checked.map_err(|error| self.error(FIRST, error.to_string()))
    }

    /// The numbers of the combinations that keep the constraints.
    fn points(
        &self,
        fixed: &[(Key, String)],
        axes: &[Axis],
        constraints: &[At<(String, Constraint)>],
        workload: Option<&str>,
    ) -> Result<Vec<usize>, SweepError> {
        let mut parameters: BTreeMap<String, Parameter<'_>> = BTreeMap::new();
        for (key, value) in fixed {
            parameters.insert(key.to_string(), Parameter::Fixed(value, key.form(workload)));
        }
        parameters.extend(axes.iter().enumerate().map(|(at, axis)| (axis.name(), Parameter::Axis(at))));
        for At { line, what: (text, constraint) } in constraints {
            if constraint.names().iter().all(|name| !parameters.contains_key(*name)) {
                let names: Vec<&str> = parameters.keys().map(String::as_str).collect();
                let near = nearest(constraint.names()[0], names.iter().copied())
                    .map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
                let why = format!(
                    "constraint `{}` compares no parameter of the sweep{near} (its parameters: {})",
                    short(text),
                    names.join(", ")
                );
                return Err(self.error(*line, why));
            }
        }
        let size = axes.iter().map(|axis| axis.values.len()).product();
        let mut points = Vec::new();
        'points: for number in 0..size {
            for At { line, what: (text, constraint) } in constraints {
                let value = |name: &str| match parameters.get(name)? {
                    Parameter::Fixed(value, form) => Some((*value, *form)),
                    Parameter::Axis(at) => Some((values(axes, number).nth(*at)?, axes[*at].form)),
                };
                let holds = constraint.holds(value);
                let holds =
                    holds.map_err(|why| self.error(*line, format!("constraint `{}`: {why}", short(text))))?;
                if !holds {
                    continue 'points;
                }
            }
            points.push(number);
        }
        if points.is_empty() {
            return Err(self.error(FIRST, format!("none of {size} combinations keeps the constraints")));
        }
        Ok(points)
    }
}
