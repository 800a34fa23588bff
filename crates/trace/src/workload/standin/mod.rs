//! Synthetic stand-ins for the eight traces of the hybrid SSD cache paper, which are not available: generators that are
//! fitted to the published table and to the published locality (sections IV and VI-B), and to no result of a buffer.
//!
//! | file | contents |
//! |---|---|
//! | `published` | Table III, and the goals of the fit |
//! | `model`, `parameters` | the parameters and their fitted values |
//! | `generator` | the requests |
//! | `fit` | the measured characterisation and its loss |

pub mod fit;
mod generator;
mod model;
mod parameters;
mod published;

pub use generator::StandIn;
pub use model::{Fitted, Model, PARAMETERS, Placement};
pub use published::{Collection, Goals, LRU_PAGES, PUBLISHED, PublishedTrace, WRITE_LRU_PAGES};

use super::RecordSource;
use super::params::{ValueKind, WorkloadInfo, param};
use super::spec::{Spec, SpecFault};
use crate::record::Item;

/// Beginning of the names of stand-ins in the catalogue of workloads.
const PREFIX: &str = "standin-";

impl PublishedTrace {
    /// The fitted parameters of the trace's stand-in.
    #[must_use]
    pub fn fitted(&self) -> &'static Fitted {
        let at = PUBLISHED.iter().position(|published| published.trace == self.trace).unwrap_or(0);
        &parameters::FITTED[at]
    }
}

/// The name of the trace that the workload of this name stands in for; `None` for another workload.
pub(super) fn stands_for(workload: &str) -> Option<&str> {
    workload.strip_prefix(PREFIX)
}

macro_rules! standin {
    ($name:literal, $description:literal, $span:literal) => {
        WorkloadInfo {
            name: $name,
            description: $description,
            source: "hybrid SSD cache paper, Table III and sections IV, VI-B; fitted by the example fit_stand_ins",
            params: &[param(
                "duration",
                ValueKind::Time,
                $span,
                "mean time from the first to the last request; 0: no arrival times",
                "the paper, section VI-C; twelve hours assumed for fin1, fin2",
            )],
            arrival: false,
        }
    };
}

/// Number of stand-ins.
pub(super) const COUNT: usize = 8;

/// The catalogue's entries.
pub(super) const INFOS: [WorkloadInfo; COUNT] = [
    standin!("standin-rsrch", "synthetic stand-in for MSRC rsrch: 1,433,655 requests, 91% writes", "604800s"),
    standin!("standin-stg", "synthetic stand-in for MSRC stg: 2,196,861 requests, 36% writes", "604800s"),
    standin!("standin-ts", "synthetic stand-in for MSRC ts: 1,801,734 requests, 82% writes", "604800s"),
    standin!("standin-wdev", "synthetic stand-in for MSRC wdev: 1,143,261 requests, 80% writes", "604800s"),
    standin!("standin-tpcc", "synthetic stand-in for MSE tpcc: 484,649 requests, 36% writes", "361s"),
    standin!("standin-tpce", "synthetic stand-in for MSE tpce: 1,345,380 requests, 6% writes", "609s"),
    standin!(
        "standin-fin1",
        "synthetic stand-in for Financial fin1: 5,334,987 requests, 77% writes",
        "43200s"
    ),
    standin!(
        "standin-fin2",
        "synthetic stand-in for Financial fin2: 3,699,195 requests, 18% writes",
        "43200s"
    ),
];

/// A stand-in as a workload.
pub(super) struct Source(StandIn);

impl Source {
    pub(super) fn new(spec: &Spec, seed: u64) -> Result<Self, SpecFault> {
        let name = spec.name();
        let trace = stands_for(name).and_then(PublishedTrace::named);
        let trace =
            trace.ok_or_else(|| SpecFault::Values(format!("{name} stands for no published trace")))?;
        Ok(Self(StandIn::new(trace, seed).lasting(spec.int("duration"))))
    }
}

impl RecordSource for Source {
    #[inline]
    fn next(&mut self) -> Option<Item> {
        self.0.next().map(Item::Block)
    }

    fn ends(&self) -> bool {
        true
    }

    fn has_times(&self) -> bool {
        true
    }
}
