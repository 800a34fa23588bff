//! The threads that serve faults, as event loops ([ADR 16](../../../../docs/adr/0016-handlers-as-event-loops.md)): each
//! takes faults as they come, starts the reads that they need, and installs segments as reads end; none waits for one
//! read before it starts the next.
//!
//! On machines with few processors there is one handler for each, which stays there and wakes at every fault: the one
//! on the processor that the faulting thread has just left is first. While reads are under way a handler looks for
//! their ends without sleeping (`serving.rs`). Where io_uring is refused there are more handlers, which read one segment
//! at a time.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::ahead::Run;
use super::fault::Begun;
use super::threads::Plan;
use super::{Access, Cache, Index, Right};
use crate::buffer::AlignedBuf;
use crate::buffer_pool::{BufferPool, ReadBuffer};
use crate::device::{Device, Ended, ReadQueue};
use crate::error::Result;
use crate::event_loop::FaultHandler;
use crate::handler_wakeup::GroupHandle;
use crate::store::{Fetched, Place};

/// Between two questions for faults while reads are under way: asking takes a lock that faults need.
const PERIOD: Duration = Duration::from_micros(4);
/// Faults taken before reads that have ended are looked at.
const TAKEN: usize = 16;

/// A handler's queue and memory.
pub(super) struct Reads {
    pub(super) queue: ReadQueue,
    singles: BufferPool,
    runs: BufferPool,
    /// Segments of the longest run.
    run: usize,
    /// Faults taken at once.
    taken: usize,
}

impl Reads {
    pub(super) fn new(device: &Arc<dyn Device>, plan: &Plan) -> io::Result<Self> {
        let depth = (plan.singles + plan.runs()) as u16;
        let queue = ReadQueue::new(device, depth, plan.ring);
        Ok(Self {
            queue,
            singles: BufferPool::new(plan.singles, plan.segment)?,
            runs: BufferPool::new(plan.runs(), plan.run * plan.segment)?,
            run: plan.run,
            taken: if plan.ring { TAKEN } else { 1 },
        })
    }

    /// Memory for so many segments, and for what is read `ahead` only while faults have enough left.
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

/// A read under way.
enum Flight {
    Fault(Fault),
    Ahead(Run),
}

/// A segment that a fault waits for.
#[derive(Clone, Copy)]
struct Fault {
    index: Index,
    right: Right,
    /// The cache's when it was asked where the segment is.
    generation: u64,
    /// CRC of its bytes.
    crc: u32,
    /// When it was taken.
    begun: Instant,
}

/// One handler.
pub(super) struct Handler<'a> {
    cache: &'a Cache,
    group: GroupHandle<'a>,
    reads: Reads,
    /// By berth.
    flights: Vec<Option<Flight>>,
    /// What is to come ahead of use and has no memory yet; the last first.
    waiting: Vec<Run>,
    /// When faults were last asked for.
    asked: Instant,
    /// A segment of zeros.
    zeros: AlignedBuf,
}

impl<'a> Handler<'a> {
    pub(super) fn new(cache: &'a Cache, reads: Reads, group: GroupHandle<'a>) -> Self {
        let zeros = AlignedBuf::zeroed(cache.segment_bytes());
        let (flights, waiting) = (Vec::new(), Vec::new());
        Self { cache, group, reads, flights, waiting, asked: Instant::now(), zeros }
    }

    fn take_faults(&mut self) -> bool {
        for taken in 0..self.reads.taken {
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
            let access = if fault.write { Access::Write } else { Access::Read };
            let right = self.cache.right(access);
            // A thread that waits for a read is kept while it is under way, others before they are woken.
            let alone = self.group.note_fault(fault.thread);
            if alone && !self.group.has_pinned(fault.thread) && self.cache.is_resident(index) {
                self.group.pin(fault.thread);
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
                        // While the device is at work.
                        self.reads.queue.submit();
                        self.group.pin(fault.thread);
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

    fn start(&mut self, index: Index, at: u64, slot: ReadBuffer, flight: Flight) {
        // There is a berth for each slot.
        let Some(berth) = self.reads.queue.berth() else { unreachable!("as many berths as slots") };
        if self.flights.len() <= berth {
            self.flights.resize_with(berth + 1, || None);
        }
        self.flights[berth] = Some(flight);
        let (store, ..) = self.cache.store_of(index);
        self.reads.queue.start(berth, store.device(), store.geometry().offset(at), slot);
    }

    /// Starts to read what a fault waits for.
    fn read(&mut self, mut fault: Fault, slot: ReadBuffer) {
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

    /// A read has ended: what it brought goes into memory.
    fn arrive(&mut self, ended: Ended) {
        let Ended { berth, mut slot, result } = ended;
        match self.flights[berth].take() {
            Some(Flight::Fault(mut fault)) => {
                let (store, page, segment) = self.cache.store_of(fault.index);
                let fetched = store.arrived(page, segment, fault.crc, result, slot.bytes_mut());
                match self.finish(fault, &slot, fetched) {
                    None => {
                        self.group.note_read_time(fault.begun.elapsed());
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

    /// Ends a load with what was found; if contents have changed meanwhile, it is to be read again, and this is the
    /// generation now.
    fn finish(&self, fault: Fault, slot: &ReadBuffer, fetched: Result<Fetched>) -> Option<u64> {
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

impl<'a> FaultHandler<'a> for Handler<'a> {
    fn group(&mut self) -> &mut GroupHandle<'a> {
        &mut self.group
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
