//! The threads that serve faults, as event loops ([ADR 16](../../../../docs/adr/0016-handlers-as-event-loops.md)): each
//! takes faults as they come, starts the reads that they need, and installs segments as reads end; none waits for one
//! read before it starts the next.
//!
//! On machines with few processors there is one handler for each, which stays there and wakes at every fault: the one
//! on the processor that the faulting thread has just left is first. While reads are under way a handler looks for
//! their ends without sleeping ([`Patience`]). Where io_uring is refused there are more handlers, which read one segment
//! at a time.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::thread::CpuSet;

use super::ahead::Run;
use super::fault::Begun;
use super::{Access, Cache, Index};
use crate::buffer::AlignedBuf;
use crate::device::{Ended, ReadQueue};
use crate::error::{PoolError, Result};
use crate::options::FaultOptions;
use crate::patience::Patience;
use crate::slots::{Slot, Slots};
use crate::store::{Fetched, Place, Store};
use crate::uffd::Uffd;

/// Up to so many processors each has its handler; all of them wake at a fault.
const FEW: usize = 4;
/// Handlers for each processor where each reads one segment at a time, and how many there are at least and at most.
const BLOCKING: usize = 2;
const BLOCKING_RANGE: (usize, usize) = (4, 32);
/// Threads for what has to wait.
const ERRANDS: usize = 4;
/// The most handlers that may be asked for.
const MOST: usize = 256;
/// Between two questions for faults while reads are under way: asking takes a lock that faults need.
const PERIOD: Duration = Duration::from_micros(4);
/// Faults taken before reads that have ended are looked at.
const TAKEN: usize = 16;
/// The part of the budget that reads under way may take.
const SHARE: usize = 32;
/// Reads of one segment that a handler has under way at most, and at least.
const SINGLES: (usize, usize) = (48, 4);
/// Reads of several segments that a handler has under way, and the bytes of one at most.
const RUNS: usize = 4;
const RUN_BYTES: usize = 256 << 10;

const FAULT: u64 = 0;
const STOP: u64 = 1;
const AHEAD: u64 = 2;
const READ: u64 = 3;

/// How many handlers there are, and what each may have under way.
pub(crate) struct Plan {
    count: usize,
    /// One for each of these processors; empty: anywhere.
    homes: Vec<usize>,
    ring: bool,
    segment: usize,
    singles: usize,
    /// Segments of the longest run.
    run: usize,
}

impl Plan {
    /// For a pool on these devices with so much DRAM.
    pub(crate) fn new(options: &FaultOptions, stores: &[Arc<Store>], dram: u64) -> Result<Self> {
        if options.handlers > MOST {
            let problem = format!("{} threads: at most {MOST}, or 0", options.handlers);
            return Err(PoolError::Option { option: "faults.handlers", problem });
        }
        let segment = stores[0].segment().bytes() as usize;
        let queued = stores.iter().all(|store| store.device().queue_fd().is_some());
        let ring = queued && ReadQueue::new(1, options.ring).raw_fd().is_some();
        let processors = processors();
        let count = match options.handlers {
            0 if ring => processors.len().min(FEW),
            0 => (processors.len() * BLOCKING).clamp(BLOCKING_RANGE.0, BLOCKING_RANGE.1),
            count => count,
        };
        let homes = if ring && count == processors.len() { processors } else { Vec::new() };
        // Half of it for faults, half for runs.
        let each = dram as usize / SHARE / count / 2 / segment;
        let singles = if ring { each.clamp(SINGLES.1, SINGLES.0) } else { 1 };
        let run = (each / RUNS).clamp(1, RUN_BYTES / segment);
        Ok(Self { count, homes, ring, segment, singles, run })
    }

    /// Reads of runs under way.
    fn runs(&self) -> usize {
        if self.ring { RUNS } else { 1 }
    }

    /// Bytes that the handlers' buffers take.
    pub(crate) fn memory_bytes(&self) -> usize {
        let segments = self.singles + self.runs() * self.run + 1;
        (self.count * segments + ERRANDS) * self.segment
    }
}

/// Those that this process may run on.
fn processors() -> Vec<usize> {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap_or_default();
    let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|n| allowed.is_set(*n)).collect();
    if all.is_empty() { vec![0, 1] } else { all }
}

/// The threads that serve faults. Dropping it stops and joins them.
pub(crate) struct Handlers {
    cache: Arc<Cache>,
    stop: OwnedFd,
    threads: Vec<JoinHandle<()>>,
}

impl Handlers {
    pub(crate) fn start(cache: &Arc<Cache>, plan: &Plan) -> io::Result<Self> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
        let mut handlers = Self { cache: Arc::clone(cache), stop, threads: Vec::new() };
        let Some(watch) = cache.region.watcher() else { return Ok(handlers) };
        for n in 0..plan.count {
            let reads = Reads::new(plan)?;
            let poll = handlers.interests(watch, plan.homes.is_empty(), &reads.queue)?;
            let home = plan.homes.get(n).copied();
            let owned = Arc::clone(cache);
            let builder = std::thread::Builder::new().name(format!("deepram-fault-{n}"));
            handlers.threads.push(builder.spawn(move || {
                if let Some(home) = home {
                    let mut only = CpuSet::new();
                    only.set(home);
                    // Refused: it is then wherever the kernel puts it.
                    let _ = rustix::thread::sched_setaffinity(None, &only);
                }
                Handler::new(&owned, reads).run(&poll);
            })?);
        }
        for n in 0..ERRANDS {
            let owned = Arc::clone(cache);
            let builder = std::thread::Builder::new().name(format!("deepram-errand-{n}"));
            handlers.threads.push(builder.spawn(move || {
                let mut buffer = AlignedBuf::zeroed(owned.segment_bytes());
                owned.run_errands(&mut buffer);
            })?);
        }
        Ok(handlers)
    }

    /// What a handler with these reads sleeps on. A fault wakes one of them if `once`, or all.
    fn interests(&self, watch: &Uffd, once: bool, queue: &ReadQueue) -> io::Result<OwnedFd> {
        use epoll::{EventData, EventFlags};
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        // SAFETY: the descriptor lives as long as the region, which the handler's cache keeps.
        let watch = unsafe { BorrowedFd::borrow_raw(watch.raw_fd()) };
        let exclusive = EventFlags::IN | EventFlags::EXCLUSIVE;
        let fault = if once { exclusive } else { EventFlags::IN };
        epoll::add(&poll, watch, EventData::new_u64(FAULT), fault)?;
        epoll::add(&poll, self.cache.ahead.ready(), EventData::new_u64(AHEAD), exclusive)?;
        epoll::add(&poll, self.stop.as_fd(), EventData::new_u64(STOP), EventFlags::IN)?;
        if let Some(ring) = queue.raw_fd() {
            // SAFETY: the ring lives as long as the handler, and so as this.
            let ring = unsafe { BorrowedFd::borrow_raw(ring) };
            epoll::add(&poll, ring, EventData::new_u64(READ), EventFlags::IN)?;
        }
        Ok(poll)
    }
}

impl Drop for Handlers {
    fn drop(&mut self) {
        // Eight bytes into an eventfd always fit.
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        self.cache.errands.stop();
        for thread in self.threads.drain(..) {
            // Its panic was reported by the runtime already.
            let _ = thread.join();
        }
    }
}

/// A handler's queue and memory.
struct Reads {
    queue: ReadQueue,
    singles: Slots,
    runs: Slots,
    /// Segments of the longest run.
    run: usize,
    /// Faults taken at once.
    taken: usize,
}

impl Reads {
    fn new(plan: &Plan) -> io::Result<Self> {
        let depth = (plan.singles + plan.runs()) as u16;
        let queue = ReadQueue::new(depth, plan.ring);
        Ok(Self {
            queue,
            singles: Slots::new(plan.singles, plan.segment)?,
            runs: Slots::new(plan.runs(), plan.run * plan.segment)?,
            run: plan.run,
            taken: if plan.ring { TAKEN } else { 1 },
        })
    }

    /// Memory for so many segments, and for what is read `ahead` only while faults have enough left.
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

/// A read under way.
enum Flight {
    Fault(Fault),
    Ahead(Run),
}

/// A segment that a fault waits for.
#[derive(Clone, Copy)]
struct Fault {
    index: Index,
    access: Access,
    /// The cache's when it was asked where the segment is.
    generation: u64,
    /// CRC of its bytes.
    crc: u32,
}

struct Handler<'a> {
    cache: &'a Cache,
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
    fn new(cache: &'a Cache, reads: Reads) -> Self {
        let zeros = AlignedBuf::zeroed(cache.segment_bytes());
        Self { cache, reads, flights: Vec::new(), waiting: Vec::new(), asked: Instant::now(), zeros }
    }

    fn run(&mut self, poll: &OwnedFd) {
        let empty =
            epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(FAULT) };
        let mut events = [empty; 4];
        let mut stopping = false;
        let mut patience = Patience::new();
        loop {
            if self.step(stopping) {
                patience.begin();
                continue;
            }
            let idle = self.is_idle();
            if stopping && idle {
                return;
            }
            if !idle && patience.lasts() {
                continue;
            }
            match epoll::wait(poll, &mut events, None) {
                Ok(n) => stopping |= events[..n].iter().any(|event| event.data.u64() == STOP),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
            patience.begin();
        }
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.reads.queue.is_idle()
    }

    /// Does what can be done now; whether that was anything.
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

    fn take_faults(&mut self) -> bool {
        for taken in 0..self.reads.taken {
            let Some(slot) = self.reads.slot(1, false) else { return taken > 0 };
            // An error means that the descriptor is unusable, and the end of all faults.
            let Some((offset, fault)) = self.cache.region.next_fault().ok().flatten() else {
                self.reads.give_back(slot, 1);
                return taken > 0;
            };
            let index = (offset / self.cache.segment_bytes()) as Index;
            let access = if fault.write { Access::Write } else { Access::Read };
            let begun = match self.cache.begin_fault(index, access) {
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
                Begun::Read(generation) => self.read(Fault { index, access, generation, crc: 0 }, slot),
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

    /// A read has ended: what it brought goes into memory.
    fn arrive(&mut self, ended: Ended) {
        let Ended { berth, mut slot, result } = ended;
        match self.flights[berth].take() {
            Some(Flight::Fault(mut fault)) => {
                let (store, page, segment) = self.cache.store_of(fault.index);
                let fetched = store.arrived(page, segment, fault.crc, result, slot.bytes_mut());
                match self.finish(fault, &slot, fetched) {
                    None => self.reads.give_back(slot, 1),
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
    fn finish(&self, fault: Fault, slot: &Slot, fetched: Result<Fetched>) -> Option<u64> {
        let cache = self.cache;
        let mut state = cache.lock();
        if state.generation != fault.generation {
            return Some(state.generation);
        }
        let ended = match fetched {
            Ok(Fetched::Data) => cache.end_load(&mut state, fault.index, fault.access, slot.bytes()),
            Ok(Fetched::Zero) => cache.end_load(&mut state, fault.index, fault.access, &self.zeros),
            Err(error) => {
                cache.fail_load(&mut state, fault.index, fault.access);
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
