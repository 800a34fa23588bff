//! Signals that ask the process to end, taken note of so that it can put things away first.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_signal: libc::c_int) {
    INTERRUPTED.store(true, Relaxed);
}

/// From now on SIGINT, SIGTERM and SIGHUP do not end this process: it asks [`interrupted`]. Processes that
/// it starts are not affected.
///
/// # Errors
/// That of `sigaction`.
pub fn watch_interrupts() -> io::Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: a structure of integers, for which zeros are no flags and an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = note as *const () as usize;
        // SAFETY: the handler stores to an atomic and does nothing else, which it may at any moment.
        let result = unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Whether one of them has come.
#[must_use]
pub fn interrupted() -> bool {
    INTERRUPTED.load(Relaxed)
}
