//! Peers for measuring checkpoints: a mapping made durable by `msync`, and a file written directly.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use super::mapped::Mapped;
use deepram_linux::buffer::AlignedBuf;
use deepram_pool::device::{Device, FileDevice};

/// A shared mapping of a file, made durable by `msync`.
pub struct MappedFile(Mapped);

impl MappedFile {
    /// Creates and maps a file of `bytes` zero bytes, all of them written; with `MADV_RANDOM` if `random`.
    ///
    /// # Errors
    /// The errors of the file system and of `mmap`.
    pub fn create(path: &Path, bytes: usize, random: bool) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        let zeros = vec![0; 1 << 20];
        for at in (0..bytes).step_by(zeros.len()) {
            use std::os::unix::fs::FileExt;
            file.write_all_at(&zeros[..zeros.len().min(bytes - at)], at as u64)?;
        }
        file.sync_all()?;
        // The mapping must read the pages itself instead of finding them in the page cache.
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        let mapped = Mapped::shared(&file, bytes)?;
        if random {
            mapped.advise(0, bytes, libc::MADV_RANDOM)?;
        }
        Ok(Self(mapped))
    }

    /// Returns the words of the mapping.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        self.0.words()
    }

    /// Makes all stores durable.
    ///
    /// # Errors
    /// The error of `msync`.
    pub fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
}

/// A file written directly in large pieces, to measure the device's own rate.
pub struct DirectFile {
    device: FileDevice,
    buffer: AlignedBuf,
}

impl DirectFile {
    /// Creates a file of `len` bytes and writes all of it once.
    ///
    /// # Errors
    /// The errors of the file system.
    pub fn create(path: &Path, len: u64) -> io::Result<Self> {
        let device = FileDevice::create(path, len)?;
        let mut buffer = AlignedBuf::zeroed(1 << 20);
        buffer.fill(0x5A);
        let file = Self { device, buffer };
        file.write(file.device.len())?;
        Ok(file)
    }

    /// Overwrites `len` bytes at `at` with one durable write (`O_DSYNC`). Both are multiples of 512.
    ///
    /// # Errors
    /// The device's errors.
    pub fn overwrite_durably(&self, at: u64, len: usize) -> io::Result<()> {
        self.device.write_durable(at, &self.buffer[..len])
    }

    /// Writes `len` bytes from the start, in pieces of 1 MiB, and flushes.
    ///
    /// # Errors
    /// The device's errors.
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
