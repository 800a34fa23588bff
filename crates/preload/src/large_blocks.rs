//! Large blocks: each a mapping of its own, so that one that grows is moved by moving its pages, not by
//! copying them, and one that is freed gives its pages back at once.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use deepram_pool::pager::PAGE;
use libc::c_void;

use crate::inside::enter;
use crate::memory;

/// Blocks from this size on.
pub(crate) const LARGE: usize = 1 << 20;

/// Start and bytes of each.
static BLOCKS: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

fn blocks() -> MutexGuard<'static, BTreeMap<usize, usize>> {
    BLOCKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The blocks, held across a fork.
pub(crate) struct Held(
    #[expect(dead_code, reason = "dropped to let go")] MutexGuard<'static, BTreeMap<usize, usize>>,
);

pub(crate) fn hold() -> Held {
    Held(blocks())
}

fn note(start: usize, len: Option<usize>) -> Option<usize> {
    enter(move || match len {
        Some(len) => blocks().insert(start, len),
        None => blocks().remove(&start),
    })
}

/// A block of zeros, or null.
pub(crate) fn allocate(size: usize) -> *mut c_void {
    let Some(len) = size.checked_next_multiple_of(PAGE) else { return std::ptr::null_mut() };
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let at = memory::mmap(std::ptr::null_mut(), len, prot, flags | libc::MAP_NORESERVE, -1, 0);
    if at == libc::MAP_FAILED {
        return std::ptr::null_mut();
    }
    note(at.addr(), Some(len));
    at
}

/// The block's bytes, if there is one that begins here.
pub(crate) fn len(at: *mut c_void) -> Option<usize> {
    if !at.addr().is_multiple_of(PAGE) {
        return None;
    }
    blocks().get(&at.addr()).copied()
}

/// Frees the block that begins here; `false` if there is none.
pub(crate) fn free(at: *mut c_void) -> bool {
    // Asking costs less than entering, and most blocks are not large.
    let Some(len) = len(at).and_then(|_| note(at.addr(), None)) else { return false };
    memory::munmap(at, len);
    true
}

/// Makes the block, which begins here and has `len` bytes, as large as asked for.
pub(crate) fn resize(at: *mut c_void, len: usize, size: usize) -> *mut c_void {
    let Some(new_len) = size.checked_next_multiple_of(PAGE) else { return std::ptr::null_mut() };
    if new_len == len {
        return at;
    }
    // Another thread may be given the old place at once: out with it first.
    note(at.addr(), None);
    let new = memory::mremap(at, len, new_len, libc::MREMAP_MAYMOVE, std::ptr::null_mut());
    if new == libc::MAP_FAILED {
        note(at.addr(), Some(len));
        return std::ptr::null_mut();
    }
    note(new.addr(), Some(new_len));
    new
}
