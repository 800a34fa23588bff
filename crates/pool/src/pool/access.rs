//! Loads and stores by call: with errors instead of signals, and without userfaultfd.

use deepram_core::{Addr, Epoch, PageId};

use super::Pool;
use crate::buffer::AlignedBuf;
use crate::cache::{Access, Right, refused};
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
    /// The parts of an access that a program makes. Page 0 is the pool's own.
    ///
    /// # Errors
    /// [`PoolError::NotAllocated`] for page 0, or beyond the pool; [`PoolError::Address`].
    pub(super) fn pieces(&self, addr: Addr, len: usize) -> Result<impl Iterator<Item = Piece> + use<>> {
        if addr.page() == PageId(0) && len > 0 {
            return Err(PoolError::NotAllocated { address: addr });
        }
        self.own_pieces(addr, len)
    }

    /// The parts of an access to any page.
    pub(super) fn own_pieces(&self, addr: Addr, len: usize) -> Result<impl Iterator<Item = Piece> + use<>> {
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

    /// Finds out whether an access to a segment is allowed, and gives what the cache keeps it so by.
    pub(super) fn permit(&self, index: u32, access: Access) -> Result<Right> {
        let cache = &self.live()?.cache;
        let right = cache.right(access);
        cache.check(index, access)?;
        Ok(right)
    }

    /// Copies bytes out of the pool. Memory that was never written reads as zeros.
    ///
    /// # Errors
    /// [`PoolError::NotAllocated`], [`PoolError::Permission`], [`PoolError::Damaged`] (never
    /// damaged bytes), [`PoolError::Device`]. The buffer's contents are undefined then.
    pub fn read(&self, addr: Addr, to: &mut [u8]) -> Result<()> {
        let mut buffer = AlignedBuf::zeroed(self.live()?.cache.segment_bytes());
        self.read_with(addr, to, &mut buffer)
    }

    /// [`Pool::read`] with memory for a segment.
    pub(super) fn read_with(&self, addr: Addr, to: &mut [u8], buffer: &mut [u8]) -> Result<()> {
        for piece in self.pieces(addr, to.len())? {
            let right = self.permit(piece.index, Access::Read)?;
            let cache = &self.live()?.cache;
            let guard = cache.resident(piece.index, right, buffer)?;
            cache.region.copy_out(piece.offset, &mut to[piece.range]);
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
        let mut buffer = AlignedBuf::zeroed(self.live()?.cache.segment_bytes());
        self.write_with(addr, from, &mut buffer)
    }

    /// [`Pool::write`] with memory for a segment.
    pub(super) fn write_with(&self, addr: Addr, from: &[u8], buffer: &mut [u8]) -> Result<()> {
        for piece in self.pieces(addr, from.len())? {
            let right = self.permit(piece.index, Access::Write)?;
            self.put_piece(&piece, &from[piece.range.clone()], right, buffer)?;
        }
        Ok(())
    }

    /// Copies bytes into the pool, whatever the permissions.
    pub(super) fn put(&self, addr: Addr, from: &[u8], buffer: &mut [u8]) -> Result<()> {
        let right = Right::unchecked(Access::Write);
        self.pieces(addr, from.len())?
            .try_for_each(|piece| self.put_piece(&piece, &from[piece.range.clone()], right, buffer))
    }

    pub(super) fn put_piece(
        &self,
        piece: &Piece,
        from: &[u8],
        right: Right,
        buffer: &mut [u8],
    ) -> Result<()> {
        let cache = &self.live()?.cache;
        let guard = match cache.resident(piece.index, right, buffer) {
            Err(PoolError::NoSpace { .. }) => {
                // Older tokens give way; then it works or the error is final.
                cache.relieve(piece.index)?;
                cache.resident(piece.index, right, buffer)?
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
    /// [`PoolError::Token`]; as [`Pool::read`]. Permissions are those of now, or of the token for a page that has
    /// been freed since; what the token has is not there if it was not allocated then.
    pub fn read_at(&self, token: Epoch, addr: Addr, to: &mut [u8]) -> Result<()> {
        let (_, store) = self.store_at(addr)?;
        let cache = &self.live()?.cache;
        let segment = cache.segment_bytes();
        let mut buffer = AlignedBuf::zeroed(segment);
        for piece in self.pieces(addr, to.len())? {
            let (_, page, number) = cache.store_of(piece.index);
            let then = store.status_at(token, page)?;
            let now = store.status(page)?;
            let status = if now.allocated() { now } else { then };
            let address = store.address(page, 0);
            if !then.allocated() {
                return Err(PoolError::NotAllocated { address });
            }
            if !status.readable() {
                return Err(refused(address, "read", status));
            }
            store.read_at(token, page, number, &mut buffer)?;
            let from = piece.offset % segment;
            to[piece.range.clone()].copy_from_slice(&buffer[from..from + piece.range.len()]);
        }
        Ok(())
    }

    /// Whether the pool is mapped, so that [`Pool::pointer`] works.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        self.anywhere().cache.region.is_watched()
    }

    /// The pointer to `len` allocated bytes at `addr`. The same at every opening, so that memory
    /// of the pool may hold pointers into itself.
    ///
    /// # Errors
    /// [`PoolError::NotAllocated`]; [`PoolError::Watch`] for a pool that was opened unmapped.
    pub fn pointer(&self, addr: Addr, len: u64) -> Result<*mut u8> {
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

    /// The pool address of a pointer into the mapped range; `None` outside it.
    #[must_use]
    pub fn address_of(&self, pointer: *const u8) -> Option<Addr> {
        let cache = &self.anywhere().cache;
        let region = &cache.region;
        let offset = pointer.addr().checked_sub(region.base().addr()).filter(|&o| o < region.len())?;
        let segment = cache.segment_bytes();
        let base = cache.address((offset / segment) as u32);
        base.offset_by((offset % segment) as u64).ok()
    }
}
