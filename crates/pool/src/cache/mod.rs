//! The DRAM cache: which segments are resident and which are dirty, and the rules for changing that.
//!
//! # States of a segment, and the transitions between them
//! ```text
//!            fill                      first store (make_dirty)
//!   absent ────────► clean ──────────────────────────────► dirty
//!      ▲  (FILLING)   │ ▲  ▲                                 │
//!      └──────────────┘ │  └── published ── WRITING ◄────────┤ write-back (flush.rs)
//!          evict        │                                    │
//!                       └── copied ── FROZEN + WRITING ◄─────┘ cut of a sync
//! ```
//!
//! # Invariants
//! 1. A clean resident segment is write-protected, so that its first store causes a page fault, and its bytes are
//!    those on flash. The fault is how the cache finds dirty segments; it never scans memory.
//! 2. A segment leaves the cache only when it is clean and not `WRITING`: its bytes on flash are published in the
//!    tables before its frame is dropped.
//! 3. `FROZEN` marks a segment of an epoch that is being closed, until the segment is copied. Its bytes do not
//!    change: a thread that stores to it copies it first (`staged`).
//! 4. All changes of flags, protection and frames happen under one lock. A `FILLING` segment belongs to the thread
//!    that fills it. No other thread changes its contents except [`Cache::invalidate`], which increments the
//!    generation, so that the segment is read again. The filling thread looks up the segment's slot after it has set
//!    the flag.
//! 5. `resident` includes `FILLING` segments. Together with the staged copies, the slots of the device buffer and the
//!    pages of stages (`huge_pages.rs`), it never exceeds `limit`. Only a shrinking budget can put it above; then no segment is brought in until it is below again.
//! 6. A page fault on a `FILLING` segment is dropped: the filling thread wakes the threads that wait for the segment,
//!    also if the fill fails.
//! 7. A handler with reads in flight waits for nothing but their completion: a fault that has to wait is deferred
//!    (`fault.rs`).
//!
//! Page faults are in `fault.rs`, what the fault service drives in `backing.rs`, its threads in `threads.rs`, filling in `fill.rs`,
//! readahead, hints and huge pages in `readahead.rs`, `hints.rs` and `huge_pages.rs`, frames and eviction in `eviction.rs`, write-back and cuts in
//! `flush.rs`.
//!
//! Lock order: the log of a store, then this cache, then the tables of a store.

mod allowance;
mod backing;
mod device_buffer;
mod eviction;
mod fail_stop;
mod fault;
mod fill;
mod flush;
mod hints;
mod huge_page_move;
mod huge_pages;
mod permissions;
mod readahead;
mod threads;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, TryLockError};
use std::time::Instant;

use deepram_core::paging::readahead::{Streams, max_window};
use deepram_core::paging::{DirtySet, SegmentState};
use deepram_core::{Addr, PageId};

use self::device_buffer::DeviceBuffer;
use self::eviction::Policy;
use self::huge_pages::Chunks;
use self::readahead::ReadaheadJob;
use crate::device::ReadQueues;
use crate::error::{PoolError, Result};
use crate::options::{FaultOptions, OpenOptions};
use crate::region::Region;
use crate::stats::{Counters, Stats};
use crate::store::Store;
use deepram_linux::buffer::AlignedBuf;
use deepram_linux::stage_memory::StageMemory;
use deepram_linux::work_queue::WorkQueue;
use deepram_pager::{Recorder, Spans};

pub(crate) use device_buffer::Part;
pub(crate) use fail_stop::PanicGuard;
pub(crate) use flush::Cut;
pub(crate) use permissions::{Permit, permission_error};
pub(crate) use threads::{HandlerPlan, Handlers};

/// Largest number of errors kept for `take_errors`.
const MAX_ERRORS: usize = 64;
/// Attempts to take the lock before a thread sleeps.
const SPINS: usize = 1000;
/// Most times that a thread in the background lets others run while threads wait for the lock.
const YIELDS: usize = 1000;

/// A segment of the pool: controller and segment in one number, in the order of the mapped region.
pub(crate) type Index = u32;

pub(crate) struct Cache {
    pub(crate) region: Region,
    pub(crate) stores: Vec<Arc<Store>>,
    pub(crate) counters: Arc<Counters>,
    segment_bytes: usize,
    per_page: u32,
    /// Segments between the first segments of two controllers.
    stride: u32,
    state: Mutex<CacheState>,
    /// Threads that wait for the lock.
    lock_waiters: AtomicUsize,
    /// Notified when a fill ends, a frame becomes free, or a frozen segment is copied.
    changed: Condvar,
    /// Notified when the evictor has work.
    evictor_work: Condvar,
    /// Notified when the write-back thread has work.
    write_back_work: Condvar,
    limit: AtomicUsize,
    /// Number of times that permissions were taken away; changes under the lock.
    permission_version: AtomicU64,
    /// DRAM budget without the handlers' buffers, in bytes.
    budget: AtomicUsize,
    /// Size of the handlers' buffers, in bytes.
    handlers: usize,
    /// Read queues of gathers.
    queues: ReadQueues,
    /// Readahead jobs.
    readahead_jobs: WorkQueue<ReadaheadJob>,
    /// How page faults are served.
    faults: FaultOptions,
    /// Page faults that have to wait.
    deferred_faults: fault::DeferredFaults,
    /// Memory of the stages; `None`: there are no huge pages.
    staging: Option<StageMemory>,
    /// Notified when a chunk is to be staged.
    stage_work: Condvar,
    /// Times of the stages count from here.
    started: Instant,
    /// Called with the offset of a chunk that has been moved into memory and is not yet protected.
    #[cfg(test)]
    pub(crate) moved: std::sync::OnceLock<Box<dyn Fn(usize) + Send + Sync>>,
    /// Records faults, if an option asks for it.
    recorder: Option<Recorder>,
    /// The limit on the bytes written to each device in a day, if there is one.
    allowance: allowance::Allowance,
}

pub(crate) struct CacheState {
    segments: Vec<SegmentState>,
    resident: usize,
    /// Segments being written to flash: no longer dirty, not yet in the tables.
    writing: usize,
    /// The dirty segments.
    dirty: DirtySet,
    /// Write-back cursors, by controller.
    write_back_cursors: Vec<Index>,
    /// Segments being filled.
    filling: usize,
    /// Segments being filled for a store: they become dirty when they are resident.
    admitted: usize,
    policy: Policy,
    /// Segments loaded by call, which are not resident.
    buffer: DeviceBuffer,
    /// Chunks that are staged or huge pages.
    chunks: Chunks,
    staged: HashMap<Index, AlignedBuf>,
    /// Number of times that contents changed other than by stores (rollback, free). A fill during which it changes
    /// must read again.
    generation: u64,
    /// Detects sequences of misses.
    streams: Streams,
    /// Pinned segments, by number.
    pinned: Spans,
    pinned_count: usize,
    /// Threads that wait for a change.
    waiters: usize,
    /// The evictor has been notified that frames are needed.
    evictor_notified: bool,
    /// Frames are needed, and no clean segment is left to evict.
    starved: bool,
    /// Segments whose pages are read-only because the device is full.
    read_only_segments: Vec<Index>,
    errors: Vec<PoolError>,
    /// Why the last write-back failed, until one succeeds.
    write_back_error: Option<String>,
    stopping: bool,
    /// Why the pool has stopped.
    halted: Option<String>,
}

impl CacheState {
    /// Returns the number of frames in use, by resident segments, staged copies, the device buffer and the stages.
    fn frames(&self) -> usize {
        self.resident + self.staged.len() + self.buffer.held() + self.chunks.frames()
    }

    /// Records a use of a resident segment.
    fn touch(&mut self, index: Index) {
        self.policy.touch(self.chunks.unit(index).start);
    }

    fn record_error(&mut self, error: PoolError) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(error);
        }
    }
}

/// Whether an access reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccessKind {
    Read,
    Write,
}

impl Cache {
    pub(crate) fn new(
        region: Region,
        stores: Vec<Arc<Store>>,
        counters: Arc<Counters>,
        stride_pages: u32,
        options: &OpenOptions,
        handlers: usize,
    ) -> Result<Self> {
        let loads = &options.loads;
        let budget = (options.dram as usize).saturating_sub(handlers);
        let size = stores[0].segment();
        let segment_bytes = size.bytes() as usize;
        let per_page = u32::from(size.per_page());
        let segments = stride_pages as usize * per_page as usize * stores.len();
        let most_frames = (budget / segment_bytes).min(segments);
        let slots = loads.slots(most_frames, segment_bytes)?;
        let buffer = DeviceBuffer::new(slots, segment_bytes, loads)
            .map_err(|source| stores[0].device_error("mapping memory for the device buffer", source))?;
        let readahead_jobs =
            WorkQueue::new().map_err(|source| stores[0].device_error("making an eventfd", source))?;
        let controllers = stores.len();
        let allowance = allowance::Allowance::new(options.writes_per_day, &stores);
        let queues = ReadQueues::new(stores[0].device(), loads.depth);
        let staging = huge_pages::staging(&region, options);
        let chunks = Chunks::new(&region, staging.as_ref(), segment_bytes);
        let recorder = options.record_faults_to.as_deref().map(Recorder::create).transpose();
        let recorder = recorder.map_err(|error| PoolError::Option {
            option: "record_faults_to",
            problem: format!("no record of faults can be written there: {error}"),
        })?;
        let cache = Self {
            region,
            stores,
            counters,
            segment_bytes,
            per_page,
            stride: stride_pages * per_page,
            lock_waiters: AtomicUsize::new(0),
            state: Mutex::new(CacheState {
                segments: vec![SegmentState::ABSENT; segments],
                resident: 0,
                writing: 0,
                dirty: DirtySet::new(segments),
                write_back_cursors: vec![0; controllers],
                filling: 0,
                admitted: 0,
                policy: options.policy.build(most_frames),
                buffer,
                chunks,
                staged: HashMap::new(),
                generation: 0,
                streams: Streams::new(max_window(most_frames)),
                pinned: Spans::new(),
                pinned_count: 0,
                waiters: 0,
                evictor_notified: false,
                starved: false,
                read_only_segments: Vec::new(),
                errors: Vec::new(),
                write_back_error: None,
                stopping: false,
                halted: None,
            }),
            changed: Condvar::new(),
            evictor_work: Condvar::new(),
            write_back_work: Condvar::new(),
            limit: AtomicUsize::new(0),
            permission_version: AtomicU64::new(0),
            budget: AtomicUsize::new(budget),
            handlers,
            queues,
            readahead_jobs,
            faults: options.faults.clone(),
            deferred_faults: fault::DeferredFaults::default(),
            staging,
            stage_work: Condvar::new(),
            started: Instant::now(),
            #[cfg(test)]
            moved: std::sync::OnceLock::new(),
            recorder,
            allowance,
        };
        cache.update_frame_limit(&cache.lock())?;
        Ok(cache)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, CacheState> {
        match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => self.lock_or_halt(Err(poisoned)),
            Err(TryLockError::WouldBlock) => {
                self.lock_waiters.fetch_add(1, Relaxed);
                // The lock is rarely held for longer than a thread takes to sleep and to wake.
                let spun = (0..SPINS).find_map(|_| {
                    std::hint::spin_loop();
                    self.state.try_lock().ok()
                });
                let state = spun.unwrap_or_else(|| self.lock_or_halt(self.state.lock()));
                self.lock_waiters.fetch_sub(1, Relaxed);
                state
            }
        }
    }

    /// Takes the lock for a thread in the background that has just released it, after those that wait: the mutex is not fair, and a
    /// thread that sleeps takes longer to wake than this one to take the lock again.
    fn lock_after_waiters(&self) -> MutexGuard<'_, CacheState> {
        for _ in 0..YIELDS {
            if self.lock_waiters.load(Relaxed) == 0 {
                break;
            }
            std::thread::yield_now();
        }
        self.lock()
    }

    fn wait<'a>(&'a self, mut guard: MutexGuard<'a, CacheState>) -> MutexGuard<'a, CacheState> {
        guard.waiters += 1;
        let mut guard = self.lock_or_halt(self.changed.wait(guard));
        guard.waiters -= 1;
        guard
    }

    /// Returns the number of threads that wait for a change.
    #[cfg(test)]
    pub(crate) fn waiters(&self) -> usize {
        self.lock().waiters
    }

    /// Wakes the threads that wait for a change.
    fn notify_waiters(&self, state: &CacheState) {
        if state.waiters > 0 {
            self.changed.notify_all();
        }
    }

    pub(crate) fn store_of(&self, index: Index) -> (&Arc<Store>, PageId, u8) {
        let store = &self.stores[(index / self.stride) as usize];
        let within = index % self.stride;
        (store, PageId(within / self.per_page), (within % self.per_page) as u8)
    }

    /// Returns the first segment of a page.
    pub(crate) fn index_of(&self, controller: u32, page: PageId) -> Index {
        controller * self.stride + page.0 * self.per_page
    }

    pub(crate) fn segments_per_page(&self) -> u32 {
        self.per_page
    }

    pub(crate) fn segment_bytes(&self) -> usize {
        self.segment_bytes
    }

    fn offset(&self, index: Index) -> usize {
        index as usize * self.segment_bytes
    }

    pub(crate) fn address(&self, index: Index) -> Addr {
        let (store, page, segment) = self.store_of(index);
        store.address(page, segment)
    }

    /// Returns the counters and the DRAM in use.
    pub(crate) fn stats(&self) -> Stats {
        // Most counters change under the lock, so a finished access has been counted.
        self.stats_of(&self.lock())
    }

    /// As [`Cache::stats`], for the holder of the lock.
    fn stats_of(&self, state: &CacheState) -> Stats {
        let counters = self.counters.read();
        let dram = state.frames() * self.segment_bytes + self.overhead(state) + self.handlers;
        Stats {
            resident_segments: state.resident as u64,
            dirty_segments: state.dirty.len() as u64,
            buffered_segments: state.buffer.len() as u64,
            promotion_threshold: u64::from(state.buffer.threshold()),
            frames: state.frames() as u64,
            dram_bytes: dram as u64,
            budget_bytes: (self.budget.load(Relaxed) + self.handlers) as u64,
            ..counters
        }
    }

    /// Returns and clears the errors of accesses through the mapped memory.
    pub(crate) fn take_errors(&self) -> Vec<PoolError> {
        std::mem::take(&mut self.lock().errors)
    }

    /// Drops these segments, because their contents on flash have changed.
    pub(crate) fn invalidate(&self, state: &mut CacheState, segments: impl IntoIterator<Item = Index>) {
        state.generation += 1;
        let mut segments: Vec<Index> = segments.into_iter().collect();
        segments.sort_unstable();
        segments.dedup();
        for run in segments.chunk_by(|a, b| a + 1 == *b) {
            self.take_huge_pages(state, run[0]..run[0] + run.len() as Index);
        }
        let mut dropped = Vec::new();
        for index in segments {
            state.buffer.invalidate(index);
            let segment = state.segments[index as usize];
            // A segment that is being filled will be read again, because the generation has changed.
            if segment.is_filling() || segment.is_absent() {
                continue;
            }
            if segment.is_dirty() {
                state.dirty.remove(index);
            }
            if segment.is_resident() {
                state.resident -= 1;
                state.policy.remove(index);
            }
            state.staged.remove(&index);
            state.segments[index as usize].clear();
            dropped.push(index);
        }
        if let (Some(&first), discarded) = (dropped.first(), self.discard(&dropped)) {
            // Bytes left in a frame would be taken for the new contents.
            self.halt_on_error(state, "madvise(MADV_DONTNEED)", first, discarded);
        }
        self.notify_waiters(state);
    }

    /// Drops the frames of these segments, sorted.
    fn discard(&self, sorted: &[Index]) -> std::io::Result<()> {
        let runs: Vec<(usize, usize)> = sorted
            .chunk_by(|a, b| a + 1 == *b)
            .map(|run| (self.offset(run[0]), run.len() * self.segment_bytes))
            .collect();
        self.region.discard(&runs)
    }

    /// Returns the dirty segments.
    pub(crate) fn dirty(&self, state: &CacheState) -> Vec<Index> {
        state.dirty.iter().collect()
    }

    /// Wakes the write-back thread to check for work.
    pub(crate) fn notify_write_back(&self) {
        self.write_back_work.notify_one();
    }

    /// Stops the evictor and write-back, and wakes all waiting threads.
    pub(crate) fn stop(&self) {
        self.lock().stopping = true;
        self.stage_work.notify_all();
        self.evictor_work.notify_all();
        self.write_back_work.notify_all();
        self.changed.notify_all();
    }

    /// Makes the mapped memory inaccessible after the last copy and the last served fault: a signal is better than a
    /// thread that waits for ever.
    pub(crate) fn close(&self) {
        let _state = self.lock();
        self.close_mapping();
        self.flush_record();
    }
}
