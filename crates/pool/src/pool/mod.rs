//! A pool: its controllers, its cache, and the operations of the NVMM paper's software interface.

mod access;
mod grain;
mod hints;
mod open;
mod persist;
mod roots;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use deepram_core::units::PAGE_BYTES;
use deepram_core::{Addr, Bytes, Epoch, PageId, Retention, SegmentSize, Status};
use uuid::Uuid;

use crate::cache::{Cache, Cut, Handlers};
use crate::error::{PoolError, Result};
use crate::lock::lock;
use crate::stats::{Counters, Stats, add};
use crate::store::{Commit, Log, Report, Store};

pub use open::Inspection;
pub use persist::Persist;
pub use roots::Root;

/// Whether memory outlives the process that asked for it (NVMM, Software Interface).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// Freed when the pool is closed, or found after a crash.
    Temporary,
    /// Kept until it is freed.
    Permanent,
}

/// What may be done with a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permissions {
    /// Loads are allowed. Processors have no write-only pages: without it, neither are stores
    /// through the mapped address.
    pub read: bool,
    /// Stores are allowed.
    pub write: bool,
    /// Whether the page outlives its creator. A page made temporary belongs to whoever made it so.
    pub lifetime: Lifetime,
}

impl Permissions {
    /// Loads and stores, for this lifetime.
    #[must_use]
    pub fn read_write(lifetime: Lifetime) -> Self {
        Self { read: true, write: true, lifetime }
    }

    fn status(self) -> Status {
        Status::new(self.lifetime == Lifetime::Permanent, self.read, self.write)
    }
}

/// A token and what is known of its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct History {
    /// What to pass to [`Pool::rollback`].
    pub token: Epoch,
    /// When it was made, in nanoseconds since 1970; 0 for the empty pool.
    pub wall_ns: u64,
    /// Pages that had changed since the token before.
    pub pages_changed: u64,
    /// Segments that had been written since the token before.
    pub segments_written: u64,
}

/// What a pool is.
#[derive(Debug, Clone, PartialEq)]
pub struct Info {
    /// Its identity, the same on all its devices.
    pub uuid: Uuid,
    /// Names of its devices, by controller.
    pub devices: Vec<String>,
    /// Memory it offers, over all controllers.
    pub size: Bytes,
    /// Memory that is allocated.
    pub allocated: Bytes,
    /// Flash it occupies.
    pub flash: Bytes,
    /// Flash that current data and kept versions take.
    pub flash_used: Bytes,
    /// New data that fit before older tokens must be given up.
    pub flash_room: Bytes,
    /// Flash that keeps what was persisted since the last token; 0 without persist regions.
    pub line_log: Bytes,
    /// What is read, cached and written at once.
    pub segment: SegmentSize,
    /// Bytes of a block.
    pub block: Bytes,
    /// Which tokens are kept.
    pub retention: Retention,
    /// Where it is mapped.
    pub base: u64,
    /// The epoch that is open.
    pub open_epoch: Epoch,
}

/// A pool of journaled memory. Clones are handles on the same pool; it is closed by
/// [`Pool::close`], or when the last handle goes.
///
/// # Pointers
/// Memory of a mapped pool may be used through pointers from [`Pool::pointer`] like any other, by
/// several threads. Such pointers are valid until the pool is closed. A load or store that cannot
/// be served raises SIGBUS (damaged data) or SIGSEGV (not allocated, no permission, device full);
/// [`Pool::take_damage`] says why. A child process made by `fork` does not have the memory.
///
/// # Syncs and concurrent stores
/// A sync captures every store that happened before the call. Of the stores that run at the same
/// time it captures those before one moment, the same for all threads and pages.
#[derive(Clone)]
pub struct Pool {
    inner: Arc<Inner>,
}

struct Inner {
    cache: Arc<Cache>,
    stores: Vec<Arc<Store>>,
    counters: Arc<Counters>,
    /// Stop before the region goes; in this order.
    handlers: std::sync::Mutex<Option<Handlers>>,
    keepers: std::sync::Mutex<Vec<JoinHandle<()>>>,
    closed: AtomicBool,
}

impl Pool {
    fn store_at(&self, addr: Addr) -> Result<(u32, &Arc<Store>)> {
        let controller = if addr.is_local() { 0 } else { addr.controller() };
        match self.inner.stores.get(controller as usize) {
            Some(store) if addr.page().0 < store.geometry().pages => Ok((controller, store)),
            _ => Err(PoolError::NotAllocated { address: addr }),
        }
    }

    /// Pages touched by `len` bytes at `addr`, all allocated.
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

    /// Allocates `len` bytes, in whole pages, on the first controller with room.
    ///
    /// # Errors
    /// [`PoolError::NoAddressSpace`]; [`PoolError::Option`] for a length of zero.
    pub fn alloc(&self, len: u64, lifetime: Lifetime) -> Result<Addr> {
        let mut result =
            Err(PoolError::NoAddressSpace { needed: Bytes(len), controller: 0, total: Bytes(0) });
        for controller in 0..self.inner.stores.len() as u32 {
            result = self.alloc_on(controller, len, lifetime);
            if !matches!(result, Err(PoolError::NoAddressSpace { .. })) {
                break;
            }
        }
        result
    }

    /// Allocates on this controller: memory of one controller is consistent by itself, and what
    /// fails together should be there together.
    ///
    /// # Errors
    /// As [`Pool::alloc`]; [`PoolError::Option`] for a controller that is not there.
    pub fn alloc_on(&self, controller: u32, len: u64, lifetime: Lifetime) -> Result<Addr> {
        let Some(store) = self.inner.stores.get(controller as usize) else {
            let problem = format!("{controller} does not exist: the pool has {}", self.inner.stores.len());
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
        let mut log = store.lock_log();
        self.inner.cache.ensure_open()?;
        let first = store.alloc(&mut log, count, status)?;
        self.inner.cache.set_access(controller, first, count, status)?;
        Ok(Addr::new(controller, first.0, 0)?)
    }

    /// Frees the pages that `len` bytes at `addr` touch (the paper's delete). Tokens keep what
    /// they saw of them.
    ///
    /// # Errors
    /// [`PoolError::NotAllocated`], naming the first page that is not; nothing is freed then.
    pub fn free(&self, addr: Addr, len: u64) -> Result<()> {
        let (controller, first, count) = self.pages(addr, len)?;
        let cache = &self.inner.cache;
        let store = &self.inner.stores[controller as usize];
        let mut log = store.lock_log();
        cache.ensure_open()?;
        let mut state = cache.lock();
        let index = cache.index_of(controller, first);
        store.delete(&mut log, first, count)?;
        let segments = index..index + count * cache.segments_per_page();
        cache.forget(&mut state, segments.clone());
        cache.unpin(&mut state, segments);
        drop(state);
        cache.set_access(controller, first, count, Status::default())?;
        drop(log);
        cache.readmit();
        Ok(())
    }

    /// Sets what may be done with the pages that `len` bytes at `addr` touch.
    ///
    /// # Errors
    /// [`PoolError::NotAllocated`], naming the first page that is not; nothing is changed then.
    pub fn setperms(&self, addr: Addr, len: u64, permissions: Permissions) -> Result<()> {
        let (controller, first, count) = self.pages(addr, len)?;
        let store = &self.inner.stores[controller as usize];
        let is_region = |(.., status): &(PageId, u32, Status)| status.persist();
        if permissions.lifetime == Lifetime::Temporary
            && let Some((page, ..)) =
                self.status_runs(controller, first, count)?.iter().find(|run| is_region(run))
        {
            let address = store.address(*page, 0);
            let problem =
                "part of a persist region, which cannot be temporary (remove_pmem_region comes first)";
            return Err(PoolError::PersistRegion { address, problem });
        }
        let mut log = store.lock_log();
        self.inner.cache.ensure_open()?;
        if !permissions.read && !permissions.write {
            self.clean_for_hiding(&mut log, controller, first, count)?;
        }
        // Under the cache's lock, so that no access is between its check and its store.
        let state = self.inner.cache.lock();
        for (first, count, status) in self.status_runs(controller, first, count)? {
            store.set_status(&mut log, first, count, permissions.status().with_persist(status.persist()))?;
        }
        self.inner.cache.set_access(controller, first, count, permissions.status())?;
        drop(state);
        Ok(())
    }

    /// Writes back what is dirty in pages that are about to become unreadable: it could not be
    /// copied from there afterwards.
    fn clean_for_hiding(
        &self,
        log: &mut std::sync::MutexGuard<'_, Log>,
        controller: u32,
        first: PageId,
        count: u32,
    ) -> Result<()> {
        let cache = &self.inner.cache;
        // Readable only, so that nothing becomes dirty again.
        cache.set_access(controller, first, count, Status::new(true, true, false))?;
        let index = cache.index_of(controller, first);
        let segments = index..index + count * cache.segments_per_page();
        let result = cache.clean(log, controller as usize, segments);
        if result.is_err() {
            let store = &self.inner.stores[controller as usize];
            for page in first.0..first.0 + count {
                cache.set_access(controller, PageId(page), 1, store.status(PageId(page))?)?;
            }
        }
        result
    }

    /// What may be done with a page.
    ///
    /// # Errors
    /// [`PoolError::NotAllocated`].
    pub fn permissions(&self, addr: Addr) -> Result<Permissions> {
        let (controller, first, _) = self.pages(addr, 1)?;
        let status = self.inner.stores[controller as usize].status(first)?;
        let lifetime = if status.permanent() { Lifetime::Permanent } else { Lifetime::Temporary };
        Ok(Permissions { read: status.readable(), write: status.writable(), lifetime })
    }

    /// Makes everything stored so far durable and returns a token for that state.
    ///
    /// # Errors
    /// [`PoolError::NoSpace`], [`PoolError::Device`]: nothing has become durable then, nothing is
    /// lost, and a later sync may succeed.
    pub fn sync(&self) -> Result<Epoch> {
        let inner = &self.inner;
        let mut logs: Vec<_> = inner.stores.iter().map(|s| s.lock_log()).collect();
        inner.cache.ensure_open()?;
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
        let cut = inner.cache.cut();
        let result = self.commit_cut(&mut logs, &cut, epoch, wall_ns);
        if result.is_err() && logs.len() > 1 {
            // One controller's commit may have gone out: its log must not go on behind that.
            logs.iter_mut().for_each(|log| log.doubt());
        }
        result?;
        for (store, (log, &lines)) in inner.stores.iter().zip(logs.iter_mut().zip(&cut.lines)) {
            store.close_epoch(wall_ns)?;
            store.retire_lines(log, lines);
        }
        drop(logs);
        add(&inner.counters.syncs, 1);
        inner.cache.readmit();
        inner.cache.nudge();
        Ok(epoch)
    }

    fn commit_cut(
        &self,
        logs: &mut [std::sync::MutexGuard<'_, Log>],
        cut: &Cut,
        epoch: Epoch,
        wall_ns: u64,
    ) -> Result<()> {
        let cache = &self.inner.cache;
        let commit = |controller: usize| Commit::Epoch { epoch, wall_ns, lines: cut.lines[controller] };
        if let ([store], [log], [segments]) = (&self.inner.stores[..], &mut logs[..], &cut.segments[..])
            && store.is_small(log, segments.len())
        {
            return cache.flush(log, 0, segments, Some(commit(0)));
        }
        let mut result = Ok(());
        for (controller, (log, segments)) in logs.iter_mut().zip(&cut.segments).enumerate() {
            if result.is_ok() {
                result = cache.flush(log, controller, segments, None);
            } else {
                cache.unfreeze(segments);
            }
        }
        result?;
        for (store, log) in self.inner.stores.iter().zip(logs.iter_mut()) {
            store.flush_log(log)?;
        }
        for (controller, (store, log)) in self.inner.stores.iter().zip(logs.iter_mut()).enumerate() {
            store.commit(log, commit(controller), &[], &mut |_, _| {}, &mut |_| {})?;
        }
        Ok(())
    }

    /// Returns to a token's state: contents, allocation, permissions, roots. What was stored since
    /// is gone, younger tokens are too. Durable when it returns. No other thread may be using the
    /// memory.
    ///
    /// # Errors
    /// [`PoolError::Token`] for a token that was never given or whose versions are reclaimed;
    /// [`PoolError::Device`]. The state is as before then.
    pub fn rollback(&self, token: Epoch) -> Result<()> {
        let inner = &self.inner;
        let cache = &inner.cache;
        let mut logs: Vec<_> = inner.stores.iter().map(|s| s.lock_log()).collect();
        cache.ensure_open()?;
        for store in &inner.stores {
            store.changed_since(token)?;
        }
        let mut state = cache.lock();
        let lines: Vec<u64> = inner.stores.iter().map(|store| store.cut_lines()).collect();
        // All controllers or none: the tables stay as they are until every commit is there.
        let committed: Result<Vec<_>> = inner
            .stores
            .iter()
            .zip(logs.iter_mut().zip(&lines))
            .map(|(store, (log, &lines))| store.commit_rollback(log, token, lines))
            .collect();
        let mut forgotten = Vec::new();
        let result = committed.and_then(|changes| {
            inner.stores.iter().try_for_each(|store| store.rollback(token))?;
            for (controller, (store, changes)) in (0..).zip(inner.stores.iter().zip(changes)) {
                for (page, segments, status_changed) in changes {
                    let first = cache.index_of(controller, page);
                    forgotten.extend(bits(segments, cache.segments_per_page()).map(|n| first + n));
                    if status_changed {
                        cache.set_access(controller, page, 1, store.status(page)?)?;
                    }
                }
            }
            Ok(())
        });
        if result.is_err() {
            // The logs may say what the tables do not: nothing must go on behind that.
            logs.iter_mut().for_each(|log| log.doubt());
            inner.stores.iter().for_each(|store| store.doubt_lines());
        }
        result?;
        for (store, (log, &lines)) in inner.stores.iter().zip(logs.iter_mut().zip(&lines)) {
            store.retire_lines(log, lines);
        }
        // What is dirty is newer than any token.
        forgotten.extend(cache.dirty(&state));
        cache.forget(&mut state, forgotten);
        drop(state);
        drop(logs);
        cache.readmit();
        Ok(())
    }

    /// The tokens that can be rolled back to, oldest first.
    #[must_use]
    pub fn history(&self) -> Vec<History> {
        history(&self.inner.stores)
    }

    /// Gives a token up, so that the flash of its versions can be reclaimed.
    ///
    /// # Errors
    /// [`PoolError::Token`]; [`PoolError::Volume`] for the last token, which a crash returns to.
    pub fn drop_token(&self, token: Epoch) -> Result<()> {
        for store in &self.inner.stores {
            store.changed_since(token)?;
            store.drop_token(&mut store.lock_log(), token)?;
        }
        self.inner.cache.nudge();
        Ok(())
    }

    /// Changes which tokens are kept from now on.
    pub fn set_retention(&self, retention: Retention) {
        for store in &self.inner.stores {
            store.set_retention(retention);
        }
        self.inner.cache.nudge();
    }

    /// Reads every structure and every segment, current or kept for a token, and checks it.
    /// `progress` is told segments done and segments in all.
    ///
    /// # Errors
    /// [`PoolError::Device`]. What is wrong with the pool is in the report, not an error.
    pub fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Report> {
        let mut report = Report::default();
        for store in &self.inner.stores {
            let mut log = store.lock_log();
            store.check(&mut log, &mut report, progress)?;
        }
        Ok(report)
    }

    /// Brings long version chains together and empties sparsely filled blocks, all that pays.
    /// Returns how many blocks came free.
    ///
    /// # Errors
    /// [`PoolError::Device`].
    pub fn compact(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<u64> {
        let mut freed = 0;
        for store in &self.inner.stores {
            freed += store.compact(&mut store.lock_log(), progress)?;
        }
        Ok(freed)
    }

    /// What the pool is.
    #[must_use]
    pub fn info(&self) -> Info {
        open::info(&self.inner.stores)
    }

    /// Counters since the pool was opened, and the DRAM in use.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.inner.cache.stats()
    }

    /// Why accesses through the mapped address failed since the last call: each of them raised a
    /// signal. Errors of background write-back are here as well.
    #[must_use]
    pub fn take_damage(&self) -> Vec<PoolError> {
        self.inner.cache.take_damage()
    }

    /// Syncs, frees temporary pages and closes the pool. Pointers into it are invalid afterwards,
    /// and other handles give errors or read nothing.
    ///
    /// # Errors
    /// As [`Pool::sync`]; the pool is closed all the same, at its last token.
    pub fn close(self) -> Result<()> {
        self.inner.shut(true)
    }

    /// Closes the pool as a crash would leave it: at its last token, with what was persisted since.
    ///
    /// # Errors
    /// None at present; the signature leaves room.
    pub fn abandon(self) -> Result<()> {
        self.inner.closed.store(true, Ordering::SeqCst);
        self.inner.stop_threads();
        Ok(())
    }
}

/// Numbers of the set bits below `n`.
fn bits(mask: u16, n: u32) -> impl Iterator<Item = u32> {
    (0..n).filter(move |bit| mask >> bit & 1 == 1)
}

impl Inner {
    fn stop_threads(&self) {
        self.cache.stop();
        let mut keepers = lock(&self.keepers);
        for keeper in keepers.drain(..) {
            // Its panic was reported by the runtime already.
            let _ = keeper.join();
        }
        drop(keepers);
        drop(lock(&self.handlers).take());
        self.stores.iter().for_each(|store| store.close_lines());
        // Whatever another handle has begun ends before the memory goes; later calls see that the
        // pool is closed.
        let logs: Vec<_> = self.stores.iter().map(|store| store.lock_log()).collect();
        self.cache.shut();
        drop(logs);
        // Somebody may hold on to `Words`; the devices are free all the same.
        self.stores.iter().for_each(|store| store.device().release());
    }
}

impl Inner {
    fn shut(self: &Arc<Self>, sync: bool) -> Result<()> {
        if self.closed.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let pool = Pool { inner: Arc::clone(self) };
        let result = if sync { pool.finish() } else { Ok(()) };
        self.stop_threads();
        result
    }
}

impl Pool {
    fn finish(&self) -> Result<()> {
        for (controller, store) in (0..).zip(&self.inner.stores) {
            for page in store.temporaries() {
                let addr = Addr::new(controller, page, 0)?;
                self.free(addr, PAGE_BYTES)?;
            }
        }
        self.sync()?;
        for store in &self.inner.stores {
            store.close(&mut store.lock_log())?;
        }
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Without `close` there is nobody to give an error to: the pool stays at its last token,
        // as after a crash.
        if !self.closed.swap(true, Ordering::SeqCst) {
            self.stop_threads();
        }
    }
}

/// The tokens that all controllers have.
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
