//! The address range through which a pool is seen, and the userfaultfd that watches over it.
//!
//! A region is private anonymous memory at a stable address. Its pages are the frames of the DRAM
//! cache: a page is there (resident) or missing, and a resident page is writable or
//! write-protected. All changes to that go through here; who decides them is [`crate::cache`].

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::{io, ptr};

use linux_raw_sys::general as raw;
use linux_raw_sys::ioctl as raw_ioctl;

/// `_IOWR(0xAA, 0x08, struct uffdio_poison)`; linux-raw-sys has the structure but not the number.
const UFFDIO_POISON: u32 = 0xC020_AA08;
/// Write-protect, rather than undo that; linux-raw-sys lacks this too.
const WRITEPROTECT_MODE_WP: u64 = 1;
/// `_IO(0xAA, 0x00)` on `/dev/userfaultfd`.
const USERFAULTFD_IOC_NEW: u32 = 0x0000_AA00;

/// What is copied whole.
const WORD: usize = size_of::<u64>();

/// "The calling process" in place of a descriptor (`PIDFD_SELF_THREAD_GROUP`, Linux 6.14).
const PIDFD_SELF: i64 = -10001;

const _: () = assert!(size_of::<raw::uffdio_poison>() == 0x20, "the ioctl number holds the size");

/// How a fault arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Byte offset in the region.
    pub(crate) offset: usize,
    /// The access was a store.
    pub(crate) write: bool,
}

/// Which faults the watch must serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchMode {
    /// Those of user code and those that the kernel takes on its behalf (system-call buffers).
    All,
    /// Those of user code alone: a system call on a missing page fails with `EFAULT`.
    UserOnly,
}

/// Why mapped access cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The kernel has no userfaultfd, or this process may not use it.
    #[error(
        "mapped access needs userfaultfd, which this process may not use ({source}); enable it by \
         one of: `sysctl vm.unprivileged_userfaultfd=1`, the capability CAP_SYS_PTRACE, read and \
         write access to /dev/userfaultfd, or Mapping::UserOnly (system calls on pool memory then \
         fail with EFAULT where it is not resident); read and write work without it"
    )]
    Unavailable {
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel is older than the features that are needed.
    #[error(
        "mapped access needs the userfaultfd features {needed}, which this kernel lacks: Linux 5.7 or later has them"
    )]
    Features {
        /// Names of what is missing.
        needed: &'static str,
    },
    /// The stable address is taken.
    #[error(
        "the pool's address range {start:#x}..{end:#x} is taken in this process ({source}); open it with another base address"
    )]
    Address {
        /// First address.
        start: usize,
        /// End, exclusive.
        end: usize,
        /// What the kernel said.
        source: io::Error,
    },
    /// A system call on the range failed.
    #[error("{what} failed on the pool's address range: {source}")]
    System {
        /// The call.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// The mapped range. Dropping it unmaps everything.
pub(crate) struct Region {
    base: *mut u8,
    len: usize,
    watch: Option<OwnedFd>,
    poison: bool,
    /// Whether many ranges can be dropped in one call, as far as is known.
    batched: AtomicBool,
}

// SAFETY: a region is an address range; every access to its bytes goes through methods whose
// callers hold the cache's lock, or through raw pointers whose users are told the rules.
unsafe impl Send for Region {}
// SAFETY: as above; the methods themselves only make system calls or copy bytes.
unsafe impl Sync for Region {}

impl Region {
    /// Reserves `len` bytes at `base`, or anywhere if `None`.
    pub(crate) fn map(base: Option<usize>, len: usize) -> Result<Self, WatchError> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let fixed = if base.is_some() { libc::MAP_FIXED_NOREPLACE } else { 0 };
        let want = base.unwrap_or(0);
        // SAFETY: a new anonymous mapping; MAP_FIXED_NOREPLACE never replaces an existing one.
        let got = unsafe {
            libc::mmap(
                ptr::with_exposed_provenance_mut(want),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                flags | fixed,
                -1,
                0,
            )
        };
        let taken = |source| WatchError::Address { start: want, end: want.saturating_add(len), source };
        if got == libc::MAP_FAILED {
            return Err(taken(io::Error::last_os_error()));
        }
        let region =
            Self { base: got.cast(), len, watch: None, poison: false, batched: AtomicBool::new(true) };
        if base.is_some() && got.addr() != want {
            return Err(taken(io::ErrorKind::AddrInUse.into()));
        }
        // Huge pages would make one fault bring 2 MiB; a forked child would see zeros.
        region.advise(0, len, libc::MADV_NOHUGEPAGE, "madvise(MADV_NOHUGEPAGE)")?;
        region.advise(0, len, libc::MADV_DONTFORK, "madvise(MADV_DONTFORK)")?;
        Ok(region)
    }

    /// Has missing and write-protected pages reported from now on.
    pub(crate) fn watch(&mut self, mode: WatchMode) -> Result<(), WatchError> {
        let fd = open_userfaultfd(mode).map_err(|source| WatchError::Unavailable { source })?;
        let want = u64::from(raw::UFFD_FEATURE_PAGEFAULT_FLAG_WP);
        let poison = u64::from(raw::UFFD_FEATURE_POISON);
        let offered = match handshake(mode, want | poison) {
            Ok(()) => want | poison,
            Err(_) => want,
        };
        api(&fd, offered)
            .map_err(|_| WatchError::Features { needed: "write protection (PAGEFAULT_FLAG_WP)" })?;
        let mut register = raw::uffdio_register {
            range: self.range(0, self.len),
            mode: u64::from(raw::UFFDIO_REGISTER_MODE_MISSING | raw::UFFDIO_REGISTER_MODE_WP),
            ioctls: 0,
        };
        // SAFETY: `register` is the structure this request takes, and outlives the call.
        unsafe { ioctl(fd.as_raw_fd(), raw_ioctl::UFFDIO_REGISTER, &mut register) }
            .map_err(|source| WatchError::System { what: "UFFDIO_REGISTER", source })?;
        self.poison = offered & poison != 0;
        self.watch = Some(fd);
        Ok(())
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.watch.is_some()
    }

    /// The descriptor that becomes readable when a fault waits.
    pub(crate) fn watch_fd(&self) -> Option<RawFd> {
        self.watch.as_ref().map(AsRawFd::as_raw_fd)
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn range(&self, offset: usize, len: usize) -> raw::uffdio_range {
        debug_assert!(offset + len <= self.len);
        raw::uffdio_range { start: (self.base.addr() + offset) as u64, len: len as u64 }
    }

    /// The next waiting fault, if any.
    pub(crate) fn next_fault(&self) -> io::Result<Option<Fault>> {
        let Some(fd) = self.watch_fd() else { return Ok(None) };
        // SAFETY: an all-zero `uffd_msg` is a valid value of it.
        let mut message: raw::uffd_msg = unsafe { std::mem::zeroed() };
        // SAFETY: reads at most `size_of::<uffd_msg>()` bytes into `message`.
        let n = unsafe { libc::read(fd, (&raw mut message).cast(), size_of::<raw::uffd_msg>()) };
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
        let offset = (address as usize).wrapping_sub(self.base.addr());
        if offset >= self.len {
            return Ok(None);
        }
        Ok(Some(Fault { offset, write: flags & u64::from(raw::UFFD_PAGEFAULT_FLAG_WRITE) != 0 }))
    }

    /// Makes a missing range resident with `bytes`, write-protected if `protect`. The threads that
    /// wait for it go on. On an unwatched region the bytes are simply stored.
    pub(crate) fn install(&self, offset: usize, bytes: &[u8], protect: bool) -> io::Result<()> {
        let Some(fd) = self.watch_fd() else {
            self.copy_in(offset, bytes);
            return Ok(());
        };
        let mut done = 0;
        while done < bytes.len() {
            let range = self.range(offset + done, bytes.len() - done);
            let mut copy = raw::uffdio_copy {
                dst: range.start,
                src: bytes[done..].as_ptr().expose_provenance() as u64,
                len: range.len,
                mode: if protect { u64::from(raw::UFFDIO_COPY_MODE_WP) } else { 0 },
                copy: 0,
            };
            // SAFETY: `copy` is the structure of this request; source and length denote `bytes`,
            // the destination lies in the region, which nothing else manages.
            match unsafe { ioctl(fd, raw_ioctl::UFFDIO_COPY, &mut copy) } {
                Ok(()) => done = bytes.len(),
                Err(_) if copy.copy > 0 => done += copy.copy as usize,
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Makes later stores into the resident pages of the range fault.
    pub(crate) fn protect(&self, offset: usize, len: usize) -> io::Result<()> {
        self.write_protect(offset, len, WRITEPROTECT_MODE_WP)
    }

    /// Lets stores into the range go through, and the threads that wait for that go on.
    pub(crate) fn unprotect(&self, offset: usize, len: usize) -> io::Result<()> {
        self.write_protect(offset, len, 0)
    }

    fn write_protect(&self, offset: usize, len: usize, mode: u64) -> io::Result<()> {
        let Some(fd) = self.watch_fd() else { return Ok(()) };
        let mut request = raw::uffdio_writeprotect { range: self.range(offset, len), mode };
        loop {
            // SAFETY: `request` is the structure of this request; it changes only protection.
            match unsafe { ioctl(fd, raw_ioctl::UFFDIO_WRITEPROTECT, &mut request) } {
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
                result => return result,
            }
        }
    }

    /// Lets the threads that wait on the range retry their access.
    pub(crate) fn wake(&self, offset: usize, len: usize) -> io::Result<()> {
        let Some(fd) = self.watch_fd() else { return Ok(()) };
        let mut range = self.range(offset, len);
        // SAFETY: `range` is the structure of this request; it changes no memory.
        unsafe { ioctl(fd, raw_ioctl::UFFDIO_WAKE, &mut range) }
    }

    /// Makes every access to the missing range raise SIGBUS, until [`Region::discard`].
    /// Where the kernel cannot (before Linux 6.6) accesses raise SIGSEGV instead.
    pub(crate) fn poison(&self, offset: usize, len: usize) -> io::Result<()> {
        let Some(fd) = self.watch_fd() else { return Ok(()) };
        if self.poison {
            let mut request = raw::uffdio_poison { range: self.range(offset, len), mode: 0, updated: 0 };
            // SAFETY: `request` is the structure of this request; the range is missing, so no
            // bytes are lost.
            match unsafe { ioctl(fd, UFFDIO_POISON, &mut request) } {
                Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
                result => return result,
            }
        } else {
            self.set_access(offset, len, false, false)?;
        }
        self.wake(offset, len)
    }

    /// Drops the frames of these ranges (offset, length): they are missing afterwards.
    pub(crate) fn discard(&self, ranges: &[(usize, usize)]) -> io::Result<()> {
        let mut rest = ranges;
        while rest.len() > 1 && self.batched.load(Relaxed) {
            let now = &rest[..rest.len().min(libc::UIO_MAXIOV as usize)];
            if !self.discard_batch(now) {
                self.batched.store(false, Relaxed);
                break;
            }
            rest = &rest[now.len()..];
        }
        for &(offset, len) in rest {
            // SAFETY: the range lies in the region; the cache has written back what it must keep.
            let result = unsafe { libc::madvise(self.base.add(offset).cast(), len, libc::MADV_DONTNEED) };
            if result != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }

    /// One call for many ranges, where the kernel has that (Linux 6.13, for the caller itself).
    /// `false` if it has not; some ranges may have been dropped then.
    fn discard_batch(&self, ranges: &[(usize, usize)]) -> bool {
        let vectors: Vec<libc::iovec> = ranges
            .iter()
            .map(|&(offset, len)| libc::iovec {
                iov_base: self.base.wrapping_add(offset).cast(),
                iov_len: len,
            })
            .collect();
        let total: usize = ranges.iter().map(|(_, len)| len).sum();
        // SAFETY: the ranges lie in the region, as for `madvise`; the vectors outlive the call.
        let done = unsafe {
            libc::syscall(
                libc::SYS_process_madvise,
                PIDFD_SELF,
                vectors.as_ptr(),
                vectors.len(),
                libc::MADV_DONTNEED,
                0,
            )
        };
        usize::try_from(done) == Ok(total)
    }

    /// What user code may do with the range (`mprotect`).
    pub(crate) fn set_access(&self, offset: usize, len: usize, read: bool, write: bool) -> io::Result<()> {
        let mut prot = libc::PROT_NONE;
        if read || write {
            // x86 has no write-only pages.
            prot |= libc::PROT_READ;
        }
        if write {
            prot |= libc::PROT_WRITE;
        }
        // SAFETY: the range lies in the region; no reference to its bytes exists.
        let result = unsafe { libc::mprotect(self.base.add(offset).cast(), len, prot) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// The word at an offset, which is a multiple of 8.
    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(WORD) && offset < self.len, "a word of the region");
        // SAFETY: inside the region, which is made of whole pages; aligned, for it starts at one;
        // mapped as long as `self`. Rust code accesses the region by atomics only (these copies
        // and `Words`) or through raw pointers whose users are told the rules.
        unsafe { AtomicU64::from_ptr(self.base.add(offset).cast()) }
    }

    /// Copies out of resident pages, so that no aligned word is torn by a concurrent store. The
    /// caller holds the cache lock, so that they stay resident and readable.
    pub(crate) fn copy_out(&self, offset: usize, to: &mut [u8]) {
        if offset.is_multiple_of(WORD) && to.len().is_multiple_of(WORD) {
            for (n, bytes) in to.chunks_exact_mut(WORD).enumerate() {
                bytes.copy_from_slice(&self.word(offset + n * WORD).load(Relaxed).to_ne_bytes());
            }
            return;
        }
        let mut done = 0;
        while done < to.len() {
            let (start, within, n) = piece(offset + done, to.len() - done);
            let word = self.word(start).load(Relaxed).to_ne_bytes();
            to[done..done + n].copy_from_slice(&word[within..within + n]);
            done += n;
        }
    }

    /// Copies into resident, writable pages, under the cache lock as [`Region::copy_out`]. The
    /// bytes beside a part of a word keep what others store there meanwhile.
    pub(crate) fn copy_in(&self, offset: usize, from: &[u8]) {
        if offset.is_multiple_of(WORD) && from.len().is_multiple_of(WORD) {
            for (n, bytes) in from.chunks_exact(WORD).enumerate() {
                let value = u64::from_ne_bytes(bytes.try_into().expect("a word's bytes"));
                self.word(offset + n * WORD).store(value, Relaxed);
            }
            return;
        }
        let mut done = 0;
        while done < from.len() {
            let (start, within, n) = piece(offset + done, from.len() - done);
            let part = &from[done..done + n];
            // Never refused: the closure always has a new value.
            let _ = self.word(start).fetch_update(Relaxed, Relaxed, |old| {
                let mut word = old.to_ne_bytes();
                word[within..within + n].copy_from_slice(part);
                Some(u64::from_ne_bytes(word))
            });
            done += n;
        }
    }

    fn advise(&self, offset: usize, len: usize, advice: i32, what: &'static str) -> Result<(), WatchError> {
        // SAFETY: the range lies in the region, which holds no data yet.
        let result = unsafe { libc::madvise(self.base.add(offset).cast(), len, advice) };
        if result == 0 {
            Ok(())
        } else {
            Err(WatchError::System { what, source: io::Error::last_os_error() })
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the range was mapped in `map` and is unmapped once. Pointers into it die with
        // the pool, as its documentation says.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}

/// The first of `len` bytes at `offset` that lie in one word: the word's offset, the first byte in
/// it, how many.
fn piece(offset: usize, len: usize) -> (usize, usize, usize) {
    let within = offset % WORD;
    (offset - within, within, len.min(WORD - within))
}

fn open_userfaultfd(mode: WatchMode) -> io::Result<OwnedFd> {
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
    let Ok(device) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/userfaultfd") else {
        return Err(refused);
    };
    // SAFETY: this request takes its flags by value and returns a new descriptor.
    let fd = unsafe { libc::ioctl(device.as_raw_fd(), USERFAULTFD_IOC_NEW as _, base) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Tries a feature set on a throw-away descriptor: a failed handshake uses it up.
fn handshake(mode: WatchMode, features: u64) -> io::Result<()> {
    api(&open_userfaultfd(mode)?, features)
}

fn api(fd: &OwnedFd, features: u64) -> io::Result<()> {
    let mut request = raw::uffdio_api { api: 0xAA, features, ioctls: 0 };
    // SAFETY: `request` is the structure of this request, and outlives the call.
    unsafe { ioctl(fd.as_raw_fd(), raw_ioctl::UFFDIO_API, &mut request) }
}

/// # Safety
/// `argument` must be the structure that `request` takes.
unsafe fn ioctl<T>(fd: RawFd, request: u32, argument: &mut T) -> io::Result<()> {
    // SAFETY: the caller's promise.
    let result = unsafe { libc::ioctl(fd, request as _, ptr::from_mut(argument)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
