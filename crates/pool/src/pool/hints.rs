//! Hints about future accesses, and changes of the DRAM budget.

use deepram_core::{Addr, PageId};

use super::Pool;
use crate::cache::{AccessKind, Handlers, Permit};
use crate::error::Result;
use deepram_linux::buffer::AlignedBuf;
use deepram_linux::lock::lock;
use deepram_pager::service::HandlerGroup;

impl Pool {
    /// Returns the controller and the segments of an allocated range of `len` bytes at `addr`.
    fn segments(&self, addr: Addr, len: u64) -> Result<(usize, std::ops::Range<u32>)> {
        let (controller, ..) = self.pages(addr, len)?;
        let cache = &self.live()?.cache;
        let first = cache.index_of(controller, PageId(0));
        let segment = cache.segment_bytes() as u64;
        let end = (addr.controller_offset() + len).div_ceil(segment);
        Ok((controller as usize, first + (addr.controller_offset() / segment) as u32..first + end as u32))
    }

    /// Brings the range into the DRAM cache in the background, as far as frames are free. Many reads are in flight at
    /// once, and neighbouring segments share a read. A read error shows when a program accesses the segment. A pool
    /// that is not mapped has no handler threads, and reads in the calling thread.
    ///
    /// # Errors
    /// [`PoolError::NotAllocated`](crate::PoolError::NotAllocated); in a pool that is not mapped also the errors of
    /// [`Pool::read`].
    pub fn will_need(&self, addr: Addr, len: u64) -> Result<()> {
        let (_, segments) = self.segments(addr, len)?;
        self.prefetch(segments)
    }

    /// Calls `f` while no thread is bound to a handler's processor. With [`crate::FaultOptions::pin_faulting_threads`], a
    /// program starts threads and processes, and reads the processor affinity of a thread, inside such a call.
    pub fn without_pinning<T>(&self, f: impl FnOnce() -> T) -> T {
        // In a forked child no thread is bound.
        let handler_group = self
            .owned()
            .ok()
            .and_then(|inner| lock(&inner.handlers).as_ref().and_then(Handlers::handler_group));
        let _suspended = handler_group.as_deref().map(HandlerGroup::suspend_pinning);
        f()
    }

    /// Brings the segments at these addresses into the DRAM cache, as [`Pool::will_need`] does.
    ///
    /// # Errors
    /// The errors of [`Pool::will_need`].
    pub fn will_need_pages(&self, addresses: &[Addr]) -> Result<()> {
        let mut all = Vec::with_capacity(addresses.len());
        for &addr in addresses {
            all.extend(self.segments(addr, 1)?.1);
        }
        self.prefetch(all.into_iter())
    }

    fn prefetch(&self, mut segments: impl Iterator<Item = u32>) -> Result<()> {
        let cache = &self.live()?.cache;
        if self.is_mapped() {
            cache.queue_segments(segments);
            return Ok(());
        }
        let mut buffer = AlignedBuf::zeroed(cache.segment_bytes());
        let permit = Permit::unchecked(AccessKind::Read);
        segments.try_for_each(|index| cache.ensure_resident(index, permit, &mut buffer).map(drop))
    }

    /// Evicts the range from the DRAM cache. Dirty segments are written back first, which makes them neither durable
    /// nor part of a token. Segments that a thread stores to during the call stay resident, and so do pinned
    /// segments.
    ///
    /// # Errors
    /// [`PoolError::NotAllocated`](crate::PoolError::NotAllocated) and the errors of write-back. On an error no data
    /// is lost.
    pub fn evict_range(&self, addr: Addr, len: u64) -> Result<()> {
        let (controller, segments) = self.segments(addr, len)?;
        self.live()?.cache.evict_range(controller, segments)
    }

    /// Pins the range in the DRAM cache and reads it at once ([`Pool::will_need`]), or unpins it. Freeing the range
    /// also unpins it. At most half of the frames may be pinned.
    ///
    /// # Errors
    /// [`PoolError::NotAllocated`](crate::PoolError::NotAllocated); [`PoolError::Option`](crate::PoolError::Option)
    /// if too much would be pinned.
    pub fn pin(&self, addr: Addr, len: u64, pinned: bool) -> Result<()> {
        let (_, segments) = self.segments(addr, len)?;
        let cache = &self.live()?.cache;
        if pinned {
            cache.pin(segments.clone())?;
            return self.prefetch(segments);
        }
        cache.unpin(&mut cache.lock(), segments);
        Ok(())
    }

    /// Changes the DRAM budget that [`OpenOptions::dram`](crate::OpenOptions::dram) set, in bytes. A smaller budget
    /// takes effect at once for clean segments, and after write-back for dirty segments. The device buffer never
    /// becomes larger than its bound at opening.
    ///
    /// # Errors
    /// [`PoolError::Budget`](crate::PoolError::Budget) if tables, buffers and the least number of frames do not fit;
    /// [`PoolError::Option`](crate::PoolError::Option) if the pinned segments do not fit. On an error nothing
    /// changes.
    pub fn set_dram(&self, bytes: u64) -> Result<()> {
        self.live()?.cache.set_dram(bytes)
    }
}
