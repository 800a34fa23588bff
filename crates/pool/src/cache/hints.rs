//! Hints of a program (`will_need`, `cold`, `pin`) and changes of the DRAM budget.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use deepram_core::Bytes;
use deepram_core::paging::PoolWatermarks;

use super::{Cache, CacheState, Index};
use crate::error::{PoolError, Result};
use crate::stats::add;

/// Segments dropped under one hold of the lock.
const SEGMENTS_PER_LOCK: usize = PoolWatermarks::DROPPED_TOGETHER;

impl Cache {
    /// Evicts the segments of a range, after the dirty ones have been written back.
    pub(crate) fn evict_range(&self, controller: usize, segments: Range<Index>) -> Result<()> {
        let mut log = self.stores[controller].lock_log();
        self.ensure_open()?;
        let taken = self.take_dirty(controller as u32, usize::MAX, &|index| segments.contains(&index));
        self.flush(&mut log, controller, &taken, None)?;
        add(&self.counters.write_backs, taken.len() as u64);
        drop(log);
        self.evict_huge_pages(segments.clone());
        for first in segments.clone().step_by(SEGMENTS_PER_LOCK) {
            let part = first..segments.end.min(first + SEGMENTS_PER_LOCK as Index);
            let mut state = self.lock();
            let leaves = |index: &Index| {
                state.segments[*index as usize].may_drop() && !state.pinned.contains(*index as usize)
            };
            let victims: Vec<Index> = part.filter(leaves).collect();
            victims.iter().for_each(|&index| state.policy.remove(index));
            if self.drop_clean(&mut state, victims) > 0 {
                self.notify_waiters(&state);
            }
        }
        Ok(())
    }

    /// Allows these segments to be evicted.
    pub(crate) fn unpin(&self, state: &mut CacheState, segments: Range<Index>) {
        state.pinned.remove(segments.start as usize, segments.end as usize);
        state.pinned_count = state.pinned.bytes();
    }

    /// Keeps these segments resident from the time they become resident.
    pub(crate) fn pin(&self, segments: Range<Index>) -> Result<()> {
        let mut state = self.lock();
        let mut wanted = state.pinned.clone();
        wanted.insert(segments.start as usize, segments.end as usize);
        let most = self.watermarks().pinned();
        if wanted.bytes() > most {
            let bytes = |segments: usize| Bytes((segments * self.segment_bytes) as u64);
            let (all, most) = (bytes(wanted.bytes()), bytes(most));
            let problem = format!(
                "{all} would be pinned in total, but at most half of the frames, {most}, may be pinned"
            );
            return Err(PoolError::Option { option: "pin", problem });
        }
        state.pinned_count = wanted.bytes();
        state.pinned = wanted;
        self.make_small(&mut state, segments);
        Ok(())
    }

    /// Changes the DRAM budget. If the budget shrinks, the call evicts clean segments before it returns; write-back
    /// makes the others clean later.
    pub(crate) fn set_dram(&self, bytes: u64) -> Result<()> {
        let budget = (bytes as usize).saturating_sub(self.handlers);
        let mut state = self.lock();
        let frames = self.frames_for(budget, &state)?;
        let pinned = state.pinned_count;
        if pinned > (PoolWatermarks { frames }).pinned() {
            let pinned = Bytes((pinned * self.segment_bytes) as u64);
            let problem = format!(
                "{} is too small: half of its frames hold less than the pinned {pinned}",
                Bytes(bytes)
            );
            return Err(PoolError::Option { option: "dram", problem });
        }
        self.budget.store(budget, Relaxed);
        self.limit.store(frames, Relaxed);
        state.buffer.set_limit(frames);
        while state.frames() > self.limit() {
            let n = (state.frames() - self.limit()).min(SEGMENTS_PER_LOCK);
            if self.evict(&mut state, n, None) == 0 && !self.shed(&mut state) {
                break;
            }
            drop(state);
            state = self.lock();
        }
        state.evictor_notified = true;
        self.evictor_work.notify_one();
        // A larger budget may have made frames available.
        self.notify_waiters(&state);
        Ok(())
    }
}
