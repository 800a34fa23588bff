//! Evicts pages ahead of need, many at a time, and writes the dirty ones together.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use deepram_core::paging::SwapWatermarks;
use deepram_core::paging::huge_pages::PolicyKey;
use deepram_core::paging::runs::{SWAP_GAP, join_runs};
use deepram_core::paging::victim_buffer::{Leaving, pages_to_drain, pages_to_move};

use super::checksum::PageChecksum;
use super::direct_io::MoveArea;
use super::fatal::discard;
use super::huge_pages::key;
use super::page_table::{CHUNK_BYTES, PageState, SwapSlot};
use super::service::{SharedProcessor, Trigger};
use super::stats::add;
use super::write_back::{WriteBack, WriteRun};
use super::{AddressSpace, Inner, PAGE, contiguous_ranges};
use deepram_linux::lock::lock;
use deepram_linux::message::write_line;

/// How often the evictor checks the budget without being woken: other processes share it.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Pause after a failed write.
const FAILURE_PAUSE: Duration = Duration::from_millis(50);
/// Shortest time between two messages about a failing swap file.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(60);
/// How long a fault sleeps at a time while other threads write the pages in its way.
const WRITE_WAIT: Duration = Duration::from_micros(50);

/// Pages that are protected and copied together.
const PROTECT_BATCH: usize = SwapWatermarks::PROTECTED_TOGETHER;

/// State of the thread that currently evicts.
#[derive(Debug, Default)]
pub(super) struct EvictorState {
    /// Number of consecutive victims that could not be evicted.
    failed_in_a_row: usize,
    move_area: Option<MoveArea>,
}

/// A page that is being evicted.
pub(super) struct Victim {
    pub(super) page: usize,
    /// Its frame in the victim buffer.
    pub(super) frame: u32,
    /// Whether it is written to the swap file; otherwise it is there already.
    pub(super) dirty: bool,
    /// Of a clean page that can be stored to: the checksum of its slot. Of a page that is written by a forked child: that
    /// of what is written.
    checksum: Option<PageChecksum>,
    unreadable: bool,
}

impl Inner {
    /// The watermarks of the present budget.
    fn watermarks(&self) -> SwapWatermarks {
        SwapWatermarks { frames: self.frames.limit() }
    }

    /// Frames that are kept free ahead of need.
    pub(super) fn headroom(&self) -> usize {
        self.watermarks().headroom()
    }

    /// Largest number of frames in the victim buffer.
    fn victim_buffer_limit(&self) -> usize {
        self.options.frames_of_victim_buffer(self.frames.fair_share(), self.shares_with_fork.load(Relaxed))
    }

    /// Body of an evictor thread. The `first` one also updates the accounting ten times a second.
    pub(super) fn run_evictor(self: &Arc<Self>, first: bool, write_back: &mut WriteBack) {
        let mut last_poll: Option<Instant> = None;
        let mut stagers = Vec::new();
        let mut processor = SharedProcessor::default();
        while !self.stopping.load(Relaxed) {
            // A stager would inherit the affinity of this thread.
            let starts_stagers = first && self.needs_stagers();
            processor.follow(self.handler_group.get().filter(|_| !starts_stagers).map(|group| &**group));
            let wake_ups = self.frames.wake_ups();
            if starts_stagers {
                stagers.extend(self.start_stagers());
            }
            if first && last_poll.is_none_or(|at| at.elapsed() >= POLL_INTERVAL) {
                self.update_accounting();
                self.release_idle_stages();
                self.publish();
                self.options.periodic.iter().for_each(|call| call());
                last_poll = Some(Instant::now());
            }
            if self.frames.excess(self.headroom()) > 0 {
                self.trim_victim_buffer();
            }
            let excess = self.frames.excess(self.headroom());
            if excess > 0
                && (self.evict(&self.read(), self.watermarks().batch(), None, None, write_back)
                    || self.more_victims_possible())
            {
                continue;
            }
            if !(first && self.needs_stagers()) {
                let pause = if excess > 0 { FAILURE_PAUSE } else { POLL_INTERVAL };
                self.frames.wait_for_wake_up(wake_ups, pause);
            }
        }
        // The runtime has reported a panic of the thread already.
        stagers.into_iter().flatten().for_each(|thread: JoinHandle<()>| drop(thread.join()));
    }

    /// Updates the charges for tables, for idle frames of the victim buffer and for unpaged memory.
    fn update_accounting(&self) {
        // Held to the end: a fork must find no other lock held.
        let space = self.read();
        let tables = self.table_bytes(&space);
        self.frames.set_limit(self.dram.load(Relaxed) / PAGE);
        self.frames.set_tables(tables.div_ceil(PAGE));
        if !self.forked {
            self.shares_with_fork.store(space.swap_file.has_children(), Relaxed);
        }
        self.trim_victim_buffer();
        self.count_unpaged();
    }

    /// Evicts on the fault path until `count` frames are free: the evictors were not fast enough. If frames are still
    /// missing afterwards, no page can leave: all pages are pinned, or the swap file fails.
    pub(super) fn evict_synchronously(&self, space: &AddressSpace, count: usize) {
        let mut write_back = WriteBack::new(false);
        self.trim_victim_buffer();
        loop {
            let excess = self.frames.excess(count);
            if excess == 0 || self.swap_failing.load(Relaxed) || self.stopping.load(Relaxed) {
                return;
            }
            let moved =
                self.evict(space, SwapWatermarks::batch_of_fault(excess), None, None, &mut write_back);
            if !moved {
                // The thread that writes the pages in the way already holds the address-space lock, so its write
                // completes.
                if !self.victim_buffer().has_writes() && self.evicting_chunks.load(Relaxed) == 0 {
                    return;
                }
                std::thread::sleep(WRITE_WAIT);
            }
        }
    }

    /// Evicts the pages of a range.
    pub(super) fn evict_range(&self, start: usize, len: usize) {
        let mut pages = Vec::new();
        let space = self.read();
        for (from, to) in space.page_table.within(start / PAGE * PAGE, start + len) {
            space.page_table.each_known(from, to, |address, page| {
                if page.state.resident().is_some() {
                    pages.push(address);
                }
            });
        }
        let mut write_back = WriteBack::new(self.options.io_uring);
        for batch in pages.chunks(SwapWatermarks::BATCH) {
            self.evict(&space, batch.len(), Some(batch), None, &mut write_back);
        }
    }

    /// Evicts so that frames become free, or a huge page is moved into `stage`. Returns whether it made progress.
    pub(super) fn evict_for_stage(
        &self,
        space: &AddressSpace,
        stage: usize,
        write_back: &mut WriteBack,
    ) -> bool {
        self.evict(space, self.watermarks().batch(), None, Some(stage), write_back)
    }

    /// Frees `count` frames: pages move from memory to the victim buffer, and the oldest pages of the buffer leave it.
    /// More pages enter the buffer than leave it until it is full. If the policy chooses a huge page, the huge page is
    /// evicted as a whole, through the stage `spare` if given, and the batch ends there. Returns whether it made
    /// progress.
    fn evict(
        &self,
        space: &AddressSpace,
        count: usize,
        chosen: Option<&[usize]>,
        spare: Option<usize>,
        write_back: &mut WriteBack,
    ) -> bool {
        let (used, free) = {
            let buffer = self.victim_buffer();
            (buffer.used_frames(), buffer.free_frames())
        };
        let share = self.victim_buffer_limit().min(used + free);
        let moves = pages_to_move(count, used, share);
        let parts: Vec<(usize, Option<&[usize]>)> = match chosen {
            Some(pages) => pages.chunks(PROTECT_BATCH).map(|part| (part.len(), Some(part))).collect(),
            None => {
                (0..moves).step_by(PROTECT_BATCH).map(|at| (PROTECT_BATCH.min(moves - at), None)).collect()
            }
        };
        let mut victims = Vec::with_capacity(moves);
        let (mut freed, mut failed, mut huge) = (0, 0, None);
        for (count, chosen) in parts {
            let used = self.victim_buffer().used_frames();
            freed += self.drain_victim_buffer(space, pages_to_drain(count, used, share));
            let mut evictor = lock(&self.evictor);
            let (mut part, chunk) = self.choose_victims(space, count, chosen);
            let chosen = part.len();
            self.unmap_victims(space, &mut evictor, &mut part);
            failed += chosen - part.len();
            victims.extend(part);
            drop(evictor);
            huge = chunk;
            if huge.is_some() {
                break;
            }
            // Lets the threads on this processor, for whose faults the frames are, run first, as long as frames are
            // left.
            if self.frames.excess(self.watermarks().enough_to_yield()) == 0 {
                std::thread::yield_now();
            }
        }
        if !self.write_back_victims(space, &victims, write_back) {
            huge.into_iter().for_each(|chunk| self.reinsert_huge_page(space, chunk));
            return false;
        }
        if let Some(chunk) = huge {
            self.evict_huge_page(space, chunk, spare);
            return !self.swap_failing.load(Relaxed);
        }
        freed += self.drain_victim_buffer(space, count.saturating_sub(freed));
        let moved = freed > 0 || !victims.is_empty();
        let mut evictor = lock(&self.evictor);
        evictor.failed_in_a_row = if moved { 0 } else { evictor.failed_in_a_row + failed };
        moved
    }

    /// Whether to go on although no victim could be evicted: until all pages in memory have been tried.
    fn more_victims_possible(&self) -> bool {
        let failed_in_a_row = &mut lock(&self.evictor).failed_in_a_row;
        if *failed_in_a_row >= self.frames.limit() {
            *failed_in_a_row = 0;
        }
        *failed_in_a_row > 0
    }

    /// Removes up to `count` of the oldest pages from the victim buffer. Returns how many.
    fn drain_victim_buffer(&self, space: &AddressSpace, count: usize) -> usize {
        let mut drained = 0;
        while drained < count {
            let Some(Leaving { frame, page }) = self.victim_buffer().oldest() else { break };
            let Some((mut chunk, at)) = space.page_table.chunk(page) else { continue };
            // Another thread is still moving the page into its frame, and all that came later.
            if chunk[at].state.is_leaving() {
                self.victim_buffer().keep(frame);
                break;
            }
            // The page has come back meanwhile; the thread that brought it back releases the frame.
            if !chunk[at].state.is_in_frame(frame) {
                continue;
            }
            // The page may have come back and left again into the same frame, so the frame's present state counts.
            let Some(slot) = self.victim_buffer().leave(frame) else { continue };
            chunk[at].state = PageState::Stored(slot);
            match chunk[at].trigger.take() {
                Some(Trigger::ReturnProbe) => lock(&self.return_around).probe_ended(page, false),
                Some(trigger) => {
                    add(&self.counters.readahead_windows_wasted, 1);
                    if trigger == Trigger::Probe {
                        lock(&self.fault_around).probe_ended(page, false);
                    }
                }
                None => {}
            }
            chunk[at].heat.cool();
            self.frames.release(1);
            drained += 1;
        }
        drained
    }

    /// Chooses victims, marks them as evicting and gives each a frame in the victim buffer; sorted by address. If the
    /// policy chooses a huge page, the choice ends with it.
    fn choose_victims(
        &self,
        space: &AddressSpace,
        count: usize,
        chosen: Option<&[usize]>,
    ) -> (Vec<Victim>, Option<usize>) {
        let mut huge = None;
        let mut pages: Vec<usize> = match chosen {
            Some(pages) => {
                for page in pages {
                    if let Some((mut chunk, at)) = space.page_table.chunk(*page)
                        && chunk[at].state.resident().is_some()
                    {
                        self.split(&mut chunk, page / CHUNK_BYTES * CHUNK_BYTES);
                        lock(&self.policy).remove((page / PAGE) as u64);
                    }
                }
                pages.to_vec()
            }
            None => {
                let mut policy = lock(&self.policy);
                let left_behind = || lock(&self.drop_behind).victim();
                // It may have been evicted or split meanwhile.
                let left_behind = std::iter::from_fn(left_behind).find(|chunk| policy.contains(key(*chunk)));
                if let Some(chunk) = left_behind {
                    policy.remove(key(chunk));
                    return (Vec::new(), Some(chunk));
                }
                let shares = self.shares_with_fork.load(Relaxed);
                let mut is_shared = |key| match PolicyKey::of(key) {
                    PolicyKey::Page(page) => shares && self.proc_files.is_shared(page),
                    PolicyKey::Chunk(_) => false,
                };
                let keys = (0..count).map_while(|_| policy.victim(&mut is_shared));
                keys.map_while(|key| match PolicyKey::of(key) {
                    PolicyKey::Page(page) => Some(page),
                    PolicyKey::Chunk(chunk) => {
                        huge = Some(chunk);
                        None
                    }
                })
                .collect()
            }
        };
        pages.sort_unstable();
        let mut victims = Vec::with_capacity(pages.len());
        for page in pages {
            let Some((mut chunk, at)) = space.page_table.chunk(page) else { continue };
            // The page has become part of a huge page since the policy chose it, and now has another key.
            if chunk.huge {
                continue;
            }
            let info = &mut chunk[at];
            // Otherwise the page has left memory in another way.
            let Some(resident) = info.state.resident() else { continue };
            let frame = if info.pinned { None } else { self.victim_buffer().insert(page, resident.slot()) };
            match frame {
                Some(frame) => {
                    let checksum = info.unverified().map(|(_, checksum)| checksum);
                    info.state.evict();
                    let (dirty, unreadable) = (resident.slot().is_none(), info.unreadable);
                    victims.push(Victim { page, frame, dirty, checksum, unreadable });
                }
                // Still under the chunk's lock: the page has no other state yet.
                None => lock(&self.policy).insert((page / PAGE) as u64),
            }
        }
        (victims, huge)
    }

    /// Protects the victims, copies them into their frames and drops them from memory; or moves them. Clean victims that have
    /// been stored to become dirty ones. Victims that a device may be storing to are taken off the list.
    fn unmap_victims(&self, space: &AddressSpace, evictor: &mut EvictorState, victims: &mut Vec<Victim>) {
        let moves = self.direct_io.load(Relaxed);
        // The victims to protect and copy.
        let writable: Vec<usize> = if moves {
            self.move_dirty_victims(space, &mut evictor.move_area, victims)
        } else {
            let writable = |victim: &&Victim| victim.dirty || victim.checksum.is_some();
            victims.iter().filter(writable).map(|victim| victim.page).collect()
        };
        let here = |victim: &Victim| !moves || !victim.dirty || writable.binary_search(&victim.page).is_ok();
        for (start, len) in protection_ranges(space, &writable) {
            let gone = space.protect(start, len);
            victims.retain(|victim| !gone.contains(&victim.page) || self.forget_victim(space, victim));
        }
        victims.retain_mut(|victim| {
            !here(victim) || self.copy_victim(space, victim) || self.cancel_eviction(space, victim)
        });
        let pages: Vec<usize> =
            victims.iter().filter(|victim| here(victim)).map(|victim| victim.page).collect();
        let runs = contiguous_ranges(&pages);
        // SAFETY: managed memory whose contents are in the frames; no thread can have stored to it since the copy.
        unsafe { discard(&runs) };
        add(&self.counters.evicted_pages, victims.len() as u64);
        // Frames of memory become frames of the victim buffer: their number stays.
        for victim in victims.iter() {
            let Some((mut chunk, at)) = space.page_table.chunk(victim.page) else { continue };
            let info = &mut chunk[at];
            info.state.leave_memory(victim.frame);
            info.checksum = victim.checksum;
            if std::mem::take(&mut info.fault_waiting) {
                space.wake(victim.page, PAGE);
            }
        }
    }

    /// Handles a victim whose mapping is gone. Returns `false`, which takes it off the caller's list.
    fn forget_victim(&self, space: &AddressSpace, victim: &Victim) -> bool {
        let Some((mut chunk, at)) = space.page_table.chunk(victim.page) else { return false };
        let slot = self.victim_buffer().take(victim.frame);
        slot.into_iter().for_each(|slot| space.swap_file.free(slot));
        chunk[at].state = PageState::Fresh;
        self.frames.release(1);
        if std::mem::take(&mut chunk[at].fault_waiting) {
            space.wake(victim.page, PAGE);
        }
        false
    }

    /// Copies a victim, which is protected, into its frame. A clean one that has been stored to becomes a dirty one, and its
    /// slot is freed. Returns `false` if the victim cannot leave.
    fn copy_victim(&self, space: &AddressSpace, victim: &mut Victim) -> bool {
        let frame = self.victim_buffer().bytes(victim.frame);
        if let Err(error) = self.copy_page(victim, frame) {
            report_unreadable(&error);
            return false;
        }
        // SAFETY: the page's frame: no other thread stores to it.
        let copied = unsafe { std::slice::from_raw_parts(frame, PAGE) };
        let now =
            (victim.checksum.is_some() || space.parent_memory.is_some()).then(|| PageChecksum::of(copied));
        if victim.checksum.is_some() && now != victim.checksum {
            let slot = self.victim_buffer().write_back_changed(victim.frame);
            slot.into_iter().for_each(|slot| space.swap_file.free(slot));
            victim.dirty = true;
        }
        victim.checksum = now;
        true
    }

    /// Copies a managed page that is in memory.
    ///
    /// # Errors
    /// The program has made the page unreadable, and the kernel refuses to read it: to a forked process that has
    /// changed its user, or that sees no `/proc`.
    fn copy_page(&self, victim: &Victim, to: *mut u8) -> io::Result<()> {
        if victim.unreadable {
            // The program has made the page unreadable for itself; the kernel can still read it.
            // SAFETY: the frame has the length of a page, and its owner gave it to this function.
            return self.proc_files.read(unsafe { std::slice::from_raw_parts_mut(to, PAGE) }, victim.page);
        }
        // SAFETY: the page is managed, in memory, readable, and write-protected, so that it does not change; the frame
        // is as large, and its owner gave it to this function.
        unsafe { std::ptr::copy_nonoverlapping(std::ptr::with_exposed_provenance(victim.page), to, PAGE) };
        Ok(())
    }

    /// Writes the dirty victims, in as few runs of slots as possible. Returns `false` if the swap file did not take all
    /// of them: the others stay in memory.
    fn write_back_victims(
        &self,
        space: &AddressSpace,
        victims: &[Victim],
        write_back: &mut WriteBack,
    ) -> bool {
        let mut dirty: Vec<(usize, u32, &[u8])> = Vec::new();
        {
            let buffer = self.victim_buffer();
            for victim in victims.iter().filter(|victim| victim.dirty) {
                // SAFETY: a frame of the victim buffer that is being written: it is given to no other page, and no
                // thread writes to it.
                let bytes = unsafe { std::slice::from_raw_parts(buffer.bytes(victim.frame), PAGE) };
                dirty.push((victim.page, victim.frame, bytes));
            }
        }
        add(&self.counters.evicted_dirty_pages, dirty.len() as u64);
        let (mut runs, mut placed, mut refused) = (Vec::new(), 0, None);
        while placed < dirty.len() && refused.is_none() {
            match space.swap_file.allocate((dirty.len() - placed) as u32) {
                Ok((first, len)) => {
                    let pages =
                        dirty[placed..placed + len as usize].iter().map(|(.., bytes)| *bytes).collect();
                    runs.push(WriteRun { first, pages });
                    placed += len as usize;
                }
                Err(error) => refused = Some(error),
            }
        }
        let mut staying = dirty.split_off(placed);
        let mut rest = &dirty[..];
        for (run, written) in runs.iter().zip(write_back.write(&space.swap_file, &runs)) {
            let here;
            (here, rest) = rest.split_at(run.pages.len());
            let slots = (run.first..).map(|number| space.swap_file.slot(number));
            add(&self.counters.bytes_written, (here.len() * PAGE) as u64);
            match written {
                Ok(()) => {
                    add(&self.counters.writes, 1);
                    add(&self.counters.written_back_pages, here.len() as u64);
                    slots.zip(here).for_each(|(slot, (_, frame, _))| self.finish_write(space, *frame, slot));
                }
                Err(error) => {
                    slots.zip(here).for_each(|(slot, _)| space.swap_file.free(slot));
                    staying.extend_from_slice(here);
                    refused = Some(error);
                }
            }
        }
        let Some(error) = refused else {
            if !victims.is_empty() {
                self.swap_failing.store(false, Relaxed);
            }
            return true;
        };
        self.note_swap_failure(&error);
        #[cfg(test)]
        self.test_delay();
        self.restore_unwritten(space, &staying);
        false
    }

    /// Records that a write to the swap file failed, and reports it to the user.
    pub(super) fn note_swap_failure(&self, error: &std::io::Error) {
        add(&self.counters.io_errors, 1);
        self.swap_failing.store(true, Relaxed);
        let mut last_complaint = lock(&self.last_complaint);
        if last_complaint.is_none_or(|at| at.elapsed() >= COMPLAINT_INTERVAL) {
            *last_complaint = Some(Instant::now());
            write_line(format_args!(
                "deepram: writing to the swap file failed ({error}); pages stay in DRAM beyond the budget until \
                 writing works again"
            ));
        }
    }

    fn finish_write(&self, space: &AddressSpace, number: u32, slot: SwapSlot) {
        // If the frame is free, the page is back in memory, and dirty there.
        let mut buffer = self.victim_buffer();
        if buffer.write_ended(number, slot) {
            self.frames.release(1);
            space.swap_file.free(slot);
        }
    }

    /// Puts pages that could not be written back into memory.
    fn restore_unwritten(&self, space: &AddressSpace, pages: &[(usize, u32, &[u8])]) {
        for (page, number, bytes) in pages {
            let Some((mut chunk, at)) = space.page_table.chunk(*page) else { continue };
            let waits = chunk[at].state.is_in_frame(*number);
            if waits {
                // A page that is no longer mapped is forgotten.
                chunk[at].state = PageState::Fresh;
                if space.install(*page, bytes, false) == 1 {
                    chunk[at].state = PageState::Dirty;
                    self.frames.charge(1);
                    lock(&self.policy).insert((page / PAGE) as u64);
                }
            }
            drop(chunk);
            // A page that is coming back just now keeps its frame: the thread that brings it back releases it.
            let mut buffer = self.victim_buffer();
            self.frames.release(usize::from(buffer.write_failed(*number, waits)));
        }
    }
}

/// Joins pages (sorted) into ranges to protect. Pages in between that cannot be stored to are included.
fn protection_ranges(space: &AddressSpace, pages: &[usize]) -> Vec<(usize, usize)> {
    let numbers = pages.iter().map(|page| page / PAGE);
    let may_join =
        |between: Range<usize>| no_page_is_writable(space, between.start * PAGE, between.end * PAGE);
    let runs = join_runs(numbers, SWAP_GAP, may_join);
    runs.into_iter().map(|(first, last)| (first * PAGE, (last - first + 1) * PAGE)).collect()
}

/// Whether the range is managed and none of its pages can be stored to. That may change at once; a page that is
/// protected nevertheless only causes a fault that changes nothing else.
fn no_page_is_writable(space: &AddressSpace, start: usize, end: usize) -> bool {
    let mut writable = false;
    space.page_table.each_known(start, end, |_, page| {
        writable |= page.state == PageState::Dirty || page.unverified().is_some();
    });
    !writable && space.page_table.covers(start, end)
}

/// Reports, once, that a page cannot be read.
fn report_unreadable(error: &io::Error) {
    static REPORTED: AtomicBool = AtomicBool::new(false);
    if !REPORTED.swap(true, Relaxed) {
        write_line(format_args!(
            "deepram: memory that the program has made unreadable stays in DRAM: the pager cannot read it either \
             (/proc/self/mem: {error})"
        ));
    }
}
