//! Taking pages out: ahead of need, many at a time, written together.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::fatal::discard;
use super::huge::chunk_of;
use super::pinned::Scratch;
use super::ranges::{CHUNK_BYTES, Place, Slot, Trigger};
use super::room::{Frame, FrameState};
use super::stats::add;
use super::writes::{Run, Writes};
use super::{Ground, Inner, PAGE, ROOM_SHARE, runs_of};
use crate::lock::lock;
use crate::message::write_line;

/// Pages that leave together: one large write.
const BATCH: usize = 64;
/// How often the evictor looks without being told to: other processes share the budget.
const PATIENCE: Duration = Duration::from_millis(100);
/// How long it waits after a failed write.
const PAUSE: Duration = Duration::from_millis(50);
/// How long it says nothing more about a store that fails again and again.
const SILENCE: Duration = Duration::from_secs(60);
/// How long a fault waits for pages that are being written.
const MOMENT: Duration = Duration::from_micros(50);

/// Pages of these that are kept from being used meanwhile: whoever wants one waits for all.
pub(super) const TOGETHER: usize = 32;
/// Part of the frames that make up the waiting room of a process that shares memory with one forked from it, or that was
/// forked.
const KIN_SHARE: usize = 32;
/// Bytes between two dirty pages that one call may protect with them.
const GAP: usize = 128 * PAGE;
/// Threads that take pages out: one writes while the other goes on.
pub(super) const EVICTORS: usize = 2;

/// What the one who takes pages out of memory owns meanwhile.
#[derive(Debug, Default)]
pub(super) struct Evictor {
    /// Pages in a row that were to leave and stayed.
    stayed: usize,
    scratch: Option<Scratch>,
}

/// A page on its way out.
pub(super) struct Leaver {
    pub(super) page: usize,
    pub(super) to: Way,
    hidden: bool,
}

impl Leaver {
    pub(super) fn is_dirty(&self) -> bool {
        matches!(self.to, Way::Write(_))
    }
}

/// Where a page goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Into this frame of the room, and on to the store from there.
    Write(u32),
    /// Into this frame of the room; it is on the store.
    Wait(u32),
    /// Nowhere: it is on the store, at this slot.
    Leave(Slot),
}

impl Way {
    /// Its frame in the room.
    pub(super) fn frame(self) -> Option<u32> {
        match self {
            Way::Write(frame) | Way::Wait(frame) => Some(frame),
            Way::Leave(_) => None,
        }
    }
}

impl Inner {
    /// Frames that are kept free ahead of need.
    pub(super) fn headroom(&self) -> usize {
        (self.frames.limit() / 64).clamp(64, 2048)
    }

    /// Frames that the room may have. Copies of what a forked process has in memory as well take DRAM and free none, so
    /// there are few of them.
    fn room_share(&self) -> usize {
        self.frames.share() / if self.kin.load(Relaxed) { KIN_SHARE } else { ROOM_SHARE }
    }

    /// Pages that leave together.
    fn batch(&self) -> usize {
        BATCH.min(self.frames.limit() / 16).max(1)
    }

    /// Body of an evictor thread. The `first` also looks after what changes slowly.
    pub(super) fn keep_house(self: &Arc<Self>, first: bool, writes: &mut Writes) {
        let mut looked: Option<Instant> = None;
        let mut stagers = Vec::new();
        while !self.stopping.load(Relaxed) {
            if first {
                stagers.extend(self.start_stagers());
            }
            if first && looked.is_none_or(|at| at.elapsed() >= PATIENCE) {
                self.retune();
                self.rest_stages();
                self.publish();
                self.options.look.iter().for_each(|look| look());
                looked = Some(Instant::now());
            }
            if self.frames.excess(self.headroom()) > 0 {
                self.trim_room();
            }
            let excess = self.frames.excess(self.headroom());
            // Many at a time, though one would do for now: each time costs wake-ups and a write.
            if excess > 0
                && (self.evict(&self.read(), self.batch(), None, None, writes) || self.others_may_leave())
            {
                continue;
            }
            let told = lock(&self.work.0);
            let pause = if excess > 0 { PAUSE } else { PATIENCE };
            let (mut told, _) = self
                .work
                .1
                .wait_timeout_while(told, pause, |told| !(*told || first && self.wants_stagers()))
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            *told = false;
        }
        // A panic was reported by the runtime already.
        stagers.into_iter().flatten().for_each(|thread: JoinHandle<()>| drop(thread.join()));
    }

    /// Counts what is not paged: tables, the room's memory that is not used, what is beside.
    fn retune(&self) {
        // Kept to the end: a fork finds no lock held.
        let ground = self.read();
        let tables = self.table_bytes(&ground);
        self.frames.set_limit(self.dram.load(Relaxed) / PAGE);
        self.frames.set_tables(tables.div_ceil(PAGE));
        if !self.forked {
            self.kin.store(ground.store.has_children(), Relaxed);
        }
        self.trim_room();
        self.count_beside();
    }

    /// Makes room for `count` pages on the fault path: the evictors were not fast enough. Without room after
    /// this nothing can leave: all of it is pinned, or the store fails.
    pub(super) fn make_room_now(&self, ground: &Ground, count: usize) {
        let mut writes = Writes::new(false);
        self.trim_room();
        loop {
            let excess = self.frames.excess(count);
            if excess == 0 || self.overcommitted.load(Relaxed) || self.stopping.load(Relaxed) {
                return;
            }
            let moved = self.evict(ground, excess.min(BATCH), None, None, &mut writes);
            if !moved {
                // Whoever writes the pages that are in the way holds the ground already, and so comes to an end.
                if !self.room().is_written() && self.chunks_leaving.load(Relaxed) == 0 {
                    return;
                }
                std::thread::sleep(MOMENT);
            }
        }
    }

    /// Takes a range out.
    pub(super) fn cold(&self, start: usize, len: usize) {
        let mut pages = Vec::new();
        let ground = self.read();
        for (from, to) in ground.layout.within(start / PAGE * PAGE, start + len) {
            ground.layout.each(from, to, |address, page| {
                if matches!(page.place, Place::Clean(_) | Place::Dirty) {
                    pages.push(address);
                }
            });
        }
        let mut writes = Writes::new(self.options.ring);
        for batch in pages.chunks(BATCH) {
            self.evict(&ground, batch.len(), Some(batch), None, &mut writes);
        }
    }

    /// Has frames come free, or a huge page come into this stage. Whether anything came of it.
    pub(super) fn evict_for(&self, ground: &Ground, stage: usize, writes: &mut Writes) -> bool {
        self.evict(ground, self.batch(), None, Some(stage), writes)
    }

    /// Has `count` frames come free: pages leave memory for the waiting room, those that have waited longest
    /// leave that. More enter the room than leave it until it is full. If a huge page's turn comes it leaves whole, and
    /// no more pages than have left by then; through the `spare` stage, if there is one. Whether anything came of it.
    fn evict(
        &self,
        ground: &Ground,
        count: usize,
        chosen: Option<&[usize]>,
        spare: Option<usize>,
        writes: &mut Writes,
    ) -> bool {
        let (used, vacant) = {
            let room = self.room();
            (room.used(), room.vacant())
        };
        let share = self.room_share().min(used + vacant);
        let moves = count + count.min(share.saturating_sub(used));
        let parts: Vec<(usize, Option<&[usize]>)> = match chosen {
            Some(pages) => pages.chunks(TOGETHER).map(|part| (part.len(), Some(part))).collect(),
            None => (0..moves).step_by(TOGETHER).map(|at| (TOGETHER.min(moves - at), None)).collect(),
        };
        let mut leavers = Vec::with_capacity(moves);
        let (mut freed, mut stayed, mut huge) = (0, 0, None);
        for (count, chosen) in parts {
            let used = self.room().used();
            freed += self.vacate(ground, (used + count).saturating_sub(share));
            let mut evictor = lock(&self.evictor);
            let (mut part, chunk) = self.choose(ground, count, chosen);
            let chosen = part.len();
            self.carry_out(ground, &mut evictor, &mut part);
            stayed += chosen - part.len();
            freed += part.iter().filter(|leaver| leaver.to.frame().is_none()).count();
            leavers.extend(part);
            drop(evictor);
            huge = chunk;
            if huge.is_some() {
                break;
            }
            // Whoever this processor's faults are served for goes first, while frames last.
            if self.frames.excess(self.headroom() / 2) == 0 {
                std::thread::yield_now();
            }
        }
        if !self.write_out(ground, &leavers, writes) {
            huge.into_iter().for_each(|chunk| self.stays_huge(ground, chunk));
            return false;
        }
        if let Some(chunk) = huge {
            self.leave_whole(ground, chunk, spare);
            return !self.overcommitted.load(Relaxed);
        }
        freed += self.vacate(ground, count.saturating_sub(freed));
        let moved = freed > 0 || !leavers.is_empty();
        let mut evictor = lock(&self.evictor);
        evictor.stayed = if moved { 0 } else { evictor.stayed + stayed };
        moved
    }

    /// Whether it is worth while to go on where all that were to leave stayed: until all in memory have had their turn.
    fn others_may_leave(&self) -> bool {
        let stayed = &mut lock(&self.evictor).stayed;
        if *stayed >= self.frames.limit() {
            *stayed = 0;
        }
        *stayed > 0
    }

    /// Has up to `count` of those that have waited longest leave the room. Returns how many.
    fn vacate(&self, ground: &Ground, count: usize) -> usize {
        let mut vacated = 0;
        while vacated < count {
            let Some((number, frame)) = self.room().oldest() else { break };
            let Some((mut chunk, at)) = ground.layout.chunk(frame.page) else { continue };
            // Come back meanwhile: then the frame is somebody else's matter.
            if chunk[at].place != Place::Waiting(number) {
                continue;
            }
            let mut room = self.room();
            // The page may have come back and left again, for the same frame: what counts is how that is now.
            let Frame { state: FrameState::Waiting, slot: Some(slot), .. } = *room.frame(number) else {
                continue;
            };
            room.leave(number);
            drop(room);
            chunk[at].place = Place::Stored(slot);
            if chunk[at].ahead {
                self.returns.departed();
            }
            if let Some(trigger) = chunk[at].trigger.take() {
                add(&self.counters.readahead_windows_wasted, 1);
                if trigger == Trigger::Probe {
                    self.around.ended(frame.page, false);
                }
            }
            chunk[at].cool();
            self.frames.give(1);
            vacated += 1;
        }
        vacated
    }

    /// Chooses pages, marks them as leaving and gives each a frame in the room; sorted. If a chunk's turn comes, it is
    /// the last.
    fn choose(
        &self,
        ground: &Ground,
        count: usize,
        chosen: Option<&[usize]>,
    ) -> (Vec<Leaver>, Option<usize>) {
        let mut huge = None;
        let mut pages: Vec<usize> = match chosen {
            Some(pages) => {
                for page in pages {
                    if let Some((mut chunk, at)) = ground.layout.chunk(*page)
                        && matches!(chunk[at].place, Place::Clean(_) | Place::Dirty)
                    {
                        self.split(&mut chunk, page / CHUNK_BYTES * CHUNK_BYTES);
                        lock(&self.policy).remove((page / PAGE) as u64);
                    }
                }
                pages.to_vec()
            }
            None => {
                let mut policy = lock(&self.policy);
                let keys = (0..count).map_while(|_| policy.victim(&mut |_| true));
                keys.map_while(|key| {
                    huge = chunk_of(key);
                    huge.is_none().then(|| key as usize * PAGE)
                })
                .collect()
            }
        };
        pages.sort_unstable();
        let mut leavers = Vec::with_capacity(pages.len());
        for page in pages {
            let Some((mut chunk, at)) = ground.layout.chunk(page) else { continue };
            // A part of a huge page since it was named: what names that is another key.
            if chunk.huge {
                continue;
            }
            let state = &mut chunk[at];
            let slot = match state.place {
                Place::Clean(slot) => Some(slot),
                Place::Dirty => None,
                // Gone already, by another way.
                _ => continue,
            };
            let room = |state| self.room().admit(page, slot, state);
            let to = match slot {
                _ if state.pinned => None,
                Some(slot) if state.ahead && state.heat == 0 && !self.returns.worth_waiting() => {
                    Some(Way::Leave(slot))
                }
                Some(_) => room(FrameState::Waiting).map(Way::Wait),
                None => room(FrameState::Writing).map(Way::Write),
            };
            match to {
                Some(to) => {
                    if slot.is_some() && std::mem::take(&mut state.doubted) {
                        self.doubts.was_right();
                    }
                    state.place = Place::Leaving;
                    leavers.push(Leaver { page, to, hidden: state.hidden });
                }
                // Under the chunk's lock: the page is nothing else yet.
                None => lock(&self.policy).insert((page / PAGE) as u64),
            }
        }
        (leavers, huge)
    }

    /// Protects the pages, copies them into their frames, and takes them out of memory; or moves them. Those that a device may be
    /// storing to are taken off the list.
    fn carry_out(&self, ground: &Ground, evictor: &mut Evictor, leavers: &mut Vec<Leaver>) {
        let moves = self.direct.load(Relaxed);
        // Those that are protected and copied.
        let dirty: Vec<usize> = if moves {
            self.move_out(ground, &mut evictor.scratch, leavers)
        } else {
            leavers.iter().filter(|leaver| leaver.is_dirty()).map(|leaver| leaver.page).collect()
        };
        let here =
            |leaver: &Leaver| !moves || !leaver.is_dirty() || dirty.binary_search(&leaver.page).is_ok();
        // Clean pages are protected already.
        for (start, len) in together(ground, &dirty) {
            let gone = ground.protect(start, len);
            leavers.retain(|leaver| !gone.contains(&leaver.page) || self.forget_leaver(ground, leaver));
        }
        leavers.retain(|leaver| {
            let Some(number) = leaver.to.frame().filter(|_| here(leaver)) else { return true };
            let frame = self.room().bytes(number);
            self.copy_page(leaver, frame).inspect_err(unreadable).is_ok() || self.stays(ground, leaver)
        });
        let pages: Vec<usize> =
            leavers.iter().filter(|leaver| here(leaver)).map(|leaver| leaver.page).collect();
        let runs = runs_of(&pages);
        // SAFETY: managed memory whose contents are in the frames; nobody can have stored to it since they
        // were copied.
        unsafe { discard(&runs) };
        add(&self.counters.evicted_pages, leavers.len() as u64);
        // Frames in memory become frames of the room: their number stays.
        for leaver in leavers.iter() {
            let Some((mut chunk, at)) = ground.layout.chunk(leaver.page) else { continue };
            let state = &mut chunk[at];
            state.place = match leaver.to {
                Way::Write(frame) | Way::Wait(frame) => Place::Waiting(frame),
                Way::Leave(slot) => {
                    self.frames.give(1);
                    Place::Stored(slot)
                }
            };
            if state.stored_to && self.doubts.raise() {
                (state.stored_to, state.doubted) = (false, true);
            }
            if std::mem::take(&mut state.wanted) {
                ground.wake(leaver.page, PAGE);
            }
        }
    }

    /// A page that was to leave is not the pager's any more. `false`, for who takes it off a list.
    fn forget_leaver(&self, ground: &Ground, leaver: &Leaver) -> bool {
        let Some((mut chunk, at)) = ground.layout.chunk(leaver.page) else { return false };
        let slot = match leaver.to {
            Way::Leave(slot) => Some(slot),
            Way::Write(number) | Way::Wait(number) => {
                let mut room = self.room();
                room.leave(number);
                room.frame(number).slot
            }
        };
        slot.into_iter().for_each(|slot| ground.store.give_up(slot));
        chunk[at].place = Place::Fresh;
        self.frames.give(1);
        if std::mem::take(&mut chunk[at].wanted) {
            ground.wake(leaver.page, PAGE);
        }
        false
    }

    /// Copies a managed page that is in memory.
    ///
    /// # Errors
    /// The program has made it unreadable, and the kernel does not give it otherwise: to a process forked from one that has changed its
    /// user, or that sees no `/proc`.
    fn copy_page(&self, leaver: &Leaver, to: *mut u8) -> io::Result<()> {
        if leaver.hidden {
            // The program has made the page unreadable for itself; the kernel reads it all the same.
            // SAFETY: the frame has a page's length, and its owner gave it to us.
            return self.kernel.read(unsafe { std::slice::from_raw_parts_mut(to, PAGE) }, leaver.page);
        }
        // SAFETY: the page is managed, in memory, readable, and write-protected, so that it does not change; the
        // frame is as large, and its owner gave it to us.
        unsafe { std::ptr::copy_nonoverlapping(std::ptr::with_exposed_provenance(leaver.page), to, PAGE) };
        Ok(())
    }

    /// Writes the dirty ones, as few runs of slots as there are. `false` if the store would not take them all:
    /// those stay in memory.
    fn write_out(&self, ground: &Ground, leavers: &[Leaver], writes: &mut Writes) -> bool {
        let mut dirty: Vec<(usize, u32, &[u8])> = Vec::new();
        {
            let room = self.room();
            for leaver in leavers {
                let Way::Write(frame) = leaver.to else { continue };
                // SAFETY: a frame of the room that is being written: it is not given to anybody else, and
                // nobody writes to it.
                let bytes = unsafe { std::slice::from_raw_parts(room.bytes(frame), PAGE) };
                dirty.push((leaver.page, frame, bytes));
            }
        }
        add(&self.counters.evicted_dirty_pages, dirty.len() as u64);
        let (mut runs, mut placed, mut refused) = (Vec::new(), 0, None);
        while placed < dirty.len() && refused.is_none() {
            match ground.store.take((dirty.len() - placed) as u32) {
                Ok((first, len)) => {
                    let pages =
                        dirty[placed..placed + len as usize].iter().map(|(.., bytes)| *bytes).collect();
                    runs.push(Run { first, pages });
                    placed += len as usize;
                }
                Err(error) => refused = Some(error),
            }
        }
        let mut staying = dirty.split_off(placed);
        let mut rest = &dirty[..];
        for (run, written) in runs.iter().zip(writes.write(&ground.store, &runs)) {
            let here;
            (here, rest) = rest.split_at(run.pages.len());
            let slots = (run.first..).map(|number| ground.store.slot(number));
            add(&self.counters.bytes_written, (here.len() * PAGE) as u64);
            match written {
                Ok(()) => {
                    add(&self.counters.writes, 1);
                    add(&self.counters.written_back_pages, here.len() as u64);
                    slots.zip(here).for_each(|(slot, (_, frame, _))| self.is_written(ground, *frame, slot));
                }
                Err(error) => {
                    slots.zip(here).for_each(|(slot, _)| ground.store.give_up(slot));
                    staying.extend_from_slice(here);
                    refused = Some(error);
                }
            }
        }
        let Some(error) = refused else {
            if !leavers.is_empty() {
                self.overcommitted.store(false, Relaxed);
            }
            return true;
        };
        self.refused(&error);
        #[cfg(test)]
        self.linger();
        self.bring_back(ground, &staying);
        false
    }

    /// The store would not take what was to be written.
    pub(super) fn refused(&self, error: &std::io::Error) {
        add(&self.counters.io_errors, 1);
        self.overcommitted.store(true, Relaxed);
        let mut complained = lock(&self.complained);
        if complained.is_none_or(|at| at.elapsed() >= SILENCE) {
            *complained = Some(Instant::now());
            write_line(format_args!(
                "deepram: the memory store failed ({error}); memory stays in DRAM beyond its budget until it works \
                 again"
            ));
        }
    }

    fn is_written(&self, ground: &Ground, number: u32, slot: Slot) {
        let mut room = self.room();
        let frame = room.frame(number);
        if frame.state == FrameState::Left {
            // Back in memory, and dirty there.
            room.leave(number);
            self.frames.give(1);
            ground.store.give_up(slot);
        } else {
            frame.slot = Some(slot);
            frame.state = FrameState::Waiting;
        }
    }

    /// Puts pages that could not be written back into memory.
    fn bring_back(&self, ground: &Ground, pages: &[(usize, u32, &[u8])]) {
        for (page, number, bytes) in pages {
            let Some((mut chunk, at)) = ground.layout.chunk(*page) else { continue };
            let waits = chunk[at].place == Place::Waiting(*number);
            if waits {
                // What is not mapped any more is forgotten.
                chunk[at].place = Place::Fresh;
                if ground.install(*page, bytes, false) == 1 {
                    chunk[at].place = Place::Dirty;
                    self.frames.take(1);
                    lock(&self.policy).insert((page / PAGE) as u64);
                }
            }
            drop(chunk);
            let mut room = self.room();
            let frame = room.frame(*number);
            if waits || frame.state == FrameState::Left {
                room.leave(*number);
                self.frames.give(1);
            } else {
                // It is coming back just now, from this frame: who brings it gives the frame up.
                frame.state = FrameState::Waiting;
            }
        }
    }
}

/// Neighbouring pages as runs of bytes to protect; sorted. Pages between two of them that nobody can store to
/// join them: each call interrupts every processor that runs the program.
fn together(ground: &Ground, pages: &[usize]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &page in pages {
        match runs.last_mut() {
            Some((start, len)) if page - (*start + *len) <= GAP && idle(ground, *start + *len, page) => {
                *len = page + PAGE - *start;
            }
            _ => runs.push((page, PAGE)),
        }
    }
    runs
}

/// Whether the memory is managed and none of its pages can be stored to. That may change at once; a page that
/// is protected nevertheless has a fault served that changes nothing else.
fn idle(ground: &Ground, start: usize, end: usize) -> bool {
    let mut stored = false;
    ground.layout.each(start, end, |_, page| stored |= page.place == Place::Dirty);
    !stored && ground.layout.covers(start, end)
}

/// A page cannot be read.
fn unreadable(error: &io::Error) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Relaxed) {
        write_line(format_args!(
            "deepram: memory that the program has made unreadable stays in DRAM, as it cannot be read otherwise \
             (/proc/self/mem: {error})"
        ));
    }
}
