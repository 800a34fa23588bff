//! Types of the catalogue's entries, and the keys that many workloads share. `catalogue` lists the
//! workloads.

use std::fmt;

/// Kind of value that a key takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueKind {
    /// A number of bytes: `4KiB`, `1.5GiB`.
    Bytes,
    /// A count: `1000`, `2.5M`.
    Count,
    /// A fraction of one: `0.7`, `70%`.
    Ratio,
    /// A time with its unit: `10us`.
    Time,
    /// Events per second: `20k`.
    Rate,
    /// A non-negative number.
    Number,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Path of a file (without commas).
    Path,
}

impl fmt::Display for ValueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueKind::Bytes => f.pad("bytes"),
            ValueKind::Count => f.pad("count"),
            ValueKind::Ratio => f.pad("share"),
            ValueKind::Time => f.pad("time"),
            ValueKind::Rate => f.pad("per second"),
            ValueKind::Number => f.pad("number"),
            ValueKind::Choice(choices) => f.pad(&choices.join("|")),
            ValueKind::Path => f.pad("path"),
        }
    }
}

/// A key of a workload.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// The key.
    pub name: &'static str,
    /// Kind of its value.
    pub kind: ValueKind,
    /// Default, in the form of the text.
    pub default: &'static str,
    /// Meaning of the key.
    pub description: &'static str,
    /// Source of the default; empty for an arbitrary choice.
    pub source: &'static str,
}

/// A workload of the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadInfo {
    /// Name.
    pub name: &'static str,
    /// What the workload does.
    pub description: &'static str,
    /// Definition of the workload.
    pub source: &'static str,
    /// Keys of this workload.
    pub params: &'static [Param],
    /// Whether its records are block requests, which take the [`ARRIVAL`] keys.
    pub arrival: bool,
}

impl WorkloadInfo {
    /// The workload's own keys, then the common keys, then the arrival keys.
    pub fn all_params(&self) -> impl Iterator<Item = &'static Param> {
        let arrival: &[Param] = if self.arrival { ARRIVAL } else { &[] };
        self.params.iter().chain(COMMON).chain(arrival)
    }
}

pub(super) const fn param(
    name: &'static str,
    kind: ValueKind,
    default: &'static str,
    description: &'static str,
    source: &'static str,
) -> Param {
    Param { name, kind, default, description, source }
}

/// Keys of every workload.
pub const COMMON: &[Param] = &[param(
    "count",
    ValueKind::Count,
    "0",
    "number of records; 0: until the workload's own end, or unlimited",
    "",
)];

/// Keys of block workloads.
pub const ARRIVAL: &[Param] = &[
    param(
        "arrival",
        ValueKind::Choice(&["closed", "fixed", "uniform", "poisson"]),
        "closed",
        "arrival process; closed: no arrival times",
        "",
    ),
    param("interval", ValueKind::Time, "0", "fixed: interval between requests", ""),
    param("lo", ValueKind::Time, "0", "uniform: minimum interval between requests", ""),
    param("hi", ValueKind::Time, "0", "uniform: maximum interval between requests", ""),
    param("rate", ValueKind::Rate, "1", "poisson: mean requests per second", ""),
    param("device", ValueKind::Count, "0", "device number", ""),
];

#[cfg(test)]
mod tests {
    use crate::workload::{Spec, WORKLOADS};

    #[test]
    fn every_default_parses_and_no_key_is_listed_twice() {
        for w in WORKLOADS {
            let spec: Spec = w.name.parse().unwrap_or_else(|e| panic!("{e}"));
            let mut names: Vec<_> = w.all_params().map(|p| p.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), w.all_params().count(), "{}", w.name);
            let again: Spec = spec.to_string().parse().unwrap();
            assert_eq!(again.to_string(), spec.to_string());
        }
    }
}
