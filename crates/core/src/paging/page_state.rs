//! Where a page's bytes are, and what a fault, a read, an eviction or a discard makes of that.
//!
//! ```text
//!           first touch           evict                   written, and frame needed
//!   fresh ─────────────► in memory ───────► victim buffer ────────────────────────► swap file
//!                          ▲   ▲  second chance   │                                     │
//!                          │   └──────────────────┘                                     │
//!                          └─────────────────────────── read ───────────────────────────┘
//! ```
//!
//! In between a page is `Incoming` or `Evicting`: it belongs to one thread of the driver, and a fault on it waits.
//!
//! The driver must guarantee the following, or stores are lost or threads wait for ever:
//!
//! 1. It changes a page's state under a lock, together with what the action says about the page's protection, and moves a
//!    page only while it holds the state `Incoming` or `Evicting`.
//! 2. It protects a page that can be stored to after it has become `Evicting`, and copies it after that. So it does with a
//!    clean page, which it installs with a checksum: if the checksum of the copy is another one, the page leaves as a dirty
//!    page does ([`super::VictimBuffer::write_back_changed`]). A clean page without a checksum is write-protected.
//! 3. It frees a slot of the swap file only after the page is in memory.
//! 4. It remembers that a fault waits ([`FaultAction::Wait`]), and lets the thread retry when the page's state changes.
//! 5. It discards pages only while no page is in transit.
//!
//! `crates/core/tests/it/paging.rs` enumerates the interleavings of two threads, two handlers, an evictor and a drain of the
//! victim buffer over one page, and those with one rule broken.

use super::victim_buffer::Returned;

/// Where a page's bytes are. `S` names a slot of the swap file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PageState<S> {
    /// Nowhere: the page was never stored to and reads as zeros.
    #[default]
    Fresh,
    /// On their way into memory. The thread that set this state installs the page.
    Incoming,
    /// In memory, and in the swap file at this slot, unless the page has been stored to since. If the page is
    /// write-protected, it has not.
    Clean(S),
    /// In memory only.
    Dirty,
    /// In memory, write-protected, on their way into the victim buffer.
    Evicting,
    /// In the victim buffer, in this frame.
    InVictimBuffer(u32),
    /// In the swap file only, at this slot.
    Stored(S),
}

/// What the driver does for a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultAction<S> {
    /// Install zeros: the page becomes [`PageState::Dirty`].
    InstallZeros,
    /// Read this slot and install the page, which then is as [`PageState::read`] says.
    Read(S),
    /// Install the page from this frame of the victim buffer; it then is as [`Returned::state`] says.
    Return(u32),
    /// Remove the write protection, which lets the thread retry, and free this slot: its copy is not that of the page.
    FirstStore(S),
    /// Let the thread retry. Another fault was served meanwhile, or the page was protected together with a neighbour; for
    /// a store (`unprotect`), remove the write protection.
    Retry {
        /// Whether the access is a store.
        unprotect: bool,
    },
    /// Remember that a fault waits: the thread that moves the page lets the waiting thread retry.
    Wait,
}

/// A page in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Resident<S> {
    /// It is in the swap file too, at this slot, unless it has been stored to since.
    Clean(S),
    /// It is nowhere else.
    Dirty,
}

impl<S> Resident<S> {
    /// The slot of a clean page.
    #[must_use]
    pub fn slot(self) -> Option<S> {
        match self {
            Self::Clean(slot) => Some(slot),
            Self::Dirty => None,
        }
    }
}

/// What a discarded page has held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Discarded<S> {
    /// Whether it was in memory.
    pub resident: bool,
    /// Its slot in the swap file, if the page's state names one; a frame may name one too.
    pub slot: Option<S>,
    /// Its frame in the victim buffer.
    pub frame: Option<u32>,
}

/// The page is on its way into or out of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InTransit;

impl<S: Copy> PageState<S> {
    /// Serves a fault on the page, by a store if `write`.
    #[must_use]
    pub fn fault(&mut self, write: bool) -> FaultAction<S> {
        let action = match *self {
            Self::Fresh => FaultAction::InstallZeros,
            Self::Stored(slot) => FaultAction::Read(slot),
            Self::InVictimBuffer(frame) => FaultAction::Return(frame),
            Self::Clean(slot) if write => {
                *self = Self::Dirty;
                return FaultAction::FirstStore(slot);
            }
            Self::Clean(_) | Self::Dirty => return FaultAction::Retry { unprotect: write },
            Self::Incoming | Self::Evicting => return FaultAction::Wait,
        };
        *self = Self::Incoming;
        action
    }

    /// Begins to bring a page in ahead of its use, if it is in the swap file only. Returns its slot.
    #[must_use]
    pub fn claim(&mut self) -> Option<S> {
        let Self::Stored(slot) = *self else { return None };
        *self = Self::Incoming;
        Some(slot)
    }

    /// Begins to bring a page back from the victim buffer together with a neighbour that has faulted, if it is there. Returns
    /// its frame.
    #[must_use]
    pub fn claim_buffered(&mut self) -> Option<u32> {
        let Self::InVictimBuffer(frame) = *self else { return None };
        *self = Self::Incoming;
        Some(frame)
    }

    /// Begins to install zeros, together with those of a neighbour that has faulted.
    pub fn claim_fresh(&mut self) {
        debug_assert!(matches!(self, Self::Fresh), "the page is not fresh");
        *self = Self::Incoming;
    }

    /// The state of a page that has been read from `slot` and installed. If a store waits for it (`store`), nothing needs
    /// the slot any more.
    #[must_use]
    pub fn read(slot: S, store: bool) -> Self {
        if store { Self::Dirty } else { Self::Clean(slot) }
    }

    /// The page as it is in memory and may leave, if it is.
    #[must_use]
    pub fn resident(self) -> Option<Resident<S>> {
        match self {
            Self::Clean(slot) => Some(Resident::Clean(slot)),
            Self::Dirty => Some(Resident::Dirty),
            _ => None,
        }
    }

    /// Begins the eviction of a page that is in memory.
    pub fn evict(&mut self) {
        debug_assert!(self.resident().is_some(), "a page that is not in memory is evicted");
        *self = Self::Evicting;
    }

    /// Ends the eviction of a page, which is no longer mapped, into this frame of the victim buffer.
    pub fn leave_memory(&mut self, frame: u32) {
        debug_assert!(matches!(self, Self::Evicting), "the page was not being evicted");
        *self = Self::InVictimBuffer(frame);
    }

    /// Cancels the eviction of a page, which is still mapped as it was. `slot` is its slot if it was clean.
    pub fn stay(&mut self, slot: Option<S>) {
        debug_assert!(matches!(self, Self::Evicting), "the page was not being evicted");
        *self = slot.map_or(Self::Dirty, Self::Clean);
    }

    /// Whether the page is in this frame of the victim buffer, and not on its way back.
    #[must_use]
    pub fn is_in_frame(self, frame: u32) -> bool {
        matches!(self, Self::InVictimBuffer(own) if own == frame)
    }

    /// Whether the page is on its way from memory into the victim buffer.
    #[must_use]
    pub fn is_leaving(self) -> bool {
        matches!(self, Self::Evicting)
    }

    /// Discards the page's contents: it reads as zeros.
    ///
    /// # Errors
    /// The page is in transit, so its thread would overwrite the new state.
    pub fn discard(&mut self) -> Result<Discarded<S>, InTransit> {
        let discarded = match *self {
            Self::Fresh => Discarded { resident: false, slot: None, frame: None },
            Self::Clean(slot) => Discarded { resident: true, slot: Some(slot), frame: None },
            Self::Dirty => Discarded { resident: true, slot: None, frame: None },
            Self::Stored(slot) => Discarded { resident: false, slot: Some(slot), frame: None },
            Self::InVictimBuffer(frame) => Discarded { resident: false, slot: None, frame: Some(frame) },
            Self::Incoming | Self::Evicting => return Err(InTransit),
        };
        *self = Self::Fresh;
        Ok(discarded)
    }
}

impl<S> Returned<S> {
    /// The state of the page that has come back.
    #[must_use]
    pub fn state(self) -> PageState<S> {
        self.clean.map_or(PageState::Dirty, PageState::Clean)
    }
}
