//! Fail-stop: the pool stops when its state in memory is not known to be right, or when page faults can no longer be
//! served. Every later call returns [`PoolError::Stopped`], and nothing more becomes durable; on the devices the pool
//! is at its last token.

use std::io;
use std::sync::{LockResult, MutexGuard};
use std::thread::panicking;

use super::{Cache, CacheState, Index};
use crate::error::{PoolError, Result};

/// Stops the pool if the thread that holds this guard panics.
pub(crate) struct PanicGuard<'a>(pub(crate) &'a Cache);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if panicking() {
            let name = std::thread::current().name().unwrap_or("a thread").to_owned();
            self.0.halt(&mut self.0.lock(), &format!("{name} panicked"));
        }
    }
}

impl Cache {
    /// Stops the pool. Threads that use the mapped memory get SIGSEGV instead of waiting for a fault that no handler
    /// will serve, so the reason goes to standard error if the pool is mapped.
    pub(crate) fn halt(&self, state: &mut CacheState, why: &str) {
        if state.halted.is_some() {
            return;
        }
        tracing::error!(why, "the pool has stopped");
        if self.region.is_watched() {
            // Without a handler for SIGSEGV the program ends at its next access to the mapped memory.
            eprintln!("deepram: the pool has stopped: {why}");
        }
        state.halted = Some(why.to_owned());
        self.stores.iter().for_each(|store| store.stop(why));
        state.stopping = true;
        self.stage_work.notify_all();
        self.evictor_work.notify_all();
        self.write_back_work.notify_all();
        self.changed.notify_all();
        self.close_mapping();
    }

    /// Returns the guard of the cache's lock. Stops the pool if a thread panicked while it held the lock.
    pub(super) fn lock_or_halt<'a>(
        &'a self,
        taken: LockResult<MutexGuard<'a, CacheState>>,
    ) -> MutexGuard<'a, CacheState> {
        taken.unwrap_or_else(|poisoned| {
            let mut state = poisoned.into_inner();
            self.halt(&mut state, "a thread panicked while it changed the DRAM cache");
            state
        })
    }

    /// Returns an error if the pool is being closed or has stopped.
    pub(super) fn ensure_running(&self, state: &CacheState) -> Result<()> {
        match &state.halted {
            Some(why) => Err(PoolError::Stopped { why: why.clone() }),
            None if state.stopping => Err(PoolError::Closed),
            None => Ok(()),
        }
    }

    /// Returns an error if the pool is being closed, or has stopped, or if one of its stores has stopped.
    pub(crate) fn ensure_open(&self) -> Result<()> {
        let mut state = self.lock();
        if let Err(PoolError::Stopped { why }) = self.stores.iter().try_for_each(|store| store.ensure_sound())
        {
            self.halt(&mut state, &why);
        }
        self.ensure_running(&state)
    }

    /// Stops the pool if the kernel refused a call that it cannot work without.
    pub(super) fn halt_on_error(
        &self,
        state: &mut CacheState,
        call: &str,
        index: Index,
        done: io::Result<()>,
    ) {
        if let Err(error) = done {
            self.halt(
                state,
                &format!("{call} at {:#x}: {error}", self.region.base().addr() + self.offset(index)),
            );
        }
    }

    /// Makes the mapped memory inaccessible: a signal is better than a thread that waits for ever. Code that copies
    /// from the mapping holds the cache's lock and checks whether the pool has stopped.
    pub(super) fn close_mapping(&self) {
        if !self.region.is_watched() {
            return;
        }
        let (base, len) = (self.region.base().addr(), self.region.len());
        let report = |call, error: &io::Error| {
            tracing::error!(call, address = base, %error, "the pool's mapping cannot be closed");
        };
        let closed =
            self.region.set_protection(0, len, false, false).inspect_err(|error| report("mprotect", error));
        let woken = self.region.wake(0, len).inspect_err(|error| report("UFFDIO_WAKE", error));
        // Absent pages of an open mapping would read as zeros.
        if closed.is_ok()
            && woken.is_err()
            && let Err(error) = self.region.unregister()
        {
            report("UFFDIO_UNREGISTER", &error);
        }
    }
}
