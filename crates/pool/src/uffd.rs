//! A userfaultfd over memory of this process, by address.
//!
//! Every call changes which pages are there and which may be stored to, never what a program would read:
//! that is up to who decides on them, [`crate::cache`] for a pool and [`crate::pager`] for a program's memory.
//! Calls for which the C library has a function go to the kernel by number, so that a library that stands
//! before `madvise` is not asked about its own work.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use linux_raw_sys::general as raw;
use linux_raw_sys::ioctl as raw_ioctl;

use crate::descriptors::{Low, raised};

/// `_IOWR(0xAA, 0x08, struct uffdio_poison)`; linux-raw-sys has the structure but not the number.
const UFFDIO_POISON: u32 = 0xC020_AA08;
/// Write-protect, rather than undo that; linux-raw-sys lacks this too.
const WRITEPROTECT_MODE_WP: u64 = 1;
/// `_IOWR(0xAA, 0x05, struct uffdio_move)`; here too.
const UFFDIO_MOVE: u32 = 0xC028_AA05;
/// Wakes nobody (`UFFDIO_MOVE_MODE_DONTWAKE`).
const MOVE_MODE_DONTWAKE: u64 = 1;
/// How often a transfer that cannot be just now is tried again.
const TRANSFER_TRIES: u32 = 20;
/// `_IO(0xAA, 0x00)` on `/dev/userfaultfd`.
const USERFAULTFD_IOC_NEW: u32 = 0x0000_AA00;
/// "The calling process" in place of a descriptor (`PIDFD_SELF_THREAD_GROUP`, Linux 6.14).
const PIDFD_SELF: i64 = -10001;

const _: () = assert!(size_of::<raw::uffdio_poison>() == 0x20, "the ioctl number holds the size");
const _: () = assert!(size_of::<raw::uffdio_move>() == 0x28, "the ioctl number holds the size");

/// A thread waits because of this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The address, as the processor gave it.
    pub(crate) address: usize,
    /// The access was a store.
    pub(crate) write: bool,
    /// The thread; 0 if the kernel does not say.
    pub(crate) thread: i32,
}

/// Which faults must be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchMode {
    /// Those of user code and those that the kernel takes on its behalf (system-call buffers).
    All,
    /// Those of user code alone: a system call on a missing page fails with `EFAULT`.
    UserOnly,
}

/// Why memory cannot be watched.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The kernel has no userfaultfd, or this process may not use it.
    Unavailable(io::Error),
    /// No write protection (before Linux 5.7).
    Features,
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Unavailable(error) => error,
            Refusal::Features => Self::new(
                io::ErrorKind::Unsupported,
                "this kernel's userfaultfd has no write protection: Linux 5.7 or later has",
            ),
        }
    }
}

/// The descriptor.
#[derive(Debug)]
pub(crate) struct Uffd {
    fd: OwnedFd,
    /// Whether [`Uffd::poison`] works.
    poisons: bool,
    /// Whether [`Uffd::transfer`] works.
    transfers: bool,
    /// What more can be made from, though the process has given up the right to.
    device: Option<OwnedFd>,
}

impl Uffd {
    /// A new one, which watches nothing yet.
    pub(crate) fn new(mode: WatchMode) -> Result<Self, Refusal> {
        Self::with(mode, None)
    }

    /// As [`Uffd::new`]; a forked process gets its own from this one ([`Uffd::again`]).
    pub(crate) fn lasting(mode: WatchMode) -> Result<Self, Refusal> {
        Self::with(mode, raised(device).ok())
    }

    /// One for a forked process, which may have less rights by now.
    pub(crate) fn again(&self, mode: WatchMode) -> Result<Self, Refusal> {
        let copy = |device: &OwnedFd| Low::hold().duplicate(device.as_fd());
        let device = self.device.as_ref().map(copy).transpose();
        Self::with(mode, device.map_err(|error| Refusal::Unavailable(error.into()))?)
    }

    fn with(mode: WatchMode, device: Option<OwnedFd>) -> Result<Self, Refusal> {
        let low = Low::hold();
        let open = |mode| open(mode, device.as_ref());
        let fd = open(mode).map_err(Refusal::Unavailable)?;
        let want = u64::from(raw::UFFD_FEATURE_PAGEFAULT_FLAG_WP);
        let (poison, transfer) = (u64::from(raw::UFFD_FEATURE_POISON), u64::from(raw::UFFD_FEATURE_MOVE));
        let thread = u64::from(raw::UFFD_FEATURE_THREAD_ID);
        // Asked on a throw-away descriptor: a handshake uses one up.
        let offered = open(mode).and_then(|fd| api(&fd, 0)).unwrap_or(0);
        let features = want | offered & (poison | transfer | thread);
        api(&fd, features).map_err(|_| Refusal::Features)?;
        let (poisons, transfers) = (features & poison != 0, features & transfer != 0);
        Ok(Self { fd: low.raise(fd), poisons, transfers, device })
    }

    /// Whether the kernel moves frames from one place to another ([`Uffd::transfer`]; Linux 6.8).
    pub(crate) fn transfers(&self) -> bool {
        self.transfers
    }

    /// Its descriptors.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        [Some(self.fd.as_raw_fd()), self.device.as_ref().map(OwnedFd::as_raw_fd)].into_iter().flatten()
    }

    /// The descriptor that becomes readable when a fault waits.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Reports missing and write-protected pages of the range from now on.
    pub(crate) fn register(&self, start: usize, len: usize) -> io::Result<()> {
        self.register_for(start, len, raw::UFFDIO_REGISTER_MODE_MISSING | raw::UFFDIO_REGISTER_MODE_WP)
    }

    /// Reports missing pages of the range from now on.
    pub(crate) fn register_missing(&self, start: usize, len: usize) -> io::Result<()> {
        self.register_for(start, len, raw::UFFDIO_REGISTER_MODE_MISSING)
    }

    /// Reports nothing of the range any more; who waits there tries again.
    pub(crate) fn unregister(&self, start: usize, len: usize) -> io::Result<()> {
        self.ioctl(raw_ioctl::UFFDIO_UNREGISTER, &mut range(start, len))
    }

    fn register_for(&self, start: usize, len: usize, mode: u32) -> io::Result<()> {
        let mode = u64::from(mode);
        let mut request = raw::uffdio_register { range: range(start, len), mode, ioctls: 0 };
        self.ioctl(raw_ioctl::UFFDIO_REGISTER, &mut request)
    }

    /// The next fault that waits, if any.
    pub(crate) fn next(&self) -> io::Result<Option<Fault>> {
        // SAFETY: an all-zero `uffd_msg` is a valid value of it.
        let mut message: raw::uffd_msg = unsafe { std::mem::zeroed() };
        // SAFETY: reads at most `size_of::<uffd_msg>()` bytes into `message`.
        let n =
            unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut message).cast(), size_of::<raw::uffd_msg>()) };
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
        let fault = unsafe { message.arg.pagefault };
        // SAFETY: as above; zero where it does not say.
        let thread = unsafe { fault.feat.ptid }.cast_signed();
        let write = fault.flags & u64::from(raw::UFFD_PAGEFAULT_FLAG_WRITE) != 0;
        Ok(Some(Fault { address: fault.address as usize, write, thread }))
    }

    /// Makes missing pages resident with these bytes, write-protected if `protect`, and wakes who waits.
    /// Returns how many bytes that is, with the error that stopped it if not all: the kernel's `EEXIST` for
    /// a page that is there already, `ENOENT` where the range goes beyond one mapping.
    pub(crate) fn copy(&self, start: usize, bytes: &[u8], protect: bool) -> (usize, io::Result<()>) {
        let mut done = 0;
        while done < bytes.len() {
            let mut copy = raw::uffdio_copy {
                dst: (start + done) as u64,
                src: bytes[done..].as_ptr().expose_provenance() as u64,
                len: (bytes.len() - done) as u64,
                mode: if protect { u64::from(raw::UFFDIO_COPY_MODE_WP) } else { 0 },
                copy: 0,
            };
            match self.ioctl(raw_ioctl::UFFDIO_COPY, &mut copy) {
                Ok(()) => done = bytes.len(),
                Err(_) if copy.copy > 0 => done += copy.copy as usize,
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
                Err(error) => return (done, Err(error)),
            }
        }
        (done, Ok(()))
    }

    /// Moves frames from one place to another, where none are, writable, at once with the last store to them; nobody is
    /// woken. Whole huge pages move as such. Returns how many bytes have moved, with the error that stopped it if not
    /// all: some other process may see the frames as well (`EBUSY`), or the program may not store to a place (`EINVAL`).
    pub(crate) fn transfer(&self, to: usize, from: usize, len: usize) -> (usize, io::Result<()>) {
        let (mut done, mut tries) = (0, 0);
        while done < len {
            let mut request = raw::uffdio_move {
                dst: (to + done) as u64,
                src: (from + done) as u64,
                len: (len - done) as u64,
                mode: MOVE_MODE_DONTWAKE,
                move_: 0,
            };
            match self.ioctl(UFFDIO_MOVE, &mut request) {
                Ok(()) => done = len,
                Err(_) if request.move_ > 0 => done += request.move_ as usize,
                // A frame that a transfer has just left, or that the kernel looks at, is so for a moment.
                Err(error) if is_passing(&error) && tries < TRANSFER_TRIES => {
                    tries += 1;
                    std::thread::yield_now();
                }
                Err(error) => return (done, Err(error)),
            }
        }
        (done, Ok(()))
    }

    /// Moves one frame of this length, as [`Uffd::transfer`]; the kernel refuses with `EBUSY` where a device may store to it.
    pub(crate) fn transfer_one(&self, to: usize, from: usize, len: usize) -> io::Result<()> {
        loop {
            let (dst, src, len) = (to as u64, from as u64, len as u64);
            let mut request = raw::uffdio_move { dst, src, len, mode: MOVE_MODE_DONTWAKE, move_: 0 };
            match self.ioctl(UFFDIO_MOVE, &mut request) {
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
                result => return result,
            }
        }
    }

    /// Makes later stores into the resident pages of the range wait.
    pub(crate) fn protect(&self, start: usize, len: usize) -> io::Result<()> {
        self.write_protect(start, len, WRITEPROTECT_MODE_WP)
    }

    /// Lets stores into the range go through, those that wait as well.
    pub(crate) fn unprotect(&self, start: usize, len: usize) -> io::Result<()> {
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
    pub(crate) fn wake(&self, start: usize, len: usize) -> io::Result<()> {
        self.ioctl(raw_ioctl::UFFDIO_WAKE, &mut range(start, len))
    }

    /// Makes every access to the missing range raise SIGBUS, until [`discard`]. `false` if the kernel
    /// cannot (before Linux 6.6).
    pub(crate) fn poison(&self, start: usize, len: usize) -> io::Result<bool> {
        if !self.poisons {
            return Ok(false);
        }
        let mut request = raw::uffdio_poison { range: range(start, len), mode: 0, updated: 0 };
        match self.ioctl(UFFDIO_POISON, &mut request) {
            Err(error) if error.raw_os_error() != Some(libc::EEXIST) => Err(error),
            _ => Ok(true),
        }
    }

    fn ioctl<T>(&self, request: u32, argument: &mut T) -> io::Result<()> {
        ioctl(&self.fd, request, argument)
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY))
}

fn range(start: usize, len: usize) -> raw::uffdio_range {
    raw::uffdio_range { start: start as u64, len: len as u64 }
}

fn ioctl<T>(fd: &OwnedFd, request: u32, argument: &mut T) -> io::Result<()> {
    // SAFETY: each caller, in this file, passes the structure that its request takes, which outlives the
    // call. The memory that requests change is watched: who registered it leaves residency to us.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), request as _, ptr::from_mut(argument)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The handshake: the features that the kernel has.
fn api(fd: &OwnedFd, features: u64) -> io::Result<u64> {
    let mut request = raw::uffdio_api { api: 0xAA, features, ioctls: 0 };
    ioctl(fd, raw_ioctl::UFFDIO_API, &mut request)?;
    Ok(request.features)
}

fn device() -> io::Result<OwnedFd> {
    Ok(std::fs::OpenOptions::new().read(true).write(true).open("/dev/userfaultfd")?.into())
}

fn open(mode: WatchMode, known: Option<&OwnedFd>) -> io::Result<OwnedFd> {
    let base = libc::O_CLOEXEC | libc::O_NONBLOCK;
    let user_only = raw::UFFD_USER_MODE_ONLY.cast_signed();
    let flags = if mode == WatchMode::UserOnly { base | user_only } else { base };
    // SAFETY: creates a descriptor, touches no memory.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
    if fd >= 0 {
        // SAFETY: the descriptor is new and ours.
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
    // SAFETY: the descriptor is new and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Whether the kernel drops many ranges in one call, as far as is known.
static BATCHED: AtomicBool = AtomicBool::new(true);

/// Whether all of the range is mapped.
pub(crate) fn is_mapped(start: usize, len: usize) -> bool {
    // SAFETY: begins nothing: what may be written to a file by and by is, in any case.
    unsafe { libc::syscall(libc::SYS_msync, start, len, libc::MS_ASYNC) == 0 }
}

/// Drops the frames of these ranges (start, length); where they are watched they are missing afterwards.
///
/// # Safety
/// The ranges are memory whose contents the caller keeps elsewhere or may lose.
pub(crate) unsafe fn discard(ranges: &[(usize, usize)]) -> io::Result<()> {
    for batch in ranges.chunks(libc::UIO_MAXIOV as usize) {
        if batch.len() > 1 && BATCHED.load(Relaxed) {
            if discard_batch(batch) {
                continue;
            }
            BATCHED.store(false, Relaxed);
        }
        for &(start, len) in batch {
            // SAFETY: the caller's promise.
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
