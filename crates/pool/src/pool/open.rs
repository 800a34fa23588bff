//! Creating, opening and inspecting pools.

use std::io;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use deepram_core::units::PAGE_BYTES;
use deepram_core::{Bytes, Epoch, SegmentSize};
use uuid::Uuid;

use super::{History, Info, Inner, Pool};
use crate::cache::{Cache, Handlers, Plan};
use crate::device::{Device, FileDevice};
use crate::error::{PoolError, Result};
use crate::options::{CreateOptions, Mapping, OpenOptions};
use crate::region::Region;
use crate::signals::spawn;
use crate::stats::Counters;
use crate::store::{Identity, Recovery, Report, Store};
use crate::uffd::WatchMode;

/// Where pools are mapped if the caller does not say: a part of the address space (48 TiB) that
/// neither the kernel nor a sanitiser uses by itself.
const BASES: std::ops::Range<u64> = 0x2000_0000_0000..0x5000_0000_0000;
/// Pools are placed at multiples of their size in it, and at least so far apart.
const LEAST_STEP: u64 = 1 << 30;
/// The part of the budget that block summaries may take.
const SUMMARY_SHARE: u64 = 16;
/// The most controllers of a pool.
const MAX_CONTROLLERS: usize = 1024;

impl Pool {
    /// Creates a pool on new files (or block devices), one controller each, and leaves it closed.
    ///
    /// # Errors
    /// [`PoolError::Exists`]; [`PoolError::Device`], for a full file system among others (files
    /// already made are removed); [`PoolError::Option`].
    pub fn create<P: AsRef<Path>>(paths: &[P], options: &CreateOptions) -> Result<()> {
        let mut made: Vec<&Path> = Vec::new();
        let result = (|| {
            let sizing = options.sizing();
            let need = sizing.geometry()?.device_bytes();
            let mut devices: Vec<Arc<dyn Device>> = Vec::new();
            for path in paths {
                let path = path.as_ref();
                let is_new = !path.exists();
                let device = FileDevice::create(path, need).map_err(|source| match source.kind() {
                    io::ErrorKind::AlreadyExists => PoolError::Exists { path: path.to_owned() },
                    io::ErrorKind::WouldBlock => PoolError::Busy { path: path.to_owned() },
                    io::ErrorKind::StorageFull => {
                        let (needed, available) = (Bytes(need), Bytes(available(path)));
                        PoolError::NoSpace { device: path.display().to_string(), needed, available }
                    }
                    _ => PoolError::Device {
                        device: path.display().to_string(),
                        operation: "creating",
                        source,
                    },
                })?;
                if is_new {
                    made.push(path);
                }
                devices.push(Arc::new(device));
            }
            Self::create_on(devices, options)
        })();
        if result.is_err() {
            for path in made {
                // The error at hand is the one to tell.
                let _ = std::fs::remove_file(path);
            }
        }
        result
    }

    /// Creates a pool on any devices, large enough for [`CreateOptions::size`] each.
    ///
    /// # Errors
    /// [`PoolError::Device`], [`PoolError::Option`], [`PoolError::NoSpace`].
    pub fn create_on(devices: Vec<Arc<dyn Device>>, options: &CreateOptions) -> Result<()> {
        if devices.is_empty() || devices.len() > MAX_CONTROLLERS {
            let problem = format!("{} given, a pool has 1 to {MAX_CONTROLLERS}", devices.len());
            return Err(PoolError::Option { option: "devices", problem });
        }
        let uuid = Uuid::new_v4();
        let sizing = options.sizing();
        let geometry = sizing.geometry()?;
        check_segments(geometry.pages, devices.len(), options.segment)?;
        let span = u64::from(geometry.pages) * PAGE_BYTES * devices.len() as u64;
        let step = span.next_power_of_two().max(LEAST_STEP);
        let places = ((BASES.end - BASES.start) / step).max(1);
        let base = options.base.unwrap_or(BASES.start + step * (uuid.as_u128() % u128::from(places)) as u64);
        if !base.is_multiple_of(PAGE_BYTES) || base == 0 {
            let problem = format!("{base:#x} is not a multiple of 64 KiB");
            return Err(PoolError::Option { option: "base", problem });
        }
        let controllers = devices.len() as u16;
        for (controller, device) in (0..).zip(devices) {
            if device.len() < geometry.device_bytes() {
                return Err(PoolError::NoSpace {
                    device: device.name(),
                    needed: Bytes(geometry.device_bytes()),
                    available: Bytes(device.len()),
                });
            }
            let identity = Identity { uuid, controller, controllers, base };
            let counters = Arc::new(Counters::default());
            let summaries = 1 << 20;
            Store::create(device, identity, geometry, options.retention, summaries, counters)?;
        }
        Ok(())
    }

    /// Opens a pool for loads and stores. After a crash it is at its last token, with what was persisted since.
    ///
    /// # Errors
    /// [`PoolError::NotAPool`], [`PoolError::FutureVersion`], [`PoolError::Truncated`],
    /// [`PoolError::DamagedPool`], [`PoolError::Inconsistent`], [`PoolError::Mismatch`],
    /// [`PoolError::Busy`], [`PoolError::Budget`], [`PoolError::Watch`], [`PoolError::Device`].
    pub fn open<P: AsRef<Path>>(paths: &[P], options: &OpenOptions) -> Result<Self> {
        Self::open_on(open_devices(paths, true)?, options)
    }

    /// Opens the pool on any devices.
    ///
    /// # Errors
    /// As [`Pool::open`].
    pub fn open_on(devices: Vec<Arc<dyn Device>>, options: &OpenOptions) -> Result<Self> {
        let counters = Arc::new(Counters::default());
        let (stores, _) = recover(devices, options.dram / SUMMARY_SHARE, &counters)?;
        let stride = stores.iter().map(|s| s.geometry().pages).max().unwrap_or(1);
        check_segments(stride, stores.len(), stores[0].segment())?;
        let len = u64::from(stride) * PAGE_BYTES * stores.len() as u64;
        let base = options.base.unwrap_or(stores[0].identity().base) as usize;
        let watched = match options.mapping {
            Mapping::Full => Some(WatchMode::All),
            Mapping::UserOnly => Some(WatchMode::UserOnly),
            Mapping::Off => None,
        };
        // Nobody has pointers into an unmapped pool: any address will do.
        let mut region = Region::map(watched.map(|_| base), len as usize)?;
        if let Some(mode) = watched {
            region.watch(mode)?;
        }
        let plan = Plan::new(&options.faults, &stores, options.dram)?;
        let buffers = if watched.is_some() { plan.memory_bytes() } else { 0 };
        let cache = Cache::new(region, stores.clone(), Arc::clone(&counters), stride, options, buffers)?;
        let cache = Arc::new(cache);
        // All has gone well: from here on the devices change.
        for store in &stores {
            store.resume()?;
        }
        let spawn_error = |source| PoolError::Device {
            device: stores[0].device().name(),
            operation: "starting the pool's threads",
            source,
        };
        let handlers = Handlers::start(&cache, &plan).map_err(spawn_error)?;
        let keeper = |name: &str, body: fn(&Cache)| {
            let cache = Arc::clone(&cache);
            spawn(name, None, move || body(&cache)).map_err(spawn_error)
        };
        let evictor = keeper("deepram-evict", Cache::keep_room)?;
        let writer = keeper("deepram-writeback", Cache::keep_house);
        let writer = writer.inspect_err(|_| cache.stop())?;
        let keepers = vec![evictor, writer];
        let inner = Inner {
            cache,
            stores,
            counters,
            handlers: Mutex::new(Some(handlers)),
            keepers: Mutex::new(keepers),
            closed: AtomicBool::new(false),
        };
        let pool = Self { inner: Arc::new(inner) };
        pool.replay_lines()?;
        Ok(pool)
    }

    /// Reads what can be known of a pool without changing it.
    ///
    /// # Errors
    /// As [`Pool::open`].
    pub fn inspect<P: AsRef<Path>>(paths: &[P]) -> Result<Inspection> {
        Inspection::of(open_devices(paths, false)?)
    }
}

/// A pool seen from outside: read, not opened. The device is not changed.
pub struct Inspection {
    stores: Vec<Arc<Store>>,
    /// The pool was closed in order.
    pub clean: bool,
    /// Log batches that an opening would replay.
    pub batches: usize,
}

impl Inspection {
    /// Inspects the pool on any devices.
    ///
    /// # Errors
    /// As [`Pool::open`].
    pub fn of(devices: Vec<Arc<dyn Device>>) -> Result<Self> {
        let counters = Arc::new(Counters::default());
        let (stores, (clean, batches)) = recover(devices, 16 << 20, &counters)?;
        Ok(Self { stores, clean, batches })
    }

    /// What the pool is.
    #[must_use]
    pub fn info(&self) -> Info {
        info(&self.stores)
    }

    /// The tokens that can be rolled back to, oldest first.
    #[must_use]
    pub fn history(&self) -> Vec<History> {
        super::history(&self.stores)
    }

    /// As [`Pool::check`].
    ///
    /// # Errors
    /// [`PoolError::Device`].
    pub fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Report> {
        let mut report = Report::default();
        for store in &self.stores {
            store.check(&mut store.lock_log(), &mut report, progress)?;
        }
        Ok(report)
    }
}

fn open_devices<P: AsRef<Path>>(paths: &[P], writable: bool) -> Result<Vec<Arc<dyn Device>>> {
    let mut devices: Vec<Arc<dyn Device>> = Vec::new();
    for path in paths {
        let path = path.as_ref();
        let device = FileDevice::open(path, writable).map_err(|source| match source.kind() {
            io::ErrorKind::WouldBlock => PoolError::Busy { path: path.to_owned() },
            _ => PoolError::Device { device: path.display().to_string(), operation: "opening", source },
        })?;
        devices.push(Arc::new(device));
    }
    Ok(devices)
}

/// The cache numbers a pool's segments in 32 bits.
fn check_segments(pages: u32, controllers: usize, segment: SegmentSize) -> Result<()> {
    let segments = u64::from(pages) * u64::from(segment.per_page()) * controllers as u64;
    if u32::try_from(segments).is_ok() {
        return Ok(());
    }
    let (each, all) = (Bytes(u64::from(pages) * PAGE_BYTES), Bytes(segment.bytes() << 32));
    let problem = format!(
        "{each} on each of {controllers} controllers is too much: with segments of {} a pool has less than {all}",
        Bytes(segment.bytes()),
    );
    Err(PoolError::Option { option: "size", problem })
}

type Recovered = (Vec<Arc<Store>>, (bool, usize));

/// Reads all controllers and brings them to the newest state that all of them have.
fn recover(devices: Vec<Arc<dyn Device>>, summary_bytes: u64, counters: &Arc<Counters>) -> Result<Recovered> {
    let mut found = Vec::new();
    for device in devices {
        found.push(Recovery::read(device, Arc::clone(counters))?);
    }
    found.sort_by_key(|r| r.identity().controller);
    let Some(first) = found.first() else {
        return Err(PoolError::Mismatch("none was given".into()));
    };
    let identity = first.identity();
    let named = |n: usize| found[n].name();
    for (n, recovery) in found.iter().enumerate() {
        let other = recovery.identity();
        if other.uuid != identity.uuid {
            return Err(PoolError::Mismatch(format!(
                "{} and {} belong to different pools",
                named(0),
                named(n)
            )));
        }
        if recovery.segment() != first.segment() {
            return Err(PoolError::Mismatch(format!(
                "{} and {} have segments of different sizes",
                named(0),
                named(n)
            )));
        }
        if usize::from(other.controller) != n {
            let count = identity.controllers;
            return Err(PoolError::Mismatch(format!(
                "the pool has {count} devices; the one of controller {n} is missing, or another is given twice"
            )));
        }
    }
    if found.len() != usize::from(identity.controllers) {
        let (have, count) = (found.len(), identity.controllers);
        return Err(PoolError::Mismatch(format!("the pool has {count} devices, {have} are given")));
    }
    let clean = found.iter().all(Recovery::was_clean);
    let batches = found.iter().map(Recovery::batches).sum();
    let open = found.iter().map(Recovery::newest).min().unwrap_or(Epoch(0));
    let each = summary_bytes as usize / found.len();
    let stores = found.into_iter().map(|r| Ok(Arc::new(r.finish(open, each)?))).collect::<Result<_>>()?;
    Ok((stores, (clean, batches)))
}

pub(super) fn info(stores: &[Arc<Store>]) -> Info {
    let geometry = stores[0].geometry();
    let segment = geometry.segment.bytes();
    let sum = |of: &dyn Fn(&Store) -> u64| Bytes(stores.iter().map(|s| of(s)).sum());
    Info {
        uuid: stores[0].identity().uuid,
        devices: stores.iter().map(|s| s.device().name()).collect(),
        size: sum(&|s| (u64::from(s.geometry().pages) - 1) * PAGE_BYTES),
        // Page 0 of each controller is the pool's own.
        allocated: sum(&|s| u64::from(s.allocated_pages().saturating_sub(1)) * PAGE_BYTES),
        flash: sum(&|s| s.geometry().device_bytes()),
        flash_used: sum(&|s| s.usage().0 * segment),
        flash_room: sum(&|s| s.usage().1.max(0).cast_unsigned() * segment),
        line_log: sum(&|s| s.line_log_bytes()),
        segment: geometry.segment,
        block: Bytes(geometry.block_bytes()),
        retention: stores[0].retention(),
        base: stores[0].identity().base,
        open_epoch: stores[0].open_epoch(),
    }
}

/// Bytes free in the file system that `path` would be in.
fn available(path: &Path) -> u64 {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    rustix::fs::statvfs(folder).map_or(0, |s| s.f_bavail * s.f_frsize)
}
