//! Gathers: many loads by call at once. Segments in memory are served first, then the device is read with a full
//! queue.

use super::super::{Cache, Permit};
use super::load::Lookup;
use super::{ColdRead, Part};
use crate::device::{CompletedRead, ReadQueue};
use crate::error::Result;
use crate::store::{Fetched, SlotLocation};

/// Segments looked up under one hold of the lock.
const LOOKUPS: usize = 32;

/// A segment that is being read.
struct GatherRead<'p, 'a> {
    cold: ColdRead,
    parts: &'p mut [Part<'a>],
    crc: u32,
}

/// A gather in progress.
struct Gather<'p, 'a> {
    cache: &'p Cache,
    permit: Permit,
    queue: ReadQueue,
    /// The segments to be read, each with all of its parts.
    cold: Vec<&'p mut [Part<'a>]>,
    /// The reads in flight, by request number.
    reading: Vec<Option<GatherRead<'p, 'a>>>,
    /// Segments that another thread is filling, or that changed while they were read. They are loaded one by one at
    /// the end.
    retry: Vec<&'p mut [Part<'a>]>,
}

impl Cache {
    /// Does the same as [`Cache::load_cold`] for parts of any segments, sorted by segment, with several reads in
    /// flight. On an error some parts are filled.
    pub(crate) fn gather_cold(&self, parts: &mut [Part<'_>], permit: Permit) -> Result<()> {
        debug_assert!(parts.is_sorted_by_key(|part| part.index));
        let (mut cold, mut retry) = (Vec::new(), Vec::new());
        let mut segments = parts.chunk_by_mut(|a, b| a.index == b.index).peekable();
        while segments.peek().is_some() {
            let mut state = self.lock();
            for parts in segments.by_ref().take(LOOKUPS) {
                match self.look_up(&mut state, parts, permit)? {
                    Lookup::Done => {}
                    Lookup::Filling => retry.push(parts),
                    Lookup::Cold => cold.push(parts),
                }
            }
        }
        if cold.len() == 1 {
            // A single read needs no queue.
            retry.append(&mut cold);
        }
        if !cold.is_empty() {
            let queue = self.queues.take();
            let mut gather = Gather { cache: self, permit, queue, cold, reading: Vec::new(), retry };
            let result = gather.run();
            retry = std::mem::take(&mut gather.retry);
            self.queues.give_back(gather.queue);
            result?;
        }
        retry.into_iter().try_for_each(|parts| self.load_cold(parts, permit))
    }
}

impl Gather<'_, '_> {
    /// Reads all cold segments. No read is in flight when it returns.
    fn run(&mut self) -> Result<()> {
        let mut result = Ok(());
        loop {
            if result.is_ok() {
                result = self.refill();
            }
            let Some(ended) = self.queue.next() else {
                match self.cold.pop().filter(|_| result.is_ok()) {
                    // Other threads hold all slots: this waits for one.
                    Some(parts) => result = self.cache.load_cold(parts, self.permit),
                    None => return result,
                }
                continue;
            };
            let end = self.end(ended);
            result = result.and(end);
        }
    }

    /// Starts reads until the queue is full or no slot is left.
    fn refill(&mut self) -> Result<()> {
        while !self.cold.is_empty() {
            let Some(request) = self.queue.request() else { return Ok(()) };
            let Some(parts) = self.cold.pop() else { return Ok(()) };
            let index = parts[0].index;
            let mut state = self.cache.lock();
            // Another thread may have brought the segment in.
            let served = match self.cache.look_up(&mut state, parts, self.permit) {
                Ok(served) => served,
                Err(error) => {
                    self.queue.release_request(request);
                    return Err(error);
                }
            };
            if !matches!(served, Lookup::Cold) {
                self.queue.release_request(request);
                if matches!(served, Lookup::Filling) {
                    self.retry.push(parts);
                }
                continue;
            }
            let Some((cold, slot)) = self.cache.begin(&mut state, index) else {
                self.queue.release_request(request);
                self.cold.push(parts);
                return Ok(());
            };
            drop(state);
            let (store, page, segment) = self.cache.store_of(index);
            let fetched = match store.locate_slot(page, segment) {
                Ok(SlotLocation::Slot { slot: at, crc }) => {
                    if self.reading.len() <= request {
                        self.reading.resize_with(request + 1, || None);
                    }
                    self.reading[request] = Some(GatherRead { cold, parts, crc });
                    self.queue.start(request, store.device(), store.geometry().offset(at), slot);
                    continue;
                }
                Ok(SlotLocation::Unwritten) => Ok(Fetched::Zero),
                Err(error) => Err(error),
            };
            self.queue.release_request(request);
            if !self.cache.finish(&mut self.cache.lock(), cold, slot, fetched, parts, self.permit)? {
                self.retry.push(parts);
            }
        }
        Ok(())
    }

    /// Checks the result of a read.
    fn end(&mut self, ended: CompletedRead) -> Result<()> {
        let CompletedRead { request, mut slot, result } = ended;
        let Some(GatherRead { cold, parts, crc }) = self.reading[request].take() else { return Ok(()) };
        let (store, page, segment) = self.cache.store_of(cold.index());
        let fetched = store.verify_read(page, segment, crc, result, slot.bytes_mut());
        if !self.cache.finish(&mut self.cache.lock(), cold, slot, fetched, parts, self.permit)? {
            self.retry.push(parts);
        }
        Ok(())
    }
}
