//! Chunks on their way: from the store or from nothing through a stage into memory as huge pages, and out again.
//!
//! A page that has moved can be stored to until it is protected. What was read is therefore summed up before and
//! after: if the sums differ, the chunk counts as dirty.

use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, MutexGuard};
use std::thread::JoinHandle;

use crc_fast::CrcAlgorithm;

use super::fatal::{call_failed, discard};
use super::huge::{Source, key, pages_of};
use super::ranges::{CHUNK_BYTES, CHUNK_PAGES, Chunk, Place, Slot};
use super::stage::{Order, carry};
use super::stats::add;
use super::writes::Writes;
use super::{Ground, Inner, PAGE};
use crate::lock::lock;

/// Threads that bring chunks, at most: with each summing what it has read, fewer leave the device idle when several streams
/// are read.
const STAGERS: usize = 8;
/// Runs that are read while others wait for everything to be at rest.
const FEW: usize = 2;
/// Every so many chunks that leave, what is known of their being stored to is forgotten.
const DOUBT: u64 = 8;

impl Inner {
    /// Starts the threads that bring chunks, when the first is ordered: most processes never order one, and each thread is a
    /// part of what a fork costs. Where the kernel makes no threads the caller brings what is ordered.
    pub(super) fn start_stagers(self: &Arc<Self>) -> Vec<Option<JoinHandle<()>>> {
        if !self.wants_stagers() {
            return Vec::new();
        }
        // A fork waits until they are started.
        let ground = self.read();
        let start = |n| {
            let inner = Arc::clone(self);
            self.spawn(format!("deepram-stage-{n}"), move || inner.bring_chunks()).ok()
        };
        let started: Vec<_> = (0..self.stages.count().min(STAGERS)).map_while(start).collect();
        self.stagers.store(!started.is_empty(), Relaxed);
        while !self.stagers.load(Relaxed)
            && let Some(order) = self.stages.try_next()
        {
            self.bring(&ground, order);
        }
        started
    }

    /// Whether a chunk is ordered that no thread brings.
    pub(super) fn wants_stagers(&self) -> bool {
        !self.stagers.load(Relaxed) && self.stages.has_orders()
    }

    /// Body of a thread that brings chunks.
    pub(super) fn bring_chunks(&self) {
        while let Some(order) = self.stages.next() {
            self.bring(&self.read(), order);
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
            if self.writers.load(Relaxed) > 0 && runs.len() > FEW {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let here;
            (here, rest) = rest.split_at_mut(len * PAGE);
            self.counters.read_begins();
            let read = ground.store.read(*slot, here);
            self.counters.read_ends();
            add(&self.counters.reads, 1);
            add(&self.counters.bytes_read, here.len() as u64);
            read.inspect_err(|_| add(&self.counters.io_errors, 1))?;
        }
        add(&self.counters.readahead_pages, CHUNK_PAGES as u64);
        Ok(sum(bytes))
    }

    /// Has a stage hold a page: a new one while frames last, or that of a chunk that leaves. Whether it is of zeros.
    fn find_page(&self, ground: &Ground, stage: usize) -> io::Result<bool> {
        let mut writes = Writes::new(false);
        while !self.stages.holds(stage) {
            // Nobody who waits for everything to be at rest waits for many small pages.
            if self.stopping.load(Relaxed) || self.writers.load(Relaxed) > 0 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            // Counted first: others look at the same time.
            self.frames.take(CHUNK_PAGES);
            if self.frames.excess(self.headroom()) == 0 {
                return match self.stages.populate(&ground.watch, stage) {
                    Ok(()) => Ok(true),
                    Err(error) => {
                        self.frames.give(CHUNK_PAGES);
                        Err(error)
                    }
                };
            }
            self.frames.give(CHUNK_PAGES);
            if self.overcommitted.load(Relaxed) || !self.evict_for(ground, stage, &mut writes) {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        Ok(false)
    }

    /// Moves a chunk from its stage, which is ours, into memory, and has the next ones staged.
    pub(super) fn enter_staged(
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
        self.stage_next(ground, address, fresh);

        let (there, huge) = self.move_in(ground, address, stage, !writable);
        let whole = there == CHUNK_PAGES;
        ground.wake(address, CHUNK_BYTES);
        // SAFETY: managed memory that is there and protected; who would unmap it waits for the ground.
        let doubtful = !writable && (!whole || unsafe { sum_at(address) } != before);
        if doubtful {
            ground.unprotect(address, there * PAGE);
        }
        let dirty = writable || doubtful;
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
            add(&self.counters.huge_pages, 1);
        } else {
            // The rest cannot be had: its mapping has gone behind our back.
            self.frames.give(CHUNK_PAGES - there);
        }
        // Faults that came in between.
        ground.wake(address, CHUNK_BYTES);
    }

    /// Moves a stage's page to its place in memory; copies what cannot be moved. Returns how many pages are there, and whether
    /// they are a huge page. The stage holds no page after this.
    fn move_in(&self, ground: &Ground, address: usize, stage: usize, protect: bool) -> (usize, bool) {
        let staged = self.stages.address(stage);
        // SAFETY: none of its pages is in memory: all are coming.
        let (moved, _) = unsafe { carry(&ground.watch, address, staged) };
        #[cfg(test)]
        self.linger();
        if protect && moved > 0 {
            ground.protect(address, moved);
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
        // Its frames are counted for the copies now.
        self.stages.drop_page(stage);
        (moved / PAGE + copied, false)
    }

    /// Has a chunk leave, into the stage `spare` if that is given, which is the caller's and holds no page, and holds its
    /// page afterwards. `false` if it does not leave: the store takes nothing, or it is 512 pages from now on.
    pub(super) fn leave_whole(&self, ground: &Ground, address: usize, spare: Option<usize>) {
        let Some((mut chunk, _)) = ground.layout.chunk(address) else { return };
        if !chunk.huge {
            return;
        }
        if chunk.iter().any(|page| page.pinned) {
            self.split(&mut chunk, address);
            return;
        }
        let from = chunk.places();
        let dirty = from[0] == Place::Dirty;
        chunk.set(|_| Place::Leaving);
        drop(chunk);
        self.chunks_leaving.fetch_add(1, Relaxed);

        let exit = (dirty && spare.is_none()).then(|| self.stages.exit());
        let to = spare.map(|stage| self.stages.address(stage)).or(exit.as_ref().map(|(_, at)| *at));
        // A stream waits for the stage; else nobody does, and others' reads go in between.
        let most = if spare.is_some() { CHUNK_PAGES } else { super::BATCH };
        let left = match to {
            Some(to) => self.leave_through(ground, address, to, &from, most),
            None => {
                // SAFETY: managed memory that is protected, and whose contents are on the store.
                unsafe { discard(&[(address, CHUNK_BYTES)]) };
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
            add(&self.counters.evicted_pages, CHUNK_PAGES as u64);
        }
        drop(exit);
        self.chunks_leaving.fetch_sub(1, Relaxed);
        let Some((mut chunk, _)) = ground.layout.chunk(address) else { return };
        match left {
            Left::Stored(slots) => {
                chunk.set(|n| Place::Stored(slots[n]));
                chunk.huge = false;
                let left = self.counters.evicted_pages.load(Relaxed) / CHUNK_PAGES as u64;
                if left.is_multiple_of(DOUBT) {
                    chunk.iter_mut().for_each(|page| page.stored_to = false);
                }
            }
            Left::Here { writable } => {
                chunk.set(|n| if writable { Place::Dirty } else { from[n] });
                // Whatever stops it stops huge pages, not small ones.
                self.split(&mut chunk, address);
            }
        }
        chunk.iter_mut().for_each(|page| page.wanted = false);
        drop(chunk);
        ground.wake(address, CHUNK_BYTES);
    }

    /// Moves a chunk out of memory, and writes it if it is dirty. If that fails it is back in memory.
    fn leave_through(&self, ground: &Ground, address: usize, to: usize, from: &[Place], most: usize) -> Left {
        let dirty = from[0] == Place::Dirty;
        // SAFETY: the stage is ours, and holds nothing.
        let (moved, result) = unsafe { carry(&ground.watch, to, address) };
        let failed = match result {
            Ok(()) if !dirty => return Left::Stored(from.iter().filter_map(slot_of).collect()),
            Ok(()) => match self.write_chunk(ground, to, most) {
                Ok(slots) => return Left::Stored(slots),
                Err(error) => Some(error),
            },
            Err(_) => None,
        };
        if moved > 0 {
            let (back, result) = ground.watch.transfer(address, to, moved);
            if let Err(error) = result {
                // SAFETY: what has not moved back is in the stage, which is ours.
                let rest = unsafe {
                    let rest = std::ptr::with_exposed_provenance::<u8>(to + back);
                    std::slice::from_raw_parts(rest, moved - back)
                };
                if ground.install(address + back, rest, false) * PAGE < moved - back {
                    call_failed("UFFDIO_MOVE", address + back, moved - back, &error);
                }
                // SAFETY: as above; what it holds is a copy by now.
                unsafe { discard(&[(to, CHUNK_BYTES)]) };
            }
            // What has moved is not protected any more.
            ground.unprotect(address, CHUNK_BYTES);
            from.iter().filter_map(slot_of).for_each(|slot| ground.store.give_up(slot));
        }
        if let Some(error) = failed {
            self.refused(&error);
        }
        Left::Here { writable: moved > 0 }
    }

    /// Writes a chunk that is at `from`, where nobody stores to it, `most` pages at a time: the slots of its pages.
    fn write_chunk(&self, ground: &Ground, from: usize, most: usize) -> io::Result<Vec<Slot>> {
        // SAFETY: a stage that is ours and holds a page.
        let bytes =
            unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<u8>(from), CHUNK_BYTES) };
        let pages: Vec<&[u8]> = bytes.chunks_exact(PAGE).collect();
        add(&self.counters.evicted_dirty_pages, CHUNK_PAGES as u64);
        let mut slots = Vec::with_capacity(CHUNK_PAGES);
        while slots.len() < CHUNK_PAGES {
            let rest = &pages[slots.len()..];
            let written = ground.store.take(rest.len().min(most) as u32).and_then(|(first, len)| {
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
        add(&self.counters.written_back_pages, CHUNK_PAGES as u64);
        self.overcommitted.store(false, Relaxed);
        Ok(slots)
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
