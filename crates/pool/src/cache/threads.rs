//! The threads that serve page faults: the handlers of the fault service, and those for deferred faults.

use std::io;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use deepram_linux::buffer::AlignedBuf;
use deepram_linux::signals::spawn;
use deepram_pager::service::{self, HandlerGroup};

use super::{Cache, PanicGuard};
use crate::error::{PoolError, Result};
use crate::options::FaultOptions;
use crate::store::Store;

/// Threads that serve deferred faults.
const DEFERRED_FAULT_THREADS: usize = 4;
/// Largest number of handlers that an option may ask for.
const MAX_HANDLERS: usize = 256;

/// The number of handlers and their reads in flight.
pub(crate) struct HandlerPlan {
    handlers: service::HandlerPlan,
    /// Size of a segment, in bytes.
    segment: usize,
    pin_faulting_threads: bool,
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
        let queued = options.io_uring && stores.iter().all(|store| store.device().queue_fd().is_some());
        let ring = |depth| if queued { stores[0].device().ring(depth, true) } else { None };
        let handlers = service::HandlerPlan::new(options.handlers, dram as usize, segment, ring);
        Ok(Self { handlers, segment, pin_faulting_threads: options.pin_faulting_threads })
    }

    /// Size of the handlers' buffers, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.handlers.buffer_bytes() + DEFERRED_FAULT_THREADS * self.segment
    }
}

/// The threads that serve page faults. Dropping it stops and joins them.
pub(crate) struct Handlers {
    cache: Arc<Cache>,
    service: Option<(service::Handlers, Arc<HandlerGroup>)>,
    deferred: Vec<JoinHandle<()>>,
}

impl Handlers {
    /// Returns the object that chooses which handler wakes on a fault.
    pub(crate) fn handler_group(&self) -> Option<Arc<HandlerGroup>> {
        self.service.as_ref().map(|(_, group)| Arc::clone(group))
    }

    pub(crate) fn start(cache: &Arc<Cache>, plan: HandlerPlan) -> io::Result<Self> {
        let mut handlers = Self { cache: Arc::clone(cache), service: None, deferred: Vec::new() };
        let Some(watch) = cache.region.watcher() else { return Ok(handlers) };
        let owner = Arc::downgrade(cache);
        let on_failure = Box::new(move |call, error: &io::Error| {
            if let Some(cache) = Weak::upgrade(&owner) {
                cache.halt(&mut cache.lock(), &format!("{call}: {error}"));
            }
        });
        let requests = cache.readahead_jobs.ready();
        let prepared =
            plan.handlers.prepare(requests, watch.as_fd(), plan.pin_faulting_threads, on_failure)?;
        let group = prepared.group();
        let start = |name, body: Box<dyn FnOnce() + Send>| {
            let owned = Arc::clone(cache);
            let guarded = move || {
                let _guard = PanicGuard(&owned);
                body();
            };
            spawn(name, None, guarded).map(Some)
        };
        handlers.service = Some((prepared.start(cache, start, |_| ())?, group));
        for n in 0..DEFERRED_FAULT_THREADS {
            let owned = Arc::clone(cache);
            handlers.deferred.push(spawn(format!("deepram-defer-{n}"), None, move || {
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
        self.cache.deferred_faults.stop();
        self.service = None;
        for thread in self.deferred.drain(..) {
            // The runtime has already reported a panic of this thread.
            let _ = thread.join();
        }
    }
}
