//! The memory controllers of a pool: their numbers follow those of the journaled controllers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use deepram_core::units::PAGE_BYTES;
use deepram_core::{Addr, PageId};
use uuid::Uuid;

use super::{Inner, Lifetime, Pool};
use crate::error::{PoolError, Result};
use crate::memory_controller::{MemoryController, MemoryInfo, MemoryOptions, Place, is_memory_file};

/// Most memory controllers of a pool.
const MAX_MEMORIES: usize = 256;

/// A memory controller of a new pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryFile {
    /// The new file: on a file system mounted with `-o dax`, or in `/dev/shm` to emulate persistent memory.
    pub path: PathBuf,
    /// Bytes of memory.
    pub size: u64,
}

/// Divides the files of a pool into those of journaled controllers and those of memory controllers.
pub(super) fn split<P: AsRef<Path>>(paths: &[P]) -> (Vec<&Path>, Vec<&Path>) {
    paths.iter().map(AsRef::as_ref).partition(|path| !is_memory_file(path))
}

/// Creates the memory controllers of a pool. On an error none of the files is left.
pub(super) fn create(files: &[MemoryFile], pool: Uuid) -> Result<()> {
    if files.len() > MAX_MEMORIES {
        let problem = format!("{} memory controllers, but a pool has at most {MAX_MEMORIES}", files.len());
        return Err(PoolError::Option { option: "memory", problem });
    }
    for (number, file) in (0..).zip(files) {
        let place = Place { pool, number, count: files.len() as u16 };
        if let Err(error) = MemoryController::create_in(&file.path, file.size, place) {
            for made in &files[..usize::from(number)] {
                // The caller gets the first error.
                let _ = std::fs::remove_file(&made.path);
            }
            return Err(error);
        }
    }
    Ok(())
}

/// Opens the memory controllers of a pool, numbered from `first`.
pub(super) fn open(
    paths: &[&Path],
    pool: Uuid,
    first: u32,
    options: &MemoryOptions,
) -> Result<Vec<Arc<MemoryController>>> {
    let mut found = Vec::new();
    for path in paths {
        found.push(MemoryController::open(path, options)?);
    }
    found.sort_by_key(|memory| memory.place().number);
    check(pool, &found.iter().map(|memory| (memory.place(), memory.device())).collect::<Vec<_>>())?;
    let numbered = (first..).zip(found).map(|(controller, mut memory)| {
        memory.set_controller(controller);
        Arc::new(memory)
    });
    Ok(numbered.collect())
}

/// Reads the properties of the memory controllers of a pool.
pub(super) fn inspect(paths: &[&Path], pool: Uuid) -> Result<Vec<MemoryInfo>> {
    let mut found =
        paths.iter().map(|path| MemoryController::inspect_in(path)).collect::<Result<Vec<_>>>()?;
    found.sort_by_key(|(place, _)| place.number);
    check(pool, &found.iter().map(|(place, info)| (*place, info.device.as_str())).collect::<Vec<_>>())?;
    Ok(found.into_iter().map(|(_, info)| info).collect())
}

/// Checks that these are all memory controllers of one pool, in order.
fn check(pool: Uuid, found: &[(Place, &str)]) -> Result<()> {
    for (number, (place, device)) in found.iter().enumerate() {
        if place.pool != pool {
            let whose =
                if place.pool.is_nil() { "does not belong to a pool" } else { "belongs to another pool" };
            return Err(PoolError::Mismatch(format!("the memory controller {device} {whose}")));
        }
        if usize::from(place.number) != number || usize::from(place.count) != found.len() {
            return Err(PoolError::Mismatch(format!(
                "the pool has {} memory controllers; {} are given, or one is given twice",
                place.count,
                found.len()
            )));
        }
    }
    Ok(())
}

impl Inner {
    /// The memory controller of an address, if it is on one, and the offset there.
    #[inline]
    pub(super) fn memory_at(&self, addr: Addr) -> Option<(&Arc<MemoryController>, u64)> {
        if self.memories.is_empty() || addr.is_local() {
            return None;
        }
        let number = (addr.controller() as usize).checked_sub(self.stores.len())?;
        Some((self.memories.get(number)?, addr.controller_offset()))
    }
}

impl Pool {
    /// The memory controller with this number in addresses, for its regions and for
    /// [`flush`](MemoryController::flush). The numbers of memory controllers follow those of the journaled controllers.
    /// Its memory stays mapped as long as the value lives.
    ///
    /// # Errors
    /// [`PoolError::Option`] if the controller is journaled or does not exist; [`PoolError::Closed`],
    /// [`PoolError::ForkedChild`].
    pub fn memory(&self, controller: u32) -> Result<Arc<MemoryController>> {
        let inner = self.live()?;
        let (first, count) = (inner.stores.len(), inner.memories.len());
        let number = (controller as usize).checked_sub(first);
        number.and_then(|number| inner.memories.get(number)).cloned().ok_or_else(|| {
            let problem = match count {
                0 => format!("{controller} is no memory controller: the pool was opened without one"),
                1 => format!("{controller} is no memory controller: give {first}"),
                _ => format!("{controller} is no memory controller: give {first} to {}", first + count - 1),
            };
            PoolError::Option { option: "controller", problem }
        })
    }

    /// The memory controller of an address, if it is on one, and the offset there.
    ///
    /// # Errors
    /// [`PoolError::Closed`], [`PoolError::ForkedChild`].
    #[inline]
    pub(super) fn in_place(&self, addr: Addr) -> Result<Option<(&Arc<MemoryController>, u64)>> {
        Ok(self.live()?.memory_at(addr))
    }

    /// Allocates memory on a memory controller.
    pub(super) fn alloc_in_place(
        memory: &MemoryController,
        controller: u32,
        len: u64,
        lifetime: Lifetime,
    ) -> Result<Addr> {
        if lifetime == Lifetime::Temporary {
            let problem = "memory on a memory controller is permanent: give Lifetime::Permanent".into();
            return Err(PoolError::Option { option: "lifetime", problem });
        }
        let region = memory.create_region("", len)?;
        Ok(Addr::new(controller, (region.offset / PAGE_BYTES) as u32, 0)?)
    }

    /// Frees memory on a memory controller, where a range is freed as it was allocated.
    pub(super) fn free_in_place(memory: &MemoryController, addr: Addr, len: u64) -> Result<()> {
        let regions = memory.info().regions;
        let Some(region) = regions.iter().find(|region| region.offset == addr.controller_offset()) else {
            if memory.is_allocated(addr.controller_offset(), 1) {
                return Err(PoolError::InPlace {
                    address: addr,
                    problem: "free it from the start of its region",
                });
            }
            return Err(PoolError::NotAllocated { address: addr });
        };
        if region.len != len.div_ceil(PAGE_BYTES) * PAGE_BYTES {
            return Err(PoolError::InPlace {
                address: addr,
                problem: "free the region as it was allocated, whole",
            });
        }
        memory.remove_region(region.offset)
    }

    /// Checks that `len` bytes at `addr` are allocated, on any controller.
    pub(super) fn ensure_allocated(&self, addr: Addr, len: u64) -> Result<()> {
        match self.in_place(addr)? {
            Some((memory, offset)) if memory.is_allocated(offset, len) => Ok(()),
            Some(_) => Err(PoolError::NotAllocated { address: addr }),
            None => self.pages(addr, len).map(drop),
        }
    }

    /// Makes all memory of the memory controllers durable.
    pub(super) fn flush_memories(&self) -> Result<()> {
        self.live()?.memories.iter().try_for_each(|memory| memory.flush_all().map(drop))
    }

    /// Refuses a rollback, which memory controllers do not take part in.
    pub(super) fn ensure_journaled(&self) -> Result<()> {
        let inner = self.live()?;
        if inner.memories.is_empty() {
            return Ok(());
        }
        let address = Addr::new(inner.stores.len() as u32, PageId(0).0, 0)?;
        let problem = "a rollback would leave it as it is; open the pool without its memory controllers to roll back the \
                       others";
        Err(PoolError::InPlace { address, problem })
    }
}
