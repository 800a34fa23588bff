//! The library's own heap, in memory that is never paged.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use deepram_pager::PAGE;
use dlmalloc::{Allocator, Dlmalloc};

use crate::address_range::AddressRange;
use crate::kernel;
use crate::library_context::SignalGuard;

/// Addresses in this range belong to the library.
static SPACE: AddressRange = AddressRange::new(64 << 30, 4 << 20, 8, kernel::READ_WRITE, PAGE);

/// The heap; also the `GlobalAlloc` of this library.
pub(crate) struct Heap {
    inner: Mutex<Dlmalloc<ReservedSpace>>,
}

/// The range of addresses, allocated from its start.
struct ReservedSpace {
    /// Bytes that are dlmalloc's.
    used: Cell<usize>,
}

// SAFETY: each call returns addresses of the library's own private mapping that were not returned before.
unsafe impl Allocator for ReservedSpace {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let size = size.next_multiple_of(1 << 16);
        let used = self.used.get();
        match SPACE.reserve() {
            Some((start, len)) if size <= len - used => {
                self.used.set(used + size);
                (std::ptr::with_exposed_provenance_mut(start + used), size, 0)
            }
            _ => (std::ptr::null_mut(), 0, 0),
        }
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
        PAGE
    }
}

impl Heap {
    pub(crate) const fn new() -> Self {
        Self { inner: Mutex::new(Dlmalloc::new_with_allocator(ReservedSpace { used: Cell::new(0) })) }
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
        SPACE.owns(address)
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
