//! The allocator that the program is linked with, such as jemalloc. Its functions follow this library's in the search order of the
//! loader, and precede the C library's. The program's blocks come from it: it decides which blocks share a page, and its interface may
//! have more functions than `malloc`. The memory of its blocks is paged as other mappings are.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use crate::libc_symbols::{Symbol, symbol};
use crate::library_context::LibraryGuard;

const ABSENT: u8 = 1;
const PRESENT: u8 = 2;

/// 0 until the first call of an allocator's function.
static STATE: AtomicU8 = AtomicU8::new(0);

symbol!(pub(crate) MALLOC = c"malloc");
symbol!(pub(crate) CALLOC = c"calloc");
symbol!(pub(crate) FREE = c"free");
symbol!(pub(crate) REALLOC = c"realloc");
symbol!(pub(crate) ALIGNED_ALLOC = c"aligned_alloc");
symbol!(pub(crate) MEMALIGN = c"memalign");
symbol!(pub(crate) VALLOC = c"valloc");
symbol!(pub(crate) PVALLOC = c"pvalloc");
symbol!(pub(crate) POSIX_MEMALIGN = c"posix_memalign");
symbol!(pub(crate) USABLE_SIZE = c"malloc_usable_size");

/// Whether the program has an allocator of its own.
#[inline]
pub(crate) fn is_present() -> bool {
    match STATE.load(Relaxed) {
        0 => look(),
        state => state == PRESENT,
    }
}

#[cold]
fn look() -> bool {
    // The loader may allocate and free: such blocks come from the library's own heap. A later look-up would free a message of the
    // loader, which the allocator may have given.
    let _library = LibraryGuard::new();
    let others: [&Symbol; 9] = [
        &CALLOC,
        &FREE,
        &REALLOC,
        &ALIGNED_ALLOC,
        &MEMALIGN,
        &VALLOC,
        &PVALLOC,
        &POSIX_MEMALIGN,
        &USABLE_SIZE,
    ];
    for symbol in others {
        symbol.find();
    }
    let present = MALLOC.find().is_some_and(|next| {
        let libc = libc::gnu_get_libc_version as *const c_void;
        base(next).is_some_and(|library| base(libc) != Some(library))
    });
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

/// Returns from the calling function with the result of the program's allocator, if there is one.
macro_rules! forward {
    ($symbol:ident: $type:ty, $($argument:expr),+) => {
        if $crate::program_allocator::is_present()
            && let Some(next) = $crate::program_allocator::$symbol.find()
        {
            // SAFETY: the function has this type in every C library and allocator.
            let next = unsafe { std::mem::transmute::<*mut libc::c_void, $type>(next) };
            // SAFETY: the caller's arguments.
            return unsafe { next($($argument),+) };
        }
    };
}
pub(crate) use forward;
