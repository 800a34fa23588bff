//! A controller on byte-addressable memory: a DAX file, or a file in shared memory that emulates one. The file is mapped
//! directly, with neither a page cache nor a copy in DRAM between, and becomes durable by flushing of cache lines (NVMM
//! application study, sections II-C and III).
//!
//! Stores are made in place: the memory has no epochs, and a rollback cannot undo them. After a crash each line has the
//! contents of its last flush or later ones; see `docs/explanation/persistence.md` and `docs/adr/0036`.

mod flush;
mod format;
mod mapping;
mod open;
mod options;
mod regions;
mod tracker;

use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex};

use deepram_core::Addr;
use deepram_core::persist::Geometry;
use deepram_core::units::PAGE_BYTES;
use rustix::fs::{FallocateFlags, FlockOperation};
use uuid::Uuid;

use self::flush::Lines;
use self::format::Header;
use self::mapping::Mapping;
use self::open::info;
use self::regions::{AllocatedPages, Regions, record_at};
use self::tracker::{FaultHandler, Tracker};
use crate::error::{PoolError, Result};
use crate::process::Owner;
use crate::region::Span;
use deepram_linux::lock::lock;

pub use self::flush::Processor;
pub use self::mapping::MemoryKind;
pub(crate) use self::open::is_memory_file;
pub use self::options::{MemoryInfo, MemoryOptions, Selective};
pub use self::regions::MemoryRegion;

/// Longest range, in bytes, that is checked page by page.
const CHECKED_BY_PAGE: u64 = 32 * PAGE_BYTES;

/// The place of a controller in a pool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) pool: Uuid,
    pub(crate) number: u16,
    pub(crate) count: u16,
}

impl Place {
    /// A controller without a pool.
    const ALONE: Self = Self { pool: Uuid::nil(), number: 0, count: 1 };
}

/// Byte-addressable memory in a file, whose stores become durable in place; see the module. Dropping it unmaps the file:
/// pointers into it are invalid then.
///
/// ```
/// use deepram_pool::memory::{MemoryController, MemoryOptions};
///
/// # fn main() -> deepram_pool::Result<()> {
/// # let file = std::path::PathBuf::from(format!("/dev/shm/deepram-doc-{}", std::process::id()));
/// # let _remove = std::fs::remove_file(&file);
/// MemoryController::create(&file, 1 << 20)?;
/// let memory = MemoryController::open(&file, &MemoryOptions::default())?;
/// let counters = memory.create_region("counters", 4096)?;
/// memory.write(counters.offset, &7_u64.to_le_bytes())?;
/// memory.persist(counters.offset, 8)?; // durable in place
/// drop(memory);
///
/// let memory = MemoryController::open(&file, &MemoryOptions::default())?;
/// let counters = memory.region("counters").expect("it was made above");
/// let mut bytes = [0; 8];
/// memory.read(counters.offset, &mut bytes)?;
/// assert_eq!(u64::from_le_bytes(bytes), 7);
/// # std::fs::remove_file(&file).unwrap();
/// # Ok(())
/// # }
/// ```
pub struct MemoryController {
    /// Ends before the memory is unmapped, and before the tracker gives up the protection of pages.
    #[expect(dead_code, reason = "ends when it is dropped")]
    handler: Option<FaultHandler>,
    tracker: Option<Arc<Tracker>>,
    mapping: Mapping,
    /// A second mapping, whose stores no tracker sees: for a method that flushes by storing.
    untracked: Option<Mapping>,
    lines: Lines,
    options: MemoryOptions,
    geometry: Geometry,
    kind: MemoryKind,
    header: Header,
    /// Number of the controller in addresses.
    controller: u32,
    device: String,
    owner: Owner,
    allocated: AllocatedPages,
    regions: Mutex<Regions>,
    file: File,
}

impl std::fmt::Debug for MemoryController {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryController").field("device", &self.device).finish_non_exhaustive()
    }
}

impl MemoryController {
    /// Gives the controller its number in a pool's addresses.
    pub(crate) fn set_controller(&mut self, controller: u32) {
        self.controller = controller;
    }

    pub(crate) fn place(&self) -> Place {
        self.header.place()
    }

    /// Lets other processes open the file. The controller must not be used any more.
    pub(crate) fn release(&self) {
        // Closing the file, which follows, unlocks it in any case.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }

    /// Name of the file.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The options with which the controller was opened.
    #[must_use]
    pub fn options(&self) -> MemoryOptions {
        self.options
    }

    /// How flushes find the lines to write back: "off", "scan" or "list".
    #[must_use]
    pub fn search(&self) -> &'static str {
        self.tracker.as_ref().map_or("off", |tracker| tracker.name())
    }

    /// Properties and usage.
    #[must_use]
    pub fn info(&self) -> MemoryInfo {
        info(&self.device, self.kind, &self.header, &lock(&self.regions))
    }

    /// Allocates `len` bytes of zeros, in whole pages of 64 KiB, under a name; an empty name is none. The region is
    /// durable when the call returns.
    ///
    /// # Errors
    /// [`PoolError::Root`] for a name that is taken or too long, or if there are 512 regions;
    /// [`PoolError::NoAddressSpace`]; [`PoolError::Option`] for a length of zero; [`PoolError::ForkedChild`].
    pub fn create_region(&self, name: &str, len: u64) -> Result<MemoryRegion> {
        self.owner.check()?;
        let mut regions = lock(&self.regions);
        let (number, record) = regions.place(name, len, self.controller)?;
        let (word, bytes) = record.encode();
        let span = self.span();
        // Until the first word is there, the record is free; it follows when the others are durable.
        span.copy_in(record_at(number) + 8, &bytes);
        self.persist_at(record_at(number), format::RECORD);
        span.copy_in(record_at(number), &word.to_le_bytes());
        self.persist_at(record_at(number), 8);
        self.allocated.set(&record, true);
        let region = MemoryRegion::from(&record);
        regions.insert(number, record);
        Ok(region)
    }

    /// The region of a name.
    #[must_use]
    pub fn region(&self, name: &str) -> Option<MemoryRegion> {
        lock(&self.regions).named(name).filter(|_| !name.is_empty()).map(MemoryRegion::from)
    }

    /// Frees the region that begins at `offset`, durably. Pointers into it are invalid.
    ///
    /// # Errors
    /// [`PoolError::NotAllocated`] if no region begins there; [`PoolError::Device`], [`PoolError::ForkedChild`].
    pub fn remove_region(&self, offset: u64) -> Result<()> {
        self.owner.check()?;
        let mut regions = lock(&self.regions);
        let first = u32::try_from(offset / PAGE_BYTES).unwrap_or(u32::MAX);
        let found = regions.at(first).filter(|_| offset.is_multiple_of(PAGE_BYTES));
        let (number, record) = found.ok_or_else(|| self.not_allocated(offset))?;
        self.allocated.set(record, false);
        let cleared = self.clear(&MemoryRegion::from(record));
        if cleared.is_err() {
            self.allocated.set(record, true);
        }
        cleared?;
        self.span().copy_in(record_at(number), &[0; 8]);
        self.persist_at(record_at(number), 8);
        regions.remove(first);
        Ok(())
    }

    /// Fills a region with zeros, which free memory always is.
    fn clear(&self, region: &MemoryRegion) -> Result<()> {
        let holes = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if rustix::fs::fallocate(&self.file, holes, region.offset, region.len).is_err() {
            let zeros = [0; PAGE_BYTES as usize];
            for offset in (region.offset..region.offset + region.len).step_by(zeros.len()) {
                self.span().copy_in(offset as usize, &zeros);
                self.persist_at(offset as usize, zeros.len());
            }
            return Ok(());
        }
        let reserved =
            rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, region.offset, region.len);
        let pages = self.geometry.pages_of(&(region.offset..region.offset + region.len));
        let watched = self.tracker.as_ref().map_or(Ok(()), |tracker| tracker.watch_again(&pages));
        reserved.map_err(io::Error::from).and(watched).map_err(|source| PoolError::Device {
            device: self.device.clone(),
            operation: "freeing memory",
            source,
        })
    }

    /// The pointer to `len` allocated bytes, the same at every opening. It is valid until the controller is dropped or
    /// the region removed.
    ///
    /// # Errors
    /// [`PoolError::NotAllocated`], [`PoolError::ForkedChild`].
    pub fn pointer(&self, offset: u64, len: u64) -> Result<*mut u8> {
        self.check(offset, len)?;
        Ok(self.mapping.start().wrapping_add(offset as usize))
    }

    /// The offset of a pointer into the mapped memory.
    pub(crate) fn offset_of(&self, pointer: *const u8) -> Option<u64> {
        let offset = pointer.addr().checked_sub(self.mapping.address())?;
        (offset < self.mapping.len()).then_some(offset as u64)
    }

    /// Copies bytes out of allocated memory.
    ///
    /// # Errors
    /// [`PoolError::NotAllocated`], [`PoolError::ForkedChild`].
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        self.check(offset, to.len() as u64)?;
        self.span().copy_out(offset as usize, to);
        Ok(())
    }

    /// Copies bytes into allocated memory. They are durable after a flush or persist that contains them.
    ///
    /// # Errors
    /// [`PoolError::NotAllocated`], [`PoolError::ForkedChild`].
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<()> {
        self.check(offset, from.len() as u64)?;
        self.span().copy_in(offset as usize, from);
        Ok(())
    }

    /// Whether these bytes are allocated.
    pub(crate) fn is_allocated(&self, offset: u64, len: u64) -> bool {
        if len <= CHECKED_BY_PAGE {
            self.allocated.contain(offset, len)
        } else {
            lock(&self.regions).contain(offset, len)
        }
    }

    fn check(&self, offset: u64, len: u64) -> Result<()> {
        self.owner.check()?;
        if self.is_allocated(offset, len) { Ok(()) } else { Err(self.not_allocated(offset)) }
    }

    fn not_allocated(&self, offset: u64) -> PoolError {
        let page = u32::try_from(offset / PAGE_BYTES).unwrap_or(u32::MAX);
        match Addr::new(self.controller, page, (offset % PAGE_BYTES) as u32) {
            Ok(address) => PoolError::NotAllocated { address },
            Err(error) => error.into(),
        }
    }

    fn span(&self) -> Span {
        Span::new(self.mapping.start(), self.mapping.len())
    }
}

impl Drop for MemoryController {
    fn drop(&mut self) {
        // A forked child may live on with a copy of the descriptor, and with it of the lock.
        if self.owner.is_here() {
            self.release();
        }
    }
}
