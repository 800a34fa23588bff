//! Frames: how many there are, and the two threads that see to it that some are free. The evictor drops clean
//! segments ahead of need; write-back makes dirty ones clean, and goes on with it while the evictor drops others.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use deepram_core::Bytes;
use deepram_core::cache::{Clock, Replacement};

use super::{Cache, Index, LEAST_FRAMES, RESIDENT, STAGING_SHARE, State};
use crate::error::{PoolError, Result};
use crate::pager;
use crate::stats::add;

/// Segments dropped while the lock is held once.
const TOGETHER: usize = 32;
/// Segments that the evictor drops each time it is told: a wake-up for each would cost more, and a burst of many takes
/// the processor from whoever faults.
const BURST: usize = 256;
/// How long the threads sleep if nobody tells them anything: tokens expire, tables grow.
const PATIENCE: Duration = Duration::from_millis(200);
/// How long write-back waits after an error: the device needs a moment, or somebody to make room.
const PAUSE: Duration = Duration::from_millis(50);

/// Who says which segment leaves.
pub(super) type Policy = Box<dyn Replacement<Index> + Send>;

pub(super) fn policy(which: Option<pager::Policy>, frames: usize) -> Policy {
    match which {
        None => Box::new(Clock::new(frames)),
        Some(policy) => policy.build(frames),
    }
}

impl Cache {
    /// DRAM that is not frames: tables, queues, this cache's own bookkeeping.
    pub(super) fn overhead(&self, state: &State) -> usize {
        let stores: usize = self.stores.iter().map(|s| s.memory_bytes()).sum();
        stores
            + state.flags.len()
            + state.policy.memory_bytes()
            + state.buffer.memory_bytes()
            + state.dirty.memory_bytes()
    }

    /// Sets the number of frames to what the budget leaves beside tables and buffers.
    pub(crate) fn retune(&self) -> Result<()> {
        // Under the lock: the budget may be changing.
        let state = self.lock();
        let frames = self.frames_for(self.budget.load(Relaxed), &state)?;
        self.limit.store(frames, Relaxed);
        drop(state);
        Ok(())
    }

    /// Frames that so many bytes leave beside tables and buffers.
    pub(super) fn frames_for(&self, budget: usize, state: &State) -> Result<usize> {
        let overhead = self.overhead(state);
        let left = budget.saturating_sub(overhead);
        // Staged copies live beside the frames.
        let frames = left / self.segment_bytes;
        let frames = frames - frames / STAGING_SHARE;
        if frames < LEAST_FRAMES {
            let overhead = overhead + self.handlers;
            let least = overhead + (LEAST_FRAMES + LEAST_FRAMES / 8) * self.segment_bytes;
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

    pub(super) fn staging_limit(&self) -> usize {
        self.limit() / STAGING_SHARE
    }

    /// Frames that the evictor keeps free ahead of need.
    pub(super) fn headroom(&self) -> usize {
        (self.limit() / 32).clamp(16, 4096)
    }

    /// Most dirty segments before write-back starts on its own. The other half is clean, and can be dropped while
    /// those are written.
    pub(super) fn dirty_limit(&self) -> usize {
        self.limit() / 2
    }

    /// Tells the evictor, if few frames are left. Not at every load: each time costs a wake-up.
    pub(super) fn tell(&self, state: &mut State) {
        let burst = BURST.min(self.headroom() / 2);
        if !state.told && state.frames() + self.headroom() > self.limit() + burst {
            state.told = true;
            self.work.notify_one();
        }
    }

    /// Nothing comes free while write-back fails: an error is better than waiting for ever.
    pub(super) fn stalled(&self, state: &State, index: Index) -> Result<()> {
        let Some(why) = &state.stalled else { return Ok(()) };
        let source = std::io::Error::other(why.clone());
        Err(self.store_of(index).0.device_error("making room in the DRAM cache", source))
    }

    /// Waits until there may be a frame.
    pub(super) fn wait_for_frame<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.told = true;
        self.work.notify_one();
        self.wait(state)
    }

    /// Whether there is room for `n` segments more, for which clean ones are dropped at once if need be.
    pub(super) fn make_room(&self, state: &mut State, n: usize) -> bool {
        let wanted = |state: &State| (state.frames() + n).saturating_sub(self.limit());
        while wanted(state) > 0 {
            // More than one, as the evictor is behind. The device buffer gives way before anybody waits.
            let count = wanted(state).clamp(4, TOGETHER);
            if self.evict(state, count) == 0 && !state.buffer.shed() {
                return false;
            }
        }
        true
    }

    /// Drops up to `n` clean segments, as the policy chooses. Returns how many.
    pub(super) fn evict(&self, state: &mut State, n: usize) -> usize {
        // A policy would look at all of them; one that is dirty and being written counts twice here, and is clean soon.
        if state.resident <= state.dirty.len() + state.writing + state.loading + state.pinned_count {
            return 0;
        }
        let mut victims = Vec::with_capacity(n);
        while victims.len() < n {
            let State { policy, flags, pinned, .. } = &mut *state;
            let mut eligible = |key: Index| flags[key as usize] == RESIDENT && !pinned.contains(key as usize);
            let Some(index) = policy.victim(&mut eligible) else { break };
            victims.push(index);
        }
        self.drop_clean(state, victims)
    }

    /// Drops these clean segments, which the policy has forgotten. Returns how many.
    pub(super) fn drop_clean(&self, state: &mut State, mut victims: Vec<Index>) -> usize {
        victims.sort_unstable();
        if let (Some(&first), discarded) = (victims.first(), self.discard(&victims)) {
            // Whether they are there is not known.
            self.must(state, "madvise(MADV_DONTNEED)", first, discarded);
        }
        for &index in &victims {
            state.flags[index as usize] = 0;
        }
        state.resident -= victims.len();
        add(&self.counters.evictions, victims.len() as u64);
        victims.len()
    }

    /// Body of the evictor: keeps frames free until stopped.
    pub(crate) fn keep_room(&self) {
        let mut state = self.lock();
        while !state.stopping {
            let wanted = (state.frames() + self.headroom()).saturating_sub(self.limit());
            let n = wanted.min(TOGETHER);
            let shed = if n > 0 { state.buffer.shed_idle(n) } else { 0 };
            let freed = if n > shed { shed + self.evict(&mut state, n - shed) } else { shed };
            if freed > 0 {
                self.announce(&state);
                drop(state);
                // Whoever this processor's faults are served for goes first.
                std::thread::yield_now();
                state = self.lock();
                continue;
            }
            // Not told of more loads while there is nothing to drop, but of segments that have been written.
            state.starved = wanted > 0;
            state.told = wanted > 0;
            if wanted > 0 {
                self.writing.notify_one();
            }
            let slept = self.work.wait_timeout(state, PATIENCE);
            state = self.guard(
                slept.map(|(state, _)| state).map_err(|poisoned| PoisonError::new(poisoned.into_inner().0)),
            );
        }
    }

    /// Whether there is something to write back.
    fn is_behind(&self, state: &State) -> bool {
        state.dirty.len() > 0 && (state.starved || state.dirty.len() > self.dirty_limit())
    }

    /// Body of the write-back thread: keeps segments clean and the stores in order until stopped.
    pub(crate) fn keep_house(&self) {
        loop {
            let state = self.lock();
            if state.stopping {
                return;
            }
            let behind = self.is_behind(&state);
            drop(state);
            if behind {
                let result = self.write_back();
                let mut state = self.lock();
                state.stalled = result.as_ref().err().map(ToString::to_string);
                // What is clean now can be dropped.
                self.work.notify_one();
                if let Err(error) = result {
                    state.remember(error);
                    if !state.stopping {
                        self.announce(&state);
                        drop(self.writing.wait_timeout(state, PAUSE));
                    }
                    continue;
                }
            }
            // Under constant load it is never idle, but the tables grow and tokens expire all the same.
            let busy = self.tend();
            let state = self.lock();
            if !busy && !state.stopping && !self.is_behind(&state) {
                drop(self.writing.wait_timeout(state, PATIENCE));
            }
        }
    }

    /// A piece of the work that need not wait for anybody; whether there is more at hand.
    fn tend(&self) -> bool {
        let busy = self.stores.iter().any(|store| store.tend());
        // Where the tables leave too few frames, those there were stay.
        drop(self.retune());
        busy
    }
}
