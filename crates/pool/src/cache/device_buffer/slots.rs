//! The memory of the device buffer: pieces of one segment each, taken from the kernel as they are first needed.

use std::io;
use std::sync::Arc;

use crate::region::{Region, WatchError};

/// Memory for one segment. Whoever has it is the only one who uses it.
pub(crate) struct Slot {
    memory: Arc<Region>,
    offset: usize,
    len: usize,
}

impl Slot {
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
pub(super) struct Slots {
    memory: Arc<Region>,
    segment: usize,
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
    pub(super) fn new(most: usize, segment: usize) -> io::Result<Self> {
        let memory = Region::map(None, most * segment).map_err(|error| match error {
            WatchError::Address { source, .. } | WatchError::System { source, .. } => source,
            other => io::Error::other(other),
        })?;
        let (spare, bare) = (Vec::new(), Vec::new());
        Ok(Self { memory: Arc::new(memory), segment, most, begun: 0, held: 0, spare, bare })
    }

    /// The bound.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Slots with memory behind them.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Whether [`Slots::grow`] is within the bound.
    pub(super) fn may_grow(&self) -> bool {
        self.held < self.most
    }

    /// A slot that is not in use and has memory.
    pub(super) fn spare(&mut self) -> Option<Slot> {
        self.spare.pop()
    }

    /// One slot more.
    pub(super) fn grow(&mut self) -> Option<Slot> {
        if !self.may_grow() {
            return None;
        }
        let slot = self.bare.pop().unwrap_or_else(|| {
            self.begun += 1;
            let offset = (self.begun - 1) * self.segment;
            Slot { memory: Arc::clone(&self.memory), offset, len: self.segment }
        });
        self.held += 1;
        Some(slot)
    }

    /// Takes back a slot, memory and all.
    pub(super) fn give_back(&mut self, slot: Slot) {
        self.spare.push(slot);
    }

    /// Gives the memory of a slot to the kernel. False if it does not take it: the slot is spare then.
    pub(super) fn shed(&mut self, slot: Slot) -> bool {
        if self.memory.discard(&[(slot.offset, slot.len)]).is_err() {
            self.spare.push(slot);
            return false;
        }
        self.held -= 1;
        self.bare.push(slot);
        true
    }

    pub(super) fn memory_bytes(&self) -> usize {
        (self.spare.capacity() + self.bare.capacity()) * size_of::<Slot>()
    }
}
