//! Handles and the end of a pool. Every operation goes from its handle to the shared state through a check that the
//! pool is open and that this process opened it.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::{Arc, MutexGuard};

use deepram_core::Addr;
use deepram_core::units::PAGE_BYTES;

use super::{Inner, Pool};
use crate::error::{PoolError, Result};
use crate::store::Log;
use deepram_linux::lock::lock;

/// The state that all handles of a pool share.
pub(super) struct SharedInner(Arc<Inner>);

impl SharedInner {
    pub(super) fn new(inner: Inner) -> Self {
        Self(Arc::new(inner))
    }
}

impl Clone for SharedInner {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl Drop for SharedInner {
    fn drop(&mut self) {
        if !self.0.owner.is_here() {
            // A forked child has no threads to join, another thread of the parent may hold a lock, and the memory and
            // the devices belong to the parent. The additional reference keeps the state from ever being dropped.
            std::mem::forget(Arc::clone(&self.0));
        }
    }
}

impl Pool {
    /// Returns the state of an open pool. Every operation begins with this check.
    ///
    /// # Errors
    /// [`PoolError::ForkedChild`], [`PoolError::Closed`].
    pub(super) fn live(&self) -> Result<&Inner> {
        self.inner.0.owner.check()?;
        self.inner.0.ensure_open()?;
        Ok(&self.inner.0)
    }

    /// Checks that the pool is open, for objects that keep a handle.
    ///
    /// # Errors
    /// [`PoolError::ForkedChild`], [`PoolError::Closed`].
    pub(crate) fn ensure_live(&self) -> Result<()> {
        self.live().map(drop)
    }

    /// Returns the state of a pool that may be closed, in the process that opened it.
    ///
    /// # Errors
    /// [`PoolError::ForkedChild`].
    pub(super) fn owned(&self) -> Result<&Inner> {
        self.inner.0.owner.check()?;
        Ok(&self.inner.0)
    }

    /// Returns the state in any process. The caller must not take a lock, nor access memory of the pool or a device.
    pub(super) fn unchecked(&self) -> &Inner {
        &self.inner.0
    }
}

impl Inner {
    fn ensure_open(&self) -> Result<()> {
        if self.closed.load(Acquire) { Err(PoolError::Closed) } else { Ok(()) }
    }

    /// Locks the log of a controller for writing. A pool that is being closed takes this lock before it releases the
    /// devices, so the holder of the lock may write.
    pub(super) fn log(&self, controller: usize) -> Result<MutexGuard<'_, Log>> {
        let log = self.stores[controller].lock_log();
        self.ensure_open()?;
        self.cache.ensure_open()?;
        Ok(log)
    }

    /// Locks the logs of all controllers, in order of controllers.
    pub(super) fn logs(&self) -> Result<Vec<MutexGuard<'_, Log>>> {
        (0..self.stores.len()).map(|controller| self.log(controller)).collect()
    }

    /// Stops the threads and releases the devices.
    fn end(&self) {
        self.closed.store(true, Release);
        drop(lock(&self.listening).take());
        self.cache.stop();
        for background_thread in lock(&self.background_threads).drain(..) {
            // The runtime has already reported a panic of this thread.
            let _ = background_thread.join();
        }
        drop(lock(&self.handlers).take());
        self.stores.iter().for_each(|store| store.close_lines());
        // Operations that other handles have begun end before the mapping is closed; later calls find the pool
        // closed.
        let logs: Vec<_> = self.stores.iter().map(|store| store.lock_log()).collect();
        self.cache.close();
        drop(logs);
        // `Words` may still keep the memory mapped; the devices are released in any case.
        self.stores.iter().for_each(|store| store.device().release());
        self.memories.iter().for_each(|memory| memory.release());
    }
}

impl Pool {
    /// Syncs, frees temporary pages and closes the pool. Pointers into the pool are invalid afterwards, and calls
    /// through other handles return [`PoolError::Closed`].
    ///
    /// # Errors
    /// The errors of [`Pool::sync`]: the pool is then closed at its last token. After [`PoolError::ForkedChild`]
    /// nothing has changed.
    pub fn close(self) -> Result<()> {
        let inner = self.owned()?;
        if inner.closing.swap(true, AcqRel) {
            return Ok(());
        }
        let result = self.finish();
        inner.end();
        result
    }

    /// Closes the pool without a sync, as a crash would leave it: at its last token, with the bytes persisted since.
    ///
    /// # Errors
    /// After [`PoolError::ForkedChild`] nothing has changed.
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
                    // Another thread has freed the page.
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
        // A drop cannot return an error, so it does not sync: the pool stays at its last token, as after a crash.
        if !self.closing.swap(true, AcqRel) {
            self.end();
        }
    }
}
