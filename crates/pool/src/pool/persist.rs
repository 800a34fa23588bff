//! Byte-grain persistence: regions whose lines are made durable one by one (FlatFlash, section 3.5).

use std::collections::BTreeSet;

use deepram_core::units::PAGE_BYTES;
use deepram_core::{Addr, PageId, Status};

use super::{Inner, Pool};
use crate::buffer::AlignedBuf;
use crate::error::{PoolError, Result};
use crate::format::line::LINE;
use crate::lock::lock;
use crate::store::Store;

/// Lines of a page.
const PAGE_LINES: u64 = PAGE_BYTES / LINE as u64;

/// A persist that is under way: see [`Pool::persist_async`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the lines are durable only when Pool::wait has returned"]
pub struct Persist {
    /// The opening of a pool that it belongs to.
    pool: u64,
    controller: u32,
    group: u64,
}

impl Inner {
    /// The controller of a persist that this opening began.
    fn store_of(&self, persist: Persist) -> Option<&Store> {
        let store = self.stores.get(persist.controller as usize);
        store.filter(|_| persist.pool == self.id).map(AsRef::as_ref)
    }
}

impl Pool {
    /// Makes the pages that `len` bytes at `addr` touch part of a persist region (the paper's
    /// `create_pmem_region`): [`Pool::persist`] makes bytes of it durable without a sync. Closes the open
    /// epoch as [`Pool::sync`] does, for what is persisted stands on top of the last token.
    ///
    /// The first region of a controller takes 16 MiB of its flash for the line log, or less on a small one.
    /// The region stays one until [`Pool::remove_pmem_region`], [`Pool::free`], or a rollback to before.
    ///
    /// # Errors
    /// [`PoolError::NotAllocated`]; [`PoolError::PersistRegion`] for temporary memory;
    /// [`PoolError::NoSpace`], [`PoolError::Device`]. Nothing is a region then that was none before.
    pub fn create_pmem_region(&self, addr: Addr, len: u64) -> Result<()> {
        let (controller, first, count) = self.pages(addr, len)?;
        let inner = self.live()?;
        let _one = lock(&inner.regions);
        // Before the ring takes its space.
        self.ensure_permanent(controller, first, count)?;
        inner.stores[controller as usize].make_ring()?;
        let changed = self.set_persist(addr, len, true)?;
        let synced = self.sync();
        if synced.is_err() {
            // A crash would find pages that are no region, and take no lines for them.
            for page in changed {
                let start = Addr::new(controller, page.0, 0)?;
                match self.set_persist(start, 1, false) {
                    // By another thread, meanwhile: then it is no region either.
                    Err(PoolError::NotAllocated { .. }) => {}
                    done => drop(done?),
                }
            }
        }
        synced.map(drop)
    }

    /// Makes the pages that `len` bytes at `addr` touch ordinary memory again, from the next token on.
    ///
    /// # Errors
    /// [`PoolError::NotAllocated`]; [`PoolError::Device`].
    pub fn remove_pmem_region(&self, addr: Addr, len: u64) -> Result<()> {
        let _one = lock(&self.live()?.regions);
        self.set_persist(addr, len, false).map(drop)
    }

    /// Whether the page at `addr` is part of a persist region.
    ///
    /// # Errors
    /// [`PoolError::NotAllocated`].
    pub fn is_pmem_region(&self, addr: Addr) -> Result<bool> {
        let (controller, first, _) = self.pages(addr, 1)?;
        Ok(self.live()?.stores[controller as usize].status(first)?.persist())
    }

    /// Makes `len` bytes at `addr`, part of a persist region, durable: after a crash the pool has them as
    /// they are now, or as they were persisted or synced later. Lines of 64 bytes are written whole; a line
    /// is durable whole or not at all. A persist is durable when those that returned before it began are.
    ///
    /// Of a range of several lines those that are as they were last persisted, since the last token, are
    /// left out.
    ///
    /// The open epoch is not closed, and what else was stored in it is lost in a crash as before. A
    /// rollback takes persisted bytes back like all others: memory is then as it was at the token, and that
    /// is durable.
    ///
    /// Threads that persist at the same time share device writes.
    ///
    /// # Errors
    /// [`PoolError::PersistRegion`] outside a persist region; [`PoolError::NotAllocated`],
    /// [`PoolError::Permission`] for memory that must not be read; [`PoolError::LineLogFull`]: a sync makes
    /// room; [`PoolError::Closed`]; [`PoolError::Device`], [`PoolError::NoSpace`]. Whether the bytes are durable is not known then, and a later persist
    /// that succeeds makes them so.
    pub fn persist(&self, addr: Addr, len: u64) -> Result<()> {
        self.wait(self.persist_async(addr, len)?)
    }

    /// Begins to make bytes durable and returns before they are. What [`Pool::persist`] says holds when
    /// [`Pool::wait`] has returned for this persist, or for a later one on the same controller. Without a
    /// wait it happens within about a second, or later while write-back is busy or fails.
    ///
    /// # Errors
    /// As [`Pool::persist`]; an error of the device may be that of an earlier one.
    pub fn persist_async(&self, addr: Addr, len: u64) -> Result<Persist> {
        self.live()?.cache.ensure_open()?;
        let (controller, store) = self.store_at(addr)?;
        let end = addr.offset_by(len.max(1) - 1)?;
        for page in addr.page().0..=end.page().0 {
            // Page 0 is the pool's own.
            let status = if page == 0 { Status::default() } else { store.status(PageId(page))? };
            if !status.persist() {
                let address = Addr::new(addr.controller(), page, 0)?;
                if !status.allocated() {
                    return Err(PoolError::NotAllocated { address });
                }
                let problem = "not part of a persist region (make it one with create_pmem_region)";
                return Err(PoolError::PersistRegion { address, problem });
            }
        }
        let first = addr.controller_offset() / LINE as u64;
        let count = if len == 0 { 0 } else { end.controller_offset() / LINE as u64 - first + 1 };
        let start = Addr::new(addr.controller(), 0, 0)?;
        let group = store.add_lines(first, count, &mut |line, bytes, buffer| {
            self.read_with(start.offset_by(line * LINE as u64)?, bytes, buffer)
        })?;
        Ok(Persist { pool: self.anywhere().id, controller, group })
    }

    /// Returns when this persist, and every earlier one on its controller, is durable.
    ///
    /// # Errors
    /// As [`Pool::persist`].
    pub fn wait(&self, persist: Persist) -> Result<()> {
        let inner = self.live()?;
        let Some(store) = inner.store_of(persist) else {
            let problem = "it was begun by another pool, or by an earlier opening of this one".into();
            return Err(PoolError::Option { option: "persist", problem });
        };
        store.wait_for_lines(persist.group)
    }

    /// Whether this persist is durable already. Of one that another pool began, that is not known here: `false`.
    #[must_use]
    pub fn is_durable(&self, persist: Persist) -> bool {
        self.anywhere().store_of(persist).is_some_and(|store| store.has_lines(persist.group))
    }

    fn ensure_permanent(&self, controller: u32, first: PageId, count: u32) -> Result<()> {
        let runs = self.status_runs(controller, first, count)?;
        let Some((page, ..)) = runs.iter().find(|(.., status)| !status.permanent()) else { return Ok(()) };
        let address = self.live()?.stores[controller as usize].address(*page, 0);
        let problem = "temporary memory cannot be a persist region: nothing of it outlives a crash";
        Err(PoolError::PersistRegion { address, problem })
    }

    /// Makes pages part of a persist region or not. Returns those that have changed.
    fn set_persist(&self, addr: Addr, len: u64, persist: bool) -> Result<Vec<PageId>> {
        let (controller, ..) = self.pages(addr, len)?;
        let inner = self.live()?;
        let store = &inner.stores[controller as usize];
        let mut log = inner.log(controller as usize)?;
        // Another thread may have freed or changed them. Nobody does now.
        let (_, first, count) = self.pages(addr, len)?;
        if persist {
            self.ensure_permanent(controller, first, count)?;
        }
        let before = self.status_runs(controller, first, count)?;
        let mut changed = Vec::new();
        for (first, count, status) in before.into_iter().filter(|(.., status)| status.persist() != persist) {
            store.set_status(&mut log, first, count, status.with_persist(persist))?;
            changed.extend((first.0..first.0 + count).map(PageId));
        }
        Ok(changed)
    }

    /// These pages in runs of one status.
    pub(super) fn status_runs(
        &self,
        controller: u32,
        first: PageId,
        count: u32,
    ) -> Result<Vec<(PageId, u32, Status)>> {
        let store = &self.live()?.stores[controller as usize];
        let mut runs: Vec<(PageId, u32, Status)> = Vec::new();
        for page in (first.0..first.0 + count).map(PageId) {
            let status = store.status(page)?;
            match runs.last_mut() {
                Some((_, count, of)) if *of == status => *count += 1,
                _ => runs.push((page, 1, status)),
            }
        }
        Ok(runs)
    }

    /// Stores what was persisted since the last token, as the crash or the abandonment left it.
    pub(super) fn replay_lines(&self) -> Result<()> {
        let inner = self.live()?;
        for (controller, store) in (0_u32..).zip(&inner.stores) {
            let mut guarded = BTreeSet::new();
            let mut buffer = AlignedBuf::zeroed(inner.cache.segment_bytes());
            store.each_line(&mut |line, bytes| {
                let page = PageId((line / PAGE_LINES) as u32);
                if line / PAGE_LINES >= u64::from(store.geometry().pages) {
                    return Err(store.foreign_line(line));
                }
                // Freed since, or taken out of its region, with the token before the persist.
                let status = store.status(page)?;
                if !status.persist() {
                    return Ok(());
                }
                if !status.readable() || !status.writable() {
                    guarded.insert(page);
                }
                let addr = Addr::new(controller, page.0, (line % PAGE_LINES * LINE as u64) as u32)?;
                self.put(addr, bytes, &mut buffer)
            })?;
            // What is resident and dirty causes no fault that would look at permissions.
            for page in guarded {
                let cache = &inner.cache;
                let status = store.status(page)?;
                if !status.readable() && !status.writable() {
                    // What is dirty could not be copied from there afterwards.
                    let index = cache.index_of(controller, page);
                    let segments = index..index + cache.segments_per_page();
                    let mut log = inner.log(controller as usize)?;
                    cache.clean(&mut log, controller as usize, segments)?;
                }
                cache.set_access(&cache.lock(), controller, page, 1, status)?;
            }
        }
        Ok(())
    }
}
