//! Safe access to the memory of a mapped pool, as a slice of atomic words.

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use deepram_core::Addr;

use crate::error::{PoolError, Result};
use crate::pool::Pool;

const WORD: u64 = size_of::<AtomicU64>() as u64;

/// A slice of atomic words in a mapped pool, which any number of threads may share. It is the safe form of
/// [`Pool::pointer`].
///
/// The slice keeps the memory mapped, but does not keep the pool open. An access raises a signal, as described at
/// [`Pool`], after the pool is closed, or after the words are freed or made unreadable.
///
/// ```no_run
/// # fn main() -> deepram_pool::Result<()> {
/// # use std::sync::atomic::Ordering::Relaxed;
/// # let pool = deepram_pool::Pool::open(&["data.pool"], &deepram_pool::OpenOptions::new(64 << 20))?;
/// let addr = pool.alloc(8 * 1000, deepram_pool::Lifetime::Permanent)?;
/// let counts = pool.words(addr, 1000)?;
/// std::thread::scope(|s| {
///     for _ in 0..4 {
///         s.spawn(|| counts[17].fetch_add(1, Relaxed));
///     }
/// });
/// assert_eq!(counts[17].load(Relaxed), 4);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Words {
    first: NonNull<AtomicU64>,
    len: usize,
    /// Keeps the region mapped: the region lives as long as any handle of the pool.
    _pool: Pool,
}

// SAFETY: `Words` is a shared slice of atomics and a handle that is itself `Send` and `Sync`.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Deref for Words {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: `first` and `len` denote aligned words inside the region (checked by `Pool::words`), which stays
        // mapped as long as `_pool` lives. The pool can make the words unreadable; an access then ends in a signal.
        // Every bit pattern is a valid word. The bytes change beneath the slice in two ways only: through atomics
        // (other `Words`, and the copies of `Region`, which access atomic words), and by the kernel (UFFDIO_COPY,
        // MADV_DONTNEED), which replaces a page by one with the same words before any access completes. Users of raw
        // pointers from `Pool::pointer` are responsible for their own accesses.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl Pool {
    /// Returns the `len` allocated words of 8 bytes that start at `addr`, for loads and stores in place.
    ///
    /// # Errors
    /// The errors of [`Pool::pointer`]; [`PoolError::Option`] if `addr` is not a multiple of 8.
    pub fn words(&self, addr: Addr, len: usize) -> Result<Words> {
        if !addr.raw().is_multiple_of(WORD) {
            let problem = format!("{addr} is not a multiple of 8, the size of a word");
            return Err(PoolError::Option { option: "address", problem });
        }
        let bytes = (len as u64).checked_mul(WORD).ok_or_else(|| PoolError::Option {
            option: "length",
            problem: format!("{len} words exceed the address space"),
        })?;
        let pointer = self.pointer(addr, bytes)?;
        let first = NonNull::new(pointer.cast()).ok_or(PoolError::NotAllocated { address: addr })?;
        Ok(Words { first, len, _pool: self.clone() })
    }
}
