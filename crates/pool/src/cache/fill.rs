//! Filling the DRAM cache: a call fills in its own thread, and a handler fills step by step, with many reads in
//! flight.

use std::sync::MutexGuard;

use super::{AccessKind, Cache, CacheState, Index, Permit};
use crate::error::Result;
use crate::stats::add;
use crate::store::Fetched;
use deepram_linux::buffer::AlignedBuf;

impl Cache {
    /// Makes a segment resident and, for a write, dirty. The segment stays so as long as the returned guard lives.
    ///
    /// The caller has checked the page's permissions after it took the permit.
    pub(crate) fn ensure_resident(
        &self,
        index: Index,
        permit: Permit,
        buffer: &mut [u8],
    ) -> Result<MutexGuard<'_, CacheState>> {
        let access = permit.access;
        let mut was_absent = false;
        loop {
            let mut state = self.lock();
            self.ensure_running(&state)?;
            self.revalidate(&state, index, permit)?;
            let segment = state.segments[index as usize];
            if segment.is_filling() {
                drop(self.wait(state));
                continue;
            }
            if segment.is_resident() {
                let settled = access == AccessKind::Read || segment.is_open_for_stores();
                if !settled && !self.make_dirty(&mut state, index)? {
                    drop(self.wait(state));
                    continue;
                }
                if was_absent {
                    self.record_missing(index, access);
                } else if !settled {
                    self.record_first_store(index);
                }
                if access == AccessKind::Write && !state.read_only_segments.is_empty() {
                    self.restore_write_access_to(&mut state, index);
                    self.ensure_running(&state)?;
                }
                state.touch(index);
                return Ok(state);
            }
            was_absent = true;
            self.fill(state, index, permit, buffer)?;
        }
    }

    /// Fills an absent segment. Also returns `Ok` if another thread was faster.
    pub(super) fn fill<'a>(
        &'a self,
        mut state: MutexGuard<'a, CacheState>,
        index: Index,
        permit: Permit,
        buffer: &mut [u8],
    ) -> Result<()> {
        let access = permit.access;
        if !self.begin_fill(&mut state, index, access)? {
            self.check_write_back(&state, index)?;
            drop(self.wait_for_frame(state));
            return Ok(());
        }
        if self.fill_from_buffer(&mut state, index, access)? {
            return Ok(());
        }
        let (store, page, segment) = self.store_of(index);
        let bytes = &mut buffer[..self.segment_bytes];
        loop {
            let generation = state.generation;
            drop(state);
            let fetched = store.fetch(page, segment, bytes);
            state = self.lock();
            let confirmed = self.revalidate(&state, index, permit);
            if confirmed.is_ok() && state.generation != generation {
                continue;
            }
            let fetched = confirmed.and(fetched);
            if matches!(fetched, Ok(Fetched::Zero)) {
                bytes.fill(0);
            }
            return match fetched {
                Ok(_) => self.end_fill(&mut state, index, access, bytes),
                Err(error) => {
                    self.fail_fill(&mut state, index, access);
                    drop(state);
                    // A thread whose fault was dropped because of this fill must fault again.
                    self.wake(index)?;
                    Err(error)
                }
            };
        }
    }

    /// Takes a frame for an absent segment and marks the segment as being filled. Returns false if no frame is
    /// available.
    pub(crate) fn begin_fill(
        &self,
        state: &mut CacheState,
        index: Index,
        access: AccessKind,
    ) -> Result<bool> {
        if !self.make_room(state, 1) {
            return Ok(false);
        }
        if state.segments[index as usize].is_poisoned() {
            // Try the read again: the bytes may have been damaged in transfer.
            let cleared = self.discard(&[index]);
            cleared
                .map_err(|source| self.store_of(index).0.device_error("madvise(MADV_DONTNEED)", source))?;
        }
        if access == AccessKind::Write {
            self.admit(state, index, 1)?;
            state.admitted += 1;
        }
        self.unstage(state, index);
        self.mark_filling(state, index);
        self.notify_evictor(state);
        Ok(true)
    }

    pub(super) fn mark_filling(&self, state: &mut CacheState, index: Index) {
        state.segments[index as usize].begin_fill();
        state.resident += 1;
        state.filling += 1;
    }

    /// Ends a fill that has just begun with the segment's bytes from the device buffer, if it has them, and removes
    /// them there. Returns false if not.
    pub(super) fn fill_from_buffer(
        &self,
        state: &mut CacheState,
        index: Index,
        access: AccessKind,
    ) -> Result<bool> {
        let Some(slot) = state.buffer.take_for_fill(index) else { return Ok(false) };
        let result = self.end_fill(state, index, access, slot.bytes());
        state.buffer.return_slot(slot);
        result.map(|()| true)
    }

    /// Claims never-written segments behind `index`, a never-written segment of which a fill has begun, to the end of its page
    /// if as many were touched right before it as a page has. Returns the number of neighbouring segments that the fill now
    /// has. No thread waits for them.
    pub(super) fn claim_fresh(&self, state: &mut CacheState, index: Index, access: AccessKind) -> usize {
        let (store, page, segment) = self.store_of(index);
        let is_absent = |index: Index| state.segments[index as usize].is_absent();
        // A shorter run may end here, and a segment that is not stored to would count as changed.
        if index % self.stride < self.per_page || (index - self.per_page..index).any(is_absent) {
            return 1;
        }
        let is_fresh = |n: &u32| {
            let other = index - u32::from(segment) + n;
            is_absent(other) && !state.buffer.holds(other) && store.is_unwritten(page, *n as u8)
        };
        let more = (u32::from(segment) + 1..self.per_page).take_while(is_fresh).count();
        let admitted = || access == AccessKind::Read || self.admit(state, index, more).is_ok();
        if more == 0 || !admitted() || !self.make_room(state, more) {
            return 1;
        }
        (index + 1..=index + more as Index).for_each(|other| self.mark_filling(state, other));
        if access == AccessKind::Write {
            state.admitted += more;
        }
        self.notify_evictor(state);
        more + 1
    }

    /// Ends the fills of neighbouring segments: installs their bytes, which wakes the threads that wait for them. On an
    /// error the segments are absent.
    pub(super) fn end_fill(
        &self,
        state: &mut CacheState,
        first: Index,
        access: AccessKind,
        bytes: &[u8],
    ) -> Result<()> {
        let segments = first..first + (bytes.len() / self.segment_bytes) as Index;
        if let Err(source) = self.region.install(self.offset(first), bytes, access == AccessKind::Read) {
            // A part of the range may have been installed.
            let discarded = self.discard(&segments.clone().collect::<Vec<_>>());
            self.halt_on_error(state, "madvise(MADV_DONTNEED)", first, discarded);
            segments.for_each(|index| self.fail_fill(state, index, access));
            return Err(self.store_of(first).0.device_error("UFFDIO_COPY", source));
        }
        state.filling -= segments.len();
        for index in segments {
            self.mark_resident(state, index);
            if access == AccessKind::Write {
                state.admitted -= 1;
                self.mark_dirty(state, index);
            }
        }
        self.notify_waiters(state);
        Ok(())
    }

    /// Marks an installed segment as resident.
    pub(super) fn mark_resident(&self, state: &mut CacheState, index: Index) {
        add(&self.counters.fills, 1);
        state.segments[index as usize].end_fill();
        state.policy.insert(index);
    }

    /// Ends a fill without a result. The caller wakes the threads that wait for the segment.
    pub(super) fn fail_fill(&self, state: &mut CacheState, index: Index, access: AccessKind) {
        state.segments[index as usize].clear();
        state.resident -= 1;
        state.filling -= 1;
        if access == AccessKind::Write {
            state.admitted -= 1;
        }
        self.notify_waiters(state);
    }

    /// Checks that flash has room for `more` dirty segments.
    pub(super) fn admit(&self, state: &CacheState, index: Index, more: usize) -> Result<()> {
        let (store, ..) = self.store_of(index);
        // Dirty segments of other controllers count too: an early refusal is better than a late one.
        store.admit((state.dirty.len() + state.writing + state.admitted + more) as u64)
    }

    /// Makes a clean or frozen resident segment dirty. Returns false if no frame is free for a staged copy; the
    /// caller then waits for a change.
    pub(super) fn make_dirty(&self, state: &mut CacheState, index: Index) -> Result<bool> {
        if !state.segments[index as usize].is_dirty() {
            self.admit(state, index, 1)?;
        }
        if state.segments[index as usize].needs_copy() {
            if state.staged.len() >= self.watermarks().staged_copies() || !self.make_room(state, 1) {
                return Ok(false);
            }
            let mut copy = AlignedBuf::zeroed(self.segment_bytes);
            self.region.copy_out(self.offset(index), &mut copy);
            state.staged.insert(index, copy);
            state.segments[index as usize].copied();
            add(&self.counters.staged_copies, 1);
        }
        self.open_for_stores(state, index)?;
        Ok(true)
    }

    /// Lets threads store to a resident segment, which is dirty from now on.
    pub(super) fn open_for_stores(&self, state: &mut CacheState, index: Index) -> Result<()> {
        self.split(state, index);
        self.region
            .unprotect(self.offset(index), self.segment_bytes)
            .map_err(|source| self.store_of(index).0.device_error("UFFDIO_WRITEPROTECT", source))?;
        if !state.segments[index as usize].is_dirty() {
            self.mark_dirty(state, index);
        }
        Ok(())
    }

    pub(super) fn mark_dirty(&self, state: &mut CacheState, index: Index) {
        state.segments[index as usize].make_dirty();
        state.dirty.insert(index);
        // Notify once, when the limit is crossed: write-back checks the limit again before it sleeps.
        if state.dirty.len() == self.watermarks().dirty_limit() + 1 {
            self.write_back_work.notify_one();
        }
    }
}
