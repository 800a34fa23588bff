//! Byte-granular persistence: persist regions, whose lines of 64 bytes become durable one by one (FlatFlash, section
//! 3.5).

use std::collections::BTreeSet;

use deepram_core::units::PAGE_BYTES;
use deepram_core::{Addr, PageId, Status};

use super::{Inner, Pool};
use crate::error::{PoolError, Result};
use crate::format::line::LINE;
use crate::store::Store;
use deepram_linux::buffer::AlignedBuf;
use deepram_linux::lock::lock;

/// Lines in a page.
const PAGE_LINES: u64 = PAGE_BYTES / LINE as u64;

/// A persist in progress, as [`Pool::persist_async`] returns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the lines are durable only when Pool::wait has returned"]
pub struct Persist {
    /// The opening of the pool to which the persist belongs.
    pool: u64,
    controller: u32,
    group: u64,
}

impl Inner {
    /// Returns the controller of a persist that this opening of the pool began.
    fn store_of(&self, persist: Persist) -> Option<&Store> {
        let store = self.stores.get(persist.controller as usize);
        store.filter(|_| persist.pool == self.id).map(AsRef::as_ref)
    }

    /// Whether this opening of the pool made the persist on a memory controller, where it is durable when it returns.
    fn was_in_place(&self, persist: Persist) -> bool {
        persist.pool == self.id && persist.controller as usize >= self.stores.len()
    }
}

impl Pool {
    /// Makes the pages of `len` bytes at `addr` part of a persist region (the paper's `create_pmem_region`), so that
    /// [`Pool::persist`] can make bytes of it durable without a sync. Closes the open epoch as [`Pool::sync`] does,
    /// because persisted bytes are relative to the last token.
    ///
    /// The first region of a controller takes 16 MiB of its flash for the line log, or less on a small device. Pages
    /// stay part of the region until [`Pool::remove_pmem_region`], [`Pool::free`], or a rollback to an earlier token.
    ///
    /// All memory of a memory controller is a persist region from the start: stores are made in place, and a persist
    /// flushes their lines. No rollback reverts them.
    ///
    /// # Errors
    /// [`PoolError::NotAllocated`]; [`PoolError::PersistRegion`] for temporary memory; [`PoolError::NoSpace`],
    /// [`PoolError::Device`]. On an error the regions are unchanged.
    pub fn create_pmem_region(&self, addr: Addr, len: u64) -> Result<()> {
        if self.in_place(addr)?.is_some() {
            return self.ensure_allocated(addr, len);
        }
        let (controller, first, count) = self.pages(addr, len)?;
        let inner = self.live()?;
        let _one = lock(&inner.regions);
        // Check this before the ring takes space.
        self.ensure_permanent(controller, first, count)?;
        inner.stores[controller as usize].make_ring()?;
        let changed = self.set_persist(addr, len, true)?;
        let synced = self.sync();
        if synced.is_err() {
            // The region is not durable: recovery after a crash would find pages outside any region, and would not
            // replay lines into them.
            for page in changed {
                let start = Addr::new(controller, page.0, 0)?;
                match self.set_persist(start, 1, false) {
                    // Another thread has freed the page, which is then not part of a region either.
                    Err(PoolError::NotAllocated { .. }) => {}
                    done => drop(done?),
                }
            }
        }
        synced.map(drop)
    }

    /// Makes the pages of `len` bytes at `addr` ordinary memory, from the next token on.
    ///
    /// # Errors
    /// [`PoolError::NotAllocated`]; [`PoolError::Device`].
    pub fn remove_pmem_region(&self, addr: Addr, len: u64) -> Result<()> {
        let _one = lock(&self.live()?.regions);
        self.set_persist(addr, len, false).map(drop)
    }

    /// Returns whether the page at `addr` is part of a persist region.
    ///
    /// # Errors
    /// [`PoolError::NotAllocated`].
    pub fn is_pmem_region(&self, addr: Addr) -> Result<bool> {
        if self.in_place(addr)?.is_some() {
            return self.ensure_allocated(addr, 1).map(|()| true);
        }
        let (controller, first, _) = self.pages(addr, 1)?;
        Ok(self.live()?.stores[controller as usize].status(first)?.persist())
    }

    /// Makes `len` bytes at `addr`, inside a persist region, durable. After a crash the pool has these bytes as they
    /// are now, or as a later persist or sync made them durable. The unit of a persist is a line of 64 bytes: a line
    /// is durable completely or not at all. A persist is durable only if every persist that returned before it began
    /// is durable.
    ///
    /// In a range of several lines, the call omits lines that have not changed since they were last persisted after
    /// the last token.
    ///
    /// The call does not close the open epoch: other stores of that epoch are still lost in a crash. A rollback also
    /// reverts persisted bytes: memory is then as it was at the token, durably.
    ///
    /// Threads that persist at the same time share device writes.
    ///
    /// # Errors
    /// [`PoolError::PersistRegion`] outside a persist region; [`PoolError::NotAllocated`], [`PoolError::Permission`]
    /// for unreadable memory; [`PoolError::LineLogFull`], after which a sync makes room; [`PoolError::Closed`];
    /// [`PoolError::Device`], [`PoolError::NoSpace`]. On an error the bytes may or may not be durable, and a later
    /// successful persist makes them durable.
    #[inline]
    pub fn persist(&self, addr: Addr, len: u64) -> Result<()> {
        if let Some((memory, offset)) = self.in_place(addr)? {
            return memory.persist(offset, len);
        }
        self.wait(self.persist_async(addr, len)?)
    }

    /// Begins a persist and returns before the bytes are durable. They are durable, as after [`Pool::persist`], when
    /// [`Pool::wait`] has returned for this persist or for a later one on the same controller. Without a wait they
    /// become durable within about a second, or later while write-back is busy or fails.
    ///
    /// # Errors
    /// The errors of [`Pool::persist`]; a device error may be that of an earlier persist.
    pub fn persist_async(&self, addr: Addr, len: u64) -> Result<Persist> {
        if let Some((memory, offset)) = self.in_place(addr)? {
            memory.persist(offset, len)?;
            return Ok(Persist { pool: self.unchecked().id, controller: addr.controller(), group: 0 });
        }
        self.live()?.cache.ensure_open()?;
        let (controller, store) = self.store_at(addr)?;
        let end = addr.offset_by(len.max(1) - 1)?;
        for page in addr.page().0..=end.page().0 {
            // Page 0 belongs to the pool.
            let status = if page == 0 { Status::default() } else { store.status(PageId(page))? };
            if !status.persist() {
                let address = Addr::new(addr.controller(), page, 0)?;
                if !status.allocated() {
                    return Err(PoolError::NotAllocated { address });
                }
                let problem = "not part of a persist region (create one with create_pmem_region)";
                return Err(PoolError::PersistRegion { address, problem });
            }
        }
        let first = addr.controller_offset() / LINE as u64;
        let count = if len == 0 { 0 } else { end.controller_offset() / LINE as u64 - first + 1 };
        let start = Addr::new(addr.controller(), 0, 0)?;
        let group = store.add_lines(first, count, &mut |line, bytes, buffer| {
            self.read_with(start.offset_by(line * LINE as u64)?, bytes, buffer)
        })?;
        Ok(Persist { pool: self.unchecked().id, controller, group })
    }

    /// Waits until this persist, and every earlier persist on its controller, is durable.
    ///
    /// # Errors
    /// The errors of [`Pool::persist`].
    pub fn wait(&self, persist: Persist) -> Result<()> {
        let inner = self.live()?;
        if inner.was_in_place(persist) {
            return Ok(());
        }
        let Some(store) = inner.store_of(persist) else {
            let problem = "another pool, or an earlier opening of this pool, began it".into();
            return Err(PoolError::Option { option: "persist", problem });
        };
        store.wait_for_lines(persist.group)
    }

    /// Returns whether this persist is durable. Returns `false` for a persist that another opening of a pool began,
    /// since its state is unknown here.
    #[must_use]
    pub fn is_durable(&self, persist: Persist) -> bool {
        let inner = self.unchecked();
        inner.was_in_place(persist)
            || inner.store_of(persist).is_some_and(|store| store.is_group_durable(persist.group))
    }

    fn ensure_permanent(&self, controller: u32, first: PageId, count: u32) -> Result<()> {
        let runs = self.status_runs(controller, first, count)?;
        let Some((page, ..)) = runs.iter().find(|(.., status)| !status.permanent()) else { return Ok(()) };
        let address = self.live()?.stores[controller as usize].address(*page, 0);
        let problem =
            "temporary memory cannot be part of a persist region, because it does not outlive a crash";
        Err(PoolError::PersistRegion { address, problem })
    }

    /// Adds pages to a persist region or removes them. Returns the pages whose status has changed.
    fn set_persist(&self, addr: Addr, len: u64, persist: bool) -> Result<Vec<PageId>> {
        let (controller, ..) = self.pages(addr, len)?;
        let inner = self.live()?;
        let store = &inner.stores[controller as usize];
        let mut log = inner.log(controller as usize)?;
        // Another thread may have freed or changed the pages. The log is locked now, so no other thread can.
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

    /// Splits these pages into ranges of equal status.
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

    /// Writes the lines that were persisted after the last token into memory, after a crash or [`Pool::abandon`].
    pub(super) fn replay_lines(&self) -> Result<()> {
        let inner = self.live()?;
        for (controller, store) in (0_u32..).zip(&inner.stores) {
            let mut guarded = BTreeSet::new();
            let mut buffer = AlignedBuf::zeroed(inner.cache.segment_bytes());
            store.for_each_line(&mut |line, bytes| {
                let page = PageId((line / PAGE_LINES) as u32);
                if line / PAGE_LINES >= u64::from(store.geometry().pages) {
                    return Err(store.unknown_line_error(line));
                }
                // The page was freed, or was taken out of its region, by the token before the persist.
                let status = store.status(page)?;
                if !status.persist() {
                    return Ok(());
                }
                if !status.readable() || !status.writable() {
                    guarded.insert(page);
                }
                let addr = Addr::new(controller, page.0, (line % PAGE_LINES * LINE as u64) as u32)?;
                self.write_unchecked(addr, bytes, &mut buffer)
            })?;
            // A store to a resident dirty segment causes no page fault that would check permissions.
            for page in guarded {
                let cache = &inner.cache;
                let status = store.status(page)?;
                if !status.readable() && !status.writable() {
                    // Write-back could not copy dirty segments from unreadable pages afterwards.
                    let index = cache.index_of(controller, page);
                    let segments = index..index + cache.segments_per_page();
                    let mut log = inner.log(controller as usize)?;
                    cache.clean(&mut log, controller as usize, segments)?;
                }
                cache.set_protection(&cache.lock(), controller, page, 1, status)?;
            }
        }
        Ok(())
    }
}
