//! Loads by call, one segment at a time, and the steps that they share with gathers (FlatFlash, sections 3.2 and 3.4).

use std::sync::MutexGuard;

use super::super::permissions::is_permission_error;
use super::super::{Cache, CacheState, Index, Permit};
use super::ColdRead;
use crate::buffer_pool::ReadBuffer;
use crate::error::{PoolError, Result};
use crate::stats::add;
use crate::store::Fetched;

/// Destination of some bytes of one segment.
pub(crate) struct Part<'a> {
    pub(crate) index: Index,
    /// Offset of the first byte in the segment.
    pub(crate) within: usize,
    pub(crate) to: &'a mut [u8],
}

/// Result of looking a segment up.
pub(super) enum Lookup {
    /// The segment is in memory, and the parts are filled.
    Done,
    /// Another thread is bringing the segment into the DRAM cache.
    Filling,
    /// The segment must be read from the device.
    Cold,
}

fn fill(parts: &mut [Part<'_>], bytes: &[u8]) {
    for part in parts {
        part.to.copy_from_slice(&bytes[part.within..part.within + part.to.len()]);
    }
}

/// Adds the address of the segment to a read error that does not have one.
fn with_address(cache: &Cache, index: Index, error: PoolError) -> PoolError {
    match error {
        PoolError::Device { device, source, .. } => {
            PoolError::Unreadable { device, address: cache.address(index), source }
        }
        other => other,
    }
}

impl Cache {
    /// Returns the largest number of segments in the device buffer, including those being read; at least 2.
    pub(crate) fn buffer_slots(&self) -> usize {
        self.lock().buffer.slots.capacity()
    }

    /// Copies parts of one segment. A segment outside the DRAM cache stays outside until it is promoted.
    ///
    /// The caller has checked the page's permissions after it took the permit.
    pub(crate) fn load_cold(&self, parts: &mut [Part<'_>], permit: Permit) -> Result<()> {
        let Some(&Part { index, .. }) = parts.first() else { return Ok(()) };
        let mut state = self.lock();
        loop {
            match self.look_up(&mut state, parts, permit)? {
                Lookup::Done => return Ok(()),
                Lookup::Filling => {
                    state = self.wait(state);
                    continue;
                }
                Lookup::Cold => {}
            }
            let Some((cold, mut slot)) = self.begin(&mut state, index) else {
                state = self.wait_for_slot(state, index)?;
                continue;
            };
            drop(state);
            let (store, page, segment) = self.store_of(index);
            let fetched = store.fetch(page, segment, slot.bytes_mut());
            state = self.lock();
            if self.finish(&mut state, cold, slot, fetched, parts, permit)? {
                return Ok(());
            }
        }
    }

    /// Fills parts of a segment that is in memory.
    pub(super) fn look_up(
        &self,
        state: &mut CacheState,
        parts: &mut [Part<'_>],
        permit: Permit,
    ) -> Result<Lookup> {
        let index = parts[0].index;
        self.ensure_running(state)?;
        self.revalidate(state, index, permit)?;
        let segment = state.segments[index as usize];
        if segment.is_resident() {
            for part in parts {
                self.region.copy_out(self.offset(index) + part.within, part.to);
            }
            state.policy.touch(index);
            return Ok(Lookup::Done);
        }
        if segment.is_filling() {
            return Ok(Lookup::Filling);
        }
        state.buffer.admit_trigger(index);
        let Some((frame, bytes)) = state.buffer.find(index) else { return Ok(Lookup::Cold) };
        fill(parts, bytes);
        state.buffer.rrip.touch(frame);
        add(&self.counters.buffer_hits, parts.len() as u64);
        self.use_buffered(state, index, frame, parts.len());
        Ok(Lookup::Done)
    }

    /// Begins a device read, if a slot is available to read into.
    pub(super) fn begin(&self, state: &mut CacheState, index: Index) -> Option<(ColdRead, ReadBuffer)> {
        let slot = match state.buffer.slots.take_spare() {
            Some(slot) => slot,
            None => {
                let full = |state: &CacheState| state.frames() >= self.limit();
                if state.buffer.slots.may_grow() && full(state) {
                    self.evict(state, 1, None);
                }
                let grown = if full(state) { None } else { state.buffer.slots.grow() };
                grown.or_else(|| state.buffer.evict_for(index))?
            }
        };
        Some((state.buffer.begin(index, state.generation), slot))
    }

    /// Waits until a slot may be free: other reads hold all slots, or the DRAM cache is full of dirty segments.
    fn wait_for_slot<'a>(
        &'a self,
        state: MutexGuard<'a, CacheState>,
        index: Index,
    ) -> Result<MutexGuard<'a, CacheState>> {
        if state.buffer.held() == 0 {
            self.check_write_back(&state, index)?;
            return Ok(self.wait_for_frame(state));
        }
        Ok(self.wait(state))
    }

    /// Ends a device read: inserts the segment into the buffer and fills the parts. Returns false if the read was
    /// stale.
    pub(super) fn finish(
        &self,
        state: &mut CacheState,
        cold: ColdRead,
        slot: ReadBuffer,
        fetched: Result<Fetched>,
        parts: &mut [Part<'_>],
        permit: Permit,
    ) -> Result<bool> {
        let current = state.buffer.end(&cold, state.generation);
        let confirmed = self.revalidate(state, cold.index, permit);
        let result = match confirmed.and(fetched) {
            Err(error) if is_permission_error(&error) => {
                state.buffer.return_slot(slot);
                Err(error)
            }
            _ if !current => {
                state.buffer.return_slot(slot);
                add(&self.counters.stale_reads, 1);
                Ok(false)
            }
            Err(error) => {
                state.buffer.return_slot(slot);
                Err(with_address(self, cold.index, error))
            }
            // A segment of zeros needs no reading, so it is not buffered.
            Ok(Fetched::Zero) => {
                state.buffer.return_slot(slot);
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
        self.notify_waiters(state);
        result
    }

    /// Counts uses of a buffered segment, and promotes the segment at the threshold.
    fn use_buffered(&self, state: &mut CacheState, index: Index, frame: usize, uses: usize) {
        state.buffer.unused = 0;
        for _ in 0..uses {
            // Promotion waits for no frame: one will be free by the next use.
            let room = state.frames() < self.limit();
            let may = room && state.segments[index as usize].is_absent();
            if state.buffer.count_use(frame, may) {
                return self.promote(state, index);
            }
            if !room {
                self.notify_evictor(state);
            }
        }
    }

    /// Promotes a segment from the buffer into the DRAM cache, and so into the mapping.
    fn promote(&self, state: &mut CacheState, index: Index) {
        self.unstage(state, index);
        let Some((_, bytes)) = state.buffer.find(index) else { return };
        // If the kernel has no page for it now, the segment stays in the buffer.
        if self.region.install(self.offset(index), bytes, true).is_err() {
            return;
        }
        if let Some(slot) = state.buffer.take_for_fill(index) {
            state.buffer.return_slot(slot);
        }
        state.resident += 1;
        self.mark_resident(state, index);
        // The segment starts with more uses than one that a page fault brings in.
        state.policy.touch(index);
        add(&self.counters.promotions, 1);
        self.notify_evictor(state);
    }
}
