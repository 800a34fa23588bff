//! Whether a thread is at work for the library itself: then it must not touch managed memory, whose faults
//! it may be the one to serve, or to keep from being served.

use deepram_pool::signals::Blocked;
use libc::{c_int, c_void};

use crate::malloc::{errno, set_errno};
use crate::stacks::aside;
use crate::thread_state::thread_state;

/// What a call gives.
pub(crate) trait Outcome {
    /// Whether `errno` says why it failed.
    fn has_failed(&self) -> bool {
        false
    }
}

impl Outcome for () {}

impl<T> Outcome for Option<T> {}

impl Outcome for c_int {
    fn has_failed(&self) -> bool {
        *self < 0
    }
}

impl Outcome for *mut c_void {
    fn has_failed(&self) -> bool {
        *self == libc::MAP_FAILED
    }
}

/// Calls `body` on a stack that is not paged, with signals kept waiting for all of it: the kernel would take a stack for
/// signals, if the caller is on that, for free.
pub(crate) fn apart<T>(body: impl FnOnce() -> T + 'static) -> T {
    let _quiet = Quiet::new();
    aside(body)
}

/// Calls `body` inside: on a stack that is not paged, and with signals kept waiting, as their handlers may use any
/// memory. What succeeds leaves `errno` as it is.
pub(crate) fn enter<T: Outcome>(body: impl FnOnce() -> T + 'static) -> T {
    apart(|| {
        let _inside = Inside::new();
        let before = errno();
        let result = body();
        if !result.has_failed() {
            set_errno(before);
        }
        result
    })
}

/// The thread is inside until this is dropped.
pub(crate) struct Inside(());

impl Inside {
    pub(crate) fn new() -> Self {
        let inside = &thread_state().inside;
        inside.set(inside.get() + 1);
        Self(())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let inside = &thread_state().inside;
        inside.set(inside.get() - 1);
    }
}

/// The thread's signals wait until the last of these is dropped.
pub(crate) struct Quiet {
    _blocked: Option<Blocked>,
}

impl Quiet {
    pub(crate) fn new() -> Self {
        let quiet = &thread_state().quiet;
        let depth = quiet.get();
        let blocked = (depth == 0).then(Blocked::all);
        quiet.set(depth + 1);
        Self { _blocked: blocked }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        let quiet = &thread_state().quiet;
        quiet.set(quiet.get() - 1);
    }
}

/// The thread is one of the pager's for good; its signals are blocked already.
pub(crate) fn for_good() {
    thread_state().inside.set(1);
    thread_state().quiet.set(1);
}

#[inline]
pub(crate) fn is_inside() -> bool {
    thread_state().inside.get() > 0
}
