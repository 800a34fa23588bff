//! What may be done with pages: how an access finds that out, and how it is kept from changing in the middle of one.
//!
//! An access asks the tables without the cache's lock, for they may have to be read for that. Who takes a right away
//! does so under the lock, and counts it ([`Cache::rights_changed`]). So an access that holds the lock and finds the
//! count as it was before it asked goes on ([`Cache::confirm`]); one that does not asks again. What the mapping lets
//! user code do changes under the lock too, together with the tables: a copy by call never meets memory that is
//! protected against it.

use std::sync::atomic::Ordering::SeqCst;

use deepram_core::{PageId, Status};

use super::{Access, Cache, Index, State};
use crate::error::{PoolError, Result};

/// What an access wants, and when permissions for it were asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Right {
    pub(super) access: Access,
    /// The count of changes before they were; `None`: they do not matter.
    seen: Option<u64>,
}

impl Right {
    /// Of an access that may do this, whatever the permissions are.
    pub(crate) fn unchecked(access: Access) -> Self {
        Self { access, seen: None }
    }
}

/// Whether an error says that an access is not allowed.
pub(super) fn is_refusal(error: &PoolError) -> bool {
    matches!(error, PoolError::NotAllocated { .. } | PoolError::Permission { .. })
}

impl Cache {
    /// What an access holds on to. Taken before permissions are looked at.
    pub(crate) fn right(&self, access: Access) -> Right {
        Right { access, seen: Some(self.rights.load(SeqCst)) }
    }

    /// Whether a segment's page allows an access at this moment.
    ///
    /// # Errors
    /// [`PoolError::NotAllocated`], [`PoolError::Permission`]; those of reading the tables.
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

    /// Whether an access whose permissions have been looked at still has them. Asked whenever the lock has been taken.
    ///
    /// # Errors
    /// As [`Cache::check`].
    pub(super) fn confirm(&self, _state: &State, index: Index, right: Right) -> Result<()> {
        match right.seen {
            Some(seen) if seen != self.rights.load(SeqCst) => self.check(index, right.access),
            _ => Ok(()),
        }
    }

    /// A right has been taken away in the tables: accesses under way ask again.
    pub(crate) fn rights_changed(&self, _state: &State) {
        self.rights.fetch_add(1, SeqCst);
    }

    /// Sets what user code may do with pages through the mapped address.
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

    /// Brings what user code may do with pages in line with the tables. Stops the pool where that cannot be done.
    pub(crate) fn show(&self, state: &mut State, controller: u32, first: PageId, count: u32) {
        for page in (first.0..first.0 + count).map(PageId) {
            let status = self.stores[controller as usize].status(page);
            let shown = status.and_then(|status| self.set_access(state, controller, page, 1, status));
            if let Err(error) = shown {
                return self.halt(state, &format!("the protection of memory cannot be set: {error}"));
            }
        }
    }

    /// Makes a page of a full device read-only for user code, so that stores raise SIGSEGV, until [`Cache::readmit`].
    pub(crate) fn bar(&self, state: &mut State, index: Index) {
        let (store, page, _) = self.store_of(index);
        let shown = store.status(page).and_then(|status| {
            let status = Status::new(status.permanent(), status.readable(), false);
            self.set_access(state, index / self.stride, page, 1, status)
        });
        match shown {
            Ok(()) => state.refused.push(index / self.per_page * self.per_page),
            Err(error) => self.halt(state, &format!("the protection of memory cannot be set: {error}")),
        }
    }

    /// Allows stores again where the full device had made pages read-only, if their permissions do.
    pub(crate) fn readmit(&self) {
        let mut state = self.lock();
        for first in std::mem::take(&mut state.refused) {
            self.show_page_of(&mut state, first);
        }
    }

    /// The same for the page of one segment, which is going to be stored to by call.
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

/// What is wrong with an access to a page of this status.
pub(crate) fn refused(address: deepram_core::Addr, what: &'static str, status: Status) -> PoolError {
    let permissions = match (status.readable(), status.writable()) {
        (true, false) => "read-only",
        (false, true) => "write-only",
        _ => "not accessible",
    };
    PoolError::Permission { address, what, permissions }
}
