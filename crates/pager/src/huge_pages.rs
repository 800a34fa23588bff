//! Decides which memory becomes huge pages. Memory that is used in order enters and leaves 2 MiB at a time, in whole
//! chunks, through stages.
//!
//! A chunk is staged when a stream approaches it: one that fills fresh memory, or one that reads stored pages. It waits
//! in its stage until its first page is touched; that fault moves it into memory and has the next chunks staged.
//! [`super::huge_page_move`] moves the chunks.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use deepram_core::cache::Replacement;

use super::fatal::discard;
use super::huge_page_staging::MIN_CHUNKS;
use super::page_table::{CHUNK_BYTES, CHUNK_PAGES, Chunk, PageInfo, PageState, PageTable, SwapSlot};
use super::victim_buffer::{Frame, FrameState};
use super::{AddressSpace, Inner, PAGE, Spans};
use crate::readahead::Window;
use deepram_linux::lock::lock;

/// Largest number of runs of neighbouring slots in a staged chunk: with more runs, reading them takes too long.
const MAX_RUNS: usize = 16;
/// Pages of a window from which on the chunks behind it are staged.
const LONG_WINDOW: usize = 64;
/// Chunks that are staged ahead of the one in use.
const STAGED_AHEAD: usize = 3;
/// A first store among this many pages at the start of a chunk belongs to a stream, which will store to the whole
/// chunk.
const NEAR_START: usize = 8;
/// Fresh memory becomes huge at its first touch while one in this many of the frames is free.
const FREE_SHARE: usize = 4;
/// Time after which a stage that is ready and unused is given to another chunk, or returns its memory.
const STALE_AFTER: Duration = Duration::from_millis(50);
const IDLE_AFTER: Duration = Duration::from_secs(1);
/// Stages hold at most one in this many of the frames of the process.
const STAGE_SHARE: usize = 8;
/// Bit that distinguishes the policy's keys of chunks from those of pages.
const CHUNK_KEY: u64 = 1 << 63;

/// The policy's key of a chunk.
pub(super) fn key(chunk: usize) -> u64 {
    (chunk / PAGE) as u64 | CHUNK_KEY
}

/// The address of the chunk with this key; `None` for the key of a page.
pub(super) fn chunk_of(key: u64) -> Option<usize> {
    (key & CHUNK_KEY != 0).then_some((key & !CHUNK_KEY) as usize * PAGE)
}

/// The program's advice about huge pages.
#[derive(Debug, Clone, Default)]
pub(super) struct HugePageAdvice {
    /// Huge from the first touch on (`MADV_HUGEPAGE`).
    huge: Spans,
    /// Never huge (`MADV_NOHUGEPAGE`).
    small: Spans,
}

impl HugePageAdvice {
    /// Replaces the advice for a range: huge, not huge, or none.
    pub(super) fn set(&mut self, start: usize, end: usize, huge: Option<bool>) {
        self.huge.remove(start, end);
        self.small.remove(start, end);
        match huge {
            Some(true) => self.huge.insert(start, end),
            Some(false) => self.small.insert(start, end),
            None => {}
        }
    }
}

/// Contents with which a stage is filled.
pub(super) enum StageSource {
    Fresh,
    Stored(Vec<(SwapSlot, usize)>),
}

impl Chunk {
    /// The contents with which the chunk would be staged; `None` if it cannot be.
    pub(super) fn source(&self) -> Option<StageSource> {
        if self.iter().all(|page| page.state == PageState::Fresh) {
            return Some(StageSource::Fresh);
        }
        let stored =
            |page: &PageInfo| if let PageState::Stored(slot) = page.state { Some(slot) } else { None };
        let slots: Option<Vec<SwapSlot>> = self.iter().map(stored).collect();
        slots.and_then(|slots| runs_of_slots(&slots)).map(StageSource::Stored)
    }

    /// Quick check before [`Chunk::source`]: the chunk is all fresh, or mostly out of memory with no page dirty or in
    /// transit.
    fn may_be_staged(&self) -> bool {
        if self.huge || self.staged.is_some() {
            return false;
        }
        let fresh = self[0].state == PageState::Fresh;
        let fits = |page: &PageInfo| match page.state {
            PageState::Fresh => fresh,
            PageState::Stored(_) | PageState::Clean(_) | PageState::InVictimBuffer(_) => !fresh,
            PageState::Incoming | PageState::Dirty | PageState::Evicting => false,
        };
        let out =
            |page: &&PageInfo| matches!(page.state, PageState::Stored(_) | PageState::InVictimBuffer(_));
        (fresh || self.iter().filter(out).count() > CHUNK_PAGES / 2)
            && self.iter().all(|page| fits(page) && !page.pinned && !page.unreadable)
    }

    pub(super) fn set_states(&mut self, state: impl Fn(usize) -> PageState) {
        self.iter_mut().enumerate().for_each(|(n, page)| page.state = state(n));
    }

    pub(super) fn states(&self) -> Vec<PageState> {
        self.iter().map(|page| page.state).collect()
    }
}

impl Inner {
    /// Stages the memory behind a long readahead window.
    pub(super) fn stage_behind(&self, space: &AddressSpace, window: Window) {
        if window.stride == PAGE.cast_signed() && window.count >= LONG_WINDOW {
            let next = window.page(window.count).next_multiple_of(CHUNK_BYTES);
            self.stage_from(space, next);
        }
    }

    /// Whether huge pages are in use. There are none where devices may store to memory (`direct_io`).
    fn may_be_huge(&self) -> bool {
        self.stages.any() && !self.direct_io.load(Relaxed)
    }

    /// Whether fresh memory that is touched here becomes a huge page at once.
    pub(super) fn wants_huge_on_touch(&self, space: &AddressSpace, chunk: &Chunk, address: usize) -> bool {
        let asked = || space.advice.huge.covers(address, address + CHUNK_BYTES);
        // Only while many frames are free: the kernel would also give huge pages only then.
        let many_free = || self.frames.excess(self.frames.limit() / FREE_SHARE) == 0;
        let fresh = || chunk.iter().all(|page| page.state == PageState::Fresh);
        self.may_be_huge()
            && chunk.staged.is_none()
            && (self.stages.always() || asked())
            && many_free()
            && fresh()
    }

    /// Stages fresh memory that a thread is touching, before memory that is only predicted to be used.
    pub(super) fn stage_first(&self, space: &AddressSpace, chunk: usize) {
        self.stage(space, chunk, Duration::ZERO);
    }

    /// Called when a chunk enters memory: stages the chunks behind it, unless it is fresh memory touched out of order.
    pub(super) fn stage_next(&self, space: &AddressSpace, chunk: usize, fresh: bool) {
        if fresh {
            self.stage_fresh(space, chunk.saturating_sub(CHUNK_BYTES), chunk + CHUNK_BYTES);
        } else {
            self.stage_from(space, chunk + CHUNK_BYTES);
        }
    }

    /// If the whole chunk has been touched, a stream is filling memory: stages from `next` on.
    pub(super) fn stage_fresh(&self, space: &AddressSpace, chunk: usize, next: usize) {
        let filled = |(chunk, _): (MutexGuard<'_, Chunk>, usize)| {
            chunk.iter().all(|page| page.state != PageState::Fresh)
        };
        if self.may_be_huge() && space.page_table.chunk(chunk).is_some_and(filled) {
            self.stage_from(space, next);
        }
    }

    fn stage_from(&self, space: &AddressSpace, chunk: usize) {
        (0..STAGED_AHEAD).for_each(|n| self.stage(space, chunk + n * CHUNK_BYTES, STALE_AFTER));
    }

    /// Stages a chunk if that is possible and a stage is free, or has been ready and unused for `age`.
    fn stage(&self, space: &AddressSpace, address: usize, age: Duration) {
        // Many processes may share the budget, and much memory may be unpaged.
        let share = self.frames.fair_share();
        if !self.may_be_huge()
            || share < MIN_CHUNKS / 4 * 3 * CHUNK_PAGES
            || !space.page_table.covers(address, address + CHUNK_BYTES)
        {
            return;
        }
        if !space.advice.small.within(address, address + CHUNK_BYTES).is_empty() {
            return;
        }
        let might = |(chunk, _): (MutexGuard<'_, Chunk>, usize)| chunk.may_be_staged();
        if !space.page_table.chunk(address).is_some_and(might) {
            return;
        }
        let Some(stage) = self.stages.claim().or_else(|| self.unstage_stale(space, age)) else {
            return;
        };
        if !self.stages.has_page(stage) && self.stages.frames() + CHUNK_PAGES > share / STAGE_SHARE {
            return self.stages.release(stage);
        }
        if let Some((mut chunk, _)) = space.page_table.chunk(address)
            && self.make_stageable(&mut chunk, address)
        {
            chunk.staged = Some(stage);
            self.stages.queue_order(stage, address);
            if !self.stagers.load(Relaxed) {
                self.wake_evictors();
            }
        } else {
            self.stages.release(stage);
        }
    }

    /// Prepares a chunk for staging, if it can be staged: the pages of a mostly absent chunk that are in DRAM are
    /// dropped, as they come back with the rest. Returns whether it can be.
    fn make_stageable(&self, chunk: &mut Chunk, address: usize) -> bool {
        if !chunk.may_be_staged() {
            return false;
        }
        if chunk[0].state == PageState::Fresh {
            return true;
        }
        let mut buffer = self.victim_buffer();
        let mut slots = Vec::with_capacity(CHUNK_PAGES);
        for page in chunk.iter() {
            slots.push(match page.state {
                PageState::Stored(slot) | PageState::Clean(slot) => slot,
                PageState::InVictimBuffer(number) => match *buffer.frame(number) {
                    Frame { state: FrameState::Buffered, slot: Some(slot), .. } => slot,
                    _ => return false,
                },
                _ => return false,
            });
        }
        if runs_of_slots(&slots).is_none() {
            return false;
        }
        let mut resident = Vec::new();
        let mut freed = 0;
        for (n, page) in chunk.iter_mut().enumerate() {
            match page.state {
                PageState::Clean(_) => resident.push(address + n * PAGE),
                PageState::InVictimBuffer(number) => buffer.remove(number),
                _ => continue,
            }
            freed += 1;
            page.state = PageState::Stored(slots[n]);
            page.trigger = None;
        }
        drop(buffer);
        {
            let mut policy = lock(&self.policy);
            resident.iter().for_each(|page| policy.remove((page / PAGE) as u64));
        }
        // SAFETY: managed memory that is protected, and whose contents are in the swap file.
        unsafe { discard(&super::contiguous_ranges(&resident)) };
        self.frames.release(freed);
        true
    }

    /// Takes the stage of a chunk that has been ready for `age` and was not used.
    fn unstage_stale(&self, space: &AddressSpace, age: Duration) -> Option<usize> {
        let (stage, address) = self.stages.stale(age)?;
        let (mut chunk, _) = space.page_table.chunk(address)?;
        if chunk.staged != Some(stage) {
            return None;
        }
        self.stages.take_ready(stage)?;
        chunk.staged = None;
        Some(stage)
    }

    /// Releases a chunk's stage, and lets threads that wait for it retry.
    pub(super) fn unstage(&self, space: &AddressSpace, chunk: &mut Chunk, address: usize) {
        let Some(stage) = chunk.staged.take() else { return };
        self.stages.release(stage);
        if chunk.waiting_fault.take().is_some() {
            space.wake(address, CHUNK_BYTES);
        }
    }

    /// Returns the memory of stages that have not been used for a while.
    pub(super) fn release_idle_stages(&self) {
        if !self.stages.any() {
            return;
        }
        // Held to the end: a fork must find the stages and their charge consistent.
        let space = self.read();
        let stale = self.unstage_stale(&space, IDLE_AFTER);
        let idle = std::iter::from_fn(|| self.stages.claim_idle(IDLE_AFTER));
        for stage in stale.into_iter().chain(idle) {
            self.stages.drop_page(stage);
            self.frames.release(CHUNK_PAGES);
            self.stages.release(stage);
        }
    }

    /// Releases the stages of the range, and splits huge pages that overlap it. The address-space lock is held
    /// exclusively.
    pub(super) fn split_range(&self, space: &AddressSpace, start: usize, end: usize) {
        for (address, mut chunk) in space.page_table.chunks(start, end) {
            self.unstage(space, &mut chunk, address);
            self.split(&mut chunk, address);
        }
    }

    /// As [`Inner::split_range`], for memory whose contents are dropped: chunks inside the range are not split.
    pub(super) fn drop_huge_pages(&self, space: &AddressSpace, start: usize, end: usize) {
        for (address, mut chunk) in space.page_table.chunks(start, end) {
            self.unstage(space, &mut chunk, address);
            if chunk.huge && start <= address && address + CHUNK_BYTES <= end {
                chunk.huge = false;
                lock(&self.policy).remove(key(address));
            } else {
                self.split(&mut chunk, address);
            }
        }
    }

    /// Splits what parent and child will share, before a fork. A huge page of which each stores to a part would stay in
    /// memory whole, in addition to the copies of those parts. The child leaves clean pages to its parent.
    pub(super) fn split_dirty_huge_pages(&self, space: &AddressSpace) {
        for (address, mut chunk) in space.page_table.chunks(0, usize::MAX) {
            if chunk[0].state == PageState::Dirty {
                self.split(&mut chunk, address);
            }
        }
    }

    /// Turns huge pages into 4 KiB pages in a forked child, which has none of its parent's stages.
    pub(super) fn forget_huge_pages(page_table: &PageTable, policy: &mut dyn Replacement<u64>) {
        for (address, mut chunk) in page_table.chunks(0, usize::MAX) {
            (chunk.staged, chunk.waiting_fault) = (None, None);
            if std::mem::take(&mut chunk.huge) {
                track_by_page(policy, address);
            }
        }
    }

    /// Splits a huge page into 512 pages, each of which may leave by itself.
    pub(super) fn split(&self, chunk: &mut Chunk, address: usize) {
        if !std::mem::take(&mut chunk.huge) {
            return;
        }
        track_by_page(&mut **lock(&self.policy), address);
        // Advice about a part makes the kernel split the huge page. Where the kernel does not, because a forked child
        // maps it too, its memory becomes free when all of its pages have left.
        // SAFETY: changes no contents.
        unsafe { libc::syscall(libc::SYS_madvise, address, PAGE, libc::MADV_COLD) };
    }

    /// Returns a huge page to the policy when it was chosen as a victim but is not evicted now.
    pub(super) fn reinsert_huge_page(&self, space: &AddressSpace, address: usize) {
        if let Some((chunk, _)) = space.page_table.chunk(address)
            && chunk.huge
        {
            lock(&self.policy).insert(key(address));
        }
    }

    /// Handles a first store to a clean page of a huge page. Returns whether the store may continue.
    pub(super) fn first_store_to_huge_page(
        &self,
        space: &AddressSpace,
        chunk: &mut Chunk,
        at: usize,
        address: usize,
    ) -> bool {
        if at >= NEAR_START {
            self.split(chunk, address);
            return false;
        }
        space.unprotect(address, CHUNK_BYTES);
        for page in chunk.iter_mut() {
            if let PageState::Clean(slot) = page.state {
                space.swap_file.free(slot);
            }
            page.state = PageState::Dirty;
            page.predicted_written = true;
        }
        true
    }

    /// Serves a fault on a staged chunk: installs it if it is ready. Otherwise the stager thread installs it.
    pub(super) fn fault_staged(
        &self,
        space: &AddressSpace,
        mut chunk: MutexGuard<'_, Chunk>,
        address: usize,
        write: bool,
    ) {
        let Some(stage) = chunk.staged else { return };
        match self.stages.take_ready(stage) {
            Some(checksum) => self.install_staged(space, chunk, address, stage, checksum, write),
            None => chunk.waiting_fault = Some(write || chunk.waiting_fault.unwrap_or_default()),
        }
    }
}

/// Groups slots into runs of neighbours; `None` if there are too many runs.
fn runs_of_slots(slots: &[SwapSlot]) -> Option<Vec<(SwapSlot, usize)>> {
    let follow = |a: &SwapSlot, b: &SwapSlot| a.file == b.file && a.number + 1 == b.number;
    let runs: Vec<(SwapSlot, usize)> =
        slots.chunk_by(follow).map(|run| (run[0], run.len())).take(MAX_RUNS + 1).collect();
    (runs.len() <= MAX_RUNS).then_some(runs)
}

/// Replaces a chunk's key in the policy by the keys of its pages.
fn track_by_page(policy: &mut dyn Replacement<u64>, chunk: usize) {
    policy.remove(key(chunk));
    pages_of(chunk).for_each(|page| policy.insert((page / PAGE) as u64));
}

/// Addresses of the pages of a chunk.
pub(super) fn pages_of(chunk: usize) -> impl Iterator<Item = usize> {
    (chunk..chunk + CHUNK_BYTES).step_by(PAGE)
}
