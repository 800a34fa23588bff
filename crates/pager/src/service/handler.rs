//! One handler of the fault service.

use std::time::{Duration, Instant};

use super::read_requests::{CompletedRead, ReadRequests, RequestSlot};
use super::{Backing, FaultProgress, GroupHandle, TriggerPage};

/// Shortest time between two checks for faults while reads are in flight: the check takes a lock that faults need.
const POLL_INTERVAL: Duration = Duration::from_micros(4);
/// Faults taken before completed reads are handled.
const FAULTS_PER_TURN: usize = 16;

/// A read in flight.
struct InFlightRead<B: Backing> {
    /// Pages at neighbouring places of the store.
    pages: Vec<B::Page>,
    cause: ReadCause<B>,
}

/// Why pages are read.
enum ReadCause<B: Backing> {
    Fault {
        thread: i32,
        taken_at: Instant,
        fault: B::Fault,
    },
    /// Readahead or fault-around.
    Ahead(Option<TriggerPage>),
}

/// One handler.
pub(crate) struct Handler<'a, B: Backing> {
    backing: &'a B,
    pub(super) group: GroupHandle<'a>,
    /// Held while reads are in flight.
    session: Option<B::Session<'a>>,
    reads: ReadRequests,
    in_flight: Vec<(RequestSlot, InFlightRead<B>)>,
    /// Runs of pages to read ahead that have no request slot yet; the first is at the end.
    pending: Vec<(Vec<B::Page>, Option<TriggerPage>)>,
    /// Time of the last check for faults and requests.
    last_poll: Instant,
}

/// Begins a session if there is none. A function of its own, so that other fields stay free for use.
fn hold<'s, 'a, B: Backing>(
    backing: &'a B,
    session: &'s mut Option<B::Session<'a>>,
    group: &mut GroupHandle<'a>,
) -> &'s B::Session<'a> {
    session.get_or_insert_with(|| backing.session(group))
}

impl<'a, B: Backing> Handler<'a, B> {
    pub(crate) fn new(backing: &'a B, reads: ReadRequests, group: GroupHandle<'a>) -> Self {
        let (in_flight, pending) = (Vec::new(), Vec::new());
        Self { backing, group, session: None, reads, in_flight, pending, last_poll: Instant::now() }
    }

    /// Whether nothing is in flight or pending.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && self.pending.is_empty()
    }

    /// Whether it polls for completed reads before it sleeps.
    pub(super) fn polls(&self) -> bool {
        self.backing.polls()
    }

    /// Does all work that can be done without waiting; no new work when `stopping`. Returns whether there was any. Ends
    /// the session if nothing is in flight.
    pub(crate) fn step(&mut self, stopping: bool) -> bool {
        let mut busy = false;
        // New faults must not delay a thread that waits for the end of all sessions.
        let quiet = self.backing.is_quiet();
        if self.in_flight.is_empty() || (!quiet && self.last_poll.elapsed() >= POLL_INTERVAL) {
            self.last_poll = Instant::now();
            busy |= !stopping && self.take_faults();
            busy |= self.take_requests(stopping);
        }
        self.reads.submit();
        while let Some(completed) = self.reads.next() {
            self.finish_read(completed);
            busy = true;
        }
        if self.is_idle() {
            self.session = None;
        }
        busy
    }

    fn take_faults(&mut self) -> bool {
        let most = if self.reads.is_concurrent() { FAULTS_PER_TURN } else { 1 };
        for taken in 0..most {
            if !self.group.is_on_duty() {
                return taken > 0;
            }
            let Some(request) = self.reads.acquire(1, false) else { return true };
            let backing = self.backing;
            let session = hold(backing, &mut self.session, &mut self.group);
            let next = backing.next_fault(session).unwrap_or_else(|error| {
                self.group.report_failure("read of the userfaultfd", &error);
                None
            });
            let Some(fault) = next else {
                self.reads.release(request);
                return taken > 0;
            };
            let (taken_at, thread) = (Instant::now(), fault.thread);
            // A thread that waits for a read is pinned while the read is in flight, other threads before they are
            // woken.
            let pins = self.group.note_fault(thread, taken_at);
            if pins && !self.group.has_pinned(thread) && !backing.needs_read(session, fault) {
                self.group.pin(thread);
            }
            match backing.begin_fault(session, fault) {
                FaultProgress::Read { page, fault, neighbours, probe } => {
                    let cause = ReadCause::Fault { thread, taken_at, fault };
                    self.start_read(request, InFlightRead { pages: vec![page], cause });
                    self.enqueue(&neighbours, probe);
                    if pins {
                        // The device works meanwhile.
                        self.reads.submit();
                        self.group.pin(thread);
                    }
                }
                progress => {
                    self.reads.release(request);
                    if matches!(progress, FaultProgress::Served) {
                        self.group.note_woken(Some(thread));
                    }
                    backing.histograms().fault_served(taken_at.elapsed());
                }
            }
        }
        true
    }

    fn take_requests(&mut self, stopping: bool) -> bool {
        let mut busy = false;
        loop {
            while let Some((pages, trigger)) = self.pending.pop() {
                let Some(request) = self.reads.acquire(pages.len(), true) else {
                    self.pending.push((pages, trigger));
                    return busy;
                };
                self.start_read(request, InFlightRead { pages, cause: ReadCause::Ahead(trigger) });
                busy = true;
            }
            let backing = self.backing;
            let Some(request) = backing.requests().pop().filter(|_| !stopping) else { return busy };
            let session = hold(backing, &mut self.session, &mut self.group);
            let (pages, trigger) = backing.begin_request(session, request);
            self.enqueue(&pages, trigger);
        }
    }

    /// Adds pages to those that are read as request slots become free; neighbours in the store are read together.
    fn enqueue(&mut self, pages: &[B::Page], trigger: Option<TriggerPage>) {
        let most = self.reads.run_pages();
        let runs = pages.chunk_by(|a, b| self.backing.are_adjacent(a, b)).flat_map(|run| run.chunks(most));
        let first = self.pending.len();
        self.pending.extend(runs.map(|run| (run.to_vec(), trigger)));
        self.pending[first..].reverse();
    }

    fn start_read(&mut self, request: RequestSlot, read: InFlightRead<B>) {
        let backing = self.backing;
        let session = hold(backing, &mut self.session, &mut self.group);
        let (page, pages) = (&read.pages[0], read.pages.len());
        let location = backing.location(session, page);
        if !self.reads.start(request, pages, location) {
            let result = backing.read(session, page, self.reads.bytes(request, pages));
            self.reads.complete(request, result);
        }
        self.in_flight.push((request, read));
        backing.histograms().read_begins();
    }

    /// Completes a read: its pages are installed.
    fn finish_read(&mut self, CompletedRead { request, result }: CompletedRead) {
        let Some(at) = self.in_flight.iter().position(|(of, _)| *of == request) else { return };
        let (_, InFlightRead { pages, cause }) = self.in_flight.swap_remove(at);
        let backing = self.backing;
        let session = hold(backing, &mut self.session, &mut self.group);
        let bytes = self.reads.bytes(request, pages.len());
        backing.histograms().read_ends();
        // A plain read finishes a short one, and reports any error.
        let read =
            result.and_then(|whole| if whole { Ok(()) } else { backing.read(session, &pages[0], bytes) });
        match cause {
            ReadCause::Fault { thread, taken_at, fault } => {
                if let Some((page, fault)) = backing.finish_fault(session, pages[0], fault, read, bytes) {
                    let cause = ReadCause::Fault { thread, taken_at, fault };
                    return self.start_read(request, InFlightRead { pages: vec![page], cause });
                }
                self.group.note_woken(Some(thread));
                self.group.note_read_time(taken_at.elapsed());
                backing.histograms().fault_served(taken_at.elapsed());
            }
            ReadCause::Ahead(trigger) => {
                if backing.finish_request(session, &pages, trigger, read, bytes) {
                    self.group.note_woken(None);
                }
            }
        }
        self.reads.release(request);
    }
}
