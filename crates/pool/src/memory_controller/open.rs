//! Creating, opening and inspecting memory controllers.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex};

use deepram_core::Bytes;
use deepram_core::persist::Geometry;
use deepram_core::units::PAGE_BYTES;
use deepram_linux::dirty::page_bytes;
use deepram_linux::flush::{Flusher, Method as FlushMethod};
use rustix::fs::{FallocateFlags, FlockOperation};
use uuid::Uuid;

use super::flush::{Lines, Processor};
use super::format::{HEADER_BYTES, Header, MAGIC, OWN_PAGES, Parsed, SIZES, TABLE_AT, VERSION};
use super::mapping::{Mapping, MemoryKind, kind_of};
use super::options::{MemoryInfo, MemoryOptions, Selective};
use super::regions::{AllocatedPages, MemoryRegion, Regions};
use super::tracker::{FaultHandler, Tracker};
use super::{MemoryController, Place};
use crate::error::{PoolError, Result};
use crate::process::Owner;
use crate::region::{Span, WatchError};

/// Permissions of a new file: only its owner may read and write it.
const MODE: u32 = 0o600;

impl MemoryController {
    /// Creates a controller with `size` bytes of memory, rounded up to pages of 64 KiB, in a new file.
    ///
    /// # Errors
    /// [`PoolError::Exists`]; [`PoolError::Memory`] for a file system with a page cache; [`PoolError::Option`] for a size
    /// that is too small or large; [`PoolError::NoSpace`], [`PoolError::Device`]. On an error there is no new file.
    pub fn create(path: &Path, size: u64) -> Result<()> {
        Self::create_in(path, size, Place::ALONE)
    }

    pub(crate) fn create_in(path: &Path, size: u64, place: Place) -> Result<()> {
        let device = path.display().to_string();
        let file = File::options().read(true).write(true).create_new(true).mode(MODE).open(path);
        let file = file.map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => PoolError::Exists { path: path.to_owned() },
            _ => PoolError::Device { device: device.clone(), operation: "creating", source },
        })?;
        let made = Self::create_on(&file, &device, size, place);
        if made.is_err() {
            // The caller gets the first error.
            let _ = std::fs::remove_file(path);
        }
        made
    }

    /// Creates a controller in an empty file without a name, such as a memfd.
    ///
    /// # Errors
    /// As for [`MemoryController::create`].
    pub fn create_in_file(file: &File, size: u64) -> Result<()> {
        Self::create_on(file, "memory", size, Place::ALONE)
    }

    fn create_on(file: &File, device: &str, size: u64, place: Place) -> Result<()> {
        let failed = |operation| {
            let device = device.to_owned();
            move |source: io::Error| PoolError::Device { device, operation, source }
        };
        let len = size.checked_next_multiple_of(PAGE_BYTES).unwrap_or(u64::MAX);
        let len = len.saturating_add(u64::from(OWN_PAGES) * PAGE_BYTES);
        if size == 0 || !SIZES.contains(&len) {
            let problem = format!("{} of memory: give 64 KiB to just below 16 TiB", Bytes(size));
            return Err(PoolError::Option { option: "size", problem });
        }
        // The space is reserved: a store must not find the file system full.
        rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len).map_err(|error| match error {
            rustix::io::Errno::NOSPC => {
                let free = rustix::fs::fstatvfs(file).map_or(0, |s| s.f_bavail * s.f_frsize);
                PoolError::NoSpace { device: device.into(), needed: Bytes(len), available: Bytes(free) }
            }
            error => failed("reserving space")(error.into()),
        })?;
        let (mapping, _) = map(file, device, len as usize, None)?;
        let uuid = Uuid::new_v4();
        let base = crate::pool::default_base(uuid, len);
        let Place { pool, number, count } = place;
        let header = Header { uuid, pool, number, count, len, base };
        let lines = Lines::Processor(flusher(&MemoryOptions::default())?);
        // The table is zeros: the file is new. The header follows it.
        let span = Span::new(mapping.start(), mapping.len());
        span.copy_in(0, &header.encode());
        lines.persist(mapping.start(), HEADER_BYTES);
        file.sync_all().map_err(failed("syncing"))
    }

    /// Opens a controller, which no other process may have open.
    ///
    /// # Errors
    /// [`PoolError::Memory`] for a file that is no memory controller; [`PoolError::FutureVersion`],
    /// [`PoolError::Truncated`], [`PoolError::DamagedPool`], [`PoolError::Inconsistent`] for a damaged one;
    /// [`PoolError::Busy`]; [`PoolError::FlushMethod`], [`PoolError::DirtyPages`], [`PoolError::Watch`] for options that
    /// this machine cannot carry out; [`PoolError::Device`].
    pub fn open(path: &Path, options: &MemoryOptions) -> Result<Self> {
        let file = File::options().read(true).write(true).open(path);
        let device = path.display().to_string();
        let file = file.map_err(|source| PoolError::Device { device, operation: "opening", source })?;
        Self::open_on(file, path, options, None)
    }

    /// Opens a controller in a file without a name, such as a memfd.
    ///
    /// # Errors
    /// As for [`MemoryController::open`].
    pub fn open_file(file: File, options: &MemoryOptions) -> Result<Self> {
        Self::open_on(file, Path::new("memory"), options, None)
    }

    /// Opens a controller whose lines these stand-ins of the processor write back.
    ///
    /// # Errors
    /// As for [`MemoryController::open`].
    #[doc(hidden)]
    pub fn open_with(file: File, options: &MemoryOptions, processor: Arc<dyn Processor>) -> Result<Self> {
        Self::open_on(file, Path::new("memory"), options, Some(processor))
    }

    fn open_on(
        file: File,
        path: &Path,
        options: &MemoryOptions,
        processor: Option<Arc<dyn Processor>>,
    ) -> Result<Self> {
        let device = path.display().to_string();
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| PoolError::Busy { path: path.to_owned() })?;
        let (header, regions) = read_tables(&file, &device)?;
        let (mapping, kind) = map(&file, &device, header.len as usize, Some(header.base as usize))?;
        let geometry = Geometry::new(page_bytes() as u64, line_bytes());
        let geometry = geometry
            .map_err(|error| PoolError::Memory { device: device.clone(), problem: error.to_string() })?;
        let lines = match processor {
            Some(processor) => Lines::Test(processor),
            None => Lines::Processor(flusher(options)?),
        };
        let (tracker, handler) = watch(&mapping, kind, options, geometry, &device)?;
        let stores = tracker.is_some() && options.method == FlushMethod::NonTemporal;
        let untracked = stores.then(|| map(&file, &device, header.len as usize, None)).transpose()?;
        let allocated = AllocatedPages::new((header.len / PAGE_BYTES) as u32);
        regions.all().for_each(|record| allocated.set(record, true));
        let owner = Owner::here()
            .map_err(|source| WatchError::System { what: "madvise(MADV_WIPEONFORK)", source })?;
        Ok(Self {
            handler,
            tracker,
            mapping,
            untracked: untracked.map(|(mapping, _)| mapping),
            lines,
            options: *options,
            geometry,
            kind,
            header,
            controller: 0,
            device,
            owner,
            allocated,
            regions: Mutex::new(regions),
            file,
        })
    }

    /// Reads the properties of a controller without opening or changing it.
    ///
    /// # Errors
    /// The errors of [`MemoryController::open`] that concern the file.
    pub fn inspect(path: &Path) -> Result<MemoryInfo> {
        Ok(Self::inspect_in(path)?.1)
    }

    pub(crate) fn inspect_in(path: &Path) -> Result<(Place, MemoryInfo)> {
        let device = path.display().to_string();
        let file = File::open(path);
        let file = file.map_err(|source| PoolError::Device {
            device: device.clone(),
            operation: "opening",
            source,
        })?;
        let (header, regions) = read_tables(&file, &device)?;
        let kind = kind_of(&file);
        let kind =
            kind.map_err(|source| PoolError::Memory { device: device.clone(), problem: source.to_string() })?;
        Ok((header.place(), info(&device, kind, &header, &regions)))
    }
}

pub(super) fn info(device: &str, kind: MemoryKind, header: &Header, regions: &Regions) -> MemoryInfo {
    let regions: Vec<MemoryRegion> = regions.all().map(MemoryRegion::from).collect();
    MemoryInfo {
        device: device.into(),
        kind,
        pool: header.pool,
        size: Bytes(header.len - u64::from(OWN_PAGES) * PAGE_BYTES),
        allocated: Bytes(regions.iter().map(|region| region.len).sum()),
        base: header.base,
        regions,
    }
}

/// Reads and checks the header and the table of regions.
fn read_tables(file: &File, device: &str) -> Result<(Header, Regions)> {
    let failed = |source| PoolError::Device { device: device.into(), operation: "reading", source };
    let have = file.metadata().map_err(failed)?.len();
    let problem = "it does not start with the header of one (create one with `deepram pool create --memory`)";
    let foreign = || PoolError::Memory { device: device.into(), problem: problem.into() };
    let mut header = vec![0; HEADER_BYTES];
    if have < HEADER_BYTES as u64 {
        return Err(foreign());
    }
    file.read_exact_at(&mut header, 0).map_err(failed)?;
    let header = match Header::parse(&header) {
        Parsed::Header(header) => header,
        Parsed::Foreign => return Err(foreign()),
        Parsed::Version(found) => {
            return Err(PoolError::FutureVersion { device: device.into(), found, known: VERSION });
        }
        Parsed::Damaged(source) => {
            return Err(PoolError::DamagedPool { device: device.into(), what: "the header", source });
        }
    };
    if have < header.len {
        let (needed, have) = (Bytes(header.len), Bytes(have));
        return Err(PoolError::Truncated { device: device.into(), needed, have });
    }
    let mut table = vec![0; PAGE_BYTES as usize];
    file.read_exact_at(&mut table, TABLE_AT as u64).map_err(failed)?;
    let regions = Regions::read(&table, (header.len / PAGE_BYTES) as u32, device)?;
    Ok((header, regions))
}

fn map(file: &File, device: &str, len: usize, base: Option<usize>) -> Result<(Mapping, MemoryKind)> {
    Mapping::of_file(file, len, base).map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => {
            let start = base.unwrap_or(0);
            WatchError::Address { start, end: start.saturating_add(len), source }.into()
        }
        io::ErrorKind::Unsupported => {
            PoolError::Memory { device: device.into(), problem: source.to_string() }
        }
        _ => PoolError::Device { device: device.into(), operation: "mapping", source },
    })
}

impl Header {
    pub(super) fn place(&self) -> Place {
        Place { pool: self.pool, number: self.number, count: self.count }
    }
}

/// Whether a file begins as a memory controller does. A file that cannot be read does not.
pub(crate) fn is_memory_file(path: &Path) -> bool {
    let mut start = [0; MAGIC.len()];
    // A device is none, and reading one may have effects.
    let is_file = path.metadata().is_ok_and(|metadata| metadata.is_file());
    is_file && File::open(path).and_then(|file| file.read_exact_at(&mut start, 0)).is_ok() && start == MAGIC
}

type Watched = (Option<Arc<Tracker>>, Option<FaultHandler>);

/// Starts to track dirty pages, as the options ask for.
fn watch(
    mapping: &Mapping,
    kind: MemoryKind,
    options: &MemoryOptions,
    geometry: Geometry,
    device: &str,
) -> Result<Watched> {
    if options.selective == Selective::Off {
        return Ok((None, None));
    }
    // A huge page would be dirty whole.
    mapping.advise(libc::MADV_NOHUGEPAGE).or_else(|error| match error.raw_os_error() {
        // The kernel has no huge pages.
        Some(libc::EINVAL) => Ok(()),
        _ => Err(PoolError::Device {
            device: device.into(),
            operation: "madvise(MADV_NOHUGEPAGE)",
            source: error,
        }),
    })?;
    let listed = || {
        Tracker::by_list(mapping, geometry, options.method)
            .map(|(tracker, handler)| (Some(tracker), Some(handler)))
    };
    let scanned = || Tracker::by_scan(mapping, geometry).map(|tracker| (Some(tracker), None));
    match options.selective {
        Selective::Off => Ok((None, None)),
        Selective::List => Ok(listed()?),
        Selective::Scan => Ok(scanned()?),
        Selective::Auto => {
            // The kernel sends no page faults of DAX files.
            if kind == MemoryKind::Emulated
                && let Ok(found) = listed()
            {
                return Ok(found);
            }
            Ok(scanned().unwrap_or_else(|error| {
                tracing::warn!(%error, device, "flushes write back every line of their range");
                (None, None)
            }))
        }
    }
}

fn flusher(options: &MemoryOptions) -> Result<Flusher> {
    Ok(Flusher::new(options.method)?.with_barrier(options.barrier))
}

/// Bytes of a cache line.
fn line_bytes() -> u64 {
    Flusher::new(FlushMethod::best()).map_or(64, |flusher| flusher.line() as u64)
}
