//! Creating, opening, closing; properties and counters.

use std::ffi::{CString, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

use deepram_pool::{Pool, Stats};

use crate::call::{Failure, guarded, reference, results, slice, write};
use crate::options::{self, CreateOptions, OpenOptions};
use crate::status::Status;

/// A handle of an open pool.
#[derive(Debug)]
pub struct PoolHandle {
    pool: Shown,
}

/// A pool, which has no text form of its own.
struct Shown(Pool);

impl std::fmt::Debug for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pool")
    }
}

/// The pool of a handle.
///
/// # Safety
/// The pointer is null, or comes from `deepram_pool_open` and has not been released.
pub(crate) unsafe fn pool<'a>(handle: *const PoolHandle) -> Result<&'a Pool, Failure> {
    // SAFETY: passed on from the caller. Shared access from several threads is sound, because a pool is `Sync`.
    Ok(unsafe { &reference(handle, "pool")?.pool.0 })
}

const fn is_sync<T: Send + Sync>() {}
const _: () = is_sync::<Pool>();

/// The paths of an argument.
///
/// # Safety
/// `paths` is null, or points to `count` strings that end with a zero.
unsafe fn paths<'a>(paths: *const *const c_char, count: usize) -> Result<Vec<&'a Path>, Failure> {
    // SAFETY: passed on from the caller.
    let pointers = unsafe { slice(paths, count, "paths")? };
    let path = |pointer: &*const c_char| {
        // SAFETY: passed on from the caller: null, or a string with its zero.
        let text = unsafe { reference(*pointer, "a path").map(|_| std::ffi::CStr::from_ptr(*pointer))? };
        Ok(Path::new(OsStr::from_bytes(text.to_bytes())))
    };
    pointers.iter().map(path).collect()
}

/// Creates a pool in `count` new files or on block devices.
///
/// # Safety
/// `paths` points to `count` strings; `options` points to options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deepram_pool_create(
    paths: *const *const c_char,
    count: usize,
    options: *const CreateOptions,
) -> Status {
    guarded(|| {
        // SAFETY: passed on from the caller.
        let (files, options) = unsafe { (self::paths(paths, count)?, options::create(options)?) };
        Ok(Pool::create(&files, &options)?)
    })
}

/// Opens a pool that is in `count` files or on block devices, and stores its handle in `pool`.
///
/// # Safety
/// `paths` points to `count` strings; `options` points to options; `pool` is valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deepram_pool_open(
    paths: *const *const c_char,
    count: usize,
    options: *const OpenOptions,
    pool: *mut *mut PoolHandle,
) -> Status {
    guarded(|| {
        // SAFETY: passed on from the caller.
        unsafe {
            write(pool, "pool", std::ptr::null_mut())?;
            let (files, options) = (self::paths(paths, count)?, options::open(options)?);
            let opened = Pool::open(&files, &options)?;
            write(pool, "pool", Box::into_raw(Box::new(PoolHandle { pool: Shown(opened) })))
        }
    })
}

/// Closes a pool: syncs nothing, frees temporary memory, unmaps. The handle stays valid, and all further calls on it return
/// DEEPRAM_STATUS_CLOSED, until it is released.
///
/// # Safety
/// `pool` comes from deepram_pool_open() and has not been released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deepram_pool_close(pool: *mut PoolHandle) -> Status {
    // SAFETY: passed on from the caller.
    guarded(|| Ok(unsafe { self::pool(pool)? }.clone().close()?))
}

/// Releases a handle, and closes the pool if it is open. No thread may use the handle any more. Null is allowed.
///
/// # Safety
/// `pool` is null, or comes from deepram_pool_open() and has not been released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deepram_pool_release(pool: *mut PoolHandle) {
    let _ = guarded(|| {
        if !pool.is_null() {
            // SAFETY: the caller passes on that the handle is one of `deepram_pool_open`, which made it from a box, and
            // that this is its last use.
            drop(unsafe { Box::from_raw(pool) });
        }
        Ok(())
    });
}

/// Properties and usage of a pool.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Info {
    /// Virtual memory of all devices together, bytes.
    pub size: u64,
    /// Allocated memory, bytes.
    pub allocated: u64,
    /// Flash of the pool, bytes.
    pub flash: u64,
    /// Flash that current data and kept versions take, bytes.
    pub flash_used: u64,
    /// New data that fits before older tokens must be given up, bytes.
    pub flash_room: u64,
    /// Size of a segment, bytes.
    pub segment: u64,
    /// Address at which the pool is mapped.
    pub base: u64,
    /// Number of the open epoch: the token that the next sync returns.
    pub open_epoch: u64,
}

/// Stores the properties and the usage of a pool in `info`.
///
/// # Safety
/// `pool` is a handle; `info` is valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deepram_pool_info(pool: *const PoolHandle, info: *mut Info) -> Status {
    guarded(|| {
        // SAFETY: passed on from the caller.
        let found = unsafe { self::pool(pool)? }.info()?;
        let shown = Info {
            size: found.size.0,
            allocated: found.allocated.0,
            flash: found.flash.0,
            flash_used: found.flash_used.0,
            flash_room: found.flash_room.0,
            segment: found.segment.bytes(),
            base: found.base,
            open_epoch: found.open_epoch.0,
        };
        // SAFETY: passed on from the caller.
        unsafe { write(info, "info", shown) }
    })
}

/// A counter of a pool.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Counter {
    /// The name, such as "bytes_written"; static.
    pub name: *const c_char,
    /// The value since the pool was opened; of "resident_segments", "dirty_segments", "buffered_segments",
    /// "promotion_threshold", "frames", "dram_bytes" and "budget_bytes" the value now.
    pub value: u64,
}

/// The names of all counters, with their zeros.
fn names() -> &'static [CString] {
    static NAMES: OnceLock<Vec<CString>> = OnceLock::new();
    NAMES.get_or_init(|| {
        let entries = Stats::default().entries();
        entries.into_iter().map(|(name, ..)| CString::new(name).unwrap_or_default()).collect()
    })
}

/// Stores the counters of a pool in `counters`, in a fixed order, and their number in `count`. With a capacity of 0 only
/// the number is stored, and the call returns DEEPRAM_STATUS_BUFFER_TOO_SMALL.
///
/// # Safety
/// `pool` is a handle; `counters` is valid for writes of `capacity` counters; `count` is valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deepram_pool_stats(
    pool: *const PoolHandle,
    counters: *mut Counter,
    capacity: usize,
    count: *mut usize,
) -> Status {
    guarded(|| {
        // SAFETY: passed on from the caller.
        let entries = unsafe { self::pool(pool)? }.stats().entries();
        let shown: Vec<Counter> = entries
            .into_iter()
            .zip(names())
            .map(|((_, value, _), name)| Counter { name: name.as_ptr(), value })
            .collect();
        // SAFETY: passed on from the caller.
        unsafe { results(shown.into_iter(), counters, capacity, count) }
    })
}

/// Stores the reasons why loads and stores through pointers failed since the last call as lines of text in `text`, which
/// ends with a zero and is cut to `capacity` bytes. Stores the number of reasons in `count`.
///
/// # Safety
/// `pool` is a handle; `text` is valid for writes of `capacity` bytes; `count` is valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deepram_pool_take_errors(
    pool: *const PoolHandle,
    text: *mut c_char,
    capacity: usize,
    count: *mut usize,
) -> Status {
    guarded(|| {
        // SAFETY: passed on from the caller.
        let (pool, to) =
            unsafe { (self::pool(pool)?, crate::call::slice_mut(text.cast::<u8>(), capacity, "text")?) };
        let errors: Vec<String> = pool.take_errors().iter().map(ToString::to_string).collect();
        let lines = errors.join("\n");
        if let Some(room) = to.len().checked_sub(1) {
            let mut end = lines.len().min(room);
            while !lines.is_char_boundary(end) {
                end -= 1;
            }
            to[..end].copy_from_slice(&lines.as_bytes()[..end]);
            to[end] = 0;
        }
        // SAFETY: passed on from the caller.
        unsafe { write(count, "count", errors.len()) }
    })
}

/// Changes the DRAM budget of an open pool to `dram` bytes.
///
/// # Safety
/// `pool` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deepram_pool_set_dram(pool: *const PoolHandle, dram: u64) -> Status {
    // SAFETY: passed on from the caller.
    guarded(|| Ok(unsafe { self::pool(pool)? }.set_dram(dram)?))
}
