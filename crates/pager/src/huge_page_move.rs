//! Moves chunks as huge pages: from the swap file, or from zeros, through a stage into memory, and out again.
//!
//! A page that has been moved can be stored to until it is protected. So the checksum of a chunk that was read is
//! computed before and after: if the two differ, the chunk counts as dirty.

use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, MutexGuard};
use std::thread::JoinHandle;

use deepram_core::paging::stages::{STAGERS, StageOrder};

use super::checksum::contents_checksum;
use super::fatal::{call_failed, discard};
use super::huge_pages::{StageSource, key, pages_of};
use super::page_table::{CHUNK_BYTES, CHUNK_PAGES, Chunk, PageState, SwapSlot};
use super::stats::add;
use super::write_back::WriteBack;
use super::{AddressSpace, Inner, PAGE};
use deepram_linux::lock::lock;
use deepram_linux::stage_memory::move_chunk;

/// Runs that are still read while a thread waits for the address-space lock exclusively.
const FEW_RUNS: usize = 2;

impl Inner {
    /// Starts the stager threads when the first order is queued: most processes never stage a chunk, and each thread
    /// makes a fork slower. Where the kernel starts no threads, the caller executes the orders.
    pub(super) fn start_stagers(self: &Arc<Self>) -> Vec<Option<JoinHandle<()>>> {
        // Held while threads are started: a fork waits for that.
        let space = self.read();
        let start = |n| {
            let inner = Arc::clone(self);
            self.spawn(format!("deepram-stage-{n}"), move || inner.run_stager()).ok()
        };
        let started: Vec<_> = (0..self.stages.count().min(STAGERS)).map_while(start).collect();
        self.stagers.store(!started.is_empty(), Relaxed);
        while !self.stagers.load(Relaxed)
            && let Some(order) = self.stages.try_next_order()
        {
            self.execute(&space, order);
        }
        started
    }

    /// Whether an order is queued and no stager thread exists.
    pub(super) fn needs_stagers(&self) -> bool {
        !self.stagers.load(Relaxed) && self.stages.has_orders()
    }

    /// Body of a stager thread.
    pub(super) fn run_stager(&self) {
        while let Some(order) = self.stages.next_order() {
            self.execute(&self.read(), order);
        }
    }

    /// Executes an order: fills its stage with the chunk's bytes.
    fn execute(&self, space: &AddressSpace, order: StageOrder) {
        let StageOrder { stage, chunk: address, .. } = order;
        let source = {
            let Some((chunk, _)) = space.page_table.chunk(address) else { return };
            if !self.stages.begin_order(order) {
                return;
            }
            chunk.source()
        };
        let filled = source.ok_or_else(|| io::ErrorKind::NotFound.into());
        let filled = filled.and_then(|source| self.fill_stage(space, stage, &source));
        let Some((mut chunk, _)) = space.page_table.chunk(address) else { return };
        match (filled, chunk.waiting_fault) {
            (Ok(checksum), Some(write)) => self.install_staged(space, chunk, address, stage, checksum, write),
            (Ok(checksum), None) => self.stages.mark_ready(stage, checksum),
            // The chunk's pages are read one by one instead, and an error is reported then.
            (Err(_), _) => self.unstage(space, &mut chunk, address),
        }
    }

    /// Obtains a huge page for a stage and fills it. Returns the checksum of the bytes read.
    fn fill_stage(&self, space: &AddressSpace, stage: usize, source: &StageSource) -> io::Result<u64> {
        let zeros = self.obtain_page(space, stage)?;
        // SAFETY: the stage has a page, and belongs to this thread.
        let bytes = unsafe { &mut *self.stages.memory().bytes(stage) };
        let StageSource::Stored(runs) = source else {
            if !zeros {
                bytes.fill(0);
            }
            return Ok(0);
        };
        let mut rest = &mut *bytes;
        for (slot, len) in runs {
            if self.waiting_exclusive.load(Relaxed) > 0 && runs.len() > FEW_RUNS {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let here;
            (here, rest) = rest.split_at_mut(len * PAGE);
            self.counters.histograms.read_begins();
            let read = space.swap_file.read(*slot, here);
            self.counters.histograms.read_ends();
            add(&self.counters.reads, 1);
            add(&self.counters.bytes_read, here.len() as u64);
            read.inspect_err(|_| add(&self.counters.io_errors, 1))?;
        }
        add(&self.counters.readahead_pages, CHUNK_PAGES as u64);
        Ok(contents_checksum(bytes))
    }

    /// Obtains a huge page for a stage: a new one while frames last, or the page of a chunk that is evicted. Returns
    /// whether it is all zeros.
    fn obtain_page(&self, space: &AddressSpace, stage: usize) -> io::Result<bool> {
        let mut write_back = WriteBack::new(false);
        while !self.stages.has_page(stage) {
            // A thread that waits for the address-space lock exclusively must not wait until many 4 KiB pages are
            // evicted.
            if self.stopping.load(Relaxed) || self.waiting_exclusive.load(Relaxed) > 0 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            if self.frames.excess(CHUNK_PAGES + self.headroom()) == 0 {
                // Other members may have frames of this process's part. Its faults on single pages wait for them.
                self.frames.populate(CHUNK_PAGES, || self.stages.populate(&space.uffd, stage))?;
                return Ok(true);
            }
            if self.swap_failing.load(Relaxed) || !self.evict_for_stage(space, stage, &mut write_back) {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        Ok(false)
    }

    /// Moves a chunk from its stage, which belongs to the caller, into memory, and stages the next chunks.
    pub(super) fn install_staged(
        &self,
        space: &AddressSpace,
        mut chunk: MutexGuard<'_, Chunk>,
        address: usize,
        stage: usize,
        before: u64,
        write: bool,
    ) {
        let fresh = chunk[0].state == PageState::Fresh;
        let from = chunk.states();
        let writable = fresh || write;
        (chunk.staged, chunk.waiting_fault) = (None, None);
        chunk.set_states(|_| PageState::Incoming);
        drop(chunk);
        // Done first: the stream continues as early as possible.
        self.stage_next(space, address, fresh);

        let (resident, huge) = self.move_from_stage(space, address, stage, !writable);
        let whole = resident == CHUNK_PAGES;
        space.wake(address, CHUNK_BYTES);
        // SAFETY: managed memory that is present and protected; a thread that would unmap it waits for the
        // address-space lock.
        let changed = !writable && (!whole || unsafe { checksum_at(address) } != before);
        if changed {
            space.unprotect(address, resident * PAGE);
        }
        let dirty = writable || changed;
        if dirty && !fresh {
            from[..resident].iter().filter_map(stored_slot).for_each(|slot| space.swap_file.free(slot));
        }
        self.stages.release(stage);
        if let Some((mut chunk, _)) = space.page_table.chunk(address) {
            for (n, page) in chunk.iter_mut().enumerate() {
                page.state = match from[n] {
                    state if n >= resident => state,
                    PageState::Stored(slot) if !dirty => PageState::Clean(slot),
                    _ => PageState::Dirty,
                };
                // A clean huge page is write-protected.
                (page.checksum, page.fault_waiting) = (None, false);
            }
            chunk.huge = huge;
            if let Some(evicted_at) = chunk.evicted_at.filter(|_| huge && !fresh) {
                let evictions = self.counters.evicted_pages.load(Relaxed) - evicted_at;
                lock(&self.drop_behind).chunk_arrived(address, evictions, self.frames.limit());
            }
            let mut policy = lock(&self.policy);
            if huge {
                policy.insert(key(address));
            } else {
                pages_of(address).take(resident).for_each(|page| policy.insert((page / PAGE) as u64));
            }
        }
        if huge {
            add(&self.counters.huge_pages, 1);
        } else {
            // The other pages cannot be installed: their mapping is gone, without the pager seeing it.
            self.frames.release(CHUNK_PAGES - resident);
        }
        // For faults that came meanwhile.
        space.wake(address, CHUNK_BYTES);
    }

    /// Moves a stage's page to its address in memory, and copies the pages that cannot be moved. Returns how many pages
    /// are present, and whether they are one huge page. The stage has no page afterwards.
    fn move_from_stage(
        &self,
        space: &AddressSpace,
        address: usize,
        stage: usize,
        protect: bool,
    ) -> (usize, bool) {
        let staged = self.stages.address(stage);
        // SAFETY: none of the chunk's pages is in memory: all are `Incoming`.
        let (moved, _) = unsafe { move_chunk(&space.uffd, address, staged) };
        #[cfg(test)]
        self.test_delay();
        if protect && moved > 0 {
            space.protect(address, moved);
        }
        if moved == CHUNK_BYTES {
            self.stages.set_has_page(stage, false);
            return (CHUNK_PAGES, true);
        }
        // SAFETY: pages that were not moved are in the stage, which belongs to the caller.
        let bytes = unsafe { &*self.stages.memory().bytes(stage) };
        let copied = space.install(address + moved, &bytes[moved..], protect);
        // The frames now count for the copies.
        self.stages.drop_page(stage);
        (moved / PAGE + copied, false)
    }

    /// Evicts a huge page, through the stage `spare` if given: that stage belongs to the caller, has no page before and
    /// has one afterwards. A huge page with pinned pages, or one that the swap file does not take, is split into 512
    /// pages instead.
    pub(super) fn evict_huge_page(&self, space: &AddressSpace, address: usize, spare: Option<usize>) {
        let Some((mut chunk, _)) = space.page_table.chunk(address) else { return };
        if !chunk.huge {
            return;
        }
        if chunk.iter().any(|page| page.pinned) {
            self.split(&mut chunk, address);
            return;
        }
        let from = chunk.states();
        let dirty = from[0] == PageState::Dirty;
        chunk.set_states(|_| PageState::Evicting);
        drop(chunk);
        self.evicting_chunks.fetch_add(1, Relaxed);

        let exit = (dirty && spare.is_none()).then(|| self.stages.lock_exit());
        let to = spare.map(|stage| self.stages.address(stage)).or(exit.as_ref().map(|(_, at)| *at));
        // A stream waits for the stage; without one, no thread waits, and reads may run in between.
        let most = if spare.is_some() { CHUNK_PAGES } else { super::BATCH };
        let outcome = match to {
            Some(to) => self.evict_through(space, address, to, &from, most),
            None => {
                // SAFETY: managed memory that is protected, and whose contents are in the swap file.
                unsafe { discard(&[(address, CHUNK_BYTES)]) };
                EvictionOutcome::Stored(from.iter().filter_map(stored_slot).collect())
            }
        };
        if let EvictionOutcome::Stored(_) = outcome {
            if exit.is_some() {
                self.stages.drop_page(self.stages.exit_stage());
            }
            match spare {
                Some(stage) => self.stages.set_has_page(stage, true),
                None => self.frames.release(CHUNK_PAGES),
            }
            add(&self.counters.evicted_pages, CHUNK_PAGES as u64);
        }
        drop(exit);
        self.evicting_chunks.fetch_sub(1, Relaxed);
        let Some((mut chunk, _)) = space.page_table.chunk(address) else { return };
        match outcome {
            EvictionOutcome::Stored(slots) => {
                chunk.set_states(|n| PageState::Stored(slots[n]));
                chunk.huge = false;
                chunk.evicted_at = Some(self.counters.evicted_pages.load(Relaxed));
            }
            EvictionOutcome::Kept { writable } => {
                chunk.set_states(|n| if writable { PageState::Dirty } else { from[n] });
                // The reason stops huge pages, but not 4 KiB pages.
                self.split(&mut chunk, address);
            }
        }
        chunk.iter_mut().for_each(|page| page.fault_waiting = false);
        drop(chunk);
        space.wake(address, CHUNK_BYTES);
    }

    /// Moves a chunk out of memory, and writes it if it is dirty. If that fails, the chunk is moved back into memory.
    fn evict_through(
        &self,
        space: &AddressSpace,
        address: usize,
        to: usize,
        from: &[PageState],
        most: usize,
    ) -> EvictionOutcome {
        let dirty = from[0] == PageState::Dirty;
        // SAFETY: the stage belongs to the caller and holds nothing.
        let (moved, result) = unsafe { move_chunk(&space.uffd, to, address) };
        let failed = match result {
            Ok(()) if !dirty => {
                return EvictionOutcome::Stored(from.iter().filter_map(stored_slot).collect());
            }
            Ok(()) => match self.write_chunk(space, to, most) {
                Ok(slots) => return EvictionOutcome::Stored(slots),
                Err(error) => Some(error),
            },
            Err(_) => None,
        };
        if moved > 0 {
            let (back, result) = space.uffd.move_pages(address, to, moved);
            if let Err(error) = result {
                // SAFETY: pages that were not moved back are in the stage, which belongs to the caller.
                let rest = unsafe {
                    let rest = std::ptr::with_exposed_provenance::<u8>(to + back);
                    std::slice::from_raw_parts(rest, moved - back)
                };
                if space.install(address + back, rest, false) * PAGE < moved - back {
                    call_failed("UFFDIO_MOVE", address + back, moved - back, &error);
                }
                // SAFETY: as above; the stage holds only a copy by now.
                unsafe { discard(&[(to, CHUNK_BYTES)]) };
            }
            // Moved pages are no longer protected.
            space.unprotect(address, CHUNK_BYTES);
            from.iter().filter_map(stored_slot).for_each(|slot| space.swap_file.free(slot));
        }
        if let Some(error) = failed {
            self.note_swap_failure(&error);
        }
        EvictionOutcome::Kept { writable: moved > 0 }
    }

    /// Writes the chunk at address `from`, to which no thread stores, `most` pages at a time. Returns the slots of its
    /// pages.
    fn write_chunk(&self, space: &AddressSpace, from: usize, most: usize) -> io::Result<Vec<SwapSlot>> {
        // SAFETY: a stage that belongs to the caller and has a page.
        let bytes =
            unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<u8>(from), CHUNK_BYTES) };
        let pages: Vec<&[u8]> = bytes.chunks_exact(PAGE).collect();
        add(&self.counters.evicted_dirty_pages, CHUNK_PAGES as u64);
        let mut slots = Vec::with_capacity(CHUNK_PAGES);
        while slots.len() < CHUNK_PAGES {
            let rest = &pages[slots.len()..];
            let written = space.swap_file.allocate(rest.len().min(most) as u32).and_then(|(first, len)| {
                slots.extend((first..first + len).map(|number| space.swap_file.slot(number)));
                add(&self.counters.bytes_written, u64::from(len) * PAGE as u64);
                space.swap_file.write(first, &rest[..len as usize])
            });
            if let Err(error) = written {
                slots.into_iter().for_each(|slot| space.swap_file.free(slot));
                return Err(error);
            }
            add(&self.counters.writes, 1);
        }
        add(&self.counters.written_back_pages, CHUNK_PAGES as u64);
        self.swap_failing.store(false, Relaxed);
        Ok(slots)
    }
}

/// Result of evicting a chunk.
enum EvictionOutcome {
    /// The chunk is in the swap file, at these slots, and not in memory.
    Stored(Vec<SwapSlot>),
    /// The chunk is in memory as before; if `writable`, all of it can be stored to and none of it is in the swap file.
    Kept { writable: bool },
}

fn stored_slot(state: &PageState) -> Option<SwapSlot> {
    match state {
        PageState::Clean(slot) | PageState::Stored(slot) => Some(*slot),
        _ => None,
    }
}

/// Checksum of a chunk's bytes in memory.
///
/// # Safety
/// The whole chunk is present, and no thread stores to it.
unsafe fn checksum_at(chunk: usize) -> u64 {
    // SAFETY: the caller's promise.
    contents_checksum(unsafe {
        std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<u8>(chunk), CHUNK_BYTES)
    })
}
