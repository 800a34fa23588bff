//! Stopping the pool where it cannot go on: what it holds is not known to be right, or faults cannot be served any
//! more. Every later call returns [`PoolError::Stopped`], and nothing becomes durable; on the devices the pool is at
//! its last token.

use std::io;
use std::sync::{LockResult, MutexGuard};
use std::thread::panicking;

use super::{Cache, Index, State};
use crate::error::{PoolError, Result};

/// Stops the pool if the thread that holds it panics.
pub(crate) struct Alarm<'a>(pub(crate) &'a Cache);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if panicking() {
            let name = std::thread::current().name().unwrap_or("a thread").to_owned();
            self.0.halt(&mut self.0.lock(), &format!("{name} panicked"));
        }
    }
}

impl Cache {
    /// Stops the pool, and tells why on standard error. Threads that use the mapped address get SIGSEGV instead of
    /// waiting for what nobody does.
    pub(crate) fn halt(&self, state: &mut State, why: &str) {
        if state.halted.is_some() {
            return;
        }
        eprintln!("deepram: the pool has stopped: {why}");
        state.halted = Some(why.to_owned());
        self.stores.iter().for_each(|store| store.stop(why));
        state.stopping = true;
        self.work.notify_all();
        self.writing.notify_all();
        self.changed.notify_all();
        self.close_mapping();
    }

    /// The guard of the cache's lock; the pool stops if a panic has left it.
    pub(super) fn guard<'a>(&'a self, taken: LockResult<MutexGuard<'a, State>>) -> MutexGuard<'a, State> {
        taken.unwrap_or_else(|poisoned| {
            let mut state = poisoned.into_inner();
            self.halt(&mut state, "a thread panicked while it changed the DRAM cache");
            state
        })
    }

    /// Why there is no access any more, if the pool is stopping.
    pub(super) fn ensure_running(&self, state: &State) -> Result<()> {
        match &state.halted {
            Some(why) => Err(PoolError::Stopped { why: why.clone() }),
            None if state.stopping => Err(PoolError::Closed),
            None => Ok(()),
        }
    }

    /// An error once the pool is being closed, or has stopped.
    pub(crate) fn ensure_open(&self) -> Result<()> {
        let mut state = self.lock();
        if let Err(PoolError::Stopped { why }) = self.stores.iter().try_for_each(|store| store.ensure_sound())
        {
            self.halt(&mut state, &why);
        }
        self.ensure_running(&state)
    }

    /// Stops the pool where the kernel refuses what nothing can go on without.
    pub(super) fn must(&self, state: &mut State, call: &str, index: Index, done: io::Result<()>) {
        if let Err(error) = done {
            self.halt(
                state,
                &format!("{call} at {:#x}: {error}", self.region.base().addr() + self.offset(index)),
            );
        }
    }

    /// Makes the mapped address unusable: better a signal than a thread that waits for ever. Whoever copies from it holds the cache's
    /// lock, and looks whether the pool has stopped.
    pub(super) fn close_mapping(&self) {
        if !self.region.is_watched() {
            return;
        }
        let (base, len) = (self.region.base().addr(), self.region.len());
        let tell = |call, error: &io::Error| {
            eprintln!("deepram: {call} at {base:#x}, to close the pool's mapping: {error}");
        };
        let closed =
            self.region.set_access(0, len, false, false).inspect_err(|error| tell("mprotect", error));
        let woken = self.region.wake(0, len).inspect_err(|error| tell("UFFDIO_WAKE", error));
        // Missing pages of an open mapping would read as zeros.
        if closed.is_ok()
            && woken.is_err()
            && let Err(error) = self.region.unwatch()
        {
            tell("UFFDIO_UNREGISTER", &error);
        }
    }
}
