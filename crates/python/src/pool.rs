//! Pools and views of tokens, as `deepram/_pool.py` uses them: addresses are numbers, bytes are `bytes`, and memory is a
//! pointer that Python wraps into an array.

use std::path::PathBuf;

use deepram_pool::{
    Addr, CreateOptions, Epoch, Lifetime, Mapping, OpenOptions, Permissions, Pool, PoolError, Redundancy,
    Retention, SegmentSize, TokenView, WatchError,
};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::error::{self, OrRaise};
use crate::guard::{self, Kind};

/// Addresses that one call of the pool gathers or scatters at a time.
const BATCH: usize = 1 << 16;
/// Address ranges that are tried for a pool whose own range is taken.
const ATTEMPTS: usize = 8;

/// An open pool. Its memory stays reserved as long as the object lives, also after it is closed.
#[pyclass(frozen, module = "deepram._native")]
pub(crate) struct NativePool {
    pool: Pool,
    mapping: Mapping,
    /// Number of the pool's range in the guard.
    watched: Option<usize>,
}

impl Drop for NativePool {
    fn drop(&mut self) {
        if let Some(number) = self.watched {
            guard::remove_pool(number);
            guard::forget(number);
        }
    }
}

/// The memory of a pool at a token, mapped for reading.
#[pyclass(frozen, module = "deepram._native")]
pub(crate) struct NativeView {
    view: TokenView,
    watched: usize,
}

impl Drop for NativeView {
    fn drop(&mut self) {
        guard::forget(self.watched);
    }
}

fn lifetime(permanent: bool) -> Lifetime {
    if permanent { Lifetime::Permanent } else { Lifetime::Temporary }
}

fn mapping_of(py: Python<'_>, name: &str) -> PyResult<Mapping> {
    match name {
        "full" => Ok(Mapping::Full),
        "user" => Ok(Mapping::UserOnly),
        "off" => Ok(Mapping::Off),
        other => {
            let problem =
                format!("mapping: {other:?} is unknown; give \"auto\", \"full\", \"user\" or \"off\"");
            Err(error::named(py, "OptionError", problem))
        }
    }
}

/// Returns whether the file is there, so that a pool is opened instead of made.
#[pyfunction]
pub(crate) fn is_pool(path: PathBuf) -> bool {
    std::fs::metadata(path).is_ok()
}

/// Creates a pool on new files or on block devices, one controller on each, and leaves it closed. Sizes are in bytes and
/// for each controller.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "each is an option of deepram.Pool")]
#[pyo3(signature = (paths, size, *, flash=None, segment=4096, keep=8, redundancy=None, overwrite=false))]
pub(crate) fn create_pool(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    size: u64,
    flash: Option<u64>,
    segment: u64,
    keep: u32,
    redundancy: Option<(u8, u8)>,
    overwrite: bool,
) -> PyResult<()> {
    let mut options = CreateOptions::new(size);
    options.flash = flash;
    options.overwrite = overwrite;
    options.retention = Retention::KeepLast(keep);
    options.segment = match segment {
        4096 => SegmentSize::K4,
        8192 => SegmentSize::K8,
        16384 => SegmentSize::K16,
        other => {
            let problem = format!("segment: {other} bytes; a segment has 4096, 8192 or 16384");
            return Err(error::named(py, "OptionError", problem));
        }
    };
    if let Some((data, parity)) = redundancy {
        let Some(redundancy) = Redundancy::new(data, parity) else {
            let problem = format!(
                "redundancy: {data} data and {parity} parity columns are too few or too many; try (8, 1)"
            );
            return Err(error::named(py, "OptionError", problem));
        };
        options.redundancy = Some(redundancy);
    }
    py.detach(|| Pool::create(&paths, &options)).or_raise(py)
}

#[pymethods]
impl NativePool {
    /// Opens a pool on the files of all of its controllers, with this DRAM budget in bytes.
    #[new]
    #[pyo3(signature = (paths, dram, mapping, listen=None))]
    fn open(
        py: Python<'_>,
        paths: Vec<PathBuf>,
        dram: u64,
        mapping: &str,
        listen: Option<&str>,
    ) -> PyResult<Self> {
        let mapping = mapping_of(py, mapping)?;
        let mut options = OpenOptions::new(dram).mapping(mapping);
        let address = listen.map(str::parse).transpose();
        options.listen = address
            .map_err(|problem: String| error::named(py, "OptionError", format!("listen: {problem}")))?;
        let pool = py.detach(|| {
            let mut opened = Pool::open(&paths, &options);
            // An array of an earlier opening may keep the pool's own address range reserved. No array stores pointers, so
            // any other range will do.
            for _ in 0..ATTEMPTS {
                let Err(PoolError::Watch(WatchError::Address { start, end, .. })) = &opened else { break };
                options.base = free_range(end - start);
                opened = Pool::open(&paths, &options);
            }
            opened
        });
        let pool = pool.or_raise(py)?;
        let watched =
            pool.mapped_range().map(|(start, len)| guard::watch(start, len, Kind::Open)).transpose()?;
        if let Some(number) = watched {
            guard::add_pool(number, &pool);
        }
        Ok(Self { pool, mapping, watched })
    }

    /// Syncs, frees temporary memory and closes the pool.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.end(py, Pool::close)
    }

    /// Closes the pool without a sync.
    fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        self.end(py, Pool::abandon)
    }

    fn alloc(&self, py: Python<'_>, len: u64, permanent: bool) -> PyResult<u64> {
        py.detach(|| self.pool.alloc(len, lifetime(permanent))).or_raise(py).map(Addr::raw)
    }

    fn free(&self, py: Python<'_>, addr: u64, len: u64) -> PyResult<()> {
        py.detach(|| self.pool.free(Addr::from_raw(addr), len)).or_raise(py)
    }

    /// Makes memory permanent or temporary.
    fn set_permanent(&self, py: Python<'_>, addr: u64, len: u64, permanent: bool) -> PyResult<()> {
        let permissions = Permissions::read_write(lifetime(permanent));
        py.detach(|| self.pool.setperms(Addr::from_raw(addr), len, permissions)).or_raise(py)
    }

    /// Allocates a free range again and makes it inaccessible, so that nothing else gets its addresses.
    fn reserve(&self, py: Python<'_>, addr: u64, len: u64) -> PyResult<()> {
        let addr = Addr::from_raw(addr);
        let hidden = Permissions { read: false, write: false, lifetime: Lifetime::Temporary };
        py.detach(|| {
            self.pool.alloc_at(addr, len, Lifetime::Temporary)?;
            self.pool.setperms(addr, len, hidden)
        })
        .or_raise(py)
    }

    fn pointer(&self, py: Python<'_>, addr: u64, len: u64) -> PyResult<usize> {
        let pointer = self.pool.pointer(Addr::from_raw(addr), len).or_raise(py)?;
        Ok(pointer.expose_provenance())
    }

    /// Returns the first address and the end of the mapped memory; `None` without mapping.
    fn mapped_range(&self) -> Option<(usize, usize)> {
        self.pool.mapped_range().map(|(start, len)| (start, start + len))
    }

    fn read<'py>(&self, py: Python<'py>, addr: u64, len: usize) -> PyResult<Bound<'py, PyBytes>> {
        let mut bytes = vec![0; len];
        py.detach(|| self.pool.read(Addr::from_raw(addr), &mut bytes)).or_raise(py)?;
        Ok(PyBytes::new(py, &bytes))
    }

    fn read_at<'py>(
        &self,
        py: Python<'py>,
        token: u64,
        addr: u64,
        len: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let mut bytes = vec![0; len];
        py.detach(|| self.pool.read_at(Epoch(token), Addr::from_raw(addr), &mut bytes)).or_raise(py)?;
        Ok(PyBytes::new(py, &bytes))
    }

    fn write(&self, py: Python<'_>, addr: u64, bytes: &[u8]) -> PyResult<()> {
        // `bytes` does not change, and the caller keeps it during the call.
        py.detach(|| self.pool.write(Addr::from_raw(addr), bytes)).or_raise(py)
    }

    fn sync(&self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| self.pool.sync()).or_raise(py).map(|token| token.0)
    }

    fn rollback(&self, py: Python<'_>, token: u64) -> PyResult<()> {
        py.detach(|| self.pool.rollback(Epoch(token))).or_raise(py)
    }

    /// Returns (token, nanoseconds since 1970, pages changed, segments written) of each token, oldest first.
    fn history(&self, py: Python<'_>) -> PyResult<Vec<(u64, u64, u64, u64)>> {
        let history = py.detach(|| self.pool.history()).or_raise(py)?;
        Ok(history.iter().map(|h| (h.token.0, h.wall_ns, h.pages_changed, h.segments_written)).collect())
    }

    fn drop_token(&self, py: Python<'_>, token: u64) -> PyResult<()> {
        py.detach(|| self.pool.drop_token(Epoch(token))).or_raise(py)
    }

    fn keep(&self, py: Python<'_>, tokens: u32) -> PyResult<()> {
        py.detach(|| self.pool.set_retention(Retention::KeepLast(tokens))).or_raise(py)
    }

    fn open_epoch(&self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| self.pool.info()).or_raise(py).map(|info| info.open_epoch.0)
    }

    /// Returns the runs of temporary pages as (address, bytes).
    fn temporary_ranges(&self, py: Python<'_>) -> PyResult<Vec<(u64, u64)>> {
        let ranges = py.detach(|| self.pool.temporary_ranges()).or_raise(py)?;
        Ok(ranges.into_iter().map(|(addr, len)| (addr.raw(), len)).collect())
    }

    fn any_allocated_at(&self, py: Python<'_>, token: u64, addr: u64, len: u64) -> PyResult<bool> {
        py.detach(|| self.pool.any_allocated_at(Epoch(token), Addr::from_raw(addr), len)).or_raise(py)
    }

    /// Returns the changed parts of a range as (first, end) in bytes from `addr`; `to` is `None` for the present.
    #[pyo3(signature = (from_, to, addr, len))]
    fn changed_between(
        &self,
        py: Python<'_>,
        from_: u64,
        to: Option<u64>,
        addr: u64,
        len: u64,
    ) -> PyResult<Vec<(u64, u64)>> {
        let (from, to) = (Epoch(from_), to.map(Epoch));
        let ranges =
            py.detach(|| self.pool.changed_between(from, to, Addr::from_raw(addr), len)).or_raise(py)?;
        Ok(ranges.into_iter().map(|range| (range.start, range.end)).collect())
    }

    /// Returns the roots as (name, address, bytes).
    fn roots(&self, py: Python<'_>) -> PyResult<Vec<(String, u64, u64)>> {
        let roots = py.detach(|| self.pool.roots()).or_raise(py)?;
        Ok(roots.into_iter().map(|root| (root.name, root.addr.raw(), root.len)).collect())
    }

    fn roots_at(&self, py: Python<'_>, token: u64) -> PyResult<Vec<(String, u64, u64)>> {
        let roots = py.detach(|| self.pool.roots_at(Epoch(token))).or_raise(py)?;
        Ok(roots.into_iter().map(|root| (root.name, root.addr.raw(), root.len)).collect())
    }

    fn set_root(&self, py: Python<'_>, name: &str, addr: u64, len: u64) -> PyResult<()> {
        py.detach(|| self.pool.set_root(name, Addr::from_raw(addr), len)).or_raise(py)
    }

    /// Copies `count` rows of `bytes` bytes, numbered by the `int64` numbers at `rows`, from the rows that lie `stride`
    /// bytes apart from `addr` on, to `to`. The caller has checked the numbers and keeps both arrays.
    fn gather(
        &self,
        py: Python<'_>,
        addr: u64,
        row: (u64, usize),
        rows: usize,
        count: usize,
        to: usize,
    ) -> PyResult<()> {
        let (stride, bytes) = row;
        py.detach(|| {
            // SAFETY: the caller, `deepram/_batch.py`, passes the data pointers of arrays of `count` int64 and of `count`
            // times `bytes` bytes, contiguous, which it holds during the call. Nobody else has the second.
            let (rows, to) = unsafe {
                (slice(rows, count), std::slice::from_raw_parts_mut(pointer_to(to), count * bytes))
            };
            for (rows, to) in rows.chunks(BATCH).zip(to.chunks_mut((BATCH * bytes).max(1))) {
                self.pool.gather(&addresses(addr, stride, rows)?, bytes, to)?;
            }
            Ok(())
        })
        .or_raise(py)
    }

    /// Copies `count` rows of `bytes` bytes at `from` into rows of the pool, as [`NativePool::gather`] finds them.
    fn scatter(
        &self,
        py: Python<'_>,
        addr: u64,
        row: (u64, usize),
        rows: usize,
        count: usize,
        from: usize,
    ) -> PyResult<()> {
        let (stride, bytes) = row;
        py.detach(|| {
            // SAFETY: as for `gather`; the caller does not change the rows to be stored during the call.
            let (rows, from) = unsafe { (slice(rows, count), slice::<u8>(from, count * bytes)) };
            for (rows, from) in rows.chunks(BATCH).zip(from.chunks((BATCH * bytes).max(1))) {
                self.pool.scatter(&addresses(addr, stride, rows)?, bytes, from)?;
            }
            Ok(())
        })
        .or_raise(py)
    }

    fn will_need(&self, py: Python<'_>, addr: u64, len: u64) -> PyResult<()> {
        py.detach(|| self.pool.will_need(Addr::from_raw(addr), len)).or_raise(py)
    }

    fn evict(&self, py: Python<'_>, addr: u64, len: u64) -> PyResult<()> {
        py.detach(|| self.pool.evict_range(Addr::from_raw(addr), len)).or_raise(py)
    }

    fn pin(&self, py: Python<'_>, addr: u64, len: u64, pinned: bool) -> PyResult<()> {
        py.detach(|| self.pool.pin(Addr::from_raw(addr), len, pinned)).or_raise(py)
    }

    fn set_dram(&self, py: Python<'_>, bytes: u64) -> PyResult<()> {
        py.detach(|| self.pool.set_dram(bytes)).or_raise(py)
    }

    /// Maps the state of a token.
    fn view(&self, py: Python<'_>, token: u64, dram: u64) -> PyResult<NativeView> {
        let view = py.detach(|| self.pool.view_at(Epoch(token), dram, self.mapping)).or_raise(py)?;
        let (start, len) = view.range();
        Ok(NativeView { view, watched: guard::watch(start, len, Kind::View)? })
    }

    /// Returns every counter by its name.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = py.detach(|| self.pool.stats());
        let counters = PyDict::new(py);
        for (name, value, _) in stats.entries() {
            counters.set_item(name, value)?;
        }
        Ok(counters)
    }

    /// Returns the properties and the usage of the pool.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let info = py.detach(|| self.pool.info()).or_raise(py)?;
        let properties = PyDict::new(py);
        properties.set_item("uuid", info.uuid.to_string())?;
        properties.set_item("devices", info.devices)?;
        for (name, bytes) in [
            ("size_bytes", info.size.0),
            ("allocated_bytes", info.allocated.0),
            ("flash_bytes", info.flash.0),
            ("flash_used_bytes", info.flash_used.0),
            ("flash_room_bytes", info.flash_room.0),
            ("segment_bytes", info.segment.bytes()),
            ("base_address", info.base),
        ] {
            properties.set_item(name, bytes)?;
        }
        Ok(properties)
    }

    /// Returns and clears the messages of accesses and background writes that have failed.
    fn take_errors(&self, py: Python<'_>) -> Vec<String> {
        py.detach(|| self.pool.take_errors()).iter().map(ToString::to_string).collect()
    }
}

impl NativePool {
    fn end(&self, py: Python<'_>, end: fn(Pool) -> deepram_pool::Result<()>) -> PyResult<()> {
        if let Some(number) = self.watched {
            guard::remove_pool(number);
        }
        let pool = self.pool.clone();
        let become_kind = |kind| self.watched.iter().for_each(|&number| guard::set_kind(number, kind));
        guard::install();
        become_kind(Kind::Closing);
        let result = py.detach(|| {
            let result = end(pool);
            // After the error of a forked child the pool is open in the parent, and its memory is not mapped here.
            let forked = matches!(result, Err(PoolError::ForkedChild(_)));
            become_kind(if forked { Kind::Open } else { Kind::Closed });
            result
        });
        result.or_raise(py)
    }
}

#[pymethods]
impl NativeView {
    /// Returns the first address and the end of the mapped memory.
    fn mapped_range(&self) -> (usize, usize) {
        let (start, len) = self.view.range();
        (start, start + len)
    }

    fn pointer(&self, py: Python<'_>, addr: u64, len: u64) -> PyResult<usize> {
        let pointer =
            py.detach(|| self.view.pointer(Addr::from_raw(addr), len).map(<*const u8>::expose_provenance));
        pointer.or_raise(py)
    }

    /// Returns and clears the messages of accesses that have failed.
    fn take_errors(&self) -> Vec<String> {
        self.view.take_errors().iter().map(ToString::to_string).collect()
    }
}

/// Returns the address of a free range, a multiple of 64 KiB; another thread may take it at any time.
fn free_range(len: usize) -> Option<u64> {
    let (with_room, flags) =
        (len + (64 << 10), libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
    // SAFETY: a new mapping, which is removed at once; nothing has been stored in it.
    unsafe {
        let found = libc::mmap(std::ptr::null_mut(), with_room, libc::PROT_NONE, flags, -1, 0);
        if found == libc::MAP_FAILED {
            return None;
        }
        libc::munmap(found, with_room);
        Some((found.addr() as u64).next_multiple_of(64 << 10))
    }
}

fn pointer_to<T>(address: usize) -> *mut T {
    // An empty array may have any pointer, also null.
    let pointer: *mut T = std::ptr::with_exposed_provenance_mut(address);
    if pointer.is_null() { std::ptr::dangling_mut() } else { pointer }
}

/// Returns the slice at an address.
///
/// # Safety
/// The address is that of `len` aligned values that live and do not change as long as the slice is used.
pub(crate) unsafe fn slice<'a, T>(address: usize, len: usize) -> &'a [T] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(pointer_to::<T>(address), len) }
}

/// Returns the addresses of rows.
fn addresses(addr: u64, stride: u64, rows: &[i64]) -> deepram_pool::Result<Vec<Addr>> {
    let first = Addr::from_raw(addr);
    let row = |&row: &i64| {
        let distance = u64::try_from(row).ok().and_then(|row| row.checked_mul(stride)).unwrap_or(u64::MAX);
        Ok(first.offset_by(distance)?)
    };
    rows.iter().map(row).collect()
}
