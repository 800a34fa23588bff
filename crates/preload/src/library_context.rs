//! Marks threads that are executing in the library: they must not touch managed memory, whose faults they may have to
//! serve themselves, or may block with a lock.

use deepram_linux::signals::BlockedSignals;
use libc::{c_int, c_void};

use crate::malloc::{errno, set_errno};
use crate::stacks::on_unpaged_stack;
use crate::thread_state::thread_state;

/// Result of an interposed call.
pub(crate) trait CallResult {
    /// Whether the call failed, with the reason in `errno`.
    fn has_failed(&self) -> bool {
        false
    }
}

impl CallResult for () {}

impl<T> CallResult for Option<T> {}

impl CallResult for c_int {
    fn has_failed(&self) -> bool {
        *self < 0
    }
}

impl CallResult for *mut c_void {
    fn has_failed(&self) -> bool {
        *self == libc::MAP_FAILED
    }
}

/// Calls `body` on a stack that is not paged, with signals blocked throughout: the kernel would otherwise consider an
/// alternate signal stack free if the caller is running on it.
pub(crate) fn on_library_stack<T>(body: impl FnOnce() -> T + 'static) -> T {
    let _signals = SignalGuard::new();
    on_unpaged_stack(body)
}

/// Calls `body` in the library: on a stack that is not paged, and with signals blocked, as their handlers may use any
/// memory. A successful call leaves `errno` unchanged.
pub(crate) fn enter_library<T: CallResult>(body: impl FnOnce() -> T + 'static) -> T {
    on_library_stack(|| {
        let _library = LibraryGuard::new();
        let before = errno();
        let result = body();
        if !result.has_failed() {
            set_errno(before);
        }
        result
    })
}

/// The thread is in the library until this is dropped.
pub(crate) struct LibraryGuard(());

impl LibraryGuard {
    pub(crate) fn new() -> Self {
        let depth = &thread_state().library_depth;
        depth.set(depth.get() + 1);
        Self(())
    }
}

impl Drop for LibraryGuard {
    fn drop(&mut self) {
        let depth = &thread_state().library_depth;
        depth.set(depth.get() - 1);
    }
}

/// Signals of the thread are blocked until the last of these is dropped.
pub(crate) struct SignalGuard {
    _blocked: Option<BlockedSignals>,
}

impl SignalGuard {
    pub(crate) fn new() -> Self {
        let depth_cell = &thread_state().signal_guard_depth;
        let depth = depth_cell.get();
        let blocked = (depth == 0).then(BlockedSignals::all);
        depth_cell.set(depth + 1);
        Self { _blocked: blocked }
    }
}

impl Drop for SignalGuard {
    fn drop(&mut self) {
        let depth_cell = &thread_state().signal_guard_depth;
        depth_cell.set(depth_cell.get() - 1);
    }
}

/// Marks a thread of the pager as being in the library for good; its signals are blocked already.
pub(crate) fn mark_library_thread() {
    thread_state().library_depth.set(1);
    thread_state().signal_guard_depth.set(1);
}

#[inline]
pub(crate) fn in_library() -> bool {
    thread_state().library_depth.get() > 0
}
