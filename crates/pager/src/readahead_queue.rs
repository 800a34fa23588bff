//! Requests to read pages ahead of use, in the queue of the fault service.

use deepram_core::paging::Window;

use super::Inner;
use super::service::BATCH;

/// A request to read at most [`BATCH`] pages.
#[derive(Debug, Clone)]
pub(super) enum ReadRequest {
    /// A window, or a part of it: the window as it was opened, and the range of its page numbers.
    Window(Window, std::ops::Range<usize>),
    /// Pages by their addresses.
    Pages(Vec<usize>),
}

impl Inner {
    /// Queues a window, in parts of at most [`BATCH`] pages.
    pub(super) fn request_window(&self, window: Window) {
        self.readahead_queue.push(window.parts(BATCH).map(|part| ReadRequest::Window(window, part)));
    }

    /// Queues these pages.
    pub(super) fn request_pages(&self, pages: &[usize]) {
        self.readahead_queue.push(pages.chunks(BATCH).map(|pages| ReadRequest::Pages(pages.to_vec())));
    }
}
