//! A queue of what is to be done by whichever handler comes first.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

use rustix::event::{EventfdFlags, eventfd};

use crate::descriptors::raised;
use crate::lock::lock;

/// The queue.
pub(crate) struct Jobs<T> {
    queue: Mutex<VecDeque<T>>,
    /// Length of the queue.
    waiting: AtomicUsize,
    /// Readable while there are jobs.
    ready: OwnedFd,
}

impl<T> Jobs<T> {
    pub(crate) fn new() -> io::Result<Self> {
        let ready = raised(|| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK))?;
        Ok(Self { queue: Mutex::default(), waiting: AtomicUsize::new(0), ready })
    }

    /// Readable while there are jobs.
    pub(crate) fn ready(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<T>> {
        lock(&self.queue)
    }

    pub(crate) fn push(&self, jobs: impl Iterator<Item = T>) {
        let mut queue = self.lock();
        queue.extend(jobs);
        self.waiting.store(queue.len(), Relaxed);
        if !queue.is_empty() {
            // Fails only at 2^64 - 1 jobs.
            let _ = rustix::io::write(&self.ready, &1_u64.to_ne_bytes());
        }
    }

    pub(crate) fn pop(&self) -> Option<T> {
        if self.waiting.load(Relaxed) == 0 {
            return None;
        }
        let mut queue = self.lock();
        let job = queue.pop_front();
        self.waiting.store(queue.len(), Relaxed);
        if queue.is_empty() {
            // Not readable any more.
            let _ = rustix::io::read(&self.ready, &mut [0; 8]);
        }
        job
    }
}
