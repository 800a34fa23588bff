//! The C library's functions that this library stands before.

use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use libc::c_void;

/// The next function of this name, which is looked up once.
pub(crate) fn find(known: &AtomicPtr<c_void>, name: &CStr) -> Option<*mut c_void> {
    let mut found = known.load(Relaxed);
    if found.is_null() {
        // SAFETY: looks a name up.
        found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        if found.is_null() {
            found = of_a_plugin(name);
        }
        known.store(found, Relaxed);
    }
    (!found.is_null()).then_some(found)
}

/// The function in a library that was loaded for a plugin alone (`dlopen`), as far as any that is stood before may be.
fn of_a_plugin(name: &CStr) -> *mut c_void {
    // SAFETY: asks for a library that is loaded already, and looks a name up in it.
    unsafe {
        let library = libc::dlopen(c"liburing.so.2".as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY);
        if library.is_null() { std::ptr::null_mut() } else { libc::dlsym(library, name.as_ptr()) }
    }
}

/// Functions of the C library that are called by another one, what they return if the C library has none, and what is done
/// first.
macro_rules! stand_before {
    ($around:path; $($name:ident($($argument:ident: $type:ty),*) -> $result:ty, else $missing:expr $(, first $first:expr)?;)*) => {$(
        /// The C library's.
        ///
        /// # Safety
        /// As of the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            static NEXT: std::sync::atomic::AtomicPtr<libc::c_void> =
                std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());
            type Function = unsafe extern "C" fn($($type),*) -> $result;
            const NAME: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name without zeros"),
            };
            $($first;)?
            let Some(next) = $crate::next::find(&NEXT, NAME) else {
                $crate::malloc::set_errno(libc::ENOSYS);
                return $missing;
            };
            // SAFETY: the C library's function of this name.
            let next = unsafe { std::mem::transmute::<*mut libc::c_void, Function>(next) };
            // SAFETY: the caller's arguments.
            $around(move || unsafe { next($($argument),*) })
        }
    )*};
}
pub(crate) use stand_before;
