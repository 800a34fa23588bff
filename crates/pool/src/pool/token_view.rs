//! A read-only view of an older token beside the live memory: mapped, and filled on page faults like the pool itself.
//!
//! The view has a range of addresses of its own, watched by a userfaultfd of its own. One thread serves its faults: it
//! reads the segment's version of the token and installs it. Nothing is ever written back, so the oldest segments are
//! simply dropped when the view's DRAM is used up.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use deepram_core::{Addr, Bytes, Epoch, PageId};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::Pool;
use crate::error::{PoolError, Result};
use crate::options::Mapping;
use crate::region::{Region, WatchError};
use deepram_linux::buffer::AlignedBuf;
use deepram_linux::lock::lock;
use deepram_linux::signals::spawn;
use deepram_linux::uffd::WatchMode;

/// Fewest segments that a view keeps in DRAM.
const LEAST_SEGMENTS: usize = 64;
/// Segments dropped at once when the DRAM of a view is used up.
const SEGMENTS_PER_DROP: usize = 16;
/// Largest number of errors kept for [`TokenView::take_errors`].
const MAX_ERRORS: usize = 64;

/// The memory of a pool as it was at a token, mapped for reading beside the live memory.
///
/// An access that cannot be served raises SIGBUS (before Linux 6.6 SIGSEGV): the page was not allocated at the token or
/// is damaged, the token has been given up, or the pool is closed. [`TokenView::take_errors`] returns the reason. A
/// store raises SIGSEGV. In a forked child the memory is not mapped.
pub struct TokenView {
    shared: Arc<Shared>,
    handler: Option<JoinHandle<()>>,
}

struct Shared {
    pool: Pool,
    token: Epoch,
    region: Region,
    segment_bytes: usize,
    /// Most segments in DRAM.
    limit: usize,
    errors: Mutex<Vec<PoolError>>,
    stop: OwnedFd,
}

impl Pool {
    /// Maps the state of a token for reading, with at most `dram` bytes of it in DRAM, which come on top of the pool's
    /// own budget. Take the view away from the pool's budget by [`Pool::set_dram`] to stay within a bound. With
    /// [`Mapping::UserOnly`], system calls on memory of the view that is not resident fail with `EFAULT`.
    ///
    /// # Errors
    /// [`PoolError::Token`]; [`PoolError::Watch`] where memory cannot be mapped; [`PoolError::Option`] for
    /// [`Mapping::Off`] and for less than 64 segments of DRAM.
    pub fn view_at(&self, token: Epoch, dram: u64, mapping: Mapping) -> Result<TokenView> {
        let inner = self.live()?;
        for store in &inner.stores {
            store.changed_since(token)?;
        }
        let mode = match mapping {
            Mapping::Full => WatchMode::All,
            Mapping::UserOnly => WatchMode::UserOnly,
            Mapping::Off => {
                let problem = "a view is mapped: give Mapping::Full or Mapping::UserOnly".into();
                return Err(PoolError::Option { option: "mapping", problem });
            }
        };
        let segment_bytes = inner.cache.segment_bytes();
        let limit = usize::try_from(dram).unwrap_or(usize::MAX) / segment_bytes;
        if limit < LEAST_SEGMENTS {
            let least = Bytes((LEAST_SEGMENTS * segment_bytes) as u64);
            let problem = format!("{} is too little for a view: give at least {least}", Bytes(dram));
            return Err(PoolError::Option { option: "dram", problem });
        }
        let mut region = Region::map(None, inner.cache.region.len())?;
        region.set_protection(0, region.len(), true, false).map_err(system("mprotect"))?;
        region.watch(mode)?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| system("eventfd")(error.into()))?;
        let errors = Mutex::default();
        let shared = Shared { pool: self.clone(), token, region, segment_bytes, limit, errors, stop };
        let shared = Arc::new(shared);
        let served = Arc::clone(&shared);
        let handler = spawn("deepram-view", None, move || served.serve());
        let handler = Some(handler.map_err(system("starting a thread"))?);
        Ok(TokenView { shared, handler })
    }
}

fn system(what: &'static str) -> impl Fn(std::io::Error) -> WatchError {
    move |source| WatchError::System { what, source }
}

impl TokenView {
    /// Returns the token.
    #[must_use]
    pub fn token(&self) -> Epoch {
        self.shared.token
    }

    /// Returns the pointer to the bytes at `addr` as they were at the token. It is valid as long as the view lives.
    ///
    /// # Errors
    /// [`PoolError::NotAllocated`] if a page of the range was not allocated at the token; [`PoolError::Token`].
    pub fn pointer(&self, addr: Addr, len: u64) -> Result<*const u8> {
        let Shared { pool, token, region, segment_bytes, .. } = &*self.shared;
        let (controller, store) = pool.store_at(addr)?;
        let last = addr.offset_by(len.max(1) - 1)?.page().0;
        for page in addr.page().0..=last {
            if page == 0 || !store.status_at(*token, PageId(page))?.allocated() {
                return Err(PoolError::NotAllocated { address: Addr::new(controller, page, 0)? });
            }
        }
        let start = pool.live()?.cache.index_of(controller, PageId(0)) as usize * segment_bytes;
        Ok(region.base().wrapping_add(start + addr.controller_offset() as usize).cast_const())
    }

    /// Returns the first address of the mapped memory and its length, in bytes.
    #[must_use]
    pub fn range(&self) -> (usize, usize) {
        (self.shared.region.base().addr(), self.shared.region.len())
    }

    /// Returns and clears the reasons why accesses failed.
    #[must_use]
    pub fn take_errors(&self) -> Vec<PoolError> {
        std::mem::take(&mut lock(&self.shared.errors))
    }
}

impl Drop for TokenView {
    fn drop(&mut self) {
        // In a forked child the thread does not exist.
        if self.shared.pool.owned().is_err() {
            std::mem::forget(self.handler.take());
            std::mem::forget(Arc::clone(&self.shared));
            return;
        }
        // Writing to an eventfd that is far below its maximum cannot fail.
        let _ = rustix::io::write(&self.shared.stop, &1_u64.to_ne_bytes());
        if let Some(handler) = self.handler.take() {
            // The runtime has already reported a panic of the thread.
            let _ = handler.join();
        }
    }
}

impl Shared {
    /// Serves page faults until the view is dropped.
    fn serve(&self) {
        let Some(watcher) = self.region.watcher() else { return };
        let mut resident = VecDeque::new();
        let mut buffer = AlignedBuf::zeroed(self.segment_bytes);
        let mut next = usize::MAX;
        loop {
            let faults = watcher.as_fd();
            let mut waiting = [PollFd::new(&faults, PollFlags::IN), PollFd::new(&self.stop, PollFlags::IN)];
            let polled = poll(&mut waiting, None);
            if polled.is_ok() && waiting[1].revents().contains(PollFlags::IN) {
                return;
            }
            while let Ok(Some(fault)) = self.region.next_fault() {
                let first = self.region.offset_of(fault.address) / self.segment_bytes;
                // A fault that follows the one before reads to the end of its page.
                let end = if first == next { self.page_end(first) } else { first + 1 };
                for number in first..end {
                    if !self.fill(number, number == first, &mut buffer, &mut resident) {
                        break;
                    }
                    next = number + 1;
                }
            }
        }
    }

    fn page_end(&self, number: usize) -> usize {
        let per_page = deepram_core::units::PAGE_BYTES as usize / self.segment_bytes;
        (number / per_page + 1) * per_page
    }

    /// Brings a segment in. Returns `false` if it cannot; the accesses that wait for it then fail, if there are any.
    fn fill(
        &self,
        number: usize,
        wanted: bool,
        buffer: &mut AlignedBuf,
        resident: &mut VecDeque<usize>,
    ) -> bool {
        let offset = number * self.segment_bytes;
        let installed = self.fetch(number, buffer).and_then(|()| {
            self.make_room(resident)?;
            match self.region.install(offset, buffer, false) {
                Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(false),
                done => done.map(|()| true).map_err(|error| system("UFFDIO_COPY")(error).into()),
            }
        });
        match installed {
            Ok(true) => resident.push_back(number),
            // Another fault of the same segment has been served.
            Ok(false) => drop(self.region.wake(offset, self.segment_bytes)),
            Err(error) if wanted => {
                let mut errors = lock(&self.errors);
                if errors.len() < MAX_ERRORS {
                    errors.push(error);
                }
                drop(errors);
                if self.region.poison(offset, self.segment_bytes).is_err() {
                    // A signal is better than a thread that waits for ever.
                    let _ = self.region.set_protection(offset, self.segment_bytes, false, false);
                    let _ = self.region.wake(offset, self.segment_bytes);
                }
                return false;
            }
            Err(_) => return false,
        }
        true
    }

    fn fetch(&self, number: usize, buffer: &mut [u8]) -> Result<()> {
        let cache = &self.pool.live()?.cache;
        let (store, page, segment) = cache.store_of(number as u32);
        if !store.status_at(self.token, page)?.allocated() {
            return Err(PoolError::NotAllocated { address: store.address(page, segment) });
        }
        store.read_at(self.token, page, segment, buffer)
    }

    /// Drops the oldest segments if the DRAM is used up.
    fn make_room(&self, resident: &mut VecDeque<usize>) -> Result<()> {
        if resident.len() < self.limit {
            return Ok(());
        }
        let oldest = resident.drain(..SEGMENTS_PER_DROP);
        let ranges: Vec<_> = oldest.map(|number| (number * self.segment_bytes, self.segment_bytes)).collect();
        self.region.discard(&ranges).map_err(|error| system("madvise(MADV_DONTNEED)")(error).into())
    }
}
