//! Tracks flushes and durable writes, and the data that may not be durable after one of them has failed. Every flush
//! and durable write of a store passes through here.
//!
//! Linux reports a lost write once, to the first flush or durable write of the file; later ones succeed. A failure
//! therefore concerns everything written since the last flush, whichever thread gets the error: the blocks with such
//! data become suspect, and are rewritten before a commit relies on them ([`Store::note_failed_flushes`],
//! `checkpoint.rs`).

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError, RwLock};

use super::{Log, Result, Store};
use crate::error::PoolError;
use deepram_linux::lock::lock;

/// The flushes and durable writes of a device.
#[derive(Default)]
pub(super) struct FlushTracker {
    /// Locked for reading while a flush or durable write is in progress.
    under_way: RwLock<()>,
    /// Number of failures.
    failed: AtomicU64,
    /// Errno and kind of the last failure.
    last: Mutex<Option<(Option<i32>, io::ErrorKind)>>,
}

impl FlushTracker {
    /// Runs a flush or a durable write.
    ///
    /// # Errors
    /// The error of the operation, or that of another operation that ran at the same time: the kernel may have
    /// reported to the other one an error that concerns this one.
    fn run(&self, operation: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let under_way = self.under_way.read().unwrap_or_else(PoisonError::into_inner);
        let before = self.failed.load(SeqCst);
        operation().inspect_err(|error| {
            *lock(&self.last) = Some((error.raw_os_error(), error.kind()));
            self.failed.fetch_add(1, SeqCst);
        })?;
        drop(under_way);
        // Waits for the operations that were in progress when this one ended.
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
    /// Stops the store: nothing is written from now on, also by operations in progress, because the memory to be
    /// written is inaccessible.
    pub(crate) fn stop(&self, why: &str) {
        self.stopped.get_or_init(|| why.to_owned());
    }

    /// Checks that the store may write: it has not stopped, and no thread has panicked while it held one of its
    /// locks.
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

    /// Writes these bytes durably; earlier writes need not be durable.
    pub(super) fn write_durable(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.flushes.run(|| self.device.write_durable(offset, bytes))
    }

    /// Notes flushes and durable writes that have failed in any thread: data written since the last flush is suspect
    /// from now on, and only a checkpoint can go on.
    pub(super) fn note_failed_flushes(&self, log: &mut Log) {
        let failed = self.flushes.failed.load(SeqCst);
        if failed == log.failed_flushes {
            return;
        }
        log.failed_flushes = failed;
        log.broken = true;
        let mut doubtful = std::mem::take(&mut log.unflushed);
        log.suspect.append(&mut doubtful);
    }

    /// Makes all batches so far durable, if they are not yet.
    pub(crate) fn flush_log(&self, log: &mut Log) -> Result<()> {
        if log.flushed + 1 < log.seq { self.flush_device(log) } else { Ok(()) }
    }

    /// Makes all writes so far durable.
    ///
    /// # Errors
    /// The device's error, or that of an earlier flush or durable write that the log had not noted. Unflushed data is
    /// suspect then.
    pub(super) fn flush_device(&self, log: &mut Log) -> Result<()> {
        log.queue.drain();
        let known = log.failed_flushes;
        let flushed = self.flushes.run(|| self.device.flush());
        self.note_failed_flushes(log);
        flushed.map_err(|source| self.device_error("flushing", source))?;
        if log.failed_flushes != known {
            let operation = "flushing data that an earlier flush or durable write left in doubt";
            return Err(self.device_error(operation, self.flushes.last_failure()));
        }
        log.unflushed.clear();
        // A broken log must not claim that earlier batches are on flash.
        if !log.broken {
            log.flushed = log.seq - 1;
        }
        Ok(())
    }
}
