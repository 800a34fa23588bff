//! Memory that devices read into: pieces of one length, each of which has one owner at a time, taken from the kernel as
//! they are first needed.

use std::io;
use std::sync::Arc;

use crate::region::{Region, WatchError};

/// A piece of memory. Whoever has it is the only one who uses it.
pub(crate) struct Slot {
    memory: Arc<Region>,
    offset: usize,
    /// Bytes in use; the piece may be longer.
    len: usize,
}

impl Slot {
    /// Has only so many of its bytes used from now on, until it is given back.
    pub(crate) fn shorten(&mut self, len: usize) {
        debug_assert!(len <= self.len, "{len} bytes of {}", self.len);
        self.len = len.min(self.len);
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the range lies in the mapping, which `memory` keeps and which is zeros where nothing was
        // stored. Only this slot refers to it (`Slots` hands each range out once, and a slot is not `Clone`),
        // and a shared borrow of it excludes `bytes_mut`.
        unsafe { std::slice::from_raw_parts(self.memory.base().add(self.offset), self.len) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; the exclusive borrow of the only slot with this range makes it exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.memory.base().add(self.offset), self.len) }
    }
}

/// All slots, at most `most` of them backed by memory.
pub(crate) struct Slots {
    memory: Arc<Region>,
    /// Bytes of each.
    piece: usize,
    most: usize,
    /// Slots that have been handed out at least once.
    begun: usize,
    /// Slots with memory behind them, those in use included.
    held: usize,
    spare: Vec<Slot>,
    /// Slots whose memory the kernel has back.
    bare: Vec<Slot>,
}

impl Slots {
    /// At most so many, of so many bytes each.
    pub(crate) fn new(most: usize, piece: usize) -> io::Result<Self> {
        let memory = Region::map(None, most * piece).map_err(|error| match error {
            WatchError::Address { source, .. } | WatchError::System { source, .. } => source,
            other => io::Error::other(other),
        })?;
        let (spare, bare) = (Vec::new(), Vec::new());
        Ok(Self { memory: Arc::new(memory), piece, most, begun: 0, held: 0, spare, bare })
    }

    /// The bound.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Changes the bound, to no more than at the beginning. More may be held than it allows, until they are given up.
    pub(crate) fn set_most(&mut self, most: usize) {
        debug_assert!(most * self.piece <= self.memory.len(), "{most} slots");
        self.most = most;
    }

    /// Slots with memory behind them.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Slots that nobody has.
    pub(crate) fn free(&self) -> usize {
        self.spare.len() + self.most.saturating_sub(self.held)
    }

    /// Whether [`Slots::grow`] is within the bound.
    pub(crate) fn may_grow(&self) -> bool {
        self.held < self.most
    }

    /// A slot that is not in use and has memory.
    pub(crate) fn spare(&mut self) -> Option<Slot> {
        self.spare.pop()
    }

    /// One slot more.
    pub(crate) fn grow(&mut self) -> Option<Slot> {
        if !self.may_grow() {
            return None;
        }
        let slot = self.bare.pop().unwrap_or_else(|| {
            self.begun += 1;
            let offset = (self.begun - 1) * self.piece;
            Slot { memory: Arc::clone(&self.memory), offset, len: self.piece }
        });
        self.held += 1;
        Some(slot)
    }

    /// Takes back a slot, memory and all.
    pub(crate) fn give_back(&mut self, mut slot: Slot) {
        slot.len = self.piece;
        self.spare.push(slot);
    }

    /// Gives the memory of a slot to the kernel. False if it does not take it: the slot is spare then.
    pub(crate) fn shed(&mut self, mut slot: Slot) -> bool {
        slot.len = self.piece;
        if self.memory.discard(&[(slot.offset, slot.len)]).is_err() {
            self.spare.push(slot);
            return false;
        }
        self.held -= 1;
        self.bare.push(slot);
        true
    }

    /// Bytes of bookkeeping.
    pub(crate) fn memory_bytes(&self) -> usize {
        (self.spare.capacity() + self.bare.capacity()) * size_of::<Slot>()
    }
}
