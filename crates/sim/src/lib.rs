//! Virtual time: the event engine, the simulated memory systems, their metrics and results.
//!
//! ```
//! use deepram_media::Registry;
//! use deepram_sim::{RunOptions, SimError, System, SystemConfig, run};
//! use deepram_trace::{Op, Request};
//!
//! let registry = Registry::builtin()?;
//! let config = SystemConfig::new(System::Ssd);
//! let workload = (0..100).map(|n| {
//!     Ok::<_, SimError>(Request { time_ps: None, device: 0, offset: n << 20, len: 4096, op: Op::Write })
//! });
//! let result = run(&registry, &config, workload, &RunOptions::default())?;
//! assert_eq!(result.requests, 100);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`engine`] | the event queue, ordered by (time, sequence), in integer picoseconds |
//! | [`host`] | open-loop and closed-loop request driver: threads, outstanding limits, warm-up, stop conditions, measuring |
//! | [`clients`] | database transactions, with one central log or one log for each client |
//! | [`ssd`] | two drive models: elements that do one operation at a time (DiskSim), and channels of packages (MQSim) |
//! | [`ssd_buffer`] | a drive behind a write buffer of DRAM and PCM (hybrid SSD cache) |
//! | [`pmem`] | a server with persistent memory, tmpfs, or ext4 on a drive (NVMM application study) |
//! | [`disk_cache`] | a server with a disk cache of DRAM and flash in front of a disk (flash disk cache) |
//! | [`dram`] | all-DRAM memory |
//! | [`nvmm`] | a DRAM cache over journaled flash (NVMM) |
//! | [`paging`] | DRAM in front of a drive behind an operating system's paging |
//! | [`flatflash`] | DRAM and a byte-addressable drive (FlatFlash), and two systems that page from the same drive |
//! | [`pool_model`] | this project's pool on a measured device |
//! | [`swap_model`] | the pager of `deepram run` on a measured device |
//! | [`processor`] | cores, threads and a last-level cache in front of a device |
//! | [`nested`] | a device inside another device |
//! | [`cache`] | core's replacement policies under traces |
//! | [`mod@plan`] | from a trace to the cheapest hierarchy that keeps the goals |
//! | [`simulation`] | one simulation with every option of `deepram sim` |
//! | [`mod@sweep`] | a grid of simulations: specification, journal, results, Pareto front |
//! | [`settings`] | the keys of `--set`: schema, parsing, suggestions, listing |
//! | [`run()`] | from a configuration to a result; [`result`]: the result as JSON, table, CSV |
//! | [`peers`] | workloads, configurations and figures of other simulators |
//!
//! There is no global state: a run owns everything it changes. Each component has a random stream of its
//! own ([`deepram_trace::workload::Rng`]), seeded from the run's seed and the component's name. Every run
//! ends with a check of conservation laws (requests issued and completed, programs by cause, each logical
//! page in one place). A violated law is an error, never a result.

#![forbid(unsafe_code)]

pub mod cache;
pub mod clients;
pub mod disk_cache;
pub mod dram;
pub mod engine;
mod error;
pub mod flash;
mod flash_array;
pub mod flatflash;
mod hard_disk;
pub mod host;
mod measured_device;
mod memory_accesses;
pub mod metrics;
pub mod nested;
pub mod nvmm;
pub mod paging;
mod pareto;
pub mod peers;
pub mod plan;
pub mod pmem;
pub mod pool_model;
pub mod processor;
mod quantity;
mod read_slots;
pub mod result;
mod run;
pub mod settings;
pub mod simulation;
mod slab;
pub mod ssd;
pub mod ssd_buffer;
mod staging;
pub mod swap_model;
pub mod sweep;
mod systems;

pub use error::SimError;
pub use result::RunResult;
pub use run::{RunOptions, System, SystemConfig, requests, run, run_clients, run_threads};
