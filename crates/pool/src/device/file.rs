//! A file or block device, through direct I/O.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FallocateFlags, FlockOperation, StatxFlags, statx};
use rustix::io::{Errno, ReadWriteFlags, pread, pwritev2};

use super::{ALIGN, Device, SECTOR};

/// How long a lock is waited for. The kernel tears the io_uring of a process that was killed down
/// after its parent has seen it end, and only then is the file it wrote to closed.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
const LOCK_RETRY: Duration = Duration::from_millis(5);

/// A regular file or block device, locked against a second opener for as long as it is open.
///
/// Transfers bypass the page cache (`O_DIRECT`) where the file system allows it; elsewhere
/// ([`FileDevice::is_direct`] is `false`) they go through it, which costs memory outside the
/// pool's budget but is as durable.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    path: PathBuf,
    len: u64,
    direct: bool,
    granule: usize,
}

impl FileDevice {
    /// Creates a file of `len` bytes (rounded down to [`ALIGN`]) at `path`, which must not exist
    /// unless it is a block device; its space is reserved, so that later writes cannot run out.
    ///
    /// # Errors
    /// `AlreadyExists`; `StorageFull` where the file system lacks the space (nothing is left
    /// behind); any other error of the file system.
    pub fn create(path: &Path, len: u64) -> io::Result<Self> {
        let is_block = path.metadata().is_ok_and(|m| m.file_type().is_block_device());
        let device = if is_block {
            Self::open(path, true)?
        } else {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create_new(true);
            let (file, direct) = open_direct(&mut options, path)?;
            let len = len / ALIGN as u64 * ALIGN as u64;
            let granule = granule(&file, direct);
            let device = Self { file, path: path.to_owned(), len, direct, granule };
            device.lock()?;
            match rustix::fs::fallocate(&device.file, FallocateFlags::empty(), 0, len) {
                Ok(()) => {}
                // A file system without reservation: the size is set, space is taken on writing.
                Err(Errno::OPNOTSUPP) => device.file.set_len(len)?,
                Err(error) => {
                    // A half-made file is of no use to anybody; the first error is the one to tell.
                    let _ = std::fs::remove_file(path);
                    return Err(error.into());
                }
            }
            device.file.sync_all()?;
            if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
                File::open(parent)?.sync_all()?;
            }
            device
        };
        if device.len < len / ALIGN as u64 * ALIGN as u64 {
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                format!("{} holds {} bytes, {len} are needed", path.display(), device.len),
            ));
        }
        Ok(device)
    }

    /// Opens an existing file or block device.
    ///
    /// # Errors
    /// `WouldBlock` where another process has it open as a pool; any error of the file system.
    pub fn open(path: &Path, writable: bool) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(writable);
        let (file, direct) = open_direct(&mut options, path)?;
        let metadata = file.metadata()?;
        let kind = metadata.file_type();
        let len = if kind.is_block_device() {
            rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0))?
        } else if kind.is_file() {
            metadata.len()
        } else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "neither a regular file nor a block device",
            ));
        };
        let len = len / ALIGN as u64 * ALIGN as u64;
        let granule = granule(&file, direct);
        let device = Self { file, path: path.to_owned(), len, direct, granule };
        device.lock()?;
        Ok(device)
    }

    /// Whether transfers bypass the page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    fn lock(&self) -> io::Result<()> {
        let until = Instant::now() + LOCK_PATIENCE;
        loop {
            match rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) if Instant::now() < until => std::thread::sleep(LOCK_RETRY),
                result => return Ok(result?),
            }
        }
    }

    fn write_with(&self, offset: u64, buf: &[u8], flags: ReadWriteFlags) -> io::Result<()> {
        self.bounds(offset, buf.len())?;
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            match pwritev2(self.file.as_fd(), &[IoSlice::new(&buf[done..])], at, flags) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// A block device would say so itself; a file would silently grow.
    fn bounds(&self, offset: u64, len: usize) -> io::Result<()> {
        if offset.checked_add(len as u64).is_none_or(|end| end > self.len) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{len} bytes at {offset} reach beyond the device's {} bytes", self.len),
            ));
        }
        Ok(())
    }
}

/// Opens with `O_DIRECT`, or without where the file system refuses it.
fn open_direct(options: &mut OpenOptions, path: &Path) -> io::Result<(File, bool)> {
    let direct = rustix::fs::OFlags::DIRECT.bits().cast_signed();
    match options.custom_flags(direct).open(path) {
        Ok(file) => Ok((file, true)),
        Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
            // The refused attempt may have created the file.
            options.create_new(false);
            Ok((options.custom_flags(0).open(path)?, false))
        }
        Err(error) => Err(error),
    }
}

/// The least unit of direct transfers that the kernel names; [`ALIGN`] if it names none.
fn granule(file: &File, direct: bool) -> usize {
    if !direct {
        return SECTOR;
    }
    let asked = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    asked
        .ok()
        .filter(|found| found.stx_mask & StatxFlags::DIOALIGN.bits() != 0)
        .map(|found| (found.stx_dio_offset_align as usize).max(SECTOR))
        .filter(|granule| granule.is_power_of_two() && *granule <= ALIGN)
        .unwrap_or(ALIGN)
}

impl Device for FileDevice {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            match pread(&self.file, &mut buf[done..], offset + done as u64) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.write_with(offset, buf, ReadWriteFlags::empty())
    }

    fn flush(&self) -> io::Result<()> {
        rustix::fs::fdatasync(&self.file)?;
        Ok(())
    }

    fn write_durable(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        match self.write_with(offset, buf, ReadWriteFlags::DSYNC) {
            Err(error) if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => {
                self.write(offset, buf)?;
                self.flush()
            }
            result => result,
        }
    }

    fn granule(&self) -> usize {
        self.granule
    }

    fn queue_fd(&self) -> Option<RawFd> {
        Some(self.file.as_raw_fd())
    }

    fn release(&self) {
        // At the latest the lock goes with the descriptor.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }
}
