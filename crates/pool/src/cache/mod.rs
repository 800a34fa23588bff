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
//! 4. All flag changes happen under one lock, and so do protection changes, except that a `LOADING`
//!    segment belongs to the thread that loads it.
//! 5. `resident` counts `LOADING` segments too; with the slots of the device buffer it never exceeds `limit`.
//!
//! Lock order: a store's log, then this cache, then a store's tables.

mod device_buffer;
mod fault;
mod flush;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use deepram_core::cache::{Clock, Replacement};
use deepram_core::{Addr, Bytes, PageId, Status};

use self::device_buffer::{DeviceBuffer, Queues};
use crate::buffer::AlignedBuf;
use crate::error::{PoolError, Result};
use crate::options::LoadOptions;
use crate::region::Region;
use crate::stats::{Counters, Stats, add};
use crate::store::{Fetched, Store};

pub(crate) use device_buffer::Part;
pub(crate) use fault::Handlers;
pub(crate) use flush::Cut;

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
    /// The write-back thread has work.
    work: Condvar,
    limit: AtomicUsize,
    budget: usize,
    /// For reads of gathers.
    queues: Queues,
}

pub(crate) struct State {
    flags: Vec<u8>,
    resident: usize,
    dirty_count: usize,
    /// Segments on their way to flash: no longer dirty, not yet in the tables.
    writing: usize,
    /// Segments that became dirty, oldest first. May name segments that are clean again, or twice.
    dirty: VecDeque<Index>,
    clock: Clock,
    /// Segments that are loaded without being resident.
    buffer: DeviceBuffer,
    staged: HashMap<Index, AlignedBuf>,
    /// Counts the times that contents changed other than by stores (rollback, free): a load that
    /// spans one must be repeated.
    generation: u64,
    /// Pages made read-only because the device is full.
    refused: Vec<Index>,
    damage: Vec<PoolError>,
    /// Why the last write-back failed, until one succeeds.
    stalled: Option<String>,
    stopping: bool,
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
        budget: usize,
        loads: &LoadOptions,
    ) -> Result<Self> {
        let size = stores[0].segment();
        let segment_bytes = size.bytes() as usize;
        let per_page = u32::from(size.per_page());
        let segments = stride_pages as usize * per_page as usize * stores.len();
        let most_frames = (budget / segment_bytes).min(segments);
        let slots = loads.slots(most_frames, segment_bytes)?;
        let buffer = DeviceBuffer::new(slots, segment_bytes, loads)
            .map_err(|source| stores[0].device_error("mapping memory for the device buffer", source))?;
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
                dirty_count: 0,
                writing: 0,
                dirty: VecDeque::new(),
                clock: Clock::new(most_frames),
                buffer,
                staged: HashMap::new(),
                generation: 0,
                refused: Vec::new(),
                damage: Vec::new(),
                stalled: None,
                stopping: false,
            }),
            changed: Condvar::new(),
            work: Condvar::new(),
            limit: AtomicUsize::new(0),
            budget,
            queues: Queues::new(loads.depth),
        };
        cache.retune()?;
        Ok(cache)
    }

    /// DRAM that is not frames: tables, queues, this cache's own bookkeeping.
    fn overhead(&self, state: &State) -> usize {
        let stores: usize = self.stores.iter().map(|s| s.memory_bytes()).sum();
        let dirty = state.dirty.capacity() * size_of::<Index>();
        stores + state.flags.len() + state.clock.memory_bytes() + state.buffer.memory_bytes() + dirty
    }

    /// Sets the number of frames to what the budget leaves beside tables and buffers.
    pub(crate) fn retune(&self) -> Result<()> {
        let overhead = self.overhead(&self.lock());
        let left = self.budget.saturating_sub(overhead);
        // Staged copies live beside the frames, and so does each handler's buffer.
        let frames = left / self.segment_bytes;
        let frames = frames - frames / STAGING_SHARE;
        if frames < LEAST_FRAMES {
            let least = overhead + (LEAST_FRAMES + LEAST_FRAMES / 8) * self.segment_bytes;
            return Err(PoolError::Budget {
                given: Bytes(self.budget as u64),
                tables: Bytes(overhead as u64),
                least: Bytes(least as u64),
            });
        }
        self.limit.store(frames, Relaxed);
        Ok(())
    }

    fn limit(&self) -> usize {
        self.limit.load(Relaxed)
    }

    fn staging_limit(&self) -> usize {
        self.limit() / STAGING_SHARE
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic under the lock would be a defect of ours; the data are as the last step left them.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn wait<'a>(&self, guard: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(guard).unwrap_or_else(std::sync::PoisonError::into_inner)
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

    /// Adds what is in use now to a reading of the counters.
    pub(crate) fn usage(&self, counters: Stats) -> Stats {
        let state = self.lock();
        let staged = state.staged.len() * self.segment_bytes;
        let dram = state.frames() * self.segment_bytes + staged + self.overhead(&state);
        Stats {
            resident_segments: state.resident as u64,
            dirty_segments: state.dirty_count as u64,
            buffered_segments: state.buffer.len() as u64,
            promotion_threshold: u64::from(state.buffer.threshold()),
            dram_bytes: dram as u64,
            budget_bytes: self.budget as u64,
            ..counters
        }
    }

    /// Damage met by mapped accesses since the last call.
    pub(crate) fn take_damage(&self) -> Vec<PoolError> {
        std::mem::take(&mut self.lock().damage)
    }

    /// Makes a segment resident and, for a write, dirty. The guard keeps it so.
    ///
    /// The caller has checked the page's permissions.
    pub(crate) fn resident(
        &self,
        index: Index,
        access: Access,
        buffer: &mut [u8],
    ) -> Result<MutexGuard<'_, State>> {
        loop {
            let mut state = self.lock();
            if state.stopping {
                return Err(PoolError::Closed);
            }
            let flags = state.flags[index as usize];
            if flags & LOADING != 0 {
                drop(self.wait(state));
                continue;
            }
            if flags & RESIDENT != 0 {
                if access == Access::Write && (flags & DIRTY == 0 || flags & FROZEN != 0) {
                    match self.make_dirty(state, index)? {
                        Some(guard) => state = guard,
                        None => continue,
                    }
                }
                state.clock.touch(index);
                return Ok(state);
            }
            self.load(state, index, access, buffer)?;
        }
    }

    /// Brings an absent segment in. Returns without error also where another thread was faster.
    fn load<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        index: Index,
        access: Access,
        buffer: &mut [u8],
    ) -> Result<()> {
        if state.frames() >= self.limit() && self.evict(&mut state, 1) == 0 {
            // The buffer gives way before anybody waits.
            state.buffer.shed();
        }
        if state.frames() >= self.limit() {
            self.stalled(&state, index)?;
            self.work.notify_one();
            drop(self.wait(state));
            return Ok(());
        }
        if access == Access::Write {
            self.admit(&state, index)?;
        }
        if state.flags[index as usize] & POISONED != 0 {
            // Another try: the damage may have been in the transfer.
            let cleared = self.discard(&[index]);
            debug_assert!(cleared.is_ok());
        }
        state.flags[index as usize] = LOADING;
        state.resident += 1;
        let (store, page, segment) = self.store_of(index);
        let mut buffered = state.buffer.spoil(index);
        loop {
            let fetched = if let Some(slot) = buffered.take() {
                buffer[..self.segment_bytes].copy_from_slice(slot.bytes());
                state.buffer.recycle(slot);
                Ok(Fetched::Data)
            } else {
                let generation = state.generation;
                drop(state);
                let fetched = store.fetch(page, segment, &mut buffer[..self.segment_bytes]);
                state = self.lock();
                if state.generation != generation {
                    continue;
                }
                fetched
            };
            let installed = fetched.and_then(|fetched| {
                if fetched == Fetched::Zero {
                    buffer[..self.segment_bytes].fill(0);
                }
                self.region
                    .install(self.offset(index), &buffer[..self.segment_bytes], access == Access::Read)
                    .map_err(|source| store.device_error("UFFDIO_COPY", source))
            });
            if let Err(error) = installed {
                state.flags[index as usize] = 0;
                state.resident -= 1;
                self.changed.notify_all();
                return Err(error);
            }
            break;
        }
        add(&self.counters.loads, 1);
        state.flags[index as usize] = RESIDENT;
        state.clock.insert(index);
        if access == Access::Write {
            self.mark_dirty(&mut state, index);
        }
        if state.frames() + self.headroom() > self.limit() {
            self.work.notify_one();
        }
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Nothing comes free while write-back fails: an error is better than waiting for ever.
    fn stalled(&self, state: &State, index: Index) -> Result<()> {
        let Some(why) = &state.stalled else { return Ok(()) };
        let source = std::io::Error::other(why.clone());
        Err(self.store_of(index).0.device_error("making room in the DRAM cache", source))
    }

    /// Frames that the write-back thread keeps free ahead of need.
    fn headroom(&self) -> usize {
        (self.limit() / 32).clamp(16, 4096)
    }

    /// Most dirty segments before write-back starts on its own.
    fn dirty_limit(&self) -> usize {
        self.limit() / 2
    }

    /// Whether one more segment may become dirty: there must be room on flash for it.
    fn admit(&self, state: &State, index: Index) -> Result<()> {
        let (store, ..) = self.store_of(index);
        // Dirty segments of other controllers count too: a little early beats too late.
        store.admit((state.dirty_count + state.writing) as u64 + 1)
    }

    /// Turns a clean or frozen resident segment dirty. `None`: the lock was given up meanwhile,
    /// look again.
    fn make_dirty<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        index: Index,
    ) -> Result<Option<MutexGuard<'a, State>>> {
        if state.flags[index as usize] & DIRTY == 0 {
            self.admit(&state, index)?;
        }
        if state.flags[index as usize] & FROZEN != 0 {
            if state.staged.len() >= self.staging_limit() {
                drop(self.wait(state));
                return Ok(None);
            }
            let mut copy = AlignedBuf::zeroed(self.segment_bytes);
            self.region.copy_out(self.offset(index), &mut copy);
            state.staged.insert(index, copy);
            state.flags[index as usize] &= !FROZEN;
            add(&self.counters.staged_copies, 1);
        }
        self.region
            .unprotect(self.offset(index), self.segment_bytes)
            .map_err(|source| self.store_of(index).0.device_error("UFFDIO_WRITEPROTECT", source))?;
        if state.flags[index as usize] & DIRTY == 0 {
            self.mark_dirty(&mut state, index);
        }
        Ok(Some(state))
    }

    fn mark_dirty(&self, state: &mut State, index: Index) {
        state.flags[index as usize] |= DIRTY;
        state.dirty.push_back(index);
        state.dirty_count += 1;
        if state.dirty_count > self.dirty_limit() {
            self.work.notify_one();
        }
    }

    /// Drops up to `n` clean segments, least recently used first. Returns how many.
    fn evict(&self, state: &mut State, n: usize) -> usize {
        let mut victims = Vec::with_capacity(n);
        while victims.len() < n {
            let State { clock, flags, .. } = &mut *state;
            let Some(index) = clock.victim(&mut |key| flags[key as usize] == RESIDENT) else { break };
            victims.push(index);
        }
        victims.sort_unstable();
        if self.discard(&victims).is_err() {
            // They stay: frames too many are better than bytes lost.
            victims.drain(..).for_each(|index| state.clock.insert(index));
        }
        for &index in &victims {
            state.flags[index as usize] = 0;
        }
        state.resident -= victims.len();
        let evicted = victims.len();
        add(&self.counters.evictions, evicted as u64);
        evicted
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
                state.dirty_count -= 1;
            }
            if flags & RESIDENT != 0 {
                state.resident -= 1;
                state.clock.remove(index);
            }
            state.staged.remove(&index);
            state.flags[index as usize] = 0;
            dropped.push(index);
        }
        dropped.sort_unstable();
        // Fails only on a range that is not mapped, and the region always is.
        let discarded = self.discard(&dropped);
        debug_assert!(discarded.is_ok(), "{discarded:?}");
        self.changed.notify_all();
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
        state.dirty.iter().copied().filter(|&index| state.flags[index as usize] & DIRTY != 0).collect()
    }

    /// Tells the write-back thread that there may be something to do.
    pub(crate) fn nudge(&self) {
        self.work.notify_one();
    }

    /// Sets what user code may do with a page through the mapped address.
    pub(crate) fn set_access(
        &self,
        controller: u32,
        first: PageId,
        count: u32,
        status: Status,
    ) -> Result<()> {
        if !self.region.is_watched() {
            return Ok(());
        }
        let offset = self.offset(self.index_of(controller, first));
        let len = count as usize * self.per_page as usize * self.segment_bytes;
        self.region
            .set_access(offset, len, status.readable(), status.writable())
            .map_err(|source| self.stores[controller as usize].device_error("mprotect", source))
    }

    /// Stops the write-back thread.
    pub(crate) fn stop(&self) {
        self.lock().stopping = true;
        self.work.notify_all();
        self.changed.notify_all();
    }

    /// Makes the mapped address unusable, when nobody copies from it or serves its faults any
    /// more: better a signal than a thread that waits for ever.
    pub(crate) fn shut(&self) {
        if self.region.is_watched() {
            let len = self.region.len();
            let closed = self.region.set_access(0, len, false, false);
            debug_assert!(closed.is_ok());
            let woken = self.region.wake(0, len);
            debug_assert!(woken.is_ok());
        }
    }

    /// An error once the pool is being closed.
    pub(crate) fn ensure_open(&self) -> Result<()> {
        if self.lock().stopping { Err(PoolError::Closed) } else { Ok(()) }
    }

    /// Body of the write-back thread: keeps frames free and the stores in order until stopped.
    pub(crate) fn keep_house(&self) {
        // Under constant load it is never idle, but the tables grow and tokens expire all the same.
        let mut tend = false;
        loop {
            let mut state = self.lock();
            if state.stopping {
                return;
            }
            let wanted = (state.frames() + self.headroom()).saturating_sub(self.limit());
            let shed = if wanted > 0 { state.buffer.shed_idle(wanted.min(256)) } else { 0 };
            let evicted =
                if wanted > shed { shed + self.evict(&mut state, (wanted - shed).min(256)) } else { shed };
            if evicted > 0 {
                drop(state);
                self.changed.notify_all();
                if std::mem::take(&mut tend) {
                    self.tend();
                }
                continue;
            }
            let write = wanted > 0 || state.dirty_count > self.dirty_limit();
            if write && state.dirty_count > 0 {
                drop(state);
                let result = self.write_back();
                tend = true;
                let mut state = self.lock();
                let failed = result.is_err();
                state.stalled = result.as_ref().err().map(ToString::to_string);
                if let Err(error) = result {
                    state.remember(error);
                }
                if failed && !state.stopping {
                    self.changed.notify_all();
                    // Not again at once: the device needs a moment, or somebody to make room.
                    drop(self.work.wait_timeout(state, Duration::from_millis(50)));
                }
                continue;
            }
            drop(state);
            if self.tend() {
                continue;
            }
            let state = self.lock();
            if state.stopping {
                return;
            }
            if wanted == 0 && state.frames() + self.headroom() > self.limit() {
                continue;
            }
            drop(self.work.wait_timeout(state, Duration::from_millis(200)));
        }
    }

    /// A piece of the work that need not wait for anybody; whether there is more at hand.
    fn tend(&self) -> bool {
        let busy = self.stores.iter().any(|store| store.tend());
        // Where the tables leave too few frames, those there were stay.
        let retuned = self.retune();
        debug_assert!(retuned.is_ok() || self.limit() > 0);
        busy
    }
}
