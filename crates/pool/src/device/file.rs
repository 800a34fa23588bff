//! A file or block device, through direct I/O.

use std::io;
use std::os::fd::RawFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};
use rustix::process::{Resource, getrlimit};

use super::kernel::{Call, Found, Kernel, Kind, Linux, Ring};
use super::{ALIGN, Device, SECTOR};
use crate::process::Owner;

/// How long a lock is waited for. The kernel tears the io_uring of a process that was killed down
/// after its parent has seen it end, and only then is the file it wrote to closed.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
const LOCK_RETRY: Duration = Duration::from_millis(5);
/// What a new file may be used for: reading and writing, by its owner alone.
const MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// A regular file or block device, locked against a second opener for as long as it is open; a block device that is
/// open for writing is claimed besides, as a mounted file system claims its own.
///
/// It belongs to the process that opened it: in a child made by `fork` every transfer is an error, and the lock goes
/// with the parent. (Of a child that the C library's `fork` did not make that holds only when it calls `exec`.)
///
/// Transfers bypass the page cache (`O_DIRECT`) where the file system allows it; elsewhere
/// ([`FileDevice::is_direct`] is `false`) they go through it, which costs memory outside the
/// pool's budget but is as durable.
#[derive(Debug)]
pub struct FileDevice<K: Kernel = Linux> {
    kernel: K,
    file: K::File,
    owner: Owner,
    path: PathBuf,
    len: u64,
    /// A regular file when it was opened; `None` for a block device.
    before: Option<Found>,
    direct: bool,
    granule: usize,
}

impl FileDevice {
    /// Creates a file of `len` bytes (rounded down to [`ALIGN`]) at `path`, which must not exist
    /// unless it is a block device; its space is reserved, so that later writes cannot run out. It survives a
    /// power cut from then on. Nobody but its owner may read or write it, whatever the umask. Nothing is written to a
    /// block device.
    ///
    /// # Errors
    /// `AlreadyExists`; `StorageFull` where the file system lacks the space, `FileTooLarge` where the process may not
    /// write so large a file (`RLIMIT_FSIZE`), both leaving nothing behind; `ResourceBusy` for a block device in use; any
    /// other error of the file system.
    pub fn create(path: &Path, len: u64) -> io::Result<Self> {
        Self::create_in(Linux, path, len)
    }

    /// Opens an existing file or block device.
    ///
    /// # Errors
    /// `WouldBlock` where another process has it open as a pool; `ResourceBusy` for a block device that is to be written
    /// and is mounted or claimed in another way; `FileTooLarge` for a file that is to be written and is larger than the
    /// process may write (`RLIMIT_FSIZE`); any error of the file system.
    pub fn open(path: &Path, writable: bool) -> io::Result<Self> {
        Self::open_in(Linux, path, writable)
    }
}

impl<K: Kernel> FileDevice<K> {
    /// As [`FileDevice::create`], through the calls of this kernel.
    ///
    /// # Errors
    /// As [`FileDevice::create`].
    pub fn create_in(kernel: K, path: &Path, len: u64) -> io::Result<Self> {
        let device = if is_block(path) {
            Self::open_in(kernel, path, true)?
        } else {
            let len = len / ALIGN as u64 * ALIGN as u64;
            allowed(len)?;
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
            let (file, direct) = open_direct(&kernel, path, flags)?;
            let mut device = Self::with(kernel, file, path, len, None, direct)?;
            if let Err(error) = device.reserve() {
                // A half-made file is of no use to anybody; the first error is the one to tell.
                let _ = device.kernel.unlink(path);
                return Err(error);
            }
            device.before = Some(device.kernel.stat(&device.file)?);
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

    /// As [`FileDevice::open`], through the calls of this kernel.
    ///
    /// # Errors
    /// As [`FileDevice::open`].
    pub fn open_in(kernel: K, path: &Path, writable: bool) -> io::Result<Self> {
        let foreign =
            || io::Error::new(io::ErrorKind::InvalidInput, "neither a regular file nor a block device");
        // Opening a pipe would wait for its other end, and opening a terminal or a tape do what nobody asked for.
        if path.metadata().is_ok_and(|m| !m.is_file() && !m.file_type().is_block_device()) {
            return Err(foreign());
        }
        let claims = writable && is_block(path);
        let access = if writable { OFlags::RDWR } else { OFlags::RDONLY };
        let access = if claims { access | OFlags::EXCL } else { access };
        let (file, direct) = patiently(Errno::BUSY, || open_direct(&kernel, path, access))?;
        let found = kernel.stat(&file)?;
        let before = match found.kind {
            Kind::Regular => Some(found),
            Kind::Block if claims == writable => None,
            // Or it has become one since it was looked at, and is not claimed.
            Kind::Block | Kind::Other => return Err(foreign()),
        };
        if before.is_some() && writable {
            allowed(found.len)?;
        }
        let len = found.len / ALIGN as u64 * ALIGN as u64;
        let device = Self::with(kernel, file, path, len, before, direct)?;
        device.lock()?;
        Ok(device)
    }

    fn with(
        kernel: K,
        file: K::File,
        path: &Path,
        len: u64,
        before: Option<Found>,
        direct: bool,
    ) -> io::Result<Self> {
        let granule = granule(&kernel, &file, direct);
        let (owner, path) = (Owner::here()?, path.to_owned());
        Ok(Self { kernel, file, owner, path, len, before, direct, granule })
    }

    /// Whether transfers bypass the page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Locks a new file, sees to its mode, takes its space, and makes both durable, with its name.
    fn reserve(&self) -> io::Result<()> {
        self.lock()?;
        if !self.kernel.stat(&self.file)?.mode.contains(MODE) {
            // The umask took its owner's rights.
            self.kernel.fchmod(&self.file, MODE)?;
        }
        match self.kernel.fallocate(&self.file, self.len) {
            // A file system without reservation: the size is set, space is taken on writing.
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
        Ok(patiently(Errno::WOULDBLOCK, || self.kernel.flock(&self.file, exclusively))?)
    }

    /// That the file has a name still, if it had one, and is as long as it was: else nothing in it is durable.
    fn present(&self) -> io::Result<()> {
        let Some(Found { len, links, .. }) = self.before else { return Ok(()) };
        let found = self.kernel.stat(&self.file)?;
        if found.links == 0 && links > 0 {
            let problem = "the file was removed while it was open: what it holds is lost when it is closed";
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

    /// A block device would say so itself; a file would silently grow.
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

/// An error for a file larger than the process may write: the kernel would end it by SIGXFSZ.
fn allowed(len: u64) -> io::Result<()> {
    match getrlimit(Resource::Fsize).current {
        Some(most) if len > most => {
            let problem =
                format!("{len} bytes are more than this process may write to a file, {most} (`ulimit -f`)");
            Err(io::Error::new(io::ErrorKind::FileTooLarge, problem))
        }
        _ => Ok(()),
    }
}

/// Tries again for a moment while this is the error.
fn patiently<T>(error: Errno, mut attempt: impl FnMut() -> Call<T>) -> Call<T> {
    let until = Instant::now() + LOCK_PATIENCE;
    loop {
        match attempt() {
            Err(e) if e == error && Instant::now() < until => std::thread::sleep(LOCK_RETRY),
            result => return result,
        }
    }
}

/// Opens with `O_DIRECT`, or without where the file system refuses it.
fn open_direct<K: Kernel>(kernel: &K, path: &Path, flags: OFlags) -> Call<(K::File, bool)> {
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

/// The least unit of direct transfers that the kernel names; [`ALIGN`] if it names none.
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
        self.present()
    }

    fn write_durable(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        match self.write_with(offset, buf, ReadWriteFlags::DSYNC) {
            Err(error) if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => {
                self.write(offset, buf)?;
                self.flush()
            }
            result => result.and_then(|()| self.present()),
        }
    }

    fn admits(&self, offset: u64, len: usize) -> io::Result<()> {
        self.bounds(offset, len)?;
        if self.before.is_some() { allowed(offset + len as u64) } else { Ok(()) }
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
            // At the latest the lock goes with the descriptor, as the claim on a block device does.
            let _ = self.kernel.flock(&self.file, FlockOperation::Unlock);
            self.kernel.detach(&self.file);
        }
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }
}
