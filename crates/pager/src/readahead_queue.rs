//! Queue of the pages to read ahead of use. Any handler may take a request.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use deepram_core::paging::Window;
use rustix::event::{EventfdFlags, eventfd};

use super::BATCH;
use deepram_linux::descriptors::open_high;
use deepram_linux::work_queue::WorkQueue;

/// A request to read at most [`BATCH`] pages.
#[derive(Debug, Clone)]
pub(super) enum ReadRequest {
    /// A window, or a part of it: the window as it was opened, and the range of its page numbers.
    Window(Window, std::ops::Range<usize>),
    /// Pages by their addresses.
    Pages(Vec<usize>),
}

/// The queue, and the eventfd that stops the handlers.
pub(super) struct ReadaheadQueue {
    queue: WorkQueue<ReadRequest>,
    stop: OwnedFd,
}

impl ReadaheadQueue {
    pub(super) fn new() -> io::Result<Self> {
        let stop = open_high(|| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK))?;
        Ok(Self { queue: WorkQueue::new()?, stop })
    }

    /// Queues a window, in parts of at most [`BATCH`] pages.
    pub(super) fn window(&self, window: Window) {
        self.queue.push(window.parts(BATCH).map(|part| ReadRequest::Window(window, part)));
    }

    /// Queues these pages.
    pub(super) fn pages(&self, pages: &[usize]) {
        self.queue.push(pages.chunks(BATCH).map(|pages| ReadRequest::Pages(pages.to_vec())));
    }

    pub(super) fn pop(&self) -> Option<ReadRequest> {
        self.queue.pop()
    }

    pub(super) fn stop(&self) {
        // Eight bytes into an eventfd always fit.
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
    }

    /// Readable while requests are queued.
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
