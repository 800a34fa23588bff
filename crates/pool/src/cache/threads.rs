//! The threads that serve faults: how many, where, what each may have under way, and what they sleep on.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::thread::CpuSet;

use super::Cache;
use super::handler::{AHEAD, FAULT, Handler, READ, Reads, STOP};
use crate::buffer::AlignedBuf;
use crate::device::ReadQueue;
use crate::error::{PoolError, Result};
use crate::options::FaultOptions;
use crate::store::Store;
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
    pub(super) fn runs(&self) -> usize {
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
