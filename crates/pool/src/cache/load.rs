//! Bringing segments into the DRAM cache: what a call does in its own thread, and the steps that handlers take one
//! at a time, with many reads under way.

use std::sync::MutexGuard;

use super::{Access, Cache, DIRTY, FROZEN, Index, LOADING, POISONED, RESIDENT, Right, State};
use crate::buffer::AlignedBuf;
use crate::error::Result;
use crate::stats::add;
use crate::store::Fetched;

impl Cache {
    /// Makes a segment resident and, for a write, dirty. The guard keeps it so.
    ///
    /// The caller has checked the page's permissions after it took the right.
    pub(crate) fn resident(
        &self,
        index: Index,
        right: Right,
        buffer: &mut [u8],
    ) -> Result<MutexGuard<'_, State>> {
        let access = right.access;
        loop {
            let mut state = self.lock();
            self.ensure_running(&state)?;
            self.confirm(&state, index, right)?;
            let flags = state.flags[index as usize];
            if flags & LOADING != 0 {
                drop(self.wait(state));
                continue;
            }
            if flags & RESIDENT != 0 {
                let settled = access == Access::Read || (flags & DIRTY != 0 && flags & FROZEN == 0);
                if !settled && !self.make_dirty(&mut state, index)? {
                    drop(self.wait(state));
                    continue;
                }
                if access == Access::Write && !state.refused.is_empty() {
                    self.readmit_page(&mut state, index);
                    self.ensure_running(&state)?;
                }
                state.policy.touch(index);
                return Ok(state);
            }
            self.load(state, index, right, buffer)?;
        }
    }

    /// Brings an absent segment in. Returns without error also where another thread was faster.
    pub(super) fn load<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        index: Index,
        right: Right,
        buffer: &mut [u8],
    ) -> Result<()> {
        let access = right.access;
        if !self.begin_load(&mut state, index, access)? {
            self.stalled(&state, index)?;
            drop(self.wait_for_frame(state));
            return Ok(());
        }
        if self.load_buffered(&mut state, index, access)? {
            return Ok(());
        }
        let (store, page, segment) = self.store_of(index);
        let bytes = &mut buffer[..self.segment_bytes];
        loop {
            let generation = state.generation;
            drop(state);
            let fetched = store.fetch(page, segment, bytes);
            state = self.lock();
            let confirmed = self.confirm(&state, index, right);
            if confirmed.is_ok() && state.generation != generation {
                continue;
            }
            let fetched = confirmed.and(fetched);
            if matches!(fetched, Ok(Fetched::Zero)) {
                bytes.fill(0);
            }
            return match fetched {
                Ok(_) => self.end_load(&mut state, index, access, bytes),
                Err(error) => {
                    self.fail_load(&mut state, index, access);
                    drop(state);
                    // A fault that was dropped because of this load comes again.
                    self.wake(index)?;
                    Err(error)
                }
            };
        }
    }

    /// Takes a frame for an absent segment, which is loading from now on. False if there is no frame to be had.
    pub(crate) fn begin_load(&self, state: &mut State, index: Index, access: Access) -> Result<bool> {
        if !self.make_room(state, 1) {
            return Ok(false);
        }
        if state.flags[index as usize] & POISONED != 0 {
            // Another try: the damage may have been in the transfer.
            let cleared = self.discard(&[index]);
            cleared
                .map_err(|source| self.store_of(index).0.device_error("madvise(MADV_DONTNEED)", source))?;
        }
        if access == Access::Write {
            self.admit(state, index)?;
            state.admitted += 1;
        }
        self.mark_loading(state, index);
        self.tell(state);
        Ok(true)
    }

    pub(super) fn mark_loading(&self, state: &mut State, index: Index) {
        state.flags[index as usize] = LOADING;
        state.resident += 1;
        state.loading += 1;
    }

    /// Ends a load that has just begun, if the device buffer has the segment; false if not. It leaves the buffer.
    pub(super) fn load_buffered(&self, state: &mut State, index: Index, access: Access) -> Result<bool> {
        let Some(slot) = state.buffer.spoil(index) else { return Ok(false) };
        let result = self.end_load(state, index, access, slot.bytes());
        state.buffer.recycle(slot);
        result.map(|()| true)
    }

    /// Ends a load: installs what was read, and so wakes who waits for it. On an error the segment is absent.
    pub(super) fn end_load(
        &self,
        state: &mut State,
        index: Index,
        access: Access,
        bytes: &[u8],
    ) -> Result<()> {
        if let Err(source) = self.region.install(self.offset(index), bytes, access == Access::Read) {
            self.fail_load(state, index, access);
            return Err(self.store_of(index).0.device_error("UFFDIO_COPY", source));
        }
        state.loading -= 1;
        self.loaded(state, index);
        if access == Access::Write {
            state.admitted -= 1;
            self.mark_dirty(state, index);
        }
        self.announce(state);
        Ok(())
    }

    /// A segment has been installed.
    pub(super) fn loaded(&self, state: &mut State, index: Index) {
        add(&self.counters.loads, 1);
        state.flags[index as usize] = RESIDENT;
        state.policy.insert(index);
    }

    /// Ends a load that brought nothing. The caller wakes who waits for the segment.
    pub(super) fn fail_load(&self, state: &mut State, index: Index, access: Access) {
        state.flags[index as usize] = 0;
        state.resident -= 1;
        state.loading -= 1;
        if access == Access::Write {
            state.admitted -= 1;
        }
        self.announce(state);
    }

    /// Whether one more segment may become dirty: there must be room on flash for it.
    fn admit(&self, state: &State, index: Index) -> Result<()> {
        let (store, ..) = self.store_of(index);
        // Dirty segments of other controllers count too: a little early beats too late.
        store.admit((state.dirty.len() + state.writing + state.admitted) as u64 + 1)
    }

    /// Turns a clean or frozen resident segment dirty. False if there is no room to copy it aside: a wait for a change
    /// helps.
    pub(super) fn make_dirty(&self, state: &mut State, index: Index) -> Result<bool> {
        if state.flags[index as usize] & DIRTY == 0 {
            self.admit(state, index)?;
        }
        if state.flags[index as usize] & FROZEN != 0 {
            if state.staged.len() >= self.staging_limit() {
                return Ok(false);
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
            self.mark_dirty(state, index);
        }
        Ok(true)
    }

    pub(super) fn mark_dirty(&self, state: &mut State, index: Index) {
        state.flags[index as usize] |= DIRTY;
        state.dirty.insert(index);
        // Once: write-back looks again before it sleeps.
        if state.dirty.len() == self.dirty_limit() + 1 {
            self.writing.notify_one();
        }
    }
}
