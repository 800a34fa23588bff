//! The states of a segment of the pool's DRAM cache, and of the simulated pool's.
//!
//! ```text
//!            fill                     store                  write-back begins
//!   absent ───────► filling ► clean ─────────► dirty ───────────────────────────► writing ─► clean
//!     ▲                         │                │                                   ▲
//!     └────────── dropped ──────┘                └── cut of a sync ► frozen, writing ─┘ copied
//! ```
//!
//! A segment can be several of these at once: one that is being written becomes dirty again by a store. The driver must
//! guarantee the following, under one lock:
//!
//! 1. A clean segment is write-protected, so that its first store is seen; a dirty one is not.
//! 2. A segment leaves only if [`SegmentState::may_drop`]: its bytes are on flash.
//! 3. A thread that stores to a frozen segment copies it first ([`SegmentState::needs_copy`]): the sync writes the copy.
//! 4. A thread that fills a segment wakes all threads that wait for it, also those whose faults were dropped.
//!
//! `crates/core/tests/it/paging_segments.rs` enumerates the interleavings of two threads, two handlers, write-back, syncs and
//! the evictor over one segment, and those with one rule broken.

/// Bits of a state.
const RESIDENT: u8 = 1;
const DIRTY: u8 = 1 << 1;
const FILLING: u8 = 1 << 2;
const WRITING: u8 = 1 << 3;
const FROZEN: u8 = 1 << 4;
const POISONED: u8 = 1 << 5;

/// The state of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SegmentState(u8);

/// What a fault on a segment needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SegmentFault {
    /// Nothing: the thread that fills the segment lets the faulting thread retry, which faults again if it needs more.
    Dropped,
    /// The segment is to be filled.
    Fill,
    /// The segment is resident: a load retries, a store makes the segment dirty first.
    Resident,
}

impl SegmentState {
    /// Neither resident nor being filled.
    pub const ABSENT: Self = Self(0);

    const fn has(self, bit: u8) -> bool {
        self.0 & bit != 0
    }

    /// Whether the segment is absent, and readable as far as is known.
    #[must_use]
    pub const fn is_absent(self) -> bool {
        self.0 == 0
    }

    /// Whether the segment is in its frame.
    #[must_use]
    pub const fn is_resident(self) -> bool {
        self.has(RESIDENT)
    }

    /// Whether the segment has stores that no write contains.
    #[must_use]
    pub const fn is_dirty(self) -> bool {
        self.has(DIRTY)
    }

    /// Whether a thread is filling the segment.
    #[must_use]
    pub const fn is_filling(self) -> bool {
        self.has(FILLING)
    }

    /// Whether the segment is being written to flash: no longer dirty, not yet in the tables.
    #[must_use]
    pub const fn is_writing(self) -> bool {
        self.has(WRITING)
    }

    /// Whether an access raises a signal, because the segment could not be read.
    #[must_use]
    pub const fn is_poisoned(self) -> bool {
        self.has(POISONED)
    }

    /// Whether a store to the segment has to copy it first, for the sync that has cut it and not yet copied it.
    #[must_use]
    pub const fn needs_copy(self) -> bool {
        self.has(FROZEN)
    }

    /// Whether stores to the segment need nothing.
    #[must_use]
    pub const fn is_open_for_stores(self) -> bool {
        self.has(DIRTY) && !self.has(FROZEN)
    }

    /// Whether the segment may be dropped: it is clean, and not being written.
    #[must_use]
    pub const fn may_drop(self) -> bool {
        self.0 == RESIDENT
    }

    /// Whether a write-back or a sync may take the dirty segment. One that is still being written from an earlier time waits:
    /// its writes must not overtake each other.
    #[must_use]
    pub const fn may_be_taken(self) -> bool {
        !self.has(WRITING)
    }

    /// Whether the segment is to be write-protected before its frame is copied: a segment that is frozen is protected
    /// already, and one that is dirty again stays open for stores.
    #[must_use]
    pub const fn is_protected_to_copy(self) -> bool {
        !self.has(FROZEN | DIRTY)
    }

    /// What a fault on the segment needs.
    #[must_use]
    pub const fn fault(self) -> SegmentFault {
        if self.has(FILLING) {
            SegmentFault::Dropped
        } else if self.has(RESIDENT) {
            SegmentFault::Resident
        } else {
            SegmentFault::Fill
        }
    }

    /// Begins to fill the segment.
    pub const fn begin_fill(&mut self) {
        self.0 = FILLING;
    }

    /// Ends a fill: the segment is resident and clean.
    pub const fn end_fill(&mut self) {
        self.0 = RESIDENT;
    }

    /// The segment is absent from now on: it was dropped, its fill failed, or its contents on flash have changed.
    pub const fn clear(&mut self) {
        self.0 = 0;
    }

    /// Accesses to the absent segment raise a signal from now on.
    pub const fn poison(&mut self) {
        self.0 = POISONED;
    }

    /// Records a store.
    pub const fn make_dirty(&mut self) {
        self.0 |= DIRTY;
    }

    /// Records that write-back has taken the dirty segment.
    pub const fn take(&mut self) {
        self.0 = self.0 & !DIRTY | WRITING;
    }

    /// Records that a sync has cut the dirty segment: its contents at this moment belong to the epoch that is closed.
    pub const fn cut(&mut self) {
        self.0 = self.0 & !DIRTY | FROZEN | WRITING;
    }

    /// Records that the contents of the cut have been copied, by the sync or by a thread that stores to the segment.
    pub const fn copied(&mut self) {
        self.0 &= !FROZEN;
    }

    /// Records that the tables name the segment's new place on flash.
    pub const fn written(&mut self) {
        self.0 &= !WRITING;
    }

    /// Records that the segment that was taken or cut will not be written. Returns whether it has to become dirty again.
    #[must_use]
    pub const fn write_failed(&mut self) -> bool {
        self.0 &= !(WRITING | FROZEN);
        self.0 == RESIDENT
    }
}
