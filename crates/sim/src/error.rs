//! What can go wrong with a simulation.

use deepram_media::MediaError;
use deepram_trace::TraceError;

/// An error of configuring or running a simulation.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// A preset or an override of one is wrong.
    #[error(transparent)]
    Media(#[from] MediaError),
    /// The trace is wrong.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// An option's value can't be.
    #[error("{key}: {why}")]
    Config {
        /// The option.
        key: String,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// A request reaches past the device's end.
    #[error(
        "request {number}: bytes {offset} to {end} are outside the device of {capacity} bytes; use a larger device or let addresses wrap"
    )]
    OutOfRange {
        /// Which request; the first is 1.
        number: u64,
        /// Its first byte.
        offset: u64,
        /// The byte after its last.
        end: u64,
        /// Bytes of the device.
        capacity: u64,
    },
    /// The device has no space left that reclamation could free.
    #[error(
        "the device is full at {time_ps} ps: {what}; leave more over-provisioning, or retire fewer blocks"
    )]
    Full {
        /// When, in picoseconds.
        time_ps: u64,
        /// Which part of it, and why nothing can be freed.
        what: String,
    },
    /// A law that must hold in every run does not: the simulator is wrong.
    #[error(
        "conservation is violated: {law}: {found}; this is a bug in the simulator, please report it with the configuration and the seed"
    )]
    Conservation {
        /// The law.
        law: &'static str,
        /// What was counted instead.
        found: String,
    },
}

impl SimError {
    /// A wrong option.
    pub(crate) fn config(key: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Config { key: key.into(), why: why.into() }
    }
}
