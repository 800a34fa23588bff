//! A lock that a forked child can release.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// A value that one thread at a time uses, for moments.
pub(super) struct SpinLock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time reaches the value.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T> SpinLock<T> {
    pub(super) const fn new(value: T) -> Self {
        Self { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Takes the lock until [`SpinLock::release`].
    pub(super) fn acquire(&self) {
        while self.held.compare_exchange_weak(false, true, Acquire, Relaxed).is_err() {
            std::thread::yield_now();
        }
    }

    /// Releases the lock, which this thread, or the thread that forked this process, has taken.
    pub(super) fn release(&self) {
        self.held.store(false, Release);
    }

    /// Calls `f` with the value.
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        self.acquire();
        // SAFETY: this thread holds the lock.
        let result = f(unsafe { &mut *self.value.get() });
        self.release();
        result
    }
}
