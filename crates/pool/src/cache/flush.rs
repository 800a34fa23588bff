//! Writing dirty segments to flash: write-back in the background, and the cut and flush of a sync.

use std::sync::MutexGuard;

use deepram_core::paging::PoolWatermarks;
use deepram_core::paging::runs::{POOL_GAP, join_runs};

use super::{Cache, CacheState, Index};
use crate::error::Result;
use crate::stats::add;
use crate::store::{Commit, Log, Stream, WriteItem};

/// If more segments than this are dirty, a sync writes them before its cut: protecting a segment takes about a
/// microsecond, and the cut should stop stores for less than a millisecond.
const FLUSH_AHEAD_LIMIT: usize = 256;
/// Number of such rounds against threads that keep storing.
const FLUSH_AHEAD_ROUNDS: usize = 2;
/// Segments copied under one hold of the lock.
const COPY_BATCH: usize = 16;

/// The segments and line groups that a sync commits, by controller.
pub(crate) struct Cut {
    pub(crate) segments: Vec<Vec<Index>>,
    /// The last group of persists before the cut.
    pub(crate) lines: Vec<u64>,
}

impl Cache {
    /// Writes dirty segments, so that they can be evicted. The write-back cursor passes over all segments in the
    /// order of their addresses.
    pub(super) fn write_back(&self) -> Result<()> {
        // Lock the logs first, in order of controllers, as the lock order requires.
        for (controller, store) in self.stores.iter().enumerate() {
            let mut log = store.lock_log();
            let segments = self.take_dirty(controller as u32, PoolWatermarks::WRITE_BACK, &|_| true);
            if segments.is_empty() {
                continue;
            }
            let n = segments.len() as u64;
            self.flush(&mut log, controller, &segments, None)?;
            add(&self.counters.write_backs, n);
        }
        Ok(())
    }

    /// Makes room on flash for one more dirty segment: writes dirty segments, then gives up old tokens.
    pub(crate) fn make_flash_room(&self, index: Index) -> Result<()> {
        let (store, ..) = self.store_of(index);
        // A segment that was stored to again since the last sync frees as much room as it takes, but counts as one
        // more until it is written. The logs are locked one after the other, in order of controllers.
        for controller in 0..self.stores.len() {
            let mut log = self.stores[controller].lock_log();
            // The previous holder of the log may have made the room already.
            if store.admit(self.unwritten() + 1).is_ok() {
                return Ok(());
            }
            let segments = self.take_dirty(controller as u32, usize::MAX, &|_| true);
            self.flush(&mut log, controller, &segments, None)?;
        }
        let mut log = store.lock_log();
        store.drop_old_tokens(&mut log, self.unwritten() + 1)
    }

    /// Returns the number of segments that must still be written, including those being filled for a store.
    fn unwritten(&self) -> u64 {
        let state = self.lock();
        (state.dirty.len() + state.writing + state.admitted) as u64
    }

    /// Makes the consistent cut of a sync: every segment that is dirty now belongs to the epoch that is being closed,
    /// and no later store gets into that epoch. Stores wait for the end of the cut, so that the epoch never contains
    /// a store after the cut but lacks one before it.
    ///
    /// # Errors
    /// The kernel's error if it does not write-protect a segment. No cut is made then.
    pub(crate) fn cut(&self) -> Result<Cut> {
        let mut state = self.lock();
        let mut all = Vec::with_capacity(state.dirty.len());
        let CacheState { dirty, segments, .. } = &mut *state;
        while let Some(index) = dirty.next(all.last().map_or(0, |last| last + 1)) {
            dirty.remove(index);
            segments[index as usize].cut();
            all.push(index);
        }
        state.writing += all.len();
        if let Err(error) = self.protect_runs(&state, &all) {
            // Stores to unprotected segments would go unnoticed.
            drop(state);
            self.restore_dirty(&all);
            return Err(error);
        }
        let lines = self.stores.iter().map(|store| store.cut_lines()).collect();
        drop(state);
        let mut per_controller = vec![Vec::new(); self.stores.len()];
        for index in all {
            per_controller[(index / self.stride) as usize].push(index);
        }
        Ok(Cut { segments: per_controller, lines })
    }

    /// Takes up to `n` wanted dirty segments of a controller, starting at the write-back cursor; returns them sorted.
    /// They are write-protected when they are copied.
    pub(crate) fn take_dirty(&self, controller: u32, n: usize, wanted: &dyn Fn(Index) -> bool) -> Vec<Index> {
        let mut state = self.lock();
        let first = controller * self.stride;
        let CacheState { dirty, segments, write_back_cursors, .. } = &mut *state;
        let cursor = &mut write_back_cursors[controller as usize];
        let taken = dirty.take(cursor, first..first + self.stride, n, |index| {
            // A dirty segment cannot be in the process of being written: its writer would hold the log.
            segments[index as usize].may_be_taken() && wanted(index)
        });
        for &index in &taken {
            segments[index as usize].take();
        }
        state.writing += taken.len();
        taken
    }

    /// Writes dirty segments without stopping any thread, if there are so many that the cut of a sync would stop
    /// stores for long. A segment that is stored to meanwhile becomes dirty again.
    pub(crate) fn flush_ahead(&self, log: &mut MutexGuard<'_, Log>, controller: usize) -> Result<()> {
        for _ in 0..FLUSH_AHEAD_ROUNDS {
            if self.lock().dirty.len() <= FLUSH_AHEAD_LIMIT {
                break;
            }
            let segments = self.take_dirty(controller as u32, usize::MAX, &|_| true);
            self.flush(log, controller, &segments, None)?;
        }
        Ok(())
    }

    /// Writes until none of these segments is dirty. The caller keeps threads from storing to them.
    pub(crate) fn clean(
        &self,
        log: &mut MutexGuard<'_, Log>,
        controller: usize,
        segments: std::ops::Range<Index>,
    ) -> Result<()> {
        let dirty = || {
            let state = self.lock();
            segments.clone().any(|index| state.segments[index as usize].is_dirty())
        };
        while dirty() {
            let taken = self.take_dirty(controller as u32, usize::MAX, &|_| true);
            self.flush(log, controller, &taken, None)?;
        }
        Ok(())
    }

    /// Write-protects these segments, sorted, in few calls. A dirty segment in between may keep its state: a store by
    /// call holds the lock, which a page fault would need.
    fn protect_runs(&self, state: &CacheState, sorted: &[Index]) -> Result<()> {
        let dirty = |index: Index| state.segments[index as usize].is_dirty();
        let numbers = sorted.iter().map(|index| *index as usize);
        let runs = join_runs(numbers, POOL_GAP, |mut between| !between.any(|index| dirty(index as Index)));
        for (first, last) in runs {
            let len = (last - first + 1) * self.segment_bytes;
            let protected = self.region.protect(first * self.segment_bytes, len);
            let store = self.store_of(first as Index).0;
            protected.map_err(|source| store.device_error("UFFDIO_WRITEPROTECT", source))?;
        }
        Ok(())
    }

    /// Writes segments taken by [`Cache::cut`] or `take_dirty`; a small number of segments goes out together with
    /// `commit`, if there is one. On an error the unwritten segments become dirty again, and nothing else has
    /// changed.
    pub(crate) fn flush(
        &self,
        log: &mut MutexGuard<'_, Log>,
        controller: usize,
        segments: &[Index],
        commit: Option<Commit>,
    ) -> Result<()> {
        let store = &self.stores[controller];
        let stamp = store.open_stamp();
        let items: Vec<WriteItem> = segments
            .iter()
            .map(|&index| {
                let (_, page, segment) = self.store_of(index);
                WriteItem { page, segment, stamp, moved: false }
            })
            .collect();
        let mut written = vec![false; segments.len()];
        let mut fill =
            |wanted: &[usize], buffers: &mut [&mut [u8]]| self.copy_contents(segments, wanted, buffers);
        let mut publish = |published: &[usize]| {
            let mut state = self.lock();
            state.writing -= published.len();
            for &item in published {
                written[item] = true;
                state.segments[segments[item] as usize].written();
            }
            if state.starved {
                self.evictor_work.notify_one();
            }
            self.notify_waiters(&state);
        };
        let result = match commit {
            None => store.append(log, Stream::User, &items, &mut fill, &mut publish),
            Some(commit) => store.commit(log, commit, &items, &mut fill, &mut publish),
        };
        if result.is_err() {
            let left: Vec<Index> = segments
                .iter()
                .zip(&written)
                .filter(|(_, written)| !**written)
                .map(|(&index, _)| index)
                .collect();
            self.restore_dirty(&left);
        }
        result
    }

    /// Makes taken segments dirty again, because they will not be written.
    pub(crate) fn restore_dirty(&self, segments: &[Index]) {
        let mut state = self.lock();
        state.writing -= segments.len();
        for &index in segments {
            // The open epoch needs the newer contents in the frame, not the staged copy.
            state.staged.remove(&index);
            if state.segments[index as usize].write_failed() {
                // A dirty segment is never write-protected.
                let unprotected = self.region.unprotect(self.offset(index), self.segment_bytes);
                self.halt_on_error(&mut state, "UFFDIO_WRITEPROTECT", index, unprotected);
                self.mark_dirty(&mut state, index);
            }
        }
        self.notify_waiters(&state);
    }

    /// Copies the contents of the wanted items: from the staged copy if a thread has stored to the segment since the
    /// cut, else from the frame.
    pub(crate) fn copy_contents(&self, segments: &[Index], wanted: &[usize], buffers: &mut [&mut [u8]]) {
        for (wanted, buffers) in wanted.chunks(COPY_BATCH).zip(buffers.chunks_mut(COPY_BATCH)) {
            let mut open: Vec<Index> = wanted.iter().map(|&item| segments[item]).collect();
            let mut state = self.lock_after_waiters();
            if state.halted.is_some() {
                // The frames are no longer readable, and the stores write nothing.
                return;
            }
            open.retain(|&index| state.segments[index as usize].is_protected_to_copy());
            open.sort_unstable();
            if self.protect_runs(&state, &open).is_err() {
                // Stores to these segments would go unnoticed, so the segments stay dirty and are written again.
                open.iter().for_each(|&index| self.mark_dirty(&mut state, index));
            }
            for (&item, buffer) in wanted.iter().zip(buffers) {
                let index = segments[item];
                if let Some(copy) = state.staged.remove(&index) {
                    buffer.copy_from_slice(&copy);
                } else {
                    self.region.copy_out(self.offset(index), buffer);
                    state.segments[index as usize].copied();
                }
            }
            // Threads that waited to copy a frozen segment find it released, or find room for a staged copy.
            self.notify_waiters(&state);
        }
    }
}
