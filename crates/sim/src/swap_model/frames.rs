//! The frames of the simulated pager: what counts against the budget, and how many are to be freed.

use deepram_core::paging::PAGE;
use deepram_core::paging::huge_pages::{CHUNK_BYTES, CHUNK_PAGES};
use deepram_core::paging::victim_buffer::{frames_of_buffer, most_idle};
use deepram_core::units::Picos;

use super::eviction::Batch;
use super::{SwapModel, SwapModelEvent};
use crate::engine::Time;
use crate::host::Context;

/// Bytes of the pager's table for each page of a chunk of which a page has been touched.
const TABLE_BYTES: usize = 20;

impl SwapModel {
    /// Notes that a page is used: its chunk has a table from now on.
    pub(super) fn note_chunk(&mut self, page: u32) {
        let first = self.options.address.0 as usize / CHUNK_BYTES;
        let chunk = self.address(page) / CHUNK_BYTES - first;
        let touched = &mut self.chunks[chunk];
        self.known_chunks += usize::from(!*touched);
        *touched = true;
    }

    /// Frames that the pager's tables and buffers take.
    #[must_use]
    pub fn table_frames(&self) -> usize {
        let pages = self.known_chunks * CHUNK_PAGES * TABLE_BYTES;
        let tables =
            pages + self.slots.memory_bytes() + self.buffer.memory_bytes() + self.policy.memory_bytes();
        (tables + self.read_slots.buffer_bytes()).div_ceil(PAGE)
    }

    /// Frames in use.
    fn used(&self) -> usize {
        self.charged + self.buffer.idle_frames() + self.table_frames()
    }

    /// Number of frames that are to be freed so that `more` are free.
    pub(super) fn excess(&self, more: usize) -> usize {
        self.watermarks.excess(self.used(), self.charged, more)
    }

    /// Whether as many pages can come in now without an eviction.
    pub(super) fn room(&self) -> impl Fn(usize) -> bool + use<> {
        let (marks, used, charged) = (self.watermarks, self.used(), self.charged);
        move |pages| marks.excess(used, charged, pages) == 0
    }

    /// Largest number of frames in the victim buffer now.
    pub(super) fn buffer_limit(&self) -> usize {
        frames_of_buffer(self.watermarks.frames.saturating_sub(self.table_frames()), false)
    }

    /// Returns the memory of the victim buffer's free frames, if there are more than the next victims take.
    pub(super) fn trim_buffer(&mut self) {
        if self.buffer.idle_frames() > most_idle(self.watermarks.headroom()) {
            // No memory is behind the frames: the runs to return are of no use here.
            let _ = self.buffer.trim();
        }
    }

    /// Charges `count` frames, after evicting pages if too few are free. Returns the time that this takes.
    pub(super) fn reserve(&mut self, count: usize, context: &mut Context<SwapModelEvent>) -> Time {
        let mut stall = 0;
        if self.used() + count > self.watermarks.frames {
            self.counts.eviction_stalls += 1;
            stall = self.evict_synchronously(count, context);
        }
        self.charged += count;
        if self.excess(self.watermarks.headroom()) > 0 {
            self.wake_evictors(context);
        }
        stall
    }

    /// Wakes the evictors that are asleep.
    pub(super) fn wake_evictors(&mut self, context: &mut Context<SwapModelEvent>) {
        for (n, evictor) in (0..).zip(&mut self.evictors) {
            if evictor.is_none() {
                *evictor = Some(Batch::default());
                context.schedule(Picos(context.now().0), SwapModelEvent::Evict(n));
            }
        }
    }
}
