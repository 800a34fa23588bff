//! The pool: its controllers, its DRAM cache, and the operations of the NVMM paper's software interface.

mod access;
mod byte_access;
mod handle;
mod hints;
mod memory;
mod older_states;
mod open;
mod persist;
mod roots;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_huge_pages;
mod token_view;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use deepram_core::units::PAGE_BYTES;
use deepram_core::{Addr, Bytes, Epoch, PageId, Redundancy, Retention, SegmentSize, Status};
use deepram_linux::heap::HeapTrim;
use deepram_linux::lock::lock;
use deepram_metrics::{ListenAddress, Server};
use uuid::Uuid;

use crate::cache::{Cache, Cut, Handlers};
use crate::endurance::Endurance;
use crate::error::{PoolError, Result};
use crate::memory_controller::{MemoryController, MemoryInfo};
use crate::process::Owner;
use crate::stats::{Counters, Stats, add};
use crate::store::{Commit, Log, Report, ScrubReport, Store};

pub use memory::MemoryFile;
pub use open::Inspection;
pub(crate) use open::default_base;
pub use persist::Persist;
pub use roots::Root;
pub use token_view::TokenView;

/// Pages whose status changes under one hold of the cache lock.
const PAGES_PER_LOCK: u32 = 4096;

/// Whether allocated memory outlives the process that allocated it (NVMM paper, "Software Interface").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// Freed when the pool is closed, or at the next opening after a crash.
    Temporary,
    /// Kept until a program frees it.
    Permanent,
}

/// Access permissions and lifetime of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permissions {
    /// Loads are allowed. Without this, stores through the mapped memory are forbidden too, because processors have
    /// no write-only pages.
    pub read: bool,
    /// Stores are allowed.
    pub write: bool,
    /// Whether the page outlives its creator. A page that `setperms` makes temporary belongs to the process that
    /// called `setperms`.
    pub lifetime: Lifetime,
}

impl Permissions {
    /// Permits loads and stores, with this lifetime.
    #[must_use]
    pub fn read_write(lifetime: Lifetime) -> Self {
        Self { read: true, write: true, lifetime }
    }

    fn status(self) -> Status {
        Status::new(self.lifetime == Lifetime::Permanent, self.read, self.write)
    }
}

/// A token and the statistics of its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct History {
    /// The token, for [`Pool::rollback`] and [`Pool::read_at`].
    pub token: Epoch,
    /// Time at which the token was made, in nanoseconds since 1970; 0 for the token of the empty pool.
    pub wall_ns: u64,
    /// Pages changed between the previous token and this one.
    pub pages_changed: u64,
    /// Segments written between the previous token and this one.
    pub segments_written: u64,
}

/// Properties and current usage of a pool.
#[derive(Debug, Clone, PartialEq)]
pub struct Info {
    /// Identity of the pool, the same on all of its devices.
    pub uuid: Uuid,
    /// Names of the devices, by controller.
    pub devices: Vec<String>,
    /// Virtual memory of all controllers together.
    pub size: Bytes,
    /// Allocated memory.
    pub allocated: Bytes,
    /// Flash that the pool occupies.
    pub flash: Bytes,
    /// Flash that current data and kept versions take.
    pub flash_used: Bytes,
    /// Amount of new data that fits before older tokens must be given up.
    pub flash_room: Bytes,
    /// Flash of the line log, which holds the bytes persisted since the last token; 0 without persist regions.
    pub line_log: Bytes,
    /// The unit that the flash reads and programs, and the block size of the DRAM cache.
    pub segment: SegmentSize,
    /// Size of a block, without parity.
    pub block: Bytes,
    /// Size of a block with its parity: the distance of two blocks on the device.
    pub block_with_parity: Bytes,
    /// Data and parity columns of each block, if the pool has redundancy.
    pub redundancy: Option<Redundancy>,
    /// Size of a data column of a block, the largest part of the device whose loss is repaired; 0 without redundancy.
    pub column: Bytes,
    /// The tokens that the pool keeps.
    pub retention: Retention,
    /// Address at which the pool is mapped.
    pub base: u64,
    /// The open epoch.
    pub open_epoch: Epoch,
    /// Bytes written to the devices, and the limits on them.
    pub endurance: Endurance,
    /// The memory controllers; the sizes above are those of the journaled controllers.
    pub memory: Vec<MemoryInfo>,
}

/// A pool of journaled memory. Clones are handles of the same pool. [`Pool::close`] closes the pool; dropping the
/// last handle closes it without a sync.
///
/// # Pointers
/// Several threads may use the memory of a mapped pool through pointers from [`Pool::pointer`], like any other
/// memory. Such pointers are valid until the pool is closed. A load or store that cannot be served raises SIGBUS
/// (damaged data) or SIGSEGV (not allocated, no permission, device full); [`Pool::take_errors`] returns the reason.
///
/// # Forks
/// A pool belongs to the process that opened it. In a child made by `fork` every call returns
/// [`PoolError::ForkedChild`], the memory is not mapped (a load or store raises SIGSEGV), and dropping a handle does
/// nothing. The parent is unaffected. The lock on the devices ends with the parent, even while the child lives on.
/// The child may open the pool itself after the parent has closed it or has ended.
///
/// # Syncs and concurrent stores
/// A sync captures every store that happened before the call. Of the stores that run concurrently with the call, the
/// sync captures those before one moment, which is the same for all threads and pages.
#[derive(Clone)]
pub struct Pool {
    inner: handle::SharedInner,
}

struct Inner {
    /// Identifies the opening to which a [`Persist`] belongs.
    id: u64,
    owner: Owner,
    cache: Arc<Cache>,
    stores: Vec<Arc<Store>>,
    /// The memory controllers, whose numbers follow those of `stores`.
    memories: Vec<Arc<MemoryController>>,
    counters: Arc<Counters>,
    /// The handlers and the background threads stop before the region is unmapped.
    handlers: std::sync::Mutex<Option<Handlers>>,
    background_threads: std::sync::Mutex<Vec<JoinHandle<()>>>,
    /// Set when a handle begins to close the pool.
    closing: AtomicBool,
    /// Set when no operation may begin any more; set before the logs are locked for the last time.
    closed: AtomicBool,
    /// Serializes changes of persist regions.
    regions: std::sync::Mutex<()>,
    /// Serves the statistics.
    listening: std::sync::Mutex<Option<Server>>,
    /// Last: the tables that the others free would stay in DRAM beside the budget of the next pool.
    _heap: HeapTrim,
}

impl Pool {
    fn store_at(&self, addr: Addr) -> Result<(u32, &Arc<Store>)> {
        let controller = if addr.is_local() { 0 } else { addr.controller() };
        match self.live()?.stores.get(controller as usize) {
            Some(store) if addr.page().0 < store.geometry().pages => Ok((controller, store)),
            _ if self.live()?.memory_at(addr).is_some() => {
                let problem = "the operation needs a journaled controller";
                Err(PoolError::InPlace { address: addr, problem })
            }
            _ => Err(PoolError::NotAllocated { address: addr }),
        }
    }

    /// Returns the controller, the first page and the number of pages of an allocated range.
    fn pages(&self, addr: Addr, len: u64) -> Result<(u32, PageId, u32)> {
        let (controller, store) = self.store_at(addr)?;
        let last = addr.offset_by(len.max(1) - 1)?;
        let first = addr.page();
        let count = last.page().0 - first.0 + 1;
        for page in first.0..first.0 + count {
            if page == 0 || page >= store.geometry().pages || !store.is_allocated(PageId(page)) {
                let address = Addr::new(addr.controller(), page, 0)?;
                return Err(PoolError::NotAllocated { address });
            }
        }
        Ok((controller, first, count))
    }

    /// Allocates `len` bytes, in whole pages of 64 KiB, on the first journaled controller with enough free memory.
    ///
    /// # Errors
    /// [`PoolError::NoAddressSpace`]; [`PoolError::Option`] for a length of zero.
    pub fn alloc(&self, len: u64, lifetime: Lifetime) -> Result<Addr> {
        let mut result =
            Err(PoolError::NoAddressSpace { needed: Bytes(len), controller: 0, total: Bytes(0) });
        for controller in 0..self.live()?.stores.len() as u32 {
            result = self.alloc_on(controller, len, lifetime);
            if !matches!(result, Err(PoolError::NoAddressSpace { .. })) {
                break;
            }
        }
        result
    }

    /// Allocates memory on the given controller. Use this for data that should fail together: each controller is
    /// consistent by itself. On a memory controller, memory is permanent, and the allocation is durable at once.
    ///
    /// # Errors
    /// The errors of [`Pool::alloc`]; [`PoolError::Option`] for an unknown controller.
    pub fn alloc_on(&self, controller: u32, len: u64, lifetime: Lifetime) -> Result<Addr> {
        let inner = self.live()?;
        let Some(store) = inner.stores.get(controller as usize) else {
            if let Some((memory, _)) = inner.memory_at(Addr::new(controller, 0, 0)?) {
                return Self::alloc_in_place(memory, controller, len, lifetime);
            }
            let controllers = inner.stores.len() + inner.memories.len();
            let problem = format!("{controller} does not exist: the number of controllers is {controllers}");
            return Err(PoolError::Option { option: "controller", problem });
        };
        if len == 0 {
            return Err(PoolError::Option {
                option: "length",
                problem: "0 bytes cannot be allocated".into(),
            });
        }
        let count = u32::try_from(len.div_ceil(PAGE_BYTES)).unwrap_or(u32::MAX);
        let status = Permissions::read_write(lifetime).status();
        let mut log = inner.log(controller as usize)?;
        let first = store.find_free(count)?;
        if let Err(error) = self.set_status(&mut log, controller, &[(first, count, status)]) {
            let done = (first.0..first.0 + count).take_while(|&page| store.is_allocated(PageId(page)));
            self.free_pages(&mut log, controller, first, done.count() as u32)?;
            return Err(error);
        }
        Ok(Addr::new(controller, first.0, 0)?)
    }

    /// Frees the pages of `len` bytes at `addr` (the paper's `delete`). Tokens keep their versions of these pages.
    ///
    /// # Errors
    /// [`PoolError::NotAllocated`] with the first page that is not allocated; [`PoolError::InPlace`] for a part of a region
    /// of a memory controller; no page is freed then.
    pub fn free(&self, addr: Addr, len: u64) -> Result<()> {
        if let Some((memory, _)) = self.in_place(addr)? {
            return Self::free_in_place(memory, addr, len);
        }
        let (controller, ..) = self.pages(addr, len)?;
        let inner = self.live()?;
        let mut log = inner.log(controller as usize)?;
        // Another thread may have freed the pages. The log is locked now, so no other thread can.
        let (_, first, count) = self.pages(addr, len)?;
        self.free_pages(&mut log, controller, first, count)?;
        drop(log);
        inner.cache.restore_write_access();
        Ok(())
    }

    /// Frees allocated pages. An access in progress ends before the pages are freed, or returns an error.
    fn free_pages(&self, log: &mut Log, controller: u32, first: PageId, count: u32) -> Result<()> {
        let inner = self.live()?;
        let (cache, store) = (&inner.cache, &inner.stores[controller as usize]);
        store.prepare(first.0..first.0 + count)?;
        let mut state = cache.lock();
        let hidden = cache.set_protection(&state, controller, first, count, Status::default());
        let result = hidden.and_then(|()| store.delete(log, first, count));
        cache.permissions_changed(&state);
        if result.is_err() {
            cache.apply_protection(&mut state, controller, first, count);
        }
        // On an error, some of the pages may be freed.
        let pages: Vec<u32> =
            (first.0..first.0 + count).filter(|&page| !store.is_allocated(PageId(page))).collect();
        let runs: Vec<_> = pages
            .chunk_by(|a, b| a + 1 == *b)
            .map(|run| {
                let first = cache.index_of(controller, PageId(run[0]));
                first..first + run.len() as u32 * cache.segments_per_page()
            })
            .collect();
        runs.iter().for_each(|run| cache.unpin(&mut state, run.clone()));
        cache.invalidate(&mut state, runs.into_iter().flatten());
        result
    }

    /// Sets the status of pages in the tables and their protection in the mapping, a part of the pages at a time. On
    /// an error some pages may have the new status.
    fn set_status(&self, log: &mut Log, controller: u32, runs: &[(PageId, u32, Status)]) -> Result<()> {
        let inner = self.live()?;
        let (cache, store) = (&inner.cache, &inner.stores[controller as usize]);
        for &(first, count, status) in runs {
            for start in (0..count).step_by(PAGES_PER_LOCK as usize) {
                let (first, count) = (PageId(first.0 + start), PAGES_PER_LOCK.min(count - start));
                store.prepare(first.0..first.0 + count)?;
                let mut state = cache.lock();
                let given = store
                    .set_status(log, first, count, status)
                    .and_then(|()| cache.set_protection(&state, controller, first, count, status));
                cache.permissions_changed(&state);
                if given.is_err() {
                    cache.apply_protection(&mut state, controller, first, count);
                }
                given?;
            }
        }
        Ok(())
    }

    /// Sets the permissions and lifetime of the pages of `len` bytes at `addr`.
    ///
    /// # Errors
    /// [`PoolError::NotAllocated`] with the first page that is not allocated; no page is changed then.
    pub fn setperms(&self, addr: Addr, len: u64, permissions: Permissions) -> Result<()> {
        let (controller, ..) = self.pages(addr, len)?;
        let inner = self.live()?;
        let store = &inner.stores[controller as usize];
        let mut log = inner.log(controller as usize)?;
        // Another thread may have freed or changed the pages. The log is locked now, so no other thread can.
        let (_, first, count) = self.pages(addr, len)?;
        let before = self.status_runs(controller, first, count)?;
        let is_region = |(.., status): &&(PageId, u32, Status)| status.persist();
        if permissions.lifetime == Lifetime::Temporary
            && let Some((page, ..)) = before.iter().find(is_region)
        {
            let address = store.address(*page, 0);
            let problem =
                "part of a persist region, which cannot be temporary (call remove_pmem_region first)";
            return Err(PoolError::PersistRegion { address, problem });
        }
        let mut change = || {
            let with = |status: Status| {
                before
                    .iter()
                    .map(move |&(first, count, old)| (first, count, status.with_persist(old.persist())))
            };
            let status = permissions.status();
            if !permissions.read && !permissions.write {
                // Write-back cannot copy segments from unreadable pages. So the pages become read-only first, and
                // their dirty segments are written while no store can make a segment dirty again.
                let read_only: Vec<_> = with(Status::new(status.permanent(), true, false)).collect();
                self.set_status(&mut log, controller, &read_only)?;
                let index = inner.cache.index_of(controller, first);
                let segments = index..index + count * inner.cache.segments_per_page();
                inner.cache.clean(&mut log, controller as usize, segments)?;
            }
            self.set_status(&mut log, controller, &with(status).collect::<Vec<_>>())
        };
        let changed = change();
        if changed.is_err() {
            self.set_status(&mut log, controller, &before)?;
        }
        changed
    }

    /// Returns the permissions and lifetime of the page at `addr`.
    ///
    /// # Errors
    /// [`PoolError::NotAllocated`].
    pub fn permissions(&self, addr: Addr) -> Result<Permissions> {
        if self.in_place(addr)?.is_some() {
            self.ensure_allocated(addr, 1)?;
            return Ok(Permissions::read_write(Lifetime::Permanent));
        }
        let (controller, first, _) = self.pages(addr, 1)?;
        let status = self.live()?.stores[controller as usize].status(first)?;
        let lifetime = if status.permanent() { Lifetime::Permanent } else { Lifetime::Temporary };
        Ok(Permissions { read: status.readable(), write: status.writable(), lifetime })
    }

    /// Makes all stores so far durable and returns the token of that state. Memory controllers are flushed; their memory is
    /// not part of the state.
    ///
    /// # Errors
    /// [`PoolError::NoSpace`], [`PoolError::Device`]: on an error nothing has become durable, no data is lost, and a
    /// later sync may succeed.
    pub fn sync(&self) -> Result<Epoch> {
        let inner = self.live()?;
        self.flush_memories()?;
        let mut logs = inner.logs()?;
        for (store, log) in inner.stores.iter().zip(&mut logs) {
            if store.needs_renumber() {
                store.renumber(log)?;
            }
        }
        let wall_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
        let epoch = inner.stores[0].open_epoch();
        for (controller, log) in logs.iter_mut().enumerate() {
            inner.cache.flush_ahead(log, controller)?;
        }
        let cut = inner.cache.cut()?;
        let result = self.commit_cut(&mut logs, &cut, epoch, wall_ns);
        if result.is_err() && logs.len() > 1 {
            // The commit of one controller may be on its device: its log must not continue after that commit.
            logs.iter_mut().for_each(|log| log.mark_broken());
        }
        result?;
        for (store, (log, &lines)) in inner.stores.iter().zip(logs.iter_mut().zip(&cut.lines)) {
            store.close_epoch(wall_ns)?;
            store.retire_lines(log, lines);
        }
        drop(logs);
        add(&inner.counters.syncs, 1);
        inner.cache.restore_write_access();
        inner.cache.notify_write_back();
        Ok(epoch)
    }

    fn commit_cut(
        &self,
        logs: &mut [std::sync::MutexGuard<'_, Log>],
        cut: &Cut,
        epoch: Epoch,
        wall_ns: u64,
    ) -> Result<()> {
        let inner = self.live()?;
        let cache = &inner.cache;
        let commit = |controller: usize| Commit::Epoch { epoch, wall_ns, lines: cut.lines[controller] };
        if let ([store], [log], [segments]) = (&inner.stores[..], &mut logs[..], &cut.segments[..])
            && store.fits_one_batch(log, segments.len())
        {
            return cache.flush(log, 0, segments, Some(commit(0)));
        }
        let mut result = Ok(());
        for (controller, (log, segments)) in logs.iter_mut().zip(&cut.segments).enumerate() {
            if result.is_ok() {
                result = cache.flush(log, controller, segments, None);
            } else {
                cache.restore_dirty(segments);
            }
        }
        result?;
        for (store, log) in inner.stores.iter().zip(logs.iter_mut()) {
            store.flush_log(log)?;
        }
        for (controller, (store, log)) in inner.stores.iter().zip(logs.iter_mut()).enumerate() {
            store.commit(log, commit(controller), &[], &mut |_, _| {}, &mut |_| {})?;
        }
        Ok(())
    }

    /// Returns the pool to the state of a token: contents, allocation, permissions, roots. Later stores and later
    /// tokens are gone. The rollback is durable when the call returns. No other thread may use the memory of the pool
    /// during the call.
    ///
    /// # Errors
    /// [`PoolError::Token`] for a token that never existed or whose versions are reclaimed; [`PoolError::Device`]. On
    /// an error the state is unchanged. [`PoolError::InPlace`] if the pool has memory controllers.
    pub fn rollback(&self, token: Epoch) -> Result<()> {
        let inner = self.live()?;
        self.ensure_journaled()?;
        let cache = &inner.cache;
        let mut logs = inner.logs()?;
        for store in &inner.stores {
            store.changed_since(token)?;
        }
        let mut state = cache.lock();
        let lines: Vec<u64> = inner.stores.iter().map(|store| store.cut_lines()).collect();
        // Either all controllers roll back or none: the tables change only after every controller has committed.
        let committed: Result<Vec<_>> = inner
            .stores
            .iter()
            .zip(logs.iter_mut().zip(&lines))
            .map(|(store, (log, &lines))| store.commit_rollback(log, token, lines))
            .collect();
        if committed.is_err() {
            // A log may hold a rollback that the tables do not have: it must not continue after that.
            logs.iter_mut().for_each(|log| log.mark_broken());
            inner.stores.iter().for_each(|store| store.require_line_checkpoint());
        }
        let changes = committed?;
        if let Err(error) = inner.stores.iter().try_for_each(|store| store.rollback(token)) {
            // Some tables may be in the state of the token, others not.
            cache.halt(&mut state, &format!("a rollback is on the devices but failed in memory: {error}"));
            return Err(error);
        }
        cache.permissions_changed(&state);
        // Dirty segments are newer than any token.
        let mut forgotten = cache.dirty(&state);
        for (controller, changes) in (0..).zip(changes) {
            for (page, segments, status_changed) in changes {
                let first = cache.index_of(controller, page);
                forgotten.extend(bits(segments, cache.segments_per_page()).map(|n| first + n));
                if status_changed {
                    cache.apply_protection(&mut state, controller, page, 1);
                }
            }
        }
        cache.invalidate(&mut state, forgotten);
        for (store, (log, &lines)) in inner.stores.iter().zip(logs.iter_mut().zip(&lines)) {
            store.retire_lines(log, lines);
        }
        drop(state);
        drop(logs);
        cache.restore_write_access();
        Ok(())
    }

    /// Returns the tokens that a rollback can return to, oldest first.
    ///
    /// # Errors
    /// [`PoolError::Closed`], [`PoolError::ForkedChild`].
    pub fn history(&self) -> Result<Vec<History>> {
        Ok(history(&self.live()?.stores))
    }

    /// Gives a token up, so that reclamation can free the flash of its versions.
    ///
    /// # Errors
    /// [`PoolError::Token`]; [`PoolError::Volume`] for the last token, which a crash returns to.
    pub fn drop_token(&self, token: Epoch) -> Result<()> {
        let inner = self.live()?;
        for (controller, store) in inner.stores.iter().enumerate() {
            let mut log = inner.log(controller)?;
            store.changed_since(token)?;
            store.drop_token(&mut log, token)?;
        }
        inner.cache.notify_write_back();
        Ok(())
    }

    /// Changes the retention policy: the tokens that the pool keeps from now on.
    ///
    /// # Errors
    /// [`PoolError::Closed`], [`PoolError::ForkedChild`].
    pub fn set_retention(&self, retention: Retention) -> Result<()> {
        let inner = self.live()?;
        inner.stores.iter().for_each(|store| store.set_retention(retention));
        inner.cache.notify_write_back();
        Ok(())
    }

    /// Reads and checks every structure and every segment, both current and kept for a token. Calls `progress` with
    /// the number of segments checked and the total.
    ///
    /// # Errors
    /// [`PoolError::Device`]. Damage of the pool is not an error: the report lists it.
    pub fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Report> {
        let mut report = Report::default();
        let inner = self.live()?;
        for (controller, store) in inner.stores.iter().enumerate() {
            let mut log = inner.log(controller)?;
            store.check(&mut log, &mut report, progress)?;
        }
        Ok(report)
    }

    /// Reads everything and repairs what is damaged: with redundancy, rebuilds damaged segments, batch headers and
    /// tables from parity and writes damaged or missing parity anew. Without redundancy only reports, as
    /// [`Pool::check`] does. Calls `progress` with the number of blocks read and the total. Other threads can use the
    /// pool meanwhile.
    ///
    /// # Errors
    /// [`PoolError::Device`]. Damage that cannot be repaired is not an error: the report lists it.
    pub fn scrub(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<ScrubReport> {
        let mut report = ScrubReport::default();
        let inner = self.live()?;
        let blocks = |store: &Arc<Store>| u64::from(store.geometry().blocks);
        let total = inner.stores.iter().map(blocks).sum();
        let mut done = 0;
        for (controller, store) in inner.stores.iter().enumerate() {
            store.begin_scrub(&mut *inner.log(controller)?, &mut report)?;
            for block in 0..store.geometry().blocks {
                // The log is free between blocks for other threads.
                store.scrub_block(&mut *inner.log(controller)?, block, &mut report)?;
                done += 1;
                progress(done, total);
            }
            store.end_scrub(&mut *inner.log(controller)?)?;
        }
        Ok(report)
    }

    /// Rewrites batch headers of which one of the two copies is damaged ([`Report::damaged_copies`]), and returns
    /// their number. Opening a pool already repairs the newest commit as far as possible.
    ///
    /// # Errors
    /// [`PoolError::Device`].
    pub fn repair_headers(&self) -> Result<u64> {
        let mut repaired = 0;
        let inner = self.live()?;
        for (controller, store) in inner.stores.iter().enumerate() {
            let _log = inner.log(controller)?;
            repaired += store.repair_headers()?;
        }
        Ok(repaired)
    }

    /// Coalesces long version chains and empties sparsely filled blocks, where the gain exceeds the cost. Returns the
    /// number of blocks that became free.
    ///
    /// # Errors
    /// [`PoolError::Device`].
    pub fn compact(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<u64> {
        let mut freed = 0;
        let inner = self.live()?;
        for (controller, store) in inner.stores.iter().enumerate() {
            let mut log = inner.log(controller)?;
            freed += store.compact(&mut log, progress)?;
        }
        Ok(freed)
    }

    /// Returns the properties and current usage of the pool.
    ///
    /// # Errors
    /// [`PoolError::Closed`], [`PoolError::ForkedChild`].
    pub fn info(&self) -> Result<Info> {
        let inner = self.live()?;
        let mut info = open::info(&inner.stores);
        inner.cache.add_allowance(&mut info.endurance);
        info.memory = inner.memories.iter().map(|memory| memory.info()).collect();
        Ok(info)
    }

    /// Returns the counters since the pool was opened and the DRAM in use. After the pool is closed, the counters
    /// keep their last values. A forked child sees the counters as they were at the fork, and no memory in use.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.owned().map_or_else(|_| self.unchecked().counters.read(), |inner| inner.cache.stats())
    }

    /// Returns the latencies of page faults on the mapped memory since the pool was opened, from the moment a handler takes a
    /// fault until it is served or handed to another thread: the upper end of each bucket of the histogram and the faults in
    /// it. Empty buckets are left out.
    #[must_use]
    pub fn fault_latency(&self) -> Vec<(Duration, u64)> {
        self.unchecked().counters.histograms.fault_latency()
    }

    /// Returns the address at which the statistics are served ([`crate::OpenOptions::listen`]), with the port that was chosen
    /// for port 0; `None` if they are not served.
    ///
    /// # Errors
    /// [`PoolError::Closed`], [`PoolError::ForkedChild`].
    pub fn listen_address(&self) -> Result<Option<ListenAddress>> {
        let server = lock(&self.live()?.listening);
        Ok(server.as_ref().map(|server| server.address().clone()))
    }

    /// Returns and clears the reasons why accesses through the mapped memory failed; each such access raised a
    /// signal. Errors of background write-back are included. In a forked child the only entry is
    /// [`PoolError::ForkedChild`].
    #[must_use]
    pub fn take_errors(&self) -> Vec<PoolError> {
        self.owned().map_or_else(|error| vec![error], |inner| inner.cache.take_errors())
    }
}

/// Returns the numbers of the set bits below `n`.
fn bits(mask: u16, n: u32) -> impl Iterator<Item = u32> {
    (0..n).filter(move |bit| mask >> bit & 1 == 1)
}

/// Returns the tokens that all controllers have.
fn history(stores: &[Arc<Store>]) -> Vec<History> {
    let per_store: Vec<_> = stores.iter().map(|s| s.tokens()).collect();
    let sum = |token: Epoch, of: &dyn Fn(&deepram_core::TokenInfo) -> u64| {
        per_store.iter().flatten().filter(|t| t.epoch == token).map(of).sum()
    };
    per_store[0]
        .iter()
        .filter(|t| per_store.iter().all(|tokens| tokens.iter().any(|o| o.epoch == t.epoch)))
        .map(|t| History {
            token: t.epoch,
            wall_ns: t.wall_ns,
            pages_changed: sum(t.epoch, &|t| u64::from(t.pages_changed)),
            segments_written: sum(t.epoch, &|t| t.segments_written),
        })
        .collect()
}
