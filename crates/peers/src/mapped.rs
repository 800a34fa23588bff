//! A mapping as a slice of words.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// A mapping, unmapped when it is dropped or by [`Mapped::unmap`].
pub(super) struct Mapped {
    first: NonNull<AtomicU64>,
    /// Length in bytes; 0 after it is unmapped.
    bytes: usize,
}

// SAFETY: `Mapped` is a slice of atomics that owns its mapping.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps private anonymous memory without reserving swap. The memory is untouched.
    pub(super) fn anonymous(bytes: usize) -> io::Result<Self> {
        Self::new(bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1)
    }

    /// Maps a file of at least `bytes` bytes as shared memory. A load beyond the end of a file that another process
    /// has shortened raises a signal.
    pub(super) fn shared(file: &File, bytes: usize) -> io::Result<Self> {
        Self::new(bytes, libc::MAP_SHARED, file.as_raw_fd())
    }

    fn new(bytes: usize, flags: i32, fd: i32) -> io::Result<Self> {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice replaces no existing mapping.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, prot, flags, fd, 0) };
        let first = NonNull::new(base.cast()).filter(|_| base != libc::MAP_FAILED);
        first.map(|first| Self { first, bytes }).ok_or_else(io::Error::last_os_error)
    }

    /// Returns the words of the mapping; none after it is unmapped.
    pub(super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the memory is mapped as long as `bytes` is not 0, and changing `bytes` takes `&mut self`. It is
        // aligned to pages and accessed only as atomics, for which every bit pattern is valid. An empty slice may
        // have any aligned pointer.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.bytes / size_of::<AtomicU64>()) }
    }

    /// Returns the first address.
    pub(super) fn start(&self) -> usize {
        self.first.as_ptr().addr()
    }

    /// Returns the length in bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    /// Advises the kernel (`madvise`) about a part of the mapping. The advice must not change the contents.
    pub(super) fn advise(&self, at: usize, len: usize, advice: i32) -> io::Result<()> {
        debug_assert!([libc::MADV_RANDOM, libc::MADV_WILLNEED].contains(&advice), "{advice}");
        if at.checked_add(len).is_none_or(|end| end > self.bytes) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the range lies inside this mapping (checked above), and the advice does not change its contents.
        let result = unsafe { libc::madvise(self.first.as_ptr().cast::<u8>().add(at).cast(), len, advice) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Makes all stores to a shared file durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        // SAFETY: the range is this mapping.
        let result = unsafe { libc::msync(self.first.as_ptr().cast(), self.bytes, libc::MS_SYNC) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Unmaps the memory; a second call does nothing.
    pub(super) fn unmap(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        if bytes > 0 {
            // SAFETY: the range was mapped in `new` with this length and is unmapped once; because of `&mut self` no
            // slice of it is left.
            unsafe { libc::munmap(self.first.as_ptr().cast(), bytes) };
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        self.unmap();
    }
}
