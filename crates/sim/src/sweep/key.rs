//! The parameters of a sweep: options, keys of presets, keys of workloads.

use std::fmt;

use deepram_core::suggest::nearest;
use deepram_trace::workload::{Spec, ValueKind};

use super::quantity::Form;
use crate::run::System;
use crate::settings::settings;
use crate::simulation::{OPTIONS, Simulation};

/// A parameter of a sweep.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// An option of `deepram sim` by its name.
    Option(&'static str),
    /// A key of `--set`.
    Set(String),
    /// A key of the workload's text.
    Workload(String),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Option(name) => f.write_str(name),
            Key::Set(key) => write!(f, "set.{key}"),
            Key::Workload(key) => write!(f, "workload.{key}"),
        }
    }
}

impl Key {
    /// The parameter of this name; an error says what the name could be.
    pub(super) fn parse(name: &str) -> Result<Self, String> {
        if let Some(key) = name.strip_prefix("set.") {
            return Ok(Key::Set(key.to_owned()));
        }
        if let Some(key) = name.strip_prefix("workload.") {
            return Ok(Key::Workload(key.to_owned()));
        }
        Self::option(name).ok_or_else(|| {
            let near =
                nearest(name, OPTIONS).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            format!(
                "there is no parameter `{}`{near} (options of `deepram sim`, `set.KEY` and `workload.KEY`)",
                short(name)
            )
        })
    }

    /// The option of this name.
    pub(super) fn option(name: &str) -> Option<Self> {
        OPTIONS.iter().find(|option| **option == name).map(|option| Key::Option(option))
    }

    /// The form of the parameter's values. `workload` is the text of a workload that has the key.
    pub(super) fn form(&self, workload: Option<&str>) -> Form {
        match self {
            Key::Option("dram") => Form::Size,
            Key::Option("think" | "work" | "log-lock" | "interval") => Form::Time,
            Key::Option("requests" | "warm-up" | "object-slots") => Form::Count,
            Key::Workload(key) => {
                let spec = workload.and_then(|text| text.parse::<Spec>().ok());
                let kind =
                    spec.and_then(|spec| spec.info().all_params().find(|p| p.name == key).map(|p| p.kind));
                match kind {
                    Some(ValueKind::Bytes) => Form::Size,
                    Some(ValueKind::Count | ValueKind::Rate) => Form::Count,
                    _ => Form::Any,
                }
            }
            _ => Form::Any,
        }
    }

    /// Checks that the system has the key of a preset; an error suggests the nearest key.
    pub(super) fn check_set(key: &str, system: System) -> Result<(), String> {
        let settings = settings(system);
        // A preset's name of a part is a key without a figure.
        if settings.iter().any(|setting| setting.key == key) || key.ends_with(".base") {
            return Ok(());
        }
        let near = nearest(key, settings.iter().map(|setting| setting.key.as_str()))
            .map_or_else(String::new, |near| format!("; did you mean `set.{near}`?"));
        let name = system.name();
        Err(format!(
            "{name} has no key `set.{}`{near} (`deepram sim {name} --keys` lists its keys)",
            short(key)
        ))
    }

    /// Sets the parameter in a simulation; `Workload` keys need the workload's text first.
    pub(super) fn apply(
        &self,
        simulation: &mut Simulation,
        value: &str,
    ) -> Result<(), crate::error::SimError> {
        match self {
            Key::Option(name) => simulation.set_option(name, value),
            Key::Set(key) => {
                simulation.set.push(format!("{key}={value}"));
                Ok(())
            }
            Key::Workload(key) => {
                if let Some(text) = &mut simulation.workload {
                    *text = with_key(text, key, value);
                }
                Ok(())
            }
        }
    }
}

/// The text of a workload with one more key.
pub(super) fn with_key(text: &str, key: &str, value: &str) -> String {
    let text = text.trim();
    let separator = match text.split_once(':') {
        None => ":",
        Some((_, "")) => "",
        Some(_) => ",",
    };
    format!("{text}{separator}{key}={value}")
}

/// The start of a text for an error message, without control characters.
pub(super) fn short(text: &str) -> String {
    let clipped: String = text.chars().take(60).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().count() > 60 { format!("{clipped}...") } else { clipped }
}
