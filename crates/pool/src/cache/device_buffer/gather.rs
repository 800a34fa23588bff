//! Gathers: many loads by call at once. Segments in memory are served first, then the device is read with a full
//! queue.

use super::super::{Cache, Right};
use super::load::Served;
use super::{Cold, Part};
use crate::device::{Ended, ReadQueue};
use crate::error::Result;
use crate::store::{Fetched, Place};

/// Segments looked up under one hold of the lock.
const LOOKUPS: usize = 32;

/// A segment that is being read.
struct Going<'p, 'a> {
    cold: Cold,
    parts: &'p mut [Part<'a>],
    crc: u32,
}

/// A gather in progress.
struct Gather<'p, 'a> {
    cache: &'p Cache,
    right: Right,
    queue: ReadQueue,
    /// The segments to be read, each with all of its parts.
    cold: Vec<&'p mut [Part<'a>]>,
    /// The reads in flight, by request number.
    going: Vec<Option<Going<'p, 'a>>>,
    /// Segments that another thread is filling, or that changed while they were read. They are loaded one by one at
    /// the end.
    late: Vec<&'p mut [Part<'a>]>,
}

impl Cache {
    /// Does the same as [`Cache::load_cold`] for parts of any segments, sorted by segment, with several reads in
    /// flight. On an error some parts are filled.
    pub(crate) fn gather_cold(&self, parts: &mut [Part<'_>], right: Right) -> Result<()> {
        debug_assert!(parts.is_sorted_by_key(|part| part.index));
        let (mut cold, mut late) = (Vec::new(), Vec::new());
        let mut segments = parts.chunk_by_mut(|a, b| a.index == b.index).peekable();
        while segments.peek().is_some() {
            let mut state = self.lock();
            for parts in segments.by_ref().take(LOOKUPS) {
                match self.look_up(&mut state, parts, right)? {
                    Served::Done => {}
                    Served::Loading => late.push(parts),
                    Served::Cold => cold.push(parts),
                }
            }
        }
        if cold.len() == 1 {
            // A single read needs no queue.
            late.append(&mut cold);
        }
        if !cold.is_empty() {
            let queue = self.queues.take();
            let mut gather = Gather { cache: self, right, queue, cold, going: Vec::new(), late };
            let result = gather.run();
            late = std::mem::take(&mut gather.late);
            self.queues.give_back(gather.queue);
            result?;
        }
        late.into_iter().try_for_each(|parts| self.load_cold(parts, right))
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
                    Some(parts) => result = self.cache.load_cold(parts, self.right),
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
            let Some(berth) = self.queue.berth() else { return Ok(()) };
            let Some(parts) = self.cold.pop() else { return Ok(()) };
            let index = parts[0].index;
            let mut state = self.cache.lock();
            // Another thread may have brought the segment in.
            let served = match self.cache.look_up(&mut state, parts, self.right) {
                Ok(served) => served,
                Err(error) => {
                    self.queue.leave(berth);
                    return Err(error);
                }
            };
            if !matches!(served, Served::Cold) {
                self.queue.leave(berth);
                if matches!(served, Served::Loading) {
                    self.late.push(parts);
                }
                continue;
            }
            let Some((cold, slot)) = self.cache.begin(&mut state, index) else {
                self.queue.leave(berth);
                self.cold.push(parts);
                return Ok(());
            };
            drop(state);
            let (store, page, segment) = self.cache.store_of(index);
            let fetched = match store.place(page, segment) {
                Ok(Place::At { slot: at, crc }) => {
                    if self.going.len() <= berth {
                        self.going.resize_with(berth + 1, || None);
                    }
                    self.going[berth] = Some(Going { cold, parts, crc });
                    self.queue.start(berth, store.device(), store.geometry().offset(at), slot);
                    continue;
                }
                Ok(Place::Nowhere) => Ok(Fetched::Zero),
                Err(error) => Err(error),
            };
            self.queue.leave(berth);
            if !self.cache.finish(&mut self.cache.lock(), cold, slot, fetched, parts, self.right)? {
                self.late.push(parts);
            }
        }
        Ok(())
    }

    /// Checks the result of a read.
    fn end(&mut self, ended: Ended) -> Result<()> {
        let Ended { berth, mut slot, result } = ended;
        let Some(Going { cold, parts, crc }) = self.going[berth].take() else { return Ok(()) };
        let (store, page, segment) = self.cache.store_of(cold.index());
        let fetched = store.arrived(page, segment, crc, result, slot.bytes_mut());
        if !self.cache.finish(&mut self.cache.lock(), cold, slot, fetched, parts, self.right)? {
            self.late.push(parts);
        }
        Ok(())
    }
}
