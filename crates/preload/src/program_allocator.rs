//! The allocator that the program is linked with, such as jemalloc. Its functions follow this library's in the search order of the
//! loader, and precede the C library's. The program's blocks come from it: it decides which blocks share a page, and its interface may
//! have more functions than `malloc`. The memory of its blocks is paged as other mappings are.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use libc::{c_int, size_t};

use crate::libc_symbols::Symbol;
use crate::library_context::LibraryGuard;

const ABSENT: u8 = 1;
const PRESENT: u8 = 2;

/// 0 until the first call of an allocator's function.
static STATE: AtomicU8 = AtomicU8::new(0);

/// Whether the program has an allocator of its own.
#[inline]
fn is_present() -> bool {
    match STATE.load(Relaxed) {
        0 => look(),
        state => state == PRESENT,
    }
}

#[cold]
fn look() -> bool {
    // The loader may allocate and free: such blocks come from the library's own heap. To look up `free` later would free a message
    // of the loader that the allocator may have given, and so call `free`.
    let _library = LibraryGuard::new();
    let present = MALLOC.find().is_some_and(|next| {
        let libc = libc::gnu_get_libc_version as *const c_void;
        base(next).is_some_and(|library| base(libc) != Some(library))
    });
    if present {
        find_family();
    }
    STATE.store(if present { PRESENT } else { ABSENT }, Relaxed);
    present
}

/// Address of the library that has this function.
fn base(function: *const c_void) -> Option<usize> {
    // SAFETY: zeros are a valid value.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `found` may be written.
    let known = unsafe { libc::dladdr(function, &raw mut found) } != 0;
    known.then(|| found.dli_fbase.addr())
}

/// Defines a function for each function of the family, which calls that of the program's allocator, and returns `None` if the program
/// has no allocator; and one that looks all of them up.
macro_rules! family {
    ($($symbol:ident = $name:literal: $function:ident($($argument:ident: $type:ty),+) -> $result:ty;)+) => {
        $(
            static $symbol: Symbol = Symbol::new($name);

            /// # Safety
            /// As for the C library's function.
            #[inline]
            pub(crate) unsafe fn $function($($argument: $type),+) -> Option<$result> {
                let next = if is_present() { $symbol.find()? } else { return None };
                // SAFETY: the function has this type in every C library and allocator.
                let next = unsafe {
                    std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),+) -> $result>(next)
                };
                // SAFETY: the caller's arguments.
                Some(unsafe { next($($argument),+) })
            }
        )+

        fn find_family() {
            $($symbol.find();)+
        }
    };
}

family! {
    MALLOC = c"malloc": malloc(size: size_t) -> *mut c_void;
    CALLOC = c"calloc": calloc(count: size_t, size: size_t) -> *mut c_void;
    FREE = c"free": free(at: *mut c_void) -> ();
    REALLOC = c"realloc": realloc(at: *mut c_void, size: size_t) -> *mut c_void;
    ALIGNED_ALLOC = c"aligned_alloc": aligned_alloc(align: size_t, size: size_t) -> *mut c_void;
    MEMALIGN = c"memalign": memalign(align: size_t, size: size_t) -> *mut c_void;
    VALLOC = c"valloc": valloc(size: size_t) -> *mut c_void;
    PVALLOC = c"pvalloc": pvalloc(size: size_t) -> *mut c_void;
    POSIX_MEMALIGN = c"posix_memalign": posix_memalign(to: *mut *mut c_void, align: size_t, size: size_t) -> c_int;
    USABLE_SIZE = c"malloc_usable_size": malloc_usable_size(at: *mut c_void) -> size_t;
}
