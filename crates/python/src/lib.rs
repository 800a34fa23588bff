//! The native module `deepram._native` of the Python package `deepram`.
//!
//! Python code of the package (`python/deepram`) makes arrays, keeps their catalogue and checks arguments. This module
//! gives it pools, views of tokens, simulations and characterisations, as numbers, bytes and JSON.
//!
//! | module | contents |
//! |---|---|
//! | `pool` | pools and views: allocation, sync, rollback, differences, batches, hints |
//! | `guard` | accesses to memory that is gone become exceptions |
//! | `failure` | pools that an access has ended, because it could not be served |
//! | `digest` | digests of segments, by which a checkpoint finds what has changed |
//! | `error` | errors of the pool as exceptions of `deepram.errors` |
//! | `records` | records from arrays, files and workloads |
//! | `simulation` | runs of simulated systems |
//! | `sweep` | grids of simulations |
//! | `characterization` | characterisations of traces |
//!
//! Every call that may wait for a device or another thread releases the interpreter's lock.

mod characterization;
mod digest;
mod error;
mod failure;
mod guard;
mod pool;
mod records;
mod simulation;
mod sweep;

use pyo3::prelude::*;

/// Native parts of deepram; not for direct use.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::characterization::{characterize, trace_formats};
    #[pymodule_export]
    use crate::digest::segment_digests;
    #[pymodule_export]
    use crate::error::parse_size;
    #[pymodule_export]
    use crate::guard::{mark_gone, unmark_gone};
    #[pymodule_export]
    use crate::pool::{NativePool, NativeView, create_pool, is_pool};
    #[pymodule_export]
    use crate::simulation::{simulate, system_settings, systems, workload_help};
    #[pymodule_export]
    use crate::sweep::{NativeJournal, NativeSweep};
}
