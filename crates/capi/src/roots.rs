//! Named roots, under which a program finds its data again.

use std::ffi::c_char;

use crate::Addr;
use crate::call::{guarded, results, text, write};
use crate::pool::{PoolHandle, pool};
use crate::status::Status;

/// Bytes of a root's name with the zero at its end.
pub const DEEPRAM_NAME_BYTES: usize = 112;

/// A name for a range of memory.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RootEntry {
    /// The name, with a zero at its end.
    pub name: [c_char; DEEPRAM_NAME_BYTES],
    /// The first address of the range.
    pub addr: Addr,
    /// Length of the range, bytes.
    pub len: u64,
}

/// Gives `len` bytes at `addr` a name of 1 to 111 bytes, or points an existing name to them. Durable at the next sync.
///
/// # Safety
/// `pool` is a handle; `name` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deepram_set_root(
    pool: *const PoolHandle,
    name: *const c_char,
    addr: Addr,
    len: u64,
) -> Status {
    guarded(|| {
        // SAFETY: passed on from the caller.
        let (pool, name) = unsafe { (self::pool(pool)?, text(name, "name")?) };
        Ok(pool.set_root(name, deepram_pool::Addr::from_raw(addr), len)?)
    })
}

/// Stores the address and the length of a root in `addr` and `len`, of which either may be null.
///
/// # Safety
/// `pool` is a handle; `name` is a string; `addr` and `len` are null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deepram_get_root(
    pool: *const PoolHandle,
    name: *const c_char,
    addr: *mut Addr,
    len: *mut u64,
) -> Status {
    guarded(|| {
        // SAFETY: passed on from the caller.
        let (pool, name) = unsafe { (self::pool(pool)?, text(name, "name")?) };
        let root = pool.root(name)?;
        for (out, value) in [(addr, root.addr.raw()), (len, root.len)] {
            if !out.is_null() {
                // SAFETY: not null, so the caller passes on that it is valid for a write.
                unsafe { write(out, "out", value)? };
            }
        }
        Ok(())
    })
}

/// Removes a root; its memory stays allocated.
///
/// # Safety
/// `pool` is a handle; `name` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deepram_remove_root(pool: *const PoolHandle, name: *const c_char) -> Status {
    guarded(|| {
        // SAFETY: passed on from the caller.
        let (pool, name) = unsafe { (self::pool(pool)?, text(name, "name")?) };
        Ok(pool.remove_root(name)?)
    })
}

/// Stores all roots in `roots`, in the order in which they were first set, and their number in `count`.
///
/// # Safety
/// `pool` is a handle; `roots` is valid for writes of `capacity` roots; `count` is valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deepram_roots(
    pool: *const PoolHandle,
    roots: *mut RootEntry,
    capacity: usize,
    count: *mut usize,
) -> Status {
    guarded(|| {
        // SAFETY: passed on from the caller.
        let found = unsafe { self::pool(pool)? }.roots()?;
        let shown = found.into_iter().map(|root| {
            let mut name = [0; DEEPRAM_NAME_BYTES];
            // A name has at most 111 bytes, so a zero is left.
            for (to, byte) in name.iter_mut().zip(root.name.bytes().take(DEEPRAM_NAME_BYTES - 1)) {
                *to = byte as c_char;
            }
            RootEntry { name, addr: root.addr.raw(), len: root.len }
        });
        // SAFETY: passed on from the caller.
        unsafe { results(shown, roots, capacity, count) }
    })
}
