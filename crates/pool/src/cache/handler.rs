//! The handler threads, as event loops ([ADR 16](../../../../docs/adr/0016-event-loop-handlers.md)). A handler
//! takes page faults as they arrive, starts the reads that they need, and installs segments as reads complete. It
//! never waits for one read before it starts the next.
//!
//! On a machine with few processors there is one handler for each processor, bound to it, and all handlers sleep on
//! the userfaultfd: the one on the processor that the faulting thread has just left runs first. While reads are in
//! flight a handler polls for their completion (`event_loop.rs`). Where io_uring is unavailable there are more
//! handlers, and each reads one segment at a time.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::fault::FaultProgress;
use super::readahead::ReadaheadRun;
use super::threads::HandlerPlan;
use super::{AccessKind, Cache, Index, Permit};
use crate::buffer_pool::{BufferPool, ReadBuffer};
use crate::device::{CompletedRead, Device, ReadQueue};
use crate::error::Result;
use crate::store::{Fetched, SlotLocation};
use deepram_linux::buffer::AlignedBuf;
use deepram_pager::event_loop::FaultHandler;
use deepram_pager::handler_wakeup::GroupHandle;

/// Time between two polls of the userfaultfd while reads are in flight: a poll takes a lock that page faults need.
const POLL_PERIOD: Duration = Duration::from_micros(4);
/// Number of faults taken before the handler looks at completed reads.
const FAULTS_PER_PASS: usize = 16;

/// The read queue and the buffers of a handler.
pub(super) struct HandlerReads {
    pub(super) queue: ReadQueue,
    singles: BufferPool,
    runs: BufferPool,
    /// Segments in the longest run.
    run: usize,
    /// Number of faults taken in one pass.
    faults_per_pass: usize,
}

impl HandlerReads {
    pub(super) fn new(device: &Arc<dyn Device>, plan: &HandlerPlan) -> io::Result<Self> {
        let depth = (plan.singles + plan.runs()) as u16;
        let queue = ReadQueue::new(device, depth, plan.ring);
        Ok(Self {
            queue,
            singles: BufferPool::new(plan.singles, plan.segment)?,
            runs: BufferPool::new(plan.runs(), plan.run * plan.segment)?,
            run: plan.run,
            faults_per_pass: if plan.ring { FAULTS_PER_PASS } else { 1 },
        })
    }

    /// Returns a buffer for `segments` segments. Readahead gets a buffer only while enough of them are left for
    /// faults.
    fn slot(&mut self, segments: usize, ahead: bool) -> Option<ReadBuffer> {
        if segments > 1 {
            return self.runs.take_spare().or_else(|| self.runs.grow());
        }
        if ahead && self.singles.free() <= self.singles.capacity() / 3 {
            return None;
        }
        self.singles.take_spare().or_else(|| self.singles.grow())
    }

    fn give_back(&mut self, slot: ReadBuffer, segments: usize) {
        let slots = if segments > 1 { &mut self.runs } else { &mut self.singles };
        slots.give_back(slot);
    }
}

/// The purpose of a read in flight.
enum ReadPurpose {
    Fault(PendingFault),
    Readahead(ReadaheadRun),
}

/// A segment that a page fault waits for.
#[derive(Clone, Copy)]
struct PendingFault {
    index: Index,
    permit: Permit,
    /// The cache's generation when the slot of the segment was looked up.
    generation: u64,
    /// CRC of the segment's bytes.
    crc: u32,
    /// Time at which the handler took the fault.
    taken_at: Instant,
}

/// A handler.
pub(super) struct Handler<'a> {
    cache: &'a Cache,
    group: GroupHandle<'a>,
    reads: HandlerReads,
    /// The reads in flight, by request number.
    in_flight: Vec<Option<ReadPurpose>>,
    /// Readahead runs that have no buffer yet, in reverse order.
    queued_runs: Vec<ReadaheadRun>,
    /// Time of the last poll of the userfaultfd.
    last_poll: Instant,
    /// A segment of zeros.
    zeros: AlignedBuf,
}

impl<'a> Handler<'a> {
    pub(super) fn new(cache: &'a Cache, reads: HandlerReads, group: GroupHandle<'a>) -> Self {
        let zeros = AlignedBuf::zeroed(cache.segment_bytes());
        let (in_flight, queued_runs) = (Vec::new(), Vec::new());
        Self { cache, group, reads, in_flight, queued_runs, last_poll: Instant::now(), zeros }
    }

    fn take_faults(&mut self) -> bool {
        for taken in 0..self.reads.faults_per_pass {
            if !self.group.is_on_duty() {
                return taken > 0;
            }
            let Some(slot) = self.reads.slot(1, false) else { return taken > 0 };
            let next = self.cache.region.next_fault().unwrap_or_else(|error| {
                self.group.report_failure("read of the userfaultfd", &error);
                None
            });
            let Some((offset, fault)) = next else {
                self.reads.give_back(slot, 1);
                return taken > 0;
            };
            let index = (offset / self.cache.segment_bytes()) as Index;
            let access = if fault.write { AccessKind::Write } else { AccessKind::Read };
            let permit = self.cache.permit(access);
            // A faulting thread is moved to this processor while its read is in flight, or, if no read is needed,
            // before it is woken.
            let alone = self.group.note_fault(fault.thread);
            if alone && !self.group.has_pinned(fault.thread) && self.cache.is_resident(index) {
                self.group.pin(fault.thread);
            }
            let begun = match self.cache.begin_fault(index, permit) {
                Ok((begun, window)) => {
                    if let Some(window) = window {
                        self.cache.queue_window(window);
                    }
                    begun
                }
                Err(error) => {
                    self.cache.fail_fault(index, error);
                    FaultProgress::Served
                }
            };
            match begun {
                FaultProgress::Read(generation) => {
                    let loading =
                        PendingFault { index, permit, generation, crc: 0, taken_at: Instant::now() };
                    self.read(loading, slot);
                    if alone {
                        // The thread is moved while the device reads.
                        self.reads.queue.submit();
                        self.group.pin(fault.thread);
                    }
                }
                FaultProgress::Served => self.reads.give_back(slot, 1),
                FaultProgress::Deferred => {
                    self.reads.give_back(slot, 1);
                    self.cache.deferred_faults.push(index, access);
                }
            }
        }
        true
    }

    fn start_readahead(&mut self, stopping: bool) -> bool {
        let mut busy = false;
        loop {
            while let Some(run) = self.queued_runs.pop() {
                let Some(mut slot) = self.reads.slot(run.segments.len(), true) else {
                    self.queued_runs.push(run);
                    return busy;
                };
                slot.shorten(run.segments.len() * self.cache.segment_bytes());
                let first = run.segments[0];
                self.start(first.index, first.slot, slot, ReadPurpose::Readahead(run));
                busy = true;
            }
            let Some(job) = self.cache.readahead_jobs.pop().filter(|_| !stopping) else { return busy };
            self.queued_runs = self.cache.begin_readahead(job, self.reads.run);
            self.queued_runs.reverse();
        }
    }

    fn start(&mut self, index: Index, at: u64, slot: ReadBuffer, purpose: ReadPurpose) {
        // The queue has a request for each buffer.
        let Some(request) = self.reads.queue.request() else { unreachable!("one request for each buffer") };
        if self.in_flight.len() <= request {
            self.in_flight.resize_with(request + 1, || None);
        }
        self.in_flight[request] = Some(purpose);
        let (store, ..) = self.cache.store_of(index);
        self.reads.queue.start(request, store.device(), store.geometry().offset(at), slot);
    }

    /// Starts the read that a fault waits for.
    fn read(&mut self, mut fault: PendingFault, slot: ReadBuffer) {
        let (store, page, segment) = self.cache.store_of(fault.index);
        loop {
            let fetched = match store.locate_slot(page, segment) {
                Ok(SlotLocation::Slot { slot: at, crc }) => {
                    fault.crc = crc;
                    return self.start(fault.index, at, slot, ReadPurpose::Fault(fault));
                }
                Ok(SlotLocation::Unwritten) => Ok(Fetched::Zero),
                Err(error) => Err(error),
            };
            match self.finish(fault, &slot, fetched) {
                None => return self.reads.give_back(slot, 1),
                Some(generation) => fault.generation = generation,
            }
        }
    }

    /// Handles a completed read: installs its bytes.
    fn complete_read(&mut self, ended: CompletedRead) {
        let CompletedRead { request, mut slot, result } = ended;
        match self.in_flight[request].take() {
            Some(ReadPurpose::Fault(mut fault)) => {
                let (store, page, segment) = self.cache.store_of(fault.index);
                let fetched = store.verify_read(page, segment, fault.crc, result, slot.bytes_mut());
                match self.finish(fault, &slot, fetched) {
                    None => {
                        self.group.note_read_time(fault.taken_at.elapsed());
                        self.reads.give_back(slot, 1);
                    }
                    Some(generation) => {
                        fault.generation = generation;
                        self.read(fault, slot);
                    }
                }
            }
            Some(ReadPurpose::Readahead(run)) => {
                self.cache.finish_readahead(&run, result, slot.bytes_mut());
                self.reads.give_back(slot, run.segments.len());
            }
            None => unreachable!("a completed read that was never started"),
        }
    }

    /// Ends a fill with the result of the read. If contents have changed during the read, returns the current
    /// generation, and the segment must be read again.
    fn finish(&self, fault: PendingFault, slot: &ReadBuffer, fetched: Result<Fetched>) -> Option<u64> {
        let cache = self.cache;
        let mut state = cache.lock();
        let confirmed = cache.revalidate(&state, fault.index, fault.permit);
        if confirmed.is_ok() && state.generation != fault.generation {
            return Some(state.generation);
        }
        let access = fault.permit.access;
        let ended = match confirmed.and(fetched) {
            Ok(Fetched::Data) => cache.end_fill(&mut state, fault.index, access, slot.bytes()),
            Ok(Fetched::Zero) => cache.end_fill(&mut state, fault.index, access, &self.zeros),
            Err(error) => {
                cache.fail_fill(&mut state, fault.index, access);
                Err(error)
            }
        };
        drop(state);
        if let Err(error) = ended {
            cache.fail_fault(fault.index, error);
        }
        None
    }
}

impl<'a> FaultHandler<'a> for Handler<'a> {
    fn group(&mut self) -> &mut GroupHandle<'a> {
        &mut self.group
    }

    fn is_idle(&self) -> bool {
        self.queued_runs.is_empty() && self.reads.queue.is_idle()
    }

    fn step(&mut self, stopping: bool) -> bool {
        let mut busy = false;
        if self.is_idle() || self.last_poll.elapsed() >= POLL_PERIOD {
            self.last_poll = Instant::now();
            busy |= !stopping && self.take_faults();
            busy |= self.start_readahead(stopping);
        }
        while let Some(ended) = self.reads.queue.poll() {
            self.complete_read(ended);
            busy = true;
        }
        busy
    }
}
