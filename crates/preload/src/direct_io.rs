//! What lets a device store to the program's memory by itself: files opened for direct I/O (`O_DIRECT`), and buffers
//! registered with io_uring. The pager must know before the first of them.

use deepram_pool::descriptors::{Low, is_own};
use libc::{c_char, c_int, c_uint, c_void};

use crate::inside::enter;
use crate::next::stand_before;
use crate::{early, setup};

/// A device may store to memory from now on.
pub(crate) fn expect() {
    if early::is_on() {
        enter(expect_inside);
    }
}

pub(crate) fn expect_inside() {
    let Some(pager) = setup::pager() else { return early::expect_direct() };
    if let Err(error) = pager.expect_direct() {
        setup::complain(&format!("direct I/O into paged memory may be lost: {error}"));
    }
}

fn note_inside(flags: c_int) {
    if flags & libc::O_DIRECT != 0 {
        expect_inside();
    }
}

/// A file is opened with these flags, or given them.
pub(crate) fn note(flags: c_int) {
    if flags & libc::O_DIRECT != 0 {
        expect();
    }
}

/// A descriptor is told something.
pub(crate) fn note_control(command: c_int, argument: usize) {
    if command == libc::F_SETFL {
        note(argument as c_int);
    }
}

/// Descriptors that are open for that when the pager begins.
pub(crate) fn note_inherited() {
    let low = Low::hold();
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers: Vec<c_int> =
        open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    drop(low);
    for fd in numbers {
        // SAFETY: asks for flags; a descriptor that is closed by now has none.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        if flags >= 0 && !is_own(fd) {
            note_inside(flags);
        }
    }
}

fn plainly<T>(call: impl FnOnce() -> T) -> T {
    call()
}

stand_before! {
    plainly;
    open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int, else -1, first note(flags);
    open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int, else -1, first note(flags);
    openat(folder: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int, else -1, first note(flags);
    openat64(folder: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int, else -1, first note(flags);
    __open_2(path: *const c_char, flags: c_int) -> c_int, else -1, first note(flags);
    __open64_2(path: *const c_char, flags: c_int) -> c_int, else -1, first note(flags);
    __openat_2(folder: c_int, path: *const c_char, flags: c_int) -> c_int, else -1, first note(flags);
    __openat64_2(folder: c_int, path: *const c_char, flags: c_int) -> c_int, else -1, first note(flags);
    fcntl(fd: c_int, command: c_int, argument: usize) -> c_int, else -1, first note_control(command, argument);
    fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int, else -1, first note_control(command, argument);
    io_uring_register_buffers(ring: *mut c_void, buffers: *const c_void, count: c_uint) -> c_int,
        else -libc::ENOSYS, first expect();
    io_uring_register_buffers_tags(
        ring: *mut c_void, buffers: *const c_void, tags: *const c_void, count: c_uint
    ) -> c_int, else -libc::ENOSYS, first expect();
    io_uring_register_buffers_sparse(ring: *mut c_void, count: c_uint) -> c_int, else -libc::ENOSYS, first expect();
    io_uring_register_buffers_update_tag(
        ring: *mut c_void, from: c_uint, buffers: *const c_void, tags: *const c_void, count: c_uint
    ) -> c_int, else -libc::ENOSYS, first expect();
}
