//! Threads that the program creates: threads in this library use the memory that the C library allocates for each
//! thread, so it must not be paged.

use deepram_pager::PAGE;
use libc::{c_int, c_void, pthread_attr_t, pthread_t};

use crate::affinity::create_thread_without_pinning;
use crate::library_context::enter_library;
use crate::memory::pager;
use crate::setup;
use crate::{lazy_start, libc_symbols::symbol, media};

type Create = unsafe extern "C" fn(
    *mut pthread_t,
    *const pthread_attr_t,
    extern "C" fn(*mut c_void) -> *mut c_void,
    *mut c_void,
) -> c_int;

symbol!(NEXT = c"pthread_create");

/// Interposes the C library's `pthread_create`.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
) -> c_int {
    let Some(next) = NEXT.find() else { return libc::EAGAIN };
    if let (Some(pager), Some((at, len))) = (pager(), stack_of(attributes)) {
        enter_library(move || {
            if let Err(error) = pager.stop_managing(at, len) {
                setup::report(&format!("a thread's stack of {len} bytes at {at:#x} stays paged: {error}"));
            }
        });
    } else if let (true, Some((at, len))) = (lazy_start::is_watching(), stack_of(attributes)) {
        enter_library(move || lazy_start::exclude(at, len));
    }
    media::sync::note_thread();
    let (start, argument) = media::with_timer(start, argument);
    // SAFETY: the C library's function of this name, with the caller's arguments or those that lead to them.
    create_thread_without_pinning(move || unsafe {
        std::mem::transmute::<*mut c_void, Create>(next)(thread, attributes, start, argument)
    })
}

/// The stack that the program provides for a thread, if it does, in whole pages. The C library's data of the thread is
/// there too.
fn stack_of(attributes: *const pthread_attr_t) -> Option<(usize, usize)> {
    let (mut at, mut len) = (std::ptr::null_mut(), 0);
    // SAFETY: the caller's attributes, unless there are none.
    let failed = attributes.is_null()
        || unsafe { libc::pthread_attr_getstack(attributes, &raw mut at, &raw mut len) } != 0;
    let end = at.addr().checked_add(len)?;
    let start = at.addr() / PAGE * PAGE;
    (!failed && end > start).then(|| (start, end.next_multiple_of(PAGE) - start))
}
