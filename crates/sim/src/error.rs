//! The errors of configuring and running a simulation.

use deepram_media::MediaError;
use deepram_trace::TraceError;
use deepram_trace::workload::SpecError;

/// An error of configuring or running a simulation.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// A preset, or a `--set` override of a preset, is wrong.
    #[error(transparent)]
    Media(#[from] MediaError),
    /// A trace could not be read or parsed.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The text of a workload is wrong, or a file that it names.
    #[error(transparent)]
    Workload(#[from] SpecError),
    /// Options do not fit together, or not the system. The text names them and says what would be right.
    #[error("{0}")]
    Options(String),
    /// The input has no requests.
    #[error("{input} has no requests")]
    NoRequests {
        /// The workload's text or the trace's path.
        input: String,
    },
    /// An option has an invalid value.
    #[error("{key}: {why}")]
    Config {
        /// The option's name.
        key: String,
        /// The problem, and a value that would be valid.
        why: String,
    },
    /// The caller ended the simulation.
    #[error("the caller ended the simulation after {requests} requests")]
    Stopped {
        /// Requests that had reached the simulator.
        requests: u64,
    },
    /// A request extends past the end of the device.
    #[error(
        "request {number}: bytes {offset} to {end} are outside the device of {capacity} bytes; use a larger device, or let addresses wrap"
    )]
    OutOfRange {
        /// The request's number, counted from 1.
        number: u64,
        /// The request's first byte.
        offset: u64,
        /// The byte after the request's last.
        end: u64,
        /// The device's size in bytes.
        capacity: u64,
    },
    /// The device has no free space, and reclamation can free none.
    #[error(
        "the device is full at {time_ps} ps: {what}; leave more over-provisioning, or retire fewer blocks"
    )]
    Full {
        /// The virtual time of the failure, in picoseconds.
        time_ps: u64,
        /// The full part of the device, and the reason that reclamation frees nothing.
        what: String,
    },
    /// A conservation law that holds in every correct run is violated: the simulator has a bug.
    #[error(
        "conservation is violated: {law}: {found}; this is a bug in the simulator, please report it with the configuration and the seed"
    )]
    Conservation {
        /// The violated law.
        law: &'static str,
        /// The counts that violate the law.
        found: String,
    },
}

impl SimError {
    /// The error of an invalid option.
    pub(crate) fn config(key: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Config { key: key.into(), why: why.into() }
    }
}
