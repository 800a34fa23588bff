//! Readahead: windows of sequential or strided misses, the blocks around missed segments, and segments that a program announces
//! (`will_need`). Handlers
//! read these segments, in runs of neighbouring slots, while they serve page faults.
//!
//! No thread waits for readahead, and readahead delays no thread: a segment is skipped if no frame is free, and a
//! read error shows when a program accesses the segment.

use std::io;
use std::ops::Range;

use deepram_core::PageId;
use deepram_core::paging::Window;
use deepram_pager::service::{BATCH, Trigger, TriggerPage};

use super::{AccessKind, Cache, CacheState, Index};
use crate::stats::add;
use crate::store::{Fetched, SlotLocation};

/// Segments installed under one hold of the lock.
const SEGMENTS_PER_LOCK: usize = 16;

/// A unit of readahead work: at most [`BATCH`] segments to be read.
pub(crate) struct ReadaheadJob {
    pub(super) segments: Vec<Index>,
    /// The readahead window of the segments, if they belong to one.
    pub(super) window: Option<Window>,
}

/// A segment that is being read into the cache.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IncomingSegment {
    pub(super) index: Index,
    /// Slot on the device that holds the segment.
    pub(super) slot: u64,
    /// CRC of the segment's bytes.
    pub(super) crc: u32,
    /// The cache's generation when the slot was looked up.
    pub(super) generation: u64,
}

impl Cache {
    /// Records a miss. Returns the segments to read with it, and the readahead window that should be read now.
    pub(super) fn track_miss(&self, state: &mut CacheState, index: Index) -> (Range<Index>, Option<Window>) {
        if !self.faults.readahead {
            return (index..index + 1, None);
        }
        let free = self.watermarks().frames.saturating_sub(state.frames());
        let is_room = |segments| self.faults.fault_around && segments <= free;
        let CacheState { buffer, streams, .. } = state;
        buffer.triggers.record_miss(streams, index, self.segment_bytes, is_room)
    }

    /// Records the use of a segment of the device buffer. Returns the readahead window that should be read now.
    pub(super) fn track_use(&self, state: &mut CacheState, index: Index) -> Option<Window> {
        if self.faults.readahead { state.streams.record_use(self.offset(index)) } else { None }
    }

    /// Begins to read the other segments of a missed segment's block. Returns them, and the probe among them.
    pub(super) fn fault_around(
        &self,
        block: Range<Index>,
        missed: Index,
    ) -> (Vec<IncomingSegment>, Option<TriggerPage>) {
        if block.len() == 1 {
            return (Vec::new(), None);
        }
        let last = self.segments() as Index;
        let others = block.filter(|&index| index != missed && index < last);
        let neighbours = self.begin_readahead(others.collect());
        let probe = self.lock().buffer.triggers.choose_probe(missed, neighbours.len());
        let probe = probe.map(|at| (self.offset(neighbours[at].index), Trigger::Probe));
        (neighbours, probe)
    }

    /// Queues a readahead window.
    pub(super) fn queue_window(&self, window: Window) {
        add(&self.counters.readahead_windows, 1);
        let segments = self.segments();
        let all: Vec<Index> = (0..window.count)
            .map(|n| window.page(n) / self.segment_bytes)
            .take_while(|&n| n < segments)
            .map(|n| n as Index)
            .collect();
        let job = |part: &[Index]| ReadaheadJob { segments: part.to_vec(), window: Some(window) };
        self.readahead_jobs.push(all.chunks(BATCH).map(job));
    }

    /// Queues these segments for readahead, limited by the number of frames.
    pub(crate) fn queue_segments(&self, all: impl Iterator<Item = Index>) {
        let mut all = all.take(self.watermarks().announced()).peekable();
        let job = std::iter::from_fn(|| {
            all.peek()?;
            Some(ReadaheadJob { segments: all.by_ref().take(BATCH).collect(), window: None })
        });
        self.readahead_jobs.push(job);
    }

    /// Number of segments in the mapped range.
    fn segments(&self) -> usize {
        self.region.len() / self.segment_bytes
    }

    /// Begins to fill the absent ones of these segments, as far as frames are free. Returns those to read, sorted.
    pub(super) fn begin_readahead(&self, mut segments: Vec<Index>) -> Vec<IncomingSegment> {
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
            let absent = state.segments[index as usize].is_absent()
                && !state.chunks.is_staged(index)
                && !state.buffer.holds(index);
            if stopping || !absent || !self.make_room(&mut state, 1) {
                return false;
            }
            // Loads by call that are reading the segment will repeat the read.
            let buffered = state.buffer.take_for_fill(index);
            debug_assert!(buffered.is_none());
            self.mark_filling(&mut state, index);
            true
        });
        self.notify_evictor(&mut state);
        drop(state);
        let mut found = Vec::with_capacity(segments.len());
        let mut nothing = Vec::new();
        for index in segments {
            let (store, page, segment) = self.store_of(index);
            match store.locate_slot(page, segment) {
                Ok(SlotLocation::Slot { slot, crc }) => {
                    found.push(IncomingSegment { index, slot, crc, generation });
                }
                // A segment that was never written needs no read. An error shows when a program accesses the segment.
                Ok(SlotLocation::Unwritten) | Err(_) => nothing.push(index),
            }
        }
        self.cancel_fills(&nothing);
        add(&self.counters.readahead_segments, found.len() as u64);
        found.sort_unstable_by_key(|found| found.index);
        found
    }

    /// Cancels the fill of these segments: they stay absent.
    fn cancel_fills(&self, segments: &[Index]) {
        if segments.is_empty() {
            return;
        }
        let mut state = self.lock();
        for &index in segments {
            self.fail_fill(&mut state, index, AccessKind::Read);
            // A thread that faulted on the segment meanwhile faults again and reads it.
            self.wake_or_halt(&mut state, index);
        }
    }

    /// Ends the read of a run: installs the segments that passed their checksum, neighbours together.
    pub(super) fn finish_readahead(
        &self,
        run: &[IncomingSegment],
        trigger: Option<TriggerPage>,
        read: io::Result<()>,
        bytes: &mut [u8],
    ) {
        let mut whole = Vec::with_capacity(run.len());
        let mut nothing = Vec::new();
        if read.is_ok() {
            let each = bytes.chunks_exact_mut(self.segment_bytes);
            for ((n, found), bytes) in run.iter().enumerate().zip(each) {
                let (store, page, segment) = self.store_of(found.index);
                match store.verify_read(page, segment, found.crc, Ok(()), bytes) {
                    Ok(Fetched::Data) => whole.push((found.index, n)),
                    // A thread that needs the segment reads it again, and gets the error then.
                    Ok(Fetched::Zero) | Err(_) => nothing.push(found.index),
                }
            }
        } else {
            nothing.extend(run.iter().map(|found| found.index));
        }
        let kind = trigger.map_or(Trigger::Window, |(_, kind)| kind);
        let trigger = trigger.map(|(at, _)| at);
        let at = |index: Index| self.offset(index);
        let together = |a: &(Index, usize), b: &(Index, usize)| {
            a.0 + 1 == b.0 && a.1 + 1 == b.1 && Some(at(a.0)) != trigger && Some(at(b.0)) != trigger
        };
        for part in whole.chunk_by(together).flat_map(|part| part.chunks(SEGMENTS_PER_LOCK)) {
            let (first, n) = part[0];
            let bytes = &bytes[n * self.segment_bytes..][..part.len() * self.segment_bytes];
            let mut state = self.lock();
            if state.generation != run[0].generation {
                drop(state);
                nothing.extend(part.iter().map(|(index, _)| *index));
            } else if Some(at(first)) == trigger
                && (kind == Trigger::Probe || state.streams.is_trigger(at(first)))
            {
                // The trigger segment stays out of the cache, so that its use causes a page fault.
                self.fail_fill(&mut state, first, AccessKind::Read);
                state.buffer.keep_trigger(first, kind, bytes);
                self.wake_or_halt(&mut state, first);
            } else if self.region.install(at(first), bytes, true).is_ok() {
                state.filling -= part.len();
                part.iter().for_each(|(index, _)| self.mark_resident(&mut state, *index));
                self.notify_waiters(&state);
            } else {
                // A part of the range may have been installed.
                let discarded = self.region.discard(&[(at(first), bytes.len())]);
                self.halt_on_error(&mut state, "madvise(MADV_DONTNEED)", first, discarded);
                drop(state);
                nothing.extend(part.iter().map(|(index, _)| *index));
            }
        }
        self.cancel_fills(&nothing);
    }
}
