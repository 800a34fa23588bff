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
        known.store(found, Relaxed);
    }
    (!found.is_null()).then_some(found)
}
