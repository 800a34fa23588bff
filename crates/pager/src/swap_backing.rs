//! Paged memory with a swap file behind it, as the fault service drives it.

use std::io;
use std::os::fd::RawFd;
use std::sync::RwLockReadGuard;
use std::sync::atomic::Ordering::Relaxed;

use deepram_core::paging::Block;
use deepram_linux::uffd::Fault;
use deepram_linux::work_queue::WorkQueue;

use super::fatal::call_failed;
use super::fault::IncomingPage;
use super::readahead_queue::ReadRequest;
use super::service::{Backing, FaultProgress, GroupHandle, Histograms, Trigger, TriggerPage};
use super::stats::add;
use super::{AddressSpace, Heuristic, Inner, PAGE};

impl Backing for Inner {
    type Session<'a> = RwLockReadGuard<'a, AddressSpace>;
    type Page = IncomingPage;
    /// The block of pages that is read with the missed page.
    type Fault = Block;
    type Request = ReadRequest;

    /// Takes the address-space lock shared. If it has to wait, it releases the pinned thread first: the holder of the
    /// lock may be waiting for that.
    fn session<'a>(&'a self, group: &mut GroupHandle<'_>) -> RwLockReadGuard<'a, AddressSpace> {
        self.space.try_read().unwrap_or_else(|_| {
            group.unpin();
            self.read()
        })
    }

    fn is_quiet(&self) -> bool {
        self.waiting_exclusive.load(Relaxed) > 0
    }

    fn next_fault(&self, space: &Self::Session<'_>) -> io::Result<Option<Fault>> {
        space.uffd.next_fault()
    }

    fn needs_read(&self, space: &Self::Session<'_>, fault: Fault) -> bool {
        self.is_stored(space, fault)
    }

    fn begin_fault(&self, space: &Self::Session<'_>, fault: Fault) -> FaultProgress<IncomingPage, Block> {
        let outcome = self.serve_fault(space, fault);
        if let Some(window) = outcome.window {
            self.queue_window_and_stage(space, window);
        }
        match outcome.read {
            Some(page) if self.install_from_parent(space, page) => FaultProgress::Served,
            Some(page) => {
                let (block, neighbours) = self.fault_around_pages(space, page.page);
                let neighbours = self.install_ahead_from_parent(space, neighbours, None);
                let probe = self.choose_probe(&neighbours);
                FaultProgress::Read { page, fault: block, neighbours, probe }
            }
            None if outcome.waits => FaultProgress::Waits,
            None => FaultProgress::Served,
        }
    }

    fn finish_fault(
        &self,
        space: &Self::Session<'_>,
        page: IncomingPage,
        block: Block,
        read: io::Result<()>,
        bytes: &mut [u8],
    ) -> Option<(IncomingPage, Block)> {
        if let Err(error) = self.finish_read(space, page, read, bytes) {
            call_failed("pread", page.page, PAGE, &error);
        }
        self.finish_fault_read(space, page, block, bytes);
        None
    }

    fn requests(&self) -> &WorkQueue<ReadRequest> {
        &self.readahead_queue
    }

    fn begin_request(
        &self,
        space: &Self::Session<'_>,
        request: ReadRequest,
    ) -> (Vec<IncomingPage>, Option<TriggerPage>) {
        let (pages, trigger) = match request {
            ReadRequest::Window(window, which) => (
                self.claim_stored(space, which.map(|n| window.page(n))),
                Some((window.first, Trigger::Window)),
            ),
            ReadRequest::Pages(pages) => (self.claim_stored(space, pages.into_iter()), None),
        };
        (self.install_ahead_from_parent(space, pages, trigger), trigger)
    }

    fn finish_request(
        &self,
        space: &Self::Session<'_>,
        pages: &[IncomingPage],
        trigger: Option<TriggerPage>,
        read: io::Result<()>,
        bytes: &mut [u8],
    ) -> bool {
        if self.finish_read(space, pages[0], read, bytes).is_err() {
            self.cancel_reads(space, pages);
            return false;
        }
        self.install_readahead(space, pages, bytes, trigger)
    }

    fn are_adjacent(&self, first: &IncomingPage, second: &IncomingPage) -> bool {
        first.slot.file == second.slot.file && first.slot.number + 1 == second.slot.number
    }

    fn location(&self, space: &Self::Session<'_>, page: &IncomingPage) -> Option<(RawFd, u64)> {
        Some(space.swap_file.location(page.slot))
    }

    fn read(&self, space: &Self::Session<'_>, page: &IncomingPage, to: &mut [u8]) -> io::Result<()> {
        space.swap_file.read(page.slot, to)
    }

    fn histograms(&self) -> &Histograms {
        &self.counters.histograms
    }

    fn polls(&self) -> bool {
        !self.options.off.contains(Heuristic::Polling)
    }
}

impl Inner {
    /// Counts a read, and repeats it synchronously if it failed.
    fn finish_read(
        &self,
        space: &AddressSpace,
        first: IncomingPage,
        read: io::Result<()>,
        bytes: &mut [u8],
    ) -> io::Result<()> {
        add(&self.counters.reads, 1);
        add(&self.counters.bytes_read, bytes.len() as u64);
        read.or_else(|_| self.retry_read(space, first.slot, bytes))
    }
}
