//! Finding the pages that a program has stored to since they were last flushed.
//!
//! Either the kernel's page table has the dirty bits (`deepram_linux::dirty`; a flush walks the page table of its range),
//! or every clean page is write-protected and a thread enters each page that faults in core's [`DirtyList`] (a flush
//! looks at the dirty pages only). `docs/adr/0036` compares them.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use deepram_core::persist::{DirtyList, DirtyRun, FlushId, Geometry, InFlight, KeepDirty, RangeFlush};
use deepram_linux::dirty::{DirtyError, DirtyPages};
use deepram_linux::flush::Method as FlushMethod;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::mapping::Mapping;
use crate::process::Owner;
use crate::region::WatchError;
use deepram_linux::lock::lock;
use deepram_linux::signals::spawn;
use deepram_linux::uffd::{Refusal, Uffd, WatchMode};
use deepram_pager::service::processors;

/// How long the handler looks for the next fault before it sleeps. A thread that stores to clean pages faults again soon,
/// and waking the processor of a sleeping handler takes longer than serving the fault.
const SPIN: Duration = Duration::from_micros(30);

/// The pages that stay dirty. A page fault takes 10 us, and 70 us where the handler's processor sleeps. A page that a
/// program stores to between all flushes costs the write-back of 64 lines in each, most of them clean: 0.13 us by the
/// instructions whose lines overlap, 2 us by the others. A page is cleared after about as many flushes as cost together as
/// much as a page fault.
fn keep_dirty(method: FlushMethod) -> KeepDirty {
    let flushes = match method {
        FlushMethod::Clflushopt | FlushMethod::Clwb => 1024,
        FlushMethod::Clflush | FlushMethod::NonTemporal => 48,
    };
    KeepDirty { pages: 4, flushes }
}

/// The tracker of one mapping.
pub(super) struct Tracker {
    base: usize,
    geometry: Geometry,
    source: Source,
    keep: KeepDirty,
    state: Mutex<State>,
    /// Becomes readable when the handler thread must end.
    stop: OwnedFd,
}

/// The home of the dirty bits.
enum Source {
    PageTable(DirtyPages),
    Faults(Uffd),
}

#[derive(Default)]
struct State {
    in_flight: InFlight,
    list: DirtyList,
    /// Room for the answer of the list.
    runs: Vec<DirtyRun>,
}

/// The thread that serves the faults of first stores. Dropping it ends the thread.
pub(super) struct FaultHandler {
    tracker: Arc<Tracker>,
    owner: Owner,
    thread: Option<JoinHandle<()>>,
}

impl Drop for FaultHandler {
    fn drop(&mut self) {
        if !self.owner.is_here() {
            // A forked child does not have the thread.
            std::mem::forget(self.thread.take());
            return;
        }
        // Writing to an eventfd with a zero count does not fail.
        let _ = rustix::io::write(&self.tracker.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // The runtime has already reported a panic of this thread.
            let _ = thread.join();
        }
    }
}

impl Tracker {
    /// Finds dirty pages by scans of the page table. All pages are clean.
    pub(super) fn by_scan(mapping: &Mapping, geometry: Geometry) -> Result<Arc<Self>, DirtyError> {
        let pages = DirtyPages::new()?;
        pages.watch(mapping.address()..mapping.address() + mapping.len())?;
        let stop = new_eventfd().map_err(DirtyError::Userfaultfd)?;
        Ok(Arc::new(Self::new(mapping, geometry, Source::PageTable(pages), KeepDirty::NONE, stop)))
    }

    /// Finds dirty pages by a list of page faults. All pages are clean. The memory must be that of a file in shared memory.
    pub(super) fn by_list(
        mapping: &Mapping,
        geometry: Geometry,
        method: FlushMethod,
    ) -> Result<(Arc<Self>, FaultHandler), WatchError> {
        let uffd = Uffd::new(WatchMode::All).map_err(|refusal| match refusal {
            Refusal::Unavailable(source) => WatchError::Unavailable { source },
            Refusal::Features => WatchError::Features { needed: "write protection (PAGEFAULT_FLAG_WP)" },
        })?;
        let failed = |what| move |source| WatchError::System { what, source };
        let (start, len) = (mapping.address(), mapping.len());
        uffd.register_protected(start, len)
            .map_err(failed("UFFDIO_REGISTER for shared memory (Linux 5.19)"))?;
        uffd.protect(start, len).map_err(failed("UFFDIO_WRITEPROTECT"))?;
        let stop = new_eventfd().map_err(failed("eventfd"))?;
        let tracker = Arc::new(Self::new(mapping, geometry, Source::Faults(uffd), keep_dirty(method), stop));
        let of_thread = Arc::clone(&tracker);
        let thread = spawn("deepram-dirty", Some(256 << 10), move || of_thread.serve_faults())
            .map_err(failed("starting the thread that serves page faults"))?;
        let owner = Owner::here().map_err(failed("madvise(MADV_WIPEONFORK)"))?;
        Ok((Arc::clone(&tracker), FaultHandler { tracker, owner, thread: Some(thread) }))
    }

    fn new(mapping: &Mapping, geometry: Geometry, source: Source, keep: KeepDirty, stop: OwnedFd) -> Self {
        Self { base: mapping.address(), geometry, source, keep, state: Mutex::default(), stop }
    }

    /// The name in reports.
    pub(super) fn name(&self) -> &'static str {
        match self.source {
            Source::PageTable(_) => "scan",
            Source::Faults(_) => "list",
        }
    }

    /// The addresses of pages that are numbered from the start of the mapping.
    fn addresses(&self, pages: &Range<u64>) -> Range<usize> {
        let at = |page: u64| self.base + (page * self.geometry.page_bytes()) as usize;
        at(pages.start)..at(pages.end)
    }

    /// Begins a flush.
    pub(super) fn begin(&self) -> FlushId {
        lock(&self.state).in_flight.begin()
    }

    /// Ends a flush that has cleared pages.
    pub(super) fn end(&self, id: FlushId) {
        lock(&self.state).in_flight.end(id);
    }

    /// Carries out [`FlushStep::Examine`](deepram_core::persist::FlushStep::Examine). Returns whether pages were cleared.
    pub(super) fn examine(
        &self,
        flush: &mut RangeFlush,
        id: FlushId,
        pages: Range<u64>,
        clear: bool,
    ) -> bool {
        let mut state = lock(&self.state);
        let State { in_flight, list, runs } = &mut *state;
        // Before the pages that this flush clears, which are its own.
        in_flight.among(id, pages.clone()).for_each(|run| flush.found_dirty(run));
        let mut cleared_any = false;
        match &self.source {
            Source::Faults(uffd) => {
                runs.clear();
                list.examine(pages, clear, self.keep, runs);
                for DirtyRun { pages, cleared } in runs.drain(..) {
                    if cleared {
                        let range = self.addresses(&pages);
                        match uffd.protect(range.start, range.len()) {
                            Ok(()) => {
                                in_flight.enter(id, pages.clone());
                                cleared_any = true;
                            }
                            // The pages are written back, and stay dirty.
                            Err(error) => {
                                tracing::warn!(%error, "pages of a memory controller stay dirty");
                                pages.clone().for_each(|page| list.enter(page));
                            }
                        }
                    }
                    flush.found_dirty(pages);
                }
            }
            Source::PageTable(dirty) => {
                let page = self.geometry.page_bytes() as usize;
                let mut found = |run: Range<usize>| {
                    let number = |address: usize| ((address - self.base) / page) as u64;
                    let run = number(run.start)..number(run.end);
                    if clear {
                        in_flight.enter(id, run.clone());
                        cleared_any = true;
                    }
                    flush.found_dirty(run);
                };
                if let Err(error) = dirty.examine(self.addresses(&pages), clear, &mut found) {
                    // Some of the pages may be cleared and not reported.
                    tracing::warn!(%error, "all pages of a flush count as dirty");
                    if clear {
                        in_flight.enter(id, pages.clone());
                        cleared_any = true;
                    }
                    flush.found_dirty(pages);
                }
            }
        }
        cleared_any
    }

    /// Watches pages again whose memory the kernel has replaced by holes, with which their protection is gone.
    pub(super) fn watch_again(&self, pages: &Range<u64>) -> io::Result<()> {
        let Source::Faults(uffd) = &self.source else { return Ok(()) };
        let _state = lock(&self.state);
        let range = self.addresses(pages);
        // A page that the list has stays there, although it is protected: the next flush that contains it looks at it.
        uffd.protect(range.start, range.len())
    }

    /// Serves page faults until the tracker's handler is dropped.
    fn serve_faults(&self) {
        let Source::Faults(uffd) = &self.source else { return };
        let fd = uffd.as_fd();
        // With one processor, the thread that would fault next waits for this one.
        let spin = if processors().len() > 1 { SPIN } else { Duration::ZERO };
        loop {
            let mut ready = [PollFd::new(&fd, PollFlags::IN), PollFd::new(&self.stop, PollFlags::IN)];
            // An interrupted wait finds nothing below.
            let _ = poll(&mut ready, None);
            if ready[1].revents().contains(PollFlags::IN) {
                return;
            }
            let mut last = Instant::now();
            while last.elapsed() <= spin {
                while let Ok(Some(fault)) = uffd.next_fault() {
                    self.serve(uffd, fault.address);
                    last = Instant::now();
                }
                std::hint::spin_loop();
            }
        }
    }

    /// Lets a thread store to the page of an address.
    fn serve(&self, uffd: &Uffd, address: usize) {
        let page = self.geometry.page_of((address - self.base) as u64);
        let range = self.addresses(&(page..page + 1));
        // Entering and unprotecting are one step for a flush, which would otherwise protect the page in between.
        let mut state = lock(&self.state);
        state.list.enter(page);
        if let Err(error) = uffd.unprotect(range.start, range.len()) {
            // The thread faults again.
            tracing::error!(%error, address, "a page of a memory controller stays write-protected");
            let _ = uffd.wake(range.start, range.len());
        }
    }
}

fn new_eventfd() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}
