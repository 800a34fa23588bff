//! deepram as a library: everything that programs use, under one name.
//!
//! | module | contents |
//! |---|---|
//! | [`pool`] | memory larger than DRAM in a file or on a block device, which survives crashes and can be rolled back |
//! | [`sim`] | simulated memory systems and drives, sweeps over their parameters, plans |
//! | [`trace`] | trace formats, workload generators, characterisation |
//! | [`media`] | figures of devices: presets with units, conditions and sources |
//!
//! The command `deepram` is built from the same package; its modules are private to it.
//!
//! # A pool
//!
//! ```
//! use deepram::pool::{CreateOptions, Lifetime, Mapping, OpenOptions, Pool};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("data.pool");
//! Pool::create(&[&path], &CreateOptions::new(1 << 20))?; // 1 MiB of memory
//! // Without mapping, calls are the only access; a mapped pool also gives pointers and slices.
//! let pool = Pool::open(&[&path], &OpenOptions::new(16 << 20).mapping(Mapping::Off))?;
//! let addr = pool.alloc(4096, Lifetime::Permanent)?;
//! pool.set_root("greeting", addr, 5)?;
//! pool.write(addr, b"hello")?;
//! let token = pool.sync()?; // durable from here on
//! pool.write(addr, b"wrong")?;
//! pool.rollback(token)?;
//! let mut text = [0; 5];
//! pool.read(pool.root("greeting")?.addr, &mut text)?;
//! assert_eq!(&text, b"hello");
//! pool.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # A simulation
//!
//! ```
//! use deepram::media::Registry;
//! use deepram::sim::System;
//! use deepram::sim::simulation::Simulation;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut simulation = Simulation::new(System::Ssd);
//! simulation.set_option("workload", "zipf:span=1MiB,count=1k,read=0.7")?;
//! simulation.set_option("depth", "16")?;
//! simulation.set.push("nand.read=30us".into());
//! let (result, _notes) = simulation.run(&Registry::builtin()?, &|_requests| true)?;
//! assert_eq!(result.requests, 1000);
//! assert!(result.latency.p99_ns >= result.latency.p50_ns);
//! # Ok(())
//! # }
//! ```
//!
//! # A sweep
//!
//! ```
//! use deepram::sim::sweep::Sweep;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let text = r#"
//!     system = "ssd"
//!     workload = "uniform:span=1MiB,count=100"
//!     [axes]
//!     preset = ["z-ssd", "tlc"]
//!     seed = { from = 1, to = 3 }
//! "#;
//! let sweep = Sweep::parse("example.toml", text, "".as_ref())?;
//! assert_eq!(sweep.values(4)?, ["tlc", "2"]);
//! assert!(sweep.outcome(4)?.starts_with(r#"{"status":"done""#));
//! # Ok(())
//! # }
//! ```
//!
//! # A trace
//!
//! ```
//! use deepram::trace::{Item, Op, Workload};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let writes = Workload::new("uniform:span=1MiB,count=1000,read=0.7", 1)?
//!     .filter(|item| matches!(item, Item::Block(request) if request.op == Op::Write))
//!     .count();
//! assert!((250..350).contains(&writes));
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

pub use deepram_media as media;
pub use deepram_pool as pool;
pub use deepram_sim as sim;
pub use deepram_trace as trace;
