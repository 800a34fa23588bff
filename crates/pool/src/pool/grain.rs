//! Loads and stores by call at byte grain: a load leaves a cold segment out of the DRAM cache (`docs/adr/0017`),
//! and many at once keep the device's queue full.

use deepram_core::Addr;

use super::Pool;
use crate::buffer::AlignedBuf;
use crate::cache::{Access, Part};
use crate::error::{PoolError, Result};

impl Pool {
    /// Copies bytes out of the pool, without bringing segments that are not in the DRAM cache into it: these are read
    /// into the device buffer, and move into the DRAM cache when they have been loaded often enough
    /// ([`LoadOptions`](crate::LoadOptions)). A call is one use of each segment that it touches. For bytes that will
    /// be used again soon there is [`Pool::read`].
    ///
    /// # Errors
    /// As [`Pool::read`], with [`PoolError::Unreadable`] in place of [`PoolError::Device`].
    pub fn load(&self, addr: Addr, to: &mut [u8]) -> Result<()> {
        let mut rest = to;
        for piece in self.pieces(addr, rest.len())? {
            let right = self.permit(piece.index, Access::Read)?;
            let (to, after) = rest.split_at_mut(piece.range.len());
            rest = after;
            let cache = &self.live()?.cache;
            let within = piece.offset % cache.segment_bytes();
            cache.load_cold(&mut [Part { index: piece.index, within, to }], right)?;
        }
        Ok(())
    }

    /// Copies bytes into the pool; durable after the next [`Pool::sync`]. As [`Pool::write`], by the name that goes
    /// with [`Pool::load`]: what is stored to is in the DRAM cache, for until it is written it is nowhere else.
    ///
    /// # Errors
    /// As [`Pool::write`].
    pub fn store(&self, addr: Addr, from: &[u8]) -> Result<()> {
        self.write(addr, from)
    }

    /// Copies `len` bytes from each address, one after the other, into `to`, as [`Pool::load`] would, with as many
    /// reads of the devices under way as [`LoadOptions::depth`](crate::LoadOptions::depth) says. Segments that several
    /// addresses lie in are read once.
    ///
    /// # Errors
    /// As [`Pool::load`]; [`PoolError::Option`] if `to` has not `len` bytes for each address. The contents of `to`
    /// are undefined then.
    pub fn gather(&self, addresses: &[Addr], len: usize, to: &mut [u8]) -> Result<()> {
        fits(addresses, len, to.len())?;
        let cache = &self.live()?.cache;
        let right = cache.right(Access::Read);
        let mut parts = self.parts(addresses, len, Some(to), Access::Read)?;
        cache.gather_cold(&mut parts, right)
    }

    /// Copies `len` bytes to each address from `from`, in the order given, as [`Pool::store`] would. The segments
    /// that are not in memory are read first, as by [`Pool::gather`].
    ///
    /// # Errors
    /// As [`Pool::store`]; [`PoolError::Option`] if `from` has not `len` bytes for each address. Some of the
    /// addresses may have been stored to then.
    pub fn scatter(&self, addresses: &[Addr], len: usize, from: &[u8]) -> Result<()> {
        fits(addresses, len, from.len())?;
        let cache = &self.live()?.cache;
        if len == 0 {
            return Ok(());
        }
        let mut buffer = AlignedBuf::zeroed(cache.segment_bytes());
        // Only as many at once as stay in the device buffer until they are stored to.
        let batch = cache.buffer_slots() / 2;
        for (addresses, from) in addresses.chunks(batch).zip(from.chunks(batch * len)) {
            let right = cache.right(Access::Write);
            let mut parts = self.parts(addresses, len, None, Access::Write)?;
            parts.dedup_by_key(|part| part.index);
            cache.gather_cold(&mut parts, right)?;
            for (&addr, from) in addresses.iter().zip(from.chunks_exact(len)) {
                self.write_with(addr, from, &mut buffer)?;
            }
        }
        Ok(())
    }

    /// What is wanted of each segment, sorted by segment; without `to`, nothing but that it is there.
    fn parts<'a>(
        &self,
        addresses: &[Addr],
        len: usize,
        to: Option<&'a mut [u8]>,
        access: Access,
    ) -> Result<Vec<Part<'a>>> {
        let segment = self.live()?.cache.segment_bytes();
        let (mut parts, mut rest) = (Vec::with_capacity(addresses.len()), to.unwrap_or_default());
        let wanted = !rest.is_empty();
        let mut permitted = None;
        for &addr in addresses {
            for piece in self.pieces(addr, len)? {
                let page = Some((addr.controller(), piece.page));
                if permitted != page {
                    self.permit(piece.index, access)?;
                    permitted = page;
                }
                let n = if wanted { piece.range.len() } else { 0 };
                let (to, after) = std::mem::take(&mut rest).split_at_mut(n);
                rest = after;
                parts.push(Part { index: piece.index, within: piece.offset % segment, to });
            }
        }
        parts.sort_unstable_by_key(|part| part.index);
        Ok(parts)
    }
}

fn fits(addresses: &[Addr], len: usize, have: usize) -> Result<()> {
    if addresses.len().checked_mul(len) == Some(have) {
        return Ok(());
    }
    let problem = format!("{have} bytes for {} addresses of {len} bytes each", addresses.len());
    Err(PoolError::Option { option: "length", problem })
}
