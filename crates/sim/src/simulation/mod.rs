//! One simulation as a user describes it: system, input, presets, options.
//!
//! `deepram sim`, `deepram sweep` and the bindings describe their simulations by [`Simulation`], so an option has one
//! meaning and one check.
//!
//! ```
//! use deepram_media::Registry;
//! use deepram_sim::simulation::Simulation;
//! use deepram_sim::System;
//!
//! let mut simulation = Simulation::new(System::Ssd);
//! simulation.set_option("workload", "uniform:span=1MiB,count=100")?;
//! simulation.set_option("depth", "4")?;
//! simulation.set.push("nand.read=30us".into());
//! let (result, _notes) = simulation.run(&Registry::builtin()?, &|_requests| true)?;
//! assert_eq!(result.requests, 100);
//! # Ok::<(), deepram_sim::SimError>(())
//! ```

mod check;
mod counting;
mod options;
mod run;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use deepram_core::units::{Bytes, Picos};
use deepram_trace::{Columns, Format};

use crate::clients::Logging;
use crate::nvmm::Prefetch;
use crate::run::System;

pub use check::{check_together, set_once};
pub use options::{OPTIONS, parse_interval, parse_object_slots, parse_prefetch, parse_region, parse_time};

/// Size of the slot of an object of a trace, bytes.
pub const SLOT_BYTES: u64 = 4096;
/// Default number of object slots.
pub const OBJECT_SLOTS: u64 = 1 << 20;

/// The state of a drive before a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriveState {
    /// No page is written.
    Empty,
    /// Every page is written once, sequentially.
    Sequential,
    /// Steady state of long uniform random writing.
    Steady,
}

/// A simulation with every option of `deepram sim`. An option that is `None` was not given: the default of the system
/// or preset holds.
#[derive(Debug, Clone)]
pub struct Simulation {
    /// The simulated system.
    pub system: System,
    /// The text of a generated workload.
    pub workload: Option<String>,
    /// A trace file.
    pub trace: Option<PathBuf>,
    /// Requests in memory instead of a workload or a trace file.
    pub columns: Option<Arc<Columns>>,
    /// Format of the trace; `None` to recognise it from its content.
    pub format: Option<Format>,
    /// Preset of the device; the system's default preset if empty.
    pub preset: String,
    /// Overrides of presets, `key=value` each.
    pub set: Vec<String>,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Threads that issue requests without arrival times, or threads of the processor.
    pub threads: u32,
    /// Outstanding requests of each thread.
    pub depth: u32,
    /// Time between a completion and the thread's next request.
    pub think: Picos,
    /// Ignores arrival times.
    pub closed: bool,
    /// Most requests; 0 for all of the input.
    pub requests: u64,
    /// Requests at the start that the results exclude.
    pub warm_up: u64,
    /// Wraps addresses beyond the device around.
    pub wrap: bool,
    /// Slots over which the objects of an object trace are spread.
    pub object_slots: Option<u64>,
    /// State of the drive before the run.
    pub precondition: Option<DriveState>,
    /// Share of the logical pages that the precondition writes.
    pub filled: Option<f64>,
    /// Lets reads suspend programs and erases.
    pub suspend: bool,
    /// Preset of a processor whose threads use the system as memory.
    pub processor: Option<String>,
    /// Cores of the processor; `None` for those of its preset.
    pub cores: Option<u32>,
    /// Instructions between two references of a generated workload.
    pub gap: u32,
    /// DRAM of the system.
    pub dram: Option<Bytes>,
    /// Ranges that a flush makes durable, in bytes.
    pub persist: Vec<Range<u64>>,
    /// Clients of a database.
    pub clients: Option<u32>,
    /// Logs of the clients.
    pub logging: Option<Logging>,
    /// Processor time of a client before each access.
    pub work: Picos,
    /// Time that a record holds the lock of the central log.
    pub log_lock: Picos,
    /// Prefetch of `nvmm`.
    pub prefetch: Option<Prefetch>,
    /// DRAM preset of `ssd-paging`.
    pub memory: Option<String>,
    /// Operating-system preset of `ssd-paging`.
    pub software: Option<String>,
    /// SSD preset of `ssd-buffer` and `pmem`.
    pub drive: Option<String>,
    /// Pages of `ssd-paging` are anonymous memory in swap; `pool` is the pager of `deepram run` over its swap file.
    pub swap: bool,
    /// Interval of the time series.
    pub interval: Option<Picos>,
}

impl Simulation {
    /// A simulation of `system` with the defaults of `deepram sim`; it lacks an input.
    #[must_use]
    pub fn new(system: System) -> Self {
        Self {
            system,
            workload: None,
            trace: None,
            columns: None,
            format: None,
            preset: String::new(),
            set: Vec::new(),
            seed: 1,
            threads: 1,
            depth: 1,
            think: Picos(0),
            closed: false,
            requests: 0,
            warm_up: 0,
            wrap: false,
            object_slots: None,
            precondition: None,
            filled: None,
            suspend: false,
            processor: None,
            cores: None,
            gap: 4,
            dram: None,
            persist: Vec::new(),
            clients: None,
            logging: None,
            work: Picos(10_000_000),
            log_lock: Picos(1_000_000),
            prefetch: None,
            memory: None,
            software: None,
            drive: None,
            swap: false,
            interval: None,
        }
    }
}
