//! Loads by call, one segment at a time, and what they have in common with gathers.

use std::sync::MutexGuard;

use super::super::rights::is_refusal;
use super::super::{Cache, Index, LOADING, RESIDENT, Right, State};
use super::Cold;
use crate::buffer_pool::ReadBuffer;
use crate::error::{PoolError, Result};
use crate::stats::add;
use crate::store::Fetched;

/// Bytes of one segment that somebody wants.
pub(crate) struct Part<'a> {
    pub(crate) index: Index,
    /// First byte in the segment.
    pub(crate) within: usize,
    pub(crate) to: &'a mut [u8],
}

/// Where a segment is.
pub(super) enum Served {
    /// In memory, and the parts are filled.
    Done,
    /// Somebody is bringing it into the DRAM cache.
    Loading,
    /// On the device.
    Cold,
}

fn fill(parts: &mut [Part<'_>], bytes: &[u8]) {
    for part in parts {
        part.to.copy_from_slice(&bytes[part.within..part.within + part.to.len()]);
    }
}

/// The error of a read with the address of its segment, where it does not name one already.
fn named(cache: &Cache, index: Index, error: PoolError) -> PoolError {
    match error {
        PoolError::Device { device, source, .. } => {
            PoolError::Unreadable { device, address: cache.address(index), source }
        }
        other => other,
    }
}

impl Cache {
    /// Segments that the device buffer holds at most, those that are being read included; at least 2.
    pub(crate) fn buffer_slots(&self) -> usize {
        self.lock().buffer.slots.capacity()
    }

    /// Copies parts of one segment, which stays out of the DRAM cache if it is not there, until it is promoted.
    ///
    /// The caller has checked the page's permissions after it took the right.
    pub(crate) fn load_cold(&self, parts: &mut [Part<'_>], right: Right) -> Result<()> {
        let Some(&Part { index, .. }) = parts.first() else { return Ok(()) };
        let mut state = self.lock();
        loop {
            match self.look_up(&mut state, parts, right)? {
                Served::Done => return Ok(()),
                Served::Loading => {
                    state = self.wait(state);
                    continue;
                }
                Served::Cold => {}
            }
            let Some((cold, mut slot)) = self.begin(&mut state, index) else {
                state = self.wait_for_slot(state, index)?;
                continue;
            };
            drop(state);
            let (store, page, segment) = self.store_of(index);
            let fetched = store.fetch(page, segment, slot.bytes_mut());
            state = self.lock();
            if self.finish(&mut state, cold, slot, fetched, parts, right)? {
                return Ok(());
            }
        }
    }

    /// Fills parts of a segment that is in memory.
    pub(super) fn look_up(&self, state: &mut State, parts: &mut [Part<'_>], right: Right) -> Result<Served> {
        let index = parts[0].index;
        self.ensure_running(state)?;
        self.confirm(state, index, right)?;
        let flags = state.flags[index as usize];
        if flags & RESIDENT != 0 {
            for part in parts {
                self.region.copy_out(self.offset(index) + part.within, part.to);
            }
            state.policy.touch(index);
            return Ok(Served::Done);
        }
        if flags & LOADING != 0 {
            return Ok(Served::Loading);
        }
        state.buffer.unkeep(index);
        let Some((frame, bytes)) = state.buffer.find(index) else { return Ok(Served::Cold) };
        fill(parts, bytes);
        state.buffer.rrip.touch(frame);
        add(&self.counters.buffer_hits, parts.len() as u64);
        self.use_buffered(state, index, frame, parts.len());
        Ok(Served::Done)
    }

    /// Begins a read of the device: with a slot to read into, if there is one to be had.
    pub(super) fn begin(&self, state: &mut State, index: Index) -> Option<(Cold, ReadBuffer)> {
        let slot = match state.buffer.slots.take_spare() {
            Some(slot) => slot,
            None => {
                let full = |state: &State| state.frames() >= self.limit();
                if state.buffer.slots.may_grow() && full(state) {
                    self.evict(state, 1);
                }
                let grown = if full(state) { None } else { state.buffer.slots.grow() };
                grown.or_else(|| state.buffer.steal(index))?
            }
        };
        Some((state.buffer.begin(index, state.generation), slot))
    }

    /// Waits until there may be a slot: other reads have them all, or the DRAM cache is full of dirty segments.
    fn wait_for_slot<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        index: Index,
    ) -> Result<MutexGuard<'a, State>> {
        if state.buffer.held() == 0 {
            self.stalled(&state, index)?;
            return Ok(self.wait_for_frame(state));
        }
        Ok(self.wait(state))
    }

    /// Ends a read of the device: takes the segment into the buffer and fills the parts. False if it was stale.
    pub(super) fn finish(
        &self,
        state: &mut State,
        cold: Cold,
        slot: ReadBuffer,
        fetched: Result<Fetched>,
        parts: &mut [Part<'_>],
        right: Right,
    ) -> Result<bool> {
        let current = state.buffer.end(&cold, state.generation);
        let confirmed = self.confirm(state, cold.index, right);
        let result = match confirmed.and(fetched) {
            Err(error) if is_refusal(&error) => {
                state.buffer.recycle(slot);
                Err(error)
            }
            _ if !current => {
                state.buffer.recycle(slot);
                add(&self.counters.stale_reads, 1);
                Ok(false)
            }
            Err(error) => {
                state.buffer.recycle(slot);
                Err(named(self, cold.index, error))
            }
            // Needs no reading, so no buffering.
            Ok(Fetched::Zero) => {
                state.buffer.recycle(slot);
                parts.iter_mut().for_each(|part| part.to.fill(0));
                Ok(true)
            }
            Ok(Fetched::Data) => {
                fill(parts, slot.bytes());
                let (frame, left) = state.buffer.admit(cold.index, slot);
                add(&self.counters.cold_reads, 1);
                add(&self.counters.buffer_evictions, u64::from(left));
                self.use_buffered(state, cold.index, frame, parts.len());
                Ok(true)
            }
        };
        self.announce(state);
        result
    }

    /// Notes uses of a segment in the buffer, and promotes it when it has had enough.
    fn use_buffered(&self, state: &mut State, index: Index, frame: usize, uses: usize) {
        state.buffer.unused = 0;
        for _ in 0..uses {
            // Nobody waits for room: there is some by the next use.
            let room = state.frames() < self.limit();
            let may = room && state.flags[index as usize] == 0;
            if state.buffer.used(frame, may) {
                return self.promote(state, index);
            }
            if !room {
                self.tell(state);
            }
        }
    }

    /// Moves a segment from the buffer into the DRAM cache, and so into the mapping.
    fn promote(&self, state: &mut State, index: Index) {
        let Some((_, bytes)) = state.buffer.find(index) else { return };
        // Where the kernel has no page for it now, it stays in the buffer.
        if self.region.install(self.offset(index), bytes, true).is_err() {
            return;
        }
        if let Some(slot) = state.buffer.spoil(index) {
            state.buffer.recycle(slot);
        }
        state.resident += 1;
        self.loaded(state, index);
        // It comes with more uses than one that a fault brings.
        state.policy.touch(index);
        add(&self.counters.promotions, 1);
        self.tell(state);
    }
}
