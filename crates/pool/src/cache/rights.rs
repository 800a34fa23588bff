//! Page permissions: how an access checks them, and how a change during an access is detected.
//!
//! An access checks the permissions in the tables without the cache's lock, because that may require reading the
//! tables from flash. A change that takes permissions away happens under the lock and increments a version
//! ([`Cache::permissions_changed`]). An access that holds the lock and finds the version unchanged since before its
//! check may go on; otherwise it checks again ([`Cache::revalidate`]). The protection of the mapping changes under
//! the same lock, together with the tables, so a copy by call never meets memory that is protected against it.

use std::sync::atomic::Ordering::SeqCst;

use deepram_core::{PageId, Status};

use super::{Access, Cache, Index, State};
use crate::error::{PoolError, Result};

/// An access whose permissions were checked, with the version of the permissions before the check.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Right {
    pub(super) access: Access,
    /// Version of the permissions before the check; `None`: the access needs no permission.
    seen: Option<u64>,
}

impl Right {
    /// Makes a permit for an access that needs no permission.
    pub(crate) fn unchecked(access: Access) -> Self {
        Self { access, seen: None }
    }
}

/// Returns whether an error says that an access is forbidden.
pub(super) fn is_refusal(error: &PoolError) -> bool {
    matches!(error, PoolError::NotAllocated { .. } | PoolError::Permission { .. })
}

impl Cache {
    /// Makes a permit with the current version of the permissions. Take it before the permissions are checked.
    pub(crate) fn right(&self, access: Access) -> Right {
        Right { access, seen: Some(self.rights.load(SeqCst)) }
    }

    /// Checks that a segment's page allows an access now.
    ///
    /// # Errors
    /// [`PoolError::NotAllocated`], [`PoolError::Permission`]; the errors of reading the tables.
    pub(crate) fn check(&self, index: Index, access: Access) -> Result<()> {
        let (store, page, _) = self.store_of(index);
        let status = store.status(page)?;
        let address = store.address(page, 0);
        if !status.allocated() {
            return Err(PoolError::NotAllocated { address });
        }
        let (allowed, what) = match access {
            Access::Read => (status.readable(), "read"),
            Access::Write => (status.writable(), "written"),
        };
        if allowed { Ok(()) } else { Err(refused(address, what, status)) }
    }

    /// Checks the permissions again if they have changed since the permit was made. Call this each time the lock has
    /// been taken.
    ///
    /// # Errors
    /// The errors of [`Cache::check`].
    pub(super) fn confirm(&self, _state: &State, index: Index, right: Right) -> Result<()> {
        match right.seen {
            Some(seen) if seen != self.rights.load(SeqCst) => self.check(index, right.access),
            _ => Ok(()),
        }
    }

    /// Records that permissions were taken away in the tables, so that accesses in progress check again.
    pub(crate) fn rights_changed(&self, _state: &State) {
        self.rights.fetch_add(1, SeqCst);
    }

    /// Sets the protection of pages in the mapping.
    pub(crate) fn set_access(
        &self,
        _state: &State,
        controller: u32,
        first: PageId,
        count: u32,
        status: Status,
    ) -> Result<()> {
        if !self.region.is_watched() {
            return Ok(());
        }
        let offset = self.offset(self.index_of(controller, first));
        let len = count as usize * self.per_page as usize * self.segment_bytes;
        self.region
            .set_access(offset, len, status.readable(), status.writable())
            .map_err(|source| self.stores[controller as usize].device_error("mprotect", source))
    }

    /// Sets the protection of pages in the mapping to their status in the tables. Stops the pool if the kernel
    /// refuses.
    pub(crate) fn show(&self, state: &mut State, controller: u32, first: PageId, count: u32) {
        for page in (first.0..first.0 + count).map(PageId) {
            let status = self.stores[controller as usize].status(page);
            let shown = status.and_then(|status| self.set_access(state, controller, page, 1, status));
            if let Err(error) = shown {
                return self.halt(state, &format!("the kernel refused to change the protection of memory: {error}"));
            }
        }
    }

    /// Makes the page of a segment read-only in the mapping because the device is full. Stores raise SIGSEGV until
    /// [`Cache::restore_write_access`].
    pub(crate) fn bar(&self, state: &mut State, index: Index) {
        let (store, page, _) = self.store_of(index);
        let shown = store.status(page).and_then(|status| {
            let status = Status::new(status.permanent(), status.readable(), false);
            self.set_access(state, index / self.stride, page, 1, status)
        });
        match shown {
            Ok(()) => state.refused.push(index / self.per_page * self.per_page),
            Err(error) => self.halt(state, &format!("the kernel refused to change the protection of memory: {error}")),
        }
    }

    /// Makes pages writable again that a full device had made read-only, if their permissions allow it.
    pub(crate) fn readmit(&self) {
        let mut state = self.lock();
        for first in std::mem::take(&mut state.refused) {
            self.show_page_of(&mut state, first);
        }
    }

    /// Does the same for the page of one segment, before a write by call.
    pub(super) fn readmit_page(&self, state: &mut State, index: Index) {
        let first = index / self.per_page * self.per_page;
        if let Some(at) = state.refused.iter().position(|refused| *refused == first) {
            state.refused.swap_remove(at);
            self.show_page_of(state, first);
        }
    }

    fn show_page_of(&self, state: &mut State, index: Index) {
        let (_, page, _) = self.store_of(index);
        self.show(state, index / self.stride, page, 1);
    }
}

/// Returns the error of a forbidden access to a page with this status.
pub(crate) fn refused(address: deepram_core::Addr, what: &'static str, status: Status) -> PoolError {
    let permissions = match (status.readable(), status.writable()) {
        (true, false) => "read-only",
        (false, true) => "write-only",
        _ => "not accessible",
    };
    PoolError::Permission { address, what, permissions }
}
