//! The handler threads, as event loops ([ADR 16](../../../../docs/adr/0016-handlers-as-event-loops.md)). A handler
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

use super::ahead::Run;
use super::fault::Begun;
use super::threads::Plan;
use super::{Access, Cache, Index, Right};
use crate::buffer::AlignedBuf;
use crate::crew::Seat;
use crate::device::{Device, Ended, ReadQueue};
use crate::error::Result;
use crate::serving::Serve;
use crate::slots::{Slot, Slots};
use crate::store::{Fetched, Place};

/// Time between two polls of the userfaultfd while reads are in flight: a poll takes a lock that page faults need.
const PERIOD: Duration = Duration::from_micros(4);
/// Number of faults taken before the handler looks at completed reads.
const TAKEN: usize = 16;

/// The read queue and the buffers of a handler.
pub(super) struct Reads {
    pub(super) queue: ReadQueue,
    singles: Slots,
    runs: Slots,
    /// Segments in the longest run.
    run: usize,
    /// Number of faults taken in one pass.
    taken: usize,
}

impl Reads {
    pub(super) fn new(device: &Arc<dyn Device>, plan: &Plan) -> io::Result<Self> {
        let depth = (plan.singles + plan.runs()) as u16;
        let queue = ReadQueue::new(device, depth, plan.ring);
        Ok(Self {
            queue,
            singles: Slots::new(plan.singles, plan.segment)?,
            runs: Slots::new(plan.runs(), plan.run * plan.segment)?,
            run: plan.run,
            taken: if plan.ring { TAKEN } else { 1 },
        })
    }

    /// Returns a buffer for `segments` segments. Readahead gets a buffer only while enough of them are left for
    /// faults.
    fn slot(&mut self, segments: usize, ahead: bool) -> Option<Slot> {
        if segments > 1 {
            return self.runs.spare().or_else(|| self.runs.grow());
        }
        if ahead && self.singles.free() <= self.singles.most() / 3 {
            return None;
        }
        self.singles.spare().or_else(|| self.singles.grow())
    }

    fn give_back(&mut self, slot: Slot, segments: usize) {
        let slots = if segments > 1 { &mut self.runs } else { &mut self.singles };
        slots.give_back(slot);
    }
}

/// The purpose of a read in flight.
enum Flight {
    Fault(Fault),
    Ahead(Run),
}

/// A segment that a page fault waits for.
#[derive(Clone, Copy)]
struct Fault {
    index: Index,
    right: Right,
    /// The cache's generation when the slot of the segment was looked up.
    generation: u64,
    /// CRC of the segment's bytes.
    crc: u32,
    /// Time at which the handler took the fault.
    begun: Instant,
}

/// A handler.
pub(super) struct Handler<'a> {
    cache: &'a Cache,
    seat: Seat<'a>,
    reads: Reads,
    /// The reads in flight, by request number.
    flights: Vec<Option<Flight>>,
    /// Readahead runs that have no buffer yet, in reverse order.
    waiting: Vec<Run>,
    /// Time of the last poll of the userfaultfd.
    asked: Instant,
    /// A segment of zeros.
    zeros: AlignedBuf,
}

impl<'a> Handler<'a> {
    pub(super) fn new(cache: &'a Cache, reads: Reads, seat: Seat<'a>) -> Self {
        let zeros = AlignedBuf::zeroed(cache.segment_bytes());
        let (flights, waiting) = (Vec::new(), Vec::new());
        Self { cache, seat, reads, flights, waiting, asked: Instant::now(), zeros }
    }

    fn take_faults(&mut self) -> bool {
        for taken in 0..self.reads.taken {
            if !self.seat.is_on_duty() {
                return taken > 0;
            }
            let Some(slot) = self.reads.slot(1, false) else { return taken > 0 };
            let next = self.cache.region.next_fault().unwrap_or_else(|error| {
                self.seat.failed("read of the userfaultfd", &error);
                None
            });
            let Some((offset, fault)) = next else {
                self.reads.give_back(slot, 1);
                return taken > 0;
            };
            let index = (offset / self.cache.segment_bytes()) as Index;
            let access = if fault.write { Access::Write } else { Access::Read };
            let right = self.cache.right(access);
            // A faulting thread is moved to this processor while its read is in flight, or, if no read is needed,
            // before it is woken.
            let alone = self.seat.saw(fault.thread);
            if alone && !self.seat.keeps(fault.thread) && self.cache.is_resident(index) {
                self.seat.keep(fault.thread);
            }
            let begun = match self.cache.begin_fault(index, right) {
                Ok((begun, window)) => {
                    if let Some(window) = window {
                        self.cache.order(window);
                    }
                    begun
                }
                Err(error) => {
                    self.cache.refuse(index, error);
                    Begun::Served
                }
            };
            match begun {
                Begun::Read(generation) => {
                    let loading = Fault { index, right, generation, crc: 0, begun: Instant::now() };
                    self.read(loading, slot);
                    if alone {
                        // The thread is moved while the device reads.
                        self.reads.queue.submit();
                        self.seat.keep(fault.thread);
                    }
                }
                Begun::Served => self.reads.give_back(slot, 1),
                Begun::Later => {
                    self.reads.give_back(slot, 1);
                    self.cache.errands.push(index, access);
                }
            }
        }
        true
    }

    fn take_ahead(&mut self, stopping: bool) -> bool {
        let mut busy = false;
        loop {
            while let Some(run) = self.waiting.pop() {
                let Some(mut slot) = self.reads.slot(run.coming.len(), true) else {
                    self.waiting.push(run);
                    return busy;
                };
                slot.shorten(run.coming.len() * self.cache.segment_bytes());
                let first = run.coming[0];
                self.start(first.index, first.slot, slot, Flight::Ahead(run));
                busy = true;
            }
            let Some(piece) = self.cache.ahead.pop().filter(|_| !stopping) else { return busy };
            self.waiting = self.cache.begin_ahead(piece, self.reads.run);
            self.waiting.reverse();
        }
    }

    fn start(&mut self, index: Index, at: u64, slot: Slot, flight: Flight) {
        // The queue has a request for each buffer.
        let Some(berth) = self.reads.queue.berth() else { unreachable!("as many berths as slots") };
        if self.flights.len() <= berth {
            self.flights.resize_with(berth + 1, || None);
        }
        self.flights[berth] = Some(flight);
        let (store, ..) = self.cache.store_of(index);
        self.reads.queue.start(berth, store.device(), store.geometry().offset(at), slot);
    }

    /// Starts the read that a fault waits for.
    fn read(&mut self, mut fault: Fault, slot: Slot) {
        let (store, page, segment) = self.cache.store_of(fault.index);
        loop {
            let fetched = match store.place(page, segment) {
                Ok(Place::At { slot: at, crc }) => {
                    fault.crc = crc;
                    return self.start(fault.index, at, slot, Flight::Fault(fault));
                }
                Ok(Place::Nowhere) => Ok(Fetched::Zero),
                Err(error) => Err(error),
            };
            match self.finish(fault, &slot, fetched) {
                None => return self.reads.give_back(slot, 1),
                Some(generation) => fault.generation = generation,
            }
        }
    }

    /// Handles a completed read: installs its bytes.
    fn arrive(&mut self, ended: Ended) {
        let Ended { berth, mut slot, result } = ended;
        match self.flights[berth].take() {
            Some(Flight::Fault(mut fault)) => {
                let (store, page, segment) = self.cache.store_of(fault.index);
                let fetched = store.arrived(page, segment, fault.crc, result, slot.bytes_mut());
                match self.finish(fault, &slot, fetched) {
                    None => {
                        self.seat.took(fault.begun.elapsed());
                        self.reads.give_back(slot, 1);
                    }
                    Some(generation) => {
                        fault.generation = generation;
                        self.read(fault, slot);
                    }
                }
            }
            Some(Flight::Ahead(run)) => {
                self.cache.came_ahead(&run, result, slot.bytes_mut());
                self.reads.give_back(slot, run.coming.len());
            }
            None => unreachable!("a read without a flight"),
        }
    }

    /// Ends a fill with the result of the read. If contents have changed during the read, returns the current
    /// generation, and the segment must be read again.
    fn finish(&self, fault: Fault, slot: &Slot, fetched: Result<Fetched>) -> Option<u64> {
        let cache = self.cache;
        let mut state = cache.lock();
        let confirmed = cache.confirm(&state, fault.index, fault.right);
        if confirmed.is_ok() && state.generation != fault.generation {
            return Some(state.generation);
        }
        let access = fault.right.access;
        let ended = match confirmed.and(fetched) {
            Ok(Fetched::Data) => cache.end_load(&mut state, fault.index, access, slot.bytes()),
            Ok(Fetched::Zero) => cache.end_load(&mut state, fault.index, access, &self.zeros),
            Err(error) => {
                cache.fail_load(&mut state, fault.index, access);
                Err(error)
            }
        };
        drop(state);
        if let Err(error) = ended {
            cache.refuse(fault.index, error);
        }
        None
    }
}

impl<'a> Serve<'a> for Handler<'a> {
    fn seat(&mut self) -> &mut Seat<'a> {
        &mut self.seat
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.reads.queue.is_idle()
    }

    fn step(&mut self, stopping: bool) -> bool {
        let mut busy = false;
        if self.is_idle() || self.asked.elapsed() >= PERIOD {
            self.asked = Instant::now();
            busy |= !stopping && self.take_faults();
            busy |= self.take_ahead(stopping);
        }
        while let Some(ended) = self.reads.queue.poll() {
            self.arrive(ended);
            busy = true;
        }
        busy
    }
}
