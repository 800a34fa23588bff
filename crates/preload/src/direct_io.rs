//! Calls after which a device may store to the program's memory directly: opening files for direct I/O (`O_DIRECT`),
//! and registering buffers with io_uring. The pager must know before the first of them.

use deepram_linux::descriptors::{OpenGuard, is_own};
use libc::{c_char, c_int, c_uint, c_void};

use crate::libc_symbols::interpose;
use crate::library_context::enter_library;
use crate::{lazy_start, setup};

/// Tells the pager that devices may store to memory from now on.
pub(crate) fn announce() {
    if lazy_start::is_watching() {
        enter_library(announce_to_pager);
    }
}

pub(crate) fn announce_to_pager() {
    let Some(pager) = setup::pager() else { return lazy_start::note_direct_io() };
    if let Err(error) = pager.expect_direct_io() {
        setup::report(&format!("direct I/O into paged memory may be lost: {error}"));
    }
}

fn check_flags_in_library(flags: c_int) {
    if flags & libc::O_DIRECT != 0 {
        announce_to_pager();
    }
}

/// Checks the flags with which a file is opened, or that are set on it.
pub(crate) fn check_flags(flags: c_int) {
    if flags & libc::O_DIRECT != 0 {
        announce();
    }
}

/// Checks a call of `fcntl`.
pub(crate) fn check_fcntl(command: c_int, argument: usize) {
    if command == libc::F_SETFL {
        check_flags(argument as c_int);
    }
}

/// Checks descriptors that are open with `O_DIRECT` when the pager starts.
pub(crate) fn check_inherited() {
    let opening = OpenGuard::acquire();
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers: Vec<c_int> =
        open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    drop(opening);
    for fd in numbers {
        // SAFETY: reads flags; a descriptor that is closed by now has none.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        if flags >= 0 && !is_own(fd) {
            check_flags_in_library(flags);
        }
    }
}

fn call_directly<T>(call: impl FnOnce() -> T) -> T {
    call()
}

interpose! {
    call_directly;
    open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int, else -1, first check_flags(flags);
    open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int, else -1, first check_flags(flags);
    openat(folder: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int, else -1, first check_flags(flags);
    openat64(folder: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int, else -1, first check_flags(flags);
    __open_2(path: *const c_char, flags: c_int) -> c_int, else -1, first check_flags(flags);
    __open64_2(path: *const c_char, flags: c_int) -> c_int, else -1, first check_flags(flags);
    __openat_2(folder: c_int, path: *const c_char, flags: c_int) -> c_int, else -1, first check_flags(flags);
    __openat64_2(folder: c_int, path: *const c_char, flags: c_int) -> c_int, else -1, first check_flags(flags);
    fcntl(fd: c_int, command: c_int, argument: usize) -> c_int, else -1, first check_fcntl(command, argument);
    fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int, else -1, first check_fcntl(command, argument);
    io_uring_register_buffers(ring: *mut c_void, buffers: *const c_void, count: c_uint) -> c_int,
        else -libc::ENOSYS, first announce();
    io_uring_register_buffers_tags(
        ring: *mut c_void, buffers: *const c_void, tags: *const c_void, count: c_uint
    ) -> c_int, else -libc::ENOSYS, first announce();
    io_uring_register_buffers_sparse(ring: *mut c_void, count: c_uint) -> c_int, else -libc::ENOSYS, first announce();
    io_uring_register_buffers_update_tag(
        ring: *mut c_void, from: c_uint, buffers: *const c_void, tags: *const c_void, count: c_uint
    ) -> c_int, else -libc::ENOSYS, first announce();
}
