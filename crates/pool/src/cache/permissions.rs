//! Page permissions: how an access checks them, and how a change during an access is detected.
//!
//! An access checks the permissions in the tables without the cache's lock, because that may require reading the
//! tables from flash. A change that takes permissions away happens under the lock and increments a version
//! ([`Cache::permissions_changed`]). An access that holds the lock and finds the version unchanged since before its
//! check may go on; otherwise it checks again ([`Cache::revalidate`]). The protection of the mapping changes under
//! the same lock, together with the tables, so a copy by call never meets memory that is protected against it.

use std::sync::atomic::Ordering::SeqCst;

use deepram_core::{PageId, Status};

use super::{AccessKind, Cache, CacheState, Index};
use crate::error::{PoolError, Result};

/// An access whose permissions were checked, with the version of the permissions before the check.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Permit {
    pub(super) access: AccessKind,
    /// Version of the permissions before the check; `None`: the access needs no permission.
    version: Option<u64>,
}

impl Permit {
    /// Makes a permit for an access that needs no permission.
    pub(crate) fn unchecked(access: AccessKind) -> Self {
        Self { access, version: None }
    }
}

/// Returns whether an error says that an access is forbidden.
pub(super) fn is_permission_error(error: &PoolError) -> bool {
    matches!(error, PoolError::NotAllocated { .. } | PoolError::Permission { .. })
}

impl Cache {
    /// Makes a permit with the current version of the permissions. Take it before the permissions are checked.
    pub(crate) fn permit(&self, access: AccessKind) -> Permit {
        Permit { access, version: Some(self.permission_version.load(SeqCst)) }
    }

    /// Checks that a segment's page allows an access now.
    ///
    /// # Errors
    /// [`PoolError::NotAllocated`], [`PoolError::Permission`]; the errors of reading the tables.
    pub(crate) fn check_access(&self, index: Index, access: AccessKind) -> Result<()> {
        let (store, page, _) = self.store_of(index);
        let status = store.status(page)?;
        let address = store.address(page, 0);
        if !status.allocated() {
            return Err(PoolError::NotAllocated { address });
        }
        let (allowed, what) = match access {
            AccessKind::Read => (status.readable(), "read"),
            AccessKind::Write => (status.writable(), "written"),
        };
        if allowed { Ok(()) } else { Err(permission_error(address, what, status)) }
    }

    /// Checks the permissions again if they have changed since the permit was made. Call this each time the lock has
    /// been taken.
    ///
    /// # Errors
    /// The errors of [`Cache::check`].
    pub(super) fn revalidate(&self, _state: &CacheState, index: Index, permit: Permit) -> Result<()> {
        match permit.version {
            Some(version) if version != self.permission_version.load(SeqCst) => {
                self.check_access(index, permit.access)
            }
            _ => Ok(()),
        }
    }

    /// Records that permissions were taken away in the tables, so that accesses in progress check again.
    pub(crate) fn permissions_changed(&self, _state: &CacheState) {
        self.permission_version.fetch_add(1, SeqCst);
    }

    /// Sets the protection of pages in the mapping.
    pub(crate) fn set_protection(
        &self,
        _state: &CacheState,
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
            .set_protection(offset, len, status.readable(), status.writable())
            .map_err(|source| self.stores[controller as usize].device_error("mprotect", source))
    }

    /// Sets the protection of pages in the mapping to their status in the tables. Stops the pool if the kernel
    /// refuses.
    pub(crate) fn apply_protection(
        &self,
        state: &mut CacheState,
        controller: u32,
        first: PageId,
        count: u32,
    ) {
        for page in (first.0..first.0 + count).map(PageId) {
            let status = self.stores[controller as usize].status(page);
            let shown = status.and_then(|status| self.set_protection(state, controller, page, 1, status));
            if let Err(error) = shown {
                return self
                    .halt(state, &format!("the kernel refused to change the protection of memory: {error}"));
            }
        }
    }

    /// Makes the page of a segment read-only in the mapping because the device is full. Stores raise SIGSEGV until
    /// [`Cache::restore_write_access`].
    pub(crate) fn make_page_read_only(&self, state: &mut CacheState, index: Index) {
        let (store, page, _) = self.store_of(index);
        let shown = store.status(page).and_then(|status| {
            let status = Status::new(status.permanent(), status.readable(), false);
            self.set_protection(state, index / self.stride, page, 1, status)
        });
        match shown {
            Ok(()) => state.read_only_segments.push(index / self.per_page * self.per_page),
            Err(error) => {
                self.halt(state, &format!("the kernel refused to change the protection of memory: {error}"))
            }
        }
    }

    /// Makes pages writable again that a full device had made read-only, if their permissions allow it.
    pub(crate) fn restore_write_access(&self) {
        let mut state = self.lock();
        for first in std::mem::take(&mut state.read_only_segments) {
            self.apply_protection_of_page(&mut state, first);
        }
    }

    /// Does the same for the page of one segment, before a write by call.
    pub(super) fn restore_write_access_to(&self, state: &mut CacheState, index: Index) {
        let first = index / self.per_page * self.per_page;
        if let Some(at) = state.read_only_segments.iter().position(|refused| *refused == first) {
            state.read_only_segments.swap_remove(at);
            self.apply_protection_of_page(state, first);
        }
    }

    fn apply_protection_of_page(&self, state: &mut CacheState, index: Index) {
        let (_, page, _) = self.store_of(index);
        self.apply_protection(state, index / self.stride, page, 1);
    }
}

/// Returns the error of a forbidden access to a page with this status.
pub(crate) fn permission_error(address: deepram_core::Addr, what: &'static str, status: Status) -> PoolError {
    let permissions = match (status.readable(), status.writable()) {
        (true, false) => "read-only",
        (false, true) => "write-only",
        _ => "not accessible",
    };
    PoolError::Permission { address, what, permissions }
}
