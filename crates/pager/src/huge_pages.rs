//! Carries out what core decides about huge pages (`deepram_core::paging::huge_pages`): stages chunks, and splits huge pages.
//! [`super::huge_page_move`] moves the chunks.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use deepram_core::paging::huge_pages::{
    self, PolicyKey, STAGED_AHEAD, chunk_behind, first_store_dirties_all, free_for_huge, is_filled, is_fresh,
    runs_of_slots,
};
use deepram_core::paging::stages::{IDLE_AFTER, STALE_AFTER, share_suffices};
use deepram_core::paging::{ForkPolicy, Window};

use super::fatal::discard;
use super::page_table::{CHUNK_BYTES, CHUNK_PAGES, Chunk, PageState, PageTable, SwapSlot};
use super::{AddressSpace, Inner, PAGE, Spans, contiguous_ranges};
use deepram_linux::lock::lock;
use deepram_linux::stage_memory::split_huge_page;

/// The policy's key of a chunk.
pub(super) fn key(chunk: usize) -> u64 {
    PolicyKey::Chunk(chunk).number()
}

/// Contents with which a stage is filled.
pub(super) type StageSource = huge_pages::StageSource<SwapSlot>;

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

impl Chunk {
    /// The contents with which the chunk would be staged; `None` if it cannot be.
    pub(super) fn source(&self) -> Option<StageSource> {
        huge_pages::source(self.iter().map(|page| page.state))
    }

    /// Quick check before [`Chunk::source`].
    fn may_be_staged(&self) -> bool {
        let pages = self.iter().map(|page| (page.state, page.pinned || page.unreadable));
        !self.huge && self.staged.is_none() && huge_pages::may_be_staged(pages)
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
        chunk_behind(window, PAGE).into_iter().for_each(|chunk| self.stage_from(space, chunk));
    }

    /// Whether huge pages are in use. There are none where devices may store to memory (`direct_io`).
    fn may_be_huge(&self) -> bool {
        self.stages.any() && !self.direct_io.load(Relaxed)
    }

    /// Whether fresh memory that is touched here becomes a huge page at once.
    pub(super) fn wants_huge_on_touch(&self, space: &AddressSpace, chunk: &Chunk, address: usize) -> bool {
        let asked = || space.advice.huge.covers(address, address + CHUNK_BYTES);
        let many_free = || self.frames.are_free(free_for_huge(self.frames.limit()));
        let fresh = || is_fresh(chunk.iter().map(|page| page.state));
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
        let filled =
            |(chunk, _): (MutexGuard<'_, Chunk>, usize)| is_filled(chunk.iter().map(|page| page.state));
        if self.may_be_huge() && space.page_table.chunk(chunk).is_some_and(filled) {
            self.stage_from(space, next);
        }
    }

    fn stage_from(&self, space: &AddressSpace, chunk: usize) {
        (0..STAGED_AHEAD).for_each(|n| self.stage(space, chunk + n * CHUNK_BYTES, STALE_AFTER));
    }

    /// Stages a chunk if that is possible and a stage is free, or has been ready and unused for `age`.
    fn stage(&self, space: &AddressSpace, address: usize, age: Duration) {
        let share = self.frames.fair_share();
        if !self.may_be_huge()
            || !share_suffices(share)
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
        if !self.stages.may_use(stage, share) {
            return self.stages.release(stage);
        }
        if let Some((mut chunk, _)) = space.page_table.chunk(address)
            && self.make_stageable(space, &mut chunk, address)
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
    fn make_stageable(&self, space: &AddressSpace, chunk: &mut Chunk, address: usize) -> bool {
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
                PageState::InVictimBuffer(number) => match buffer.stored_at(number) {
                    Some(slot) => slot,
                    None => return false,
                },
                _ => return false,
            });
        }
        let unverified = chunk.iter().zip(pages_of(address));
        let unverified = unverified.filter_map(|(info, page)| Some((page, info.unverified()?.1)));
        let unverified: Vec<_> = unverified.collect();
        if runs_of_slots(&slots).is_none() || space.unchanged(&unverified).len() < unverified.len() {
            return false;
        }
        let mut resident = Vec::new();
        let mut freed = 0;
        for (n, page) in chunk.iter_mut().enumerate() {
            match page.state {
                PageState::Clean(_) => resident.push(address + n * PAGE),
                PageState::InVictimBuffer(number) => {
                    buffer.take(number);
                }
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
        unsafe { discard(&contiguous_ranges(&resident)) };
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

    /// Turns huge pages into 4 KiB pages in a forked child, which has none of its parent's stages and counts.
    pub(super) fn forget_huge_pages(page_table: &PageTable, policy: &mut ForkPolicy<u64>) {
        for (address, mut chunk) in page_table.chunks(0, usize::MAX) {
            (chunk.staged, chunk.waiting_fault, chunk.evicted_at) = (None, None, None);
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
        track_by_page(&mut lock(&self.policy), address);
        split_huge_page(address);
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
        if !first_store_dirties_all(at) {
            self.split(chunk, address);
            return false;
        }
        space.unprotect(address, CHUNK_BYTES);
        for page in chunk.iter_mut() {
            if let PageState::Clean(slot) = page.state {
                space.swap_file.free(slot);
            }
            page.state = PageState::Dirty;
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

/// Replaces a chunk's key in the policy by the keys of its pages.
fn track_by_page(policy: &mut ForkPolicy<u64>, chunk: usize) {
    policy.remove(key(chunk));
    pages_of(chunk).for_each(|page| policy.insert((page / PAGE) as u64));
}

/// Addresses of the pages of a chunk.
pub(super) fn pages_of(chunk: usize) -> impl Iterator<Item = usize> {
    (chunk..chunk + CHUNK_BYTES).step_by(PAGE)
}
