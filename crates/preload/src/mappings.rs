//! Records the program's mappings that the pager does not know, by address.

use std::sync::{Mutex, MutexGuard, PoisonError};

use deepram_pager::Spans;

/// The recorded mappings, by kind. A thread that holds the lock must not wait for the pager.
pub(crate) struct Mappings {
    /// Mappings that are too small to be paged, while few bytes are in them. They are paged once they grow; so the set
    /// contains no mapping for which a kernel call was made that prevents paging.
    pub(crate) small: Spans,
    /// Mappings that will be paged when the process gets its pager.
    pub(crate) pageable: Spans,
    /// Reserved memory without access: paged from the time it becomes writable.
    pub(crate) reserved: Spans,
    /// Memory that a forked child does not get (`MADV_DONTFORK`).
    pub(crate) not_in_child: Spans,
    /// Memory that a forked child sees as zeros (`MADV_WIPEONFORK`).
    pub(crate) zero_in_child: Spans,
    /// Memory with a protection key: the pager's threads may not be allowed to read it.
    pub(crate) protection_keys: Spans,
}

static MAPPINGS: Mutex<Mappings> = Mutex::new(Mappings {
    small: Spans::new(),
    pageable: Spans::new(),
    reserved: Spans::new(),
    not_in_child: Spans::new(),
    zero_in_child: Spans::new(),
    protection_keys: Spans::new(),
});

pub(crate) fn mappings() -> MutexGuard<'static, Mappings> {
    MAPPINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Mappings {
    fn all(&mut self) -> [&mut Spans; 6] {
        [
            &mut self.small,
            &mut self.pageable,
            &mut self.reserved,
            &mut self.not_in_child,
            &mut self.zero_in_child,
            &mut self.protection_keys,
        ]
    }

    /// Whether any part of the range is to be paged later.
    pub(crate) fn has_pageable(&self, start: usize, end: usize) -> bool {
        [&self.pageable, &self.reserved].into_iter().any(|spans| !spans.within(start, end).is_empty())
    }

    /// Whether any part of the range is recorded for any reason.
    pub(crate) fn has_any_record(&mut self, start: usize, end: usize) -> bool {
        self.all().into_iter().any(|spans| !spans.within(start, end).is_empty())
    }

    /// Forgets a range that was unmapped, or mapped anew.
    pub(crate) fn forget(&mut self, start: usize, len: usize) {
        self.all().into_iter().for_each(|spans| spans.remove(start, start.saturating_add(len)));
    }

    /// Records that a mapping of `len` bytes at `from` is now at `to` and `new_len` bytes long; with `keep_old` the old
    /// mapping stays.
    pub(crate) fn record_move(&mut self, from: usize, len: usize, to: usize, new_len: usize, keep_old: bool) {
        for spans in self.all() {
            let moved = spans.within(from, from + len);
            if !keep_old {
                spans.remove(from, from + len);
            }
            spans.remove(to, to + new_len);
            for (start, end) in moved {
                // Memory that is added to a mapping is like its end.
                let end = if end == from + len { to + new_len } else { (end - from + to).min(to + new_len) };
                spans.insert(start - from + to, end);
            }
        }
    }
}
