//! Memory that is used in order comes and leaves 2 MiB at a time, as huge pages: whole chunks, through stages.
//!
//! A chunk is staged when a stream comes near it: one that fills fresh memory, or one that reads what is on the
//! store. It waits in its stage until its first page is touched; that has it moved into memory, and the next two
//! staged. The threads of this file read, and have chunks leave to get frames for what they read.
//!
//! A page that is moved can be stored to until it is protected. What was read is therefore summed up before and
//! after: if the sums differ, the chunk counts as dirty.

use std::io;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering::Relaxed;

use crc_fast::CrcAlgorithm;

use super::ranges::{CHUNK_BYTES, CHUNK_PAGES, Chunk, Layout, Page, Place, Slot, lock};
use super::room::{Frame, FrameState};
use super::stage::{Order, carry};
use super::stats::add;
use super::{Ground, Inner, PAGE};
use crate::ahead::Window;
use crate::uffd;

/// Threads that bring chunks.
pub(super) const STAGERS: usize = 3;
/// Runs of neighbouring slots that a chunk may be made up of: with more, reading them is what takes long.
const RUNS: usize = 16;
/// Pages of a window that is so long that chunks behind it are staged.
const LONG: usize = 64;
/// Chunks that are staged ahead of the one in use.
const AHEAD: usize = 3;
/// A first store so near to a chunk's beginning is a stream's, which will store to all of it.
const NEAR: usize = 8;
/// Sets the keys of chunks apart from those of pages.
const HUGE: u64 = 1 << 63;
/// Every so many chunks that leave, what is known of their being stored to is forgotten.
const DOUBT: u64 = 8;

/// A chunk's key in the policy.
fn key(chunk: usize) -> u64 {
    (chunk / PAGE) as u64 | HUGE
}

/// The address of the chunk whose key it is, if it is one's.
pub(super) fn chunk_of(key: u64) -> Option<usize> {
    (key & HUGE != 0).then_some((key & !HUGE) as usize * PAGE)
}

/// Where one of these is whose contents are what a chunk is staged from.
enum Source {
    Fresh,
    Store(Vec<(Slot, usize)>),
}

impl Chunk {
    /// What the chunk would be staged from, if it can be.
    fn source(&self) -> Option<Source> {
        if self.iter().any(|page| page.pinned || page.hidden) {
            return None;
        }
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

    fn set(&mut self, place: impl Fn(usize) -> Place) {
        self.iter_mut().enumerate().for_each(|(n, page)| page.place = place(n));
    }

    fn places(&self) -> Vec<Place> {
        self.iter().map(|page| page.place).collect()
    }
}

impl Inner {
    /// Body of a thread that brings chunks.
    pub(super) fn bring_chunks(&self) {
        while let Some(order) = self.stages.next() {
            self.bring(&self.read(), order);
        }
    }

    /// A window is read ahead: if it is long, what follows it is staged.
    pub(super) fn stage_behind(&self, ground: &Ground, window: Window) {
        if window.stride == PAGE.cast_signed() && window.count >= LONG {
            let next = window.page(window.count).next_multiple_of(CHUNK_BYTES);
            self.stage_from(ground, next);
        }
    }

    /// The end of a chunk was touched for the first time: if all of it is, a stream fills memory, and what follows is
    /// staged.
    pub(super) fn stage_fresh(&self, ground: &Ground, chunk: usize) {
        let filled =
            |(chunk, _): (MutexGuard<'_, Chunk>, usize)| chunk.iter().all(|page| page.place != Place::Fresh);
        if self.stages.any() && ground.layout.chunk(chunk).is_some_and(filled) {
            self.stage_from(ground, chunk + CHUNK_BYTES);
        }
    }

    fn stage_from(&self, ground: &Ground, chunk: usize) {
        (0..AHEAD).for_each(|n| self.stage(ground, chunk + n * CHUNK_BYTES));
    }

    /// Has a chunk staged, if it can be and there is a stage.
    fn stage(&self, ground: &Ground, address: usize) {
        if !self.stages.any() || !ground.layout.is_whole(address) {
            return;
        }
        let might = |(chunk, _): (MutexGuard<'_, Chunk>, usize)| chunk.might_be_staged();
        if !ground.layout.chunk(address).is_some_and(might) {
            return;
        }
        let Some(stage) = self.stages.claim().or_else(|| self.unstage_stale(ground)) else { return };
        if let Some((mut chunk, _)) = ground.layout.chunk(address)
            && self.gather(&mut chunk, address)
        {
            chunk.staged = Some(stage);
            self.stages.order(stage, address);
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
        if chunk.source().is_some() {
            return true;
        }
        let mut room = lock(&self.room);
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
            page.trigger = false;
        }
        drop(room);
        {
            let mut policy = lock(&self.policy);
            there.iter().for_each(|page| policy.remove((page / PAGE) as u64));
        }
        // SAFETY: managed memory that is protected, and whose contents are on the store.
        let dropped = unsafe { uffd::discard(&super::runs_of(&there)) };
        debug_assert!(dropped.is_ok(), "{dropped:?}");
        self.frames.give(freed);
        true
    }

    /// Takes its stage from a chunk that has been ready for long and was not used.
    fn unstage_stale(&self, ground: &Ground) -> Option<usize> {
        let (stage, address) = self.stages.stale()?;
        let (mut chunk, _) = ground.layout.chunk(address)?;
        if chunk.staged != Some(stage) {
            return None;
        }
        self.stages.take_ready(stage)?;
        chunk.staged = None;
        Some(stage)
    }

    /// A chunk's stage is free again; whoever waits for it tries again.
    fn unstage(&self, ground: &Ground, chunk: &mut Chunk, address: usize) {
        let Some(stage) = chunk.staged.take() else { return };
        self.stages.release(stage);
        if chunk.awaited.take().is_some() {
            let _ = ground.watch.wake(address, CHUNK_BYTES);
        }
    }

    /// Gives back what stages hold that nothing comes through any more.
    pub(super) fn rest_stages(&self) {
        if !self.stages.any() {
            return;
        }
        let stale = self.unstage_stale(&self.read());
        let idle = std::iter::from_fn(|| self.stages.claim_idle());
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

    /// Of a forked child, which has none of its parent's stages: chunks are pages.
    pub(super) fn forget_huge(layout: &Layout, policy: &mut dyn deepram_core::cache::Replacement<u64>) {
        let all: Vec<(usize, usize)> = layout.all().collect();
        for (start, end) in all {
            for (address, mut chunk) in layout.chunks(start, end) {
                (chunk.staged, chunk.awaited) = (None, None);
                if std::mem::take(&mut chunk.huge) {
                    policy.remove(key(address));
                    pages_of(address).for_each(|page| policy.insert((page / PAGE) as u64));
                }
            }
        }
    }

    /// A huge page becomes 512 pages, each of which may leave by itself.
    pub(super) fn split(&self, chunk: &mut Chunk, address: usize) {
        if !std::mem::take(&mut chunk.huge) {
            return;
        }
        {
            let mut policy = lock(&self.policy);
            policy.remove(key(address));
            pages_of(address).for_each(|page| policy.insert((page / PAGE) as u64));
        }
        // Advice about a part of it has the kernel divide it. If it does not, as a forked child has it as well, its
        // memory comes free when all of it has left.
        // SAFETY: changes no contents.
        unsafe { libc::syscall(libc::SYS_madvise, address, PAGE, libc::MADV_COLD) };
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
        let unprotected = ground.watch.unprotect(address, CHUNK_BYTES);
        debug_assert!(unprotected.is_ok(), "{unprotected:?}");
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

    /// Fills a stage with a chunk's bytes.
    fn bring(&self, ground: &Ground, order: Order) {
        let Order { stage, chunk: address, .. } = order;
        let source = {
            let Some((chunk, _)) = ground.layout.chunk(address) else { return };
            if !self.stages.begin(order) {
                return;
            }
            chunk.source()
        };
        let filled = source.ok_or_else(|| io::ErrorKind::NotFound.into());
        let filled = filled.and_then(|source| self.fill(ground, stage, &source));
        let Some((mut chunk, _)) = ground.layout.chunk(address) else { return };
        match (filled, chunk.awaited) {
            (Ok(sum), Some(write)) => self.enter_staged(ground, chunk, address, stage, sum, write),
            (Ok(sum), None) => self.stages.ready(stage, sum),
            // Its pages come one by one, and what is wrong is told then.
            (Err(_), _) => self.unstage(ground, &mut chunk, address),
        }
    }

    /// Gets a page for a stage, and what is to be in it. Returns the sum of what was read.
    fn fill(&self, ground: &Ground, stage: usize, source: &Source) -> io::Result<u64> {
        let zeros = self.find_page(ground, stage)?;
        let address = self.stages.address(stage);
        // SAFETY: the stage holds a page, and is ours.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut::<u8>(address), CHUNK_BYTES)
        };
        let Source::Store(runs) = source else {
            if !zeros {
                bytes.fill(0);
            }
            return Ok(0);
        };
        let mut rest = &mut *bytes;
        for (slot, len) in runs {
            let here;
            (here, rest) = rest.split_at_mut(len * PAGE);
            self.counters.read_begins();
            let read = ground.store.read(*slot, here);
            self.counters.read_ends();
            add(&self.counters.reads, 1);
            add(&self.counters.bytes_read, here.len() as u64);
            read.inspect_err(|_| add(&self.counters.failures, 1))?;
        }
        add(&self.counters.read_ahead, CHUNK_PAGES as u64);
        Ok(sum(bytes))
    }

    /// Has a stage hold a page: a new one while frames last, or that of a chunk that leaves. Whether it is of zeros.
    fn find_page(&self, ground: &Ground, stage: usize) -> io::Result<bool> {
        let mut writes = super::Writes::new(false);
        while !self.stages.holds(stage) {
            if self.stopping.load(Relaxed) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            if self.frames.excess(CHUNK_PAGES + self.headroom()) == 0 {
                self.frames.take(CHUNK_PAGES);
                return match self.stages.populate(&ground.watch, stage) {
                    Ok(()) => Ok(true),
                    Err(error) => {
                        self.frames.give(CHUNK_PAGES);
                        Err(error)
                    }
                };
            }
            if self.overcommitted.load(Relaxed) || !self.evict_for(ground, stage, &mut writes) {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        Ok(false)
    }

    /// Moves a chunk from its stage, which is ours, into memory, and has the next ones staged.
    fn enter_staged(
        &self,
        ground: &Ground,
        mut chunk: MutexGuard<'_, Chunk>,
        address: usize,
        stage: usize,
        before: u64,
        write: bool,
    ) {
        let fresh = chunk[0].place == Place::Fresh;
        let from = chunk.places();
        let writable = fresh || write || chunk.iter().all(|page| page.stored_to);
        (chunk.staged, chunk.awaited) = (None, None);
        chunk.set(|_| Place::Coming);
        drop(chunk);
        // First of all: the stream goes on as soon as it can.
        self.stage_from(ground, address + CHUNK_BYTES);

        let (there, huge) = self.move_in(ground, address, stage, !writable);
        let whole = there == CHUNK_PAGES;
        let _ = ground.watch.wake(address, CHUNK_BYTES);
        // SAFETY: managed memory that is there and protected; who would unmap it waits for the ground.
        let stored = whole && !writable && unsafe { sum_at(address) } != before;
        if stored {
            let unprotected = ground.watch.unprotect(address, CHUNK_BYTES);
            debug_assert!(unprotected.is_ok(), "{unprotected:?}");
        }
        let dirty = writable || stored || !whole;
        if dirty && !writable && !whole {
            let _ = ground.watch.unprotect(address, there * PAGE);
        }
        if dirty && !fresh {
            from[..there].iter().filter_map(slot_of).for_each(|slot| ground.store.give_up(slot));
        }
        self.stages.release(stage);
        if let Some((mut chunk, _)) = ground.layout.chunk(address) {
            for (n, page) in chunk.iter_mut().enumerate() {
                page.place = match from[n] {
                    place if n >= there => place,
                    Place::Stored(slot) if !dirty => Place::Clean(slot),
                    _ => Place::Dirty,
                };
                page.stored_to |= write && !fresh;
                (page.ahead, page.wanted) = (false, false);
            }
            chunk.huge = huge;
            let mut policy = lock(&self.policy);
            if huge {
                policy.insert(key(address));
            } else {
                pages_of(address).take(there).for_each(|page| policy.insert((page / PAGE) as u64));
            }
        }
        if huge {
            add(&self.counters.huge, 1);
        } else {
            // The rest cannot be had: its mapping has gone behind our back.
            self.frames.give(CHUNK_PAGES - there);
        }
        // Faults that came in between.
        let _ = ground.watch.wake(address, CHUNK_BYTES);
    }

    /// Moves a stage's page to its place in memory; copies what cannot be moved. Returns how many pages are there, and whether
    /// they are a huge page. The stage holds a page after this only if nothing has moved.
    fn move_in(&self, ground: &Ground, address: usize, stage: usize, protect: bool) -> (usize, bool) {
        let staged = self.stages.address(stage);
        // SAFETY: none of its pages is in memory: all are coming.
        let (moved, _) = unsafe { carry(&ground.watch, address, staged) };
        #[cfg(test)]
        linger();
        if protect && moved > 0 {
            let protected = ground.watch.protect(address, moved);
            debug_assert!(protected.is_ok(), "{protected:?}");
        }
        if moved == CHUNK_BYTES {
            self.stages.set_holds(stage, false);
            return (CHUNK_PAGES, true);
        }
        // SAFETY: what has not moved is in the stage, which is ours.
        let rest = unsafe {
            let rest = std::ptr::with_exposed_provenance::<u8>(staged + moved);
            std::slice::from_raw_parts(rest, CHUNK_BYTES - moved)
        };
        let copied = ground.install(address + moved, rest, protect);
        if moved > 0 {
            self.stages.drop_page(stage);
        } else {
            // What was copied has frames of its own.
            self.frames.take(CHUNK_PAGES);
        }
        (moved / PAGE + copied, false)
    }

    /// Has a chunk leave, into the stage `spare` if that is given, which is the caller's and holds no page, and holds its
    /// page afterwards. `false` if it does not leave: the store takes nothing, or it is 512 pages from now on.
    pub(super) fn leave_whole(&self, ground: &Ground, address: usize, spare: Option<usize>) -> bool {
        let Some((mut chunk, _)) = ground.layout.chunk(address) else { return false };
        if !chunk.huge {
            return false;
        }
        if chunk.iter().any(|page| page.pinned) {
            lock(&self.policy).insert(key(address));
            self.split(&mut chunk, address);
            return false;
        }
        let from = chunk.places();
        let dirty = from[0] == Place::Dirty;
        chunk.set(|_| Place::Leaving);
        drop(chunk);

        let exit = (dirty && spare.is_none()).then(|| self.stages.exit());
        let to = spare.map(|stage| self.stages.address(stage)).or(exit.as_ref().map(|(_, at)| *at));
        let left = match to {
            Some(to) => self.leave_through(ground, address, to, &from),
            None => {
                // SAFETY: managed memory that is protected, and whose contents are on the store.
                let dropped = unsafe { uffd::discard(&[(address, CHUNK_BYTES)]) };
                debug_assert!(dropped.is_ok(), "{dropped:?}");
                Left::Stored(from.iter().filter_map(slot_of).collect())
            }
        };
        if let Left::Stored(_) = left {
            if exit.is_some() {
                self.stages.drop_page(self.stages.exit_number());
            }
            match spare {
                Some(stage) => self.stages.set_holds(stage, true),
                None => self.frames.give(CHUNK_PAGES),
            }
            add(&self.counters.left, CHUNK_PAGES as u64);
        }
        drop(exit);
        let Some((mut chunk, _)) = ground.layout.chunk(address) else { return false };
        match &left {
            Left::Stored(slots) => {
                chunk.set(|n| Place::Stored(slots[n]));
                chunk.huge = false;
                let left = self.counters.left.load(Relaxed) / CHUNK_PAGES as u64;
                if left.is_multiple_of(DOUBT) {
                    chunk.iter_mut().for_each(|page| page.stored_to = false);
                }
            }
            Left::Here { writable } => {
                chunk.set(|n| if *writable { Place::Dirty } else { from[n] });
                // Whatever stops it stops huge pages, not small ones.
                lock(&self.policy).insert(key(address));
                self.split(&mut chunk, address);
            }
        }
        chunk.iter_mut().for_each(|page| page.wanted = false);
        drop(chunk);
        let _ = ground.watch.wake(address, CHUNK_BYTES);
        matches!(left, Left::Stored(_))
    }

    /// Moves a chunk out of memory, and writes it if it is dirty. If that fails it is back in memory.
    fn leave_through(&self, ground: &Ground, address: usize, to: usize, from: &[Place]) -> Left {
        let dirty = from[0] == Place::Dirty;
        // SAFETY: the stage is ours, and holds nothing.
        let (moved, result) = unsafe { carry(&ground.watch, to, address) };
        let failed = match result {
            Ok(()) if !dirty => return Left::Stored(from.iter().filter_map(slot_of).collect()),
            Ok(()) => match self.write_chunk(ground, to) {
                Ok(slots) => return Left::Stored(slots),
                Err(error) => Some(error),
            },
            Err(_) => None,
        };
        if moved > 0 {
            let (back, result) = ground.watch.transfer(address, to, moved);
            if let Err(error) = result {
                super::fault::fail(address + back, &error);
            }
            // What has moved is not protected any more.
            let unprotected = ground.watch.unprotect(address, CHUNK_BYTES);
            debug_assert!(unprotected.is_ok(), "{unprotected:?}");
            from.iter().filter_map(slot_of).for_each(|slot| ground.store.give_up(slot));
        }
        if let Some(error) = failed {
            self.refused(&error);
        }
        Left::Here { writable: moved > 0 }
    }

    /// Writes a chunk that is at `from`, where nobody stores to it: the slots of its pages.
    fn write_chunk(&self, ground: &Ground, from: usize) -> io::Result<Vec<Slot>> {
        // SAFETY: a stage that is ours and holds a page.
        let bytes =
            unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<u8>(from), CHUNK_BYTES) };
        let pages: Vec<&[u8]> = bytes.chunks_exact(PAGE).collect();
        add(&self.counters.left_dirty, CHUNK_PAGES as u64);
        let mut slots = Vec::with_capacity(CHUNK_PAGES);
        while slots.len() < CHUNK_PAGES {
            let rest = &pages[slots.len()..];
            let written = ground.store.take(rest.len() as u32).and_then(|(first, len)| {
                slots.extend((first..first + len).map(|number| ground.store.slot(number)));
                add(&self.counters.bytes_written, u64::from(len) * PAGE as u64);
                ground.store.write(first, &rest[..len as usize])
            });
            if let Err(error) = written {
                slots.into_iter().for_each(|slot| ground.store.give_up(slot));
                return Err(error);
            }
            add(&self.counters.writes, 1);
        }
        add(&self.counters.written, CHUNK_PAGES as u64);
        self.overcommitted.store(false, Relaxed);
        Ok(slots)
    }
}

/// Set by a test that wants stores to come between a page's moving and its being protected.
#[cfg(test)]
pub(super) static LINGERING: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

#[cfg(test)]
fn linger() {
    if LINGERING.load(Relaxed) {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

/// What became of a chunk that was to leave.
enum Left {
    /// It is on the store, at these slots, and not in memory.
    Stored(Vec<Slot>),
    /// It is in memory as before, but all of it can be stored to if `writable`, and none of it is on the store.
    Here { writable: bool },
}

fn slot_of(place: &Place) -> Option<Slot> {
    match place {
        Place::Clean(slot) | Place::Stored(slot) => Some(*slot),
        _ => None,
    }
}

/// Runs of neighbouring slots, if there are few.
fn runs_of_slots(slots: &[Slot]) -> Option<Vec<(Slot, usize)>> {
    let follow = |a: &Slot, b: &Slot| a.file == b.file && a.number + 1 == b.number;
    let runs: Vec<(Slot, usize)> =
        slots.chunk_by(follow).map(|run| (run[0], run.len())).take(RUNS + 1).collect();
    (runs.len() <= RUNS).then_some(runs)
}

/// The pages of a chunk, by their addresses.
fn pages_of(chunk: usize) -> impl Iterator<Item = usize> {
    (chunk..chunk + CHUNK_BYTES).step_by(PAGE)
}

fn sum(bytes: &[u8]) -> u64 {
    crc_fast::checksum(CrcAlgorithm::Crc64Nvme, bytes)
}

/// The sum of a chunk's bytes where they are.
///
/// # Safety
/// All of it is there, and nobody stores to it.
unsafe fn sum_at(chunk: usize) -> u64 {
    // SAFETY: the caller's promise.
    sum(unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<u8>(chunk), CHUNK_BYTES) })
}
