//! Readahead: windows of sequential or strided misses, and segments that a program announces (`will_need`). Handlers
//! read these segments, in runs of neighbouring slots, while they serve page faults.
//!
//! No thread waits for readahead, and readahead delays no thread: a segment is skipped if no frame is free, and a
//! read error shows when a program accesses the segment.

use std::io;

use deepram_core::PageId;

use super::{Access, Cache, Index, State};
use crate::ahead::Window;
use crate::stats::add;
use crate::store::{Fetched, Place};

/// Segments in one readahead job.
const BATCH: usize = 64;
/// Segments installed under one hold of the lock.
const TOGETHER: usize = 16;

/// A unit of readahead work: at most [`BATCH`] segments to be read.
pub(super) struct Piece {
    segments: Vec<Index>,
    /// The readahead window of the segments, if they belong to one.
    window: Option<Window>,
}

/// Segments being filled from neighbouring slots, with one read.
pub(super) struct Run {
    pub(super) coming: Vec<Coming>,
    /// The cache's generation when the fill began.
    generation: u64,
    window: Option<Window>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Coming {
    pub(super) index: Index,
    /// Slot on the device that holds the segment.
    pub(super) slot: u64,
    /// CRC of the segment's bytes.
    crc: u32,
}

impl Cache {
    /// Records a miss, or the use of a window's trigger segment. Returns the readahead window that should be read
    /// now.
    pub(super) fn follow(&self, state: &mut State, index: Index) -> Option<Window> {
        if !self.follows {
            return None;
        }
        let at = self.offset(index);
        state.runs.used(at).or_else(|| state.runs.miss(at))
    }

    /// Queues a readahead window.
    pub(super) fn order(&self, window: Window) {
        add(&self.counters.windows, 1);
        let segments = self.segments();
        let all: Vec<Index> = (0..window.count)
            .map(|n| window.page(n) / self.segment_bytes)
            .take_while(|&n| n < segments)
            .map(|n| n as Index)
            .collect();
        let piece = |part: &[Index]| Piece { segments: part.to_vec(), window: Some(window) };
        self.ahead.push(all.chunks(BATCH).map(piece));
    }

    /// Queues these segments for readahead, limited by the number of frames.
    pub(crate) fn order_segments(&self, all: impl Iterator<Item = Index>) {
        let mut all = all.take(self.limit() - self.headroom()).peekable();
        let piece = std::iter::from_fn(|| {
            all.peek()?;
            Some(Piece { segments: all.by_ref().take(BATCH).collect(), window: None })
        });
        self.ahead.push(piece);
    }

    /// Number of segments in the mapped range.
    fn segments(&self) -> usize {
        self.region.len() / self.segment_bytes
    }

    /// Begins to fill the absent segments of a job, as far as frames are free. Returns the reads to make, in runs of
    /// at most `most` neighbouring segments.
    pub(super) fn begin_ahead(&self, piece: Piece, most: usize) -> Vec<Run> {
        let Piece { mut segments, window } = piece;
        // Skip pages that are not allocated or not readable: the access of a program will report that.
        let mut page: Option<((u32, PageId), bool)> = None;
        segments.retain(|&index| {
            let (store, number, _) = self.store_of(index);
            let key = (index / self.stride, number);
            if page.is_none_or(|(of, _)| of != key) {
                let readable = store.status(number).is_ok_and(|s| s.allocated() && s.readable());
                page = Some((key, readable));
            }
            page.is_some_and(|(_, readable)| readable)
        });
        let mut state = self.lock();
        let generation = state.generation;
        let stopping = state.stopping;
        segments.retain(|&index| {
            let absent = state.flags[index as usize] == 0 && !state.buffer.holds(index);
            if stopping || !absent || !self.make_room(&mut state, 1) {
                return false;
            }
            // Loads by call that are reading the segment will repeat the read.
            let buffered = state.buffer.spoil(index);
            debug_assert!(buffered.is_none());
            self.mark_loading(&mut state, index);
            true
        });
        self.tell(&mut state);
        drop(state);
        let mut coming = Vec::with_capacity(segments.len());
        let mut nothing = Vec::new();
        for index in segments {
            let (store, page, segment) = self.store_of(index);
            match store.place(page, segment) {
                Ok(Place::At { slot, crc }) => coming.push(Coming { index, slot, crc }),
                // A segment that was never written needs no read. An error shows when a program accesses the segment.
                Ok(Place::Nowhere) | Err(_) => nothing.push(index),
            }
        }
        self.leave(&nothing);
        add(&self.counters.read_ahead, coming.len() as u64);
        coming.sort_unstable_by_key(|coming| coming.index);
        let follows =
            |a: &Coming, b: &Coming| a.slot + 1 == b.slot && a.index / self.stride == b.index / self.stride;
        let runs = coming.chunk_by(follows).flat_map(|run| run.chunks(most));
        runs.map(|run| Run { coming: run.to_vec(), generation, window }).collect()
    }

    /// Cancels the fill of these segments: they stay absent.
    fn leave(&self, segments: &[Index]) {
        if segments.is_empty() {
            return;
        }
        let mut state = self.lock();
        for &index in segments {
            self.fail_load(&mut state, index, Access::Read);
            // A thread that faulted on the segment meanwhile faults again and reads it.
            self.wake_or_halt(&mut state, index);
        }
    }

    /// Ends the read of a run: installs the segments that passed their checksum, neighbours together.
    pub(super) fn came_ahead(&self, run: &Run, read: io::Result<()>, bytes: &mut [u8]) {
        let mut whole = Vec::with_capacity(run.coming.len());
        let mut nothing = Vec::new();
        if read.is_ok() {
            let each = bytes.chunks_exact_mut(self.segment_bytes);
            for ((n, coming), bytes) in run.coming.iter().enumerate().zip(each) {
                let (store, page, segment) = self.store_of(coming.index);
                match store.arrived(page, segment, coming.crc, Ok(()), bytes) {
                    Ok(Fetched::Data) => whole.push((coming.index, n)),
                    // A thread that needs the segment reads it again, and gets the error then.
                    Ok(Fetched::Zero) | Err(_) => nothing.push(coming.index),
                }
            }
        } else {
            nothing.extend(run.coming.iter().map(|coming| coming.index));
        }
        let trigger = run.window.map(|window| window.first);
        let at = |index: Index| self.offset(index);
        let together = |a: &(Index, usize), b: &(Index, usize)| {
            a.0 + 1 == b.0 && a.1 + 1 == b.1 && Some(at(a.0)) != trigger && Some(at(b.0)) != trigger
        };
        for part in whole.chunk_by(together).flat_map(|part| part.chunks(TOGETHER)) {
            let (first, n) = part[0];
            let bytes = &bytes[n * self.segment_bytes..][..part.len() * self.segment_bytes];
            let mut state = self.lock();
            if state.generation != run.generation {
                drop(state);
                nothing.extend(part.iter().map(|(index, _)| *index));
            } else if Some(at(first)) == trigger && state.runs.awaits(at(first)) {
                // The trigger segment stays out of the cache, so that its use causes a page fault.
                self.fail_load(&mut state, first, Access::Read);
                state.buffer.keep(first, bytes);
                self.wake_or_halt(&mut state, first);
            } else if self.region.install(at(first), bytes, true).is_ok() {
                state.loading -= part.len();
                part.iter().for_each(|(index, _)| self.loaded(&mut state, *index));
                self.announce(&state);
            } else {
                // A part of the range may have been installed.
                let discarded = self.region.discard(&[(at(first), bytes.len())]);
                self.must(&mut state, "madvise(MADV_DONTNEED)", first, discarded);
                drop(state);
                nothing.extend(part.iter().map(|(index, _)| *index));
            }
        }
        self.leave(&nothing);
    }
}
