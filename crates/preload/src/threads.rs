//! Threads that the program starts: what the C library keeps of them is used by whoever is inside this library,
//! and so must not be paged.

use std::sync::atomic::AtomicPtr;

use libc::{c_int, c_void, pthread_attr_t, pthread_t};

use crate::inside::Inside;
use crate::next;
use crate::places::unkept;

type Create = unsafe extern "C" fn(
    *mut pthread_t,
    *const pthread_attr_t,
    extern "C" fn(*mut c_void) -> *mut c_void,
    *mut c_void,
) -> c_int;

static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// The C library's.
///
/// # Safety
/// As of the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
) -> c_int {
    let _inside = Inside::enter();
    let Some(next) = next::find(&NEXT, c"pthread_create") else { return libc::EAGAIN };
    // SAFETY: the C library's function of this name, with the caller's arguments.
    unkept(|| unsafe {
        std::mem::transmute::<*mut c_void, Create>(next)(thread, attributes, start, argument)
    })
}
