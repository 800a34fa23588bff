//! Page faults on the mapped memory. A handler serves a fault as far as possible without waiting
//! ([`Cache::begin_fill_for_fault`]). A fault that must wait (for a frame, for room on flash, or for a sync to copy a frozen
//! segment) becomes a deferred fault, which a separate thread serves, so that no read in flight waits behind it.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use deepram_core::Status;
use deepram_core::paging::Window;
use deepram_core::paging::segment_state::{SegmentFault, SegmentState};

use super::permissions::is_permission_error;
use super::{AccessKind, Cache, CacheState, Index, Permit};
use crate::error::PoolError;
use crate::stats::add;
use deepram_linux::lock::lock;
use deepram_pager::{FaultKind, Recorder};

/// Progress of a page fault.
pub(super) enum FillProgress {
    /// The faulting thread runs again, or another thread will wake it.
    Served,
    /// The segment is being filled and must be read with these others. The value is the cache's generation at that moment.
    Read(u64, Range<Index>),
    /// The fault must wait: it becomes a deferred fault.
    Deferred,
    /// The segment is on its way with its chunk.
    Staged,
}

/// The queue of deferred faults.
#[derive(Default)]
pub(super) struct DeferredFaults {
    queue: Mutex<FaultQueue>,
    ready: Condvar,
}

#[derive(Default)]
struct FaultQueue {
    faults: VecDeque<(Index, AccessKind)>,
    stopped: bool,
}

impl DeferredFaults {
    fn lock(&self) -> MutexGuard<'_, FaultQueue> {
        lock(&self.queue)
    }

    pub(super) fn push(&self, index: Index, access: AccessKind) {
        self.lock().faults.push_back((index, access));
        self.ready.notify_one();
    }

    /// Ends the threads. Threads whose faults are still queued get their signal when the mapping is closed.
    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.ready.notify_all();
    }

    /// Waits for the next deferred fault; `None` at the end.
    fn next(&self) -> Option<(Index, AccessKind)> {
        let mut queue = self.lock();
        loop {
            if queue.stopped {
                return None;
            }
            if let Some(fault) = queue.faults.pop_front() {
                return Some(fault);
            }
            queue = self.ready.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Cache {
    /// Body of a thread that serves deferred faults, with a buffer of one segment.
    pub(super) fn serve_deferred_faults(&self, buffer: &mut [u8]) {
        while let Some((index, access)) = self.deferred_faults.next() {
            self.serve(index, access, buffer);
        }
    }

    fn count_missing(&self, index: Index, access: AccessKind) {
        add(&self.counters.faults_missing, 1);
        self.record_missing(index, access);
    }

    /// Records an access to an absent segment, where a recorder is active.
    pub(super) fn record_missing(&self, index: Index, access: AccessKind) {
        if let Some(recorder) = &self.recorder {
            let (store, page, segment) = self.store_of(index);
            let kind = if store.is_unwritten(page, segment) { FaultKind::Fresh } else { FaultKind::Major };
            drop(recorder.record(self.address_of(index), kind, access == AccessKind::Write));
        }
    }

    /// Records the first store to a clean segment, where a recorder is active.
    pub(super) fn record_first_store(&self, index: Index) {
        if let Some(recorder) = &self.recorder {
            drop(recorder.record(self.address_of(index), FaultKind::WriteProtected, true));
        }
    }

    fn address_of(&self, index: Index) -> usize {
        self.region.base().addr() + self.offset(index)
    }

    /// Writes out what was recorded.
    pub(super) fn flush_record(&self) {
        drop(self.recorder.as_ref().map(Recorder::flush));
    }

    /// Returns whether a segment is resident, as far as is known before the fault is served.
    pub(super) fn is_resident(&self, index: Index) -> bool {
        self.lock().segments[index as usize].is_resident()
    }

    /// Serves a fault as far as possible without waiting, and returns the readahead window that it starts.
    pub(super) fn begin_fill_for_fault(
        &self,
        index: Index,
        permit: Permit,
    ) -> Result<(FillProgress, Option<Window>), PoolError> {
        let access = permit.access;
        if !self.permits_access(index, access)? {
            return Ok((FillProgress::Served, None));
        }
        let mut state = self.lock();
        self.revalidate(&state, index, permit)?;
        let fault = state.segments[index as usize].fault();
        // If the pool is ending, closing the mapping wakes the thread, which then gets its signal.
        if state.stopping || fault == SegmentFault::Dropped {
            return Ok((FillProgress::Served, None));
        }
        if fault == SegmentFault::Fill {
            if let Some(arrived) = self.fault_on_staged(&mut state, index) {
                self.count_missing(index, access);
                return Ok((if arrived { FillProgress::Served } else { FillProgress::Staged }, None));
            }
            match self.begin_fill(&mut state, index, access) {
                Ok(true) => {}
                Ok(false) | Err(PoolError::NoSpace { .. }) => return Ok((FillProgress::Deferred, None)),
                Err(error) => return Err(error),
            }
            self.count_missing(index, access);
            if self.fill_from_buffer(&mut state, index, access)? {
                let window = self.track_use(&mut state, index);
                return Ok((FillProgress::Served, window));
            }
            let (block, window) = self.track_miss(&mut state, index);
            return Ok((FillProgress::Read(state.generation, block), window));
        }
        let begun = match self.resolve_resident(&mut state, index, access) {
            Ok(true) => FillProgress::Served,
            Ok(false) | Err(PoolError::NoSpace { .. }) => FillProgress::Deferred,
            Err(error) => return Err(error),
        };
        Ok((begun, None))
    }

    /// Serves a fault on a resident segment. Returns false if a store has to wait for another thread.
    fn resolve_resident(
        &self,
        state: &mut CacheState,
        index: Index,
        access: AccessKind,
    ) -> Result<bool, PoolError> {
        if access == AccessKind::Read {
            return self.wake(index).map(|()| true);
        }
        let segment = state.segments[index as usize];
        // The segment is dirty and still write-protected: a failed write-back left it so.
        if !self.make_dirty(state, index)? {
            return Ok(false);
        }
        if !segment.is_open_for_stores() {
            add(&self.counters.faults_write_protected, 1);
            self.record_first_store(index);
        }
        state.touch(index);
        Ok(true)
    }

    /// Serves a fault and waits as long as necessary.
    fn serve(&self, index: Index, access: AccessKind, buffer: &mut [u8]) {
        let permit = self.permit(access);
        let settled = match self.permits_access(index, access) {
            // Before a store fails, dirty segments are written back and older tokens are given up. Another thread may
            // take the room that this makes; if no more room can be made, `make_flash_room` returns an error.
            Ok(true) => loop {
                match self.resolve(index, permit, buffer) {
                    Err(PoolError::NoSpace { .. }) => {
                        if let Err(error) = self.make_flash_room(index) {
                            break Err(error);
                        }
                    }
                    settled => break settled,
                }
            },
            Ok(false) => return,
            Err(error) => Err(error),
        };
        if let Err(error) = settled {
            self.fail_fault(index, error);
        }
    }

    /// Returns whether the page's permissions allow the access. If not, sets the protection of the page so that the
    /// thread gets SIGSEGV when it retries.
    fn permits_access(&self, index: Index, access: AccessKind) -> Result<bool, PoolError> {
        if let Ok(()) = self.check_access(index, access) {
            return Ok(true);
        }
        // Check again under the lock, so that the protection matches the tables.
        let state = self.lock();
        match self.check_access(index, access) {
            Err(error) if is_permission_error(&error) => {}
            other => return other.map(|()| true),
        }
        let (store, page, _) = self.store_of(index);
        let status = store.status(page)?;
        let shown = if status.allocated() { status } else { Status::default() };
        self.set_protection(&state, index / self.stride, page, 1, shown)?;
        self.wake(index).map(|()| false)
    }

    /// Wakes the threads that wait for a segment, so that they retry.
    pub(super) fn wake(&self, index: Index) -> Result<(), PoolError> {
        self.region
            .wake(self.offset(index), self.segment_bytes)
            .map_err(|source| self.store_of(index).0.device_error("UFFDIO_WAKE", source))
    }

    fn resolve(&self, index: Index, permit: Permit, buffer: &mut [u8]) -> Result<(), PoolError> {
        let access = permit.access;
        loop {
            let mut state = self.lock();
            self.revalidate(&state, index, permit)?;
            // As in `begin_fill_for_fault`.
            let fault = state.segments[index as usize].fault();
            if state.stopping || fault == SegmentFault::Dropped {
                return Ok(());
            }
            if fault == SegmentFault::Fill {
                self.fill(state, index, permit, buffer)?;
                if self.lock().segments[index as usize].fault() != SegmentFault::Fill {
                    self.count_missing(index, access);
                    return Ok(());
                }
                continue;
            }
            if self.resolve_resident(&mut state, index, access)? {
                return Ok(());
            }
            drop(self.wait(state));
        }
    }

    /// Fails a page fault: the thread gets a signal, and the pool records the reason. If the thread has lost its
    /// permission meanwhile, it retries and gets its signal then.
    pub(super) fn fail_fault(&self, index: Index, error: PoolError) {
        let mut state = self.lock();
        if is_permission_error(&error) {
            return self.wake_or_halt(&mut state, index);
        }
        tracing::error!(%error, "an access to mapped memory failed");
        // The faulting thread gets SIGBUS or SIGSEGV, which may end the program before it can ask for the reason.
        eprintln!("deepram: an access to mapped memory failed: {error}");
        if let PoolError::NoSpace { .. } = error {
            // Loads continue; stores raise SIGSEGV until flash has room again.
            self.make_page_read_only(&mut state, index);
            state.record_error(error);
            return self.wake_or_halt(&mut state, index);
        }
        match state.segments[index as usize] {
            SegmentState::ABSENT => {
                state.segments[index as usize].poison();
                let poisoned = self.region.poison(self.offset(index), self.segment_bytes);
                self.halt_on_error(&mut state, "UFFDIO_POISON", index, poisoned);
            }
            // The frame cannot be made to raise a signal, and without a signal the thread would wait for ever.
            segment if segment.is_resident() => self.halt(&mut state, &error.to_string()),
            // The thread that fills the segment wakes this one.
            _ => {}
        }
        state.record_error(error);
    }

    /// Wakes the threads that wait for a segment, so that they retry; stops the pool if the kernel refuses.
    pub(super) fn wake_or_halt(&self, state: &mut CacheState, index: Index) {
        let woken = self.region.wake(self.offset(index), self.segment_bytes);
        self.halt_on_error(state, "UFFDIO_WAKE", index, woken);
    }
}
