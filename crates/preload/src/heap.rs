//! The library's own heap, in memory that is never paged.

use std::alloc::{GlobalAlloc, Layout};
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dlmalloc::{Allocator, Dlmalloc};

use crate::inside::Quiet;
use crate::kernel;

/// Address space of the heap, at most: addresses in it are the library's own. Only what is used takes memory.
const SPACE: usize = 64 << 30;
/// And at least.
const LEAST_SPACE: usize = 4 << 20;
/// Part of the address space that the process may have, where that is limited.
const SHARE: usize = 8;

/// The heap; also the `GlobalAlloc` of this library.
pub(crate) struct Heap {
    inner: Mutex<Dlmalloc<Space>>,
}

/// A range of reserved addresses, given out from its start.
struct Space;

static START: AtomicUsize = AtomicUsize::new(0);
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// Bytes of the range.
static LEN: AtomicUsize = AtomicUsize::new(0);

/// Reserves as much as there may be: the start, and the bytes.
fn reserve() -> Option<(usize, usize)> {
    let most = match kernel::limit(libc::RLIMIT_AS) {
        libc::RLIM_INFINITY => SPACE,
        bytes => usize::try_from(bytes).unwrap_or(SPACE) / SHARE,
    };
    let halves =
        std::iter::successors(Some(SPACE), |len| Some(len / 2)).take_while(|len| *len >= LEAST_SPACE);
    halves.filter(|len| *len <= most.max(LEAST_SPACE)).find_map(|len| Some((kernel::reserve(len)?, len)))
}

// SAFETY: each call gives out addresses of a private mapping of our own that nobody else has.
unsafe impl Allocator for Space {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let failed = (std::ptr::null_mut(), 0, 0);
        if START.load(Relaxed) == 0 {
            let Some((start, len)) = reserve() else { return failed };
            LEN.store(len, Relaxed);
            NEXT.store(start, Relaxed);
            START.store(start, Relaxed);
        }
        // The heap's lock is held.
        let size = size.next_multiple_of(1 << 16);
        let at = NEXT.load(Relaxed);
        if at + size > START.load(Relaxed) + LEN.load(Relaxed) {
            return failed;
        }
        NEXT.store(at + size, Relaxed);
        (std::ptr::with_exposed_provenance_mut(at), size, 0)
    }

    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        std::ptr::null_mut()
    }

    fn free_part(&self, _: *mut u8, _: usize, _: usize) -> bool {
        false
    }

    fn free(&self, _: *mut u8, _: usize) -> bool {
        false
    }

    fn can_release_part(&self, _: u32) -> bool {
        false
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        4096
    }
}

impl Heap {
    pub(crate) const fn new() -> Self {
        Self { inner: Mutex::new(Dlmalloc::new_with_allocator(Space)) }
    }

    fn lock(&self) -> Locked<'_> {
        let quiet = Quiet::new();
        Locked { heap: self.inner.lock().unwrap_or_else(PoisonError::into_inner), _quiet: quiet }
    }

    /// Keeps everybody out, across a fork.
    pub(crate) fn hold(&'static self) -> Held {
        Held(self.lock())
    }

    /// Whether the address is the library's own.
    pub(crate) fn owns(&self, address: usize) -> bool {
        let start = START.load(Relaxed);
        let space: Range<usize> = start..start + LEN.load(Relaxed);
        start != 0 && space.contains(&address)
    }

    pub(crate) fn allocate(&self, size: usize, align: usize, zeroed: bool) -> *mut u8 {
        let mut heap = self.lock();
        // SAFETY: the layout is valid: the alignment is a power of two, as callers of malloc and Rust's
        // layouts have it.
        unsafe { if zeroed { heap.calloc(size, align) } else { heap.malloc(size, align) } }
    }
}

/// The heap while a thread has it. Whoever serves faults needs it too: no signal's handler may come in between.
struct Locked<'a> {
    heap: MutexGuard<'a, Dlmalloc<Space>>,
    _quiet: Quiet,
}

impl Deref for Locked<'_> {
    type Target = Dlmalloc<Space>;

    fn deref(&self) -> &Self::Target {
        &self.heap
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.heap
    }
}

/// A held heap; the thread that holds it is the only one that lets it go.
pub(crate) struct Held(#[expect(dead_code, reason = "dropped to let go")] Locked<'static>);

// SAFETY: all access is under the mutex.
unsafe impl Sync for Heap {}

// SAFETY: dlmalloc gives out disjoint blocks of the layouts asked for; sizes and alignments of `dealloc` and
// `realloc` are those of the allocation, as `GlobalAlloc` demands of its callers.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.allocate(layout.size(), layout.align(), false)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.allocate(layout.size(), layout.align(), true)
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { self.lock().free(at, layout.size(), layout.align()) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { self.lock().realloc(at, layout.size(), layout.align(), size) }
    }
}
