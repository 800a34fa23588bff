//! Parses the text that describes a workload, by the catalogue.

use super::catalogue::WORKLOADS;
use super::params::{ARRIVAL, Param, ValueKind, WorkloadInfo};
use deepram_core::suggest::nearest;
use deepram_core::units::{Bytes, ParseUnitError, Picos, parse_count, parse_rate, parse_share};
use std::fmt;
use std::str::FromStr;

/// An error in a workload's text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Unknown workload name.
    #[error("there is no workload {name:?}{}; there are: {}", suggest(near), known())]
    UnknownWorkload {
        /// The name given.
        name: String,
        /// The most similar known name.
        near: Option<&'static str>,
    },
    /// Unknown key of a workload.
    #[error("workload {workload} has no key {key:?}{}; its keys: {keys}", suggest(near))]
    UnknownKey {
        /// Name of the workload.
        workload: &'static str,
        /// The key given.
        key: String,
        /// The most similar key of the workload.
        near: Option<&'static str>,
        /// All keys of the workload.
        keys: String,
    },
    /// A value is invalid for its key.
    #[error("workload {workload}: {key}={value:?}, expected {wanted}")]
    BadValue {
        /// Name of the workload.
        workload: &'static str,
        /// The key.
        key: String,
        /// The value given.
        value: String,
        /// What is expected.
        wanted: String,
    },
    /// A part is not `key=value`, or a key is repeated.
    #[error("workload {workload}: {part:?} {why}")]
    Malformed {
        /// Name of the workload.
        workload: &'static str,
        /// The part.
        part: String,
        /// What is wrong with the part.
        why: &'static str,
    },
    /// A file named in the text cannot be used.
    #[error("workload {workload}: {why}")]
    File {
        /// Name of the workload.
        workload: &'static str,
        /// The file, the position in it, and what is wrong.
        why: String,
    },
    /// Values that are valid separately are inconsistent.
    #[error("workload {workload}: {why}")]
    Values {
        /// Name of the workload.
        workload: &'static str,
        /// What is inconsistent, and what would be valid.
        why: String,
    },
}

fn suggest(near: &Option<&'static str>) -> String {
    near.map_or_else(String::new, |name| format!(" (did you mean {name}?)"))
}

fn known() -> String {
    WORKLOADS.iter().map(|w| w.name).collect::<Vec<_>>().join(", ")
}

/// Why a generator cannot be built from a spec.
pub(super) enum SpecFault {
    /// A value is outside the range that the generator supports.
    Value { key: &'static str, wanted: String },
    /// Values are inconsistent.
    Values(String),
    /// A file cannot be used.
    File(String),
}

impl SpecFault {
    pub(super) fn value(key: &'static str, wanted: impl Into<String>) -> SpecFault {
        SpecFault::Value { key, wanted: wanted.into() }
    }

    pub(super) fn of(self, spec: &Spec) -> SpecError {
        let workload = spec.info.name;
        match self {
            SpecFault::Value { key, wanted } => {
                let value = spec.text(key).to_string();
                let wanted =
                    if spec.given(key) { wanted } else { format!("{wanted} (the value is the default)") };
                SpecError::BadValue { workload, key: key.to_string(), value, wanted }
            }
            SpecFault::File(why) => SpecError::File { workload, why },
            SpecFault::Values(why) => SpecError::Values { workload, why },
        }
    }
}

#[derive(Clone, Debug)]
enum Value {
    Int(u64),
    Real(f64),
    Choice(&'static str),
    Text,
}

#[derive(Clone, Debug)]
struct Entry {
    param: &'static Param,
    text: String,
    value: Value,
    given: bool,
}

/// A parsed workload text: every key with its value, given or default. The `Display` form is
/// complete and parses to the same spec.
#[derive(Clone, Debug)]
pub struct Spec {
    info: &'static WorkloadInfo,
    entries: Vec<Entry>,
}

fn parse_value(param: &Param, text: &str) -> Result<Value, String> {
    let wanted = |error: ParseUnitError| error.wanted().to_string();
    match param.kind {
        ValueKind::Bytes => text.parse().map(|Bytes(n)| Value::Int(n)).map_err(wanted),
        ValueKind::Count => parse_count(text).map(Value::Int).map_err(wanted),
        ValueKind::Time => text.parse().map(|Picos(n)| Value::Int(n)).map_err(wanted),
        ValueKind::Ratio => parse_share(text).map(Value::Real).map_err(wanted),
        ValueKind::Rate => parse_rate(text).map(Value::Real).map_err(wanted),
        ValueKind::Number => {
            let number = text.parse::<f64>().ok().filter(|v| v.is_finite() && *v >= 0.0);
            number.map(Value::Real).ok_or_else(|| "a number that is not negative".to_string())
        }
        ValueKind::Choice(choices) => match choices.iter().find(|c| **c == text) {
            Some(choice) => Ok(Value::Choice(choice)),
            None => Err(format!(
                "one of {}{}",
                choices.join(", "),
                suggest(&nearest(text, choices.iter().copied()))
            )),
        },
        ValueKind::Path => Ok(Value::Text),
    }
}

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Spec, SpecError> {
        let clip = |s: &str| s.chars().take(80).collect::<String>();
        let (name, rest) = text.trim().split_once(':').unwrap_or((text.trim(), ""));
        let info = WORKLOADS.iter().find(|w| w.name == name).ok_or_else(|| SpecError::UnknownWorkload {
            name: clip(name),
            near: nearest(name, WORKLOADS.iter().map(|w| w.name)),
        })?;
        let workload = info.name;
        let mut entries = Vec::new();
        for param in info.all_params() {
            let value = parse_value(param, param.default).map_err(|wanted| SpecError::BadValue {
                workload,
                key: param.name.to_string(),
                value: param.default.to_string(),
                wanted,
            })?;
            entries.push(Entry { param, text: param.default.to_string(), value, given: false });
        }
        for part in rest.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let malformed = |why| SpecError::Malformed { workload, part: clip(part), why };
            let (key, text) = part.split_once('=').ok_or_else(|| malformed("is no key=value"))?;
            let (key, text) = (key.trim(), text.trim());
            let Some(entry) = entries.iter_mut().find(|e| e.param.name == key) else {
                let keys = || info.all_params().map(|p| p.name);
                return Err(SpecError::UnknownKey {
                    workload,
                    key: clip(key),
                    near: nearest(key, keys()),
                    keys: keys().collect::<Vec<_>>().join(", "),
                });
            };
            if std::mem::replace(&mut entry.given, true) {
                return Err(malformed("is given twice"));
            }
            entry.value = parse_value(entry.param, text).map_err(|wanted| SpecError::BadValue {
                workload,
                key: key.to_string(),
                value: clip(text),
                wanted,
            })?;
            entry.text = text.to_string();
        }
        Ok(Spec { info, entries })
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.info.name)?;
        let mut separator = ':';
        // An empty path and the keys of unused arrival processes have no effect and are left out.
        let shown =
            |e: &&Entry| !e.text.is_empty() && (e.given || !ARRIVAL.iter().any(|p| p.name == e.param.name));
        for entry in self.entries.iter().filter(shown) {
            write!(f, "{separator}{}={}", entry.param.name, entry.text)?;
            separator = ',';
        }
        Ok(())
    }
}

impl Spec {
    /// Name of the workload.
    pub fn name(&self) -> &'static str {
        self.info.name
    }

    /// Description of the workload.
    pub fn info(&self) -> &'static WorkloadInfo {
        self.info
    }

    /// Keys and values as text, in the catalogue's order.
    pub fn values(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.entries.iter().map(|e| (e.param.name, e.text.as_str()))
    }

    /// Whether the workload is built without reading files and with little memory and time. False
    /// for graphs, file sets, large TPC-C databases and metadata of many files.
    pub fn is_cheap(&self) -> bool {
        let files = || self.int("dirs").saturating_mul(self.int("perdir"));
        let large = self.has("warehouses") && self.int("warehouses") > 1000
            || self.has("perdir") && files() > 1 << 20;
        !large
            && !self
                .entries
                .iter()
                .any(|e| matches!(e.param.kind, ValueKind::Path) || e.param.name == "files")
    }

    fn entry(&self, key: &str) -> Option<&Entry> {
        let found = self.entries.iter().find(|e| e.param.name == key);
        debug_assert!(found.is_some(), "{} has no key {key}", self.info.name);
        found
    }

    /// Whether the text contains the key.
    pub(super) fn given(&self, key: &str) -> bool {
        self.entries.iter().any(|e| e.param.name == key && e.given)
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|e| e.param.name == key)
    }

    pub(super) fn int(&self, key: &str) -> u64 {
        match self.entry(key).map(|e| &e.value) {
            Some(Value::Int(v)) => *v,
            _ => 0,
        }
    }

    pub(super) fn real(&self, key: &str) -> f64 {
        match self.entry(key).map(|e| &e.value) {
            Some(Value::Real(v)) => *v,
            _ => 0.0,
        }
    }

    pub(super) fn choice(&self, key: &str) -> &'static str {
        match self.entry(key).map(|e| &e.value) {
            Some(Value::Choice(v)) => v,
            _ => "",
        }
    }

    pub(super) fn text(&self, key: &str) -> &str {
        self.entry(key).map_or("", |e| e.text.as_str())
    }

    /// The integer value of a key, or an error if it is outside `range`.
    pub(super) fn int_in(
        &self,
        key: &'static str,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<u64, SpecFault> {
        let value = self.int(key);
        if range.contains(&value) {
            return Ok(value);
        }
        let (low, high) = (range.start(), range.end());
        Err(SpecFault::value(
            key,
            if *high == u64::MAX { format!("at least {low}") } else { format!("{low} to {high}") },
        ))
    }
}
