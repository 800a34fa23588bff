//! A mapping as a slice of words.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// A mapping that is unmapped when it is dropped, or before.
pub(super) struct Mapped {
    first: NonNull<AtomicU64>,
    /// 0 once it is unmapped.
    bytes: usize,
}

// SAFETY: it is a slice of atomics that it owns the mapping of.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Private anonymous memory. Nobody has touched it, and no swap is reserved for it.
    pub(super) fn anonymous(bytes: usize) -> io::Result<Self> {
        Self::new(bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1)
    }

    /// Shared memory of a file of at least so many bytes. A load beyond the file's end, should somebody
    /// shorten it, is a signal.
    pub(super) fn shared(file: &File, bytes: usize) -> io::Result<Self> {
        Self::new(bytes, libc::MAP_SHARED, file.as_raw_fd())
    }

    fn new(bytes: usize, flags: i32, fd: i32) -> io::Result<Self> {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, prot, flags, fd, 0) };
        let first = NonNull::new(base.cast()).filter(|_| base != libc::MAP_FAILED);
        first.map(|first| Self { first, bytes }).ok_or_else(io::Error::last_os_error)
    }

    /// Its words; none once it is unmapped.
    pub(super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: mapped as long as `bytes` is not 0, which takes `&mut self` to change; aligned to pages;
        // used only as atomics, of which every bit pattern is one. Of no words any aligned pointer will do.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.bytes / size_of::<AtomicU64>()) }
    }

    /// Its first address.
    pub(super) fn start(&self) -> usize {
        self.first.as_ptr().addr()
    }

    /// Its length in bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    /// Advice on how a part of it will be used: only such as changes no contents.
    pub(super) fn advise(&self, at: usize, len: usize, advice: i32) -> io::Result<()> {
        debug_assert!([libc::MADV_RANDOM, libc::MADV_WILLNEED].contains(&advice), "{advice}");
        if at.checked_add(len).is_none_or(|end| end > self.bytes) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: inside our own mapping (checked), and neither advice changes what it holds.
        let result = unsafe { libc::madvise(self.first.as_ptr().cast::<u8>().add(at).cast(), len, advice) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Makes all stores to a shared file durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        // SAFETY: the range is our mapping.
        let result = unsafe { libc::msync(self.first.as_ptr().cast(), self.bytes, libc::MS_SYNC) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Gives the mapping up; a second time does nothing.
    pub(super) fn unmap(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        if bytes > 0 {
            // SAFETY: mapped in `new` with this length, and unmapped once; `&mut self`: no slice is left.
            unsafe { libc::munmap(self.first.as_ptr().cast(), bytes) };
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        self.unmap();
    }
}
