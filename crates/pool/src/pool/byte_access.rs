//! Byte-granular loads and stores by call. A load does not bring a cold segment into the DRAM cache
//! (`docs/adr/0017`), and a gather keeps the device's queue full.

use deepram_core::Addr;

use super::Pool;
use crate::cache::{AccessKind, Part};
use crate::error::{PoolError, Result};
use deepram_linux::buffer::AlignedBuf;

impl Pool {
    /// Copies bytes out of the pool without bringing absent segments into the DRAM cache: the pool reads them into
    /// the device buffer, and promotes them into the DRAM cache after enough loads
    /// ([`LoadOptions`](crate::LoadOptions)). One call counts as one use of each segment that it touches. Use
    /// [`Pool::read`] for bytes that will be used again soon.
    ///
    /// # Errors
    /// The errors of [`Pool::read`], with [`PoolError::Unreadable`] in place of [`PoolError::Device`].
    pub fn load(&self, addr: Addr, to: &mut [u8]) -> Result<()> {
        if let Some((memory, offset)) = self.in_place(addr)? {
            return memory.read(offset, to);
        }
        let mut rest = to;
        for part in self.segment_parts(addr, rest.len())? {
            let permit = self.permit(part.index, AccessKind::Read)?;
            let (to, after) = rest.split_at_mut(part.range.len());
            rest = after;
            let cache = &self.live()?.cache;
            let within = part.offset % cache.segment_bytes();
            cache.load_cold(&mut [Part { index: part.index, within, to }], permit)?;
        }
        Ok(())
    }

    /// Copies bytes into the pool; they become durable at the next [`Pool::sync`]. The counterpart of [`Pool::load`];
    /// it does the same as [`Pool::write`]. The segment enters the DRAM cache, because until write-back the DRAM
    /// cache holds the only copy of the new bytes.
    ///
    /// # Errors
    /// The errors of [`Pool::write`].
    pub fn store(&self, addr: Addr, from: &[u8]) -> Result<()> {
        self.write(addr, from)
    }

    /// Copies `len` bytes from each address into `to`, one after the other, as [`Pool::load`] does. The call keeps
    /// [`LoadOptions::depth`](crate::LoadOptions::depth) device reads in flight, and reads a segment once if several
    /// addresses lie in it.
    ///
    /// # Errors
    /// The errors of [`Pool::load`]; [`PoolError::Option`] if the length of `to` is not `len` bytes for each address.
    /// On an error the contents of `to` are undefined.
    pub fn gather(&self, addresses: &[Addr], len: usize, to: &mut [u8]) -> Result<()> {
        check_length(addresses, len, to.len())?;
        if self.any_in_place(addresses)? {
            let each = addresses.iter().zip(to.chunks_exact_mut(len.max(1)));
            return each.into_iter().try_for_each(|(&addr, to)| self.load(addr, to));
        }
        let cache = &self.live()?.cache;
        let permit = cache.permit(AccessKind::Read);
        let mut parts = self.parts(addresses, len, Some(to), AccessKind::Read)?;
        cache.gather_cold(&mut parts, permit)
    }

    /// Copies `len` bytes of `from` to each address, in the given order, as [`Pool::store`] does. The call first
    /// reads the absent segments, as [`Pool::gather`] does.
    ///
    /// # Errors
    /// The errors of [`Pool::store`]; [`PoolError::Option`] if the length of `from` is not `len` bytes for each
    /// address. On an error some of the addresses may have been stored to.
    pub fn scatter(&self, addresses: &[Addr], len: usize, from: &[u8]) -> Result<()> {
        check_length(addresses, len, from.len())?;
        if self.any_in_place(addresses)? {
            let each = addresses.iter().zip(from.chunks_exact(len.max(1)));
            return each.into_iter().try_for_each(|(&addr, from)| self.store(addr, from));
        }
        let cache = &self.live()?.cache;
        if len == 0 {
            return Ok(());
        }
        let mut buffer = AlignedBuf::zeroed(cache.segment_bytes());
        // A batch is small enough for the device buffer to hold all of its segments until they are stored to.
        let batch = cache.buffer_slots() / 2;
        for (addresses, from) in addresses.chunks(batch).zip(from.chunks(batch * len)) {
            let permit = cache.permit(AccessKind::Write);
            let mut parts = self.parts(addresses, len, None, AccessKind::Write)?;
            parts.dedup_by_key(|part| part.index);
            cache.gather_cold(&mut parts, permit)?;
            for (&addr, from) in addresses.iter().zip(from.chunks_exact(len)) {
                self.write_with(addr, from, &mut buffer)?;
            }
        }
        Ok(())
    }

    /// Whether one of the addresses is on a memory controller.
    fn any_in_place(&self, addresses: &[Addr]) -> Result<bool> {
        let inner = self.live()?;
        Ok(addresses.iter().any(|&addr| inner.memory_at(addr).is_some()))
    }

    /// Splits the accesses into parts of one segment each, sorted by segment. Without `to`, the parts are empty and
    /// only require the segments to be in memory.
    fn parts<'a>(
        &self,
        addresses: &[Addr],
        len: usize,
        to: Option<&'a mut [u8]>,
        access: AccessKind,
    ) -> Result<Vec<Part<'a>>> {
        let segment = self.live()?.cache.segment_bytes();
        let (mut parts, mut rest) = (Vec::with_capacity(addresses.len()), to.unwrap_or_default());
        let wanted = !rest.is_empty();
        let mut permitted = None;
        for &addr in addresses {
            for part in self.segment_parts(addr, len)? {
                let page = Some((addr.controller(), part.page));
                if permitted != page {
                    self.permit(part.index, access)?;
                    permitted = page;
                }
                let n = if wanted { part.range.len() } else { 0 };
                let (to, after) = std::mem::take(&mut rest).split_at_mut(n);
                rest = after;
                parts.push(Part { index: part.index, within: part.offset % segment, to });
            }
        }
        parts.sort_unstable_by_key(|part| part.index);
        Ok(parts)
    }
}

fn check_length(addresses: &[Addr], len: usize, have: usize) -> Result<()> {
    if addresses.len().checked_mul(len) == Some(have) {
        return Ok(());
    }
    let problem = format!("{have} bytes were given for {} addresses of {len} bytes each", addresses.len());
    Err(PoolError::Option { option: "length", problem })
}
