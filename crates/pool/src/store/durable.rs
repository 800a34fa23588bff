//! Flushes and durable writes: every one of a store goes through here, and so does what one that failed
//! leaves in doubt.
//!
//! A kernel reports a write that it lost once, to whichever flush or durable write of the file comes
//! first; later ones succeed. So a failure concerns everything written since the last flush, whoever meets
//! it: the blocks with such data become suspect, and are written anew before a commit counts on them
//! ([`Store::heed_failures`], `checkpoint.rs`).

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError, RwLock};

use super::{Log, Result, Store};
use crate::error::PoolError;
use crate::lock::lock;

/// The flushes and durable writes of a device.
#[derive(Default)]
pub(super) struct Flushes {
    /// Held for reading while one is under way.
    under_way: RwLock<()>,
    /// How many have failed.
    failed: AtomicU64,
    /// Errno and kind of the last of them.
    last: Mutex<Option<(Option<i32>, io::ErrorKind)>>,
}

impl Flushes {
    /// Runs a flush or a durable write.
    ///
    /// # Errors
    /// Its own, and that of another one that ran at the same time: the kernel may have reported to that one
    /// what this one had to be told.
    fn run(&self, operation: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let under_way = self.under_way.read().unwrap_or_else(PoisonError::into_inner);
        let before = self.failed.load(SeqCst);
        operation().inspect_err(|error| {
            *lock(&self.last) = Some((error.raw_os_error(), error.kind()));
            self.failed.fetch_add(1, SeqCst);
        })?;
        drop(under_way);
        // Waits for those that were under way when this one ended.
        drop(self.under_way.write().unwrap_or_else(PoisonError::into_inner));
        if self.failed.load(SeqCst) == before { Ok(()) } else { Err(self.last_failure()) }
    }

    fn last_failure(&self) -> io::Error {
        match *lock(&self.last) {
            Some((Some(errno), _)) => io::Error::from_raw_os_error(errno),
            Some((None, kind)) => kind.into(),
            None => io::Error::other("another flush of the device failed"),
        }
    }
}

impl Store {
    /// Nothing is written from now on, also not by who has begun: the memory that it would be copied from cannot be had.
    pub(crate) fn stop(&self, why: &str) {
        self.stopped.get_or_init(|| why.to_owned());
    }

    /// An error once the store is stopped, or a panic has left what one of its locks protects: nothing may be written from that.
    ///
    /// # Errors
    /// [`PoolError::Stopped`].
    pub(crate) fn ensure_sound(&self) -> Result<()> {
        if let Some(why) = self.stopped.get() {
            return Err(PoolError::Stopped { why: why.clone() });
        }
        if self.log.is_poisoned() || self.tables.is_poisoned() || self.lines.is_poisoned() {
            let why =
                format!("a thread panicked while it changed the tables or logs of {}", self.device.name());
            return Err(PoolError::Stopped { why });
        }
        Ok(())
    }

    /// Writes these bytes durably; says nothing about others.
    pub(super) fn write_durable(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.flushes.run(|| self.device.write_durable(offset, bytes))
    }

    /// Takes note of flushes and durable writes that have failed, in this thread or another: what was
    /// written since the last flush is suspect from now on, and only a checkpoint can go on.
    pub(super) fn heed_failures(&self, log: &mut Log) {
        let failed = self.flushes.failed.load(SeqCst);
        if failed == log.failed_flushes {
            return;
        }
        log.failed_flushes = failed;
        log.broken = true;
        let mut doubtful = std::mem::take(&mut log.unflushed);
        log.suspect.append(&mut doubtful);
    }

    /// Makes everything written so far durable, if it is not yet.
    pub(crate) fn flush_log(&self, log: &mut Log) -> Result<()> {
        if log.flushed + 1 < log.seq { self.flush_device(log) } else { Ok(()) }
    }

    /// Makes everything written so far durable.
    ///
    /// # Errors
    /// The device's, also that of an earlier flush or durable write of which the log did not know. What
    /// was not flushed is suspect then.
    pub(super) fn flush_device(&self, log: &mut Log) -> Result<()> {
        log.queue.drain();
        let known = log.failed_flushes;
        let flushed = self.flushes.run(|| self.device.flush());
        self.heed_failures(log);
        flushed.map_err(|source| self.device_error("flushing", source))?;
        if log.failed_flushes != known {
            let operation = "flushing what an earlier flush or durable write left in doubt";
            return Err(self.device_error(operation, self.flushes.last_failure()));
        }
        log.unflushed.clear();
        // Of a broken log no batch may say that those before it are on flash.
        if !log.broken {
            log.flushed = log.seq - 1;
        }
        Ok(())
    }
}
