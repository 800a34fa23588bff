//! What a pool is measured against in the benches: a plain mapping of a file, and the raw device.
//! Not part of the interface.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use crate::buffer::AlignedBuf;
use crate::device::{Device, FileDevice};

/// A shared mapping of a file, made durable by `msync`.
pub struct MappedFile {
    first: NonNull<AtomicU64>,
    bytes: usize,
}

// SAFETY: it is a slice of atomics that it owns the mapping of.
unsafe impl Send for MappedFile {}
// SAFETY: as above.
unsafe impl Sync for MappedFile {}

impl MappedFile {
    /// A new file of `bytes` bytes, all zero and written, mapped; with `MADV_RANDOM` if `random`.
    ///
    /// # Errors
    /// Those of the file system and of `mmap`.
    pub fn create(path: &Path, bytes: usize, random: bool) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        let zeros = vec![0; 1 << 20];
        for at in (0..bytes).step_by(zeros.len()) {
            use std::os::unix::fs::FileExt;
            file.write_all_at(&zeros[..zeros.len().min(bytes - at)], at as u64)?;
        }
        file.sync_all()?;
        // The mapping shall bring the pages in its own way, not find them as they were written.
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new shared mapping of a file that nobody else has.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, prot, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        let first = NonNull::new(base.cast()).filter(|_| base != libc::MAP_FAILED);
        let Some(first) = first else { return Err(io::Error::last_os_error()) };
        let mapped = Self { first, bytes };
        if random {
            // SAFETY: advice on our own mapping.
            let advised = unsafe { libc::madvise(base, bytes, libc::MADV_RANDOM) };
            if advised != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(mapped)
    }

    /// Its words.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: mapped as long as `self`, aligned to pages, used only as atomics.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.bytes / size_of::<AtomicU64>()) }
    }

    /// Makes all stores durable.
    ///
    /// # Errors
    /// That of `msync`.
    pub fn sync(&self) -> io::Result<()> {
        // SAFETY: the range is our mapping.
        let result = unsafe { libc::msync(self.first.as_ptr().cast(), self.bytes, libc::MS_SYNC) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: mapped in `create`, unmapped once.
        unsafe { libc::munmap(self.first.as_ptr().cast(), self.bytes) };
    }
}

/// A file written directly, in large pieces: the device's own rate.
pub struct DirectFile {
    device: FileDevice,
    buffer: AlignedBuf,
}

impl DirectFile {
    /// A new file of `len` bytes, all of it written once.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn create(path: &Path, len: u64) -> io::Result<Self> {
        let device = FileDevice::create(path, len)?;
        let mut buffer = AlignedBuf::zeroed(1 << 20);
        buffer.fill(0x5A);
        let file = Self { device, buffer };
        file.write(file.device.len())?;
        Ok(file)
    }

    /// Writes `len` bytes from the start, one megabyte after the other, and flushes.
    ///
    /// # Errors
    /// Those of the device.
    pub fn write(&self, len: u64) -> io::Result<()> {
        let mut at = 0;
        while at < len {
            let n = (len - at).next_multiple_of(4096).min(self.buffer.len() as u64);
            self.device.write(at, &self.buffer[..n as usize])?;
            at += n;
        }
        self.device.flush()
    }
}
