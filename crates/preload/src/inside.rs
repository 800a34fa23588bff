//! Whether a thread is at work for the library itself: then it must not touch managed memory, whose faults
//! it may be the one to serve.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Threads of the pager are being started, and cannot say so yet: meanwhile everybody is inside.
static STARTING: AtomicBool = AtomicBool::new(false);

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// The thread is inside until this is dropped.
pub(crate) struct Inside(());

impl Inside {
    pub(crate) fn enter() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Self(())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Calls what starts the pager's threads, and returns when they all have begun.
pub(crate) fn starting<T>(start: impl FnOnce() -> T) -> T {
    STARTING.store(true, Relaxed);
    let result = start();
    STARTING.store(false, Relaxed);
    result
}

/// The thread is one of the pager's for good.
pub(crate) fn for_good() {
    std::mem::forget(Inside::enter());
}

#[inline]
pub(crate) fn is_inside() -> bool {
    DEPTH.get() > 0 || STARTING.load(Relaxed)
}
