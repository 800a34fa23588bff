//! The system calls of [`super::FileDevice`] and the I/O queues, one method for each. [`Linux`] makes the calls;
//! tests substitute a kernel that loses, shortens and fails them.

use std::fmt;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::Path;

use rustix::fs::{AtFlags, FallocateFlags, FileType, FlockOperation, Mode, OFlags, SeekFrom, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};

use super::close_on_fork::ProcessFile;
pub use deepram_linux::ring::{Ring, Transfer, TransferBuffer};

/// Result of a system call; the error is its errno.
pub type SysResult<T> = Result<T, Errno>;

/// Type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A block device.
    Block,
    /// Any other type.
    Other,
}

/// Attributes of an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStat {
    /// Type of the file.
    pub kind: FileKind,
    /// Length in bytes.
    pub len: u64,
    /// Number of names (hard links).
    pub links: u64,
    /// Permissions.
    pub mode: Mode,
}

/// System calls, with the meaning, flags and errors of their manual pages.
pub trait Kernel: fmt::Debug + Send + Sync + 'static {
    /// An open file; dropping it closes the file.
    type File: fmt::Debug + Send + Sync;

    /// `open`.
    ///
    /// # Errors
    /// The errors of the system call, as in every other method.
    fn open(&self, path: &Path, flags: OFlags, mode: Mode) -> SysResult<Self::File>;
    /// `unlink`.
    ///
    /// # Errors
    /// The errors of the system call.
    fn unlink(&self, path: &Path) -> SysResult<()>;
    /// `statx` of these attributes alone; the length of a block device is the offset of its end. A query of the time of the last
    /// change, as `fstat` makes it, would have the next durable write change and write the inode.
    ///
    /// # Errors
    /// The errors of the system calls.
    fn stat(&self, file: &Self::File) -> SysResult<FileStat>;
    /// Returns the unit of direct transfers in bytes, if the kernel reports one.
    fn direct_unit(&self, file: &Self::File) -> Option<usize>;
    /// `flock`.
    ///
    /// # Errors
    /// The errors of the system call.
    fn flock(&self, file: &Self::File, operation: FlockOperation) -> SysResult<()>;
    /// `fchmod`.
    ///
    /// # Errors
    /// The errors of the system call.
    fn fchmod(&self, file: &Self::File, mode: Mode) -> SysResult<()>;
    /// Releases the file, with its locks and claims: the descriptor stays open, but transfers through it fail.
    fn detach(&self, file: &Self::File);
    /// `fallocate` of `len` bytes from the beginning.
    ///
    /// # Errors
    /// The errors of the system call.
    fn fallocate(&self, file: &Self::File, len: u64) -> SysResult<()>;
    /// `ftruncate`.
    ///
    /// # Errors
    /// The errors of the system call.
    fn ftruncate(&self, file: &Self::File, len: u64) -> SysResult<()>;
    /// `fsync`, also of a directory.
    ///
    /// # Errors
    /// The errors of the system call.
    fn fsync(&self, file: &Self::File) -> SysResult<()>;
    /// `fdatasync`.
    ///
    /// # Errors
    /// The errors of the system call.
    fn fdatasync(&self, file: &Self::File) -> SysResult<()>;
    /// `pread`: may read less than requested.
    ///
    /// # Errors
    /// The errors of the system call.
    fn pread(&self, file: &Self::File, buf: &mut [u8], offset: u64) -> SysResult<usize>;
    /// `pwritev2` of one buffer: may write less than requested.
    ///
    /// # Errors
    /// The errors of the system call.
    fn pwritev2(&self, file: &Self::File, buf: &[u8], offset: u64, flags: ReadWriteFlags)
    -> SysResult<usize>;
    /// Returns the descriptor by which a [`Ring`] refers to the file.
    fn fd(&self, file: &Self::File) -> RawFd;
    /// Makes a queue of `entries` transfers, if the kernel allows one. Completions on a `quiet` queue do not interrupt other
    /// processors; see [`Ring::take_in`].
    fn ring(&self, entries: u32, quiet: bool) -> Option<Box<dyn Ring>>;
}

/// The Linux kernel that this process runs on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Linux;

impl Kernel for Linux {
    type File = ProcessFile;

    fn open(&self, path: &Path, flags: OFlags, mode: Mode) -> SysResult<ProcessFile> {
        let fd: OwnedFd = rustix::fs::open(path, flags | OFlags::CLOEXEC, mode)?;
        ProcessFile::new(fd).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOMEM))
    }

    fn unlink(&self, path: &Path) -> SysResult<()> {
        rustix::fs::unlink(path)
    }

    fn stat(&self, file: &ProcessFile) -> SysResult<FileStat> {
        let wanted = StatxFlags::TYPE | StatxFlags::MODE | StatxFlags::NLINK | StatxFlags::SIZE;
        let found = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, wanted)?;
        let mode = found.stx_mode.into();
        let (kind, len) = match FileType::from_raw_mode(mode) {
            FileType::RegularFile => (FileKind::Regular, found.stx_size),
            FileType::BlockDevice => (FileKind::Block, rustix::fs::seek(file, SeekFrom::End(0))?),
            _ => (FileKind::Other, 0),
        };
        Ok(FileStat { kind, len, links: found.stx_nlink.into(), mode: Mode::from_raw_mode(mode) })
    }

    fn direct_unit(&self, file: &ProcessFile) -> Option<usize> {
        let found = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
        let named = found.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
        named.then_some(found.stx_dio_offset_align as usize)
    }

    fn flock(&self, file: &ProcessFile, operation: FlockOperation) -> SysResult<()> {
        rustix::fs::flock(file, operation)
    }

    fn fchmod(&self, file: &ProcessFile, mode: Mode) -> SysResult<()> {
        rustix::fs::fchmod(file, mode)
    }

    fn detach(&self, file: &ProcessFile) {
        file.detach();
    }

    fn fallocate(&self, file: &ProcessFile, len: u64) -> SysResult<()> {
        rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len)
    }

    fn ftruncate(&self, file: &ProcessFile, len: u64) -> SysResult<()> {
        rustix::fs::ftruncate(file, len)
    }

    fn fsync(&self, file: &ProcessFile) -> SysResult<()> {
        rustix::fs::fsync(file)
    }

    fn fdatasync(&self, file: &ProcessFile) -> SysResult<()> {
        rustix::fs::fdatasync(file)
    }

    fn pread(&self, file: &ProcessFile, buf: &mut [u8], offset: u64) -> SysResult<usize> {
        rustix::io::pread(file, buf, offset)
    }

    fn pwritev2(
        &self,
        file: &ProcessFile,
        buf: &[u8],
        offset: u64,
        flags: ReadWriteFlags,
    ) -> SysResult<usize> {
        rustix::io::pwritev2(file.as_fd(), &[IoSlice::new(buf)], offset, flags)
    }

    fn fd(&self, file: &ProcessFile) -> RawFd {
        file.as_fd().as_raw_fd()
    }

    fn ring(&self, entries: u32, quiet: bool) -> Option<Box<dyn Ring>> {
        deepram_linux::ring::create(entries, quiet)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::time::{ClockId, clock_gettime};

    use super::*;

    /// From Linux 6.13 on, a change soon after a query of the time of the last change gets an exact time instead of that of the
    /// last clock tick. It changes the inode, so that each durable write would write the inode too.
    #[test]
    fn attributes_are_read_without_a_query_of_the_time_of_the_last_change() {
        let folder = tempfile::tempdir().unwrap();
        let flags = OFlags::RDWR | OFlags::CREATE;
        let file = Linux.open(&folder.path().join("file"), flags, Mode::RUSR | Mode::WUSR).unwrap();
        let write = || Linux.pwritev2(&file, b"contents", 0, ReadWriteFlags::empty()).unwrap();
        let last_tick = || {
            let time = clock_gettime(ClockId::RealtimeCoarse);
            (time.tv_sec, time.tv_nsec)
        };
        let is_of_a_tick = |_| {
            std::thread::sleep(Duration::from_millis(20));
            let before = last_tick();
            write();
            Linux.stat(&file).unwrap();
            write();
            let found = rustix::fs::fstat(&file).unwrap();
            (found.st_ctime, found.st_ctime_nsec as i64) == before
        };
        assert!((0..20).any(is_of_a_tick));
    }
}
