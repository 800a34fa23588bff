//! Bringing pages in: what a fault needs, and what is done when its bytes are there.

use std::io;

use super::ranges::{CHUNK_BYTES, CHUNK_PAGES, Layout, Page, Place, Slot, Trigger};
use super::record::FaultKind;
use super::room::FrameState;
use super::stats::add;
use super::{BATCH, Ground, Inner, PAGE, around};
use crate::ahead::Window;
use crate::lock::lock;
use crate::uffd::Fault;

/// Tries of a read that fails, before the program is ended.
const TRIES: usize = 3;

/// What fresh pages are made of: in the program's file, and so in no budget.
static ZEROS: [u8; BATCH * PAGE] = [0; BATCH * PAGE];

/// A page that is on its way into memory: `Coming`, and counted as in use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Coming {
    pub(super) page: usize,
    /// Where it is read from.
    pub(super) slot: Slot,
    /// It will be stored to, and so is installed writable and leaves the store.
    pub(super) writable: bool,
}

/// Which of the pages that are read ahead of use is to be seen used, and why: the first of a whole window, of which there may be a
/// piece, or one of the neighbours of a page that was missed ([`around`]).
pub(super) type Watched = (usize, Trigger);

/// What became of a fault.
#[derive(Debug, Default)]
pub(super) struct Served {
    /// The page has to be read first; nothing if the thread goes on already.
    pub(super) read: Option<Coming>,
    /// What is to be read ahead.
    pub(super) window: Option<Window>,
    /// The page is on its way already, or must first have left.
    pub(super) waits: bool,
}

impl Inner {
    /// Has a window read.
    pub(super) fn order(&self, window: Window) {
        add(&self.counters.readahead_windows, 1);
        self.jobs.window(window);
    }

    /// Has a window read, and what follows a long one staged.
    pub(super) fn follow(&self, ground: &Ground, window: Window) {
        self.order(window);
        self.stage_behind(ground, window);
    }

    /// Whether a fault has to wait for a read, as far as can be told before it is served.
    pub(super) fn needs_read(&self, ground: &Ground, fault: Fault) -> bool {
        ground.layout.contains(fault.address)
            && ground.layout.chunk(fault.address).is_some_and(|(chunk, at)| {
                chunk.staged.is_none() && matches!(chunk[at].place, Place::Stored(_))
            })
    }

    /// Serves a fault as far as that goes without a read.
    pub(super) fn begin(&self, ground: &Ground, fault: Fault) -> Served {
        let (page, write) = (fault.address / PAGE * PAGE, fault.write);
        let nothing = Served::default();
        if !ground.layout.contains(page) {
            // Unmapped meanwhile: the thread gets its signal.
            ground.wake(page, PAGE);
            return nothing;
        }
        let Some((mut chunk, at)) = ground.layout.chunk(page) else { return nothing };
        let first = page - at * PAGE;
        if chunk[at].place == Place::Fresh && self.gives_huge(ground, &chunk, first) {
            drop(chunk);
            self.stage_first(ground, first);
            let Some((again, _)) = ground.layout.chunk(page) else { return nothing };
            chunk = again;
        }
        if chunk.staged.is_some() {
            let kind = if chunk[at].place == Place::Fresh { FaultKind::Fresh } else { FaultKind::Major };
            self.count_fault(page, kind, write);
            self.fault_staged(ground, chunk, first, write);
            return Served { waits: true, ..nothing };
        }
        if write && chunk.huge && matches!(chunk[at].place, Place::Clean(_)) {
            let whole = self.store_to_huge(ground, &mut chunk, at, first);
            if whole {
                drop(chunk);
                self.count_fault(page, FaultKind::WriteProtected, write);
                return nothing;
            }
        }
        let state = &mut chunk[at];
        match state.place {
            Place::Fresh => {
                let count = fresh_window(&chunk, at, page, &ground.layout);
                chunk[at..at + count].iter_mut().for_each(|page| page.place = Place::Coming);
                drop(chunk);
                self.count_fault(page, FaultKind::Fresh, write);
                self.reserve(ground, count);
                let installed = ground.install(page, &ZEROS[..count * PAGE], false);
                self.settle(ground, page, (installed, count), |_| Place::Dirty, |_| Place::Fresh);
                if at + count == CHUNK_PAGES {
                    self.stage_fresh(ground, first, first + CHUNK_BYTES);
                }
                nothing
            }
            Place::Stored(slot) => {
                self.note(state, write);
                let writable = state.stored_to;
                state.place = Place::Coming;
                state.ahead = false;
                drop(chunk);
                self.count_fault(page, FaultKind::Major, write);
                self.reserve(ground, 1);
                Served { read: Some(Coming { page, slot, writable }), ..nothing }
            }
            Place::Waiting(number) => {
                let trigger = state.trigger.take();
                self.note(state, write);
                state.warm();
                if std::mem::take(&mut state.ahead) {
                    self.returns.returned();
                }
                let writable = state.stored_to;
                state.place = Place::Coming;
                drop(chunk);
                self.count_fault(page, FaultKind::SecondChance, write);
                self.come_back(ground, page, number, writable);
                let Some(trigger) = trigger else { return nothing };
                add(&self.counters.readahead_windows_used, 1);
                if trigger == Trigger::Probe {
                    self.around.ended(page, true);
                    return nothing;
                }
                Served { window: lock(&self.runs).used(page), ..nothing }
            }
            Place::Clean(slot) if write => {
                ground.unprotect(page, PAGE);
                ground.store.give_up(slot);
                state.place = Place::Dirty;
                self.note(state, true);
                self.count_fault(page, FaultKind::WriteProtected, write);
                nothing
            }
            Place::Clean(_) | Place::Dirty => {
                // Served for another thread meanwhile, or protected beside a page that was.
                if write {
                    ground.unprotect(page, PAGE)
                } else {
                    ground.wake(page, PAGE)
                }
                nothing
            }
            Place::Coming | Place::Leaving => {
                state.wanted = true;
                Served { waits: true, ..nothing }
            }
        }
    }

    /// A page that was on the store is used.
    fn note(&self, page: &mut Page, write: bool) {
        page.stored_to |= write;
        if write && std::mem::take(&mut page.doubted) {
            self.doubts.was_wrong();
        }
    }

    /// A page that a fault waits for, of a block of so many, has been read. Returns what is to be read ahead.
    pub(super) fn came(&self, ground: &Ground, coming: Coming, block: usize, bytes: &[u8]) -> Option<Window> {
        self.enter(ground, &[coming], bytes);
        if !self.options.ahead {
            return None;
        }
        let first = around::start(coming.page, block);
        lock(&self.runs).miss_of(coming.page, (first, first + (block - 1) * PAGE))
    }

    /// How many pages the block of a missed one is of, and the others that are on the store: they are coming from now on.
    pub(super) fn beside(&self, ground: &Ground, page: usize) -> (usize, Vec<Coming>) {
        let block = if self.options.ahead { self.around.block(page) } else { 1 };
        // Nobody is to wait for room that they take.
        if block == 1 || self.frames.excess(block) > 0 {
            return (1, Vec::new());
        }
        let first = around::start(page, block);
        (block, self.coming(ground, (0..block).map(|n| first + n * PAGE).filter(|other| *other != page)))
    }

    /// The one of these neighbours of a missed page whose use is to be seen.
    pub(super) fn probe(&self, pages: &[Coming]) -> Option<Watched> {
        (!pages.is_empty()).then(|| (pages[self.around.probe(pages.len())].page, Trigger::Probe))
    }

    /// Those of these pages that are on the store alone: they are coming from now on. Sorted by address.
    pub(super) fn coming(&self, ground: &Ground, pages: impl Iterator<Item = usize>) -> Vec<Coming> {
        let mut all = Vec::with_capacity(BATCH);
        for page in pages {
            if !ground.layout.contains(page) {
                continue;
            }
            let Some((mut chunk, at)) = ground.layout.chunk(page) else { continue };
            if chunk.staged.is_some() {
                // It is coming; what is to stay comes whether it is used or not.
                if chunk[at].pinned {
                    self.fault_staged(ground, chunk, page - at * PAGE, false);
                }
                continue;
            }
            if let Place::Stored(slot) = chunk[at].place {
                all.push(Coming { page, slot, writable: chunk[at].stored_to });
                chunk[at].ahead = true;
                chunk[at].place = Place::Coming;
            }
        }
        add(&self.counters.readahead_pages, all.len() as u64);
        if !all.is_empty() {
            self.reserve(ground, all.len());
        }
        all.sort_unstable_by_key(|coming| coming.page);
        all
    }

    /// Pages have been read ahead of use; neighbours are installed together. The one that is to be seen used goes to the
    /// waiting room. Returns whether anybody waited for one.
    pub(super) fn came_ahead(
        &self,
        ground: &Ground,
        pages: &[Coming],
        bytes: &[u8],
        watched: Option<Watched>,
    ) -> bool {
        let trigger = |page| watched.filter(|of| self.triggers(page, *of)).map(|(_, trigger)| trigger);
        let together = |a: &Coming, b: &Coming| {
            let same = a.writable == b.writable && b.page < Layout::chunk_end(a.page);
            a.page + PAGE == b.page && same && trigger(a.page).is_none() && trigger(b.page).is_none()
        };
        let mut rest = bytes;
        let mut woke = false;
        for part in pages.chunk_by(together) {
            let here;
            (here, rest) = rest.split_at(part.len() * PAGE);
            match trigger(part[0].page) {
                Some(trigger) if self.set_trigger(ground, part[0], trigger, here) => {
                    if trigger == Trigger::Probe {
                        add(&self.counters.readahead_windows, 1);
                    }
                }
                _ => woke |= self.enter(ground, part, here),
            }
        }
        woke
    }

    /// Puts neighbouring pages that have been read into memory. Returns whether anybody has waited for one since it is coming.
    fn enter(&self, ground: &Ground, pages: &[Coming], bytes: &[u8]) -> bool {
        let Coming { page, writable, .. } = pages[0];
        let installed = ground.install(page, bytes, !writable);
        if writable {
            pages[..installed].iter().for_each(|coming| ground.store.give_up(coming.slot));
        }
        let place = |n: usize| if writable { Place::Dirty } else { Place::Clean(pages[n].slot) };
        self.settle(ground, page, (installed, pages.len()), place, |n| Place::Stored(pages[n].slot))
    }

    /// Pages could not be read ahead of use: they stay on the store.
    pub(super) fn did_not_come(&self, ground: &Ground, pages: &[Coming]) {
        for coming in pages {
            let stored = |_| Place::Stored(coming.slot);
            self.settle(ground, coming.page, (0, 1), stored, stored);
        }
    }

    /// From the waiting room into memory. The page is `Coming`, and so its frame is ours.
    fn come_back(&self, ground: &Ground, page: usize, number: u32, writable: bool) {
        let (bytes, slot) = {
            let mut room = self.room();
            (room.bytes(number), room.frame(number).slot)
        };
        // SAFETY: a frame of the room, which is not given to anybody else before `leave` below; whoever
        // writes it to the store only reads it as well.
        let bytes = unsafe { std::slice::from_raw_parts(bytes, PAGE) };
        // Not on the store yet: dirty, whatever becomes of the write.
        let writable = writable || slot.is_none();
        self.frames.take(1);
        #[cfg(test)]
        self.linger();
        let installed = ground.install(page, bytes, !writable);
        let mut room = self.room();
        let frame = room.frame(number);
        let written = frame.slot.filter(|_| slot.is_none());
        if frame.state == FrameState::Writing {
            frame.state = FrameState::Left;
        } else {
            room.leave(number);
            self.frames.give(1);
        }
        drop(room);
        // The page has memory of its own now, and its frame may have kept its.
        if self.frames.excess(0) > 0 {
            self.trim_room();
        }
        if self.frames.excess(self.headroom()) > 0 {
            self.nudge();
        }
        if let Some(written) = written {
            // Just now, and too late: the page is dirty.
            ground.store.give_up(written);
        }
        let place = match slot {
            Some(slot) if !writable => Place::Clean(slot),
            Some(slot) => {
                ground.store.give_up(slot);
                Place::Dirty
            }
            None => Place::Dirty,
        };
        // A page that cannot be installed has been unmapped behind our back: its bytes are gone with it.
        self.settle(ground, page, (installed, 1), |_| place, |_| Place::Fresh);
    }

    /// Ends the coming of neighbouring pages of a chunk: so many of so many are at `place`, the others back
    /// where they were `before`. Returns whether a fault for one of them came in between.
    fn settle(
        &self,
        ground: &Ground,
        page: usize,
        (came, count): (usize, usize),
        place: impl Fn(usize) -> Place,
        before: impl Fn(usize) -> Place,
    ) -> bool {
        let mut wanted = false;
        if let Some((mut chunk, at)) = ground.layout.chunk(page) {
            let mut policy = lock(&self.policy);
            for (n, state) in chunk[at..at + count].iter_mut().enumerate() {
                state.place = if n < came { place(n) } else { before(n) };
                if n < came {
                    let key = (page / PAGE + n) as u64;
                    policy.insert(key);
                    (0..state.heat).for_each(|_| policy.touch(key));
                }
                if std::mem::take(&mut state.wanted) {
                    // Its fault came in between, and may be about more than was done.
                    ground.wake(page + n * PAGE, PAGE);
                    wanted = true;
                }
            }
        }
        if came < count {
            ground.wake(page + came * PAGE, (count - came) * PAGE);
            self.frames.give(count - came);
        }
        wanted
    }

    /// Reads what was not read whole, in the plain way, and says what stops it.
    pub(super) fn read_again(&self, ground: &Ground, slot: Slot, to: &mut [u8]) -> io::Result<()> {
        let mut result = Ok(());
        for _ in 0..TRIES {
            add(&self.counters.io_errors, 1);
            result = ground.store.read(slot, to);
            if result.is_ok() {
                break;
            }
        }
        result
    }

    /// Counts frames as used, making room first where there is none.
    fn reserve(&self, ground: &Ground, count: usize) {
        if self.frames.excess(count) > 0 {
            add(&self.counters.eviction_stalls, 1);
            self.make_room_now(ground, count);
        }
        self.frames.take(count);
        if self.frames.excess(self.headroom()) > 0 {
            self.nudge();
        }
    }

    /// Whether the page's use is to be seen. A window's may have been already.
    fn triggers(&self, page: usize, (watched, trigger): Watched) -> bool {
        page == watched && (trigger == Trigger::Probe || lock(&self.runs).awaits(page))
    }

    /// Puts a trigger into the waiting room; `false` if there is no room.
    fn set_trigger(&self, ground: &Ground, coming: Coming, trigger: Trigger, bytes: &[u8]) -> bool {
        let Coming { page, slot, .. } = coming;
        let Some((mut chunk, at)) = ground.layout.chunk(page) else { return false };
        let mut room = self.room();
        let Some(number) = room.admit(page, Some(slot), FrameState::Waiting) else {
            return false;
        };
        // SAFETY: the frame was free; nobody knows of it before the place below names it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), room.bytes(number), PAGE) };
        drop(room);
        let state = &mut chunk[at];
        state.place = Place::Waiting(number);
        state.trigger = Some(trigger);
        if std::mem::take(&mut state.wanted) {
            ground.wake(page, PAGE);
        }
        true
    }

    /// Has what is stored of a range brought in.
    pub(super) fn will_need(&self, start: usize, len: usize) {
        let stride = PAGE.cast_signed();
        let spans = self.read().layout.within(start / PAGE * PAGE, start + len);
        for (from, to) in spans {
            let count = (to - from).div_ceil(PAGE);
            self.order(Window { first: from, stride, count });
        }
    }
}

/// How many fresh pages one fault brings: as many as were touched one after the other before it.
fn fresh_window(chunk: &[super::ranges::Page], at: usize, page: usize, layout: &Layout) -> usize {
    let before = chunk[..at].iter().rev().take(BATCH);
    let touched = before.take_while(|page| !matches!(page.place, Place::Fresh)).count();
    let end = layout.within(page, page + BATCH * PAGE).first().map_or(page, |(_, end)| *end);
    let most = ((end - page) / PAGE).clamp(1, touched.max(1));
    chunk[at..].iter().take(most).take_while(|page| page.place == Place::Fresh).count().max(1)
}
