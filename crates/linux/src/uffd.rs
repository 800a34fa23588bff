//! A userfaultfd over memory of this process, by address.
//!
//! A call changes which pages are present and which are writable, never the contents that a program reads. Calls for
//! which the C library has a function are made by number, so that a library that interposes `madvise` does not see them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use linux_raw_sys::general as raw;
use linux_raw_sys::ioctl as raw_ioctl;

use crate::userfault::{device, handshake, open, range, register, write_protect};

use crate::descriptors::{OpenGuard, open_high};

/// `_IOWR(0xAA, 0x08, struct uffdio_poison)`; linux-raw-sys has the structure but not the number.
const UFFDIO_POISON: u32 = 0xC020_AA08;
/// `_IOWR(0xAA, 0x05, struct uffdio_move)`; linux-raw-sys lacks the number.
const UFFDIO_MOVE: u32 = 0xC028_AA05;
/// Mode of `UFFDIO_MOVE` that wakes no thread (`UFFDIO_MOVE_MODE_DONTWAKE`).
const MOVE_MODE_DONTWAKE: u64 = 1;
/// Size of a page, bytes.
const PAGE: usize = 4096;
/// How often a move that fails for the moment is retried.
const MOVE_TRIES: u32 = 20;
/// Stands for the calling process in place of a descriptor (`PIDFD_SELF_THREAD_GROUP`, Linux 6.14).
const PIDFD_SELF: i64 = -10001;

const _: () = assert!(size_of::<raw::uffdio_poison>() == 0x20, "the ioctl number holds the size");
const _: () = assert!(size_of::<raw::uffdio_move>() == 0x28, "the ioctl number holds the size");

/// A page fault for which a thread waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Faulting address, as the processor reported it.
    pub address: usize,
    /// Whether the access was a store.
    pub write: bool,
    /// Faulting thread; 0 if the kernel does not report it.
    pub thread: i32,
}

/// Accesses whose faults are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchMode {
    /// Accesses of user code and of the kernel on its behalf (system-call buffers).
    All,
    /// Accesses of user code only: a system call on a missing page fails with `EFAULT`.
    UserOnly,
}

/// Reason why memory cannot be registered.
#[derive(Debug)]
pub enum Refusal {
    /// The kernel has no userfaultfd, or this process may not use it.
    Unavailable(io::Error),
    /// The kernel's userfaultfd has no write protection (before Linux 5.7).
    Features,
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Unavailable(error) => error,
            Refusal::Features => Self::new(
                io::ErrorKind::Unsupported,
                "this kernel's userfaultfd has no write protection; Linux 5.7 or later is needed",
            ),
        }
    }
}

/// The userfaultfd descriptor and the features that the kernel offers for it.
#[derive(Debug)]
pub struct Uffd {
    fd: OwnedFd,
    /// Whether [`Uffd::poison`] works.
    can_poison: bool,
    /// Whether [`Uffd::move_pages`] works.
    can_move: bool,
    /// `/dev/userfaultfd`, from which a forked child can open another descriptor even after the process has given up
    /// the right to.
    device: Option<OwnedFd>,
}

impl Uffd {
    /// Opens a userfaultfd, with no memory registered.
    ///
    /// # Errors
    /// The kernel has no userfaultfd with what the mode needs, or the process may not use it.
    pub fn new(mode: WatchMode) -> Result<Self, Refusal> {
        Self::open_with(mode, None)
    }

    /// As [`Uffd::new`], and keeps the device open for forked processes ([`Uffd::for_child`]).
    ///
    /// # Errors
    /// As [`Uffd::new`].
    pub fn new_inheritable(mode: WatchMode) -> Result<Self, Refusal> {
        Self::open_with(mode, open_high(device).ok())
    }

    /// Opens a userfaultfd for a forked process, which may have fewer rights by now.
    ///
    /// # Errors
    /// As [`Uffd::new`].
    pub fn for_child(&self, mode: WatchMode) -> Result<Self, Refusal> {
        let copy = |device: &OwnedFd| OpenGuard::acquire().duplicate(device.as_fd());
        let device = self.device.as_ref().map(copy).transpose();
        Self::open_with(mode, device.map_err(|error| Refusal::Unavailable(error.into()))?)
    }

    fn open_with(mode: WatchMode, device: Option<OwnedFd>) -> Result<Self, Refusal> {
        let opening = OpenGuard::acquire();
        let open = || open(mode == WatchMode::UserOnly, device.as_ref());
        let fd = open().map_err(Refusal::Unavailable)?;
        let want = u64::from(raw::UFFD_FEATURE_PAGEFAULT_FLAG_WP);
        let (poison, can_move) = (u64::from(raw::UFFD_FEATURE_POISON), u64::from(raw::UFFD_FEATURE_MOVE));
        let thread = u64::from(raw::UFFD_FEATURE_THREAD_ID);
        let shared = u64::from(raw::UFFD_FEATURE_WP_HUGETLBFS_SHMEM);
        // The features are queried on a separate descriptor: a descriptor allows one handshake only.
        let offered = open().and_then(|fd| handshake(&fd, 0)).unwrap_or(0);
        let features = want | offered & (poison | can_move | thread | shared);
        handshake(&fd, features).map_err(|_| Refusal::Features)?;
        let (can_poison, can_move) = (features & poison != 0, features & can_move != 0);
        Ok(Self { fd: opening.move_high(fd), can_poison, can_move, device })
    }

    /// Whether the kernel can move frames between addresses ([`Uffd::move_pages`]; Linux 6.8).
    pub fn can_move(&self) -> bool {
        self.can_move
    }

    /// Descriptors that this value keeps open.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        [Some(self.fd.as_raw_fd()), self.device.as_ref().map(OwnedFd::as_raw_fd)].into_iter().flatten()
    }

    /// The descriptor that becomes readable when a fault waits.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Reports missing and write-protected pages of the range from now on.
    ///
    /// # Errors
    /// The kernel refuses the call.
    pub fn register(&self, start: usize, len: usize) -> io::Result<()> {
        register(&self.fd, start, len, raw::UFFDIO_REGISTER_MODE_MISSING | raw::UFFDIO_REGISTER_MODE_WP)
    }

    /// Reports missing pages of the range from now on.
    ///
    /// # Errors
    /// The kernel refuses the call.
    pub fn register_missing(&self, start: usize, len: usize) -> io::Result<()> {
        register(&self.fd, start, len, raw::UFFDIO_REGISTER_MODE_MISSING)
    }

    /// Reports write-protected pages of the range from now on. Shared memory needs Linux 5.19.
    ///
    /// # Errors
    /// The kernel refuses the call.
    pub fn register_protected(&self, start: usize, len: usize) -> io::Result<()> {
        register(&self.fd, start, len, raw::UFFDIO_REGISTER_MODE_WP)
    }

    /// Stops reporting faults of the range; threads that wait there retry their access.
    ///
    /// # Errors
    /// The kernel refuses the call.
    pub fn unregister(&self, start: usize, len: usize) -> io::Result<()> {
        self.ioctl(raw_ioctl::UFFDIO_UNREGISTER, &mut range(start, len))
    }

    /// Reads the next waiting fault, if any.
    ///
    /// # Errors
    /// The kernel refuses the call.
    pub fn next_fault(&self) -> io::Result<Option<Fault>> {
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
        // SAFETY: as above; the field is zero where the kernel does not report the thread.
        let thread = unsafe { fault.feat.ptid }.cast_signed();
        let write = fault.flags & u64::from(raw::UFFD_PAGEFAULT_FLAG_WRITE) != 0;
        Ok(Some(Fault { address: fault.address as usize, write, thread }))
    }

    /// Makes missing pages present with these bytes, write-protected if `protect`, and wakes waiting threads. Returns
    /// the number of bytes installed, with the error that stopped the call before the end: the kernel's `EEXIST` for a
    /// page that is present already, `ENOENT` where the range crosses the end of a mapping.
    pub fn copy(&self, start: usize, bytes: &[u8], protect: bool) -> (usize, io::Result<()>) {
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

    /// Moves frames from `from` to the missing range at `to`, writable and atomically with the last store to them; no
    /// thread is woken. Whole huge pages move as such. Returns the number of bytes moved, with the error that stopped
    /// the call before the end: `EBUSY` if another process may see the frames too, `EINVAL` if the program may not
    /// store to one of the ranges.
    pub fn move_pages(&self, to: usize, from: usize, len: usize) -> (usize, io::Result<()>) {
        let (mut done, mut tries) = (0, 0);
        while done < len {
            match self.request_move(to + done, from + done, len - done) {
                Ok(moved) => done += moved,
                // A frame that was moved a moment ago, or that the kernel is inspecting, can be moved soon.
                Err(error) if is_transient(&error) && tries < MOVE_TRIES => {
                    tries += 1;
                    std::thread::yield_now();
                }
                Err(error) => return (done, Err(error)),
            }
        }
        (done, Ok(()))
    }

    /// Moves one page of this length, as [`Uffd::move_pages`]; the kernel refuses with `EBUSY` if a device may store to
    /// the page.
    ///
    /// # Errors
    /// The kernel refuses the call.
    pub fn move_page(&self, to: usize, from: usize, len: usize) -> io::Result<()> {
        loop {
            match self.request_move(to, from, len) {
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
                result => return result.map(drop),
            }
        }
    }

    /// Makes one call that moves frames. Returns the number of bytes moved, which is not 0.
    fn request_move(&self, to: usize, from: usize, len: usize) -> io::Result<usize> {
        let (dst, src) = (to as u64, from as u64);
        let mut request = raw::uffdio_move { dst, src, len: len as u64, mode: MOVE_MODE_DONTWAKE, move_: 0 };
        let Err(error) = self.ioctl(UFFDIO_MOVE, &mut request) else { return Ok(len) };
        if request.move_ > 0 {
            return Ok(request.move_ as usize);
        }
        // Linux 6.18 may move pages, find them at their destination when it repeats the step, and report that alone. The
        // range at `to` was missing, so pages there that are missing at `from` have been moved.
        let moved = if error.raw_os_error() == Some(libc::EEXIST) { moved_part(to, from, len) } else { 0 };
        if moved > 0 { Ok(moved) } else { Err(error) }
    }

    /// Write-protects the resident pages of the range: later stores wait.
    ///
    /// # Errors
    /// The kernel refuses the call.
    pub fn protect(&self, start: usize, len: usize) -> io::Result<()> {
        write_protect(&self.fd, start, len, true)
    }

    /// Removes write protection from the range, and wakes threads whose stores wait.
    ///
    /// # Errors
    /// The kernel refuses the call.
    pub fn unprotect(&self, start: usize, len: usize) -> io::Result<()> {
        write_protect(&self.fd, start, len, false)
    }

    /// Lets threads that wait on the range retry their access.
    ///
    /// # Errors
    /// The kernel refuses the call.
    pub fn wake(&self, start: usize, len: usize) -> io::Result<()> {
        self.ioctl(raw_ioctl::UFFDIO_WAKE, &mut range(start, len))
    }

    /// Makes every access to the missing range raise SIGBUS, until [`discard`]. Returns `false` if the kernel cannot
    /// (before Linux 6.6).
    ///
    /// # Errors
    /// The kernel refuses the call.
    pub fn poison(&self, start: usize, len: usize) -> io::Result<bool> {
        if !self.can_poison {
            return Ok(false);
        }
        let mut request = raw::uffdio_poison { range: range(start, len), mode: 0, updated: 0 };
        match self.ioctl(UFFDIO_POISON, &mut request) {
            Err(error) if error.raw_os_error() != Some(libc::EEXIST) => Err(error),
            _ => Ok(true),
        }
    }

    fn ioctl<T>(&self, request: u32, argument: &mut T) -> io::Result<()> {
        // SAFETY: each caller, in this file, passes the structure that its request takes. The requests change
        // registered memory only; its owner leaves page residency to this crate.
        unsafe { crate::userfault::ioctl(&self.fd, request, argument) }
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY))
}

/// Whether the kernel drops many ranges in one call, as far as is known.
static BATCHED: AtomicBool = AtomicBool::new(true);

/// Whether the whole range is mapped.
pub fn is_mapped(start: usize, len: usize) -> bool {
    // SAFETY: starts no I/O by itself: the kernel may write dirty file pages at any time anyway.
    unsafe { libc::syscall(libc::SYS_msync, start, len, libc::MS_ASYNC) == 0 }
}

/// Whether each page of the range is in memory.
///
/// # Errors
/// The kernel refuses the call.
pub fn resident_pages(start: usize, len: usize) -> io::Result<Vec<bool>> {
    let mut resident = vec![0_u8; len / PAGE];
    // SAFETY: `resident` has a byte for each page of the range.
    let result = unsafe { libc::syscall(libc::SYS_mincore, start, len, resident.as_mut_ptr()) };
    if result == 0 {
        Ok(resident.into_iter().map(|byte| byte & 1 == 1).collect())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Length of the part at the start of two ranges whose pages are present at `to` and missing at `from`.
fn moved_part(to: usize, from: usize, len: usize) -> usize {
    let resident = |start| resident_pages(start, len).unwrap_or_default().into_iter();
    resident(to).zip(resident(from)).take_while(|(there, here)| *there && !*here).count() * PAGE
}

/// Drops the frames of these ranges (start, length), also of locked memory; pages of registered ranges are missing
/// afterwards.
///
/// # Safety
/// The caller keeps the contents of the ranges elsewhere, or may lose them.
///
/// # Errors
/// The kernel refuses the call.
pub unsafe fn discard(ranges: &[(usize, usize)]) -> io::Result<()> {
    for batch in ranges.chunks(libc::UIO_MAXIOV as usize) {
        if batch.len() > 1 && BATCHED.load(Relaxed) {
            if discard_batch(batch) {
                continue;
            }
            BATCHED.store(false, Relaxed);
        }
        for &(start, len) in batch {
            // SAFETY: the caller's promise.
            let advise = |advice: i32| unsafe { libc::syscall(libc::SYS_madvise, start, len, advice) };
            if advise(libc::MADV_DONTNEED) != 0 {
                let error = io::Error::last_os_error();
                // The program has locked the memory.
                let is_locked = error.raw_os_error() == Some(libc::EINVAL);
                if !is_locked || advise(libc::MADV_DONTNEED_LOCKED) != 0 {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

/// Drops many ranges in one call, where the kernel can (Linux 6.13, for the calling process). Returns `false` if not;
/// some ranges may have been dropped.
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    const HUGE: usize = 2 << 20;
    const ROUNDS: usize = 4_000;

    /// Maps anonymous memory aligned to a huge page.
    fn map(len: usize, advice: i32) -> usize {
        // SAFETY: a new mapping.
        let start = unsafe {
            let (protection, flags) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            libc::syscall(libc::SYS_mmap, 0, len + HUGE, protection, flags, -1, 0)
        };
        assert!(start > 0, "{}", io::Error::last_os_error());
        let start = (start as usize).next_multiple_of(HUGE);
        // SAFETY: changes no contents. It fails where the kernel has no huge pages.
        unsafe { libc::syscall(libc::SYS_madvise, start, len, advice) };
        start
    }

    /// A thread that faults at the destination makes the kernel repeat a move, page by page.
    #[test]
    fn each_page_that_the_kernel_moves_counts_as_moved() {
        let uffd = match Uffd::new(WatchMode::All) {
            Ok(uffd) if uffd.can_move() => uffd,
            _ => return eprintln!("skipped: this kernel moves no pages"),
        };
        let (from, to) = (map(HUGE, libc::MADV_HUGEPAGE), map(HUGE, libc::MADV_NOHUGEPAGE));
        uffd.register_missing(to, HUGE).unwrap();
        let (begun, touched) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    while begun.load(SeqCst) < round {
                        std::thread::yield_now();
                    }
                    let page = ptr::with_exposed_provenance::<u8>(to + round % 512 * PAGE);
                    // SAFETY: memory of this test; the read waits until the page has been moved there.
                    unsafe { page.read_volatile() };
                    touched.store(round, SeqCst);
                }
            });
            for round in 1..=ROUNDS {
                // SAFETY: the memory of this test, whose contents are not needed.
                unsafe { discard(&[(to, HUGE), (from, HUGE)]) }.unwrap();
                // SAFETY: as above.
                let filled =
                    unsafe { libc::syscall(libc::SYS_madvise, from, HUGE, libc::MADV_POPULATE_WRITE) };
                assert_eq!(filled, 0, "{}", io::Error::last_os_error());
                begun.store(round, SeqCst);
                for _ in 0..round * 37 % 4096 {
                    std::hint::spin_loop();
                }
                let (moved, result) = uffd.move_pages(to, from, HUGE);
                let present = moved_part(to, from, HUGE);
                if moved != present {
                    // The other thread must end before the test fails.
                    begun.store(ROUNDS, SeqCst);
                    uffd.unregister(to, HUGE).unwrap();
                }
                assert_eq!(moved, present, "round {round}: {result:?}");
                while touched.load(SeqCst) < round {
                    uffd.copy(to + round % 512 * PAGE, &[0; PAGE], false).1.ok();
                    uffd.wake(to, HUGE).unwrap();
                    std::thread::yield_now();
                }
            }
        });
    }
}
