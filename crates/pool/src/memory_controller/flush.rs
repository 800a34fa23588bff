//! Making memory durable.

use std::sync::Arc;

use deepram_core::persist::{FlushCounts, FlushStep, RangeFlush, SyncMode};
use deepram_linux::flush::Flusher;

use super::MemoryController;
use crate::error::Result;

/// Stands for the processor beneath a memory controller in tests: it learns of each line that is written back, and of
/// each barrier.
#[doc(hidden)]
pub trait Processor: Send + Sync {
    /// Writes back the lines of which these bytes are a part.
    fn write_back(&self, start: *const u8, len: usize);
    /// Waits until the lines that this thread has written back are durable.
    fn barrier(&self);
}

/// The processor, or a stand-in.
pub(super) enum Lines {
    Processor(Flusher),
    Test(Arc<dyn Processor>),
}

impl Lines {
    /// Writes back the lines of a mapped range.
    #[inline]
    pub(super) fn write_back(&self, start: *const u8, len: usize) {
        match self {
            // SAFETY: the caller's range is mapped and writable. The documentation of the options forbids stores to it
            // during a flush by a method that stores.
            Self::Processor(flusher) => unsafe { flusher.flush(start, len) },
            Self::Test(processor) => processor.write_back(start, len),
        }
    }

    /// Waits until the lines that this thread has written back are durable.
    #[inline]
    pub(super) fn barrier(&self) {
        match self {
            Self::Processor(flusher) => flusher.barrier(),
            Self::Test(processor) => processor.barrier(),
        }
    }

    /// Makes a mapped range durable.
    #[inline]
    pub(super) fn persist(&self, start: *const u8, len: usize) {
        self.write_back(start, len);
        self.barrier();
    }
}

impl MemoryController {
    /// Makes `len` bytes at `offset` durable, as `msync` does for a mapped file: stores of all threads that were made
    /// before the call survive a crash after it. With [`Selective`](super::Selective) search only the lines of dirty
    /// pages are written back. Returns the work.
    ///
    /// # Errors
    /// [`PoolError::NotAllocated`](crate::PoolError::NotAllocated), [`PoolError::ForkedChild`](crate::PoolError::ForkedChild).
    pub fn flush(&self, offset: u64, len: u64) -> Result<FlushCounts> {
        self.check(offset, len)?;
        Ok(self.flush_at(offset, len))
    }

    /// Makes all regions durable. Returns the work.
    ///
    /// # Errors
    /// [`PoolError::ForkedChild`](crate::PoolError::ForkedChild).
    pub fn flush_all(&self) -> Result<FlushCounts> {
        self.owner.check()?;
        let mut sum = FlushCounts::default();
        for region in self.info().regions {
            let counts = self.flush_at(region.offset, region.len);
            sum.pages_examined += counts.pages_examined;
            sum.pages_dirty += counts.pages_dirty;
            sum.lines_written_back += counts.lines_written_back;
        }
        Ok(sum)
    }

    /// Makes `len` bytes at `offset` durable: writes back each of their lines and waits at the barrier. It looks at no
    /// dirty pages: for small ranges that the caller has just stored to. `flush` is for large ones.
    ///
    /// # Errors
    /// [`PoolError::NotAllocated`](crate::PoolError::NotAllocated), [`PoolError::ForkedChild`](crate::PoolError::ForkedChild).
    #[inline]
    pub fn persist(&self, offset: u64, len: u64) -> Result<()> {
        self.check(offset, len)?;
        self.persist_at(offset as usize, len as usize);
        Ok(())
    }

    fn flush_at(&self, offset: u64, len: u64) -> FlushCounts {
        let mode = if self.tracker.is_some() { SyncMode::Selective } else { SyncMode::EveryLine };
        let mut flush = RangeFlush::new(self.geometry, mode, offset..offset + len);
        let id = self.tracker.as_ref().map(|tracker| tracker.begin());
        let mut cleared_any = false;
        while let Some(step) = flush.next_step() {
            match step {
                FlushStep::Examine { pages, clear } => {
                    if let (Some(tracker), Some(id)) = (&self.tracker, id) {
                        cleared_any |= tracker.examine(&mut flush, id, pages, clear);
                    }
                }
                FlushStep::WriteBack(bytes) => {
                    self.write_back_at(bytes.start as usize, (bytes.end - bytes.start) as usize);
                }
                FlushStep::Barrier => self.lines.barrier(),
            }
        }
        if let (Some(tracker), Some(id)) = (&self.tracker, id)
            && cleared_any
        {
            tracker.end(id);
        }
        flush.counts()
    }

    fn write_back_at(&self, offset: usize, len: usize) {
        let mapping = self.untracked.as_ref().unwrap_or(&self.mapping);
        debug_assert!(offset + len <= mapping.len());
        self.lines.write_back(mapping.start().wrapping_add(offset), len);
    }

    pub(super) fn persist_at(&self, offset: usize, len: usize) {
        self.write_back_at(offset, len);
        self.lines.barrier();
    }
}
