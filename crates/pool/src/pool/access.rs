//! Reads and writes by call: they return errors instead of raising signals, and need no userfaultfd.

use deepram_core::{Addr, Epoch, PageId};

use super::Pool;
use crate::cache::{AccessKind, Permit, permission_error};
use crate::error::{PoolError, Result};
use crate::region::WatchError;
use deepram_linux::buffer::AlignedBuf;

/// The part of an access that lies in one segment.
pub(super) struct SegmentPart {
    pub(super) index: u32,
    pub(super) page: PageId,
    /// Offset in the mapped region, in bytes.
    pub(super) offset: usize,
    /// Range in the caller's buffer.
    pub(super) range: std::ops::Range<usize>,
}

impl Pool {
    /// Splits an access by a program into its segments. Page 0 belongs to the pool.
    ///
    /// # Errors
    /// [`PoolError::NotAllocated`] for page 0 and for addresses beyond the pool; [`PoolError::Address`].
    pub(super) fn segment_parts(
        &self,
        addr: Addr,
        len: usize,
    ) -> Result<impl Iterator<Item = SegmentPart> + use<>> {
        if addr.page() == PageId(0) && len > 0 {
            return Err(PoolError::NotAllocated { address: addr });
        }
        self.segment_parts_unchecked(addr, len)
    }

    /// Splits an access into its segments. The access may include page 0.
    pub(super) fn segment_parts_unchecked(
        &self,
        addr: Addr,
        len: usize,
    ) -> Result<impl Iterator<Item = SegmentPart> + use<>> {
        let (controller, _) = self.store_at(addr)?;
        addr.offset_by((len as u64).max(1) - 1)?;
        let cache = &self.live()?.cache;
        let segment = cache.segment_bytes();
        let page_segments = cache.segments_per_page();
        let start = cache.index_of(controller, PageId(0)) as usize * segment;
        let within = addr.controller_offset() as usize;
        let mut done = 0;
        Ok(std::iter::from_fn(move || {
            (done < len).then(|| {
                let at = within + done;
                let n = (segment - at % segment).min(len - done);
                let part = SegmentPart {
                    index: ((start + at) / segment) as u32,
                    page: PageId((at / segment) as u32 / page_segments),
                    offset: start + at,
                    range: done..done + n,
                };
                done += n;
                part
            })
        }))
    }

    /// Checks that a segment may be accessed, and returns a permit with which the cache detects a later change of the
    /// permissions.
    pub(super) fn permit(&self, index: u32, access: AccessKind) -> Result<Permit> {
        let cache = &self.live()?.cache;
        let permit = cache.permit(access);
        cache.check_access(index, access)?;
        Ok(permit)
    }

    /// Copies bytes out of the pool into `to`, and brings their segments into the DRAM cache. Memory that was never
    /// written reads as zeros. Use [`Pool::load`] for bytes that the program will not use again soon.
    ///
    /// # Errors
    /// [`PoolError::NotAllocated`], [`PoolError::Permission`], [`PoolError::Damaged`] (damaged bytes are never
    /// returned as data), [`PoolError::Device`]. On an error the contents of `to` are undefined.
    pub fn read(&self, addr: Addr, to: &mut [u8]) -> Result<()> {
        if let Some((memory, offset)) = self.in_place(addr)? {
            return memory.read(offset, to);
        }
        let mut buffer = AlignedBuf::zeroed(self.live()?.cache.segment_bytes());
        self.read_with(addr, to, &mut buffer)
    }

    /// [`Pool::read`] with a buffer of one segment.
    pub(super) fn read_with(&self, addr: Addr, to: &mut [u8], buffer: &mut [u8]) -> Result<()> {
        for part in self.segment_parts(addr, to.len())? {
            let permit = self.permit(part.index, AccessKind::Read)?;
            let cache = &self.live()?.cache;
            let guard = cache.ensure_resident(part.index, permit, buffer)?;
            cache.region.copy_out(part.offset, &mut to[part.range]);
            drop(guard);
        }
        Ok(())
    }

    /// Copies bytes into the pool. They become durable at the next [`Pool::sync`]; on a memory controller also by
    /// [`Pool::persist`].
    ///
    /// # Errors
    /// [`PoolError::NotAllocated`], [`PoolError::Permission`], [`PoolError::NoSpace`], [`PoolError::Device`]. On an
    /// error the bytes before the failing one may have been written.
    pub fn write(&self, addr: Addr, from: &[u8]) -> Result<()> {
        if let Some((memory, offset)) = self.in_place(addr)? {
            return memory.write(offset, from);
        }
        let mut buffer = AlignedBuf::zeroed(self.live()?.cache.segment_bytes());
        self.write_with(addr, from, &mut buffer)
    }

    /// [`Pool::write`] with a buffer of one segment.
    pub(super) fn write_with(&self, addr: Addr, from: &[u8], buffer: &mut [u8]) -> Result<()> {
        for part in self.segment_parts(addr, from.len())? {
            let permit = self.permit(part.index, AccessKind::Write)?;
            self.write_part(&part, &from[part.range.clone()], permit, buffer)?;
        }
        Ok(())
    }

    /// Copies bytes into the pool without a check of permissions.
    pub(super) fn write_unchecked(&self, addr: Addr, from: &[u8], buffer: &mut [u8]) -> Result<()> {
        let permit = Permit::unchecked(AccessKind::Write);
        self.segment_parts(addr, from.len())?
            .try_for_each(|part| self.write_part(&part, &from[part.range.clone()], permit, buffer))
    }

    pub(super) fn write_part(
        &self,
        part: &SegmentPart,
        from: &[u8],
        permit: Permit,
        buffer: &mut [u8],
    ) -> Result<()> {
        let cache = &self.live()?.cache;
        let guard = match cache.ensure_resident(part.index, permit, buffer) {
            Err(PoolError::NoSpace { .. }) => {
                // Make room by write-back and by giving up older tokens. If the second attempt fails too, its error
                // is final.
                cache.make_flash_room(part.index)?;
                cache.ensure_resident(part.index, permit, buffer)?
            }
            other => other?,
        };
        cache.region.copy_in(part.offset, from);
        drop(guard);
        Ok(())
    }

    /// Copies bytes out of the pool as they were at a token, without a rollback.
    ///
    /// # Errors
    /// [`PoolError::Token`] and the errors of [`Pool::read`]. The permissions of now apply, or those at the token for
    /// a page that has been freed since. A page that was not allocated at the token is [`PoolError::NotAllocated`].
    pub fn read_at(&self, token: Epoch, addr: Addr, to: &mut [u8]) -> Result<()> {
        let (_, store) = self.store_at(addr)?;
        let cache = &self.live()?.cache;
        let segment = cache.segment_bytes();
        let mut buffer = AlignedBuf::zeroed(segment);
        for part in self.segment_parts(addr, to.len())? {
            let (_, page, number) = cache.store_of(part.index);
            let then = store.status_at(token, page)?;
            let now = store.status(page)?;
            let status = if now.allocated() { now } else { then };
            let address = store.address(page, 0);
            if !then.allocated() {
                return Err(PoolError::NotAllocated { address });
            }
            if !status.readable() {
                return Err(permission_error(address, "read", status));
            }
            store.read_at(token, page, number, &mut buffer)?;
            let from = part.offset % segment;
            to[part.range.clone()].copy_from_slice(&buffer[from..from + part.range.len()]);
        }
        Ok(())
    }

    /// Returns whether the pool is mapped, so that [`Pool::pointer`] works.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        self.unchecked().cache.region.is_watched()
    }

    /// Returns the first address of the mapped memory of all journaled controllers and its length in bytes; `None` if the
    /// pool is not mapped. The range stays reserved, and inaccessible, after the pool is closed, as long as a handle lives.
    #[must_use]
    pub fn mapped_range(&self) -> Option<(usize, usize)> {
        let region = &self.unchecked().cache.region;
        region.is_watched().then(|| (region.base().addr(), region.len()))
    }

    /// Returns the pointer to `len` allocated bytes at `addr`. The pointer is the same at every opening, so that
    /// memory of the pool may hold pointers into the pool.
    ///
    /// # Errors
    /// [`PoolError::NotAllocated`]; [`PoolError::Watch`] if the pool was opened without mapping.
    pub fn pointer(&self, addr: Addr, len: u64) -> Result<*mut u8> {
        if let Some((memory, offset)) = self.in_place(addr)? {
            return memory.pointer(offset, len);
        }
        let cache = &self.live()?.cache;
        let region = &cache.region;
        if !region.is_watched() {
            let source = std::io::Error::other("the pool was opened without mapping");
            return Err(WatchError::Unavailable { source }.into());
        }
        let (controller, ..) = self.pages(addr, len)?;
        let start = cache.index_of(controller, PageId(0)) as usize * cache.segment_bytes();
        Ok(region.base().wrapping_add(start + addr.controller_offset() as usize))
    }

    /// Returns the pool address of a pointer into the mapped memory; `None` for any other pointer.
    #[must_use]
    pub fn address_of(&self, pointer: *const u8) -> Option<Addr> {
        let inner = self.unchecked();
        for (controller, memory) in (inner.stores.len() as u32..).zip(&inner.memories) {
            if let Some(offset) = memory.offset_of(pointer) {
                return Addr::new(controller, 0, 0).ok()?.offset_by(offset).ok();
            }
        }
        let cache = &inner.cache;
        let region = &cache.region;
        let offset = pointer.addr().checked_sub(region.base().addr()).filter(|&o| o < region.len())?;
        let segment = cache.segment_bytes();
        let base = cache.address((offset / segment) as u32);
        base.offset_by((offset % segment) as u64).ok()
    }
}
