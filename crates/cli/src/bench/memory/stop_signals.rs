//! Notes signals that ask the process to end, so that the bench can clean up first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use anyhow::{Context, ensure};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Set once such a signal has arrived.
pub(super) struct StopSignals(Arc<AtomicBool>);

impl StopSignals {
    /// Installs handlers, so that SIGINT, SIGTERM and SIGHUP no longer end this process. Its children are not affected.
    pub(super) fn install() -> anyhow::Result<Self> {
        let received = Arc::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&received))
                .context("installing signal handlers")?;
        }
        Ok(Self(received))
    }

    /// Fails once a signal has arrived.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        ensure!(!self.0.load(Relaxed), "interrupted");
        Ok(())
    }
}
