//! A controller on byte-addressable memory: a DAX file, or a file in shared memory that emulates one. The file is mapped
//! directly, with neither a page cache nor a copy in DRAM between, and becomes durable by flushing of cache lines (NVMM
//! application study, sections II-C and III).
//!
//! Stores are made in place: the memory has no epochs, and a rollback cannot undo them. After a crash each line has the
//! contents of its last flush or later ones; see `docs/explanation/persistence.md` and `docs/adr/0036`.

mod flush;
mod format;
mod mapping;
mod regions;
mod tracker;

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use deepram_core::persist::Geometry;
use deepram_core::units::PAGE_BYTES;
use deepram_core::{Addr, Bytes};
use deepram_linux::dirty::page_bytes;
use deepram_linux::flush::{Flusher, Method as FlushMethod};
use rustix::fs::{FallocateFlags, FlockOperation};
use uuid::Uuid;

use self::flush::Lines;
use self::format::{HEADER_BYTES, Header, MAGIC, OWN_PAGES, Parsed, SIZES, TABLE_AT, VERSION};
use self::mapping::Mapping;
use self::regions::{AllocatedPages, Regions, record_at};
use self::tracker::{FaultHandler, Tracker};
use crate::error::{PoolError, Result};
use crate::lock::lock;
use crate::process::Owner;
use crate::region::{Span, WatchError};

pub use self::flush::Processor;
pub use self::mapping::MemoryKind;
pub use self::regions::MemoryRegion;

/// Longest range, in bytes, that is checked page by page.
const CHECKED_BY_PAGE: u64 = 32 * PAGE_BYTES;
/// Permissions of a new file: only its owner may read and write it.
const MODE: u32 = 0o600;

/// How a flush finds the lines that it writes back (`M_SYNC` of the paper).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Selective {
    /// Every line of the range.
    #[default]
    Off,
    /// The lines of dirty pages (selective persistence flushing): by [`Selective::List`] where it works, else by
    /// [`Selective::Scan`], else every line; [`MemoryController::search`] tells which.
    Auto,
    /// The lines of dirty pages, found by a walk over the page table of the range (`PAGEMAP_SCAN`, Linux 6.7): 15 us for
    /// 100 MB. The first store to a clean page takes about 1 us longer.
    Scan,
    /// The lines of dirty pages, from a list: a flush looks at no clean page. The first store to a clean page waits for a
    /// thread, 10 us and more. Memory of DAX files cannot be watched so; the process needs the right to use userfaultfd.
    List,
}

impl Selective {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Off, Self::Auto, Self::Scan, Self::List];

    /// The name in options and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Auto => "auto",
            Self::Scan => "scan",
            Self::List => "list",
        }
    }
}

/// How a memory controller makes memory durable. It is a property of the opening, not of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryOptions {
    /// The instruction that writes a line back (`M_FLUSH`). With [`FlushMethod::NonTemporal`] no thread may store to the
    /// range of a flush or persist during the call, or its store can be lost.
    pub method: FlushMethod,
    /// How [`MemoryController::flush`] finds the lines to write back.
    pub selective: Selective,
    /// Delay after each fence, which stands for the time in which a memory controller without power-fail protection
    /// empties its buffers (`L_WBAR`).
    pub barrier: Duration,
}

impl Default for MemoryOptions {
    /// The best instruction of the processor, every line, no delay.
    fn default() -> Self {
        Self { method: FlushMethod::best(), selective: Selective::Off, barrier: Duration::ZERO }
    }
}

/// Properties and usage of a memory controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Name of the file.
    pub device: String,
    /// The memory behind the file.
    pub kind: MemoryKind,
    /// Identity of the pool that the controller belongs to; nil for a controller by itself.
    pub pool: Uuid,
    /// Memory that can be allocated.
    pub size: Bytes,
    /// Allocated memory.
    pub allocated: Bytes,
    /// Address at which the file is mapped.
    pub base: u64,
    /// The regions in order of their offsets.
    pub regions: Vec<MemoryRegion>,
}

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
        let (tracker, handler) = watch(&mapping, kind, options.selective, geometry, &device)?;
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
        let kind = mapping::kind_of(&file);
        let kind =
            kind.map_err(|source| PoolError::Memory { device: device.clone(), problem: source.to_string() })?;
        Ok((header.place(), info(&device, kind, &header, &regions)))
    }

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

fn info(device: &str, kind: MemoryKind, header: &Header, regions: &Regions) -> MemoryInfo {
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
    fn place(&self) -> Place {
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
    selective: Selective,
    geometry: Geometry,
    device: &str,
) -> Result<Watched> {
    if selective == Selective::Off {
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
    let listed =
        || Tracker::by_list(mapping, geometry).map(|(tracker, handler)| (Some(tracker), Some(handler)));
    let scanned = || Tracker::by_scan(mapping, geometry).map(|tracker| (Some(tracker), None));
    match selective {
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
