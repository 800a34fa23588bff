//! The device buffer: segments that were loaded by call and are not in the DRAM cache. This is FlatFlash's SSD-Cache,
//! kept in host memory because the device has no byte-addressable memory.
//!
//! A load by call of a cold segment reads the segment into the buffer and copies from there; the DRAM cache and the
//! mapping do not change. The adaptive threshold of `deepram-core` decides when a segment has had enough uses to be
//! promoted into the DRAM cache.
//!
//! # Invariants
//! 1. A segment in the buffer is absent from the DRAM cache, and its bytes are the current ones on flash, checked by
//!    their CRC. So the segment leaves the buffer before it becomes resident ([`DeviceBuffer::take_for_fill`]: only
//!    resident segments can be stored to), and when contents change beneath the cache (rollback, free). Reclamation
//!    moves a segment without changing its bytes.
//! 2. A device read is stale if its segment becomes resident, or contents change, while the read is in flight. A
//!    stale read inserts nothing into the buffer, returns nothing to the caller, and is repeated.
//! 3. Slots with memory count as frames: together with the resident segments they never exceed the cache's limit. An
//!    unused buffer takes no frames, and gives its frames back when the DRAM cache needs them.
//! 4. The first segment of a readahead window and the probe of a block are kept apart as triggers: a page fault on one shows
//!    that the window or the block is used (`cache/readahead.rs`).
//! 5. The buffer changes under the cache's lock; device reads and checksums happen outside the lock.

mod gather;
mod load;

use std::io;
use std::ops::Range;

use deepram_core::cache::{HitPriority, Rrip};
use deepram_core::migration::PromotionThreshold;
use deepram_core::paging::{Trigger, Triggers};

pub(crate) use load::Part;

use super::Index;
use crate::buffer_pool::{BufferPool, ReadBuffer};
use crate::options::LoadOptions;

/// Associativity, and bits of a predicted re-reference interval. The paper names neither; see P13 and P21 in
/// facts.md.
const WAYS: usize = 16;
const INTERVAL_BITS: u8 = 2;
/// The least number of slots: one read can go on while another is handed to its caller.
const LEAST_SLOTS: usize = 2;

/// A small buffer gives its memory back after it was unused for at least this many frame requests.
const LEAST_IDLE: usize = 1024;

/// A device read in flight.
pub(super) struct ColdRead {
    index: Index,
    ticket: usize,
    generation: u64,
}

impl ColdRead {
    /// Returns the segment that is read.
    fn index(&self) -> Index {
        self.index
    }
}

#[derive(Clone, Copy)]
enum Ticket {
    Free,
    Reading(Index),
    Stale,
}

/// State of the device buffer, protected by the cache's lock.
pub(super) struct DeviceBuffer {
    rrip: Rrip,
    /// The slot of each frame of `rrip`.
    frames: Vec<Option<ReadBuffer>>,
    slots: BufferPool,
    /// Largest number of slots, independent of the current budget.
    most: usize,
    /// `None`: segments are not promoted.
    threshold: Option<PromotionThreshold>,
    /// Trigger segments; they are not in `rrip`.
    pub(super) triggers: Triggers<ReadBuffer>,
    tickets: Vec<Ticket>,
    /// Frame requests since the last load by call.
    unused: usize,
    /// Position at which the search for a frame to evict goes on.
    hand: usize,
}

impl DeviceBuffer {
    /// Makes a buffer of at most `slots` segments, including those being read.
    pub(super) fn new(slots: usize, segment: usize, options: &LoadOptions) -> io::Result<Self> {
        let slots = slots.max(LEAST_SLOTS);
        // Reads in flight take slots too.
        let kept = slots.saturating_sub(usize::from(options.depth)).max(slots / 2);
        let ways = kept.min(WAYS);
        let rrip = Rrip::new((kept / ways) as u32, ways as u16, INTERVAL_BITS, HitPriority::Hit);
        let mut frames = Vec::new();
        frames.resize_with(rrip.capacity(), || None);
        Ok(Self {
            rrip,
            frames,
            slots: BufferPool::new(slots, segment)?,
            most: slots,
            threshold: options.promotion.map(PromotionThreshold::new),
            triggers: Triggers::default(),
            tickets: Vec::new(),
            unused: 0,
            hand: 0,
        })
    }

    /// Adapts the buffer to a new number of frames: it takes at most half of them, and never more than its bound at
    /// opening.
    pub(super) fn set_limit(&mut self, frames: usize) {
        self.slots.set_capacity(self.most.min(frames / 2).max(LEAST_SLOTS));
    }

    /// Returns the number of slots with memory, which count as frames of the cache.
    pub(super) fn held(&self) -> usize {
        self.slots.backed()
    }

    /// Returns the number of segments in the buffer.
    pub(super) fn len(&self) -> usize {
        self.rrip.len()
    }

    /// Returns the number of uses after which a segment is promoted now; 0: segments are not promoted.
    pub(super) fn threshold(&self) -> u8 {
        self.threshold.as_ref().map_or(0, PromotionThreshold::current)
    }

    /// Returns the size of the bookkeeping, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.rrip.memory_bytes()
            + self.frames.capacity() * size_of::<Option<ReadBuffer>>()
            + self.slots.memory_bytes()
            + self.tickets.capacity() * size_of::<Ticket>()
    }

    /// Returns the frame and the bytes of a segment.
    fn find(&self, index: Index) -> Option<(usize, &[u8])> {
        let frame = self.rrip.find(index)?;
        Some((frame, self.frames[frame].as_ref()?.bytes()))
    }

    /// Counts one use of a segment. Returns whether the segment is to be promoted, which happens only if `may` is
    /// true.
    fn count_use(&mut self, frame: usize, may: bool) -> bool {
        match (&mut self.threshold, self.rrip.count_mut(frame)) {
            (Some(threshold), Some(count)) => threshold.update(count, may),
            _ => false,
        }
    }

    fn remove(&mut self, frame: usize) -> Option<ReadBuffer> {
        if let Some(threshold) = &mut self.threshold {
            threshold.adjust_count(self.rrip.count(frame));
        }
        self.rrip.remove(frame);
        self.frames[frame].take()
    }

    /// Removes a segment that is about to become resident, and marks device reads of it as stale. The returned slot
    /// still holds the segment's bytes.
    pub(super) fn take_for_fill(&mut self, index: Index) -> Option<ReadBuffer> {
        for ticket in &mut self.tickets {
            if matches!(ticket, Ticket::Reading(read) if *read == index) {
                *ticket = Ticket::Stale;
            }
        }
        if let Some(slot) = self.triggers.take(index) {
            return Some(slot);
        }
        let frame = self.rrip.find(index)?;
        self.remove(frame)
    }

    /// Removes the segments of a range that become resident together, as [`DeviceBuffer::take_for_fill`] does.
    pub(super) fn remove_range(&mut self, range: Range<Index>) {
        for ticket in &mut self.tickets {
            if matches!(ticket, Ticket::Reading(read) if range.contains(read)) {
                *ticket = Ticket::Stale;
            }
        }
        let is_empty = self.rrip.is_empty();
        let cached = range.clone().filter(|&index| !is_empty && self.rrip.find(index).is_some());
        let held: Vec<Index> = cached.chain(self.triggers.within(range.clone())).collect();
        held.into_iter().for_each(|index| self.invalidate(index));
    }

    /// Returns whether the buffer holds the segment.
    pub(super) fn holds(&self, index: Index) -> bool {
        self.rrip.find(index).is_some() || self.triggers.holds(index)
    }

    /// Keeps a trigger segment until it is used or displaced by newer triggers. The caller has a free frame for it.
    pub(super) fn keep_trigger(&mut self, index: Index, trigger: Trigger, bytes: &[u8]) {
        let slot = self.triggers.displace().or_else(|| self.slots.take_spare());
        let Some(mut slot) = slot.or_else(|| self.slots.grow()) else { return };
        slot.bytes_mut().copy_from_slice(bytes);
        self.triggers.keep(index, trigger, slot);
    }

    /// Turns a trigger into an ordinary segment of the buffer, because a load by call wants it.
    fn admit_trigger(&mut self, index: Index) {
        if let Some(slot) = self.triggers.take(index) {
            self.admit(index, slot);
        }
    }

    /// Removes a segment whose contents have changed. The cache's generation makes device reads of it stale.
    pub(super) fn invalidate(&mut self, index: Index) {
        let buffered = self.rrip.find(index).and_then(|frame| self.remove(frame));
        if let Some(slot) = buffered.or_else(|| self.triggers.take(index)) {
            self.slots.give_back(slot);
        }
    }

    /// Takes back the slot from [`DeviceBuffer::take_for_fill`].
    pub(super) fn return_slot(&mut self, slot: ReadBuffer) {
        self.slots.give_back(slot);
    }

    /// Takes the slot of another segment, preferably one of the same set.
    fn evict_for(&mut self, index: Index) -> Option<ReadBuffer> {
        if self.rrip.is_empty() {
            return None;
        }
        let frames = self.frames.len();
        let target = self.rrip.fill_target(index, |_| true).filter(|target| target.victim.is_some());
        let frame = target.map(|target| target.frame).or_else(|| {
            let mut ahead = (0..frames).map(|n| (self.hand + n) % frames);
            ahead.find(|&frame| self.frames[frame].is_some())
        })?;
        self.hand = (frame + 1) % frames;
        self.remove(frame)
    }

    /// Handles a request for `n` frames: gives slots back if no load by call has happened during as many frame
    /// requests as the buffer has frames. Returns the number of slots given back.
    pub(super) fn shed_idle(&mut self, n: usize) -> usize {
        self.unused += n;
        if self.unused <= self.held().max(LEAST_IDLE) || self.held() == self.triggers.len() {
            0
        } else {
            let n = n.min(self.held() - self.triggers.len());
            (0..n).take_while(|_| self.shed()).count()
        }
    }

    /// Gives the memory of one unused slot back; false if there is none.
    pub(super) fn shed(&mut self) -> bool {
        let slot = self.slots.take_spare().or_else(|| self.evict_for(self.hand as Index));
        let slot = slot.or_else(|| self.triggers.give_up());
        slot.is_some_and(|slot| self.slots.release_memory(slot))
    }

    /// Begins a read.
    fn begin(&mut self, index: Index, generation: u64) -> ColdRead {
        let free = self.tickets.iter().position(|ticket| matches!(ticket, Ticket::Free));
        let ticket = free.unwrap_or_else(|| {
            self.tickets.push(Ticket::Free);
            self.tickets.len() - 1
        });
        self.tickets[ticket] = Ticket::Reading(index);
        ColdRead { index, ticket, generation }
    }

    /// Ends a read; returns whether its result is current.
    fn end(&mut self, cold: &ColdRead, generation: u64) -> bool {
        let ticket = std::mem::replace(&mut self.tickets[cold.ticket], Ticket::Free);
        matches!(ticket, Ticket::Reading(_)) && cold.generation == generation
    }

    /// Inserts a segment. Returns its frame, and whether another segment was evicted.
    fn admit(&mut self, index: Index, slot: ReadBuffer) -> (usize, bool) {
        if let Some(frame) = self.rrip.find(index) {
            // Another thread has read the segment too.
            self.slots.give_back(slot);
            return (frame, false);
        }
        let target = self.rrip.fill_target(index, |_| true).expect("every frame is eligible");
        let left = target.victim.is_some();
        if let Some(old) = if left { self.remove(target.frame) } else { None } {
            self.slots.give_back(old);
        }
        self.rrip.insert(index, target.frame);
        self.frames[target.frame] = Some(slot);
        (target.frame, left)
    }
}
