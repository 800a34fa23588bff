//! The DRAM cache: which segments are resident, which of them are dirty, and who may change that.
//!
//! # States of a segment, and the transitions between them
//! ```text
//!            load                      first store (make_dirty)
//!   absent ────────► clean ──────────────────────────────► dirty
//!      ▲  (LOADING)   │ ▲  ▲                                 │
//!      └──────────────┘ │  └── published ── WRITING ◄────────┤ write-back (flush.rs)
//!          evict        │                                    │
//!                       └── copied ── FROZEN + WRITING ◄─────┘ cut of a sync
//! ```
//! # Invariants
//! 1. A clean resident segment is write-protected, so the first store into it is seen; its bytes
//!    are those on flash. Dirty segments are found by that, never by scanning memory.
//! 2. A segment leaves the cache only when clean and not `WRITING`: what is on flash is published
//!    in the tables before the frame goes.
//! 3. `FROZEN`: part of an epoch that is being closed and not yet copied. Its bytes do not change:
//!    whoever stores to it first copies it aside (`staged`).
//! 4. All changes of flags, protection and frames happen under one lock. A `LOADING` segment belongs to who loads
//!    it: nobody else changes its contents, but for [`Cache::forget`], which raises the generation, so that it is
//!    loaded again. Its place on the device is asked for after the flag is set.
//! 5. `resident` counts `LOADING` segments too; with the slots of the device buffer it never exceeds `limit`, unless
//!    the budget has just become smaller: then nothing is brought in until it does not.
//! 6. A fault on a `LOADING` segment is dropped: whoever loads it wakes who waits for it, also if that fails.
//! 7. A handler with reads under way waits for nothing but their ends: what has to wait is an errand (fault.rs).
//!
//! What is where: faults in `fault.rs`, their threads in `handler.rs` and `threads.rs`, bringing segments in `load.rs`, reading ahead
//! and hints `ahead.rs` and `hints.rs`, frames and who leaves `room.rs`, write-back and cuts `flush.rs`.
//!
//! Lock order: a store's log, then this cache, then a store's tables.

mod ahead;
mod device_buffer;
mod dirty;
mod fault;
mod flush;
mod halt;
mod handler;
mod hints;
mod load;
mod rights;
mod room;
mod threads;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use deepram_core::{Addr, PageId};

use self::ahead::Piece;
use self::device_buffer::DeviceBuffer;
use self::dirty::DirtySet;
use self::room::{Policy, policy};
use crate::buffer::AlignedBuf;
use crate::device::Queues;
use crate::error::{PoolError, Result};
use crate::options::OpenOptions;
use crate::pager::Spans;
use crate::readahead::Streams;
use crate::region::Region;
use crate::stats::{Counters, Stats};
use crate::store::Store;
use crate::work_queue::WorkQueue;

pub(crate) use device_buffer::Part;
pub(crate) use flush::Cut;
pub(crate) use halt::Alarm;
pub(crate) use rights::{Right, refused};
pub(crate) use threads::{Handlers, Plan};

const RESIDENT: u8 = 1;
const DIRTY: u8 = 1 << 1;
const LOADING: u8 = 1 << 2;
const WRITING: u8 = 1 << 3;
const FROZEN: u8 = 1 << 4;
const POISONED: u8 = 1 << 5;

/// Segments set aside for copies of frozen segments, as a part of the frames.
const STAGING_SHARE: usize = 16;
/// The fewest frames with which loading, writing back and staging can go on at once.
pub(crate) const LEAST_FRAMES: usize = 256;

/// The longest window read ahead, as a part of the frames.
const WINDOW_SHARE: usize = 32;
/// Most errors remembered until somebody asks for them.
const MOST_DAMAGE: usize = 64;

/// One segment of the pool: controller and segment in one number, as the mapped region is laid out.
pub(crate) type Index = u32;

pub(crate) struct Cache {
    pub(crate) region: Region,
    pub(crate) stores: Vec<Arc<Store>>,
    pub(crate) counters: Arc<Counters>,
    segment_bytes: usize,
    per_page: u32,
    /// Segments between the first ones of two controllers.
    stride: u32,
    state: Mutex<State>,
    /// Something that a waiter may wait for has happened: a load ended, a frame came free, a
    /// frozen segment was copied.
    changed: Condvar,
    /// The evictor has work.
    work: Condvar,
    /// The write-back thread has work.
    writing: Condvar,
    limit: AtomicUsize,
    /// Counts the times that rights were taken away, under the lock.
    rights: AtomicU64,
    /// Bytes, without what the handlers have for themselves.
    budget: AtomicUsize,
    /// Bytes of the handlers.
    handlers: usize,
    /// For reads of gathers.
    queues: Queues,
    /// What is to be read before it is used.
    ahead: WorkQueue<Piece>,
    /// Whether runs of misses are followed.
    follows: bool,
    /// Faults that have to wait for something.
    errands: fault::Errands,
}

pub(crate) struct State {
    flags: Vec<u8>,
    resident: usize,
    /// Segments on their way to flash: no longer dirty, not yet in the tables.
    writing: usize,
    /// Those whose flags say `DIRTY`.
    dirty: DirtySet,
    /// Where write-back goes on, by controller.
    hands: Vec<Index>,
    /// Segments that are being loaded.
    loading: usize,
    /// Those of them that are to be stored to: dirty when they are there.
    admitted: usize,
    policy: Policy,
    /// Segments that are loaded without being resident.
    buffer: DeviceBuffer,
    staged: HashMap<Index, AlignedBuf>,
    /// Counts the times that contents changed other than by stores (rollback, free): a load that
    /// spans one must be repeated.
    generation: u64,
    /// Runs of misses.
    runs: Streams,
    /// Segments that stay, by their numbers.
    pinned: Spans,
    pinned_count: usize,
    /// Threads that wait for a change.
    waiters: usize,
    /// The evictor knows that frames are wanted.
    told: bool,
    /// Frames are wanted, and all that there are are dirty.
    starved: bool,
    /// Pages made read-only because the device is full.
    refused: Vec<Index>,
    damage: Vec<PoolError>,
    /// Why the last write-back failed, until one succeeds.
    stalled: Option<String>,
    stopping: bool,
    /// Why the pool has stopped.
    halted: Option<String>,
}

impl State {
    /// Frames in use: by resident segments and by the device buffer.
    fn frames(&self) -> usize {
        self.resident + self.buffer.held()
    }

    fn remember(&mut self, error: PoolError) {
        if self.damage.len() < MOST_DAMAGE {
            self.damage.push(error);
        }
    }
}

/// What an access wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
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
        let ahead = WorkQueue::new().map_err(|source| stores[0].device_error("making an eventfd", source))?;
        let controllers = stores.len();
        let queues = Queues::new(stores[0].device(), loads.depth);
        let cache = Self {
            region,
            stores,
            counters,
            segment_bytes,
            per_page,
            stride: stride_pages * per_page,
            state: Mutex::new(State {
                flags: vec![0; segments],
                resident: 0,
                writing: 0,
                dirty: DirtySet::new(segments),
                hands: vec![0; controllers],
                loading: 0,
                admitted: 0,
                policy: policy(options.policy, most_frames),
                buffer,
                staged: HashMap::new(),
                generation: 0,
                runs: Streams::new((most_frames / WINDOW_SHARE).max(1)),
                pinned: Spans::new(),
                pinned_count: 0,
                waiters: 0,
                told: false,
                starved: false,
                refused: Vec::new(),
                damage: Vec::new(),
                stalled: None,
                stopping: false,
                halted: None,
            }),
            changed: Condvar::new(),
            work: Condvar::new(),
            writing: Condvar::new(),
            limit: AtomicUsize::new(0),
            rights: AtomicU64::new(0),
            budget: AtomicUsize::new(budget),
            handlers,
            queues,
            ahead,
            follows: options.faults.ahead,
            errands: fault::Errands::default(),
        };
        cache.retune()?;
        Ok(cache)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.guard(self.state.lock())
    }

    fn wait<'a>(&'a self, mut guard: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        guard.waiters += 1;
        let mut guard = self.guard(self.changed.wait(guard));
        guard.waiters -= 1;
        guard
    }

    /// Threads that wait for a change.
    #[cfg(test)]
    pub(crate) fn waiters(&self) -> usize {
        self.lock().waiters
    }

    /// Has those who wait for a change look again.
    fn announce(&self, state: &State) {
        if state.waiters > 0 {
            self.changed.notify_all();
        }
    }

    pub(crate) fn store_of(&self, index: Index) -> (&Arc<Store>, PageId, u8) {
        let store = &self.stores[(index / self.stride) as usize];
        let within = index % self.stride;
        (store, PageId(within / self.per_page), (within % self.per_page) as u8)
    }

    /// The first segment of a page.
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

    /// The counters, and what is in use now.
    pub(crate) fn stats(&self) -> Stats {
        // What they count happens under the lock, mostly: an access that has ended has been counted.
        let state = self.lock();
        let counters = self.counters.read();
        let staged = state.staged.len() * self.segment_bytes;
        let dram = state.frames() * self.segment_bytes + staged + self.overhead(&state) + self.handlers;
        Stats {
            resident_segments: state.resident as u64,
            dirty_segments: state.dirty.len() as u64,
            buffered_segments: state.buffer.len() as u64,
            promotion_threshold: u64::from(state.buffer.threshold()),
            dram_bytes: dram as u64,
            budget_bytes: (self.budget.load(Relaxed) + self.handlers) as u64,
            ..counters
        }
    }

    /// Damage met by mapped accesses since the last call.
    pub(crate) fn take_damage(&self) -> Vec<PoolError> {
        std::mem::take(&mut self.lock().damage)
    }

    /// Forgets these segments: their contents have changed beneath the cache.
    pub(crate) fn forget(&self, state: &mut State, segments: impl IntoIterator<Item = Index>) {
        state.generation += 1;
        let mut dropped = Vec::new();
        for index in segments {
            state.buffer.forget(index);
            let flags = state.flags[index as usize];
            // One that is being loaded will be loaded again: the generation has changed.
            if flags & LOADING != 0 || flags == 0 {
                continue;
            }
            if flags & DIRTY != 0 {
                state.dirty.remove(index);
            }
            if flags & RESIDENT != 0 {
                state.resident -= 1;
                state.policy.remove(index);
            }
            state.staged.remove(&index);
            state.flags[index as usize] = 0;
            dropped.push(index);
        }
        dropped.sort_unstable();
        if let (Some(&first), discarded) = (dropped.first(), self.discard(&dropped)) {
            // What is left there would be taken for new contents.
            self.must(state, "madvise(MADV_DONTNEED)", first, discarded);
        }
        self.announce(state);
    }

    /// Drops the frames of these segments, sorted.
    fn discard(&self, sorted: &[Index]) -> std::io::Result<()> {
        let runs: Vec<(usize, usize)> = sorted
            .chunk_by(|a, b| a + 1 == *b)
            .map(|run| (self.offset(run[0]), run.len() * self.segment_bytes))
            .collect();
        self.region.discard(&runs)
    }

    /// The segments that are dirty.
    pub(crate) fn dirty(&self, state: &State) -> Vec<Index> {
        state.dirty.iter().collect()
    }

    /// Tells the write-back thread that there may be something to do.
    pub(crate) fn nudge(&self) {
        self.writing.notify_one();
    }

    /// Stops the evictor, write-back, and whoever waits.
    pub(crate) fn stop(&self) {
        self.lock().stopping = true;
        self.work.notify_all();
        self.writing.notify_all();
        self.changed.notify_all();
    }

    /// Makes the mapped address unusable, when nobody copies from it or serves its faults any
    /// more: better a signal than a thread that waits for ever.
    pub(crate) fn shut(&self) {
        let _state = self.lock();
        self.close_mapping();
    }
}
