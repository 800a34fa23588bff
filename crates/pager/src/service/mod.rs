//! The fault service: the handler threads that serve the page faults of a memory, once for every [`Backing`] behind it.
//!
//! A handler is an event loop ([ADR 16](../../../../docs/adr/0016-event-loop-handlers.md)). It takes faults as they
//! arrive, starts the reads that they need, and has pages installed as reads complete; it never waits for one read
//! before it starts the next. Requests to read pages ahead of use wait in a queue, from which any handler takes them.
//!
//! On a machine with few processors there is one handler for each processor, pinned to it, and all sleep on the
//! userfaultfd: the handler on the processor that the faulting thread has just left runs first. Waking another
//! processor costs more than the device read on a virtual machine. While reads are in flight, a handler polls for their
//! completion for a while before it sleeps (`event_loop.rs`). Where io_uring is unavailable there are more handlers, and
//! each reads synchronously.
//!
//! Two backings exist: the swap file of `deepram run` (`crate::swap_backing`), and the pool's journaled store
//! (`deepram_pool`, `cache/backing.rs`).

mod colocation;
mod event_loop;
mod handler;
mod handler_wakeup;
mod histograms;
mod pinned_thread;
mod read_requests;
mod threads;

use std::io;
use std::os::fd::RawFd;

use deepram_linux::uffd::Fault;
use deepram_linux::work_queue::WorkQueue;

pub use deepram_core::paging::{BATCH, ReadPlan, Trigger};
pub use event_loop::processors;
pub use handler_wakeup::{GroupHandle, HandlerGroup, OnFailure, PinningSuspended, SharedProcessor};
pub use histograms::{HistogramReading, Histograms};
pub use threads::{HandlerPlan, Handlers, PreparedHandlers};

pub(crate) use handler::Handler;
pub(crate) use read_requests::ReadRequests;
#[cfg(test)]
pub(crate) use {event_loop::MAX_PINNED_HANDLERS, event_loop::pin_to_cpu};

/// The page among those read ahead whose first use is to be seen, by its address, and the reason.
pub type TriggerPage = (usize, Trigger);

/// Progress of a fault.
pub enum FaultProgress<P, F> {
    /// The faulting thread runs again.
    Served,
    /// The thread waits for something else than a read of this handler: the page is on its way already, is leaving, or
    /// another thread serves the fault.
    Waits,
    /// The page has to be read first.
    Read {
        /// The page.
        page: P,
        /// What [`Backing::finish_fault`] needs to know.
        fault: F,
        /// Other pages to read with it, sorted by address, and the probe among them.
        neighbours: Vec<P>,
        /// The probe among the neighbours.
        probe: Option<TriggerPage>,
    },
}

/// Pages of a memory with a store behind them, as the handlers drive them. The backing keeps the states of the pages and
/// calls core's `paging` for every decision; the handlers keep the reads in flight.
pub trait Backing: Send + Sync + 'static {
    /// What a handler holds while it has faults or reads at hand: it keeps the memory mapped.
    type Session<'a>;
    /// A page that is being read, with its place in the store. Its state says that it is on its way.
    type Page: Copy;
    /// What a fault is remembered by until its page has been read.
    type Fault;
    /// A request to read pages ahead of use.
    type Request: Send;

    /// Begins a session; releases the pinned thread first if it has to wait.
    fn session<'a>(&'a self, group: &mut GroupHandle<'_>) -> Self::Session<'a>;

    /// Whether a thread waits until no session is held: handlers then finish their reads before they take new faults.
    fn is_quiet(&self) -> bool {
        false
    }

    /// The next fault, if one waits.
    ///
    /// # Errors
    /// The kernel's error.
    fn next_fault(&self, session: &Self::Session<'_>) -> io::Result<Option<Fault>>;

    /// Whether a fault has to wait for a read, as far as can be seen before it is served.
    fn needs_read(&self, session: &Self::Session<'_>, fault: Fault) -> bool;

    /// Serves a fault as far as possible without waiting.
    fn begin_fault(
        &self,
        session: &Self::Session<'_>,
        fault: Fault,
    ) -> FaultProgress<Self::Page, Self::Fault>;

    /// Installs the page that a fault waits for, or lets the fault fail. Returns the page if it has to be read again,
    /// because its contents changed during the read.
    fn finish_fault(
        &self,
        session: &Self::Session<'_>,
        page: Self::Page,
        fault: Self::Fault,
        read: io::Result<()>,
        bytes: &mut [u8],
    ) -> Option<(Self::Page, Self::Fault)>;

    /// The queue of requests to read ahead.
    fn requests(&self) -> &WorkQueue<Self::Request>;

    /// Claims the pages of a request that are to be read, sorted by their address, and the trigger among them.
    fn begin_request(
        &self,
        session: &Self::Session<'_>,
        request: Self::Request,
    ) -> (Vec<Self::Page>, Option<TriggerPage>);

    /// Installs pages that were read ahead with one read, or cancels them if it failed: a thread that needs one of them
    /// reads it again, and gets the error then. Returns whether a thread waited for one of them.
    fn finish_request(
        &self,
        session: &Self::Session<'_>,
        pages: &[Self::Page],
        trigger: Option<TriggerPage>,
        read: io::Result<()>,
        bytes: &mut [u8],
    ) -> bool;

    /// Whether two pages can be read with one read, the second right after the first.
    fn are_adjacent(&self, first: &Self::Page, second: &Self::Page) -> bool;

    /// The page's place in the store: descriptor and offset in bytes. `None` where it is not in a file.
    fn location(&self, session: &Self::Session<'_>, page: &Self::Page) -> Option<(RawFd, u64)>;

    /// Reads pages from this one on, synchronously.
    ///
    /// # Errors
    /// The device's error.
    fn read(&self, session: &Self::Session<'_>, page: &Self::Page, to: &mut [u8]) -> io::Result<()>;

    /// Where fault latencies and queue depths are counted.
    fn histograms(&self) -> &Histograms;

    /// Whether a handler polls for completed reads before it sleeps.
    fn polls(&self) -> bool {
        true
    }
}
