//! What a program that keeps objects in a pool needs to know about older states: whether memory was allocated then,
//! which ranges have changed since, and a way to keep an address range out of use.

use deepram_core::units::PAGE_BYTES;
use deepram_core::{Addr, Epoch, PageId};

use super::{Lifetime, Permissions, Pool};
use crate::error::{PoolError, Result};

impl Pool {
    /// Allocates the pages of `len` bytes at `addr`, all of which must be free: a rollback has freed them, and pointers
    /// into them are still in use. The memory reads as zeros.
    ///
    /// # Errors
    /// [`PoolError::Option`] if a page is allocated or `addr` is not a multiple of 64 KiB; [`PoolError::NotAllocated`]
    /// for addresses beyond the pool. On an error nothing has changed.
    pub fn alloc_at(&self, addr: Addr, len: u64, lifetime: Lifetime) -> Result<()> {
        let (controller, store) = self.store_at(addr)?;
        let first = addr.page().0;
        let count = u32::try_from(len.max(1).div_ceil(PAGE_BYTES)).unwrap_or(u32::MAX);
        let end = first.checked_add(count).filter(|&end| end <= store.geometry().pages);
        let Some(end) = end.filter(|_| first > 0) else {
            return Err(PoolError::NotAllocated { address: addr });
        };
        if !addr.controller_offset().is_multiple_of(PAGE_BYTES) {
            let problem = format!("{addr} is not a multiple of 64 KiB, the size of a page");
            return Err(PoolError::Option { option: "address", problem });
        }
        let mut log = self.live()?.log(controller as usize)?;
        if let Some(page) = (first..end).find(|&page| store.is_allocated(PageId(page))) {
            let problem = format!("{} is allocated already", Addr::new(controller, page, 0)?);
            return Err(PoolError::Option { option: "address", problem });
        }
        let status = Permissions::read_write(lifetime).status();
        let given = self.set_status(&mut log, controller, &[(PageId(first), count, status)]);
        if given.is_err() {
            let done = (first..end).take_while(|&page| store.is_allocated(PageId(page))).count();
            self.free_pages(&mut log, controller, PageId(first), done as u32)?;
        }
        given
    }

    /// Returns the runs of temporary pages, as address and length in bytes. After a rollback there may be some that nobody
    /// uses any more.
    ///
    /// # Errors
    /// [`PoolError::Closed`], [`PoolError::ForkedChild`].
    pub fn temporary_ranges(&self) -> Result<Vec<(Addr, u64)>> {
        let mut ranges = Vec::new();
        for (controller, store) in (0..).zip(&self.live()?.stores) {
            for run in store.temporaries().chunk_by(|a, b| a + 1 == *b) {
                ranges.push((Addr::new(controller, run[0], 0)?, run.len() as u64 * PAGE_BYTES));
            }
        }
        Ok(ranges)
    }

    /// Returns whether any page of the range was allocated in the state of a token.
    ///
    /// # Errors
    /// [`PoolError::Token`]; [`PoolError::NotAllocated`] for addresses beyond the pool.
    pub fn any_allocated_at(&self, token: Epoch, addr: Addr, len: u64) -> Result<bool> {
        let (_, store) = self.store_at(addr)?;
        let last = addr.offset_by(len.max(1) - 1)?.page().0;
        for page in addr.page().0..=last {
            if store.status_at(token, PageId(page))?.allocated() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the parts of a range, as offsets from `addr`, that were written between two tokens, or between a token
    /// and now (`to` is `None`), in ascending order. Their borders are those of segments, cut to the range. A part that
    /// was written with the bytes that it already had counts as changed. The order of the tokens makes no difference.
    ///
    /// # Errors
    /// [`PoolError::Token`], [`PoolError::NotAllocated`] for addresses beyond the pool, [`PoolError::Device`].
    pub fn changed_between(
        &self,
        from: Epoch,
        to: Option<Epoch>,
        addr: Addr,
        len: u64,
    ) -> Result<Vec<std::ops::Range<u64>>> {
        let (controller, store) = self.store_at(addr)?;
        let cache = &self.live()?.cache;
        let (segment, per_page) = (cache.segment_bytes() as u64, cache.segments_per_page());
        let start = addr.controller_offset();
        let last = addr.offset_by(len.max(1) - 1)?.page().0;
        let first = addr.page().0;
        let older = to.map_or(from, |to| to.min(from));
        let mut changed: Vec<u64> = Vec::new();
        for page in store.changed_since(older)?.into_iter().filter(|page| (first..=last).contains(&page.0)) {
            let segments = store.differing_segments(page, from, to)?;
            changed.extend(super::bits(segments, per_page).map(|n| u64::from(page.0 * per_page + n)));
        }
        if let Some(to) = to {
            store.changed_since(to)?;
        } else {
            // Stores that no sync and no write-back has seen are in the DRAM cache alone.
            let state = cache.lock();
            let base = cache.index_of(controller, PageId(0));
            let end = cache.index_of(controller, PageId(last)) + per_page;
            let dirty = cache.dirty(&state).into_iter().filter(|index| (base..end).contains(index));
            changed.extend(dirty.map(|index| u64::from(index - base)));
        }
        changed.sort_unstable();
        changed.dedup();
        let mut ranges: Vec<std::ops::Range<u64>> = Vec::new();
        for number in changed {
            let from = (number * segment).max(start) - start;
            let to = ((number + 1) * segment).min(start + len).saturating_sub(start);
            match ranges.last_mut() {
                _ if from >= to => {}
                Some(range) if range.end == from => range.end = to,
                _ => ranges.push(from..to),
            }
        }
        Ok(ranges)
    }
}
