//! Looks up the C library's functions that this library interposes, and generates the interposing functions.

use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use libc::c_void;

/// Finds the next function of this name in the search order of the loader; looked up once.
pub(crate) fn find_next(known: &AtomicPtr<c_void>, name: &CStr) -> Option<*mut c_void> {
    let mut found = known.load(Relaxed);
    if found.is_null() {
        // SAFETY: looks up a name.
        found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        if found.is_null() {
            found = find_in_liburing(name);
        }
        known.store(found, Relaxed);
    }
    (!found.is_null()).then_some(found)
}

/// Finds the function in a library that was loaded only for a plugin (`dlopen`): liburing, the only one whose functions
/// are interposed.
fn find_in_liburing(name: &CStr) -> *mut c_void {
    // SAFETY: opens a library only if it is loaded already, and looks up a name in it.
    unsafe {
        let library = libc::dlopen(c"liburing.so.2".as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY);
        if library.is_null() { std::ptr::null_mut() } else { libc::dlsym(library, name.as_ptr()) }
    }
}

/// Defines functions that interpose those of the C library: the wrapper through which the next function is called, the
/// result if the C library has no such function, and an expression that is evaluated first.
macro_rules! interpose {
    ($wrapper:path; $($name:ident($($argument:ident: $type:ty),*) -> $result:ty, else $missing:expr $(, first $first:expr)?;)*) => {$(
        /// Interposes the C library's function.
        ///
        /// # Safety
        /// As for the C library's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            static NEXT: std::sync::atomic::AtomicPtr<libc::c_void> =
                std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());
            type Function = unsafe extern "C" fn($($type),*) -> $result;
            const NAME: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name contains a zero byte"),
            };
            $($first;)?
            let Some(next) = $crate::libc_symbols::find_next(&NEXT, NAME) else {
                $crate::malloc::set_errno(libc::ENOSYS);
                return $missing;
            };
            // SAFETY: the C library's function of this name.
            let next = unsafe { std::mem::transmute::<*mut libc::c_void, Function>(next) };
            // SAFETY: the caller's arguments.
            $wrapper(move || unsafe { next($($argument),*) })
        }
    )*};
}
pub(crate) use interpose;
