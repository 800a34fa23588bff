//! The library's own heap, in memory that is never paged.

use std::alloc::{GlobalAlloc, Layout};
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dlmalloc::{Allocator, Dlmalloc};

use crate::kernel;
use crate::library_context::SignalGuard;

/// Largest address range of the heap: addresses in it belong to the library. Only used pages take memory.
const MAX_SPACE: usize = 64 << 30;
/// Smallest address range of the heap.
const MIN_SPACE: usize = 4 << 20;
/// The heap takes at most one in this many of the addresses that the process may use, where they are limited.
const ADDRESSES_SHARE: usize = 8;

/// The heap; also the `GlobalAlloc` of this library.
pub(crate) struct Heap {
    inner: Mutex<Dlmalloc<ReservedSpace>>,
}

/// A range of reserved addresses, allocated from its start.
struct ReservedSpace;

static START: AtomicUsize = AtomicUsize::new(0);
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// Bytes of the range.
static LEN: AtomicUsize = AtomicUsize::new(0);

// SAFETY: each call returns addresses of the library's own private mapping that were not returned before.
unsafe impl Allocator for ReservedSpace {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let failed = (std::ptr::null_mut(), 0, 0);
        if START.load(Relaxed) == 0 {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let Some((start, len)) = kernel::reserve_range(MAX_SPACE, MIN_SPACE, ADDRESSES_SHARE, access)
            else {
                return failed;
            };
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
        Self { inner: Mutex::new(Dlmalloc::new_with_allocator(ReservedSpace)) }
    }

    fn lock(&self) -> Locked<'_> {
        let signals = SignalGuard::new();
        Locked { heap: self.inner.lock().unwrap_or_else(PoisonError::into_inner), _signals: signals }
    }

    /// Locks the heap for the time of a fork.
    pub(crate) fn lock_for_fork(&'static self) -> HeapGuard {
        HeapGuard(self.lock())
    }

    /// Whether the address belongs to the library's heap.
    pub(crate) fn owns(&self, address: usize) -> bool {
        let start = START.load(Relaxed);
        let space: Range<usize> = start..start + LEN.load(Relaxed);
        start != 0 && space.contains(&address)
    }

    pub(crate) fn allocate(&self, size: usize, align: usize, zeroed: bool) -> *mut u8 {
        let mut heap = self.lock();
        // SAFETY: the layout is valid: the alignment is a power of two, as callers of malloc and Rust's layouts
        // guarantee.
        unsafe { if zeroed { heap.calloc(size, align) } else { heap.malloc(size, align) } }
    }
}

/// The locked heap. The pager's threads need the heap too, so no signal handler may run while it is locked.
struct Locked<'a> {
    heap: MutexGuard<'a, Dlmalloc<ReservedSpace>>,
    _signals: SignalGuard,
}

impl Deref for Locked<'_> {
    type Target = Dlmalloc<ReservedSpace>;

    fn deref(&self) -> &Self::Target {
        &self.heap
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.heap
    }
}

/// The heap, locked for a fork; the thread that locked it unlocks it.
pub(crate) struct HeapGuard(#[expect(dead_code, reason = "dropped to let go")] Locked<'static>);

// SAFETY: all access is under the mutex.
unsafe impl Sync for Heap {}

// SAFETY: dlmalloc returns disjoint blocks of the layouts asked for; sizes and alignments of `dealloc` and `realloc`
// are those of the allocation, as `GlobalAlloc` demands of its callers.
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
