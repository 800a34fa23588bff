//! Buffers for direct I/O.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Direct I/O aligns offsets, lengths and addresses to this many bytes.
pub const ALIGN: usize = 4096;

/// Buffers from this size on are mappings of their own: the allocator would keep freed memory, beyond the DRAM budget.
const MAPPED: usize = 128 << 10;

/// A byte buffer whose address and length are multiples of [`ALIGN`], as direct I/O requires.
pub struct AlignedBuf {
    ptr: NonNull<u8>,
    len: usize,
}

impl AlignedBuf {
    /// A zeroed buffer of at least `len` bytes, rounded up to a multiple of [`ALIGN`].
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let len = len.max(1).next_multiple_of(ALIGN);
        let layout = Self::layout(len);
        let ptr = if len >= MAPPED {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a new mapping at an address that the kernel chooses.
            let mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), len, access, MapFlags::PRIVATE) };
            mapped.map_or(std::ptr::null_mut(), <*mut _>::cast)
        } else {
            // SAFETY: `layout` has a non-zero size.
            unsafe { alloc_zeroed(layout) }
        };
        let Some(ptr) = NonNull::new(ptr) else { handle_alloc_error(layout) };
        Self { ptr, len }
    }

    /// Asks for huge pages under a buffer that has not been used; the kernel may have none.
    #[must_use]
    pub fn in_huge_pages(self) -> Self {
        // SAFETY: the advice changes no contents of memory that is owned by `self`.
        let _ = unsafe { madvise(self.ptr.as_ptr().cast(), self.len, Advice::LinuxHugepage) };
        self
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, ALIGN).expect("a buffer is far smaller than the address space")
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `ptr` was allocated with `len` initialised bytes and is owned by `self`.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if self.len >= MAPPED {
            // SAFETY: mapped in `zeroed` with this length, and owned by `self`.
            let unmapped = unsafe { munmap(self.ptr.as_ptr().cast(), self.len) };
            unmapped.expect("a mapping of our own can be unmapped");
        } else {
            // SAFETY: allocated in `zeroed` with the same layout, freed once.
            unsafe { dealloc(self.ptr.as_ptr(), Self::layout(self.len)) }
        }
    }
}

// SAFETY: the buffer owns its memory and has no interior mutability.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared access only reads.
unsafe impl Sync for AlignedBuf {}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}
