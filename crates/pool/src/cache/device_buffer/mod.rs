//! The device buffer: segments that were loaded by call and are not in the DRAM cache (FlatFlash's SSD-Cache, in
//! host memory, for the device has none that is byte-addressable).
//!
//! A load by call of a cold segment reads it into the buffer and copies from there; the DRAM cache and the mapping
//! stay as they are. Core's threshold says when a segment has been used enough to move into the DRAM cache.
//!
//! # Invariants
//! 1. A segment in the buffer is absent from the DRAM cache, and its bytes are the current ones on flash, checked
//!    by their CRC. So it leaves the buffer before it becomes resident ([`DeviceBuffer::spoil`]: nobody can store to
//!    what is not resident), and when contents change beneath the cache (rollback, free). Where reclamation moves a
//!    segment its bytes stay the same.
//! 2. A read of the device that is under way when its segment becomes resident, or while contents change, brings
//!    nothing into the buffer and nothing to the caller: it is noted as stale, and repeated.
//! 3. Slots with memory count as frames: they and the resident segments never exceed the cache's limit together.
//!    A buffer that nobody uses takes none, and gives back what it has when frames are wanted.
//! 4. The first segment of a window that is read ahead is kept beside the others, for a fault that will show that the
//!    window is used (cache/ahead.rs).
//! 5. All of this happens under the cache's lock; device reads and checksums do not.

mod gather;
mod load;

use std::io;

use deepram_core::cache::{HitPriority, Rrip};
use deepram_core::migration::Threshold;

pub(crate) use load::Part;

use super::Index;
use crate::buffer_pool::{BufferPool, ReadBuffer};
use crate::options::LoadOptions;

/// Ways of a set, and bits of a predicted interval: facts.md, P13 and P21; the paper names neither.
const WAYS: usize = 16;
const INTERVAL_BITS: u8 = 2;
/// The least slots: one read goes on while another is handed to its caller.
const LEAST_SLOTS: usize = 2;

/// Segments read ahead that are kept for their use, at most: one for each run of misses that is followed.
const MOST_KEPT: usize = 16;
/// Frames wanted by others in which the smallest buffer must be of no use to be given back.
const LEAST_IDLE: usize = 1024;

/// A read of the device that is under way.
pub(super) struct Cold {
    index: Index,
    ticket: usize,
    generation: u64,
}

impl Cold {
    /// The segment.
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

/// What the cache's lock protects of it.
pub(super) struct DeviceBuffer {
    rrip: Rrip,
    /// The slot of each of `rrip`'s frames.
    frames: Vec<Option<ReadBuffer>>,
    slots: BufferPool,
    /// The most slots, whatever the budget is now.
    most: usize,
    /// `None`: nothing is promoted.
    threshold: Option<Threshold>,
    /// Segments read ahead whose use is to be seen, the oldest first; not in `rrip`.
    kept: Vec<(Index, ReadBuffer)>,
    tickets: Vec<Ticket>,
    /// Frames that others wanted since somebody last loaded from here.
    unused: usize,
    /// Where the next frame is looked for whose segment gives up its slot.
    hand: usize,
}

impl DeviceBuffer {
    /// A buffer of at most `slots` segments, those that are being read included.
    pub(super) fn new(slots: usize, segment: usize, options: &LoadOptions) -> io::Result<Self> {
        let slots = slots.max(LEAST_SLOTS);
        // Reads under way have slots too.
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
            threshold: options.promotion.map(Threshold::new),
            kept: Vec::new(),
            tickets: Vec::new(),
            unused: 0,
            hand: 0,
        })
    }

    /// There are so many frames from now on: of fewer than there were, the buffer takes at most half. The pool's own
    /// bound stays.
    pub(super) fn set_limit(&mut self, frames: usize) {
        self.slots.set_capacity(self.most.min(frames / 2).max(LEAST_SLOTS));
    }

    /// Slots with memory behind them: what the buffer takes of the cache's frames.
    pub(super) fn held(&self) -> usize {
        self.slots.backed()
    }

    /// Segments in it.
    pub(super) fn len(&self) -> usize {
        self.rrip.len()
    }

    /// Uses after which a segment is promoted now; 0 if none is.
    pub(super) fn threshold(&self) -> u8 {
        self.threshold.as_ref().map_or(0, Threshold::current)
    }

    /// Bytes of bookkeeping.
    pub(super) fn memory_bytes(&self) -> usize {
        self.rrip.memory_bytes()
            + self.frames.capacity() * size_of::<Option<ReadBuffer>>()
            + self.slots.memory_bytes()
            + self.tickets.capacity() * size_of::<Ticket>()
    }

    /// The frame and bytes of a segment.
    fn find(&self, index: Index) -> Option<(usize, &[u8])> {
        let frame = self.rrip.find(index)?;
        Some((frame, self.frames[frame].as_ref()?.bytes()))
    }

    /// Notes one use of a segment; whether it is to be promoted, which it may not be unless `may`.
    fn used(&mut self, frame: usize, may: bool) -> bool {
        match (&mut self.threshold, self.rrip.count_mut(frame)) {
            (Some(threshold), Some(count)) => threshold.update(count, may),
            _ => false,
        }
    }

    fn remove(&mut self, frame: usize) -> Option<ReadBuffer> {
        if let Some(threshold) = &mut self.threshold {
            threshold.leave(self.rrip.count(frame));
        }
        self.rrip.remove(frame);
        self.frames[frame].take()
    }

    /// The segment is about to become resident: it leaves, and reads of it that are under way are stale. Its slot
    /// still has its bytes.
    pub(super) fn spoil(&mut self, index: Index) -> Option<ReadBuffer> {
        for ticket in &mut self.tickets {
            if matches!(ticket, Ticket::Reading(read) if *read == index) {
                *ticket = Ticket::Stale;
            }
        }
        if let Some(slot) = self.take_kept(index) {
            return Some(slot);
        }
        let frame = self.rrip.find(index)?;
        self.remove(frame)
    }

    /// Whether it has the segment.
    pub(super) fn holds(&self, index: Index) -> bool {
        self.rrip.find(index).is_some() || self.kept.iter().any(|(kept, _)| *kept == index)
    }

    /// Keeps a segment that has been read ahead of use until it is used, or others are kept. A frame is free for it.
    pub(super) fn keep(&mut self, index: Index, bytes: &[u8]) {
        if self.kept.len() == MOST_KEPT {
            let (_, slot) = self.kept.remove(0);
            self.slots.give_back(slot);
        }
        let Some(mut slot) = self.slots.take_spare().or_else(|| self.slots.grow()) else { return };
        slot.bytes_mut().copy_from_slice(bytes);
        self.kept.push((index, slot));
    }

    fn take_kept(&mut self, index: Index) -> Option<ReadBuffer> {
        let at = self.kept.iter().position(|(kept, _)| *kept == index)?;
        Some(self.kept.remove(at).1)
    }

    /// A load by call wants a segment: it is one like any other from now on.
    fn unkeep(&mut self, index: Index) {
        if let Some(slot) = self.take_kept(index) {
            self.admit(index, slot);
        }
    }

    /// The segment's contents have changed; the cache's generation tells the reads that are under way.
    pub(super) fn forget(&mut self, index: Index) {
        let buffered = self.rrip.find(index).and_then(|frame| self.remove(frame));
        if let Some(slot) = buffered.or_else(|| self.take_kept(index)) {
            self.slots.give_back(slot);
        }
    }

    /// Takes back what [`DeviceBuffer::spoil`] gave.
    pub(super) fn recycle(&mut self, slot: ReadBuffer) {
        self.slots.give_back(slot);
    }

    /// A slot that another segment has, preferably one of the same set.
    fn steal(&mut self, index: Index) -> Option<ReadBuffer> {
        if self.rrip.is_empty() {
            return None;
        }
        let frames = self.frames.len();
        let room = self.rrip.room(index, |_| true).filter(|room| room.held.is_some());
        let frame = room.map(|room| room.frame).or_else(|| {
            let mut ahead = (0..frames).map(|n| (self.hand + n) % frames);
            ahead.find(|&frame| self.frames[frame].is_some())
        })?;
        self.hand = (frame + 1) % frames;
        self.remove(frame)
    }

    /// Others want `n` frames. Gives so many slots back if nobody has loaded from here for as many frames as it
    /// holds. Returns how many.
    pub(super) fn shed_idle(&mut self, n: usize) -> usize {
        self.unused += n;
        if self.unused <= self.held().max(LEAST_IDLE) || self.held() == self.kept.len() {
            0
        } else {
            let n = n.min(self.held() - self.kept.len());
            (0..n).take_while(|_| self.shed()).count()
        }
    }

    /// Gives memory back; false if there is none that is not in use.
    pub(super) fn shed(&mut self) -> bool {
        let slot = self.slots.take_spare().or_else(|| self.steal(self.hand as Index));
        let slot = slot.or_else(|| self.kept.pop().map(|(_, slot)| slot));
        slot.is_some_and(|slot| self.slots.release_memory(slot))
    }

    /// A read begins.
    fn begin(&mut self, index: Index, generation: u64) -> Cold {
        let free = self.tickets.iter().position(|ticket| matches!(ticket, Ticket::Free));
        let ticket = free.unwrap_or_else(|| {
            self.tickets.push(Ticket::Free);
            self.tickets.len() - 1
        });
        self.tickets[ticket] = Ticket::Reading(index);
        Cold { index, ticket, generation }
    }

    /// A read has ended; whether what it brings is current.
    fn end(&mut self, cold: &Cold, generation: u64) -> bool {
        let ticket = std::mem::replace(&mut self.tickets[cold.ticket], Ticket::Free);
        matches!(ticket, Ticket::Reading(_)) && cold.generation == generation
    }

    /// Takes a segment in; its frame, and whether another one left for it.
    fn admit(&mut self, index: Index, slot: ReadBuffer) -> (usize, bool) {
        if let Some(frame) = self.rrip.find(index) {
            // Somebody else read it too.
            self.slots.give_back(slot);
            return (frame, false);
        }
        let room = self.rrip.room(index, |_| true).expect("every frame is eligible");
        let left = room.held.is_some();
        if let Some(old) = if left { self.remove(room.frame) } else { None } {
            self.slots.give_back(old);
        }
        self.rrip.insert(index, room.frame);
        self.frames[room.frame] = Some(slot);
        (room.frame, left)
    }
}
