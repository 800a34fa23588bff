//! What is to be read before it is used, for whichever handler comes first.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

use super::BATCH;
use crate::ahead::Window;
use crate::descriptors::raised;
use crate::jobs;

/// At most [`BATCH`] pages to be read.
#[derive(Debug, Clone)]
pub(super) enum Job {
    /// Those of a window, or of a piece of one: the window as it was opened, and which of its pages.
    Window(Window, std::ops::Range<usize>),
    /// These.
    Pages(Vec<usize>),
}

/// The queue, and the end of it.
pub(super) struct Jobs {
    queue: jobs::Jobs<Job>,
    stop: OwnedFd,
}

impl Jobs {
    pub(super) fn new() -> io::Result<Self> {
        let stop = raised(|| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK))?;
        Ok(Self { queue: jobs::Jobs::new()?, stop })
    }

    /// Has a window read, in pieces.
    pub(super) fn window(&self, window: Window) {
        let starts = (0..window.count).step_by(BATCH);
        self.queue.push(starts.map(|at| Job::Window(window, at..(at + BATCH).min(window.count))));
    }

    /// Has these pages read.
    pub(super) fn pages(&self, pages: &[usize]) {
        self.queue.push(pages.chunks(BATCH).map(|pages| Job::Pages(pages.to_vec())));
    }

    pub(super) fn pop(&self) -> Option<Job> {
        self.queue.pop()
    }

    pub(super) fn stop(&self) {
        // Eight bytes into an eventfd always fit.
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
    }

    /// Readable while there are jobs.
    pub(super) fn ready(&self) -> BorrowedFd<'_> {
        self.queue.ready()
    }

    /// Readable when the pager stops.
    pub(super) fn stopped(&self) -> BorrowedFd<'_> {
        self.stop.as_fd()
    }

    pub(super) fn descriptors(&self) -> [i32; 2] {
        [self.queue.ready().as_raw_fd(), self.stop.as_raw_fd()]
    }
}
