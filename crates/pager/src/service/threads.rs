//! The handler threads: their number and processors, how they start, and how they stop.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use deepram_linux::descriptors::open_high;
use deepram_linux::ring::Ring;
use rustix::event::{EventfdFlags, eventfd};

use super::event_loop::{self, MAX_PINNED_HANDLERS};
use super::handler_wakeup::HandlerPoll;
use super::{Backing, GroupHandle, Handler, HandlerGroup, OnFailure, ReadPlan, ReadRequests};

/// Handlers for each processor where each handler reads synchronously; their least and largest number.
const BLOCKING_HANDLERS: usize = 4;
const BLOCKING_HANDLERS_RANGE: (usize, usize) = (8, 32);

/// The number of handlers, their processors and their reads in flight.
pub struct HandlerPlan {
    count: usize,
    /// The processors of the handlers, one for each; empty: any processor.
    cpus: Vec<usize>,
    /// The rings, one for each handler; empty where reads are synchronous.
    rings: Vec<Box<dyn Ring>>,
    reads: ReadPlan,
}

impl HandlerPlan {
    /// Plans `handlers` handlers (0: as many as suit the machine) for a memory with `dram` bytes of DRAM, with pages of
    /// `page_bytes` bytes. `ring` makes a queue of reads of this depth, if reads can be in flight together.
    pub fn new(
        handlers: usize,
        dram: usize,
        page_bytes: usize,
        mut ring: impl FnMut(u32) -> Option<Box<dyn Ring>>,
    ) -> Self {
        let processors = event_loop::processors();
        let depth = ReadPlan::new(dram, page_bytes, true).depth() as u32;
        let first = ring(depth);
        let reads = ReadPlan::new(dram, page_bytes, first.is_some());
        let count = match handlers {
            0 if first.is_some() => processors.len().min(MAX_PINNED_HANDLERS),
            0 => (processors.len() * BLOCKING_HANDLERS)
                .clamp(BLOCKING_HANDLERS_RANGE.0, BLOCKING_HANDLERS_RANGE.1),
            count => count,
        };
        let pinned = first.is_some() && count == processors.len();
        let others = (1..count).map_while(|_| first.as_ref().and_then(|_| ring(depth))).collect::<Vec<_>>();
        let rings = first.into_iter().chain(others).collect();
        Self { count, cpus: if pinned { processors } else { Vec::new() }, rings, reads }
    }

    /// Bytes of all buffers, once all of them have been used.
    #[must_use]
    pub fn buffer_bytes(&self) -> usize {
        self.count * self.reads.buffer_bytes()
    }

    /// Makes what the handlers wait on: the faults of `uffd`, and `requests`, which is readable while requests are
    /// queued. `pin_faulting_threads`: whether faulting threads may be pinned to the processor of their handler.
    ///
    /// # Errors
    /// The kernel refuses a descriptor.
    pub fn prepare(
        self,
        requests: BorrowedFd<'_>,
        uffd: BorrowedFd<'_>,
        pin_faulting_threads: bool,
        on_failure: OnFailure,
    ) -> io::Result<PreparedHandlers> {
        let stop = open_high(|| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK))?;
        let mut rings = self.rings.into_iter();
        let reads: Vec<_> = (0..self.count).map(|_| ReadRequests::new(rings.next(), self.reads)).collect();
        let polls = reads.iter().enumerate().map(|(n, reads)| {
            let poll = event_loop::create_poll(requests, stop.as_fd(), reads.as_fd())?;
            Ok(HandlerPoll { poll, cpu: self.cpus.get(n).copied() })
        });
        let polls = polls.collect::<io::Result<_>>()?;
        let group = Arc::new(HandlerGroup::new(polls, uffd, pin_faulting_threads, on_failure)?);
        Ok(PreparedHandlers { stop: Arc::new(stop), reads, group })
    }
}

/// Handlers that have not started yet.
pub struct PreparedHandlers {
    stop: Arc<OwnedFd>,
    reads: Vec<ReadRequests>,
    group: Arc<HandlerGroup>,
}

impl PreparedHandlers {
    /// The group of the handlers, which chooses the handler that wakes on a fault.
    #[must_use]
    pub fn group(&self) -> Arc<HandlerGroup> {
        Arc::clone(&self.group)
    }

    /// The descriptors of the handlers.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> + '_ {
        let rings = self.reads.iter().filter_map(ReadRequests::as_fd).map(|ring| ring.as_raw_fd());
        self.group.descriptors().chain(rings).chain([self.stop.as_raw_fd()])
    }

    /// Starts the threads: `spawn` starts one with this name, and `begin` runs first in each.
    ///
    /// # Errors
    /// The kernel starts no thread. The threads that were started end.
    pub fn start<B: Backing>(
        self,
        backing: &Arc<B>,
        mut spawn: impl FnMut(String, Box<dyn FnOnce() + Send>) -> io::Result<Option<JoinHandle<()>>>,
        begin: impl Fn(&B) + Clone + Send + 'static,
    ) -> io::Result<Handlers> {
        let Self { stop, reads, group } = self;
        let mut handlers = Handlers { stop: Arc::clone(&stop), threads: Vec::with_capacity(reads.len()) };
        for (n, reads) in reads.into_iter().enumerate() {
            let (backing, group, begin) = (Arc::clone(backing), Arc::clone(&group), begin.clone());
            let stop = Arc::clone(&stop);
            let body = move || {
                // Open as long as the thread waits for it.
                let _stop = stop;
                let group = GroupHandle::new(&group, n);
                group.pin_handler();
                let mut handler = Handler::new(&*backing, reads, group);
                begin(&backing);
                event_loop::run_handler(&mut handler);
            };
            handlers.threads.push(spawn(format!("deepram-page-{n}"), Box::new(body))?);
        }
        Ok(handlers)
    }
}

/// The handler threads. Dropping it stops and joins those that can be joined.
pub struct Handlers {
    stop: Arc<OwnedFd>,
    threads: Vec<Option<JoinHandle<()>>>,
}

impl Handlers {
    /// Number of handlers.
    #[must_use]
    pub fn count(&self) -> usize {
        self.threads.len()
    }
}

impl Drop for Handlers {
    fn drop(&mut self) {
        // Eight bytes into an eventfd always fit.
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        for thread in self.threads.drain(..).flatten() {
            // The runtime has reported a panic of the thread already.
            let _ = thread.join();
        }
    }
}
