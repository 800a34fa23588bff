//! Allocation, pointers, access by call, hints.

use std::ffi::c_void;

use deepram_pool::Permissions;

use crate::Addr;
use crate::call::{Failure, guarded, slice, slice_mut, write};
use crate::options::lifetime;
use crate::pool::{PoolHandle, pool};
use crate::status::Status;

fn at(addr: Addr) -> deepram_pool::Addr {
    deepram_pool::Addr::from_raw(addr)
}

/// The addresses of an argument.
///
/// # Safety
/// `addresses` is null, or points to `count` addresses.
unsafe fn all_at(addresses: *const Addr, count: usize) -> Result<Vec<deepram_pool::Addr>, Failure> {
    // SAFETY: passed on from the caller.
    Ok(unsafe { slice(addresses, count, "addresses")? }.iter().map(|addr| at(*addr)).collect())
}

/// The bytes of `count` elements of `len` bytes.
fn total(count: usize, len: usize) -> Result<usize, Failure> {
    count.checked_mul(len).ok_or_else(|| {
        let why = format!("{count} elements of {len} bytes exceed the address space");
        Failure::new(Status::InvalidArgument, why)
    })
}

/// Allocates `len` bytes, in whole pages of 64 KiB, and stores their address in `addr`. `lifetime` is a deepram_lifetime.
///
/// # Safety
/// `pool` is a handle; `addr` is valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deepram_alloc(
    pool: *const PoolHandle,
    len: u64,
    lifetime: i32,
    addr: *mut Addr,
) -> Status {
    guarded(|| {
        // SAFETY: passed on from the caller.
        unsafe {
            write(addr, "addr", 0)?;
            let allocated = self::pool(pool)?.alloc(len, self::lifetime(lifetime)?)?;
            write(addr, "addr", allocated.raw())
        }
    })
}

/// Frees the pages of `len` bytes at `addr`. Tokens keep their versions of these pages.
///
/// # Safety
/// `pool` is a handle. No thread uses pointers into the pages any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deepram_free(pool: *const PoolHandle, addr: Addr, len: u64) -> Status {
    // SAFETY: passed on from the caller.
    guarded(|| Ok(unsafe { self::pool(pool)? }.free(at(addr), len)?))
}

/// Sets the permissions and the lifetime of the pages of `len` bytes at `addr`. `read` and `write` are 0 or 1; `lifetime` is
/// a deepram_lifetime.
///
/// # Safety
/// `pool` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deepram_setperms(
    pool: *const PoolHandle,
    addr: Addr,
    len: u64,
    read: i32,
    write: i32,
    lifetime: i32,
) -> Status {
    guarded(|| {
        let permissions =
            Permissions { read: read != 0, write: write != 0, lifetime: self::lifetime(lifetime)? };
        // SAFETY: passed on from the caller.
        Ok(unsafe { self::pool(pool)? }.setperms(at(addr), len, permissions)?)
    })
}

/// Stores the pointer to `len` allocated bytes at `addr` in `pointer`. The pointer is the same at every opening, so that
/// memory of the pool may hold pointers into the pool. It is valid until the memory is freed or the pool is closed.
///
/// # Safety
/// `pool` is a handle; `pointer` is valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deepram_pointer(
    pool: *const PoolHandle,
    addr: Addr,
    len: u64,
    pointer: *mut *mut c_void,
) -> Status {
    guarded(|| {
        // SAFETY: passed on from the caller.
        unsafe {
            write(pointer, "pointer", std::ptr::null_mut())?;
            let found = self::pool(pool)?.pointer(at(addr), len)?;
            write(pointer, "pointer", found.cast())
        }
    })
}

/// Stores the address of a pointer into the pool in `addr`.
///
/// # Safety
/// `pool` is a handle; `addr` is valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deepram_address_of(
    pool: *const PoolHandle,
    pointer: *const c_void,
    addr: *mut Addr,
) -> Status {
    guarded(|| {
        // SAFETY: passed on from the caller.
        let found = unsafe { self::pool(pool)? }.address_of(pointer.cast());
        let found = found.ok_or_else(|| {
            Failure::new(Status::NotAllocated, format!("{pointer:p} does not point into the pool's memory"))
        })?;
        // SAFETY: passed on from the caller.
        unsafe { write(addr, "addr", found.raw()) }
    })
}

/// Copies `len` bytes at `addr` into `to`, and brings them into the DRAM cache.
///
/// # Safety
/// `pool` is a handle; `to` is valid for writes of `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deepram_read(
    pool: *const PoolHandle,
    addr: Addr,
    to: *mut c_void,
    len: usize,
) -> Status {
    guarded(|| {
        // SAFETY: passed on from the caller.
        let (pool, to) = unsafe { (self::pool(pool)?, slice_mut(to.cast::<u8>(), len, "to")?) };
        Ok(pool.read(at(addr), to)?)
    })
}

/// Copies `len` bytes of `from` to `addr`. They are durable after the next sync.
///
/// # Safety
/// `pool` is a handle; `from` is valid for reads of `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deepram_write(
    pool: *const PoolHandle,
    addr: Addr,
    from: *const c_void,
    len: usize,
) -> Status {
    guarded(|| {
        // SAFETY: passed on from the caller.
        let (pool, from) = unsafe { (self::pool(pool)?, slice(from.cast::<u8>(), len, "from")?) };
        Ok(pool.write(at(addr), from)?)
    })
}

/// Copies `len` bytes at `addr` into `to`, without bringing them into the DRAM cache: for bytes that will not be used again
/// soon.
///
/// # Safety
/// `pool` is a handle; `to` is valid for writes of `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deepram_load(
    pool: *const PoolHandle,
    addr: Addr,
    to: *mut c_void,
    len: usize,
) -> Status {
    guarded(|| {
        // SAFETY: passed on from the caller.
        let (pool, to) = unsafe { (self::pool(pool)?, slice_mut(to.cast::<u8>(), len, "to")?) };
        Ok(pool.load(at(addr), to)?)
    })
}

/// Copies `len` bytes of `from` to `addr`, as deepram_write() does: the counterpart of deepram_load().
///
/// # Safety
/// `pool` is a handle; `from` is valid for reads of `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deepram_store(
    pool: *const PoolHandle,
    addr: Addr,
    from: *const c_void,
    len: usize,
) -> Status {
    guarded(|| {
        // SAFETY: passed on from the caller.
        let (pool, from) = unsafe { (self::pool(pool)?, slice(from.cast::<u8>(), len, "from")?) };
        Ok(pool.store(at(addr), from)?)
    })
}

/// Copies `len` bytes from each of `count` addresses into `to`, one after the other. Many reads are in flight at once.
///
/// # Safety
/// `pool` is a handle; `addresses` points to `count` addresses; `to` is valid for writes of `count` times `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deepram_gather(
    pool: *const PoolHandle,
    addresses: *const Addr,
    count: usize,
    len: usize,
    to: *mut c_void,
) -> Status {
    guarded(|| {
        let bytes = total(count, len)?;
        // SAFETY: passed on from the caller.
        let (pool, addresses, to) = unsafe {
            (self::pool(pool)?, all_at(addresses, count)?, slice_mut(to.cast::<u8>(), bytes, "to")?)
        };
        Ok(pool.gather(&addresses, len, to)?)
    })
}

/// Copies `len` bytes of `from` to each of `count` addresses, in order.
///
/// # Safety
/// `pool` is a handle; `addresses` points to `count` addresses; `from` is valid for reads of `count` times `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deepram_scatter(
    pool: *const PoolHandle,
    addresses: *const Addr,
    count: usize,
    len: usize,
    from: *const c_void,
) -> Status {
    guarded(|| {
        let bytes = total(count, len)?;
        // SAFETY: passed on from the caller.
        let (pool, addresses, from) = unsafe {
            (self::pool(pool)?, all_at(addresses, count)?, slice(from.cast::<u8>(), bytes, "from")?)
        };
        Ok(pool.scatter(&addresses, len, from)?)
    })
}

/// Brings `len` bytes at `addr` into the DRAM cache in the background, as far as there is room.
///
/// # Safety
/// `pool` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deepram_prefetch(pool: *const PoolHandle, addr: Addr, len: u64) -> Status {
    // SAFETY: passed on from the caller.
    guarded(|| Ok(unsafe { self::pool(pool)? }.will_need(at(addr), len)?))
}

/// Writes `len` bytes at `addr` back if need be, and takes them out of the DRAM cache.
///
/// # Safety
/// `pool` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deepram_evict(pool: *const PoolHandle, addr: Addr, len: u64) -> Status {
    // SAFETY: passed on from the caller.
    guarded(|| Ok(unsafe { self::pool(pool)? }.evict_range(at(addr), len)?))
}

/// Pins `len` bytes at `addr` in the DRAM cache (`pinned` is 1), or unpins them (0).
///
/// # Safety
/// `pool` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deepram_pin(pool: *const PoolHandle, addr: Addr, len: u64, pinned: i32) -> Status {
    // SAFETY: passed on from the caller.
    guarded(|| Ok(unsafe { self::pool(pool)? }.pin(at(addr), len, pinned != 0)?))
}
