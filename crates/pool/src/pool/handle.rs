//! Handles: the one way from a handle to what is behind it, through a check that the pool is open and that this process
//! opened it; and the end of a pool.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::{Arc, MutexGuard};

use deepram_core::Addr;
use deepram_core::units::PAGE_BYTES;

use super::{Inner, Pool};
use crate::error::{PoolError, Result};
use crate::lock::lock;
use crate::store::Log;

/// What is behind a handle on a pool.
pub(super) struct Guarded(Arc<Inner>);

impl Guarded {
    pub(super) fn new(inner: Inner) -> Self {
        Self(Arc::new(inner))
    }
}

impl Clone for Guarded {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if !self.0.owner.is_here() {
            // In a forked child there are no threads to join, locks may be held by threads that are not here, and the
            // memory and the devices are the parent's: one reference more, and nothing is ever dropped.
            std::mem::forget(Arc::clone(&self.0));
        }
    }
}

impl Pool {
    /// What every operation begins with.
    ///
    /// # Errors
    /// [`PoolError::ForkedChild`], [`PoolError::Closed`].
    pub(super) fn live(&self) -> Result<&Inner> {
        self.inner.0.owner.check()?;
        self.inner.0.ensure_open()?;
        Ok(&self.inner.0)
    }

    /// For what keeps a handle: an error where no operation would do anything.
    ///
    /// # Errors
    /// [`PoolError::ForkedChild`], [`PoolError::Closed`].
    pub(crate) fn ensure_live(&self) -> Result<()> {
        self.live().map(drop)
    }

    /// What is behind a handle that may be closed, in the process that opened it.
    ///
    /// # Errors
    /// [`PoolError::ForkedChild`].
    pub(super) fn owned(&self) -> Result<&Inner> {
        self.inner.0.owner.check()?;
        Ok(&self.inner.0)
    }

    /// The same in any process, for what neither takes a lock nor touches memory of the pool or a device.
    pub(super) fn anywhere(&self) -> &Inner {
        &self.inner.0
    }
}

impl Inner {
    fn ensure_open(&self) -> Result<()> {
        if self.closed.load(Acquire) { Err(PoolError::Closed) } else { Ok(()) }
    }

    /// The writing end of a controller's log. A pool that is being closed takes it before the devices are given up, so
    /// that whoever has it may write.
    pub(super) fn log(&self, controller: usize) -> Result<MutexGuard<'_, Log>> {
        let log = self.stores[controller].lock_log();
        self.ensure_open()?;
        self.cache.ensure_open()?;
        Ok(log)
    }

    /// The writing ends of all controllers, in their order.
    pub(super) fn logs(&self) -> Result<Vec<MutexGuard<'_, Log>>> {
        (0..self.stores.len()).map(|controller| self.log(controller)).collect()
    }

    /// Ends the threads and gives the devices away.
    fn end(&self) {
        self.closed.store(true, Release);
        self.cache.stop();
        for keeper in lock(&self.keepers).drain(..) {
            // Its panic was reported by the runtime already.
            let _ = keeper.join();
        }
        drop(lock(&self.handlers).take());
        self.stores.iter().for_each(|store| store.close_lines());
        // Whatever another handle has begun ends before the memory goes; later calls see that the
        // pool is closed.
        let logs: Vec<_> = self.stores.iter().map(|store| store.lock_log()).collect();
        self.cache.shut();
        drop(logs);
        // Somebody may hold on to `Words`; the devices are free all the same.
        self.stores.iter().for_each(|store| store.device().release());
    }
}

impl Pool {
    /// Syncs, frees temporary pages and closes the pool. Pointers into it are invalid afterwards,
    /// and calls through other handles give [`PoolError::Closed`].
    ///
    /// # Errors
    /// As [`Pool::sync`]; the pool is closed all the same, at its last token.
    /// [`PoolError::ForkedChild`]: it is as it was.
    pub fn close(self) -> Result<()> {
        let inner = self.owned()?;
        if inner.closing.swap(true, AcqRel) {
            return Ok(());
        }
        let result = self.finish();
        inner.end();
        result
    }

    /// Closes the pool as a crash would leave it: at its last token, with what was persisted since.
    ///
    /// # Errors
    /// [`PoolError::ForkedChild`]: it is as it was.
    pub fn abandon(self) -> Result<()> {
        let inner = self.owned()?;
        inner.closing.store(true, Release);
        inner.end();
        Ok(())
    }

    fn finish(&self) -> Result<()> {
        let inner = self.live()?;
        for (controller, store) in (0..).zip(&inner.stores) {
            for page in store.temporaries() {
                let addr = Addr::new(controller, page, 0)?;
                match self.free(addr, PAGE_BYTES) {
                    // By another thread, meanwhile.
                    Err(PoolError::NotAllocated { .. }) => {}
                    freed => freed?,
                }
            }
        }
        self.sync()?;
        for (controller, store) in inner.stores.iter().enumerate() {
            let mut log = inner.log(controller)?;
            store.close(&mut log)?;
        }
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Without `close` there is nobody to give an error to: the pool stays at its last token,
        // as after a crash.
        if !self.closing.swap(true, AcqRel) {
            self.end();
        }
    }
}
