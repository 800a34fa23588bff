//! `malloc` and its family. mimalloc gives the memory of all but large blocks (`large`); what it maps
//! goes through this library's `mmap` and is paged. The library itself gets its memory from a heap that is not.

use libc::{c_int, c_void, size_t};
use libmimalloc_sys as mi;

use crate::HEAP;
use crate::inside::{enter, is_inside};
use crate::large::{self, LARGE};

/// What a block of the own heap begins with: its size, and how far the block begins before the address.
#[repr(C)]
struct Head {
    size: usize,
    before: usize,
}

const HEAD: usize = size_of::<Head>();

fn own(size: usize, align: usize, zeroed: bool) -> *mut c_void {
    let align = align.max(HEAD);
    let Some(whole) = size.checked_add(align) else { return std::ptr::null_mut() };
    let block = HEAP.allocate(whole, align, zeroed);
    if block.is_null() {
        return block.cast();
    }
    // SAFETY: `align` bytes, at least a head's, lie before the address that is given out.
    unsafe {
        let at = block.add(align);
        at.sub(HEAD).cast::<Head>().write(Head { size, before: align });
        at.cast()
    }
}

/// # Safety
/// `at` was given out by `own`.
unsafe fn own_head(at: *mut c_void) -> Head {
    // SAFETY: the caller's promise.
    unsafe { at.cast::<u8>().sub(HEAD).cast::<Head>().read() }
}

/// # Safety
/// `at` was given out by `own`, and is used no more.
unsafe fn own_free(at: *mut c_void) {
    use std::alloc::GlobalAlloc;
    // SAFETY: the head tells the block as `own` made it.
    unsafe {
        let Head { size, before } = own_head(at);
        let layout = std::alloc::Layout::from_size_align_unchecked(size + before, before);
        HEAP.dealloc(at.cast::<u8>().sub(before), layout);
    }
}

fn is_own(at: *mut c_void) -> bool {
    HEAP.owns(at.addr())
}

/// `mi_option_disallow_arena_alloc`.
const NO_ARENAS: mi::mi_option_t = 26;

/// Has mimalloc map what it needs, and no more, while there is no pager; or take it from large mappings.
pub(crate) fn use_arenas(used: bool) {
    // SAFETY: an option that may be changed at any time.
    unsafe { mi::mi_option_set_enabled(NO_ARENAS, !used) }
}

/// Has mimalloc set itself up while there is one thread.
pub(crate) fn prepare() {
    // SAFETY: a block that is freed at once.
    unsafe { mi::mi_free(mi::mi_malloc(1)) }
}

// SAFETY of all functions below: they are the C library's, with its contracts; each passes its arguments on to
// the allocator that the memory is, or is to be, from.

/// C's.
#[unsafe(no_mangle)]
pub extern "C" fn malloc(size: size_t) -> *mut c_void {
    if is_inside() {
        return own(size, 16, false);
    }
    if size >= LARGE {
        return large::allocate(size);
    }
    // SAFETY: as above.
    unsafe { mi::mi_malloc(size) }
}

/// C's.
#[unsafe(no_mangle)]
pub extern "C" fn calloc(count: size_t, size: size_t) -> *mut c_void {
    if is_inside() {
        return count.checked_mul(size).map_or(std::ptr::null_mut(), |size| own(size, 16, true));
    }
    if let Some(all) = count.checked_mul(size).filter(|all| *all >= LARGE) {
        return large::allocate(all);
    }
    // SAFETY: as above.
    unsafe { mi::mi_calloc(count, size) }
}

/// C's.
///
/// # Safety
/// `at` was given out by this family, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(at: *mut c_void) {
    if is_own(at) {
        // SAFETY: as above.
        enter(move || unsafe { own_free(at) })
    } else if !large::free(at) {
        // SAFETY: as above.
        unsafe { mi::mi_free(at) }
    }
}

/// C's.
///
/// # Safety
/// As [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(at: *mut c_void, size: size_t) -> *mut c_void {
    if at.is_null() {
        return malloc(size);
    }
    let large = large::len(at);
    if let Some(len) = large
        && size >= LARGE
    {
        return large::resize(at, len, size);
    }
    if large.is_none() && !is_own(at) && size < LARGE {
        // SAFETY: as above.
        return unsafe { mi::mi_realloc(at, size) };
    }
    // From one kind of block to another.
    let new = malloc(size);
    if !new.is_null() {
        // SAFETY: both are at least as long as the shorter of the two.
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

/// C's.
///
/// # Safety
/// As [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(at: *mut c_void, count: size_t, size: size_t) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: as above.
        Some(size) => unsafe { realloc(at, size) },
        None => {
            set_errno(libc::ENOMEM);
            std::ptr::null_mut()
        }
    }
}

/// C's.
#[unsafe(no_mangle)]
pub extern "C" fn aligned_alloc(align: size_t, size: size_t) -> *mut c_void {
    if !align.is_power_of_two() {
        set_errno(libc::EINVAL);
        return std::ptr::null_mut();
    }
    if is_inside() {
        return own(size, align, false);
    }
    if size >= LARGE && align <= 4096 {
        return large::allocate(size);
    }
    // SAFETY: as above.
    unsafe { mi::mi_malloc_aligned(size, align) }
}

/// C's.
#[unsafe(no_mangle)]
pub extern "C" fn memalign(align: size_t, size: size_t) -> *mut c_void {
    aligned_alloc(align, size)
}

/// C's.
#[unsafe(no_mangle)]
pub extern "C" fn valloc(size: size_t) -> *mut c_void {
    aligned_alloc(4096, size)
}

/// C's.
#[unsafe(no_mangle)]
pub extern "C" fn pvalloc(size: size_t) -> *mut c_void {
    aligned_alloc(4096, size.next_multiple_of(4096))
}

/// C's.
///
/// # Safety
/// `to` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(to: *mut *mut c_void, align: size_t, size: size_t) -> c_int {
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<usize>()) {
        return libc::EINVAL;
    }
    let at = aligned_alloc(align, size);
    if at.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the caller's promise.
    unsafe { to.write(at) };
    0
}

/// C's.
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
        return unsafe { own_head(at).size };
    }
    if let Some(len) = large::len(at) {
        return len;
    }
    // SAFETY: as above.
    unsafe { mi::mi_usable_size(at) }
}

pub(crate) fn errno() -> c_int {
    // SAFETY: the thread's own.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn set_errno(value: c_int) {
    // SAFETY: the thread's own.
    unsafe { *libc::__errno_location() = value };
}
