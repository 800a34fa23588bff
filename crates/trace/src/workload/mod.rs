//! Workload generators: seeded, streaming, the same on every machine.
//!
//! A workload is named by a text, `NAME[:key=value,key=value...]`, such as
//! `zipf:theta=0.99,span=1GiB,read=0.7,count=1M,size=4KiB`. [`WORKLOADS`] lists every name with
//! its parameters, units, defaults and sources; an unknown name or key is an error that suggests
//! the nearest one. [`Workload`] is an iterator of [`Item`]s.
//!
//! Block workloads take the arrival keys too ([`ARRIVAL`]): a closed loop (no times), a fixed or
//! uniformly drawn interval, or a Poisson process.

mod arrival;
mod catalogue;
mod db;
mod dist;
mod filebench;
mod fileset;
mod graph;
mod gups;
mod help;
mod metadata;
mod rng;
mod spec;
mod streams;
mod table;
mod tatp;
mod tpcb;
mod tpcc;
mod ycsb;

pub use crate::text::mix64;
pub use catalogue::WORKLOADS;
pub use dist::{Exponential, GrayZipf, Permutation, Zipf, zeta};
pub use gups::{hpcc_starts, hpcc_step};
pub use help::help;
pub use rng::Rng;
pub use spec::{Spec, SpecError};
pub use table::{ARRIVAL, COMMON, Kind, Param, WorkloadInfo};

use crate::record::Item;
use arrival::Arrival;
use db::Db;
use spec::Bad;

/// A source of records, before arrival times.
trait Stream: Send {
    /// The next record, or `None` at the workload's own end.
    fn next(&mut self) -> Option<Item>;

    /// Whether it has an end of its own.
    fn ends(&self) -> bool {
        false
    }

    /// The database behind it, if it is one.
    fn database(&self) -> Option<&Db> {
        None
    }
}

/// A generated stream of records.
pub struct Workload {
    spec: Spec,
    stream: Box<dyn Stream>,
    arrival: Arrival,
    device: u32,
    left: Option<u64>,
}

impl Workload {
    /// Builds the workload that `spec` describes.
    ///
    /// # Errors
    /// The text does not follow the grammar, names something unknown, or its values don't fit
    /// together; a graph workload's edge list can't be read.
    pub fn new(spec: &str, seed: u64) -> Result<Workload, SpecError> {
        Workload::from_spec(&spec.parse()?, seed)
    }

    /// Builds a workload from a parsed spec.
    ///
    /// # Errors
    /// The values don't fit together; a graph workload's edge list can't be read.
    pub fn from_spec(spec: &Spec, seed: u64) -> Result<Workload, SpecError> {
        Workload::build(spec, seed).map_err(|bad| bad.of(spec))
    }

    fn build(spec: &Spec, seed: u64) -> Result<Workload, Bad> {
        let arrival = Arrival::new(spec, seed)?;
        let stream: Box<dyn Stream> = match spec.name() {
            "uniform" | "zipf" | "exponential" | "sequential" | "mixed" | "mmap-random" => {
                Box::new(streams::Addresses::new(spec, seed)?)
            }
            "dd-read" | "dd-write" => Box::new(streams::Dd::new(spec)?),
            "gups" => Box::new(gups::Gups::new(spec)?),
            name if name.starts_with("ycsb-") => Box::new(ycsb::Ycsb::new(spec, seed)?),
            "fileserver" | "varmail" | "webserver" | "webproxy" => {
                Box::new(filebench::Filebench::new(spec, seed)?)
            }
            "oltp" => Box::new(filebench::Oltp::new(spec, seed)?),
            "metadata" => Box::new(metadata::Metadata::new(spec, seed)?),
            "tpcc" => Box::new(tpcc::TpcC::new(spec, seed)?),
            "tpcb" => Box::new(tpcb::TpcB::new(spec, seed)?),
            "tatp" => Box::new(tatp::Tatp::new(spec, seed)?),
            "pagerank" => Box::new(graph::PageRank::new(spec, seed)?),
            "cc" => Box::new(graph::Components::new(spec, seed)?),
            other => return Err(Bad::Values(format!("{other} has no generator"))),
        };
        let device = if spec.info().arrival { spec.int("device") } else { 0 };
        let device = u32::try_from(device).map_err(|_| Bad::value("device", "a number below 2^32"))?;
        let left = Some(spec.int("count")).filter(|n| *n > 0);
        Ok(Workload { spec: spec.clone(), stream, arrival, device, left })
    }

    /// Whether it comes to an end: after `count` records, or at the workload's own.
    pub fn ends(&self) -> bool {
        self.left.is_some() || self.stream.ends()
    }

    /// The bytes of its log, if it is a database's.
    pub fn log(&self) -> Option<std::ops::Range<u64>> {
        self.stream.database().map(Db::log)
    }

    /// Transactions of a database that have begun; the last record belongs to the last of them.
    pub fn transactions(&self) -> u64 {
        self.stream.database().map_or(0, Db::transactions)
    }

    /// The spec with every value, defaults included.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }
}

impl Iterator for Workload {
    type Item = Item;

    #[inline]
    fn next(&mut self) -> Option<Item> {
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(1)?;
        }
        let mut item = self.stream.next()?;
        if let Item::Block(request) = &mut item {
            request.time_ps = self.arrival.next();
            request.device = self.device;
        }
        Some(item)
    }
}

impl std::fmt::Debug for Workload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workload")
            .field("spec", &self.spec.to_string())
            .field("left", &self.left)
            .finish_non_exhaustive()
    }
}
