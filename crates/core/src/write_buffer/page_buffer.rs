//! The buffer of all policies that evict single pages: [`PageBuffer`] holds the pages in lists, a
//! [`PagePolicy`] decides how a use changes the lists and which page is the victim.

use super::{BufferAccess, Evicted, PageState, WriteBuffer, WriteBufferOptions};
use crate::cache::KeyLists;

/// The bit of a slot's count (see [`KeyLists`]) that marks a dirty page.
pub(super) const DIRTY: u8 = 1;
/// The bit by which a policy marks a cold page.
pub(super) const COLD: u8 = 2;

/// The decisions of one policy. Each page has a slot of [`KeyLists`], each slot is in one of its lists.
/// Bit 0 of a slot's count marks a dirty page; the other bits are the policy's.
pub trait PagePolicy {
    /// True if the policy's publication keeps pages that were read.
    const KEEPS_READS: bool;

    /// The policy for a buffer of `capacity` pages.
    fn new(capacity: usize, options: &WriteBufferOptions) -> Self;

    /// Inserts a page that was not in the buffer, with `flags` (0, or 1 for dirty) as its count.
    fn admit(&mut self, pages: &mut KeyLists<u64>, page: u64, flags: u8);

    /// Updates the lists after a use of the page in `slot`, and sets its count to `flags` (0, or 1 for
    /// dirty) and the policy's bits.
    fn hit(&mut self, pages: &mut KeyLists<u64>, slot: u32, flags: u8);

    /// Chooses the slot to evict; `None` if the buffer is empty.
    fn victim(&mut self, pages: &mut KeyLists<u64>) -> Option<u32>;
}

/// A write buffer that evicts single pages, with the policy `P`.
#[derive(Debug, Clone)]
pub struct PageBuffer<P> {
    pages: KeyLists<u64>,
    policy: P,
    capacity: usize,
    keep_reads: bool,
    len: usize,
    dirty: usize,
}

impl<P: PagePolicy> PageBuffer<P> {
    /// An empty buffer. Memory grows with the number of pages, up to the capacity.
    #[must_use]
    pub fn new(options: &WriteBufferOptions) -> Self {
        let capacity = options.capacity_pages.max(1);
        Self {
            pages: KeyLists::new(capacity),
            policy: P::new(capacity, options),
            capacity,
            keep_reads: options.keep_reads.unwrap_or(P::KEEPS_READS),
            len: 0,
            dirty: 0,
        }
    }

    fn access(&mut self, page: u64, write: bool, evicted: &mut Evicted) -> BufferAccess {
        if let Some(slot) = self.pages.find(page) {
            let was_dirty = self.pages.count(slot) & DIRTY;
            let flags = was_dirty | u8::from(write);
            self.dirty += usize::from(flags - was_dirty);
            self.policy.hit(&mut self.pages, slot, flags);
            return BufferAccess::Hit;
        }
        if !write && !self.keep_reads {
            return BufferAccess::Bypassed;
        }
        if self.len == self.capacity {
            self.evict(evicted);
        }
        self.policy.admit(&mut self.pages, page, u8::from(write));
        self.len += 1;
        self.dirty += usize::from(write);
        BufferAccess::Filled
    }

    fn remove(&mut self, slot: u32) -> (u64, PageState) {
        let state = state_of(self.pages.count(slot));
        self.len -= 1;
        self.dirty -= usize::from(state == PageState::Dirty);
        (self.pages.remove(slot), state)
    }
}

fn state_of(count: u8) -> PageState {
    if count & DIRTY == 0 { PageState::Clean } else { PageState::Dirty }
}

impl<P: PagePolicy> WriteBuffer for PageBuffer<P> {
    fn write(&mut self, page: u64, evicted: &mut Evicted) -> BufferAccess {
        self.access(page, true, evicted)
    }

    fn read(&mut self, page: u64, evicted: &mut Evicted) -> BufferAccess {
        self.access(page, false, evicted)
    }

    fn evict(&mut self, evicted: &mut Evicted) {
        let Some(slot) = self.policy.victim(&mut self.pages) else { return };
        match self.remove(slot) {
            (page, PageState::Dirty) => evicted.writes.push(page),
            (page, PageState::Clean) => evicted.dropped.push(page),
        }
    }

    fn discard(&mut self, page: u64) -> Option<PageState> {
        let slot = self.pages.find(page)?;
        Some(self.remove(slot).1)
    }

    fn state(&self, page: u64) -> Option<PageState> {
        self.pages.find(page).map(|slot| state_of(self.pages.count(slot)))
    }

    fn len(&self) -> usize {
        self.len
    }

    fn dirty_len(&self) -> usize {
        self.dirty
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.pages.memory_bytes()
    }
}
