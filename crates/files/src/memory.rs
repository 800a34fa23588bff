//! The memory of the pool as the file system uses it, and changes that take place whole or not at all.

use std::sync::OnceLock;

use deepram_core::units::PAGE_BYTES;
use deepram_pool::{Addr, Epoch, Lifetime, Pool, PoolError, Root};

use crate::error::{FilesError, Result};
use crate::layout::ROOT;

/// What the kernel reads at least: its pages. No segment is smaller.
pub(crate) const UNIT: usize = 4096;

/// The memory of a pool, now or at a token.
pub(crate) struct Memory {
    pool: Pool,
    /// The state that is read; none: the current one.
    token: Option<Epoch>,
    is_writable: bool,
    /// Why the file system has stopped.
    stopped: OnceLock<String>,
}

impl Memory {
    pub(crate) fn new(pool: Pool, token: Option<Epoch>, is_writable: bool) -> Self {
        Self { pool, token, is_writable, stopped: OnceLock::new() }
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(crate) fn token(&self) -> Option<Epoch> {
        self.token
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Fails once the file system has stopped.
    pub(crate) fn ensure_running(&self) -> Result<()> {
        self.stopped.get().map_or(Ok(()), |why| Err(FilesError::Stopped(why.clone())))
    }

    /// The address of the superblock, if there is a file system.
    pub(crate) fn superblock(&self) -> Result<Option<Addr>> {
        let roots = self.token.map_or_else(|| self.pool.roots(), |token| self.pool.roots_at(token))?;
        let found = roots.into_iter().find(|root| root.name == ROOT);
        match found {
            Some(Root { addr, len: PAGE_BYTES, .. }) => Ok(Some(addr)),
            Some(root) => {
                let problem = format!("the root {ROOT:?} has {} bytes and not {PAGE_BYTES}", root.len);
                Err(FilesError::Damaged(problem))
            }
            None => Ok(None),
        }
    }

    pub(crate) fn read(&self, addr: Addr, to: &mut [u8]) -> Result<()> {
        let read = match self.token {
            None => self.pool.read(addr, to),
            Some(token) => self.pool.read_at(token, addr, to),
        };
        Ok(read?)
    }

    /// Reads bytes of files: units of 4 KiB that are not in DRAM come from the device many at once.
    pub(crate) fn read_many(&self, addr: Addr, to: &mut [u8]) -> Result<()> {
        let is_aligned =
            addr.controller_offset().is_multiple_of(UNIT as u64) && to.len().is_multiple_of(UNIT);
        if self.token.is_some() || !is_aligned || to.len() <= UNIT {
            return self.read(addr, to);
        }
        let units = (0..to.len()).step_by(UNIT).map(|at| addr.offset_by(at as u64));
        let units = units.collect::<std::result::Result<Vec<Addr>, _>>().map_err(PoolError::from)?;
        Ok(self.pool.gather(&units, UNIT, to)?)
    }

    pub(crate) fn read_word(&self, addr: Addr) -> Result<u64> {
        let mut bytes = [0; 8];
        self.read(addr, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Reads `count` words.
    pub(crate) fn read_words(&self, addr: Addr, count: usize) -> Result<Vec<u64>> {
        let mut bytes = vec![0; 8 * count];
        self.read(addr, &mut bytes)?;
        Ok(bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes"))).collect())
    }

    /// Writes bytes of files, which no change takes back.
    pub(crate) fn write(&self, addr: Addr, from: &[u8]) -> Result<()> {
        Ok(self.pool.write(addr, from)?)
    }

    /// Begins a change of structures.
    ///
    /// # Errors
    /// [`FilesError::ReadOnly`], [`FilesError::Stopped`].
    pub(crate) fn change(&self) -> Result<Change<'_>> {
        self.ensure_running()?;
        if !self.is_writable {
            return Err(FilesError::ReadOnly);
        }
        Ok(Change { memory: self, undo: Vec::new(), allocated: Vec::new(), freed: Vec::new() })
    }
}

/// A change of the structures of the file system. Unless it is committed, dropping it takes it back; if that fails, the file
/// system stops, because its structures in memory are not known to be right. Its caller keeps all others from the structures
/// until then.
pub(crate) struct Change<'a> {
    memory: &'a Memory,
    /// Earlier contents of what was written, oldest first.
    undo: Vec<(Addr, Vec<u8>)>,
    /// Runs of pages: address and number.
    allocated: Vec<(Addr, u64)>,
    /// Pages to free.
    freed: Vec<Addr>,
}

impl Change<'_> {
    pub(crate) fn memory(&self) -> &Memory {
        self.memory
    }

    pub(crate) fn write(&mut self, addr: Addr, from: &[u8]) -> Result<()> {
        let mut old = vec![0; from.len()];
        self.memory.read(addr, &mut old)?;
        // A write that fails may have changed a part of its range.
        self.undo.push((addr, old));
        self.memory.write(addr, from)
    }

    pub(crate) fn write_word(&mut self, addr: Addr, value: u64) -> Result<()> {
        self.write(addr, &value.to_le_bytes())
    }

    /// Allocates consecutive pages of zeros.
    pub(crate) fn alloc(&mut self, pages: u64) -> Result<Addr> {
        let addr = self.memory.pool.alloc(pages * PAGE_BYTES, Lifetime::Permanent)?;
        self.allocated.push((addr, pages));
        Ok(addr)
    }

    /// Frees a page when the change is committed.
    pub(crate) fn free(&mut self, page: Addr) {
        self.freed.push(page);
    }

    /// Completes the change.
    ///
    /// # Errors
    /// [`FilesError::Pool`] if pages cannot be freed; the file system has then stopped.
    pub(crate) fn commit(mut self) -> Result<()> {
        let mut freed = std::mem::take(&mut self.freed);
        self.undo.clear();
        self.allocated.clear();
        freed.sort_unstable_by_key(|page| page.raw());
        for run in freed.chunk_by(|a, b| a.raw() + PAGE_BYTES == b.raw()) {
            if let Err(error) = self.memory.pool.free(run[0], run.len() as u64 * PAGE_BYTES) {
                self.stop(&format!("pages could not be freed: {error}"));
                return Err(error.into());
            }
        }
        Ok(())
    }

    fn stop(&self, why: &str) {
        // The first reason stays.
        let _ = self.memory.stopped.set(why.to_owned());
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        for (addr, old) in std::mem::take(&mut self.undo).iter().rev() {
            if let Err(error) = self.memory.write(*addr, old) {
                self.stop(&format!("a change that failed could not be taken back: {error}"));
                return;
            }
        }
        for (addr, pages) in std::mem::take(&mut self.allocated) {
            if let Err(error) = self.memory.pool.free(addr, pages * PAGE_BYTES) {
                self.stop(&format!("the pages of a change that failed could not be freed: {error}"));
                return;
            }
        }
    }
}
