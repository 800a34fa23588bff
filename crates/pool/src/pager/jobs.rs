//! What is to be read before it is used, for whichever handler comes first.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rustix::event::{EventfdFlags, eventfd};

use super::BATCH;
use super::ahead::Window;
use super::ranges::lock;

/// At most [`BATCH`] pages to be read.
#[derive(Debug, Clone)]
pub(super) enum Job {
    /// Those of a window, or of a piece of one: the window as it was opened, and which of its pages.
    Window(Window, std::ops::Range<usize>),
    /// These.
    Pages(Vec<usize>),
}

/// The queue.
pub(super) struct Jobs {
    queue: Mutex<VecDeque<Job>>,
    /// Length of the queue.
    waiting: AtomicUsize,
    /// Readable while there are jobs.
    ready: OwnedFd,
    stop: OwnedFd,
}

impl Jobs {
    pub(super) fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self {
            queue: Mutex::default(),
            waiting: AtomicUsize::new(0),
            ready: eventfd(0, flags)?,
            stop: eventfd(0, flags)?,
        })
    }

    fn push(&self, jobs: impl Iterator<Item = Job>) {
        let mut queue = lock(&self.queue);
        queue.extend(jobs);
        self.waiting.store(queue.len(), Relaxed);
        // Fails only at 2^64 - 1 jobs.
        let _ = rustix::io::write(&self.ready, &1_u64.to_ne_bytes());
    }

    /// Has a window read, in pieces.
    pub(super) fn window(&self, window: Window) {
        let starts = (0..window.count).step_by(BATCH);
        self.push(starts.map(|at| Job::Window(window, at..(at + BATCH).min(window.count))));
    }

    /// Has these pages read.
    pub(super) fn pages(&self, pages: &[usize]) {
        self.push(pages.chunks(BATCH).map(|pages| Job::Pages(pages.to_vec())));
    }

    pub(super) fn pop(&self) -> Option<Job> {
        if self.waiting.load(Relaxed) == 0 {
            return None;
        }
        let mut queue = lock(&self.queue);
        let job = queue.pop_front();
        self.waiting.store(queue.len(), Relaxed);
        if queue.is_empty() {
            // Not readable any more.
            let _ = rustix::io::read(&self.ready, &mut [0; 8]);
        }
        job
    }

    pub(super) fn stop(&self) {
        // Eight bytes into an eventfd always fit.
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
    }

    /// Readable while there are jobs.
    pub(super) fn ready(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    /// Readable when the pager stops.
    pub(super) fn stopped(&self) -> BorrowedFd<'_> {
        self.stop.as_fd()
    }

    pub(super) fn descriptors(&self) -> [i32; 2] {
        [self.ready.as_raw_fd(), self.stop.as_raw_fd()]
    }
}
