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
//! | module | what it holds |
//! |---|---|
//! | [`engine`] | the event queue: (time, sequence) order, integer picoseconds |
//! | [`host`] | open and closed loop, threads, outstanding limits, warm-up, stop conditions, measuring |
//! | [`clients`] | transactions of a database, with one log or one for each client |
//! | [`ssd`] | two machines of a drive: elements that do one thing at a time, and channels of packages |
//! | [`dram`] | all-DRAM memory |
//! | [`flatflash`] | DRAM and a drive that the processor addresses, and paging from it |
//! | [`nested`] | a device inside another |
//! | [`pager`] | the real pool as it would run on a measured device |
//! | [`cache`] | replacement policies of core under traces |
//! | [`run()`] | configuration to result; [`result`] as JSON, table, CSV |
//! | [`peers`] | the requests that other simulators generate |
//!
//! There is no global state: a run owns all it touches. Random streams belong to components ([`rng`]).
//! Every run ends with a check of the laws of conservation (requests issued and completed, programs by
//! cause, each logical page in one place); a violated law is an error, never a result.

#![forbid(unsafe_code)]

pub mod cache;
pub mod clients;
pub mod dram;
pub mod engine;
mod error;
pub mod flash;
pub mod flatflash;
pub mod host;
pub mod metrics;
pub mod nested;
pub mod nvmm;
pub mod paging;
pub mod peers;
pub mod pool_model;
pub mod processor;
pub mod result;
pub mod rng;
mod run;
pub mod ssd;
mod systems;

pub use error::SimError;
pub use result::RunResult;
pub use run::{RunOptions, System, SystemConfig, requests, run, run_clients, run_threads};
