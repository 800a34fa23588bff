//! `malloc` and its family: large blocks are mappings (`large_blocks`), all others come from `arenas`. Both are paged. A program with
//! an allocator of its own has its blocks from that (`program_allocator`). The library itself allocates from a heap that is not paged.

use deepram_pager::PAGE;
use libc::{c_int, c_void, size_t};

use crate::large_blocks::{self, LARGE};
use crate::library_context::{enter_library, in_library};
use crate::{HEAP, arenas, program_allocator, setup, thread_cache};

/// Header of a block of the library's own heap: its size, and the distance of the address from the start of the block.
#[repr(C)]
struct Header {
    size: usize,
    offset: usize,
}

const HEADER: usize = size_of::<Header>();

fn allocate_own(size: usize, align: usize, zeroed: bool) -> *mut c_void {
    let align = align.max(HEADER);
    let Some(block_size) = size.checked_add(align) else { return std::ptr::null_mut() };
    let block = HEAP.allocate(block_size, align, zeroed);
    if block.is_null() {
        return block.cast();
    }
    // SAFETY: `align` bytes, at least the size of a header, lie before the returned address.
    unsafe {
        let at = block.add(align);
        at.sub(HEADER).cast::<Header>().write(Header { size, offset: align });
        at.cast()
    }
}

/// # Safety
/// `at` was returned by `allocate_own`.
unsafe fn own_header(at: *mut c_void) -> Header {
    // SAFETY: the caller's promise.
    unsafe { at.cast::<u8>().sub(HEADER).cast::<Header>().read() }
}

/// # Safety
/// `at` was returned by `allocate_own`, and is no longer used.
unsafe fn free_own(at: *mut c_void) {
    use std::alloc::GlobalAlloc;
    // SAFETY: the header describes the block as `allocate_own` made it.
    unsafe {
        let Header { size, offset } = own_header(at);
        let layout = std::alloc::Layout::from_size_align_unchecked(size + offset, offset);
        HEAP.dealloc(at.cast::<u8>().sub(offset), layout);
    }
}

fn is_own(at: *mut c_void) -> bool {
    HEAP.owns(at.addr())
}

/// Allocates a block from the arenas, or as a mapping if they have no room. Null, with ENOMEM, if that fails too.
fn allocate(size: usize, align: usize) -> *mut c_void {
    let block = thread_cache::allocate(size, align);
    if !block.is_null() {
        return block;
    }
    if align <= PAGE { large_blocks::allocate(size.max(1)) } else { fail() }
}

// SAFETY of all functions below: they are the C library's, with its contracts; each passes its arguments on to the
// allocator that owns, or will own, the memory.

/// Interposes the C library's `malloc`.
#[unsafe(no_mangle)]
pub extern "C" fn malloc(size: size_t) -> *mut c_void {
    if in_library() {
        return allocate_own(size, 16, false);
    }
    // SAFETY: as above.
    if let Some(block) = unsafe { program_allocator::malloc(size) } {
        return block;
    }
    if size >= LARGE {
        return large_blocks::allocate(size);
    }
    allocate(size, 1)
}

/// Interposes the C library's `calloc`.
#[unsafe(no_mangle)]
pub extern "C" fn calloc(count: size_t, size: size_t) -> *mut c_void {
    if in_library() {
        return count.checked_mul(size).map_or(std::ptr::null_mut(), |size| allocate_own(size, 16, true));
    }
    // SAFETY: as above.
    if let Some(block) = unsafe { program_allocator::calloc(count, size) } {
        return block;
    }
    match count.checked_mul(size) {
        None => fail(),
        Some(all) if all >= LARGE => large_blocks::allocate(all),
        Some(all) => {
            let block = allocate(all, 1);
            if !block.is_null() {
                // SAFETY: the block has this many bytes.
                unsafe { block.cast::<u8>().write_bytes(0, all) };
            }
            block
        }
    }
}

/// Interposes the C library's `free`.
///
/// # Safety
/// `at` was returned by a function of this family, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(at: *mut c_void) {
    if arenas::owns(at.addr()) {
        // SAFETY: as above.
        unsafe { thread_cache::free(at) }
    } else if is_own(at) {
        // SAFETY: as above.
        enter_library(move || unsafe { free_own(at) })
    // SAFETY: as above.
    } else if unsafe { program_allocator::free(at) }.is_none() && !at.is_null() && !large_blocks::free(at) {
        setup::report("free: invalid pointer");
        std::process::abort();
    }
}

/// Interposes the C library's `realloc`.
///
/// # Safety
/// As [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(at: *mut c_void, size: size_t) -> *mut c_void {
    if at.is_null() {
        return malloc(size);
    }
    if !is_own(at)
        && !in_library()
        // SAFETY: as above.
        && let Some(block) = unsafe { program_allocator::realloc(at, size) }
    {
        return block;
    }
    if size == 0 {
        // SAFETY: as above.
        unsafe { free(at) };
        return std::ptr::null_mut();
    }
    if arenas::owns(at.addr()) {
        if size < LARGE {
            // SAFETY: as above.
            let block = unsafe { arenas::resize(at, size) };
            if !block.is_null() {
                return block;
            }
        }
    } else if size >= LARGE
        && let Some(len) = large_blocks::len(at)
    {
        return large_blocks::resize(at, len, size);
    }
    // The block moves from one kind of allocation to another.
    let new = malloc(size);
    if !new.is_null() {
        // SAFETY: both blocks are at least as long as the shorter of the two.
        unsafe {
            std::ptr::copy_nonoverlapping(
                at.cast::<u8>(),
                new.cast::<u8>(),
                malloc_usable_size(at).min(size),
            );
            free(at);
        }
    }
    new
}

/// Interposes the C library's `reallocarray`.
///
/// # Safety
/// As [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(at: *mut c_void, count: size_t, size: size_t) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: as above.
        Some(size) => unsafe { realloc(at, size) },
        None => fail(),
    }
}

/// Interposes the C library's `aligned_alloc`.
#[unsafe(no_mangle)]
pub extern "C" fn aligned_alloc(align: size_t, size: size_t) -> *mut c_void {
    if !align.is_power_of_two() {
        set_errno(libc::EINVAL);
        return std::ptr::null_mut();
    }
    if in_library() {
        return allocate_own(size, align, false);
    }
    // SAFETY: as above.
    if let Some(block) = unsafe { program_allocator::aligned_alloc(align, size) } {
        return block;
    }
    if size >= LARGE && align <= PAGE {
        return large_blocks::allocate(size);
    }
    allocate(size, align)
}

/// Interposes the C library's `memalign`.
#[unsafe(no_mangle)]
pub extern "C" fn memalign(align: size_t, size: size_t) -> *mut c_void {
    if !in_library()
        // SAFETY: as above.
        && let Some(block) = unsafe { program_allocator::memalign(align, size) }
    {
        return block;
    }
    aligned_alloc(align, size)
}

/// Interposes the C library's `valloc`.
#[unsafe(no_mangle)]
pub extern "C" fn valloc(size: size_t) -> *mut c_void {
    if !in_library()
        // SAFETY: as above.
        && let Some(block) = unsafe { program_allocator::valloc(size) }
    {
        return block;
    }
    aligned_alloc(PAGE, size)
}

/// Interposes the C library's `pvalloc`.
#[unsafe(no_mangle)]
pub extern "C" fn pvalloc(size: size_t) -> *mut c_void {
    if !in_library()
        // SAFETY: as above.
        && let Some(block) = unsafe { program_allocator::pvalloc(size) }
    {
        return block;
    }
    aligned_alloc(PAGE, size.next_multiple_of(PAGE))
}

/// Interposes the C library's `posix_memalign`.
///
/// # Safety
/// `to` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(to: *mut *mut c_void, align: size_t, size: size_t) -> c_int {
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<usize>()) {
        return libc::EINVAL;
    }
    if !in_library()
        // SAFETY: as above.
        && let Some(status) = unsafe { program_allocator::posix_memalign(to, align, size) }
    {
        return status;
    }
    let at = aligned_alloc(align, size);
    if at.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the caller's promise.
    unsafe { to.write(at) };
    0
}

/// Interposes the C library's `malloc_usable_size`.
///
/// # Safety
/// As [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(at: *mut c_void) -> size_t {
    if at.is_null() {
        return 0;
    }
    if is_own(at) {
        // SAFETY: as above.
        return unsafe { own_header(at).size };
    }
    // SAFETY: as above.
    if let Some(size) = unsafe { program_allocator::malloc_usable_size(at) } {
        return size;
    }
    if arenas::owns(at.addr()) {
        // SAFETY: as above.
        return unsafe { arenas::usable_size(at) };
    }
    large_blocks::len(at).unwrap_or(0)
}

/// Returns null with ENOMEM.
pub(crate) fn fail() -> *mut c_void {
    set_errno(libc::ENOMEM);
    std::ptr::null_mut()
}

pub(crate) fn errno() -> c_int {
    // SAFETY: the thread's own.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn set_errno(value: c_int) {
    // SAFETY: the thread's own.
    unsafe { *libc::__errno_location() = value };
}
