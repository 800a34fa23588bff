//! Creating, opening and inspecting pools.

use std::io;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

use deepram_core::units::PAGE_BYTES;
use deepram_core::{Bytes, Epoch, SegmentSize};
use uuid::Uuid;

use super::handle::SharedInner;
use super::{History, Info, Inner, Pool, memory};
use crate::cache::{Cache, HandlerPlan, Handlers, PanicGuard};
use crate::device::{ALIGN, Device, FileDevice, signature};
use crate::endurance::Endurance;
use crate::error::{PoolError, Result};
use crate::memory_controller::MemoryInfo;
use crate::options::{CreateOptions, Mapping, OpenOptions};
use crate::process::Owner;
use crate::published::{self, Published};
use crate::region::{Region, WatchError};
use crate::stats::Counters;
use crate::store::{Identity, Recovery, Report, Store};
use deepram_linux::clock::monotonic_ns;
use deepram_linux::heap::HeapTrim;
use deepram_linux::signals::spawn;
use deepram_linux::uffd::WatchMode;
use deepram_metrics::{ListenAddress, Server};

/// Addresses at which pools are mapped by default: a range of 48 TiB that neither the kernel nor a sanitizer uses by
/// itself.
const BASES: std::ops::Range<u64> = 0x2000_0000_0000..0x5000_0000_0000;
/// Smallest distance between the default addresses of two pools, which are multiples of the pool's size.
const LEAST_STEP: u64 = 1 << 30;
/// Part of the DRAM budget that block summaries may take.
const SUMMARY_SHARE: u64 = 16;
/// Number of pools opened by this process and by the processes that it was forked from.
static OPENINGS: AtomicU64 = AtomicU64::new(0);
/// Largest number of controllers of a pool.
const MAX_CONTROLLERS: usize = 1024;

impl Pool {
    /// Creates a pool on new files or block devices, one controller on each, and leaves the pool closed.
    ///
    /// # Errors
    /// [`PoolError::Exists`] for a file that exists; [`PoolError::InUse`] and [`PoolError::Holds`] for a block
    /// device, which is then unchanged; [`PoolError::Device`], for example for a full file system (the files already
    /// made are removed); [`PoolError::Option`].
    pub fn create<P: AsRef<Path>>(paths: &[P], options: &CreateOptions) -> Result<()> {
        let mut made: Vec<&Path> = Vec::new();
        let result = (|| {
            let sizing = options.sizing();
            // The file is longer than anything that is ever written, so no write can extend a truncated file to its
            // full length.
            let need = sizing.geometry()?.device_bytes() + ALIGN as u64;
            let mut devices: Vec<Arc<dyn Device>> = Vec::new();
            for path in paths {
                let path = path.as_ref();
                let is_new = !path.exists();
                let device = FileDevice::create(path, need).map_err(|source| match source.kind() {
                    io::ErrorKind::AlreadyExists => PoolError::Exists { path: path.to_owned() },
                    io::ErrorKind::WouldBlock => PoolError::Busy { path: path.to_owned() },
                    io::ErrorKind::ResourceBusy => PoolError::InUse { path: path.to_owned() },
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
            let uuid = Uuid::new_v4();
            Self::create_with(uuid, devices, options)?;
            memory::create(&options.memory, uuid)
        })();
        if result.is_err() {
            for path in made {
                // The caller gets the first error.
                let _ = std::fs::remove_file(path);
            }
        }
        result
    }

    /// Creates a pool on devices of any kind, each large enough for [`CreateOptions::size`].
    ///
    /// # Errors
    /// [`PoolError::Device`], [`PoolError::Option`], [`PoolError::NoSpace`]; [`PoolError::Holds`] unless
    /// [`CreateOptions::overwrite`] is set, which leaves the device unchanged.
    pub fn create_on(devices: Vec<Arc<dyn Device>>, options: &CreateOptions) -> Result<()> {
        let uuid = Uuid::new_v4();
        Self::create_with(uuid, devices, options)?;
        memory::create(&options.memory, uuid)
    }

    fn create_with(uuid: Uuid, devices: Vec<Arc<dyn Device>>, options: &CreateOptions) -> Result<()> {
        if devices.is_empty() || devices.len() > MAX_CONTROLLERS {
            let problem =
                format!("{} devices were given, but a pool has 1 to {MAX_CONTROLLERS}", devices.len());
            return Err(PoolError::Option { option: "devices", problem });
        }
        let sizing = options.sizing();
        let geometry = sizing.geometry()?;
        check_segments(geometry.pages, devices.len(), options.segment)?;
        let span = u64::from(geometry.pages) * PAGE_BYTES * devices.len() as u64;
        let base = options.base.unwrap_or_else(|| default_base(uuid, span));
        if !base.is_multiple_of(PAGE_BYTES) || base == 0 {
            let problem = format!("{base:#x} is not a multiple of 64 KiB");
            return Err(PoolError::Option { option: "base", problem });
        }
        if options.base.is_some() {
            // Every opening will map the pool at this address, so creation checks that this works.
            Region::map(Some(base as usize), span as usize).map_err(|error| {
                let problem = format!("{} at {base:#x} cannot be mapped: {error}", Bytes(span));
                PoolError::Option { option: "base", problem }
            })?;
        }
        let controllers = devices.len() as u16;
        for device in &devices {
            if device.len() < geometry.device_bytes() {
                return Err(PoolError::NoSpace {
                    device: device.name(),
                    needed: Bytes(geometry.device_bytes()),
                    available: Bytes(device.len()),
                });
            }
        }
        let limits = options.wear_limits();
        overwrite(&devices, options.overwrite)?;
        for (controller, device) in (0..).zip(devices) {
            let identity = Identity { uuid, controller, controllers, base, limits };
            let counters = Arc::new(Counters::default());
            let summaries = 1 << 20;
            Store::create(device, identity, geometry, options.retention, summaries, counters)?;
        }
        Ok(())
    }

    /// Opens a pool on the files of all of its controllers, in any order. After a crash the pool is at its last token, with
    /// the bytes persisted since; memory controllers have each line as it was flushed last, or as it was stored later.
    ///
    /// The files of memory controllers may be left out, all of them together: their addresses are then not allocated.
    ///
    /// # Errors
    /// [`PoolError::NotAPool`], [`PoolError::FutureVersion`], [`PoolError::Truncated`], [`PoolError::DamagedPool`],
    /// [`PoolError::Inconsistent`], [`PoolError::Mismatch`], [`PoolError::Busy`], [`PoolError::Budget`],
    /// [`PoolError::Watch`], [`PoolError::Device`].
    pub fn open<P: AsRef<Path>>(paths: &[P], options: &OpenOptions) -> Result<Self> {
        let (devices, memories) = memory::split(paths);
        Self::open_with(open_devices(&devices, true)?, &memories, options)
    }

    /// Opens a pool on devices of any kind.
    ///
    /// # Errors
    /// The errors of [`Pool::open`].
    pub fn open_on(devices: Vec<Arc<dyn Device>>, options: &OpenOptions) -> Result<Self> {
        Self::open_with(devices, &[], options)
    }

    fn open_with(devices: Vec<Arc<dyn Device>>, memories: &[&Path], options: &OpenOptions) -> Result<Self> {
        let owner = Owner::here()
            .map_err(|source| WatchError::System { what: "madvise(MADV_WIPEONFORK)", source })?;
        let counters = Arc::new(Counters::default());
        let (stores, _) = recover(devices, options.dram / SUMMARY_SHARE, options.at_token, &counters)?;
        let stride = stores.iter().map(|s| s.geometry().pages).max().unwrap_or(1);
        check_segments(stride, stores.len(), stores[0].segment())?;
        let len = u64::from(stride) * PAGE_BYTES * stores.len() as u64;
        let base = options.base.unwrap_or(stores[0].identity().base) as usize;
        let watched = match options.mapping {
            Mapping::Full => Some(WatchMode::All),
            Mapping::UserOnly => Some(WatchMode::UserOnly),
            Mapping::Off => None,
        };
        // No pointer refers to an unmapped pool, so it may have any address.
        let mut region = Region::map(watched.map(|_| base), len as usize)?;
        if let Some(mode) = watched {
            region.watch(mode)?;
        }
        let plan = HandlerPlan::new(&options.faults, &stores, options.dram)?;
        let buffers = if watched.is_some() { plan.memory_bytes() } else { 0 };
        let cache = Cache::new(region, stores.clone(), Arc::clone(&counters), stride, options, buffers)?;
        let cache = Arc::new(cache);
        let uuid = stores[0].identity().uuid;
        let memories = memory::open(memories, uuid, stores.len() as u32, &options.memory)?;
        let listening =
            options.listen.as_ref().map(|address| listen(address, &stores, &cache)).transpose()?;
        // All checks have passed. The devices change from here on.
        for store in &stores {
            store.resume()?;
        }
        let spawn_error = |source| PoolError::Device {
            device: stores[0].device().name(),
            operation: "starting the pool's threads",
            source,
        };
        let handlers = Handlers::start(&cache, plan).map_err(spawn_error)?;
        type Body = Box<dyn FnOnce(&Cache) + Send>;
        let background_thread = |name: &str, body: Body| {
            let cache = Arc::clone(&cache);
            spawn(name, None, move || {
                let _guard = PanicGuard(&cache);
                body(&cache);
            })
            .map_err(spawn_error)
        };
        let name = published::name(&stores);
        let visible = Published::new(&name);
        if let Err(error) = &visible {
            tracing::warn!(%error, "the pool is not visible to `deepram top`");
        }
        let (for_evictor, for_writer) = (handlers.handler_group(), handlers.handler_group());
        let evictor = background_thread(
            "deepram-evict",
            Box::new(move |cache| cache.run_evictor(visible.as_ref().ok(), for_evictor.as_deref())),
        )?;
        let writer = background_thread(
            "deepram-writeback",
            Box::new(move |cache| cache.run_writeback(for_writer.as_deref())),
        );
        let writer = writer.inspect_err(|_| cache.stop())?;
        let mut background_threads = vec![evictor, writer];
        for n in 0..cache.stagers() {
            let stager = background_thread(&format!("deepram-stage-{n}"), Box::new(Cache::run_stager));
            background_threads.push(stager.inspect_err(|_| cache.stop())?);
        }
        let inner = Inner {
            id: OPENINGS.fetch_add(1, Relaxed),
            owner,
            cache,
            stores,
            memories,
            counters,
            handlers: Mutex::new(Some(handlers)),
            background_threads: Mutex::new(background_threads),
            closing: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            regions: Mutex::default(),
            listening: Mutex::new(listening),
            _heap: HeapTrim,
        };
        let pool = Self { inner: SharedInner::new(inner) };
        pool.replay_lines()?;
        Ok(pool)
    }

    /// Reads the state of a pool without opening or changing it.
    ///
    /// # Errors
    /// The errors of [`Pool::open`].
    pub fn inspect<P: AsRef<Path>>(paths: &[P]) -> Result<Inspection> {
        let (devices, memories) = memory::split(paths);
        let mut found = Inspection::of(open_devices(&devices, false)?)?;
        found.memory = memory::inspect(&memories, found.stores[0].identity().uuid)?;
        Ok(found)
    }
}

/// A read-only view of a pool that is not open. The devices are not changed.
pub struct Inspection {
    stores: Vec<Arc<Store>>,
    memory: Vec<MemoryInfo>,
    /// Whether the pool was closed by [`Pool::close`].
    pub clean: bool,
    /// Batches of the log that an opening would replay.
    pub batches: usize,
}

impl Inspection {
    /// Inspects a pool on devices of any kind.
    ///
    /// # Errors
    /// The errors of [`Pool::open`].
    pub fn of(devices: Vec<Arc<dyn Device>>) -> Result<Self> {
        let counters = Arc::new(Counters::default());
        let (stores, (clean, batches)) = recover(devices, 16 << 20, None, &counters)?;
        Ok(Self { stores, memory: Vec::new(), clean, batches })
    }

    /// Returns the properties of the pool.
    #[must_use]
    pub fn info(&self) -> Info {
        Info { memory: self.memory.clone(), ..info(&self.stores) }
    }

    /// Returns the tokens that a rollback can return to, oldest first.
    #[must_use]
    pub fn history(&self) -> Vec<History> {
        super::history(&self.stores)
    }

    /// Checks the pool as [`Pool::check`] does.
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

/// Address at which memory of `span` bytes is mapped by default, at every opening.
pub(crate) fn default_base(uuid: Uuid, span: u64) -> u64 {
    let step = span.next_power_of_two().max(LEAST_STEP);
    let places = ((BASES.end - BASES.start) / step).max(1);
    BASES.start + step * (uuid.as_u128() % u128::from(places)) as u64
}

/// Finds signatures of existing content on the devices, and wipes them if `may` allows an overwrite.
fn overwrite(devices: &[Arc<dyn Device>], may: bool) -> Result<()> {
    let failed = |device: &Arc<dyn Device>, operation| {
        let device = device.name();
        move |source| PoolError::Device { device, operation, source }
    };
    let mut found = Vec::new();
    for device in devices {
        let signatures =
            signature::find(&**device).map_err(failed(device, "looking for existing content"))?;
        let mut names: Vec<&str> = signatures.iter().map(|found| found.what).collect();
        names.dedup();
        if !may && !names.is_empty() {
            return Err(PoolError::Holds { device: device.name(), what: names.join(" and ") });
        }
        found.push(signatures);
    }
    for (device, signatures) in devices.iter().zip(found).filter(|(_, found)| !found.is_empty()) {
        signature::wipe(&**device, &signatures).map_err(failed(device, "wiping existing content"))?;
    }
    Ok(())
}

/// Serves the statistics of a pool that is being opened.
fn listen(address: &ListenAddress, stores: &[Arc<Store>], cache: &Arc<Cache>) -> Result<Server> {
    let (name, began_ns) = (published::name(stores), monotonic_ns());
    let (counters, cache) = (Arc::clone(&cache.counters), Arc::downgrade(cache));
    let source = Arc::new(move || {
        // A request may still be answered while the pool is closed.
        let stats = cache.upgrade().map_or_else(|| counters.read(), |cache| cache.stats());
        published::statistics(name.clone(), began_ns, &stats, &counters.histograms)
    });
    Server::start(address, source)
        .map_err(|error| PoolError::Option { option: "listen", problem: format!("{address}: {error}") })
}

fn open_devices<P: AsRef<Path>>(paths: &[P], writable: bool) -> Result<Vec<Arc<dyn Device>>> {
    let mut devices: Vec<Arc<dyn Device>> = Vec::new();
    for path in paths {
        let path = path.as_ref();
        let device = FileDevice::open(path, writable).map_err(|source| match source.kind() {
            io::ErrorKind::WouldBlock => PoolError::Busy { path: path.to_owned() },
            io::ErrorKind::ResourceBusy => PoolError::InUse { path: path.to_owned() },
            _ => PoolError::Device { device: path.display().to_string(), operation: "opening", source },
        })?;
        devices.push(Arc::new(device));
    }
    Ok(devices)
}

/// Checks that the segments of the pool can be numbered in 32 bits, as the cache does.
fn check_segments(pages: u32, controllers: usize, segment: SegmentSize) -> Result<()> {
    let segments = u64::from(pages) * u64::from(segment.per_page()) * controllers as u64;
    if u32::try_from(segments).is_ok() {
        return Ok(());
    }
    let (each, all) = (Bytes(u64::from(pages) * PAGE_BYTES), Bytes(segment.bytes() << 32));
    let problem = format!(
        "{each} on each of {controllers} controllers is too much: with segments of {} a pool must be smaller than {all}",
        Bytes(segment.bytes()),
    );
    Err(PoolError::Option { option: "size", problem })
}

type Recovered = (Vec<Arc<Store>>, (bool, usize));

/// Reads all controllers and recovers the newest state that all of them have. With `at_token`, recovers the state of
/// that token and discards the log after it.
fn recover(
    devices: Vec<Arc<dyn Device>>,
    summary_bytes: u64,
    at_token: Option<Epoch>,
    counters: &Arc<Counters>,
) -> Result<Recovered> {
    let mut found = Vec::new();
    for device in devices {
        found.push(Recovery::read(device, Arc::clone(counters))?);
    }
    found.sort_by_key(|r| r.identity().controller);
    let Some(first) = found.first() else {
        return Err(PoolError::Mismatch("no device was given".into()));
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
                "the pool has {count} devices; the device of controller {n} is missing, or another device is given twice"
            )));
        }
    }
    if found.len() != usize::from(identity.controllers) {
        let (have, count) = (found.len(), identity.controllers);
        return Err(PoolError::Mismatch(format!("the pool has {count} devices, {have} are given")));
    }
    let clean = found.iter().all(Recovery::was_clean);
    let batches = found.iter().map(Recovery::batches).sum();
    let open = match at_token {
        None => newest(&found)?,
        Some(token) => opened_after(&found, token)?,
    };
    let each = summary_bytes as usize / found.len();
    let salvage = at_token.is_some();
    let stores =
        found.into_iter().map(|r| Ok(Arc::new(r.finish(open, each, salvage)?))).collect::<Result<_>>()?;
    Ok((stores, (clean, batches)))
}

/// Returns the open epoch of the newest state that all controllers have.
///
/// # Errors
/// [`PoolError::LogDamaged`] if a later state was durable.
fn newest(found: &[Recovery]) -> Result<Epoch> {
    let open = found.iter().map(Recovery::newest).min().unwrap_or(Epoch(0));
    let kept = found.iter().find_map(|r| r.token_before(open)).unwrap_or(Epoch(0));
    let damaged = found.iter().filter_map(|r| Some((r, r.damage()?))).min_by_key(|(r, _)| r.newest());
    if let Some((recovery, damage)) = damaged {
        let (batch, lost) = (damage.batch, damage.lost);
        return Err(PoolError::LogDamaged { device: recovery.name(), batch, lost, kept });
    }
    // A sync commits on every controller before the next sync begins.
    let ahead = found.iter().find(|r| r.newest().0 > open.0 + 1);
    let behind = found.iter().find(|r| r.newest() == open);
    if let (Some(ahead), Some(behind)) = (ahead, behind) {
        let (batch, lost) = (behind.next_batch(), ahead.token_before(ahead.newest()));
        return Err(PoolError::LogDamaged { device: behind.name(), batch, lost, kept });
    }
    Ok(open)
}

/// Returns the open epoch of the newest state that follows this token.
fn opened_after(found: &[Recovery], token: Epoch) -> Result<Epoch> {
    let states = found.iter().map(|r| r.opened_after(token)).collect::<Option<Vec<_>>>();
    states.and_then(|states| states.into_iter().min()).ok_or_else(|| {
        let why =
            "the log since the last checkpoint does not contain this state; open the pool, then roll it back"
                .into();
        PoolError::Token { token, why }
    })
}

pub(super) fn info(stores: &[Arc<Store>]) -> Info {
    let geometry = stores[0].geometry();
    let segment = geometry.segment.bytes();
    let sum = |of: &dyn Fn(&Store) -> u64| Bytes(stores.iter().map(|s| of(s)).sum());
    Info {
        uuid: stores[0].identity().uuid,
        devices: stores.iter().map(|s| s.device().name()).collect(),
        size: sum(&|s| (u64::from(s.geometry().pages) - 1) * PAGE_BYTES),
        // Page 0 of each controller belongs to the pool.
        allocated: sum(&|s| u64::from(s.allocated_pages().saturating_sub(1)) * PAGE_BYTES),
        flash: sum(&|s| s.geometry().device_bytes()),
        flash_used: sum(&|s| s.usage().0 * segment),
        flash_room: sum(&|s| s.usage().1.max(0).cast_unsigned() * segment),
        line_log: sum(&|s| s.line_log_bytes()),
        segment: geometry.segment,
        block: Bytes(geometry.block_bytes()),
        block_with_parity: Bytes(geometry.block_stride()),
        redundancy: geometry.redundancy,
        column: Bytes(geometry.redundancy.map_or(0, |r| geometry.block_bytes() / u64::from(r.data()))),
        retention: stores[0].retention(),
        base: stores[0].identity().base,
        open_epoch: stores[0].open_epoch(),
        endurance: Endurance::of(stores),
        memory: Vec::new(),
    }
}

/// Bytes free in the file system of `path`.
fn available(path: &Path) -> u64 {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    rustix::fs::statvfs(folder).map_or(0, |s| s.f_bavail * s.f_frsize)
}
