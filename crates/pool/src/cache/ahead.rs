//! What is read before it is used: windows of runs of misses, and what a program says that it will need. Handlers read
//! it, in runs of neighbouring slots, while they serve faults.
//!
//! Nothing waits for it, and it makes nothing else wait: where there is no frame for it, it is not read; where it cannot
//! be read, whoever uses it finds out.

use std::io;

use deepram_core::PageId;

use super::{Access, Cache, Index, State};
use crate::readahead::Window;
use crate::stats::add;
use crate::store::{Fetched, Place};

/// Segments of one piece of work.
const BATCH: usize = 64;
/// Segments installed while the lock is held once.
const TOGETHER: usize = 16;

/// At most [`BATCH`] segments to be read.
pub(super) struct Piece {
    segments: Vec<Index>,
    /// The window that they are of, if they are of one.
    window: Option<Window>,
}

/// Segments that are loading, at neighbouring slots.
pub(super) struct Run {
    pub(super) coming: Vec<Coming>,
    /// The cache's when they began to load.
    generation: u64,
    window: Option<Window>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Coming {
    pub(super) index: Index,
    /// Where it is read from.
    pub(super) slot: u64,
    /// CRC of its bytes.
    crc: u32,
}

impl Cache {
    /// A segment was missed, or a trigger used: what is to be read beside it.
    pub(super) fn follow(&self, state: &mut State, index: Index) -> Option<Window> {
        if !self.follows {
            return None;
        }
        let at = self.offset(index);
        state.runs.record_use(at).or_else(|| state.runs.record_miss(at))
    }

    /// Has a window read.
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

    /// Has these segments read, as many as there are frames for.
    pub(crate) fn order_segments(&self, all: impl Iterator<Item = Index>) {
        let mut all = all.take(self.limit() - self.headroom()).peekable();
        let piece = std::iter::from_fn(|| {
            all.peek()?;
            Some(Piece { segments: all.by_ref().take(BATCH).collect(), window: None })
        });
        self.ahead.push(piece);
    }

    /// Segments of the mapped range.
    fn segments(&self) -> usize {
        self.region.len() / self.segment_bytes
    }

    /// Begins to load what is absent of a piece, as far as there are frames, and says where it is to be read, in runs of
    /// at most so many segments.
    pub(super) fn begin_ahead(&self, piece: Piece, most: usize) -> Vec<Run> {
        let Piece { mut segments, window } = piece;
        // Not what is not there, or may not be read: whoever tries is told.
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
            // Loads by call that are reading it repeat that.
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
                // Never written, which needs no reading; or an error that is told to who uses it.
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

    /// Segments that are loading ahead of use stay absent.
    fn leave(&self, segments: &[Index]) {
        if segments.is_empty() {
            return;
        }
        let mut state = self.lock();
        for &index in segments {
            self.fail_load(&mut state, index, Access::Read);
            // Whoever wants it meanwhile reads it.
            self.wake_or_halt(&mut state, index);
        }
    }

    /// A run has been read: what arrived whole goes into memory, neighbours together.
    pub(super) fn came_ahead(&self, run: &Run, read: io::Result<()>, bytes: &mut [u8]) {
        let mut whole = Vec::with_capacity(run.coming.len());
        let mut nothing = Vec::new();
        if read.is_ok() {
            let each = bytes.chunks_exact_mut(self.segment_bytes);
            for ((n, coming), bytes) in run.coming.iter().enumerate().zip(each) {
                let (store, page, segment) = self.store_of(coming.index);
                match store.arrived(page, segment, coming.crc, Ok(()), bytes) {
                    Ok(Fetched::Data) => whole.push((coming.index, n)),
                    // Whoever wants it reads it again, and is told then.
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
            } else if Some(at(first)) == trigger && state.runs.is_trigger(at(first)) {
                // Its use is to be seen.
                self.fail_load(&mut state, first, Access::Read);
                state.buffer.keep(first, bytes);
                self.wake_or_halt(&mut state, first);
            } else if self.region.install(at(first), bytes, true).is_ok() {
                state.loading -= part.len();
                part.iter().for_each(|(index, _)| self.loaded(&mut state, *index));
                self.announce(&state);
            } else {
                // Some of them may have been.
                let discarded = self.region.discard(&[(at(first), bytes.len())]);
                self.must(&mut state, "madvise(MADV_DONTNEED)", first, discarded);
                drop(state);
                nothing.extend(part.iter().map(|(index, _)| *index));
            }
        }
        self.leave(&nothing);
    }
}
