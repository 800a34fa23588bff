//! Eviction of the simulated pager: from memory to the victim buffer, and from there to the swap file.

use std::convert::Infallible;

use deepram_core::paging::huge_pages::{CHUNK_PAGES, PolicyKey};
use deepram_core::paging::victim_buffer::{Leaving, pages_to_drain, pages_to_move};
use deepram_core::paging::{PageState, SwapWatermarks};
use deepram_core::units::Picos;

use super::huge_pages::LeavingChunk;
use super::{PAGE_BYTES, SwapModel, SwapModelEvent, Trigger};
use crate::engine::Time;
use crate::host::Context;

/// Frames of the victim buffer that are written to neighbouring slots.
struct WriteRun {
    first: u32,
    frames: Vec<u32>,
}

/// A page that is being evicted.
struct Victim {
    page: u32,
    /// Its frame in the victim buffer.
    frame: u32,
    is_dirty: bool,
}

/// Pages that are evicted together.
#[derive(Default)]
pub(super) struct Batch {
    /// Number of frames to free, and of those that are free already.
    count: usize,
    freed: usize,
    victims: usize,
    dirty: usize,
    /// Writes that have not ended.
    runs: Vec<WriteRun>,
    /// The chunk that leaves after the pages.
    pub(super) chunk: Option<LeavingChunk>,
    /// The stage that gets the chunk's page.
    spare: Option<usize>,
    /// Time at which all writes end.
    pub(super) end: Time,
}

impl Batch {
    /// Pages that are being written.
    pub(super) fn pages_in_flight(&self) -> u64 {
        let chunk = if self.chunk.is_some() { CHUNK_PAGES as u64 } else { 0 };
        chunk + self.runs.iter().map(|run| run.frames.len() as u64).sum::<u64>()
    }

    /// Whether it has freed a frame or moved a page.
    fn made_progress(&self) -> bool {
        self.freed > 0 || self.victims > 0
    }
}

impl SwapModel {
    /// A step of an evictor: it evicts a batch, or sleeps.
    pub(super) fn run_evictor(&mut self, evictor: u8, context: &mut Context<SwapModelEvent>) {
        self.shed_idle_stages(context.now());
        let headroom = self.watermarks.headroom();
        if self.excess(headroom) > 0 {
            self.trim_buffer();
        }
        if self.excess(headroom) == 0 {
            self.evictors[usize::from(evictor)] = None;
            return;
        }
        let mut batch = self.evict(self.watermarks.batch(), None, None);
        self.start_writes(&mut batch, context.now().0);
        context.schedule(Picos(batch.end), SwapModelEvent::Written(evictor));
        self.evictors[usize::from(evictor)] = Some(batch);
    }

    /// Ends the batch of an evictor, which then looks for more work.
    pub(super) fn end_batch(&mut self, evictor: u8, context: &mut Context<SwapModelEvent>) {
        let Some(batch) = self.evictors[usize::from(evictor)].take() else { return };
        if self.finish(batch) {
            self.evictors[usize::from(evictor)] = Some(Batch::default());
            self.run_evictor(evictor, context);
        }
    }

    /// Evicts on the fault path until `count` frames are free. Returns the time that the fault waits.
    pub(super) fn evict_synchronously(
        &mut self,
        count: usize,
        context: &mut Context<SwapModelEvent>,
    ) -> Time {
        let now = context.now().0;
        let mut at = now;
        self.trim_buffer();
        loop {
            let excess = self.excess(count);
            if excess == 0 {
                return at - now;
            }
            let mut batch = self.evict(SwapWatermarks::batch_of_fault(excess), None, None);
            self.start_writes(&mut batch, at);
            at = at.max(batch.end);
            if !self.finish(batch) {
                // The fault waits until an evictor's write ends. The frames count as written from now on.
                let writing = self.evictors.iter_mut().flatten().filter(|batch| batch.pages_in_flight() > 0);
                let Some(next) = writing.min_by_key(|batch| batch.end) else { return at - now };
                at = at.max(next.end);
                let (runs, chunk) = (std::mem::take(&mut next.runs), next.chunk.take());
                self.end_writes(runs);
                chunk.into_iter().for_each(|chunk| self.end_chunk(chunk, None));
            }
        }
    }

    /// Evicts the pages of a range of the data at once, as a program's hint asks for; it takes no time.
    pub fn evict_range(&mut self, offset: u64, len: u64) {
        let range = offset / PAGE_BYTES..(offset + len).div_ceil(PAGE_BYTES).min(self.pages.len() as u64);
        let in_memory = |page: &u32| self.pages[*page as usize].state.resident().is_some();
        let pages: Vec<u32> = range.map(|page| page as u32).filter(in_memory).collect();
        for pages in pages.chunks(SwapWatermarks::BATCH) {
            let batch = self.evict(pages.len(), Some(pages), None);
            self.finish(batch);
        }
    }

    /// Frees `count` frames: pages move from memory to the victim buffer, and the oldest pages of the buffer leave it. The
    /// dirty pages are still to be written ([`SwapModel::start_writes`]). If the policy chooses a huge page, it leaves as a
    /// whole, through the stage `spare` if given, and the batch ends with it.
    pub(super) fn evict(&mut self, count: usize, chosen: Option<&[u32]>, spare: Option<usize>) -> Batch {
        let (used, free) = (self.buffer.used_frames(), self.buffer.free_frames());
        let share = self.buffer_limit().min(used + free);
        let moves = chosen.map_or_else(|| pages_to_move(count, used, share), <[u32]>::len);
        let mut batch = Batch { count, spare, ..Batch::default() };
        let mut dirty = Vec::new();
        for at in (0..moves).step_by(SwapWatermarks::PROTECTED_TOGETHER) {
            let part = at..moves.min(at + SwapWatermarks::PROTECTED_TOGETHER);
            let used = self.buffer.used_frames();
            batch.freed += self.drain(pages_to_drain(part.len(), used, share));
            let (mut victims, huge) = self.choose_victims(part.len(), chosen.map(|pages| &pages[part]));
            victims.iter_mut().for_each(|victim| self.verify(victim));
            batch.victims += victims.len();
            for Victim { page, frame, is_dirty } in victims {
                dirty.extend(is_dirty.then_some(frame));
                self.pages[page as usize].state.leave_memory(frame);
            }
            if let Some(address) = huge {
                batch.chunk = self.begin_chunk(address, spare.is_some());
                break;
            }
        }
        self.counts.evicted_pages += batch.victims as u64;
        self.counts.evicted_dirty_pages += dirty.len() as u64;
        batch.dirty = dirty.len();
        let mut rest = &dirty[..];
        while !rest.is_empty() {
            let Ok((first, len)) = self.slots.allocate(rest.len() as u32, |_| Ok::<_, Infallible>(()));
            let (here, left) = rest.split_at(len as usize);
            batch.runs.push(WriteRun { first, frames: here.to_vec() });
            rest = left;
        }
        batch
    }

    /// Sends the writes of a batch that begins at the time `from` to the device, all at once.
    pub(super) fn start_writes(&mut self, batch: &mut Batch, from: Time) {
        // A huge page leaves with one call.
        let victims = batch.victims + usize::from(batch.chunk.is_some());
        let software = victims as u64 * self.options.evict.0 + batch.dirty as u64 * self.options.flush.0;
        let from = from + software;
        let ends = batch
            .runs
            .iter()
            .map(|run| self.device.request(from, true, run.frames.len() as u64 * PAGE_BYTES));
        let end = ends.max().unwrap_or(from);
        batch.end = batch.write_chunk(end, |from, bytes| self.device.request(from, true, bytes));
    }

    /// Ends a batch whose pages are in the swap file. Returns whether it made progress.
    pub(super) fn finish(&mut self, mut batch: Batch) -> bool {
        self.end_writes(std::mem::take(&mut batch.runs));
        if let Some(chunk) = batch.chunk {
            self.end_chunk(chunk, batch.spare);
            return true;
        }
        batch.freed += self.drain(batch.count.saturating_sub(batch.freed));
        batch.made_progress()
    }

    fn end_writes(&mut self, runs: Vec<WriteRun>) {
        for run in runs {
            self.counts.writes += 1;
            self.counts.written_back_pages += run.frames.len() as u64;
            for (frame, slot) in run.frames.into_iter().zip(run.first..) {
                if self.buffer.write_ended(frame, slot) {
                    self.charged -= 1;
                    self.slots.free(slot);
                }
            }
        }
    }

    /// Chooses victims and gives each a frame in the victim buffer, or none. If a huge page is chosen, the choice ends with its
    /// address.
    fn choose_victims(&mut self, count: usize, chosen: Option<&[u32]>) -> (Vec<Victim>, Option<usize>) {
        let mut huge = None;
        let mut pages: Vec<u32> = match chosen {
            Some(pages) => {
                for page in pages {
                    self.split(self.chunk(*page));
                    self.policy.remove(self.key(*page));
                }
                pages.to_vec()
            }
            None => {
                if let Some(address) = self.left_behind() {
                    return (Vec::new(), Some(address));
                }
                let victims = (0..count).map_while(|_| self.policy.victim(&mut |_| true));
                let pages = victims.map_while(|key| match PolicyKey::of(key) {
                    PolicyKey::Page(address) => Some(address),
                    PolicyKey::Chunk(address) => {
                        huge = Some(address);
                        None
                    }
                });
                let pages: Vec<usize> = pages.collect();
                pages.into_iter().filter_map(|address| self.page_at(address)).collect()
            }
        };
        pages.sort_unstable();
        let mut victims = Vec::with_capacity(pages.len());
        for page in pages {
            let (address, key) = (self.address(page), self.key(page));
            let info = &mut self.pages[page as usize];
            let Some(resident) = info.state.resident() else { continue };
            let Some(frame) = self.buffer.insert(address, resident.slot()) else {
                self.policy.insert(key);
                continue;
            };
            info.state.evict();
            victims.push(Victim { page, frame, is_dirty: resident.slot().is_none() });
        }
        (victims, huge)
    }

    /// Has a clean victim written that has been stored to.
    fn verify(&mut self, victim: &mut Victim) {
        if !victim.is_dirty && self.pages[victim.page as usize].changed == Some(true) {
            let obsolete = self.buffer.write_back_changed(victim.frame);
            obsolete.into_iter().for_each(|slot| self.slots.free(slot));
            victim.is_dirty = true;
        }
    }

    /// Removes up to `count` of the oldest pages from the victim buffer. Returns how many.
    fn drain(&mut self, count: usize) -> usize {
        let mut drained = 0;
        while drained < count {
            let Some(Leaving { frame, page: address }) = self.buffer.oldest() else { break };
            let Some(page) = self.page_at(address) else { continue };
            if self.pages[page as usize].state.is_leaving() {
                self.buffer.keep(frame);
                break;
            }
            if !self.pages[page as usize].state.is_in_frame(frame) {
                continue;
            }
            let Some(slot) = self.buffer.leave(frame) else { continue };
            let info = &mut self.pages[page as usize];
            info.state = PageState::Stored(slot);
            info.heat.cool();
            match info.trigger.take() {
                Some(Trigger::ReturnProbe) => self.return_around.probe_ended(address, false),
                Some(trigger) => {
                    self.counts.readahead_windows_wasted += 1;
                    if trigger == Trigger::Probe {
                        self.fault_around.probe_ended(address, false);
                    }
                }
                None => {}
            }
            self.charged -= 1;
            drained += 1;
        }
        drained
    }

    /// Pages of the victim buffer that are in the swap file.
    pub(super) fn buffered_slots(&self) -> u64 {
        let slot = |page: &super::Page| match page.state {
            PageState::InVictimBuffer(frame) => self.buffer.slot(frame),
            _ => None,
        };
        self.pages.iter().filter_map(slot).count() as u64
    }
}
