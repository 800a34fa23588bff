//! What a workload's keys are, and the keys that many have. The workloads are in `catalogue`.

use std::fmt;

/// What kind of value a key takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A number of bytes: `4KiB`, `1.5GiB`.
    Bytes,
    /// A count: `1000`, `2.5M`.
    Count,
    /// A share of one: `0.7`, `70%`.
    Ratio,
    /// A time with its unit: `10us`.
    Time,
    /// Events a second: `20k`.
    Rate,
    /// A number that is not negative.
    Number,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A file's path (no comma in it).
    Path,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Bytes => f.pad("bytes"),
            Kind::Count => f.pad("count"),
            Kind::Ratio => f.pad("share"),
            Kind::Time => f.pad("time"),
            Kind::Rate => f.pad("per second"),
            Kind::Number => f.pad("number"),
            Kind::Choice(choices) => f.pad(&choices.join("|")),
            Kind::Path => f.pad("path"),
        }
    }
}

/// A key of a workload.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// The key.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// Its default, as it would be written.
    pub default: &'static str,
    /// What it means.
    pub what: &'static str,
    /// Where the default comes from; empty where it is a plain choice of ours.
    pub source: &'static str,
}

/// A workload.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadInfo {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub what: &'static str,
    /// Where it is defined.
    pub source: &'static str,
    /// Its own keys.
    pub params: &'static [Param],
    /// Whether its records are block requests, which take the [`ARRIVAL`] keys.
    pub arrival: bool,
}

impl WorkloadInfo {
    /// Its own keys, then those that all have, then the arrival keys.
    pub fn all_params(&self) -> impl Iterator<Item = &'static Param> {
        let arrival: &[Param] = if self.arrival { ARRIVAL } else { &[] };
        self.params.iter().chain(COMMON).chain(arrival)
    }
}

pub(super) const fn p(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    what: &'static str,
    source: &'static str,
) -> Param {
    Param { name, kind, default, what, source }
}

/// Keys that every workload has.
pub const COMMON: &[Param] =
    &[p("count", Kind::Count, "0", "records to yield; 0: to the workload's own end, or for ever", "")];

/// Keys that block workloads have.
pub const ARRIVAL: &[Param] = &[
    p(
        "arrival",
        Kind::Choice(&["closed", "fixed", "uniform", "poisson"]),
        "closed",
        "closed: no arrival times",
        "",
    ),
    p("interval", Kind::Time, "0", "fixed: time between requests", ""),
    p("lo", Kind::Time, "0", "uniform: least time between requests", ""),
    p("hi", Kind::Time, "0", "uniform: greatest time between requests", ""),
    p("rate", Kind::Rate, "1", "poisson: mean requests a second", ""),
    p("device", Kind::Count, "0", "number of the device", ""),
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
