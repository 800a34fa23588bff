//! The fault handler threads of the pager. Each takes faults as they arrive, starts the reads that they need, and
//! installs pages as reads complete; a handler does not wait for one read before it starts the next.
//!
//! On machines with few processors, each processor has a pinned handler: a fault is then served by the processor that
//! the faulting thread has just left. Waking another processor costs more than the device read on a virtual machine.
//! While reads are in flight, a handler polls for completions for a while before it sleeps; where other threads want
//! its processor, it sleeps at once.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, RwLockReadGuard, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use deepram_core::paging::Block;

use super::fatal::{call_failed, fatal};
use super::fault::{IncomingPage, TriggerPage};
use super::page_table::Trigger;
use super::read_requests::{CompletedRead, ReadRequests, RequestSlot};
use super::readahead_queue::ReadRequest;
use super::stats::add;
use super::{AddressSpace, Heuristic, Inner, PAGE};
use crate::event_loop::{self, FaultHandler, MAX_PINNED_HANDLERS};
use crate::handler_wakeup::{GroupHandle, HandlerGroup, HandlerPoll};
use deepram_linux::lock::lock;
use deepram_linux::message::ShownError;

/// Handlers for each processor where each handler reads synchronously.
const BLOCKING_HANDLERS: usize = 4;
/// Shortest time between two checks for faults while reads are in flight: the check takes a lock that faults need.
const POLL_INTERVAL: Duration = Duration::from_micros(4);
/// Faults taken before completed reads are handled.
const FAULTS_PER_TURN: usize = 16;

/// The handler threads.
pub(super) struct Handlers {
    threads: Vec<Option<JoinHandle<()>>>,
}

impl Handlers {
    pub(super) fn start(inner: &Arc<Inner>, begun: &mpsc::Sender<()>) -> io::Result<Self> {
        let processors = event_loop::processors();
        let ring = inner.options.io_uring;
        let multi_reads = ReadRequests::multi_reads(inner.dram.load(Relaxed));
        let first = ReadRequests::new(ring, multi_reads);
        let many = first.is_concurrent();
        let count = match inner.options.handlers {
            0 if many => processors.len().min(MAX_PINNED_HANDLERS),
            0 => (processors.len() * BLOCKING_HANDLERS).clamp(8, 32),
            count => count,
        };
        let each = many && count == processors.len();
        inner.buffers.store(count * ReadRequests::buffer_bytes(multi_reads), Relaxed);
        let all =
            std::iter::once(first).chain(std::iter::repeat_with(|| ReadRequests::new(ring, multi_reads)));
        let all: Vec<ReadRequests> = all.take(count).collect();
        let cpu = |n: usize| each.then(|| processors[n]);
        let polls = all.iter().enumerate().map(|(n, reads)| {
            let (requests, stop) = (inner.readahead_queue.ready(), inner.readahead_queue.stopped());
            Ok(HandlerPoll { poll: event_loop::create_poll(requests, stop, reads.as_fd())?, cpu: cpu(n) })
        });
        let polls = polls.collect::<io::Result<_>>()?;
        let on_failure =
            Box::new(|call, error: &_| fatal(format_args!("{call} failed ({})", ShownError(error))));
        let handler_group =
            HandlerGroup::new(polls, inner.read().uffd.as_fd(), inner.options.pin_lone_thread, on_failure)?;
        let rings = all.iter().filter_map(ReadRequests::as_fd).map(|ring| ring.as_raw_fd());
        lock(&inner.descriptors).extend(handler_group.descriptors().chain(rings));
        // The group is set once for each pager.
        let _ = inner.handler_group.set(handler_group);
        let mut threads = Vec::with_capacity(count);
        for (n, reads) in all.into_iter().enumerate() {
            let (own, begun) = (Arc::clone(inner), begun.clone());
            threads.push(inner.spawn(format!("deepram-page-{n}"), move || {
                let inner = own;
                let group = inner.group_handle(n);
                group.pin_handler();
                let mut handler = Handler::new(&inner, reads, group);
                signal_started(&begun);
                event_loop::run_handler(&mut handler);
            })?);
        }
        Ok(Self { threads })
    }

    pub(super) fn count(&self) -> usize {
        self.threads.len()
    }

    pub(super) fn join(self) {
        for thread in self.threads.into_iter().flatten() {
            // The runtime has reported a panic of the thread already.
            let _ = thread.join();
        }
    }
}

impl Inner {
    /// Access of handler `n` to the handler group, which exists from the start of the handlers on.
    pub(super) fn group_handle(&self, n: usize) -> GroupHandle<'_> {
        let Some(handler_group) = self.handler_group.get() else {
            unreachable!("the handler group is set before handlers start")
        };
        GroupHandle::new(handler_group, n)
    }
}

/// Signals that a thread of the pager has begun.
pub(super) fn signal_started(begun: &mpsc::Sender<()>) {
    // The receiver is gone if other threads could not be started.
    let _ = begun.send(());
}

/// A read in flight.
struct InFlightRead {
    /// Pages at neighbouring slots of the swap file.
    pages: Vec<IncomingPage>,
    cause: ReadCause,
}

/// Why pages are read.
enum ReadCause {
    /// A fault: its thread, the time it was taken, and its fault-around block.
    Fault(i32, Instant, Block),
    /// Readahead or fault-around.
    Readahead(Option<TriggerPage>),
}

/// One handler.
pub(super) struct Handler<'a> {
    inner: &'a Inner,
    group: GroupHandle<'a>,
    /// Held while reads are in flight.
    space: Option<RwLockReadGuard<'a, AddressSpace>>,
    reads: ReadRequests,
    in_flight: Vec<(RequestSlot, InFlightRead)>,
    /// Pages to read ahead of use that have no request slot yet; the first is at the end.
    pending: Vec<(Vec<IncomingPage>, Option<TriggerPage>)>,
    /// Time of the last check for faults and requests.
    last_poll: Instant,
}

impl<'a> Handler<'a> {
    pub(super) fn new(inner: &'a Inner, reads: ReadRequests, group: GroupHandle<'a>) -> Self {
        Self {
            inner,
            group,
            space: None,
            reads,
            in_flight: Vec::new(),
            pending: Vec::new(),
            last_poll: Instant::now(),
        }
    }

    /// Does all work that can be done without waiting. Returns whether there was any. Releases the address-space lock
    /// if nothing is in flight.
    pub(super) fn step(&mut self) -> bool {
        let mut busy = false;
        // New faults must not delay a thread that waits for the address-space lock exclusively.
        let quiet = self.inner.waiting_exclusive.load(Relaxed) > 0;
        if self.in_flight.is_empty() || (!quiet && self.last_poll.elapsed() >= POLL_INTERVAL) {
            self.last_poll = Instant::now();
            busy |= self.take_faults();
            busy |= self.take_requests();
        }
        self.reads.submit();
        while let Some(done) = self.reads.next() {
            self.finish_read(done);
            busy = true;
        }
        if self.in_flight.is_empty() && self.pending.is_empty() {
            self.space = None;
        }
        busy
    }

    fn take_faults(&mut self) -> bool {
        for taken in 0..FAULTS_PER_TURN {
            if !self.group.is_on_duty() {
                return taken > 0;
            }
            let Some(request) = self.reads.acquire(1, false) else { return true };
            let inner = self.inner;
            let space = self.space.get_or_insert_with(|| lock_shared(inner, &mut self.group));
            let next = space.uffd.next_fault().unwrap_or_else(|error| {
                self.group.report_failure("read of the userfaultfd", &error);
                None
            });
            let Some(fault) = next else {
                self.reads.release(request);
                return taken > 0;
            };
            let begun = Instant::now();
            // A thread that waits for a read is pinned while the read is in flight, other threads before they are
            // woken.
            let alone = self.group.note_fault(fault.thread);
            if alone && !self.group.has_pinned(fault.thread) && !inner.needs_read(space, fault) {
                self.group.pin(fault.thread);
            }
            let outcome = inner.begin_fault(space, fault);
            if let Some(window) = outcome.window {
                inner.queue_window_and_stage(space, window);
            }
            if let Some(incoming) = outcome.read {
                let (block, neighbours) = inner.fault_around_pages(space, incoming.page);
                self.start_read(
                    request,
                    InFlightRead {
                        pages: vec![incoming],
                        cause: ReadCause::Fault(fault.thread, begun, block),
                    },
                );
                self.enqueue(&neighbours, inner.choose_probe(&neighbours));
                if alone {
                    // The device works meanwhile.
                    self.reads.submit();
                    self.group.pin(fault.thread);
                }
            } else {
                self.reads.release(request);
                if !outcome.waits {
                    self.group.note_woken(Some(fault.thread));
                }
                inner.counters.count_latency(begun.elapsed());
            }
        }
        true
    }

    fn take_requests(&mut self) -> bool {
        let mut busy = false;
        loop {
            while let Some((pages, trigger_page)) = self.pending.pop() {
                let Some(request) = self.reads.acquire(pages.len(), true) else {
                    self.pending.push((pages, trigger_page));
                    return busy;
                };
                self.start_read(request, InFlightRead { pages, cause: ReadCause::Readahead(trigger_page) });
                busy = true;
            }
            let Some(queued) = self.inner.readahead_queue.pop() else { return busy };
            let inner = self.inner;
            let space = self.space.get_or_insert_with(|| lock_shared(inner, &mut self.group));
            let (pages, trigger_page) = match queued {
                ReadRequest::Window(window, which) => (
                    inner.claim_stored(space, which.map(|n| window.page(n))),
                    Some((window.first, Trigger::Window)),
                ),
                ReadRequest::Pages(pages) => (inner.claim_stored(space, pages.into_iter()), None),
            };
            self.enqueue(&pages, trigger_page);
        }
    }

    /// Adds pages to those that are read as request slots become free; neighbours in the swap file are read together.
    fn enqueue(&mut self, pages: &[IncomingPage], trigger_page: Option<TriggerPage>) {
        let follow = |a: &IncomingPage, b: &IncomingPage| {
            a.slot.file == b.slot.file && a.slot.number + 1 == b.slot.number
        };
        self.pending.extend(pages.chunk_by(follow).rev().map(|run| (run.to_vec(), trigger_page)));
    }

    fn start_read(&mut self, request: RequestSlot, read: InFlightRead) {
        let inner = self.inner;
        let space = self.space.get_or_insert_with(|| lock_shared(inner, &mut self.group));
        self.reads.start(&space.swap_file, read.pages[0].slot, request, read.pages.len());
        self.in_flight.push((request, read));
        inner.counters.read_begins();
    }

    /// Completes a read: installs its pages.
    fn finish_read(&mut self, CompletedRead { request, complete }: CompletedRead) {
        let Some(at) = self.in_flight.iter().position(|(of, _)| *of == request) else { return };
        let (_, InFlightRead { pages, cause }) = self.in_flight.swap_remove(at);
        let inner = self.inner;
        let space = self.space.get_or_insert_with(|| lock_shared(inner, &mut self.group));
        let bytes = self.reads.bytes(request, pages.len());
        inner.counters.read_ends();
        let read = if complete { Ok(()) } else { inner.retry_read(space, pages[0].slot, bytes) };
        add(&inner.counters.reads, 1);
        add(&inner.counters.bytes_read, bytes.len() as u64);
        match (read, cause) {
            (Ok(()), ReadCause::Fault(thread, begun, block)) => {
                let window = inner.finish_fault_read(space, pages[0], block, bytes);
                self.group.note_woken(Some(thread));
                self.group.note_read_time(begun.elapsed());
                if let Some(window) = window {
                    inner.queue_window_and_stage(space, window);
                }
                inner.counters.count_latency(begun.elapsed());
            }
            (Ok(()), ReadCause::Readahead(trigger_page)) => {
                if inner.install_readahead(space, &pages, bytes, trigger_page) {
                    self.group.note_woken(None);
                }
            }
            (Err(error), ReadCause::Fault(..)) => call_failed("pread", pages[0].page, PAGE, &error),
            // A thread that needs one of the pages reads it again, and gets the error then.
            (Err(_), ReadCause::Readahead(_)) => inner.cancel_reads(space, &pages),
        }
        self.reads.release(request);
    }
}

/// Takes the address-space lock shared. If it has to wait, it releases the pinned thread first: the holder of the lock
/// may be waiting for that.
fn lock_shared<'a>(inner: &'a Inner, group: &mut GroupHandle<'_>) -> RwLockReadGuard<'a, AddressSpace> {
    inner.space.try_read().unwrap_or_else(|_| {
        group.unpin();
        inner.read()
    })
}

impl<'a> FaultHandler<'a> for Handler<'a> {
    fn step(&mut self, _: bool) -> bool {
        self.step()
    }

    fn polls(&self) -> bool {
        !self.inner.options.off.contains(Heuristic::Polling)
    }

    fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    fn group(&mut self) -> &mut GroupHandle<'a> {
        &mut self.group
    }
}
