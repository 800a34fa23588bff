//! A file or block device as flash, through direct I/O.

use std::io;
use std::os::fd::RawFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};
use rustix::process::{Resource, getrlimit};

use super::kernel::{FileKind, FileStat, Kernel, Linux, Ring, SysResult};
use super::{ALIGN, Device, SECTOR};
use crate::process::Owner;

/// Longest wait for a lock. The kernel tears down the io_uring of a killed process after the parent has seen the
/// process end, and only then closes the file that the ring wrote to.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
const LOCK_RETRY: Duration = Duration::from_millis(5);
/// Permissions of a new file: only its owner may read and write it.
const MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// A regular file or block device, locked against a second opener while it is open. A block device opened for writing
/// is also claimed, as a mounted file system claims its own.
///
/// The device belongs to the process that opened it: in a child made by `fork` every transfer is an error, and the
/// lock ends with the parent. (A child that was not made by the C library's `fork` keeps the lock until it calls
/// `exec`.)
///
/// Transfers bypass the page cache (`O_DIRECT`) where the file system allows it. Elsewhere ([`FileDevice::is_direct`]
/// is `false`) they go through the page cache, which costs memory outside the pool's budget but is equally durable.
#[derive(Debug)]
pub struct FileDevice<K: Kernel = Linux> {
    kernel: K,
    file: K::File,
    owner: Owner,
    path: PathBuf,
    len: u64,
    /// State of a regular file when it was opened; `None` for a block device.
    opened_as: Option<FileStat>,
    direct: bool,
    granule: usize,
}

impl FileDevice {
    /// Creates a file of `len` bytes (rounded down to [`ALIGN`]) at `path`, or opens the block device at `path`. A
    /// file must not exist yet. Its space is reserved, so that later writes cannot run out of space, and it survives
    /// a power cut from then on. Only its owner may read or write it, independent of the umask. Nothing is written to
    /// a block device.
    ///
    /// # Errors
    /// `AlreadyExists`; `StorageFull` if the file system lacks the space, `FileTooLarge` if the process may not write
    /// so large a file (`RLIMIT_FSIZE`), both of which leave no file behind; `ResourceBusy` for a block device in
    /// use; any other error of the file system.
    pub fn create(path: &Path, len: u64) -> io::Result<Self> {
        Self::create_in(Linux, path, len)
    }

    /// Opens an existing file or block device.
    ///
    /// # Errors
    /// `WouldBlock` if another process has it open as a pool; `ResourceBusy` if a block device is to be written and
    /// is mounted or claimed otherwise; `FileTooLarge` if a file is to be written and is larger than the process may
    /// write (`RLIMIT_FSIZE`); any error of the file system.
    pub fn open(path: &Path, writable: bool) -> io::Result<Self> {
        Self::open_in(Linux, path, writable)
    }
}

impl<K: Kernel> FileDevice<K> {
    /// Does the same as [`FileDevice::create`], through the system calls of this kernel.
    ///
    /// # Errors
    /// The errors of [`FileDevice::create`].
    pub fn create_in(kernel: K, path: &Path, len: u64) -> io::Result<Self> {
        let device = if is_block(path) {
            Self::open_in(kernel, path, true)?
        } else {
            let len = len / ALIGN as u64 * ALIGN as u64;
            check_size_limit(len)?;
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
            let (file, direct) = open_direct(&kernel, path, flags)?;
            let mut device = Self::with(kernel, file, path, len, None, direct)?;
            if let Err(error) = device.reserve() {
                // An incomplete file is useless. The caller gets the first error.
                let _ = device.kernel.unlink(path);
                return Err(error);
            }
            device.opened_as = Some(device.kernel.stat(&device.file)?);
            device
        };
        if device.len < len / ALIGN as u64 * ALIGN as u64 {
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                format!("{} has {} bytes, but {len} are needed", path.display(), device.len),
            ));
        }
        Ok(device)
    }

    /// Does the same as [`FileDevice::open`], through the system calls of this kernel.
    ///
    /// # Errors
    /// The errors of [`FileDevice::open`].
    pub fn open_in(kernel: K, path: &Path, writable: bool) -> io::Result<Self> {
        let foreign =
            || io::Error::new(io::ErrorKind::InvalidInput, "neither a regular file nor a block device");
        // Opening a pipe would wait for its other end, and opening a terminal or a tape has side effects.
        if path.metadata().is_ok_and(|m| !m.is_file() && !m.file_type().is_block_device()) {
            return Err(foreign());
        }
        let claims = writable && is_block(path);
        let access = if writable { OFlags::RDWR } else { OFlags::RDONLY };
        let access = if claims { access | OFlags::EXCL } else { access };
        let (file, direct) = retry_while(Errno::BUSY, || open_direct(&kernel, path, access))?;
        let found = kernel.stat(&file)?;
        let opened_as = match found.kind {
            FileKind::Regular => Some(found),
            FileKind::Block if claims == writable => None,
            // The path may have become a block device since the check above, and is then not claimed.
            FileKind::Block | FileKind::Other => return Err(foreign()),
        };
        if opened_as.is_some() && writable {
            check_size_limit(found.len)?;
        }
        let len = found.len / ALIGN as u64 * ALIGN as u64;
        let device = Self::with(kernel, file, path, len, opened_as, direct)?;
        device.lock()?;
        Ok(device)
    }

    fn with(
        kernel: K,
        file: K::File,
        path: &Path,
        len: u64,
        opened_as: Option<FileStat>,
        direct: bool,
    ) -> io::Result<Self> {
        let granule = granule(&kernel, &file, direct);
        let (owner, path) = (Owner::here()?, path.to_owned());
        Ok(Self { kernel, file, owner, path, len, opened_as, direct, granule })
    }

    /// Returns whether transfers bypass the page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Locks a new file, sets its mode, reserves its space, and makes the file and its name durable.
    fn reserve(&self) -> io::Result<()> {
        self.lock()?;
        if !self.kernel.stat(&self.file)?.mode.contains(MODE) {
            // The umask removed the owner's permissions.
            self.kernel.fchmod(&self.file, MODE)?;
        }
        match self.kernel.fallocate(&self.file, self.len) {
            // The file system cannot reserve space: set the size, and take the space on writing.
            Err(Errno::OPNOTSUPP) => self.kernel.ftruncate(&self.file, self.len)?,
            result => result?,
        }
        self.kernel.fsync(&self.file)?;
        let parent = self.path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let directory = self.kernel.open(parent, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        Ok(self.kernel.fsync(&directory)?)
    }

    fn lock(&self) -> io::Result<()> {
        let exclusively = FlockOperation::NonBlockingLockExclusive;
        Ok(retry_while(Errno::WOULDBLOCK, || self.kernel.flock(&self.file, exclusively))?)
    }

    /// Checks that a file that had a name still has one and has not become shorter; otherwise its data is not
    /// durable.
    fn check_present(&self) -> io::Result<()> {
        let Some(FileStat { len, links, .. }) = self.opened_as else { return Ok(()) };
        let found = self.kernel.stat(&self.file)?;
        if found.links == 0 && links > 0 {
            let problem = "the file was removed while it was open: its data is lost when it is closed";
            return Err(io::Error::new(io::ErrorKind::NotFound, problem));
        }
        if found.len < len {
            let problem =
                format!("the file was truncated from {len} to {} bytes while it was open", found.len);
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, problem));
        }
        Ok(())
    }

    fn write_with(&self, offset: u64, buf: &[u8], flags: ReadWriteFlags) -> io::Result<()> {
        self.admits(offset, buf.len())?;
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            match self.kernel.pwritev2(&self.file, &buf[done..], at, flags) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// A block device would report this itself; a file would silently grow.
    fn bounds(&self, offset: u64, len: usize) -> io::Result<()> {
        self.owner.check().map_err(io::Error::other)?;
        if offset.checked_add(len as u64).is_none_or(|end| end > self.len) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{len} bytes at {offset} reach beyond the device's {} bytes", self.len),
            ));
        }
        Ok(())
    }
}

fn is_block(path: &Path) -> bool {
    path.metadata().is_ok_and(|m| m.file_type().is_block_device())
}

/// Returns an error for a file larger than the process may write: the kernel would end the process by SIGXFSZ.
fn check_size_limit(len: u64) -> io::Result<()> {
    match getrlimit(Resource::Fsize).current {
        Some(most) if len > most => {
            let problem =
                format!("{len} bytes are more than this process may write to a file, {most} (`ulimit -f`)");
            Err(io::Error::new(io::ErrorKind::FileTooLarge, problem))
        }
        _ => Ok(()),
    }
}

/// Repeats an attempt for [`LOCK_PATIENCE`] while it fails with this error.
fn retry_while<T>(error: Errno, mut attempt: impl FnMut() -> SysResult<T>) -> SysResult<T> {
    let until = Instant::now() + LOCK_PATIENCE;
    loop {
        match attempt() {
            Err(e) if e == error && Instant::now() < until => std::thread::sleep(LOCK_RETRY),
            result => return result,
        }
    }
}

/// Opens with `O_DIRECT`, or without it if the file system refuses.
fn open_direct<K: Kernel>(kernel: &K, path: &Path, flags: OFlags) -> SysResult<(K::File, bool)> {
    match kernel.open(path, flags | OFlags::DIRECT, MODE) {
        Ok(file) => Ok((file, true)),
        // The refused attempt may have created the file.
        Err(Errno::INVAL) if flags.contains(OFlags::CREATE) => {
            Ok((kernel.open(path, flags - OFlags::EXCL, MODE)?, false))
        }
        Err(Errno::INVAL) => Ok((kernel.open(path, flags, MODE)?, false)),
        Err(error) => Err(error),
    }
}

/// Returns the least unit of direct transfers that the kernel reports; [`ALIGN`] if it reports none.
fn granule<K: Kernel>(kernel: &K, file: &K::File, direct: bool) -> usize {
    if !direct {
        return SECTOR;
    }
    let named = kernel.direct_unit(file).map(|unit| unit.max(SECTOR));
    named.filter(|unit| unit.is_power_of_two() && *unit <= ALIGN).unwrap_or(ALIGN)
}

impl<K: Kernel> Device for FileDevice<K> {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.bounds(offset, buf.len())?;
        let mut done = 0;
        while done < buf.len() {
            match self.kernel.pread(&self.file, &mut buf[done..], offset + done as u64) {
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
        self.bounds(0, 0)?;
        self.kernel.fdatasync(&self.file)?;
        self.check_present()
    }

    fn write_durable(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        match self.write_with(offset, buf, ReadWriteFlags::DSYNC) {
            Err(error) if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => {
                self.write(offset, buf)?;
                self.flush()
            }
            result => result.and_then(|()| self.check_present()),
        }
    }

    fn admits(&self, offset: u64, len: usize) -> io::Result<()> {
        self.bounds(offset, len)?;
        if self.opened_as.is_some() { check_size_limit(offset + len as u64) } else { Ok(()) }
    }

    fn granule(&self) -> usize {
        self.granule
    }

    fn queue_fd(&self) -> Option<RawFd> {
        self.owner.is_here().then(|| self.kernel.fd(&self.file))
    }

    fn ring(&self, entries: u32, quiet: bool) -> Option<Box<dyn Ring>> {
        self.kernel.ring(entries, quiet)
    }

    fn release(&self) {
        if self.owner.is_here() {
            // Closing the descriptor would release the lock too, as it releases the claim on a block device.
            let _ = self.kernel.flock(&self.file, FlockOperation::Unlock);
            self.kernel.detach(&self.file);
        }
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }
}
