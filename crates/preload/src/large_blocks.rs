//! Large blocks of `malloc`. Each is a mapping of its own, so that a block that grows is moved by moving its pages,
//! without copying, and a freed block returns its pages at once.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use deepram_pager::PAGE;
use libc::c_void;

use crate::library_context::enter_library;
use crate::malloc::fail;
use crate::memory;

/// Size from which on a block is large.
pub(crate) const LARGE: usize = 1 << 20;

/// Start and length of each block.
static BLOCKS: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

fn blocks() -> MutexGuard<'static, BTreeMap<usize, usize>> {
    BLOCKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The table of blocks, locked for a fork.
pub(crate) struct BlocksGuard(
    #[expect(dead_code, reason = "dropped to let go")] MutexGuard<'static, BTreeMap<usize, usize>>,
);

pub(crate) fn lock_for_fork() -> BlocksGuard {
    BlocksGuard(blocks())
}

fn record(start: usize, len: Option<usize>) -> Option<usize> {
    enter_library(move || match len {
        Some(len) => blocks().insert(start, len),
        None => blocks().remove(&start),
    })
}

/// Allocates a zeroed block; null if that fails.
pub(crate) fn allocate(size: usize) -> *mut c_void {
    let Some(len) = size.checked_next_multiple_of(PAGE) else { return fail() };
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let at = memory::mmap(std::ptr::null_mut(), len, prot, flags | libc::MAP_NORESERVE, -1, 0);
    if at == libc::MAP_FAILED {
        return std::ptr::null_mut();
    }
    record(at.addr(), Some(len));
    at
}

/// Length of the block that begins here, if there is one.
pub(crate) fn len(at: *mut c_void) -> Option<usize> {
    if !at.addr().is_multiple_of(PAGE) {
        return None;
    }
    blocks().get(&at.addr()).copied()
}

/// Frees the block that begins here; `false` if there is none.
pub(crate) fn free(at: *mut c_void) -> bool {
    // The check costs less than entering the library, and most blocks are not large.
    let Some(len) = len(at).and_then(|_| record(at.addr(), None)) else { return false };
    memory::munmap(at, len);
    true
}

/// Resizes the block that begins here and has `len` bytes.
pub(crate) fn resize(at: *mut c_void, len: usize, size: usize) -> *mut c_void {
    let Some(new_len) = size.checked_next_multiple_of(PAGE) else { return fail() };
    if new_len == len {
        return at;
    }
    // Removed from the table first: another thread may be given the old address at once.
    record(at.addr(), None);
    let new = memory::mremap(at, len, new_len, libc::MREMAP_MAYMOVE, std::ptr::null_mut());
    if new == libc::MAP_FAILED {
        record(at.addr(), Some(len));
        return std::ptr::null_mut();
    }
    record(new.addr(), Some(new_len));
    new
}
