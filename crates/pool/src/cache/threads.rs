//! The threads that serve page faults: their number, processors, queue depths and buffers, and how they sleep.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, eventfd};

use super::handler::{Handler, HandlerReads};
use super::{Cache, PanicGuard};
use crate::device::ReadQueue;
use crate::error::{PoolError, Result};
use crate::options::FaultOptions;
use crate::store::Store;
use deepram_linux::buffer::AlignedBuf;
use deepram_linux::signals::spawn;
use deepram_pager::event_loop::{self, MAX_PINNED_HANDLERS};
use deepram_pager::handler_wakeup::{GroupHandle, HandlerGroup, HandlerPoll};

/// Handlers for each processor where each handler reads one segment at a time; their least and largest number.
const BLOCKING_HANDLERS: usize = 2;
const BLOCKING_HANDLERS_RANGE: (usize, usize) = (4, 32);
/// Threads that serve deferred faults.
const DEFERRED_FAULT_THREADS: usize = 4;
/// Largest number of handlers that an option may ask for.
const MAX_HANDLERS: usize = 256;
/// Part of the DRAM budget that reads in flight may take.
const READS_SHARE: usize = 32;
/// Reads of one segment that a handler keeps in flight: largest and least number.
const SINGLE_READS: (usize, usize) = (48, 4);
/// Reads of several segments that a handler keeps in flight, and the largest size of one in bytes.
const RUN_READS: usize = 4;
const RUN_BYTES: usize = 256 << 10;

/// The number of handlers and their read depths.
pub(crate) struct HandlerPlan {
    count: usize,
    /// The processors of the handlers, one for each; empty: any processor.
    cpus: Vec<usize>,
    /// Whether a thread that faults alone is moved to the processor of its handler.
    pin_lone_thread: bool,
    /// Whether a handler keeps many reads in flight, or one.
    pub(super) ring: bool,
    /// Size of a segment, in bytes.
    pub(super) segment: usize,
    /// Reads of one segment in flight.
    pub(super) singles: usize,
    /// Segments of the longest run.
    pub(super) run: usize,
}

impl HandlerPlan {
    /// Plans the handlers of a pool on these devices with a DRAM budget of `dram` bytes.
    pub(crate) fn new(options: &FaultOptions, stores: &[Arc<Store>], dram: u64) -> Result<Self> {
        if options.handlers > MAX_HANDLERS {
            let problem =
                format!("{} handlers are too many: the number must be 0 to {MAX_HANDLERS}", options.handlers);
            return Err(PoolError::Option { option: "faults.handlers", problem });
        }
        let segment = stores[0].segment().bytes() as usize;
        let queued = stores.iter().all(|store| store.device().queue_fd().is_some());
        let ring = queued && ReadQueue::new(stores[0].device(), 1, options.io_uring).as_fd().is_some();
        let processors = event_loop::processors();
        let count = match options.handlers {
            0 if ring => processors.len().min(MAX_PINNED_HANDLERS),
            0 => (processors.len() * BLOCKING_HANDLERS)
                .clamp(BLOCKING_HANDLERS_RANGE.0, BLOCKING_HANDLERS_RANGE.1),
            count => count,
        };
        let cpus = if ring && count == processors.len() { processors } else { Vec::new() };
        // Half of the memory for faults, half for runs.
        let each = dram as usize / READS_SHARE / count / 2 / segment;
        let singles = if ring { each.clamp(SINGLE_READS.1, SINGLE_READS.0) } else { 1 };
        let run = (each / RUN_READS).clamp(1, RUN_BYTES / segment);
        Ok(Self { count, cpus, pin_lone_thread: options.pin_lone_thread, ring, segment, singles, run })
    }

    /// Reads of runs in flight.
    pub(super) fn runs(&self) -> usize {
        if self.ring { RUN_READS } else { 1 }
    }

    /// Size of the handlers' buffers, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let segments = self.singles + self.runs() * self.run + 1;
        (self.count * segments + DEFERRED_FAULT_THREADS) * self.segment
    }
}

/// The threads that serve page faults. Dropping it stops and joins them.
pub(crate) struct Handlers {
    cache: Arc<Cache>,
    stop: OwnedFd,
    threads: Vec<JoinHandle<()>>,
    handler_group: Option<Arc<HandlerGroup>>,
}

impl Handlers {
    /// Returns the object that chooses which handler wakes on a fault.
    pub(crate) fn handler_group(&self) -> Option<Arc<HandlerGroup>> {
        self.handler_group.clone()
    }

    pub(crate) fn start(cache: &Arc<Cache>, plan: &HandlerPlan) -> io::Result<Self> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
        let mut handlers = Self { cache: Arc::clone(cache), stop, threads: Vec::new(), handler_group: None };
        let Some(watch) = cache.region.watcher() else { return Ok(handlers) };
        let reads = (0..plan.count)
            .map(|_| HandlerReads::new(cache.stores[0].device(), plan))
            .collect::<io::Result<Vec<_>>>()?;
        let polls = reads.iter().enumerate().map(|(n, reads)| {
            let (jobs, ring) = (cache.readahead_jobs.ready(), reads.queue.as_fd());
            let poll = event_loop::create_poll(jobs, handlers.stop.as_fd(), ring)?;
            Ok(HandlerPoll { poll, cpu: plan.cpus.get(n).copied() })
        });
        let polls = polls.collect::<io::Result<_>>()?;
        let owned = Arc::clone(cache);
        let on_failure = Box::new(move |call, error: &io::Error| {
            owned.halt(&mut owned.lock(), &format!("{call}: {error}"));
        });
        let handler_group =
            Arc::new(HandlerGroup::new(polls, watch.as_fd(), plan.pin_lone_thread, on_failure)?);
        handlers.handler_group = Some(Arc::clone(&handler_group));
        for (n, reads) in reads.into_iter().enumerate() {
            let (owned, handler_group) = (Arc::clone(cache), Arc::clone(&handler_group));
            handlers.threads.push(spawn(format!("deepram-fault-{n}"), None, move || {
                let _guard = PanicGuard(&owned);
                let group = GroupHandle::new(&handler_group, n);
                group.pin_handler();
                event_loop::run_handler(&mut Handler::new(&owned, reads, group));
            })?);
        }
        for n in 0..DEFERRED_FAULT_THREADS {
            let owned = Arc::clone(cache);
            handlers.threads.push(spawn(format!("deepram-defer-{n}"), None, move || {
                let _guard = PanicGuard(&owned);
                let mut buffer = AlignedBuf::zeroed(owned.segment_bytes());
                owned.serve_deferred_faults(&mut buffer);
            })?);
        }
        Ok(handlers)
    }
}

impl Drop for Handlers {
    fn drop(&mut self) {
        // Eight bytes always fit into an eventfd.
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        self.cache.deferred_faults.stop();
        for thread in self.threads.drain(..) {
            // The runtime has already reported a panic of this thread.
            let _ = thread.join();
        }
    }
}
