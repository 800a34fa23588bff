//! Frames and eviction. Two threads keep frames free: the evictor drops clean segments ahead of need, and write-back
//! makes dirty segments clean at the same time.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use deepram_core::Bytes;
use deepram_core::cache::Replacement;
use deepram_core::paging::PoolWatermarks;

use super::{Cache, CacheState, Index};
use crate::error::{PoolError, Result};
use crate::published::{self, Published};
use crate::stats::add;
use deepram_pager::service::{HandlerGroup, SharedProcessor};

const LEAST_FRAMES: usize = PoolWatermarks::LEAST_FRAMES;
/// Longest sleep of the two threads without a notification: tokens expire, tables grow, and counters are published.
const IDLE_SLEEP: Duration = published::INTERVAL;
/// Time that write-back waits after an error, so that the device can recover or a program can make room.
const ERROR_PAUSE: Duration = Duration::from_millis(50);

/// The replacement policy.
pub(super) type Policy = Box<dyn Replacement<Index> + Send>;

impl Cache {
    /// Returns the DRAM that is not frames: tables, queues and the cache's own bookkeeping, in bytes.
    pub(super) fn overhead(&self, state: &CacheState) -> usize {
        let stores: usize = self.stores.iter().map(|s| s.memory_bytes()).sum();
        stores
            + state.segments.len()
            + state.policy.memory_bytes()
            + state.buffer.memory_bytes()
            + state.dirty.memory_bytes()
            + state.chunks.memory_bytes()
    }

    /// Sets the number of frames to the part of the budget that tables and buffers leave. The lock is held because the budget
    /// may be changing.
    pub(super) fn update_frame_limit(&self, state: &CacheState) -> Result<()> {
        let frames = self.frames_for(self.budget.load(Relaxed), state)?;
        self.limit.store(frames, Relaxed);
        Ok(())
    }

    /// Returns the number of frames that a budget leaves besides tables and buffers.
    pub(super) fn frames_for(&self, budget: usize, state: &CacheState) -> Result<usize> {
        let overhead = self.overhead(state);
        let left = budget.saturating_sub(overhead);
        let PoolWatermarks { frames } = PoolWatermarks::of_room(left / self.segment_bytes);
        if frames < LEAST_FRAMES {
            let overhead = overhead + self.handlers;
            let least = overhead + (LEAST_FRAMES + PoolWatermarks::GROWTH) * self.segment_bytes;
            return Err(PoolError::Budget {
                given: Bytes((budget + self.handlers) as u64),
                tables: Bytes(overhead as u64),
                least: Bytes(least as u64),
            });
        }
        Ok(frames)
    }

    pub(super) fn limit(&self) -> usize {
        self.limit.load(Relaxed)
    }

    /// Returns the watermarks of the present budget.
    pub(super) fn watermarks(&self) -> PoolWatermarks {
        PoolWatermarks { frames: self.limit() }
    }

    /// Notifies the evictor if few frames are free.
    pub(super) fn notify_evictor(&self, state: &mut CacheState) {
        if !state.evictor_notified && self.watermarks().wakes_evictor(state.frames()) {
            state.evictor_notified = true;
            self.evictor_work.notify_one();
        }
    }

    /// Returns an error if write-back has failed: no frame will become free, and an error is better than waiting for
    /// ever.
    pub(super) fn check_write_back(&self, state: &CacheState, index: Index) -> Result<()> {
        let Some(why) = &state.write_back_error else { return Ok(()) };
        let source = std::io::Error::other(why.clone());
        Err(self.store_of(index).0.device_error("making room in the DRAM cache", source))
    }

    /// Waits until a frame may be free.
    pub(super) fn wait_for_frame<'a>(
        &'a self,
        mut state: MutexGuard<'a, CacheState>,
    ) -> MutexGuard<'a, CacheState> {
        state.evictor_notified = true;
        self.evictor_work.notify_one();
        self.wait(state)
    }

    /// Returns whether `n` more frames are available, after evicting clean segments if necessary.
    pub(super) fn make_room(&self, state: &mut CacheState, n: usize) -> bool {
        let marks = self.watermarks();
        if marks.missing(state.frames(), n + marks.headroom() / 4) > 0 {
            // Tables may have grown. If they leave too few frames, the number of frames stays.
            drop(self.update_frame_limit(state));
        }
        loop {
            let count = self.watermarks().fault_drops(state.frames(), n);
            if count > 0 && self.evict(state, count, None) == 0 && !self.shed(state) {
                return false;
            }
            if count == 0 {
                return true;
            }
        }
    }

    /// Takes frames back that hold no resident segment, before any thread waits: one of the device buffer, or those of a
    /// stage. Returns false if there are none.
    pub(super) fn shed(&self, state: &mut CacheState) -> bool {
        state.buffer.shed() || self.shed_stage(state, Duration::ZERO)
    }

    /// Evicts about `n` clean segments that the policy chooses, a huge page as a whole; through the stage `spare` if
    /// given, which belongs to the caller, has no page before and the huge page's afterwards. Returns their number.
    pub(super) fn evict(&self, state: &mut CacheState, n: usize, spare: Option<usize>) -> usize {
        let kept = state.dirty.len() + state.writing + state.filling + state.pinned_count;
        if !PoolWatermarks::may_drop(state.resident, kept) {
            return 0;
        }
        let mut victims = Vec::with_capacity(n);
        while victims.len() < n {
            let CacheState { policy, segments, pinned, .. } = &mut *state;
            let mut eligible =
                |key: Index| segments[key as usize].may_drop() && !pinned.contains(key as usize);
            let Some(index) = policy.victim(&mut eligible) else { break };
            match (self.take_huge(state, index), spare) {
                (Some(chunk), Some(stage)) => {
                    return self.drop_clean(state, victims) + self.move_out(state, chunk, stage);
                }
                (Some(chunk), None) => victims.extend(chunk),
                (None, _) => victims.push(index),
            }
        }
        self.drop_clean(state, victims)
    }

    /// Drops these clean segments, which the policy no longer holds. Returns their number.
    pub(super) fn drop_clean(&self, state: &mut CacheState, mut victims: Vec<Index>) -> usize {
        victims.sort_unstable();
        if let (Some(&first), discarded) = (victims.first(), self.discard(&victims)) {
            // It is unknown whether the frames are still there.
            self.halt_on_error(state, "madvise(MADV_DONTNEED)", first, discarded);
        }
        for &index in &victims {
            state.segments[index as usize].clear();
        }
        state.resident -= victims.len();
        add(&self.counters.evictions, victims.len() as u64);
        victims.len()
    }

    /// Body of the evictor thread: keeps frames free until the cache stops, and publishes the counters meanwhile.
    pub(crate) fn run_evictor(&self, published: Option<&Published>, handlers: Option<&HandlerGroup>) {
        let mut processor = SharedProcessor::default();
        let mut state = self.lock();
        let mut due = Instant::now();
        while !state.stopping {
            processor.follow(handlers);
            if Instant::now() >= due {
                if let Some(published) = published {
                    published.publish(&self.stats_of(&state), &self.counters.histograms);
                }
                self.flush_record();
                due = Instant::now() + published::INTERVAL;
            }
            let n = self.watermarks().evictor_drops(state.frames());
            let shed = if n > 0 { state.buffer.shed_idle(n) } else { 0 };
            let freed = if n > shed { shed + self.evict(&mut state, n - shed, None) } else { shed };
            if freed > 0 {
                self.notify_waiters(&state);
                drop(state);
                // Let the thread run first whose faults are served on this processor.
                std::thread::yield_now();
                state = self.lock_after_waiters();
                continue;
            }
            self.shed_idle_stages(&mut state);
            // While no clean segment is left, fills do not notify the evictor, but completed write-backs do.
            state.starved = n > 0;
            state.evictor_notified = n > 0;
            if n > 0 {
                self.write_back_work.notify_one();
            }
            let slept = self.evictor_work.wait_timeout(state, IDLE_SLEEP);
            state = self.lock_or_halt(
                slept.map(|(state, _)| state).map_err(|poisoned| PoisonError::new(poisoned.into_inner().0)),
            );
        }
    }

    /// Returns whether write-back has work.
    fn needs_write_back(&self, state: &CacheState) -> bool {
        self.watermarks().needs_write_back(state.dirty.len(), state.starved)
    }

    /// Body of the write-back thread: keeps segments clean and maintains the stores until the cache stops.
    pub(crate) fn run_writeback(&self, handlers: Option<&HandlerGroup>) {
        let mut processor = SharedProcessor::default();
        loop {
            processor.follow(handlers);
            let state = self.lock();
            if state.stopping {
                return;
            }
            let behind = self.needs_write_back(&state);
            let starved = state.starved;
            drop(state);
            // While the day's writes are used up, segments are written back only for a thread that waits for a frame.
            let allowed = self.may_write_in_background();
            let behind = behind && (starved || allowed);
            if behind {
                let result = self.write_back();
                if let Err(error) = &result {
                    tracing::warn!(%error, "write-back failed");
                }
                let mut state = self.lock();
                state.write_back_error = result.as_ref().err().map(ToString::to_string);
                // The written segments are clean and can be evicted.
                self.evictor_work.notify_one();
                if let Err(error) = result {
                    state.record_error(error);
                    if !state.stopping {
                        self.notify_waiters(&state);
                        drop(self.write_back_work.wait_timeout(state, ERROR_PAUSE));
                    }
                    continue;
                }
            }
            // Under constant load this thread is never idle, but tables grow and tokens expire all the same.
            let busy = self.maintain(allowed);
            let state = self.lock();
            let waiting = self.needs_write_back(&state) && (state.starved || allowed);
            if !busy && !state.stopping && !waiting {
                drop(self.write_back_work.wait_timeout(state, IDLE_SLEEP));
            }
        }
    }

    /// Does a piece of background maintenance. Returns whether more is waiting.
    fn maintain(&self, may_write: bool) -> bool {
        let busy = self.stores.iter().any(|store| store.maintain(may_write));
        // If the tables leave too few frames, the number of frames stays.
        drop(self.update_frame_limit(&self.lock()));
        busy
    }
}
