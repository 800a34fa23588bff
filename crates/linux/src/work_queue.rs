//! A queue of work items that any handler thread may take.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

use rustix::event::{EventfdFlags, eventfd};

use crate::descriptors::open_high;
use crate::lock::lock;

/// First-in, first-out queue with an eventfd that is readable while items are queued.
pub struct WorkQueue<T> {
    queue: Mutex<VecDeque<T>>,
    /// Length of the queue.
    waiting: AtomicUsize,
    /// Readable while the queue is not empty.
    ready: OwnedFd,
}

impl<T> WorkQueue<T> {
    /// An empty queue.
    ///
    /// # Errors
    /// The system refuses an eventfd.
    pub fn new() -> io::Result<Self> {
        let ready = open_high(|| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK))?;
        Ok(Self { queue: Mutex::default(), waiting: AtomicUsize::new(0), ready })
    }

    /// Descriptor that is readable while the queue is not empty.
    pub fn ready(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<T>> {
        lock(&self.queue)
    }

    /// Appends items.
    pub fn push(&self, items: impl Iterator<Item = T>) {
        let mut queue = self.lock();
        queue.extend(items);
        self.waiting.store(queue.len(), Relaxed);
        if !queue.is_empty() {
            // The write fails only at a count of 2^64 - 1.
            let _ = rustix::io::write(&self.ready, &1_u64.to_ne_bytes());
        }
    }

    /// Takes the oldest item.
    pub fn pop(&self) -> Option<T> {
        if self.waiting.load(Relaxed) == 0 {
            return None;
        }
        let mut queue = self.lock();
        let item = queue.pop_front();
        self.waiting.store(queue.len(), Relaxed);
        if queue.is_empty() {
            // Clears the eventfd: the queue is empty.
            let _ = rustix::io::read(&self.ready, &mut [0; 8]);
        }
        item
    }
}
