//! The write buffer: stores posted to the drive, in order.
//!
//! A store takes a place in the buffer, crosses the link behind the stores before it, and leaves its
//! place when the drive has it and its page is in the device buffer.

use std::collections::VecDeque;

use super::FlatMemory;
use super::task::TaskId;

/// The stores in the write buffer, and those that wait for room.
pub(super) struct WriteBuffer {
    capacity: u64,
    used: u64,
    next: u64,
    /// Numbers of the stores that have not arrived, waiting ones included.
    outstanding: VecDeque<u64>,
    /// Tasks that wait for room.
    pub(super) waiting: VecDeque<TaskId>,
    /// Tasks that wait until all stores before the one of a number have arrived.
    pub(super) fences: Vec<(u64, TaskId)>,
}

impl WriteBuffer {
    pub(super) fn new(capacity: u64) -> Self {
        Self {
            capacity,
            used: 0,
            next: 0,
            outstanding: VecDeque::new(),
            waiting: VecDeque::new(),
            fences: Vec::new(),
        }
    }

    /// The number of the next store.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Begins a store. Returns its number.
    pub(super) fn begin(&mut self) -> u64 {
        self.outstanding.push_back(self.next);
        self.next += 1;
        self.next - 1
    }

    /// Gives a store a place. Returns false if there is none.
    pub(super) fn take_place(&mut self) -> bool {
        let room = self.used < self.capacity;
        self.used += u64::from(room);
        room
    }

    /// True if all stores before the one of this number have arrived.
    pub(super) fn have_arrived(&self, before: u64) -> bool {
        self.outstanding.front().is_none_or(|first| *first >= before)
    }

    /// True if no store is under way.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.used == 0 && self.outstanding.is_empty()
    }
}

impl FlatMemory {
    /// A store has crossed the link. It leaves the write buffer when its page is in the device buffer.
    pub(super) fn store_arrived(&mut self, number: u64, page: u32) {
        match self.fills.get_mut(&page) {
            Some(fill) => fill.stores.push(number),
            None => self.store_leaves(number),
        }
    }

    pub(super) fn store_leaves(&mut self, number: u64) {
        let posted = &mut self.posted;
        posted.used -= 1;
        if let Some(at) = posted.outstanding.iter().position(|other| *other == number) {
            posted.outstanding.remove(at);
        }
        if let Some(id) = posted.waiting.pop_front() {
            self.tasks.wake(id);
        }
        let posted = &mut self.posted;
        let first = posted.outstanding.front().copied().unwrap_or(u64::MAX);
        for at in (0..posted.fences.len()).rev() {
            if posted.fences[at].0 <= first {
                self.tasks.wake(posted.fences.swap_remove(at).1);
            }
        }
    }
}
