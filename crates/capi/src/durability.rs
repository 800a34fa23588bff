//! Syncs, rollbacks, older tokens, persist regions.

use std::ffi::c_void;

use deepram_pool::Epoch;

use crate::call::{guarded, results, slice_mut, write};
use crate::pool::{PoolHandle, pool};
use crate::status::Status;
use crate::{Addr, Token};

fn at(addr: Addr) -> deepram_pool::Addr {
    deepram_pool::Addr::from_raw(addr)
}

/// Makes all memory durable, and stores the token of this state in `token`, which may be null.
///
/// # Safety
/// `pool` is a handle; `token` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deepram_sync(pool: *const PoolHandle, token: *mut Token) -> Status {
    guarded(|| {
        // SAFETY: passed on from the caller.
        let made = unsafe { self::pool(pool)? }.sync()?;
        if token.is_null() {
            return Ok(());
        }
        // SAFETY: passed on from the caller.
        unsafe { write(token, "token", made.0) }
    })
}

/// Returns all memory to its state at a token.
///
/// # Safety
/// `pool` is a handle. No other thread uses the memory meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deepram_rollback(pool: *const PoolHandle, token: Token) -> Status {
    // SAFETY: passed on from the caller.
    guarded(|| Ok(unsafe { self::pool(pool)? }.rollback(Epoch(token))?))
}

/// A token and the statistics of its state.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct HistoryEntry {
    /// The token.
    pub token: Token,
    /// Time of the sync, nanoseconds since 1970; 0 for the token of the empty pool.
    pub wall_ns: u64,
    /// Pages changed between the previous token and this one.
    pub pages_changed: u64,
    /// Segments written between the previous token and this one.
    pub segments_written: u64,
}

/// Stores the tokens to which the pool can be rolled back in `entries`, and their number in `count`.
///
/// # Safety
/// `pool` is a handle; `entries` is valid for writes of `capacity` entries; `count` is valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deepram_history(
    pool: *const PoolHandle,
    entries: *mut HistoryEntry,
    capacity: usize,
    count: *mut usize,
) -> Status {
    guarded(|| {
        // SAFETY: passed on from the caller.
        let history = unsafe { self::pool(pool)? }.history()?;
        let shown = history.into_iter().map(|entry| HistoryEntry {
            token: entry.token.0,
            wall_ns: entry.wall_ns,
            pages_changed: entry.pages_changed,
            segments_written: entry.segments_written,
        });
        // SAFETY: passed on from the caller.
        unsafe { results(shown, entries, capacity, count) }
    })
}

/// Copies `len` bytes at `addr` as they were at a token into `to`, without a rollback.
///
/// # Safety
/// `pool` is a handle; `to` is valid for writes of `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deepram_read_at(
    pool: *const PoolHandle,
    token: Token,
    addr: Addr,
    to: *mut c_void,
    len: usize,
) -> Status {
    guarded(|| {
        // SAFETY: passed on from the caller.
        let (pool, to) = unsafe { (self::pool(pool)?, slice_mut(to.cast::<u8>(), len, "to")?) };
        Ok(pool.read_at(Epoch(token), at(addr), to)?)
    })
}

/// Makes the pages of `len` bytes at `addr` part of a persist region, in which deepram_persist() works. Syncs.
///
/// # Safety
/// `pool` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deepram_create_pmem_region(pool: *const PoolHandle, addr: Addr, len: u64) -> Status {
    // SAFETY: passed on from the caller.
    guarded(|| Ok(unsafe { self::pool(pool)? }.create_pmem_region(at(addr), len)?))
}

/// Makes the pages of `len` bytes at `addr` ordinary memory, from the next token on.
///
/// # Safety
/// `pool` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deepram_remove_pmem_region(pool: *const PoolHandle, addr: Addr, len: u64) -> Status {
    // SAFETY: passed on from the caller.
    guarded(|| Ok(unsafe { self::pool(pool)? }.remove_pmem_region(at(addr), len)?))
}

/// Makes `len` bytes at `addr`, inside a persist region, durable without a sync: lines of 64 bytes, each completely or not
/// at all.
///
/// # Safety
/// `pool` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deepram_persist(pool: *const PoolHandle, addr: Addr, len: u64) -> Status {
    // SAFETY: passed on from the caller.
    guarded(|| Ok(unsafe { self::pool(pool)? }.persist(at(addr), len)?))
}
