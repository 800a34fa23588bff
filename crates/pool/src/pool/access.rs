//! Loads and stores by call: with errors instead of signals, and without userfaultfd.

use deepram_core::{Addr, Epoch, PageId};

use super::Pool;
use crate::buffer::AlignedBuf;
use crate::cache::Access;
use crate::error::{PoolError, Result};
use crate::region::WatchError;

/// One segment's part of an access.
pub(super) struct Piece {
    pub(super) index: u32,
    pub(super) page: PageId,
    /// Byte in the mapped region.
    pub(super) offset: usize,
    /// Bytes of the caller's buffer.
    pub(super) range: std::ops::Range<usize>,
}

impl Pool {
    pub(super) fn pieces(&self, addr: Addr, len: usize) -> Result<impl Iterator<Item = Piece> + use<>> {
        let (controller, _) = self.store_at(addr)?;
        addr.offset_by((len as u64).max(1) - 1)?;
        let cache = &self.inner.cache;
        let segment = cache.segment_bytes();
        let page_segments = cache.segments_per_page();
        let start = cache.index_of(controller, PageId(0)) as usize * segment;
        let within = addr.within() as usize;
        let mut done = 0;
        Ok(std::iter::from_fn(move || {
            (done < len).then(|| {
                let at = within + done;
                let n = (segment - at % segment).min(len - done);
                let piece = Piece {
                    index: ((start + at) / segment) as u32,
                    page: PageId((at / segment) as u32 / page_segments),
                    offset: start + at,
                    range: done..done + n,
                };
                done += n;
                piece
            })
        }))
    }

    pub(super) fn permit(&self, addr: Addr, page: PageId, access: Access) -> Result<()> {
        let (_, store) = self.store_at(addr)?;
        let status = store.status(page)?;
        let address = Addr::new(addr.controller(), page.0, 0)?;
        if !status.allocated() {
            return Err(PoolError::NotAllocated { address });
        }
        let (allowed, what) = match access {
            Access::Read => (status.readable(), "read"),
            Access::Write => (status.writable(), "written"),
        };
        if allowed {
            return Ok(());
        }
        let permissions = match (status.readable(), status.writable()) {
            (true, false) => "read-only",
            (false, true) => "write-only",
            _ => "not accessible",
        };
        Err(PoolError::Permission { address, what, permissions })
    }

    /// Copies bytes out of the pool. Memory that was never written reads as zeros.
    ///
    /// # Errors
    /// [`PoolError::NotAllocated`], [`PoolError::Permission`], [`PoolError::Damaged`] (never
    /// damaged bytes), [`PoolError::Device`]. The buffer's contents are undefined then.
    pub fn read(&self, addr: Addr, to: &mut [u8]) -> Result<()> {
        let mut buffer = AlignedBuf::zeroed(self.inner.cache.segment_bytes());
        self.read_with(addr, to, &mut buffer)
    }

    /// [`Pool::read`] with memory for a segment.
    pub(super) fn read_with(&self, addr: Addr, to: &mut [u8], buffer: &mut [u8]) -> Result<()> {
        for piece in self.pieces(addr, to.len())? {
            self.permit(addr, piece.page, Access::Read)?;
            let guard = self.inner.cache.resident(piece.index, Access::Read, buffer)?;
            self.inner.cache.region.copy_out(piece.offset, &mut to[piece.range]);
            drop(guard);
        }
        Ok(())
    }

    /// Copies bytes into the pool. Durable after the next [`Pool::sync`].
    ///
    /// # Errors
    /// [`PoolError::NotAllocated`], [`PoolError::Permission`], [`PoolError::NoSpace`],
    /// [`PoolError::Device`]. Bytes before the one at fault may have been written.
    pub fn write(&self, addr: Addr, from: &[u8]) -> Result<()> {
        let mut buffer = AlignedBuf::zeroed(self.inner.cache.segment_bytes());
        self.write_with(addr, from, &mut buffer)
    }

    /// [`Pool::write`] with memory for a segment.
    pub(super) fn write_with(&self, addr: Addr, from: &[u8], buffer: &mut [u8]) -> Result<()> {
        for piece in self.pieces(addr, from.len())? {
            self.permit(addr, piece.page, Access::Write)?;
            self.put_piece(&piece, &from[piece.range.clone()], buffer)?;
        }
        Ok(())
    }

    /// Copies bytes into the pool, whatever the permissions.
    pub(super) fn put(&self, addr: Addr, from: &[u8], buffer: &mut [u8]) -> Result<()> {
        self.pieces(addr, from.len())?
            .try_for_each(|piece| self.put_piece(&piece, &from[piece.range.clone()], buffer))
    }

    fn put_piece(&self, piece: &Piece, from: &[u8], buffer: &mut [u8]) -> Result<()> {
        let cache = &self.inner.cache;
        let guard = match cache.resident(piece.index, Access::Write, buffer) {
            Err(PoolError::NoSpace { .. }) => {
                // Older tokens give way; then it works or the error is final.
                cache.relieve(piece.index)?;
                cache.resident(piece.index, Access::Write, buffer)?
            }
            other => other?,
        };
        cache.region.copy_in(piece.offset, from);
        drop(guard);
        Ok(())
    }

    /// Copies bytes as they were at a token, without rolling back.
    ///
    /// # Errors
    /// [`PoolError::Token`]; as [`Pool::read`], but for permissions, which are those of now.
    pub fn read_at(&self, token: Epoch, addr: Addr, to: &mut [u8]) -> Result<()> {
        let (_, store) = self.store_at(addr)?;
        let segment = self.inner.cache.segment_bytes();
        let mut buffer = AlignedBuf::zeroed(segment);
        for piece in self.pieces(addr, to.len())? {
            let (_, page, number) = self.inner.cache.store_of(piece.index);
            store.read_at(token, page, number, &mut buffer)?;
            let from = piece.offset % segment;
            to[piece.range.clone()].copy_from_slice(&buffer[from..from + piece.range.len()]);
        }
        Ok(())
    }

    /// Whether the pool is mapped, so that [`Pool::pointer`] works.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        self.inner.cache.region.is_watched()
    }

    /// The pointer to `len` allocated bytes at `addr`. The same at every opening, so that memory
    /// of the pool may hold pointers into itself.
    ///
    /// # Errors
    /// [`PoolError::NotAllocated`]; [`PoolError::Watch`] for a pool that was opened unmapped.
    pub fn pointer(&self, addr: Addr, len: u64) -> Result<*mut u8> {
        let region = &self.inner.cache.region;
        if !region.is_watched() {
            let source = std::io::Error::other("the pool was opened without mapping");
            return Err(WatchError::Unavailable { source }.into());
        }
        let (controller, ..) = self.pages(addr, len)?;
        let start =
            self.inner.cache.index_of(controller, PageId(0)) as usize * self.inner.cache.segment_bytes();
        Ok(region.base().wrapping_add(start + addr.within() as usize))
    }

    /// The pool address of a pointer into the mapped range; `None` outside it.
    #[must_use]
    pub fn address_of(&self, pointer: *const u8) -> Option<Addr> {
        let region = &self.inner.cache.region;
        let offset = pointer.addr().checked_sub(region.base().addr()).filter(|&o| o < region.len())?;
        let segment = self.inner.cache.segment_bytes();
        let base = self.inner.cache.address((offset / segment) as u32);
        base.offset_by((offset % segment) as u64).ok()
    }
}
