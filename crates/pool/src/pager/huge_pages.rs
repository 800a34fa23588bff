//! Memory that is used in order comes and leaves 2 MiB at a time, as huge pages: whole chunks, through stages.
//!
//! A chunk is staged when a stream comes near it: one that fills fresh memory, or one that reads what is on the
//! store. It waits in its stage until its first page is touched; that has it moved into memory, and the next ones
//! staged. How chunks move is in [`super::moves`].

use std::sync::MutexGuard;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use deepram_core::cache::Replacement;

use super::fatal::discard;
use super::ranges::{CHUNK_BYTES, CHUNK_PAGES, Chunk, Layout, Page, Place, Slot};
use super::room::{Frame, FrameState};
use super::stage::SMALL;
use super::{Ground, Inner, PAGE, Spans};
use crate::ahead::Window;
use crate::lock::lock;

/// Runs of neighbouring slots that a chunk may be made up of: with more, reading them is what takes long.
const RUNS: usize = 16;
/// Pages of a window that is so long that chunks behind it are staged.
const LONG: usize = 64;
/// Chunks that are staged ahead of the one in use.
const AHEAD: usize = 3;
/// A first store so near to a chunk's beginning is a stream's, which will store to all of it.
const NEAR: usize = 8;
/// Memory becomes huge at its first touch while this part of the frames is free.
const ROOMY: usize = 4;
/// What is ready and not used for so long makes way for what is wanted, or gives its memory back.
const STALE: Duration = Duration::from_millis(50);
const REST: Duration = Duration::from_secs(1);
/// Stages hold at most this part of what the process has of the budget.
const SHARE: usize = 8;
/// Sets the keys of chunks apart from those of pages.
const HUGE: u64 = 1 << 63;

/// A chunk's key in the policy.
pub(super) fn key(chunk: usize) -> u64 {
    (chunk / PAGE) as u64 | HUGE
}

/// The address of the chunk whose key it is, if it is one's.
pub(super) fn chunk_of(key: u64) -> Option<usize> {
    (key & HUGE != 0).then_some((key & !HUGE) as usize * PAGE)
}

/// What the program has said of huge pages.
#[derive(Debug, Clone, Default)]
pub(super) struct Advice {
    /// Wanted from the first touch on (`MADV_HUGEPAGE`).
    huge: Spans,
    /// Not wanted (`MADV_NOHUGEPAGE`).
    small: Spans,
}

impl Advice {
    /// The program wants huge pages for these addresses, or does not, or says nothing any more.
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

/// What a chunk is staged from.
pub(super) enum Source {
    Fresh,
    Store(Vec<(Slot, usize)>),
}

impl Chunk {
    /// What the chunk would be staged from, if it can be.
    pub(super) fn source(&self) -> Option<Source> {
        if self.iter().all(|page| page.place == Place::Fresh) {
            return Some(Source::Fresh);
        }
        let stored = |page: &Page| if let Place::Stored(slot) = page.place { Some(slot) } else { None };
        let slots: Option<Vec<Slot>> = self.iter().map(stored).collect();
        slots.and_then(|slots| runs_of_slots(&slots)).map(Source::Store)
    }

    /// Whether it is worth while to look closer: all of it fresh, or most of it not in memory and nothing dirty or on the
    /// move.
    fn might_be_staged(&self) -> bool {
        if self.huge || self.staged.is_some() {
            return false;
        }
        let fresh = self[0].place == Place::Fresh;
        let fits = |page: &Page| match page.place {
            Place::Fresh => fresh,
            Place::Stored(_) | Place::Clean(_) | Place::Waiting(_) => !fresh,
            Place::Coming | Place::Dirty | Place::Leaving => false,
        };
        let out = |page: &&Page| matches!(page.place, Place::Stored(_) | Place::Waiting(_));
        (fresh || self.iter().filter(out).count() > CHUNK_PAGES / 2)
            && self.iter().all(|page| fits(page) && !page.pinned && !page.hidden)
    }

    pub(super) fn set(&mut self, place: impl Fn(usize) -> Place) {
        self.iter_mut().enumerate().for_each(|(n, page)| page.place = place(n));
    }

    pub(super) fn places(&self) -> Vec<Place> {
        self.iter().map(|page| page.place).collect()
    }
}

impl Inner {
    /// A window is read ahead: if it is long, what follows it is staged.
    pub(super) fn stage_behind(&self, ground: &Ground, window: Window) {
        if window.stride == PAGE.cast_signed() && window.count >= LONG {
            let next = window.page(window.count).next_multiple_of(CHUNK_BYTES);
            self.stage_from(ground, next);
        }
    }

    /// Whether there are huge pages. Where devices may store to memory (`pinned`) there are none.
    fn may_be_huge(&self) -> bool {
        self.stages.any() && !self.direct.load(Relaxed)
    }

    /// Whether fresh memory that is touched here is to be a huge page at once.
    pub(super) fn gives_huge(&self, ground: &Ground, chunk: &Chunk, address: usize) -> bool {
        let asked = || ground.advice.huge.covers(address, address + CHUNK_BYTES);
        // What the kernel would give room for is given only while there is much room.
        let roomy = || self.frames.excess(self.frames.limit() / ROOMY) == 0;
        let fresh = || chunk.iter().all(|page| page.place == Place::Fresh);
        self.may_be_huge()
            && chunk.staged.is_none()
            && (self.stages.always() || asked())
            && roomy()
            && fresh()
    }

    /// Has fresh memory that is touched staged, before what may be wanted.
    pub(super) fn stage_first(&self, ground: &Ground, chunk: usize) {
        self.stage(ground, chunk, Duration::ZERO);
    }

    /// A chunk comes into memory: what follows is staged, unless it is fresh memory touched out of order.
    pub(super) fn stage_next(&self, ground: &Ground, chunk: usize, fresh: bool) {
        if fresh {
            self.stage_fresh(ground, chunk.saturating_sub(CHUNK_BYTES), chunk + CHUNK_BYTES);
        } else {
            self.stage_from(ground, chunk + CHUNK_BYTES);
        }
    }

    /// If all of a chunk has been touched, a stream fills memory: what is from `next` on is staged.
    pub(super) fn stage_fresh(&self, ground: &Ground, chunk: usize, next: usize) {
        let filled =
            |(chunk, _): (MutexGuard<'_, Chunk>, usize)| chunk.iter().all(|page| page.place != Place::Fresh);
        if self.may_be_huge() && ground.layout.chunk(chunk).is_some_and(filled) {
            self.stage_from(ground, next);
        }
    }

    fn stage_from(&self, ground: &Ground, chunk: usize) {
        (0..AHEAD).for_each(|n| self.stage(ground, chunk + n * CHUNK_BYTES, STALE));
    }

    /// Has a chunk staged, if it can be and there is a stage, or one that has been ready and unused for so long.
    fn stage(&self, ground: &Ground, address: usize, age: Duration) {
        // Many processes may share the budget, and much may be beside what is paged.
        let share = self.frames.share();
        if !self.may_be_huge()
            || share < SMALL / 4 * 3 * CHUNK_PAGES
            || !ground.layout.covers(address, address + CHUNK_BYTES)
        {
            return;
        }
        if !ground.advice.small.within(address, address + CHUNK_BYTES).is_empty() {
            return;
        }
        let might = |(chunk, _): (MutexGuard<'_, Chunk>, usize)| chunk.might_be_staged();
        if !ground.layout.chunk(address).is_some_and(might) {
            return;
        }
        let Some(stage) = self.stages.claim().or_else(|| self.unstage_stale(ground, age)) else {
            return;
        };
        if !self.stages.holds(stage) && self.stages.frames() + CHUNK_PAGES > share / SHARE {
            return self.stages.release(stage);
        }
        if let Some((mut chunk, _)) = ground.layout.chunk(address)
            && self.gather(&mut chunk, address)
        {
            chunk.staged = Some(stage);
            self.stages.order(stage, address);
            if !self.stagers.load(Relaxed) {
                self.nudge();
            }
        } else {
            self.stages.release(stage);
        }
    }

    /// Makes a chunk, if it can be staged, one: what is in DRAM of one that is mostly not in memory is dropped, as it
    /// comes back with the rest.
    fn gather(&self, chunk: &mut Chunk, address: usize) -> bool {
        if !chunk.might_be_staged() {
            return false;
        }
        if chunk[0].place == Place::Fresh {
            return true;
        }
        let mut room = self.room();
        let mut slots = Vec::with_capacity(CHUNK_PAGES);
        for page in chunk.iter() {
            slots.push(match page.place {
                Place::Stored(slot) | Place::Clean(slot) => slot,
                Place::Waiting(number) => match *room.frame(number) {
                    Frame { state: FrameState::Waiting, slot: Some(slot), .. } => slot,
                    _ => return false,
                },
                _ => return false,
            });
        }
        if runs_of_slots(&slots).is_none() {
            return false;
        }
        let mut there = Vec::new();
        let mut freed = 0;
        for (n, page) in chunk.iter_mut().enumerate() {
            match page.place {
                Place::Clean(_) => there.push(address + n * PAGE),
                Place::Waiting(number) => room.leave(number),
                _ => continue,
            }
            freed += 1;
            page.place = Place::Stored(slots[n]);
            page.trigger = None;
        }
        drop(room);
        {
            let mut policy = lock(&self.policy);
            there.iter().for_each(|page| policy.remove((page / PAGE) as u64));
        }
        // SAFETY: managed memory that is protected, and whose contents are on the store.
        unsafe { discard(&super::runs_of(&there)) };
        self.frames.give(freed);
        true
    }

    /// Takes its stage from a chunk that has been ready for long and was not used.
    fn unstage_stale(&self, ground: &Ground, age: Duration) -> Option<usize> {
        let (stage, address) = self.stages.stale(age)?;
        let (mut chunk, _) = ground.layout.chunk(address)?;
        if chunk.staged != Some(stage) {
            return None;
        }
        self.stages.take_ready(stage)?;
        chunk.staged = None;
        Some(stage)
    }

    /// A chunk's stage is free again; whoever waits for it tries again.
    pub(super) fn unstage(&self, ground: &Ground, chunk: &mut Chunk, address: usize) {
        let Some(stage) = chunk.staged.take() else { return };
        self.stages.release(stage);
        if chunk.awaited.take().is_some() {
            ground.wake(address, CHUNK_BYTES);
        }
    }

    /// Gives back what stages hold that nothing comes through any more.
    pub(super) fn rest_stages(&self) {
        if !self.stages.any() {
            return;
        }
        // Kept to the end: a fork finds what stages hold and what is counted for them the same.
        let ground = self.read();
        let stale = self.unstage_stale(&ground, REST);
        let idle = std::iter::from_fn(|| self.stages.claim_idle(REST));
        for stage in stale.into_iter().chain(idle) {
            self.stages.drop_page(stage);
            self.frames.give(CHUNK_PAGES);
            self.stages.release(stage);
        }
    }

    /// Nothing of the range is staged, and no chunk that it is a part of is one huge page any more. The ground
    /// is held for writing.
    pub(super) fn make_small(&self, ground: &Ground, start: usize, end: usize) {
        for (address, mut chunk) in ground.layout.chunks(start, end) {
            self.unstage(ground, &mut chunk, address);
            self.split(&mut chunk, address);
        }
    }

    /// As [`Inner::make_small`], for memory whose contents are dropped: chunks that go whole are not split.
    pub(super) fn drop_huge(&self, ground: &Ground, start: usize, end: usize) {
        for (address, mut chunk) in ground.layout.chunks(start, end) {
            self.unstage(ground, &mut chunk, address);
            if chunk.huge && start <= address && address + CHUNK_BYTES <= end {
                chunk.huge = false;
                lock(&self.policy).remove(key(address));
            } else {
                self.split(&mut chunk, address);
            }
        }
    }

    /// Before a fork: what parent and child will both have is divided. A huge page of which each has stored to a part
    /// would stay in memory whole beside the copies of those parts. What is clean the child leaves to its parent.
    pub(super) fn split_dirty(&self, ground: &Ground) {
        for (address, mut chunk) in ground.layout.chunks(0, usize::MAX) {
            if chunk[0].place == Place::Dirty {
                self.split(&mut chunk, address);
            }
        }
    }

    /// Of a forked child, which has none of its parent's stages: chunks are pages.
    pub(super) fn forget_huge(layout: &Layout, policy: &mut dyn Replacement<u64>) {
        for (address, mut chunk) in layout.chunks(0, usize::MAX) {
            (chunk.staged, chunk.awaited) = (None, None);
            if std::mem::take(&mut chunk.huge) {
                name_pages(policy, address);
            }
        }
    }

    /// A huge page becomes 512 pages, each of which may leave by itself.
    pub(super) fn split(&self, chunk: &mut Chunk, address: usize) {
        if !std::mem::take(&mut chunk.huge) {
            return;
        }
        name_pages(&mut **lock(&self.policy), address);
        // Advice about a part of it has the kernel divide it. If it does not, as a forked child has it as well, its
        // memory comes free when all of it has left.
        // SAFETY: changes no contents.
        unsafe { libc::syscall(libc::SYS_madvise, address, PAGE, libc::MADV_COLD) };
    }

    /// A chunk whose turn to leave has come does not leave now.
    pub(super) fn stays_huge(&self, ground: &Ground, address: usize) {
        if let Some((chunk, _)) = ground.layout.chunk(address)
            && chunk.huge
        {
            lock(&self.policy).insert(key(address));
        }
    }

    /// A first store to a clean page of a huge page. Whether the store may go on.
    pub(super) fn store_to_huge(
        &self,
        ground: &Ground,
        chunk: &mut Chunk,
        at: usize,
        address: usize,
    ) -> bool {
        if at >= NEAR {
            self.split(chunk, address);
            return false;
        }
        ground.unprotect(address, CHUNK_BYTES);
        for page in chunk.iter_mut() {
            if let Place::Clean(slot) = page.place {
                ground.store.give_up(slot);
            }
            page.place = Place::Dirty;
            page.stored_to = true;
        }
        true
    }

    /// Serves a fault on a staged chunk: brings it if it is ready. If not, whoever brings it does.
    pub(super) fn fault_staged(
        &self,
        ground: &Ground,
        mut chunk: MutexGuard<'_, Chunk>,
        address: usize,
        write: bool,
    ) {
        let Some(stage) = chunk.staged else { return };
        match self.stages.take_ready(stage) {
            Some(sum) => self.enter_staged(ground, chunk, address, stage, sum, write),
            None => chunk.awaited = Some(write || chunk.awaited.unwrap_or_default()),
        }
    }
}

/// Runs of neighbouring slots, if there are few.
fn runs_of_slots(slots: &[Slot]) -> Option<Vec<(Slot, usize)>> {
    let follow = |a: &Slot, b: &Slot| a.file == b.file && a.number + 1 == b.number;
    let runs: Vec<(Slot, usize)> =
        slots.chunk_by(follow).map(|run| (run[0], run.len())).take(RUNS + 1).collect();
    (runs.len() <= RUNS).then_some(runs)
}

/// The policy knows a chunk by its pages instead of by its own key.
fn name_pages(policy: &mut dyn Replacement<u64>, chunk: usize) {
    policy.remove(key(chunk));
    pages_of(chunk).for_each(|page| policy.insert((page / PAGE) as u64));
}

/// The pages of a chunk, by their addresses.
pub(super) fn pages_of(chunk: usize) -> impl Iterator<Item = usize> {
    (chunk..chunk + CHUNK_BYTES).step_by(PAGE)
}
