//! The calls on a userfaultfd that all its users share: opening, the handshake, registration and write protection.
//!
//! The calls change which pages are present and writable, never the contents that a program reads. They are made by
//! number, so that a library that interposes the C library's functions does not see them.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use linux_raw_sys::general as raw;
use linux_raw_sys::ioctl as raw_ioctl;

/// `_IO(0xAA, 0x00)` on `/dev/userfaultfd`.
const USERFAULTFD_IOC_NEW: u32 = 0x0000_AA00;
/// Mode of `UFFDIO_WRITEPROTECT` that protects rather than unprotects; linux-raw-sys lacks it.
const WRITEPROTECT_MODE_WP: u64 = 1;

/// Opens `/dev/userfaultfd`, through which processes without other rights may open a userfaultfd.
///
/// # Errors
/// The device does not exist, or the process may not open it.
pub fn device() -> io::Result<OwnedFd> {
    Ok(std::fs::OpenOptions::new().read(true).write(true).open("/dev/userfaultfd")?.into())
}

/// Opens a userfaultfd, not blocking and closed on `exec`: by the system call, or else through the device, which is
/// opened if it is not given. With `user_only`, the system call asks for faults of user code alone, which needs fewer
/// rights.
///
/// # Errors
/// The kernel has no userfaultfd, or the process may not use it.
pub fn open(user_only: bool, known: Option<&OwnedFd>) -> io::Result<OwnedFd> {
    let base = libc::O_CLOEXEC | libc::O_NONBLOCK;
    let flags = if user_only { base | raw::UFFD_USER_MODE_ONLY.cast_signed() } else { base };
    // SAFETY: creates a descriptor, touches no memory.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
    if fd >= 0 {
        // SAFETY: the descriptor is new and has no other owner.
        return Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) });
    }
    let refused = io::Error::last_os_error();
    let opened = if known.is_none() { device().ok() } else { None };
    let Some(device) = known.or(opened.as_ref()) else { return Err(refused) };
    // SAFETY: this request takes its flags by value and returns a new descriptor.
    let fd = unsafe { libc::ioctl(device.as_raw_fd(), USERFAULTFD_IOC_NEW as _, base) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Performs the handshake, once for each descriptor. Returns the features that the kernel offers.
///
/// # Errors
/// The kernel lacks one of `features`.
pub fn handshake(fd: &OwnedFd, features: u64) -> io::Result<u64> {
    let mut request = raw::uffdio_api { api: 0xAA, features, ioctls: 0 };
    // SAFETY: the request takes this structure.
    unsafe { ioctl(fd, raw_ioctl::UFFDIO_API, &mut request) }?;
    Ok(request.features)
}

/// Registers a range of whole pages for faults of these modes (`UFFDIO_REGISTER_MODE_*`).
///
/// # Errors
/// The kernel's error: `EINVAL` for memory that it cannot watch in these modes.
pub fn register(fd: &OwnedFd, start: usize, len: usize, modes: u32) -> io::Result<()> {
    let mut request = raw::uffdio_register { range: range(start, len), mode: u64::from(modes), ioctls: 0 };
    // SAFETY: the request takes this structure.
    unsafe { ioctl(fd, raw_ioctl::UFFDIO_REGISTER, &mut request) }
}

/// Write-protects a registered range, or removes the protection and wakes threads whose stores wait.
///
/// # Errors
/// The kernel's error: `ENOENT` for a range that is not registered.
pub fn write_protect(fd: &OwnedFd, start: usize, len: usize, protect: bool) -> io::Result<()> {
    let mode = if protect { WRITEPROTECT_MODE_WP } else { 0 };
    let mut request = raw::uffdio_writeprotect { range: range(start, len), mode };
    loop {
        // SAFETY: the request takes this structure.
        match unsafe { ioctl(fd, raw_ioctl::UFFDIO_WRITEPROTECT, &mut request) } {
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
            result => return result,
        }
    }
}

/// The range of a request.
#[must_use]
pub fn range(start: usize, len: usize) -> raw::uffdio_range {
    raw::uffdio_range { start: start as u64, len: len as u64 }
}

/// Makes a request of a userfaultfd.
///
/// # Safety
/// `argument` is the structure that the request takes. The request changes the residency and protection of registered
/// memory only in ways that its owner expects.
///
/// # Errors
/// The kernel's error.
pub unsafe fn ioctl<T>(fd: &OwnedFd, request: u32, argument: &mut T) -> io::Result<()> {
    // SAFETY: as promised by the caller; the structure outlives the call.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), request as _, std::ptr::from_mut(argument)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
