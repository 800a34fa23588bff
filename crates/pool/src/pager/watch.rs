//! A userfaultfd over any private anonymous memory of this process, by address.
//!
//! Every call changes which pages are there and which may be stored to, never what a program would read:
//! that is the pager's part.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use linux_raw_sys::general as raw;
use linux_raw_sys::ioctl as raw_ioctl;

/// Write-protect, rather than undo that; linux-raw-sys lacks it.
const WRITEPROTECT_MODE_WP: u64 = 1;
/// `_IO(0xAA, 0x00)` on `/dev/userfaultfd`.
const USERFAULTFD_IOC_NEW: u32 = 0x0000_AA00;
/// "The calling process" in place of a descriptor (`PIDFD_SELF_THREAD_GROUP`, Linux 6.14).
const PIDFD_SELF: i64 = -10001;

/// A thread waits because of this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    /// The address, as the processor gave it.
    pub(super) address: usize,
    /// It stores.
    pub(super) write: bool,
}

/// The descriptor.
pub(super) struct Watch {
    fd: OwnedFd,
}

impl Watch {
    /// A new one, for faults of user code and of system calls.
    pub(super) fn new() -> io::Result<Self> {
        let watch = Self { fd: open()? };
        let features = u64::from(raw::UFFD_FEATURE_PAGEFAULT_FLAG_WP);
        let mut request = raw::uffdio_api { api: 0xAA, features, ioctls: 0 };
        watch.ioctl(raw_ioctl::UFFDIO_API, &mut request)?;
        Ok(watch)
    }

    /// The descriptor that becomes readable when a fault waits.
    pub(super) fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Reports missing and write-protected pages of the range from now on.
    pub(super) fn register(&self, start: usize, len: usize) -> io::Result<()> {
        let mode = u64::from(raw::UFFDIO_REGISTER_MODE_MISSING | raw::UFFDIO_REGISTER_MODE_WP);
        let mut request = raw::uffdio_register { range: range(start, len), mode, ioctls: 0 };
        self.ioctl(raw_ioctl::UFFDIO_REGISTER, &mut request)
    }

    /// The next fault that waits, if any.
    pub(super) fn next(&self) -> io::Result<Option<Fault>> {
        // SAFETY: an all-zero `uffd_msg` is a valid value of it.
        let mut message: raw::uffd_msg = unsafe { std::mem::zeroed() };
        // SAFETY: reads at most `size_of::<uffd_msg>()` bytes into `message`.
        let n = unsafe { libc::read(self.raw_fd(), (&raw mut message).cast(), size_of::<raw::uffd_msg>()) };
        if n < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            };
        }
        if u32::from(message.event) != raw::UFFD_EVENT_PAGEFAULT {
            return Ok(None);
        }
        // SAFETY: the kernel filled the `pagefault` member, as the event says.
        let (address, flags) = unsafe { (message.arg.pagefault.address, message.arg.pagefault.flags) };
        let write = flags & u64::from(raw::UFFD_PAGEFAULT_FLAG_WRITE) != 0;
        Ok(Some(Fault { address: address as usize, write }))
    }

    /// Makes missing pages resident with these bytes, write-protected if `protect`, and wakes who waits.
    /// Pages that are there already stay as they are. The range may be made up of several mappings. Returns
    /// how many pages are there now: fewer than asked for where a mapping has gone behind our back.
    pub(super) fn install(&self, start: usize, bytes: &[u8], protect: bool) -> usize {
        let (mut done, mut most) = (0, bytes.len());
        while done < bytes.len() {
            let mut copy = raw::uffdio_copy {
                dst: (start + done) as u64,
                src: bytes[done..].as_ptr().expose_provenance() as u64,
                len: (bytes.len() - done).min(most) as u64,
                mode: if protect { u64::from(raw::UFFDIO_COPY_MODE_WP) } else { 0 },
                copy: 0,
            };
            let result = self.ioctl(raw_ioctl::UFFDIO_COPY, &mut copy);
            match result.map_err(|error| error.raw_os_error()) {
                Ok(()) => done += copy.len as usize,
                Err(_) if copy.copy > 0 => done += copy.copy as usize,
                Err(Some(libc::EAGAIN)) => {}
                Err(Some(libc::EEXIST)) => {
                    // Whoever waits for it need not.
                    let _ = self.wake(start + done, super::PAGE);
                    done += super::PAGE;
                }
                // One request is one mapping's.
                Err(Some(libc::ENOENT)) if copy.len as usize > super::PAGE => most = super::PAGE,
                Err(_) => break,
            }
        }
        done / super::PAGE
    }

    /// Makes stores into the resident pages of the range wait.
    pub(super) fn protect(&self, start: usize, len: usize) -> io::Result<()> {
        self.write_protect(start, len, WRITEPROTECT_MODE_WP)
    }

    /// Lets stores go through, those that wait as well.
    pub(super) fn unprotect(&self, start: usize, len: usize) -> io::Result<()> {
        self.write_protect(start, len, 0)
    }

    fn write_protect(&self, start: usize, len: usize, mode: u64) -> io::Result<()> {
        let mut request = raw::uffdio_writeprotect { range: range(start, len), mode };
        loop {
            match self.ioctl(raw_ioctl::UFFDIO_WRITEPROTECT, &mut request) {
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
                result => return result,
            }
        }
    }

    /// Lets who waits on the range try again.
    pub(super) fn wake(&self, start: usize, len: usize) -> io::Result<()> {
        self.ioctl(raw_ioctl::UFFDIO_WAKE, &mut range(start, len))
    }

    fn ioctl<T>(&self, request: u32, argument: &mut T) -> io::Result<()> {
        // SAFETY: each caller passes the structure that its request takes, which outlives the call. The
        // memory that requests change is what the pager manages: private and anonymous, and its owner
        // promised to leave residency to the pager (`Pager::manage`).
        let result = unsafe { libc::ioctl(self.raw_fd(), request as _, ptr::from_mut(argument)) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

fn range(start: usize, len: usize) -> raw::uffdio_range {
    raw::uffdio_range { start: start as u64, len: len as u64 }
}

fn open() -> io::Result<OwnedFd> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: creates a descriptor, touches no memory.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
    if fd >= 0 {
        // SAFETY: the descriptor is new and ours.
        return Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) });
    }
    let refused = io::Error::last_os_error();
    let Ok(device) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/userfaultfd") else {
        return Err(refused);
    };
    // SAFETY: this request takes its flags by value and returns a new descriptor.
    let fd = unsafe { libc::ioctl(device.as_raw_fd(), USERFAULTFD_IOC_NEW as _, flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Drops the frames of these ranges (start, length); they are missing afterwards.
///
/// # Safety
/// The ranges are managed memory whose contents the pager keeps elsewhere or may lose.
pub(super) unsafe fn discard(ranges: &[(usize, usize)]) -> io::Result<()> {
    for batch in ranges.chunks(libc::UIO_MAXIOV as usize) {
        if batch.len() > 1 && discard_batch(batch) {
            continue;
        }
        for &(start, len) in batch {
            // SAFETY: the caller's promise. By number, for a library that stands before `madvise` itself.
            let result = unsafe { libc::syscall(libc::SYS_madvise, start, len, libc::MADV_DONTNEED) };
            if result != 0 {
                return Err(io::Error::last_os_error());
            }
        }
    }
    Ok(())
}

/// One call for many ranges, where the kernel has that (Linux 6.13, for the caller itself). If not,
/// `false`; some ranges may have been dropped.
fn discard_batch(ranges: &[(usize, usize)]) -> bool {
    let vectors: Vec<libc::iovec> = ranges
        .iter()
        .map(|&(start, len)| libc::iovec { iov_base: ptr::with_exposed_provenance_mut(start), iov_len: len })
        .collect();
    let total: usize = ranges.iter().map(|(_, len)| len).sum();
    // SAFETY: as for `madvise` in `discard`, the only caller; the vectors outlive the call.
    let done = unsafe {
        let vectors: (*const libc::iovec, usize) = (vectors.as_ptr(), vectors.len());
        libc::syscall(libc::SYS_process_madvise, PIDFD_SELF, vectors.0, vectors.1, libc::MADV_DONTNEED, 0)
    };
    usize::try_from(done) == Ok(total)
}
