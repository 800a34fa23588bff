//! Hints, and a budget that changes: as the pager has them, with a pool's addresses.

use deepram_core::{Addr, PageId};

use super::Pool;
use crate::buffer::AlignedBuf;
use crate::cache::{Access, Handlers, Right};
use crate::error::Result;
use crate::handler_wakeup::HandlerGroup;
use crate::lock::lock;

impl Pool {
    /// Segments that `len` bytes at `addr` touch, all allocated, and their controller.
    fn segments(&self, addr: Addr, len: u64) -> Result<(usize, std::ops::Range<u32>)> {
        let (controller, ..) = self.pages(addr, len)?;
        let cache = &self.live()?.cache;
        let first = cache.index_of(controller, PageId(0));
        let segment = cache.segment_bytes() as u64;
        let end = (addr.within() + len).div_ceil(segment);
        Ok((controller as usize, first + (addr.within() / segment) as u32..first + end as u32))
    }

    /// Brings what is stored of the range into the DRAM cache, as far as there are frames, in the background: many
    /// reads are under way at once, of neighbours together. Where a segment cannot be read, whoever uses it is told. A
    /// pool that is not mapped has no threads for it and reads in the caller's.
    ///
    /// # Errors
    /// [`PoolError::NotAllocated`](crate::PoolError::NotAllocated); of a pool that is not mapped, those of
    /// [`Pool::read`].
    pub fn will_need(&self, addr: Addr, len: u64) -> Result<()> {
        let (_, segments) = self.segments(addr, len)?;
        self.order(segments)
    }

    /// Calls `f` while every thread may run where the program lets it. With [`crate::FaultOptions::keep`] whoever starts
    /// threads or processes, or asks where a thread may run, does it so.
    pub fn unkept<T>(&self, f: impl FnOnce() -> T) -> T {
        // In a forked child nobody is kept.
        let handler_group = self
            .owned()
            .ok()
            .and_then(|inner| lock(&inner.handlers).as_ref().and_then(Handlers::handler_group));
        let _unkept = handler_group.as_deref().map(HandlerGroup::suspend_pinning);
        f()
    }

    /// [`Pool::will_need`] for the segments in which these addresses lie.
    ///
    /// # Errors
    /// As [`Pool::will_need`].
    pub fn will_need_pages(&self, addresses: &[Addr]) -> Result<()> {
        let mut all = Vec::with_capacity(addresses.len());
        for &addr in addresses {
            all.extend(self.segments(addr, 1)?.1);
        }
        self.order(all.into_iter())
    }

    fn order(&self, mut segments: impl Iterator<Item = u32>) -> Result<()> {
        let cache = &self.live()?.cache;
        if self.is_mapped() {
            cache.order_segments(segments);
            return Ok(());
        }
        let mut buffer = AlignedBuf::zeroed(cache.segment_bytes());
        let right = Right::unchecked(Access::Read);
        segments.try_for_each(|index| cache.resident(index, right, &mut buffer).map(drop))
    }

    /// Takes the range out of the DRAM cache; what is dirty of it is written first, which makes it neither durable nor
    /// part of a token. What is stored to meanwhile stays, and so does what is pinned.
    ///
    /// # Errors
    /// [`PoolError::NotAllocated`](crate::PoolError::NotAllocated), and those of write-back: nothing is lost then.
    pub fn cold(&self, addr: Addr, len: u64) -> Result<()> {
        let (controller, segments) = self.segments(addr, len)?;
        self.live()?.cache.cold(controller, segments)
    }

    /// Keeps the range in the DRAM cache, where it is brought at once ([`Pool::will_need`]), or no longer. Freeing it
    /// ends that too. At most half of the frames may be pinned.
    ///
    /// # Errors
    /// [`PoolError::NotAllocated`](crate::PoolError::NotAllocated); [`PoolError::Option`](crate::PoolError::Option) if
    /// that were too much.
    pub fn pin(&self, addr: Addr, len: u64, pinned: bool) -> Result<()> {
        let (_, segments) = self.segments(addr, len)?;
        let cache = &self.live()?.cache;
        if pinned {
            cache.pin(segments.clone())?;
            return self.order(segments);
        }
        cache.unpin(&mut cache.lock(), segments);
        Ok(())
    }

    /// Changes the budget that [`OpenOptions::dram`](crate::OpenOptions::dram) set, in bytes. A smaller one takes effect
    /// at once as far as segments are clean, and as they are written for the others. The device buffer does not become
    /// larger than it could be at opening.
    ///
    /// # Errors
    /// [`PoolError::Budget`](crate::PoolError::Budget) if tables, buffers and the fewest frames do not fit;
    /// [`PoolError::Option`](crate::PoolError::Option) if what is pinned does not. Nothing changes then.
    pub fn set_dram(&self, bytes: u64) -> Result<()> {
        self.live()?.cache.set_dram(bytes)
    }
}
