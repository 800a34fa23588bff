//! The threads that serve faults: how many, where, what each may have under way, and what they sleep on.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, eventfd};

use super::handler::{Handler, Reads};
use super::{Alarm, Cache};
use crate::buffer::AlignedBuf;
use crate::device::ReadQueue;
use crate::error::{PoolError, Result};
use crate::event_loop::{self, MAX_PINNED_HANDLERS};
use crate::handler_wakeup::{GroupHandle, HandlerGroup, HandlerPoll};
use crate::options::FaultOptions;
use crate::signals::spawn;
use crate::store::Store;

/// Handlers for each processor where each reads one segment at a time, and how many there are at least and at most.
const BLOCKING: usize = 2;
const BLOCKING_RANGE: (usize, usize) = (4, 32);
/// Threads for what has to wait.
const ERRANDS: usize = 4;
/// The most handlers that may be asked for.
const MOST: usize = 256;
/// The part of the budget that reads under way may take.
const SHARE: usize = 32;
/// Reads of one segment that a handler has under way at most, and at least.
const SINGLES: (usize, usize) = (48, 4);
/// Reads of several segments that a handler has under way, and the bytes of one at most.
const RUNS: usize = 4;
const RUN_BYTES: usize = 256 << 10;

/// How many handlers there are, and what each may have under way.
pub(crate) struct Plan {
    count: usize,
    /// One for each of these processors; empty: anywhere.
    homes: Vec<usize>,
    /// A thread that faults alone may be kept on one of them.
    keep: bool,
    /// Many reads under way, or one.
    pub(super) ring: bool,
    /// Bytes of one.
    pub(super) segment: usize,
    /// Reads of one segment under way.
    pub(super) singles: usize,
    /// Segments of the longest run.
    pub(super) run: usize,
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
        let ring = queued && ReadQueue::new(stores[0].device(), 1, options.ring).as_fd().is_some();
        let processors = event_loop::processors();
        let count = match options.handlers {
            0 if ring => processors.len().min(MAX_PINNED_HANDLERS),
            0 => (processors.len() * BLOCKING).clamp(BLOCKING_RANGE.0, BLOCKING_RANGE.1),
            count => count,
        };
        let homes = if ring && count == processors.len() { processors } else { Vec::new() };
        // Half of it for faults, half for runs.
        let each = dram as usize / SHARE / count / 2 / segment;
        let singles = if ring { each.clamp(SINGLES.1, SINGLES.0) } else { 1 };
        let run = (each / RUNS).clamp(1, RUN_BYTES / segment);
        Ok(Self { count, homes, keep: options.keep, ring, segment, singles, run })
    }

    /// Reads of runs under way.
    pub(super) fn runs(&self) -> usize {
        if self.ring { RUNS } else { 1 }
    }

    /// Bytes that the handlers' buffers take.
    pub(crate) fn memory_bytes(&self) -> usize {
        let segments = self.singles + self.runs() * self.run + 1;
        (self.count * segments + ERRANDS) * self.segment
    }
}

/// The threads that serve faults. Dropping it stops and joins them.
pub(crate) struct Handlers {
    cache: Arc<Cache>,
    stop: OwnedFd,
    threads: Vec<JoinHandle<()>>,
    handler_group: Option<Arc<HandlerGroup>>,
}

impl Handlers {
    /// Who of them wakes at a fault.
    pub(crate) fn handler_group(&self) -> Option<Arc<HandlerGroup>> {
        self.handler_group.clone()
    }

    pub(crate) fn start(cache: &Arc<Cache>, plan: &Plan) -> io::Result<Self> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
        let mut handlers = Self { cache: Arc::clone(cache), stop, threads: Vec::new(), handler_group: None };
        let Some(watch) = cache.region.watcher() else { return Ok(handlers) };
        let reads = (0..plan.count)
            .map(|_| Reads::new(cache.stores[0].device(), plan))
            .collect::<io::Result<Vec<_>>>()?;
        let polls = reads.iter().enumerate().map(|(n, reads)| {
            let (jobs, ring) = (cache.ahead.ready(), reads.queue.as_fd());
            let poll = event_loop::create_poll(jobs, handlers.stop.as_fd(), ring)?;
            Ok(HandlerPoll { poll, cpu: plan.homes.get(n).copied() })
        });
        let polls = polls.collect::<io::Result<_>>()?;
        let owned = Arc::clone(cache);
        let on_failure = Box::new(move |call, error: &io::Error| {
            owned.halt(&mut owned.lock(), &format!("{call}: {error}"));
        });
        let handler_group = Arc::new(HandlerGroup::new(polls, watch.as_fd(), plan.keep, on_failure)?);
        handlers.handler_group = Some(Arc::clone(&handler_group));
        for (n, reads) in reads.into_iter().enumerate() {
            let (owned, handler_group) = (Arc::clone(cache), Arc::clone(&handler_group));
            handlers.threads.push(spawn(format!("deepram-fault-{n}"), None, move || {
                let _alarm = Alarm(&owned);
                let group = GroupHandle::new(&handler_group, n);
                group.pin_handler();
                event_loop::run_handler(&mut Handler::new(&owned, reads, group));
            })?);
        }
        for n in 0..ERRANDS {
            let owned = Arc::clone(cache);
            handlers.threads.push(spawn(format!("deepram-errand-{n}"), None, move || {
                let _alarm = Alarm(&owned);
                let mut buffer = AlignedBuf::zeroed(owned.segment_bytes());
                owned.run_errands(&mut buffer);
            })?);
        }
        Ok(handlers)
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
