//! Threads that the program starts: what the C library keeps of them is used by whoever is inside this library,
//! and so must not be paged.

use std::sync::atomic::AtomicPtr;

use deepram_pool::pager::PAGE;
use libc::{c_int, c_void, pthread_attr_t, pthread_t};

use crate::inside::enter;
use crate::memory::pager;
use crate::places::unkept_inside;
use crate::setup;
use crate::{early, next};

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
    let Some(next) = next::find(&NEXT, c"pthread_create") else { return libc::EAGAIN };
    if let (Some(pager), Some((at, len))) = (pager(), stack_of(attributes)) {
        enter(move || {
            if let Err(error) = pager.unmanage(at, len) {
                setup::complain(&format!("a thread's stack, {len} bytes at {at:#x}, is paged: {error}"));
            }
        });
    } else if let (true, Some((at, len))) = (early::is_on(), stack_of(attributes)) {
        enter(move || early::leave_out(at, len));
    }
    // SAFETY: the C library's function of this name, with the caller's arguments.
    unkept_inside(move || unsafe {
        std::mem::transmute::<*mut c_void, Create>(next)(thread, attributes, start, argument)
    })
}

/// The stack that the program gives a thread, if it does: whole pages. What the C library keeps of the thread is there.
fn stack_of(attributes: *const pthread_attr_t) -> Option<(usize, usize)> {
    let (mut at, mut len) = (std::ptr::null_mut(), 0);
    // SAFETY: the caller's attributes, unless there are none.
    let failed = attributes.is_null()
        || unsafe { libc::pthread_attr_getstack(attributes, &raw mut at, &raw mut len) } != 0;
    let end = at.addr().checked_add(len)?;
    let start = at.addr() / PAGE * PAGE;
    (!failed && end > start).then(|| (start, end.next_multiple_of(PAGE) - start))
}
