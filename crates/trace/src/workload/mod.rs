//! Workload generators: seeded, streaming, and identical on every machine.
//!
//! A workload is described by a text, `NAME[:key=value,key=value...]`, such as
//! `zipf:theta=0.99,span=1GiB,read=0.7,count=1M,size=4KiB`. [`WORKLOADS`] lists all names with
//! their keys, units, defaults and sources. An unknown name or key is an error that suggests the
//! most similar one. [`Workload`] is an iterator over [`Item`]s.
//!
//! Block workloads also take the arrival keys ([`ARRIVAL`]): a closed loop without times, a fixed
//! or uniformly distributed interval, or a Poisson process. The stand-ins ([`standin`]) have arrival times of their own.

mod address_streams;
mod arrival;
mod catalogue;
mod database;
mod distributions;
mod filebench;
mod fileset;
mod graph;
mod gups;
mod help;
mod metadata;
mod params;
mod rng;
mod spec;
pub mod standin;
mod tatp;
mod tpcb;
mod tpcc;
mod ycsb;

pub use crate::text_fields::mix64;
pub use catalogue::WORKLOADS;
pub use distributions::{Exponential, GrayZipf, Permutation, Zipf, zeta};
pub use gups::{hpcc_starts, hpcc_step};
pub use help::help;
pub use params::{ARRIVAL, COMMON, Param, ValueKind, WorkloadInfo};
pub use rng::Rng;
pub use spec::{Spec, SpecError};

use crate::record::Item;
use arrival::Arrival;
use database::Database;
use spec::SpecFault;

/// The text of a workload for results: with the remark that its requests are synthetic, if it stands in for a recorded
/// trace.
///
/// ```
/// use deepram_trace::workload::title;
///
/// assert_eq!(title("standin-wdev:count=10k"), "standin-wdev:count=10k (synthetic)");
/// assert_eq!(title("uniform:count=10k"), "uniform:count=10k");
/// ```
#[must_use]
pub fn title(text: &str) -> String {
    let synthetic = if standin::stands_for(text.trim()).is_some() { " (synthetic)" } else { "" };
    format!("{text}{synthetic}")
}

/// A source of records, most without arrival times.
trait RecordSource: Send {
    /// Returns the next record; `None` at the workload's own end.
    fn next(&mut self) -> Option<Item>;

    /// Whether the workload has an end of its own.
    fn ends(&self) -> bool {
        false
    }

    /// Whether the requests have arrival times of their own.
    fn has_times(&self) -> bool {
        false
    }

    /// The database, if the workload is one.
    fn database(&self) -> Option<&Database> {
        None
    }
}

/// A generated stream of records.
pub struct Workload {
    spec: Spec,
    stream: Box<dyn RecordSource>,
    arrival: Arrival,
    /// Whether the stream has arrival times of its own.
    timed: bool,
    device: u32,
    left: Option<u64>,
}

impl Workload {
    /// Builds the workload that `spec` describes, with this seed for every random stream.
    ///
    /// # Errors
    /// The text violates the grammar or contains an unknown name or key, its values are
    /// inconsistent, or a graph workload's edge list cannot be read.
    pub fn new(spec: &str, seed: u64) -> Result<Workload, SpecError> {
        Workload::from_spec(&spec.parse()?, seed)
    }

    /// Builds a workload from a parsed spec.
    ///
    /// # Errors
    /// The values are inconsistent, or a graph workload's edge list cannot be read.
    pub fn from_spec(spec: &Spec, seed: u64) -> Result<Workload, SpecError> {
        Workload::build(spec, seed).map_err(|bad| bad.of(spec))
    }

    fn build(spec: &Spec, seed: u64) -> Result<Workload, SpecFault> {
        let arrival = Arrival::new(spec, seed)?;
        let stream: Box<dyn RecordSource> = match spec.name() {
            "uniform" | "zipf" | "exponential" | "sequential" | "mixed" | "mmap-random" => {
                Box::new(address_streams::Addresses::new(spec, seed)?)
            }
            "dd-read" | "dd-write" => Box::new(address_streams::Dd::new(spec)?),
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
            name if standin::stands_for(name).is_some() => Box::new(standin::Source::new(spec, seed)?),
            other => return Err(SpecFault::Values(format!("{other} has no generator"))),
        };
        let device = if spec.info().arrival { spec.int("device") } else { 0 };
        let device = u32::try_from(device).map_err(|_| SpecFault::value("device", "a number below 2^32"))?;
        let left = Some(spec.int("count")).filter(|n| *n > 0);
        let timed = stream.has_times();
        Ok(Workload { spec: spec.clone(), stream, arrival, timed, device, left })
    }

    /// Whether the stream ends: after `count` records or at the workload's own end.
    pub fn ends(&self) -> bool {
        self.left.is_some() || self.stream.ends()
    }

    /// Address range of the log, if the workload is a database.
    pub fn log(&self) -> Option<std::ops::Range<u64>> {
        self.stream.database().map(Database::log)
    }

    /// Number of database transactions begun. The last record belongs to the last of them.
    pub fn transactions(&self) -> u64 {
        self.stream.database().map_or(0, Database::transactions)
    }

    /// The spec with all values, defaults included.
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
            if !self.timed {
                request.time_ps = self.arrival.next();
            }
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
