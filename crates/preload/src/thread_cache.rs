//! Small blocks that a thread has freed and keeps for its next allocations, so that it seldom locks an arena.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use libc::c_void;

use crate::arenas::{self, UNIT, bytes_for, bytes_of};
use crate::thread_state::thread_state;

/// Largest size of a block that is kept.
const LARGEST: usize = 1024;
/// Largest number of blocks of one size that a thread keeps. When there are more, half of them return to their arenas.
const KEPT: usize = 8;

/// A block that is kept: its first word links it to the next one.
struct Kept {
    next: *mut Kept,
}

#[derive(Clone, Copy)]
struct Bin {
    first: *mut Kept,
    len: usize,
}

/// The blocks that a thread keeps, by size.
pub(crate) struct ThreadCache {
    /// Number of the arena from which the thread allocates first.
    arena: usize,
    bins: [Bin; bin_of(bytes_for(LARGEST)) + 1],
}

const fn bin_of(bytes: usize) -> usize {
    bytes / UNIT
}

/// Value of the pointer to a thread's cache after the thread has returned all its blocks.
const ENDED: *mut ThreadCache = std::ptr::dangling_mut();

/// The calling thread's cache. No reference to it may be live across another call of this function.
fn cache() -> Option<&'static mut ThreadCache> {
    let cache = thread_state().cache.get();
    if cache == ENDED {
        return None;
    }
    // SAFETY: only this thread uses its cache, which lives until the thread ends.
    unsafe { cache.as_mut() }
}

/// Gives the calling thread a cache, unless it has had one. Returns the number of the thread's arena.
fn arena_of_thread() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    let state = thread_state();
    if state.cache.get().is_null() {
        let arena = THREADS.fetch_add(1, Relaxed);
        let new = arenas::allocate(arena, size_of::<ThreadCache>(), 1).cast::<ThreadCache>();
        if new.is_null() {
            return arena;
        }
        let empty = Bin { first: std::ptr::null_mut(), len: 0 };
        // SAFETY: a new block of this size, aligned for every type.
        unsafe { new.write(ThreadCache { arena, bins: [empty; _] }) };
        // Set first: the call below may allocate.
        state.cache.set(new);
        call_at_end(new);
    }
    cache().map_or(0, |cache| cache.arena)
}

/// Has the thread's blocks returned to their arenas when the thread ends.
fn call_at_end(cache: *mut ThreadCache) {
    static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();
    let key = KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: the key is this function's; the destructor exists as long as the library, which is never unloaded.
        (unsafe { libc::pthread_key_create(&mut key, Some(end_thread)) } == 0).then_some(key)
    });
    if let Some(key) = *key {
        // SAFETY: the key was created. If the call fails, the thread's blocks are lost with it.
        unsafe { libc::pthread_setspecific(key, cache.cast()) };
    }
}

unsafe extern "C" fn end_thread(_: *mut c_void) {
    let Some(cache) = cache() else { return };
    // Destructors that run later allocate from the arenas.
    thread_state().cache.set(ENDED);
    for bin in &mut cache.bins {
        bin.give_back(0);
    }
    // SAFETY: the cache came from an arena, and nothing names it any more.
    unsafe { arenas::free(std::iter::once(std::ptr::from_mut(cache).cast())) };
}

impl Bin {
    fn pop(&mut self) -> Option<*mut c_void> {
        let block = self.first;
        if block.is_null() {
            return None;
        }
        // SAFETY: a block that this thread has freed and keeps.
        self.first = unsafe { (*block).next };
        self.len -= 1;
        Some(block.cast())
    }

    /// Returns all blocks but `kept` of them to their arenas.
    fn give_back(&mut self, kept: usize) {
        let excess = std::iter::from_fn(|| if self.len > kept { self.pop() } else { None });
        // SAFETY: the program has freed these blocks.
        unsafe { arenas::free(excess) };
    }
}

/// Allocates a block; null if no arena has room.
pub(crate) fn allocate(size: usize, align: usize) -> *mut c_void {
    if size <= LARGEST
        && align <= UNIT
        && let Some(cache) = cache()
        && let Some(block) = cache.bins[bin_of(bytes_for(size))].pop()
    {
        return block;
    }
    arenas::allocate(arena_of_thread(), size, align)
}

/// Frees a block.
///
/// # Safety
/// The block is in an arena and in use, and no longer needed.
pub(crate) unsafe fn free(at: *mut c_void) {
    // SAFETY: the caller's promise.
    let bytes = unsafe { bytes_of(at) };
    if let Some(cache) = cache()
        && let Some(bin) = cache.bins.get_mut(bin_of(bytes))
    {
        let block = at.cast::<Kept>();
        // SAFETY: the block has room for a word, and the program no longer uses it.
        unsafe { block.write(Kept { next: bin.first }) };
        bin.first = block;
        bin.len += 1;
        if bin.len > KEPT {
            bin.give_back(KEPT / 2);
        }
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { arenas::free(std::iter::once(at)) };
}
