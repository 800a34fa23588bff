//! Signals that ask the process to end, taken note of so that it can put things away first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use anyhow::{Context, ensure};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Whether one of them has come.
pub(super) struct Interrupts(Arc<AtomicBool>);

impl Interrupts {
    /// From now on SIGINT, SIGTERM and SIGHUP do not end this process. Processes that it starts are not affected.
    pub(super) fn watch() -> anyhow::Result<Self> {
        let came = Arc::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&came)).context("watching for signals")?;
        }
        Ok(Self(came))
    }

    /// An error once one has come.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        ensure!(!self.0.load(Relaxed), "interrupted");
        Ok(())
    }
}
